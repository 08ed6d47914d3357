"""One face over the targets: which compiler, which command, and a report for `doctor`.

The CPU is compiled for by g++ and our fiber header: for tests, CI and machines without a GPU;
NVIDIA GPUs by nvcc and our header of HIP's names over the CUDA runtime.
"""

from __future__ import annotations

import functools
import os
import platform
import shlex
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from backend.toolchain import clang
from backend.toolchain.errors import MissingCompilerError
from backend.toolchain.target import (
    INCLUDE,
    Command,
    Compiler,
    Missing,
    Options,
    Target,
    TargetKind,
    defines,
    first_on_path,
    version_of,
)

_V3 = frozenset("avx avx2 bmi1 bmi2 f16c fma abm movbe".split())
"""What /proc/cpuinfo calls the features of the x86-64-v3 level, with LZCNT as `abm`."""

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
    return _FINDERS[target.kind](target)


def require(target: Target) -> Compiler:
    """As `find`. Raises MissingCompilerError."""
    compiler = find(target)
    if isinstance(compiler, Missing):
        raise MissingCompilerError(f"target {target} is off: {compiler.reason}")
    return compiler


def commands(
    compiler: Compiler, source: Path, output: Path, options: Options, include: Path = INCLUDE
) -> tuple[Command, ...]:
    """What to run, in this order, to make `output` from `source`."""
    return _COMMANDS[compiler.target.kind](compiler, source, output, options, include)


def report(targets: Iterable[Target] = DEFAULT_TARGETS) -> list[TargetReport]:
    """A row a target."""
    return [_report(find(target)) for target in targets]


def _report(compiler: Compiler | Missing) -> TargetReport:
    if isinstance(compiler, Missing):
        return TargetReport(compiler.target, available=False, reason=compiler.reason)
    return TargetReport(
        compiler.target,
        available=True,
        compiler=compiler.executable[-1],
        version=compiler.version,
        loadable=compiler.loadable,
    )


def _find_cpp(target: Target) -> Compiler | Missing:
    """`$CXX` where it is set and there, else g++ or clang++."""
    wanted = shlex.split(os.environ.get("CXX", ""))
    chosen = shutil.which(wanted[0]) if wanted else None
    path = chosen or first_on_path(["g++", "clang++", "c++"])
    if path is None:
        return Missing(target, "no g++ on PATH: install g++ (C++20)")
    version = version_of((path,), "")
    if not version:
        return Missing(target, f"{path} --version does not run")
    return Compiler(target, "g++", (path,), version)


def _cpp_commands(
    compiler: Compiler, source: Path, output: Path, options: Options, include: Path = INCLUDE
) -> tuple[Command, ...]:
    """One command. The instruction set is named, never `native`: a cache may be shared."""
    # Unique symbols would be shared by all libraries of a process.
    unique = () if "clang" in compiler.version else ("-fno-gnu-unique",)
    return (
        (
            *compiler.executable,
            *("-x", "c++", "-std=c++20", f"-O{min(options.level, 2)}", *instruction_set()),
            *("-ffp-contract=fast", "-fno-strict-aliasing", "-Wno-psabi", *unique),
            *("-shared", "-fPIC", "-fvisibility=hidden"),
            *defines(compiler.target, options),
            *(f"-I{include / 'cpu'}", f"-I{include}"),
            *options.flags,
            *(str(source), "-o", str(output)),
        ),
    )


@functools.cache
def instruction_set() -> Command:
    """`-march` of the highest x86-64 level that helps and that this machine has in full."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return ()
    return ("-march=x86-64-v3",) if cpu_features() >= _V3 else ()


def cpu_features() -> frozenset[str]:
    """The flags of the first processor; empty where the system does not say."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return frozenset()
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return frozenset(flags.partition(":")[2].split())


def _find_nvcc(target: Target) -> Compiler | Missing:
    """nvcc on PATH, or below `$CUDA_HOME` or `/usr/local/cuda`."""
    homes = [os.environ.get("CUDA_HOME", ""), os.environ.get("CUDA_PATH", ""), "/usr/local/cuda"]
    path = first_on_path(["nvcc", *(f"{home}/bin/nvcc" for home in homes if home)])
    if path is None:
        return Missing(target, "no nvcc on PATH: install the CUDA toolkit, or set CUDA_HOME")
    version = version_of((path,), "release")
    if version is None:
        return Missing(target, f"{path} --version does not run")
    return Compiler(target, "nvcc", (path,), version)


def _nvcc_commands(
    compiler: Compiler, source: Path, output: Path, options: Options, include: Path = INCLUDE
) -> tuple[Command, ...]:
    """One command. `-Xptxas=-v` prints the registers that `resources` reads from the log."""
    return (
        (
            *compiler.executable,
            *("-x", "cu", f"-arch={compiler.target.arch}", "-std=c++17", f"-O{options.level}"),
            *("-shared", "-Xcompiler=-fPIC,-fvisibility=hidden", "-Xptxas=-v"),
            *defines(compiler.target, options),
            *(f"-I{include / 'cuda'}", f"-I{include}"),
            *options.flags,
            *(str(source), "-o", str(output)),
        ),
    )


_FINDERS: dict[TargetKind, Callable[[Target], Compiler | Missing]] = {
    "amdgpu": clang.find,
    "cuda": _find_nvcc,
    "cpu": _find_cpp,
}
_COMMANDS: dict[TargetKind, Callable[..., tuple[Command, ...]]] = {
    "amdgpu": clang.commands,
    "cuda": _nvcc_commands,
    "cpu": _cpp_commands,
}
