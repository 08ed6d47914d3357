"""The CPU: g++ and our fiber header, for tests, CI and machines without a GPU."""

from __future__ import annotations

import functools
import os
import platform
import shlex
import shutil
from pathlib import Path

from backend.toolchain.target import (
    INCLUDE,
    Command,
    Compiler,
    Missing,
    Options,
    Target,
    defines,
    first_on_path,
    version_of,
)

_V3 = frozenset("avx avx2 bmi1 bmi2 f16c fma abm movbe".split())
"""What /proc/cpuinfo calls the features of the x86-64-v3 level, with LZCNT as `abm`."""


def find(target: Target) -> Compiler | Missing:
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


def commands(
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
