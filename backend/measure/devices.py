"""The devices of this machine, their caches, and a thread per device that reads its sensors.

A driver may hang and a GPU may fall off its bus, so consumers of readings never wait for a driver.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from backend.measure import sensors
from backend.measure.sensors import (
    SYSFS,
    AmdSensor,
    CpuLoad,
    CpuSensor,
    DeviceState,
    NvidiaSensor,
    SensorReading,
    Usage,
)

PATIENCE = 5.0
"""Seconds after which a driver without an answer counts as silent."""
_NVIDIA_DRIVER = Path("/proc/driver/nvidia")


@dataclass(frozen=True, slots=True)
class MachineDevice:
    """A device: `label` is its index, or `CPU`; `place` its PCI address. `read` may raise."""

    label: str
    name: str
    place: str
    read: Callable[[], SensorReading]


@dataclass(frozen=True, slots=True)
class LatestReading:
    """The last reading of a device, or why there is none now."""

    device: MachineDevice
    reading: SensorReading | None
    why: str = ""


def gpus(root: Path = SYSFS, library: str | None = None) -> list[MachineDevice]:
    """Return the GPUs of this machine, AMD's first. Drivers may take seconds to answer. `library`
    is NVIDIA's; None loads it only if its driver is present."""
    devices: list[MachineDevice] = []
    for address in sensors.amd_addresses(root):
        devices.append(_amd_device(len(devices), address, partial(AmdSensor, address, root)))
    for address in _nvidia_addresses(library):
        sensor = partial(NvidiaSensor, address, None, library or sensors.NVML)
        devices.append(_amd_device(len(devices), address, sensor))
    return devices


def _amd_device(
    index: int, address: str, make: Callable[[], AmdSensor | NvidiaSensor]
) -> MachineDevice:
    """Return the device at `address`; its reading reports why it cannot be opened."""
    try:
        gpu = make()
        return MachineDevice(str(index), gpu.name, address, gpu.reading)
    except Exception as error:  # a library or a driver of any kind
        return MachineDevice(str(index), "", address, partial(_fail, str(error) or repr(error)))


def _fail(why: str) -> SensorReading:
    raise LookupError(why)


def _nvidia_addresses(library: str | None) -> list[str]:
    if library is None and not _NVIDIA_DRIVER.exists():
        return []
    try:
        return sensors.nvidia_addresses(library or sensors.NVML)
    except (OSError, AttributeError):
        return []


def processor(root: Path = SYSFS, proc: Path = sensors.PROC) -> MachineDevice:
    """Return the CPUs that this process may use, as one device."""
    ours = sorted(os.sched_getaffinity(0))
    sensor, load = CpuSensor(ours, root), CpuLoad(proc)

    def read() -> SensorReading:
        state, usage = sensor(), load()
        values = {"clock": state.clock_mhz, "temperature": state.temperature_c}
        missing = [f"{what}: not exposed by sysfs" for what, v in values.items() if v is None]
        return SensorReading(usage, state, tuple(missing))

    return MachineDevice("CPU", f"{len(ours)} CPUs", "", read)


class Readers:
    """Threads, one per device, that read on request."""

    def __init__(
        self, devices: Sequence[MachineDevice], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._readers = [_Reader(device, clock) for device in devices]

    def __len__(self) -> int:
        return len(self._readers)

    def ask(self) -> None:
        """Request a reading from each thread that is not still reading."""
        for reader in self._readers:
            reader.ask()

    def seen(self) -> list[LatestReading]:
        """Return the latest readings without waiting."""
        return [reader.seen() for reader in self._readers]

    def stop(self) -> None:
        """End the threads; a thread that hangs in a driver ends with the program."""
        for reader in self._readers:
            reader.stop()


class _Reader:
    def __init__(self, device: MachineDevice, clock: Callable[[], float]) -> None:
        self._device = device
        self._clock = clock
        self._requested = threading.Event()
        self._since: float | None = None
        self._over = False
        self._last = LatestReading(device, None)
        threading.Thread(target=self._run, name=f"device {device.label}", daemon=True).start()

    def ask(self) -> None:
        if self._since is None:
            self._since = self._clock()
            self._requested.set()

    def stop(self) -> None:
        self._over = True
        self._requested.set()

    def seen(self) -> LatestReading:
        since = self._since
        if since is not None and (silent := self._clock() - since) > PATIENCE:
            return LatestReading(
                self._device, None, f"its driver has not answered for {silent:.0f} s"
            )
        return self._last

    def _run(self) -> None:
        while self._requested.wait() and not self._over:
            self._requested.clear()
            try:
                self._last = LatestReading(self._device, self._device.read())
            except Exception as error:  # a library or a driver of any kind
                self._last = LatestReading(self._device, None, f"it cannot be read: {error}")
            self._since = None


NOTHING = SensorReading(Usage(), DeviceState())
"""The reading of a device that has not reported yet, or no longer does."""


_CPUS = Path("/sys/devices/system/cpu")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def cpu_caches(cpus: Iterable[int], root: Path = _CPUS) -> dict[int, int]:
    """Return the bytes of all data caches of each level of these CPUs, counting shared caches once.

    The first level is left out: it is small. Empty if Linux does not list caches.
    """
    seen: set[tuple[int, str]] = set()
    sizes: dict[int, int] = {}
    for cpu in cpus:
        for folder in sorted((root / f"cpu{cpu}" / "cache").glob("index*")):
            try:
                level = int(_text(folder / "level"))
                kind, size = _text(folder / "type"), _bytes(_text(folder / "size"))
                shared = _text(folder / "shared_cpu_list")
            except (OSError, ValueError):
                continue
            if level > 1 and kind != "Instruction" and (level, shared) not in seen:
                seen.add((level, shared))
                sizes[level] = sizes.get(level, 0) + size
    return dict(sorted(sizes.items()))


def _text(path: Path) -> str:
    return path.read_text().strip()


def _bytes(text: str) -> int:
    """Parse `2048K`. Raises ValueError."""
    unit = _UNITS.get(text[-1:], 0)
    return int(text[:-1]) * unit if unit else int(text)
