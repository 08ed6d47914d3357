"""Compilation targets, their compilers and how these are run; and a table of the known GPU
architectures: the capacity of a compute unit, the limits of a kernel.

Numbers per compute unit are from LLVM's "User Guide for AMDGPU Backend" and its GCNSubtarget and
AMDGPUBaseInfo (register granules and totals, the waves' limits, LDS), AMD's "AMD Instinct MI200"
and "MI300 instruction set architecture" guides (512 registers, unified), AMD's RDNA3 ISA guide, and
for NVIDIA the "CUDA C++ Programming Guide", technical specifications per compute capability; the
number of units is from AMD's and NVIDIA's data sheets.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from backend.errors import ToolchainError


@dataclass(frozen=True, slots=True)
class ComputeUnit:
    """The resources that blocks share: a compute unit of CDNA, a work group processor of RDNA, an
    SM.

    Registers are per thread of each wave on one SIMD; `scalars` is the maximum for a wave to have
    all slots, or 0 if they never matter.
    """

    waves: int
    registers: int
    register_granule: int
    lds: int
    lds_granule: int
    blocks: int
    simds: int = 4
    wave: int = 64
    lds_reserved: int = 0
    scalars: int = 0


MatrixFamily = Literal["", "mfma", "wmma_gfx11", "wmma_gfx12", "mma"]
"""The units of `rocm_tui/matrix.h` that a device has; "" if none."""


@dataclass(frozen=True, slots=True)
class GpuArch:
    """A row of the table. `compute_units` is the number of the largest board, 0 if our templates
    have no configs for the architecture. `registers` is the maximum of a thread. `xcds` are dies
    with an L2 each; `matrix` is the matrix unit."""

    unit: ComputeUnit
    compute_units: int = 0
    registers: int = 0
    xcds: int = 1
    matrix: MatrixFamily = ""


_CDNA = ComputeUnit(8, 512, 8, 64 * 1024, 512, blocks=16, scalars=100)
_CDNA_950 = ComputeUnit(8, 512, 8, 160 * 1024, 1280, blocks=16, scalars=100)
_RDNA_SMALL = ComputeUnit(16, 1024, 16, 128 * 1024, 1024, blocks=32, wave=32)
_RDNA_LARGE = ComputeUnit(16, 1536, 24, 128 * 1024, 1024, blocks=32, wave=32)


def _sm(warps: int, shared: int, blocks: int) -> ComputeUnit:
    """Return an SM with 16,384 registers per partition: 512 for each of a warp's threads."""
    return ComputeUnit(warps // 4, 512, 8, shared * 1024, 128, blocks, wave=32, lds_reserved=1024)


GPU_ARCHES: Mapping[str, GpuArch] = {
    "gfx90a": GpuArch(_CDNA, 110, 512, matrix="mfma"),
    **dict.fromkeys(("gfx940", "gfx941"), GpuArch(_CDNA)),
    "gfx942": GpuArch(_CDNA, 304, 512, xcds=8, matrix="mfma"),
    "gfx950": GpuArch(_CDNA_950, 256, 512, xcds=8, matrix="mfma"),
    **dict.fromkeys(("gfx1030", "gfx1031", "gfx1032"), GpuArch(_RDNA_SMALL)),
    **dict.fromkeys(("gfx1102", "gfx1103", "gfx1150"), GpuArch(_RDNA_SMALL, matrix="wmma_gfx11")),
    "gfx1100": GpuArch(_RDNA_LARGE, 96, 256, matrix="wmma_gfx11"),
    **dict.fromkeys(("gfx1101", "gfx1151"), GpuArch(_RDNA_LARGE, matrix="wmma_gfx11")),
    "gfx1200": GpuArch(_RDNA_LARGE, matrix="wmma_gfx12"),
    "gfx1201": GpuArch(_RDNA_LARGE, 64, 256, matrix="wmma_gfx12"),
    "sm_80": GpuArch(_sm(64, 164, 32), 108, 255, matrix="mma"),
    "sm_86": GpuArch(_sm(48, 100, 16), 84, 255, matrix="mma"),
    "sm_89": GpuArch(_sm(48, 100, 16), 142, 255, matrix="mma"),
    **dict.fromkeys(("sm_90", "sm_90a"), GpuArch(_sm(64, 228, 32), 132, 255, matrix="mma")),
}


TargetKind = Literal["amdgpu", "cuda", "cpu"]
Command = tuple[str, ...]

INCLUDE = Path(__file__).parent / "include"
"""The headers: `rocm_tui/gpu.h` for kernels, and a folder of HIP's names for each target."""

_ARCH = {
    "amdgpu": re.compile(r"gfx[0-9a-f]{3,4}\Z"),
    "cuda": re.compile(r"sm_[0-9]{2,3}[af]?\Z"),
    "cpu": re.compile(r"\Z"),
}


@dataclass(frozen=True, slots=True)
class Target:
    """A kind of device and its architecture: `gfx942`, `sm_90`, or "" for the CPU. Raises
    ValueError for an architecture that is not a plain name."""

    kind: TargetKind
    arch: str = ""

    def __post_init__(self) -> None:
        pattern = _ARCH.get(self.kind)
        if pattern is None or not pattern.match(self.arch):
            raise ValueError(f"no such target: {self}")

    def __str__(self) -> str:
        return f"{self.kind}:{self.arch}" if self.arch else self.kind

    @property
    def facts(self) -> GpuArch | None:
        """The architecture's row in the table."""
        return GPU_ARCHES.get(self.arch)

    @property
    def specific(self) -> Target:
        """Return the same device with its exclusive features, if that is another name: `sm_90a`."""
        name = f"{self.arch}a"
        return Target(self.kind, name) if name in GPU_ARCHES else self

    @property
    def wave(self) -> int:
        """The threads of a wave, `RT_WAVE` in the kernel; on the CPU 64, or 32 by the source."""
        return 64 if self.kind == "cpu" or self.arch.startswith("gfx9") else 32

    @property
    def matrix(self) -> MatrixFamily:
        """The matrix unit of the device; "" for the CPU too, which emulates all of them."""
        return self.facts.matrix if self.facts is not None else ""

    @property
    def lds_bytes(self) -> int:
        """The maximum LDS that a block may declare statically."""
        if self.kind == "cuda":
            return 48 * 1024
        return self.facts.unit.lds if self.facts and self.matrix == "mfma" else 64 * 1024

    @property
    def dynamic_lds_bytes(self) -> int:
        """The maximum LDS of a launch."""
        if self.kind == "cuda" and self.facts is not None:
            return self.facts.unit.lds - self.facts.unit.lds_reserved
        return self.lds_bytes


def amdgpu(arch: str) -> Target:
    """Return the target of `gfx942`, or of a runtime's full name: `gfx942:sramecc+:xnack-`."""
    return Target("amdgpu", arch.partition(":")[0])


def cuda(arch: str) -> Target:
    """Return the target of `sm_90`, or of a compute capability such as `9.0`."""
    major, dot, minor = arch.partition(".")
    return Target("cuda", f"sm_{major}{minor}" if dot else arch)


def cpu() -> Target:
    return Target("cpu")


def parse_target(text: str) -> Target:
    """Parse `str(target)`. Raises ValueError."""
    kind, _, arch = text.partition(":")
    if kind == "amdgpu":
        return amdgpu(arch)
    if kind == "cuda":
        return cuda(arch)
    if kind == "cpu" and not arch:
        return cpu()
    raise ValueError(f"no such target: {text}")


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """Options of a compile. `flags` are passed on unchanged; `defines` are `-DNAME=VALUE`."""

    level: int = 3
    defines: tuple[tuple[str, str], ...] = ()
    flags: tuple[str, ...] = ()
    timeout_seconds: float = 300.0


@dataclass(frozen=True, slots=True)
class Compiler:
    """An installed compiler. `version` is the line that it prints. `loadable`: it builds a library
    (`.so`); else only a code object for the device (`.co`)."""

    target: Target
    driver: Literal["g++", "nvcc", "rocm", "hipcc", "clang", "zig"]
    executable: Command
    version: str
    loadable: bool = True

    @property
    def suffix(self) -> str:
        return ".so" if self.loadable else ".co"


@dataclass(frozen=True, slots=True)
class Missing:
    """No compiler for a target, and what would help, in one line."""

    target: Target
    reason: str


def defines(target: Target, options: CompileOptions) -> list[str]:
    """Return the macros that host and device code must agree on; the caller's precede them."""
    matrix = f"RT_{(target.matrix or 'no_matrix').upper()}"
    own = {} if target.kind == "cpu" else {"RT_WAVE": str(target.wave), "RT_MATRIX": matrix}
    return [f"-D{name}={value}" for name, value in {**own, **dict(options.defines)}.items()]


def first_on_path(names: Iterable[str]) -> str | None:
    """Return the path of the first of these programs on PATH."""
    return next((path for name in names if (path := shutil.which(name))), None)


def version_of(executable: Command, pattern: str = "version") -> str | None:
    """Return the first line of `--version` that contains `pattern`; None if that fails."""
    try:
        return _version_line(executable, pattern, file_times(executable))
    except OSError:  # not cached: the next call may succeed
        return None


def file_times(command: Command) -> tuple[int, ...]:
    """Return the modification times of a command's programs, so that upgrades invalidate caches."""
    paths = [Path(part) for part in command]
    return tuple(path.stat().st_mtime_ns for path in paths if path.is_absolute())


@functools.lru_cache(maxsize=64)
def _version_line(executable: Command, pattern: str, times: tuple[int, ...]) -> str | None:
    text = output_of((*executable, "--version"))
    return next((line.strip() for line in text.splitlines() if pattern in line), None)


_ANSWER_SECONDS = (60.0, 300.0)
"""Limits of the two attempts at a short command: callers cache that a compiler does not run, which
one slow moment, or a stop of all processes of a job, must not cause."""


def output_of(command: Command) -> str:
    """Return the output of a short command; "" if it never ends. Raises OSError if it cannot be
    started, or is killed: it may succeed later."""
    for seconds in _ANSWER_SECONDS:
        try:
            with _output_file() as output, _output_file() as errors:
                done = subprocess.run(
                    command, stdout=output, stderr=errors, timeout=seconds, check=False
                )
                text = _text_of(output) + _text_of(errors)
        except subprocess.TimeoutExpired:
            continue
        if done.returncode < 0:
            raise OSError(f"{command[0]} died of signal {-done.returncode}")
        return text
    return ""


@dataclass(frozen=True, slots=True)
class Finished:
    """A finished command; `text` is stdout and stderr combined."""

    code: int
    text: str
    timed_out: bool = False


def run(command: Command, timeout_seconds: float, workdir: Path) -> Finished:
    """Run to the end or the time-out, with temporary files in `workdir`. Raises ToolchainError if
    the command cannot be started, which is never the fault of what it compiles."""
    environment = {**os.environ, "TMPDIR": str(workdir), "LC_ALL": "C"}
    try:
        with _output_file() as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=workdir,
                # nvcc and hipcc are drivers: a signal must reach their child processes.
                start_new_session=True,
            )
            code, timed_out = _waited(process, timeout_seconds)
            return Finished(code, _text_of(output), timed_out)
    except OSError as error:
        raise ToolchainError(f"cannot run {command[0]}: {error.strerror}") from error


def _waited(process: subprocess.Popen[bytes], timeout_seconds: float) -> tuple[int, bool]:
    """Return the exit code, and whether the process was ended because its time was up."""
    try:
        return process.wait(max(timeout_seconds, 0)), False
    except subprocess.TimeoutExpired:
        _end(process)
        process.wait()
        return -signal.SIGKILL, True
    except BaseException:
        _end(process)
        process.wait()
        raise


_MOST_OUTPUT = 4 << 20


def _output_file() -> IO[bytes]:
    """Return an unnamed file for the output of a command.

    A pipe would be open as long as any process that the command leaves running, such as the server
    of sccache. The file is in memory because a full disk must not hide that it is full.
    """
    if sys.platform != "linux":
        return tempfile.TemporaryFile()
    return os.fdopen(os.memfd_create("rocm-tui-output"), "w+b")


def _text_of(output: IO[bytes]) -> str:
    # Not `seek` and `read`: a process that was left running writes at the same offset.
    return os.pread(output.fileno(), _MOST_OUTPUT, 0).decode(errors="replace")


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
