"""The state of a device: from trees of files as Linux makes them, and from a library like NVML."""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.measure import sensors
from backend.measure.sensors import (
    LAYOUTS,
    AmdSensor,
    CpuSensor,
    DeviceState,
    NvidiaSensor,
    SensorWatch,
    nvml_reasons,
    parse_metrics,
)

ADDRESS = "0000:c1:00.0"


def _write(root: Path, **files: object) -> None:
    for name, value in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")


# How often it is asked


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_sensor_is_asked_seldom_and_more_seldom_where_it_takes_long() -> None:
    clock, readings = Clock(), iter(range(100))
    cost = 0.0

    def sensor() -> DeviceState:
        clock.now += cost
        return DeviceState(float(next(readings)))

    watch = SensorWatch(sensor, clock)
    assert watch.state() == watch.state() == DeviceState(0.0)
    clock.now += 0.021
    assert watch.state() == DeviceState(1.0)
    clock.now += 0.021
    cost = 0.01
    assert watch.state() == DeviceState(2.0)
    clock.now += 0.4
    assert watch.state() == DeviceState(2.0)
    clock.now += 0.11
    assert watch.state() == DeviceState(3.0)


def test_a_sensor_that_fails_is_not_asked_again() -> None:
    asked = []

    def sensor() -> DeviceState:
        asked.append(1)
        raise RuntimeError("driver")

    clock = Clock()
    watch = SensorWatch(sensor, clock)
    for _ in range(3):
        assert watch.state() == DeviceState()
        clock.now += 1
    assert len(asked) == 1
    assert SensorWatch(None).state() == DeviceState()


# A CPU


def test_a_cpu_by_cpufreq_and_its_own_counters(tmp_path: Path) -> None:
    cpus = tmp_path / "devices/system/cpu"
    for at, khz in enumerate((3_000_000, 3_400_000, 800_000)):
        _write(cpus / f"cpu{at}", cpufreq__scaling_cur_freq=khz)
        _write(cpus / f"cpu{at}", thermal_throttle__core_throttle_count=7)
    _write(tmp_path / "class/hwmon/hwmon0", name="nvme", temp1_input=30000)
    _write(tmp_path / "class/hwmon/hwmon1", name="k10temp", temp1_input=61500)
    sensor = CpuSensor((0, 1), tmp_path)
    assert sensor() == DeviceState(3200.0, None, 61.5, ())
    _write(cpus / "cpu2", thermal_throttle__core_throttle_count=8)  # not one of ours
    assert sensor().throttled == ()
    _write(cpus / "cpu1", thermal_throttle__core_throttle_count=8)
    assert sensor().throttled == ("too hot",)
    assert sensor().throttled == ()


def test_a_cpu_that_tells_nothing_or_nonsense(tmp_path: Path) -> None:
    assert CpuSensor((0, 1), tmp_path)() == DeviceState()
    _write(tmp_path / "devices/system/cpu/cpu0", cpufreq__scaling_cur_freq="<unknown>")
    (tmp_path / "class/hwmon/hwmon0").mkdir(parents=True)
    (tmp_path / "class/hwmon/hwmon0/name").write_bytes(b"\xff\xfe")
    assert CpuSensor((0,), tmp_path)() == DeviceState()


# An AMD GPU


def _metrics(revision: int, **values: int) -> bytes:
    """All bits set but for what is named by kind and offset: `I68=1`."""
    layout = LAYOUTS[1, revision]
    data = bytearray(b"\xff" * layout.size)
    struct.pack_into("<HBB", data, 0, layout.size, 1, revision)
    for place, value in values.items():
        struct.pack_into(f"<{place[0]}", data, int(place[1:]), value)
    return bytes(data)


