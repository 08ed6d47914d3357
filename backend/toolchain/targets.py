"""A uniform interface to all targets: which compiler, which command, and a report for `doctor`.

AMD GPUs: ROCm's clang, Debian's hipcc, or any clang without ROCm for code objects only. The first
compiler that supports the architecture is used; ones that build a loadable library come before the
others. An architecture is always named: `native` fails without a GPU, and hipcc by default silently
builds for one of 2015.

The CPU is compiled for by g++ and our fiber header: for tests, CI and machines without a GPU;
NVIDIA GPUs by nvcc and our header with HIP's names for the CUDA runtime.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import platform
import re
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from backend.errors import CompileError, MissingCompilerError
from backend.toolchain.target import (
    INCLUDE,
    Command,
    CompileOptions,
    Compiler,
    Missing,
    Target,
    TargetKind,
    defines,
    file_times,
    first_on_path,
    output_of,
    run,
    version_of,
)

_OLDEST = 18
"""The oldest clang that our header, which replaces ROCm's, is tested with."""

_CLANGS = ["clang++", *(f"clang++-{n}" for n in range(25, _OLDEST - 1, -1))]

_PASSES = [
    *("-mllvm", "-amdgpu-early-inline-all=true"),
    *("-mllvm", "-amdgpu-function-calls=false"),
]


def _find_clang(target: Target) -> Compiler | Missing:
    """Return the first compiler that supports `target.arch`."""
    seen = []
    for compiler in candidates(target):
        if knows(compiler):
            return compiler
        seen.append(compiler.version)
    if seen:
        return Missing(target, f"{target.arch} is unknown to {', '.join(seen)}")
    return Missing(
        target, "no compiler for AMD GPUs: install ROCm, clang-19 and lld-19, or ziglang"
    )


def candidates(target: Target) -> Iterator[Compiler]:
    """Yield every compiler for AMD GPUs that runs here, best first, whatever it supports."""
    for path in _rocm_clangs():
        if version := version_of((path,)):
            yield Compiler(target, "rocm", (path,), version)
    if hipcc := shutil.which("hipcc"):
        # With nvcc on PATH, hipcc would build for NVIDIA.
        command = (shutil.which("env") or "env", "HIP_PLATFORM=amd", hipcc)
        if version := version_of(command, "clang version"):
            yield Compiler(target, "hipcc", command, f"hipcc: {version}")
    for path in _plain_clangs():
        if (version := version_of((path,))) and _new_enough(version):
            yield Compiler(target, "clang", (path,), version, loadable=False)
    if (zig := _zig()) and (version := version_of((zig, "clang"))) and _new_enough(version):
        yield Compiler(target, "zig", (zig,), f"zig: {version}", loadable=False)


def _rocm_clangs() -> Iterator[str]:
    homes = [os.environ.get("ROCM_PATH", ""), os.environ.get("ROCM_HOME", ""), "/opt/rocm"]
    for home in dict.fromkeys(homes):
        clang = Path(home, "llvm", "bin", "clang++")
        if home and clang.is_file() and Path(home, "lib", "libamdhip64.so").exists():
            yield str(clang)


def _plain_clangs() -> Iterator[str]:
    """Yield clangs with a linker of their own version: clang calls it by that name."""
    for name in _CLANGS:
        path = shutil.which(name)
        if path and first_on_path([str(Path(path).resolve().parent / "lld"), "lld"]):
            yield path


def _new_enough(version: str) -> bool:
    number = re.search(r"clang version (\d+)", version)
    return number is not None and int(number[1]) >= _OLDEST


def _zig() -> str | None:
    if path := shutil.which("zig"):
        return path
    spec = importlib.util.find_spec("ziglang")
    if spec is None or not spec.submodule_search_locations:
        return None
    return shutil.which("zig", path=os.pathsep.join(spec.submodule_search_locations))


def knows(compiler: Compiler) -> bool:
    """Return whether a compiler supports the target's architecture, and has ROCm's device library
    for it if it links one.

    A dry run of the driver shows both: hipcc 5.2 supports gfx1100 but has no library for it.
    """
    try:
        return _dry_run(compiler, file_times(compiler.executable))
    except OSError:  # not cached: the next call may succeed
        return False


@functools.lru_cache(maxsize=256)
def _dry_run(compiler: Compiler, times: tuple[int, ...]) -> bool:
    clang = ("clang",) if compiler.driver == "zig" else ()
    alone = () if compiler.loadable else ("-nogpulib", "-nogpuinc")
    question = ("-x", "hip", f"--offload-arch={compiler.target.arch}", "-###", "-c", os.devnull)
    answer = output_of((*compiler.executable, *clang, *alone, *question))
    return bool(answer) and "error:" not in answer


