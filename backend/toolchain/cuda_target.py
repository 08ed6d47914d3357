"""NVIDIA GPUs: nvcc and our header of HIP's names over the CUDA runtime."""

from __future__ import annotations

import os
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


def find(target: Target) -> Compiler | Missing:
    """nvcc on PATH, or below `$CUDA_HOME` or `/usr/local/cuda`."""
    homes = [os.environ.get("CUDA_HOME", ""), os.environ.get("CUDA_PATH", ""), "/usr/local/cuda"]
    path = first_on_path(["nvcc", *(f"{home}/bin/nvcc" for home in homes if home)])
    if path is None:
        return Missing(target, "no nvcc on PATH: install the CUDA toolkit, or set CUDA_HOME")
    version = version_of((path,), "release")
    if version is None:
        return Missing(target, f"{path} --version does not run")
    return Compiler(target, "nvcc", (path,), version)


def commands(
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
