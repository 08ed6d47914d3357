"""One face over the targets: which compiler, which command, and a report for `doctor`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from backend.toolchain import amdgpu_target, cpu_target, cuda_target
from backend.toolchain.errors import MissingCompilerError
from backend.toolchain.target import INCLUDE, Command, Compiler, Missing, Options, Target

_MODULES: dict[str, ModuleType] = {
    "amdgpu": amdgpu_target,
    "cuda": cuda_target,
    "cpu": cpu_target,
}

DEFAULT_TARGETS = (
    Target("cpu"),
    Target("cuda", "sm_90"),
    *(Target("amdgpu", arch) for arch in ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")),
)


@dataclass(frozen=True, slots=True)
class TargetReport:
    """What `doctor` says of a target; `reason` is one line where it is not available.

    `loadable` is False where only code objects can be made: they tell the resources of a kernel
    and that it compiles, but do not run.
    """

    target: Target
    available: bool
    compiler: str = ""
    version: str = ""
    loadable: bool = False
    reason: str = ""


def find(target: Target) -> Compiler | Missing:
    """The compiler of a target. It runs `--version` once a compiler, in some milliseconds."""
    found: Compiler | Missing = _MODULES[target.kind].find(target)
    return found


def require(target: Target) -> Compiler:
    """As `find`. Raises MissingCompilerError."""
    found = find(target)
    if isinstance(found, Missing):
        raise MissingCompilerError(f"target {target} is off: {found.reason}")
    return found


def commands(
    compiler: Compiler, source: Path, output: Path, options: Options, include: Path = INCLUDE
) -> tuple[Command, ...]:
    """What to run, in this order, to make `output` from `source`."""
    built: tuple[Command, ...] = _MODULES[compiler.target.kind].commands(
        compiler, source, output, options, include
    )
    return built


def report(targets: Iterable[Target] = DEFAULT_TARGETS) -> list[TargetReport]:
    """A row a target."""
    return [_report(find(target)) for target in targets]


def _report(found: Compiler | Missing) -> TargetReport:
    if isinstance(found, Missing):
        return TargetReport(found.target, available=False, reason=found.reason)
    return TargetReport(
        found.target,
        available=True,
        compiler=found.executable[-1],
        version=found.version,
        loadable=found.loadable,
    )