def _clang_commands(
    compiler: Compiler, source: Path, output: Path, options: CompileOptions, include: Path = INCLUDE
) -> tuple[Command, ...]:
    """Return one command; three for zig, whose clang cannot call its own linker."""
    arch = compiler.target.arch
    common = [
        *("-x", "hip", f"--offload-arch={arch}", "-std=c++17", f"-O{options.level}"),
        *defines(compiler.target, options),
    ]
    if compiler.driver in ("rocm", "hipcc"):
        return (_library(compiler, common, source, output, options, include),)
    device = [
        *common,
        *("-nogpuinc", "-nogpulib", "--cuda-device-only", "--no-gpu-bundle-output"),
        *(f"-I{include / 'amdgpu'}", f"-I{include}"),
        *options.flags,
    ]
    if compiler.driver == "clang":
        return ((*compiler.executable, *device, str(source), "-o", str(output)),)
    assembly, assembled = f"{output}.s", f"{output}.o"
    (zig,) = compiler.executable
    return (
        (zig, "clang", *device, "-S", str(source), "-o", assembly),
        (
            zig,
            "clang",
            "--target=amdgcn-amd-amdhsa",
            f"-mcpu={arch}",
            "-c",
            assembly,
            "-o",
            assembled,
        ),
        (zig, "ld.lld", "-shared", assembled, "-o", str(output)),
    )


def _library(
    compiler: Compiler,
    common: list[str],
    source: Path,
    output: Path,
    options: CompileOptions,
    include: Path,
) -> Command:
    runtime: list[str] = []
    if compiler.driver == "rocm":
        home = Path(compiler.executable[0]).parents[2]
        runtime = [
            f"--rocm-path={home}",
            f"-L{home / 'lib'}",
            "-lamdhip64",
            f"-Wl,-rpath,{home / 'lib'}",
        ]
        runtime += ["-fno-gpu-rdc", *_PASSES, "-mllvm", "-enable-post-misched=0"]
    return (
        *compiler.executable,
        *common,
        *("-shared", "-fPIC", "-fvisibility=hidden", f"-I{include}"),
        *options.flags,
        str(source),
        *runtime,
        *("-o", str(output)),
    )


_V3 = frozenset("avx avx2 bmi1 bmi2 f16c fma abm movbe".split())
"""The features of x86-64-v3 by their names in /proc/cpuinfo, with LZCNT as `abm`."""