@pytest.mark.parametrize(
    ("revision", "values", "reasons"),
    [
        (1, {"I68": 0}, ()),
        (1, {"I68": 4}, (sensors.OTHER,)),
        (2, {}, ()),
        (3, {"I68": 4, "Q112": 0}, ()),
        (3, {"I68": 0, "Q112": 1 | 1 << 16}, ("power cap", "current limit")),
        (3, {"I68": 0, "Q112": 1 << 36 | 1 << 38}, ("too hot",)),
        (3, {"I68": 4}, (sensors.OTHER,)),
        (4, {"I40": 0}, ()),
        (4, {"I40": 0b10}, ("power cap",)),
        (5, {"I104": 0b10010}, ("power cap", "too hot")),
    ],
)  # fmt: skip
def test_the_throttle_status_of_each_revision(
    revision: int, values: dict[str, int], reasons: tuple[str, ...]
) -> None:
    metrics = parse_metrics(_metrics(revision, **values))
    assert metrics is not None and metrics.status == reasons
    assert (metrics.clock, metrics.power, metrics.temperature) == (None, None, None)


@pytest.mark.parametrize(
    ("revision", "clock", "temperature", "power"),
    [(1, 54, 6, 22), (3, 54, 6, 22), (4, 240, 4, 10), (5, 312, 4, 10), (6, 264, 4, 10)],
)
def test_the_clock_the_power_and_the_temperature_of_a_revision(
    revision: int, clock: int, temperature: int, power: int
) -> None:
    data = _metrics(revision, **{f"H{clock}": 1700, f"H{temperature}": 66, f"H{power}": 310})
    metrics = parse_metrics(data)
    assert metrics is not None
    assert (metrics.clock, metrics.temperature, metrics.power) == (1700, 66, 310)


def test_layouts_follow_from_the_structures_of_the_kernel() -> None:
    """The members before and behind those that are read, as a C compiler lays them out."""
    first = "HBB 6H 3H H Q Q 7H 7H"
    assert struct.calcsize(f"@{first} I".replace(" ", "")) == LAYOUTS[1, 3].dependent + 4
    third = first + " I H HH H I I 4H Q 3H H Q"
    assert struct.calcsize(f"@{third}".replace(" ", "")) == LAYOUTS[1, 3].size
    activity = {4: "2H 4H", 5: "2H 4H 32H", 6: "2H", 7: "2H Q"}
    for revision, words in activity.items():
        head = f"@HBB 3H H {words} Q Q"
        layout = LAYOUTS[1, revision]
        if revision < 6:
            assert struct.calcsize(f"{head} I".replace(" ", "")) == layout.of_mi300 + 4
        else:
            assert struct.calcsize(f"{head} I I".replace(" ", "")) == layout.counters + 4
    before, behind = "I I HH HH I I Q Q Q Q Q {nak} 8Q 8Q Q", "8H 4H 4H 4H H H 0Q"
    for revision, nak in ((4, ""), (5, "I I")):
        head = f"@HBB 3H H {activity[revision]} Q Q {before.format(nak=nak)}".replace(" ", "")
        assert struct.calcsize(head) == LAYOUTS[1, revision].clock
        assert struct.calcsize(head + behind.replace(" ", "")) == LAYOUTS[1, revision].size


@pytest.mark.parametrize(
    "data", [b"", b"\x00", _metrics(3)[:-1], b"\x78\x00\x01\x09" + bytes(116), bytes(4096)]
)
def test_what_is_no_table_that_is_known_tells_nothing(data: bytes) -> None:
    assert parse_metrics(data) is None


def _card(root: Path, address: str = ADDRESS) -> Path:
    device = root / "bus/pci/devices" / address
    _write(device, vendor="0x1002")
    _write(device / "hwmon/hwmon3", freq1_input=1_700_000_000, power1_average=310_000_000)
    _write(device / "hwmon/hwmon3", temp1_input=50_000, temp2_input=66_000)
    return device


def test_an_amd_gpu_by_its_pci_address(tmp_path: Path) -> None:
    device = _card(tmp_path)
    assert AmdSensor(ADDRESS, tmp_path)() == DeviceState(1700.0, 310.0, 66.0, ())
    (device / "gpu_metrics").write_bytes(_metrics(3, Q112=1))
    assert AmdSensor(ADDRESS, tmp_path)() == DeviceState(1700.0, 310.0, 66.0, ("power cap",))
    shutil.rmtree(device / "hwmon")
    (device / "gpu_metrics").write_bytes(_metrics(4, H240=2100, H4=71, H10=700, I40=0))
    assert AmdSensor(ADDRESS, tmp_path)() == DeviceState(2100, 700, 71, ())
    with pytest.raises(LookupError):
        AmdSensor("0000:c2:00.0", tmp_path)


