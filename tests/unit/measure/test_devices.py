"""The devices of a machine: found, read in threads, and nobody waits for a driver."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from backend.measure import devices
from backend.measure.devices import NOTHING, MachineDevice, Readers, gpus, processor
from backend.measure.sensors import (
    CpuLoad,
    DeviceState,
    SensorReading,
    Usage,
    nvidia_addresses,
)
from tests.support.fake_gpus import GIB, cards
from tests.support.places import ROOT

NVML = r"""
#include <string.h>
typedef unsigned long device;
struct rates { unsigned gpu, memory; };
struct memory { unsigned long long total, free, used; };
struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };
struct pci { char old[16]; unsigned numbers[5]; char address[32]; };
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *out) { *out = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned at, device *out) { *out = at + 1; return 0; }
int nvmlDeviceGetPciInfo_v3(device d, struct pci *out) {
  strcpy(out->address, d == 1 ? "00000000:19:00.0" : "00000000:3B:00.0");
  return 0;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, device *out) {
  *out = strstr(bus, ":19:") ? 1 : strstr(bus, ":3b:") ? 2 : 0;
  return *out == 0;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, device *out) { return 6; }
int nvmlDeviceGetName(device d, char *out, unsigned size) {
  strncpy(out, "NVIDIA H200", size);
  return 0;
}
int nvmlDeviceGetUtilizationRates(device d, struct rates *out) {
  out->gpu = d == 1 ? 83 : 0;
  return 0;
}
int nvmlDeviceGetMemoryInfo(device d, struct memory *out) {
  out->total = 140ull << 30;
  out->used = 36ull << 30; /* with what the driver keeps */
  return d == 2 ? 3 : 0;
}
#ifndef OLD
int nvmlDeviceGetMemoryInfo_v2(device d, struct memory_v2 *out) {
  if (out->version != (sizeof(struct memory_v2) | 2 << 24)) return 25;
  out->total = 140ull << 30;
  out->reserved = 1ull << 30;
  out->used = 35ull << 30;
  return d == 2 ? 3 : 0;
}
#endif
int nvmlDeviceGetClockInfo(device d, int kind, unsigned *out) { *out = 1980; return 0; }
int nvmlDeviceGetTemperature(device d, int sensor, unsigned *out) { *out = 54; return 0; }
int nvmlDeviceGetPowerUsage(device d, unsigned *out) { *out = 312500; return 0; }
int nvmlDeviceGetCurrentClocksEventReasons(device d, unsigned long long *out) {
  *out = d == 1 ? 0x4 : 0x1;
  return 0;
}
"""


def library(folder: Path, *options: str, source: str = NVML) -> str:
    (folder / "nvml.c").write_text(source)
    target = str(folder / "libnvml.so")
    cc = ["cc", "-shared", "-fPIC", *options, "-o", target, folder / "nvml.c"]
    subprocess.run(cc, check=True)
    return target


@pytest.fixture(scope="module")
def nvml(tmp_path_factory: pytest.TempPathFactory) -> str:
    return library(tmp_path_factory.mktemp("nvml"))


def until(true: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_amd_gpus_by_their_addresses(tmp_path: Path) -> None:
    first, second = cards(tmp_path, 2)
    first.work(50)
    second.tell(gpu_busy_percent="EBUSY", hwmon0__power1_average=None)
    one, two = gpus(tmp_path)
    assert (one.label, one.name, one.place) == ("0", "AMD Instinct MI300X", first.address)
    reading = one.read()
    assert reading.usage == Usage(50.0, 52.0 * GIB, 192.0 * GIB) and reading.unread == ()
    assert reading.state == DeviceState(1082.0, 440.0, 54.0)
    reading = two.read()
    assert reading.usage.busy is None and reading.state.power_w is None
    assert reading.unread == (
        "use: gpu_busy_percent says 'EBUSY'",
        "power: power1_average: No such file or directory",
    )


def test_nvidia_gpus_by_a_library_like_nvml(tmp_path: Path, nvml: str) -> None:
    one, two = gpus(tmp_path, nvml)
    assert (one.label, one.name, one.place) == ("0", "NVIDIA H200", "0000:19:00.0")
    usage, state = (
        Usage(83.0, 35.0 * GIB, 140.0 * GIB),
        DeviceState(1980, 312.5, 54, ("power cap",)),
    )
    assert one.read() == SensorReading(usage, state)
    reading = two.read()
    assert reading.usage == Usage(0.0, None, None) and reading.state.throttled == ()
    assert reading.unread == ("memory: not reported by NVML",)


def test_an_old_driver_counts_what_it_keeps_as_used(tmp_path: Path) -> None:
    one, two = gpus(tmp_path, library(tmp_path, "-DOLD"))
    assert one.read().usage == Usage(83.0, 36.0 * GIB, 140.0 * GIB)
    assert two.read().unread == ("memory: not reported by NVML",)


def test_both_kinds_are_counted_on(tmp_path: Path, nvml: str) -> None:
    cards(tmp_path, 1)
    assert [device.label for device in gpus(tmp_path, nvml)] == ["0", "1", "2"]


def test_a_gpu_that_cannot_be_opened_says_so(
    tmp_path: Path, nvml: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices.sensors, "nvidia_addresses", lambda library: ["00000000:77:00.0"])
    cards(tmp_path, 1)
    _, broken = gpus(tmp_path, nvml)
    with pytest.raises(LookupError, match="NVML knows no GPU"):
        broken.read()


def test_a_machine_without(tmp_path: Path) -> None:
    assert gpus(tmp_path) == []
    assert gpus(tmp_path, "libnot-there.so.1") == []
    assert gpus(tmp_path, "libc.so.6") == []


def test_the_load_of_the_cpus(tmp_path: Path) -> None:
    def tell(busy: int, idle: int) -> None:
        """Some of the idle time waits for a disk; guests are a part of the busy time."""
        stat = f"cpu  {busy} 0 0 {idle - idle // 10} {idle // 10} 0 0 0 {busy} {busy}\ncpu0 1 2\n"
        (tmp_path / "stat").write_text(stat)

    tell(100, 900)
    (tmp_path / "meminfo").write_text("MemTotal: 4096 kB\nMemFree: 1 kB\nMemAvailable: 1024 kB\n")
    load = CpuLoad(tmp_path)
    assert load().busy is None
    tell(130, 970)
    assert load() == Usage(30.0, 3072.0 * 1024, 4096.0 * 1024)
    (tmp_path / "stat").write_text("nonsense")
    (tmp_path / "meminfo").unlink()
    assert load() == Usage()


def test_this_machine() -> None:
    """Its CPUs tell something in whatever virtual machine it is."""
    device = processor()
    reading = device.read()
    assert device.label == "CPU" and reading.usage.memory_total


def test_a_driver_that_hangs_is_not_waited_for() -> None:
    now = [100.0]
    hangs, going = threading.Event(), threading.Event()

    def hang() -> SensorReading:
        going.set()
        hangs.wait()
        return NOTHING

    well = MachineDevice("0", "", "", lambda: SensorReading(Usage(7.0), DeviceState()))
    readers = Readers([well, MachineDevice("1", "", "", hang)], lambda: now[0])
    readers.ask()
    assert going.wait(60)
    until(lambda: readers.seen()[0].reading)
    assert readers.seen()[1].why == ""
    now[0] += 9
    readers.ask()
    first, second = readers.seen()
    assert first.reading is not None and second.reading is None
    assert second.why == "its driver has not answered for 9 s"
    hangs.set()
    until(lambda: readers.seen()[1].reading)
    readers.stop()


def test_a_gpu_that_vanishes_and_returns(tmp_path: Path) -> None:
    (card,) = cards(tmp_path, 1)
    readers = Readers(gpus(tmp_path))
    readers.ask()
    until(lambda: readers.seen()[0].reading)
    moved = card.device.rename(tmp_path / "away")
    readers.ask()
    until(lambda: readers.seen()[0].why)
    assert readers.seen()[0].why == f"it cannot be read: {card.address} is gone"
    shutil.move(moved, card.device)
    readers.ask()
    until(lambda: readers.seen()[0].reading)
    readers.stop()


def test_threads_end(tmp_path: Path) -> None:
    cards(tmp_path, 3)
    before = threading.enumerate()

    def begun() -> int:
        return sum(thread not in before for thread in threading.enumerate())

    readers = Readers(gpus(tmp_path))
    assert begun() == 3 == len(readers)
    readers.stop()
    until(lambda: not begun())
    assert devices.PATIENCE > 1


def test_a_gpu_of_which_nvml_reads_nothing_any_more_is_no_reading(tmp_path: Path) -> None:
    lost = re.sub(
        r"(int nvmlDeviceGet(?:Utilization|Memory|Clock|Temperature|Power)\w*\([^)]*\) {)",
        r"\1 return 15;",  # NVML_ERROR_GPU_IS_LOST
        NVML,
    )
    one, _ = gpus(tmp_path, library(tmp_path, source=lost))
    assert one.name == "NVIDIA H200"
    with pytest.raises(LookupError, match="NVML no longer reports"):
        one.read()


HANGING = """
import threading
from backend.measure.devices import MachineDevice, Readers
going = threading.Event()
def hang():
    going.set()
    threading.Event().wait()
