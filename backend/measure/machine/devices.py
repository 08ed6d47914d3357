"""The devices of this machine, and a thread for each that asks how it is doing.

A driver may hang, a GPU may fall off its bus: whoever looks at the readings never waits for one.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from backend.measure.machine import amd, cpu, nvidia
from backend.measure.machine.amd import SYSFS, Amd
from backend.measure.machine.cpu import Cpu, Load
from backend.measure.machine.nvidia import Nvidia
from backend.measure.machine.state import Reading, State, Usage

PATIENCE = 5.0
"""Seconds after which a driver that has not answered counts as silent."""
_NVIDIA_DRIVER = Path("/proc/driver/nvidia")


@dataclass(frozen=True, slots=True)
class Device:
    """`label` is its index, or `CPU`; `place` its PCI address. `read` may raise anything."""

    label: str
    name: str
    place: str
    read: Callable[[], Reading]


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of a device: its last reading, or why there is none now."""

    device: Device
    reading: Reading | None
    why: str = ""


def gpus(root: Path = SYSFS, library: str | None = None) -> list[Device]:
    """The GPUs of this machine, AMD's first. Drivers may take seconds to answer.

    `library` is NVIDIA's; None asks for it only where its driver is there.
    """
    found: list[Device] = []
    for address in amd.addresses(root):
        found.append(_device(len(found), address, partial(Amd, address, root)))
    for address in _nvidia_addresses(library):
        made = partial(Nvidia, address, None, library or nvidia.LIBRARY)
        found.append(_device(len(found), address, made))
    return found


def _device(index: int, address: str, make: Callable[[], Amd | Nvidia]) -> Device:
    """One that cannot be opened is there, and says why when it is read."""
    try:
        gpu = make()
        return Device(str(index), gpu.name, address, gpu.reading)
    except Exception as error:  # a library or a driver of any kind
        return Device(str(index), "", address, partial(_fail, str(error) or repr(error)))


def _fail(why: str) -> Reading:
    raise LookupError(why)


def _nvidia_addresses(library: str | None) -> list[str]:
    if library is None and not _NVIDIA_DRIVER.exists():
        return []
    try:
        return nvidia.addresses(library or nvidia.LIBRARY)
    except (OSError, AttributeError):
        return []


def processor(root: Path = SYSFS, proc: Path = cpu.PROC) -> Device:
    """The CPUs that we may run on, as one."""
    ours = sorted(os.sched_getaffinity(0))
    sensor, load = Cpu(ours, root), Load(proc)

    def read() -> Reading:
        state, usage = sensor(), load()
        asked = {"clock": state.clock_mhz, "temperature": state.temperature_c}
        missing = [f"{what}: sysfs does not tell it" for what, v in asked.items() if v is None]
        return Reading(usage, state, tuple(missing))

    return Device("CPU", f"{len(ours)} CPUs", "", read)


class Readers:
    """A thread for each device, which reads when it is asked to and nothing else."""

    def __init__(
        self, devices: Sequence[Device], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._readers = [_Reader(device, clock) for device in devices]

    def __len__(self) -> int:
        return len(self._readers)

    def ask(self) -> None:
        """Let each read again, but for those that are still at it."""
        for reader in self._readers:
            reader.ask()

    def seen(self) -> list[Seen]:
        """What is known now; never waits."""
        return [reader.seen() for reader in self._readers]

    def stop(self) -> None:
        """End the threads; one that hangs in a driver ends with the program."""
        for reader in self._readers:
            reader.stop()


class _Reader:
    def __init__(self, device: Device, clock: Callable[[], float]) -> None:
        self._device = device
        self._clock = clock
        self._asked = threading.Event()
        self._since: float | None = None
        self._over = False
        self._last = Seen(device, None)
        threading.Thread(target=self._run, name=f"device {device.label}", daemon=True).start()

    def ask(self) -> None:
        if self._since is None:
            self._since = self._clock()
            self._asked.set()

    def stop(self) -> None:
        self._over = True
        self._asked.set()

    def seen(self) -> Seen:
        since = self._since
        if since is not None and (silent := self._clock() - since) > PATIENCE:
            return Seen(self._device, None, f"its driver has not answered for {silent:.0f} s")
        return self._last

    def _run(self) -> None:
        while self._asked.wait() and not self._over:
            self._asked.clear()
            try:
                self._last = Seen(self._device, self._device.read())
            except Exception as error:  # a library or a driver of any kind
                self._last = Seen(self._device, None, f"it cannot be read: {error}")
            self._since = None


NOTHING = Reading(Usage(), State())
"""Of a device that has told nothing yet, or tells nothing any more."""