def test_counters_tell_of_the_time_since_they_were_asked(tmp_path: Path) -> None:
    device = _card(tmp_path)
    quiet = {"I36": 5, "I40": 9, "I44": 0, "I48": 0, "I52": 0}

    def metrics(**more: int) -> None:
        (device / "gpu_metrics").write_bytes(_metrics(6, **{**quiet, **more}))

    metrics()
    sensor = AmdSensor(ADDRESS, tmp_path)
    assert sensor().throttled == ()
    metrics(I40=10)
    assert sensor().throttled == ("power cap",)
    assert sensor().throttled == ()
    metrics(I40=10, I48=1)
    assert sensor().throttled == ("too hot",)


def test_without_an_address_the_only_card_is_meant(tmp_path: Path) -> None:
    with pytest.raises(LookupError):
        AmdSensor(None, tmp_path)
    for at, address in enumerate((ADDRESS, "0000:c2:00.0")):
        device = _card(tmp_path, address)
        card = tmp_path / f"class/drm/card{at}"
        card.mkdir(parents=True)
        (card / "device").symlink_to(device)
        if not at:
            other = tmp_path / "class/drm/card9/device"  # of another maker
            other.mkdir(parents=True)
            (other / "vendor").write_text("0x1a03\n")
            assert AmdSensor(None, tmp_path)().clock_mhz == 1700.0
    with pytest.raises(LookupError):
        AmdSensor(None, tmp_path)


# An NVIDIA GPU

