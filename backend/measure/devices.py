"""The devices of this machine and their caches, and a thread for each device that reads its
sensors.

A driver may hang, a GPU may fall off its bus: whoever looks at the readings never waits for one.
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
"""Seconds after which a driver that has not answered counts as silent."""
_NVIDIA_DRIVER = Path("/proc/driver/nvidia")


@dataclass(frozen=True, slots=True)
class MachineDevice:
    """`label` is its index, or `CPU`; `place` its PCI address. `read` may raise anything."""

    label: str
    name: str
    place: str
    read: Callable[[], SensorReading]


@dataclass(frozen=True, slots=True)
class LatestReading:
    """What is known of a device: its last reading, or why there is none now."""

    device: MachineDevice
    reading: SensorReading | None
    why: str = ""


def gpus(root: Path = SYSFS, library: str | None = None) -> list[MachineDevice]:
    """The GPUs of this machine, AMD's first. Drivers may take seconds to answer.

    `library` is NVIDIA's; None asks for it only where its driver is there.
    """
    found: list[MachineDevice] = []
    for address in sensors.amd_addresses(root):
        found.append(_amd_device(len(found), address, partial(AmdSensor, address, root)))
    for address in _nvidia_addresses(library):
        made = partial(NvidiaSensor, address, None, library or sensors.NVML)
        found.append(_amd_device(len(found), address, made))
    return found


def _amd_device(
    index: int, address: str, make: Callable[[], AmdSensor | NvidiaSensor]
) -> MachineDevice:
    """One that cannot be opened is there, and says why when it is read."""
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
    """The CPUs that we may run on, as one."""
    ours = sorted(os.sched_getaffinity(0))
    sensor, load = CpuSensor(ours, root), CpuLoad(proc)

    def read() -> SensorReading:
        state, usage = sensor(), load()
        asked = {"clock": state.clock_mhz, "temperature": state.temperature_c}
        missing = [f"{what}: sysfs does not tell it" for what, v in asked.items() if v is None]
        return SensorReading(usage, state, tuple(missing))

    return MachineDevice("CPU", f"{len(ours)} CPUs", "", read)


class Readers:
    """A thread for each device, which reads when it is asked to and nothing else."""

    def __init__(
        self, devices: Sequence[MachineDevice], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._readers = [_Reader(device, clock) for device in devices]

    def __len__(self) -> int:
        return len(self._readers)

    def ask(self) -> None:
        """Let each read again, but for those that are still at it."""
        for reader in self._readers:
            reader.ask()

    def seen(self) -> list[LatestReading]:
        """What is known now; never waits."""
        return [reader.seen() for reader in self._readers]

    def stop(self) -> None:
        """End the threads; one that hangs in a driver ends with the program."""
        for reader in self._readers:
            reader.stop()


class _Reader:
    def __init__(self, device: MachineDevice, clock: Callable[[], float]) -> None:
        self._device = device
        self._clock = clock
        self._asked = threading.Event()
        self._since: float | None = None
        self._over = False
        self._last = LatestReading(device, None)
        threading.Thread(target=self._run, name=f"device {device.label}", daemon=True).start()

    def ask(self) -> None:
        if self._since is None:
            self._since = self._clock()
            self._asked.set()

    def stop(self) -> None:
        self._over = True
        self._asked.set()

    def seen(self) -> LatestReading:
        since = self._since
        if since is not None and (silent := self._clock() - since) > PATIENCE:
            return LatestReading(
                self._device, None, f"its driver has not answered for {silent:.0f} s"
            )
        return self._last

    def _run(self) -> None:
        while self._asked.wait() and not self._over:
            self._asked.clear()
            try:
                self._last = LatestReading(self._device, self._device.read())
            except Exception as error:  # a library or a driver of any kind
                self._last = LatestReading(self._device, None, f"it cannot be read: {error}")
            self._since = None


NOTHING = SensorReading(Usage(), DeviceState())
"""Of a device that has told nothing yet, or tells nothing any more."""


_CPUS = Path("/sys/devices/system/cpu")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def cpu_caches(cpus: Iterable[int], root: Path = _CPUS) -> dict[int, int]:
    """Bytes of all data caches of each level that these CPUs have, one that several share once.

    The first level is left out: what fits there takes no time worth a roof. Empty where Linux does
    not tell.
    """
    seen: set[tuple[int, str]] = set()
    found: dict[int, int] = {}
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
                found[level] = found.get(level, 0) + size
    return dict(sorted(found.items()))


def _text(path: Path) -> str:
    return path.read_text().strip()


def _bytes(text: str) -> int:
    """`2048K`. Raises ValueError."""
    unit = _UNITS.get(text[-1:], 0)
    return int(text[:-1]) * unit if unit else int(text)