DEFAULT_TARGETS = (
    Target("cpu"),
    Target("cuda", "sm_90a"),
    *(Target("amdgpu", arch) for arch in ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")),
)


@dataclass(frozen=True, slots=True)
class TargetReport:
    """A row of `doctor`'s report; `reason` is one line if the target is not available."""

    target: Target
    available: bool
    compiler: str = ""
    version: str = ""
    reason: str = ""


def find_compiler(target: Target) -> Compiler | Missing:
    """Return the compiler of a target. Runs `--version` once per compiler, in some milliseconds."""
    return _FINDERS[target.kind](target)


_loads = True


def load_nothing() -> None:
    """Declare that this process compiles for other machines, so code objects suffice."""
    global _loads
    _loads = False


def usable(compiler: Compiler) -> bool:
    """Return whether a compiler's output can be loaded here, or need not be."""
    return compiler.loadable or not _loads


def require(target: Target) -> Compiler:
    """Do what `find_compiler` does, but raise MissingCompilerError."""
    compiler = find_compiler(target)
    if isinstance(compiler, Missing):
        raise MissingCompilerError(f"target {target} is off: {compiler.reason}")
    return compiler


def commands(
    compiler: Compiler, source: Path, output: Path, options: CompileOptions, include: Path = INCLUDE
) -> tuple[Command, ...]:
    """Return the commands that build `output` from `source`, in order."""
    return _COMMANDS[compiler.target.kind](compiler, source, output, options, include)


_LINKS = ("-shared", "-lamdhip64", "-L", "-Wl,")


def assembly(source: str, target: Target, options: CompileOptions = CompileOptions()) -> str:  # noqa: B008
    """Compile a source to assembly, PTX for NVIDIA, and return the text. Raises ToolchainError."""
    compiler = require(target)
    with tempfile.TemporaryDirectory(prefix="rocm-tui-assembly-") as name:
        folder = Path(name)
        kernel, output = folder / "kernel.hip", folder / "kernel"
        kernel.write_text(source, encoding="utf-8")
        command = commands(compiler, kernel, output, options)[0]
        result = Path(command[-1])
        if compiler.driver != "zig":  # zig's first command already emits assembly
            command = tuple(word for word in command if not word.startswith(_LINKS))
            command += ("-ptx",) if compiler.driver == "nvcc" else ("--cuda-device-only", "-S")
        finished = run(command, options.timeout_seconds, folder)
        if finished.code != 0 or not result.is_file():
            errors = tuple(finished.text.splitlines()[:5])
            raise CompileError(str(target), " ".join(command), errors, kernel, kernel)
        return result.read_text(encoding="utf-8", errors="replace")


def report(targets: Iterable[Target] = DEFAULT_TARGETS) -> list[TargetReport]:
    """Return a row for each target."""
    return [_report(find_compiler(target)) for target in targets]


def _report(compiler: Compiler | Missing) -> TargetReport:
    if isinstance(compiler, Missing):
        return TargetReport(compiler.target, available=False, reason=compiler.reason)
    return TargetReport(
        compiler.target,
        available=True,
        compiler=compiler.executable[-1],
        version=compiler.version,
    )


def _find_cpp(target: Target) -> Compiler | Missing:
    """Return the programs in `$CXX`, such as `ccache g++`, without flags; else g++ or clang++."""
    try:
        words = shlex.split(os.environ.get("CXX", ""))
    except ValueError:  # an open quote
        words = []
    programs = takewhile(lambda word: not word.startswith("-"), words)
    command = tuple(path for word in programs if (path := shutil.which(word)))
    if not command:
        path = first_on_path(["g++", "clang++", "c++"])
        if path is None:
            return Missing(target, "no g++ on PATH: install g++ (C++20)")
        command = (path,)
    version = version_of(command, "")
    if not version:
        return Missing(target, f"{' '.join(command)} --version does not run")
    return Compiler(target, "g++", command, version)


def _cpp_commands(
    compiler: Compiler, source: Path, output: Path, options: CompileOptions, include: Path = INCLUDE
) -> tuple[Command, ...]:
    """Return one command. The instruction set is named, never `native`: a cache may be shared."""
    # Unique symbols would be shared between all libraries of a process.
    unique = () if "clang" in compiler.version else ("-fno-gnu-unique",)
    return (
        (
            *compiler.executable,
            *(
                "-x",
                "c++",
                "-std=c++20",
                f"-O{min(options.level, 2)}",
                *instruction_set(),
            ),
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
    """Return `-march` of the highest useful x86-64 level that this machine fully supports."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return ()
    return ("-march=x86-64-v3",) if cpu_features() >= _V3 else ()


def cpu_features() -> frozenset[str]:
    """Return the flags of the first processor; empty if the system does not list them."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return frozenset()
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return frozenset(flags.partition(":")[2].split())


def _find_nvcc(target: Target) -> Compiler | Missing:
    """Return nvcc on PATH, or in `$CUDA_HOME` or `/usr/local/cuda`."""
    homes = [os.environ.get("CUDA_HOME", ""), os.environ.get("CUDA_PATH", ""), "/usr/local/cuda"]
    path = first_on_path(["nvcc", *(f"{home}/bin/nvcc" for home in homes if home)])
    if path is None:
        return Missing(target, "no nvcc on PATH: install the CUDA toolkit, or set CUDA_HOME")
    version = version_of((path,), "release")
    if version is None:
        return Missing(target, f"{path} --version does not run")
    return Compiler(target, "nvcc", (path,), version)


def _nvcc_commands(
    compiler: Compiler, source: Path, output: Path, options: CompileOptions, include: Path = INCLUDE
) -> tuple[Command, ...]:
    """Return one command. `-Xptxas=-v` prints the registers that `resources` reads from the log."""
    return (
        (
            *compiler.executable,
            *(
                "-x",
                "cu",
                _code_for(compiler.target.arch),
                "-std=c++17",
                f"-O{options.level}",
            ),
            *("-shared", "-Xcompiler=-fPIC,-fvisibility=hidden", "-Xptxas=-v"),
            *defines(compiler.target, options),
            *(f"-I{include / 'cuda'}", f"-I{include}"),
            *options.flags,
            *(str(source), "-o", str(output)),
        ),
    )


def _code_for(arch: str) -> str:
    """Return the code flags; for `sm_90a` without PTX, which `-arch` would add for any later GPU,
    although its features exist nowhere else."""
    if arch[-1].isdigit():
        return f"-arch={arch}"
    return f"-gencode=arch=compute_{arch.removeprefix('sm_')},code={arch}"


_FINDERS: dict[TargetKind, Callable[[Target], Compiler | Missing]] = {
    "amdgpu": _find_clang,
    "cuda": _find_nvcc,
    "cpu": _find_cpp,
}
_COMMANDS: dict[TargetKind, Callable[..., tuple[Command, ...]]] = {
    "amdgpu": _clang_commands,
    "cuda": _nvcc_commands,
    "cpu": _cpp_commands,
}