LIBRARY = """
#include <stdlib.h>
typedef void *device;
int nvmlInit_v2(void) { return getenv("NVML_DOES_NOT_START") ? 1 : 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, device *out) {
  *out = (device)0x123456789aull;
  return bus[5] == 'c' ? 0 : 6; /* of 0000:c1:00.0 */
}
int nvmlDeviceGetHandleByUUID(const char *uuid, device *out) {
  *out = (device)0x123456789aull;
  return uuid[0] == 'G' && uuid[4] == 'a' ? 0 : 6;
}
static int wrong(device d) { return d != (device)0x123456789aull; }
int nvmlDeviceGetClockInfo(device d, int kind, unsigned *out) {
  *out = kind == 1 ? 1980 : 1;
  return wrong(d);
}
int nvmlDeviceGetTemperature(device d, int sensor, unsigned *out) {
  *out = 54 + sensor;
  return wrong(d);
}
int nvmlDeviceGetPowerUsage(device d, unsigned *out) { *out = 312500; return 3; }
int nvmlDeviceGetCurrentClocksThrottleReasons(device d, unsigned long long *out) {
  *out = 0x100000061ull;
  return wrong(d);
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("nvml")
    (folder / "nvml.c").write_text(LIBRARY)
    target = str(folder / "libnvml.so")
    words = ["cc", "-shared", "-fPIC", "-o", target, str(folder / "nvml.c")]
    subprocess.run(words, check=True)
    yield target


def test_an_nvidia_gpu_by_a_library_with_the_functions_of_nvml(library: str) -> None:
    """Which does not tell the power."""
    expected = DeviceState(1980, None, 54, ("too hot",))
    assert NvidiaSensor(ADDRESS, None, library)() == expected
    assert NvidiaSensor(None, "abcd", library)() == expected
    assert NvidiaSensor("0000:d1:00.0", "abcd", library)() == expected
    for address, uuid in (("0000:d1:00.0", None), ("0000:d1:00.0", "bcd"), (None, None)):
        with pytest.raises(LookupError):
            NvidiaSensor(address, uuid, library)
    with pytest.raises(OSError):
        NvidiaSensor(ADDRESS, None, "libnot-there.so.1")


def test_a_library_that_does_not_start_is_named_as_the_reason(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NVML_DOES_NOT_START", "1")
    with pytest.raises(LookupError, match="NVML does not start"):
        NvidiaSensor(ADDRESS, None, library)


def test_only_what_slows_a_kernel_down_is_a_reason() -> None:
    assert nvml_reasons(0x1 | 0x2 | 0x10 | 0x100) == ()
    assert nvml_reasons(0x4 | 0x20 | 0x40) == ("power cap", "too hot")
    assert sensors.NVML.startswith("libnvidia-ml")


def test_the_layouts_of_all_revisions_are_those_of_the_kernel() -> None:
    """Sizes of the structures; and where a counter of `power cap` is."""
    sizes = {1: 96, 2: 104, 3: 120, 4: 288, 5: 360, 6: 1664, 7: 2208, 8: 3360}
    assert {revision: layout.size for (_, revision), layout in LAYOUTS.items()} == sizes
    for revision, counters in {6: 36, 7: 44, 8: 44}.items():
        found = parse_metrics(
            _metrics(revision, **{f"I{counters + 4 * at}": 10**at for at in range(5)})
        )
        assert found is not None and found.status is None
        assert found.counters == {"power cap": 10, "too hot": 11101}
    for revision in (1, 2, 3):
        found = parse_metrics(_metrics(revision, I68=1, H54=1700, H6=66, H22=310))
        assert found is not None and found.status == (sensors.OTHER,)
        assert (found.clock, found.temperature, found.power) == (1700, 66, 310)
    for revision, clock in {7: 296, 8: 296}.items():
        found = parse_metrics(_metrics(revision, **{f"H{clock}": 1700, "H4": 66, "H10": 310}))
        assert found is not None
        assert (found.clock, found.temperature, found.power) == (1700, 66, 310)


@pytest.mark.parametrize(
    ("bit", "reason"),
    [(0, sensors.POWER), (15, sensors.POWER), (16, sensors.CURRENT), (31, sensors.CURRENT),
     (32, sensors.HOT), (55, sensors.HOT), (56, sensors.OTHER), (63, sensors.OTHER)],
)  # fmt: skip
def test_each_bit_of_the_status_that_is_the_same_for_all_chips(bit: int, reason: str) -> None:
    metrics = parse_metrics(_metrics(3, Q112=1 << bit))
    assert metrics is not None and metrics.status == (reason,)


def test_older_drivers_have_other_files_for_power_and_temperature(tmp_path: Path) -> None:
    device = _card(tmp_path)
    for name in ("power1_average", "temp2_input"):
        (device / "hwmon/hwmon3" / name).unlink()
    _write(device / "hwmon/hwmon3", power1_input=305_000_000)
    assert AmdSensor(ADDRESS, tmp_path)() == DeviceState(1700.0, 305.0, 50.0, ())
    for name in ("power1_input", "temp1_input"):
        (device / "hwmon/hwmon3" / name).unlink()
    _write(device, gpu_busy_percent=7, mem_info_vram_used=5, mem_info_vram_total=9)
    reading = AmdSensor(ADDRESS, tmp_path).reading()
    assert [line.partition(":")[0] for line in reading.unread] == ["power", "temperature"]
    (device / "gpu_metrics").write_bytes(_metrics(3, H22=300, H6=44, H54=1))
    assert AmdSensor(ADDRESS, tmp_path)() == DeviceState(1700.0, 300, 44, ())


def test_a_long_name_is_cut(tmp_path: Path) -> None:
    _write(_card(tmp_path), product_name="x" * 10_000)
    assert AmdSensor(ADDRESS, tmp_path).name == "x" * 200


def test_the_clocks_of_eight_cpus_are_read_and_the_counters_of_all(tmp_path: Path) -> None:
    cpus = tmp_path / "devices/system/cpu"
    for at in range(10):
        khz = 1_000_000 if at < 4 else 2_000_000
        _write(cpus / f"cpu{at}", cpufreq__scaling_cur_freq=khz)
        _write(cpus / f"cpu{at}", thermal_throttle__package_throttle_count=1)
    sensor = CpuSensor(range(10), tmp_path)
    assert sensor().clock_mhz == 1500.0
    _write(cpus / "cpu9", thermal_throttle__package_throttle_count=2)
    assert sensor().throttled == ("too hot",)


@pytest.mark.parametrize(
    ("bits", "reasons"),
    [(0x8, ("hardware slowdown",)), (0x20, ("too hot",)), (0x40, ("too hot",)),
     (0x80, ("power brake",)), (0x4, ("power cap",)), (0, ())],
)  # fmt: skip
def test_each_reason_of_nvml(bits: int, reasons: tuple[str, ...]) -> None:
    assert nvml_reasons(bits) == reasons
