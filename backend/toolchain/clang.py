"""AMD GPUs: ROCm's clang, Debian's hipcc, or any clang without ROCm for code objects alone.

The first that knows the architecture is taken, those that make a loadable library before the
others. An architecture is always named: `native` fails without a GPU, and hipcc alone would
silently build for one of 2015.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from backend.toolchain.target import (
    INCLUDE,
    Command,
    Compiler,
    Missing,
    Options,
    Target,
    defines,
    file_times,
    first_on_path,
    output_of,
    version_of,
)

_OLDEST = 18
"""Clang's version from which our header stands in for ROCm's: 15 has no builtin for ballots."""

_CLANGS = ["clang++", *(f"clang++-{n}" for n in range(25, _OLDEST - 1, -1))]

_PASSES = [
    *("-mllvm", "-amdgpu-early-inline-all=true"),
    *("-mllvm", "-amdgpu-function-calls=false"),
]


def find(target: Target) -> Compiler | Missing:
    """The first compiler that knows `target.arch`."""
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
    """Every compiler for AMD GPUs that runs here, best first, whatever it knows."""
    for path in _rocm_clangs():
        if version := version_of((path,)):
            yield Compiler(target, "rocm", (path,), version)
    if hipcc := shutil.which("hipcc"):
        # With nvcc on PATH it would build for NVIDIA.
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
    """Those that have the linker of their own version: clang calls it by that name."""
    for name in _CLANGS:
        if (path := shutil.which(name)) and _linker_of(path):
            yield path


def _new_enough(version: str) -> bool:
    number = re.search(r"clang version (\d+)", version)
    return number is not None and int(number[1]) >= _OLDEST


def _linker_of(clang: str) -> str | None:
    beside = str(Path(clang).resolve().parent / "lld")
    return first_on_path([beside, "lld"])


def _zig() -> str | None:
    if path := shutil.which("zig"):
        return path
    spec = importlib.util.find_spec("ziglang")
    if spec is None or not spec.submodule_search_locations:
        return None
    return shutil.which("zig", path=os.pathsep.join(spec.submodule_search_locations))


def knows(compiler: Compiler) -> bool:
    """Whether it has the target's architecture, and ROCm's device library for it if it links one.

    A dry run of the driver tells both: hipcc 5.2 knows gfx1100 but has no library for it.
    """
    return _dry_run(compiler, file_times(compiler.executable))


@functools.lru_cache(maxsize=256)
def _dry_run(compiler: Compiler, times: tuple[int, ...]) -> bool:
    clang = ("clang",) if compiler.driver == "zig" else ()
    alone = () if compiler.loadable else ("-nogpulib", "-nogpuinc")
    question = ("-x", "hip", f"--offload-arch={compiler.target.arch}", "-###", "-c", os.devnull)
    answer = output_of((*compiler.executable, *clang, *alone, *question))
    return bool(answer) and "error:" not in answer


def commands(
    compiler: Compiler, source: Path, output: Path, options: Options, include: Path = INCLUDE
) -> tuple[Command, ...]:
    """One command; three for zig, whose clang cannot call its own linker."""
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
    options: Options,
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
