"""What is told of a device beside its results: facts that tell two cards apart, and how it is doing
while it works."""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median

from backend.measure.devices import Device, Readers, gpus, processor
from backend.measure.sensors import SYSFS, DeviceState, SensorReading
from backend.wire.jobs import Environment
from rocm_tui.environment import CPU
from rocm_tui.fleet.messages import Facts

_MODULES = ("amdgpu", "nvidia")
_NUMBERS = re.compile(r"[\w.+-]{1,64}")


def host_name() -> str:
    """This machine, without its domain."""
    return socket.gethostname().partition(".")[0] or "localhost"


def facts_of(
    environment: Environment, device: str | None, root: Path = SYSFS, shared: Path | None = None
) -> Facts:
    """Of the device that a worker saw, and of its torch; `shared` is the cache dir of its host."""
    gpu = device != CPU and environment.gpu
    return Facts(
        host=host_name(),
        device=(environment.device or "") if gpu else CPU,
        arch=environment.arch if gpu else None,
        compute_units=environment.compute_units if gpu else None,
        partition=_partition(root, environment.bus) if gpu else None,
        bus=environment.bus if gpu else None,
        system_hash=environment.system_hash or "",
        torch=environment.torch,
        triton=environment.triton,
        hip=environment.hip,
        cuda=environment.cuda,
        driver=_driver(root, environment) if gpu else None,
        compilers=environment.compilers if gpu else {},
        store=_store(shared),
    )


def _store(shared: Path | None) -> str:
    """The same on all hosts that have one folder there, by one path: Triton's cache names its files
    by their whole paths."""
    if shared is None:
        return ""
    with contextlib.suppress(OSError):
        return f"{(shared / 'rocm_tui').stat().st_ino} {shared}"
    return ""


def _partition(root: Path, bus: str | None) -> str | None:
    """`SPX/NPS1`: how amdgpu divides the compute units, and the memory; None where it does not."""
    folder = root / "bus/pci/devices" / (bus or "-")
    parts = [_word(folder / f"current_{what}_partition") for what in ("compute", "memory")]
    return "/".join(filter(None, parts)) or None


def _driver(root: Path, environment: Environment) -> str | None:
    """The version of the module; a driver that came with the kernel has the kernel's."""
    module = _MODULES[0] if environment.hip else _MODULES[1]
    version = _word(root / "module" / module / "version")
    return f"{module} {version}" if version else None


def _word(path: Path) -> str:
    try:
        match = _NUMBERS.match(path.read_text().strip())
    except (OSError, UnicodeDecodeError):
        return ""
    return match.group() if match else ""


class Pulse:
    """How a device is doing, read in a thread of its own: a driver that hangs delays nobody."""

    def __init__(self, device: Device | None) -> None:
        self._states: list[DeviceState] = []
        ours = [replace(device, read=partial(self._noted, device.read))] if device else []
        self._readers = Readers(ours)

    def _noted(self, read: Callable[[], SensorReading]) -> SensorReading:
        reading = read()
        self._states.append(reading.state)
        return reading

    def ask(self) -> None:
        """Let it be read again."""
        self._readers.ask()

    def state(self) -> DeviceState:
        """As it was read last."""
        seen = self._readers.seen()
        reading = seen[0].reading if seen else None
        return reading.state if reading else DeviceState()

    def medians(self) -> tuple[float | None, float | None]:
        """Clock in MHz and power in watts since they were asked for last."""
        states, self._states = self._states, []
        clocks = [state.clock_mhz for state in states if state.clock_mhz is not None]
        powers = [state.power_w for state in states if state.power_w is not None]
        return (median(clocks) if clocks else None, median(powers) if powers else None)

    def stop(self) -> None:
        self._readers.stop()


def device_of(facts: Facts, found: Callable[[], list[Device]] = gpus) -> Device | None:
    """The device that drivers tell of; None where nobody tells which it is."""
    if facts.device == CPU:
        return processor()
    return next((device for device in found() if device.place == facts.bus), None)
