"""A device and its torch, and whether its times may share a cache with others."""

from __future__ import annotations

import re
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from backend.disk.layout import is_file_name
from backend.measure.sensors import SYSFS
from backend.wire.jobs import Environment
from rocm_tui.environment import CPU
from rocm_tui.errors import RocmTuiError

SHOWN = 12
"""Digits of a system hash that a person sees."""
OTHERS_SECONDS = 60.0
"""How long the first device that has answered waits for the others."""
_WORD = re.compile(r"[\w.+-]{1,64}")


@dataclass(frozen=True, slots=True)
class Facts:
    """A device and the torch that tunes on it; None and empty where it is not known.

    `partition` is how an MI300 is divided (SPX/NPS1, ...), `bus` its PCI address.
    """

    host: str = ""
    device: str = ""
    arch: str | None = None
    compute_units: int | None = None
    partition: str | None = None
    bus: str | None = None
    system_hash: str = ""
    torch: str = ""
    triton: str | None = None
    hip: str | None = None
    cuda: str | None = None
    driver: str | None = None

    @property
    def device_class(self) -> str:
        """What must be the same for times to be compared: cards of one system hash may differ in
        it. `gfx942, 304 CUs, SPX/NPS1`; a CPU is one class."""
        units = f"{self.compute_units} CUs" if self.compute_units is not None else ""
        parts = (self.arch or self.device, units, self.partition or "")
        return ", ".join(part for part in parts if part) or "unknown"


@dataclass(frozen=True, slots=True)
class Chosen:
    """The system hash and the class of the devices whose times go into the cache."""

    system_hash: str
    device_class: str


class NoTuningDevice(RocmTuiError):
    """There is no device to tune on."""


@dataclass(frozen=True, slots=True)
class FleetOptions:
    """How to tune the problems.

    `missing` skips problems with times in the cache. `tell` prints a line for a person, `look` is
    called now and then.
    """

    repeat: int = 1
    missing: bool = False
    device_class: str | None = None
    python: str | None = None
    tell: Callable[[str], None] = lambda text: None
    look: Callable[[], None] = lambda: None


def host_name() -> str:
    """This machine, without its domain."""
    return socket.gethostname().partition(".")[0] or "localhost"


def facts_of(environment: Environment, on_cpu: bool, root: Path = SYSFS) -> Facts:
    """The device that a worker saw, and its torch."""
    gpu = environment.gpu and not on_cpu
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
    )


def _partition(root: Path, bus: str | None) -> str | None:
    """`SPX/NPS1`: how amdgpu divides the compute units, and the memory; None where it does not."""
    folder = root / "bus/pci/devices" / (bus or "-")
    parts = [_word(folder / f"current_{what}_partition") for what in ("compute", "memory")]
    return "/".join(filter(None, parts)) or None


def _driver(root: Path, environment: Environment) -> str | None:
    """The version of the module; a driver that came with the kernel has the kernel's."""
    module = "amdgpu" if environment.hip else "nvidia"
    version = _word(root / "module" / module / "version")
    return f"{module} {version}" if version else None


def _word(path: Path) -> str:
    try:
        match = _WORD.match(path.read_text().strip())
    except (OSError, UnicodeDecodeError):
        return ""
    return match.group() if match else ""


def choose(devices: Mapping[str, Facts], wanted: str | None) -> Chosen | None:
    """Return the class that most of the devices have; with `wanted` that one (the first digits of a
    system hash, or words of a class). None where no device has it."""
    counts = Counter(
        (facts.system_hash, facts.device_class)
        for facts in devices.values()
        if is_file_name(facts.system_hash)
    )
    fitting = [
        pair
        for pair in counts
        if wanted is None or pair[0].startswith(wanted) or _is_about(wanted, pair[1])
    ]
    return Chosen(*min(fitting, key=lambda pair: (-counts[pair], pair))) if fitting else None


def _is_about(wanted: str, device_class: str) -> bool:
    parts = [part.casefold() for part in device_class.split(", ")]
    return all(word.strip().casefold() in parts for word in wanted.split(","))


def refusal(facts: Facts, chosen: Chosen) -> str:
    """Why times of such a device do not belong into the file; empty where they do."""
    if facts.system_hash != chosen.system_hash:
        return (
            f"{facts.host} has the system hash {facts.system_hash[:SHOWN]}, the run "
            f"{chosen.system_hash[:SHOWN]}: another GPU, torch or Triton ({_versions(facts)}), so "
            "PyTorch reads another file there"
        )
    if facts.device_class != chosen.device_class:
        return (
            f"{facts.host} has {facts.device_class}, the run {chosen.device_class}: one system "
            "hash, but times of unlike devices do not go into one file; choose with --class"
        )
    return ""


def _versions(facts: Facts) -> str:
    parts = [f"torch {facts.torch}", f"triton {facts.triton}" if facts.triton else ""]
    parts += [f"HIP {facts.hip}" if facts.hip else "", facts.device_class]
    return ", ".join(part for part in parts if part)