readers = Readers([MachineDevice("0", "", "", hang)])
readers.ask()
going.wait()
readers.stop()
"""


def test_a_driver_that_hangs_keeps_no_program_from_its_end() -> None:
    done = subprocess.run([sys.executable, "-c", HANGING], cwd=ROOT, timeout=60)
    assert done.returncode == 0


@pytest.mark.parametrize("stat", ["cpu  1 2 3 4 5 6 7", "cpu  1 2 3 4 5 6 7 -8", "", "cpu"])
def test_a_load_that_cannot_be_read_is_unknown(tmp_path: Path, stat: str) -> None:
    (tmp_path / "stat").write_text("cpu  9 9 9 9 9 9 9 9\n")
    (tmp_path / "meminfo").write_text("MemTotal: 4096 kB\nMemFree: 1 kB\n")
    load = CpuLoad(tmp_path)
    (tmp_path / "stat").write_text(stat)
    assert load() == Usage()


def test_what_linux_does_not_say_of_the_cpus_is_named(tmp_path: Path) -> None:
    device = processor(tmp_path, tmp_path)
    reading = device.read()
    assert reading.usage == Usage() and reading.state == DeviceState()
    assert [line.partition(":")[0] for line in reading.unread] == ["clock", "temperature"]
    for cpu in os.sched_getaffinity(0):
        folder = tmp_path / f"devices/system/cpu/cpu{cpu}/cpufreq"
        folder.mkdir(parents=True)
        (folder / "scaling_cur_freq").write_text("2000000\n")
    reading = processor(tmp_path, tmp_path).read()
    assert reading.state.clock_mhz == 2000.0
    assert [line.partition(":")[0] for line in reading.unread] == ["temperature"]


def test_nvidias_gpus_that_cannot_be_named_are_left_out(tmp_path: Path) -> None:
    """One that has no address; the other's domain is not 0."""
    odd = NVML.replace('"00000000:3B:00.0"', '"00010000:3B:00.0"').replace(
        "strcpy(", "if (d == 1) return 15; strcpy("
    )
    assert nvidia_addresses(library(tmp_path, source=odd)) == ["00010000:3b:00.0"]


def test_a_library_of_nvidias_that_does_not_start_has_no_gpus(tmp_path: Path) -> None:
    off = NVML.replace("nvmlInit_v2(void) { return 0; }", "nvmlInit_v2(void) { return 9; }")
    assert nvidia_addresses(library(tmp_path, source=off)) == []
