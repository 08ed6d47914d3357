"""Writing the folder: kernel, a Makefile, and a `main` that fills, runs, checks and times.

The folder holds our headers too, so that it can be sent: nothing else of ours is needed to build it
with hipcc, nvcc or g++.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from backend.templates.problem import Expr, GemmProblem, Operand, broadcast_strides
from backend.templates.rendering import Rendered, environment
from backend.toolchain.target import INCLUDE, Target
from backend.toolchain.targets import instruction_set

KERNEL, MAIN, MAKEFILE = "kernel.hip", "main.hip", "Makefile"


class ReproducerError(Exception):
    """The folder cannot be written; one line says why."""


def write(
    folder: Path, rendered: Rendered, target: Target, hint: Callable[[Expr], int] = int
) -> list[Path]:
    """The files written. `hint` gives numbers for sizes that are dynamic.

    `target` is the one that the choice was made for, and the one that `make` builds; the Makefile
    has the others too. Raises ReproducerError where the folder holds something else already.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ReproducerError(f"{folder} exists and is not empty: name a new folder")
    try:
        shutil.copytree(INCLUDE, folder / "include", ignore=shutil.ignore_patterns("amdgpu"))
        templates = environment(Path(__file__).parent)
        files = {
            KERNEL: rendered.source,
            MAIN: templates.get_template("main.hip.jinja").render(**_facts(rendered, hint)),
            MAKEFILE: templates.get_template("Makefile.jinja").render(**_build(target)),
        }
        for name, text in files.items():
            (folder / name).write_text(text)
    except OSError as error:
        raise ReproducerError(f"cannot write {folder}: {error.strerror}") from error
    return [folder / name for name in files]


def _facts(rendered: Rendered, hint: Callable[[Expr], int]) -> dict[str, Any]:
    problem = rendered.problem
    inputs = {
        name: operand
        for name, operand in zip(("a", "b", "bias"), problem.inputs(), strict=True)
        if operand is not None
    }
    roles = {operand.name: name for name, operand in (*inputs.items(), ("out", problem.out))}
    return {
        "entry": rendered.name,
        "config": rendered.config.description,
        "title": _title(problem, hint),
        "parameters": ", ".join(f"{arg.ty} {arg.name}" for arg in rendered.args),
        "arguments": [
            f"{roles[arg.name]}.device" if isinstance(arg.value, Operand) else str(hint(arg.value))
            for arg in rendered.args
        ],
        "inputs": [_tensor(name, operand, hint) for name, operand in inputs.items()],
        "output": _tensor("out", problem.out, hint),
        "sizes": [hint(size) for size in (problem.batch, problem.m, problem.n, problem.k)],
        "has_bias": problem.bias is not None,
        "problem": problem,
    }


def _tensor(name: str, operand: Operand, hint: Callable[[Expr], int]) -> dict[str, Any]:
    """Extent and strides as (batch, row, column); a missing or broadcast dimension has stride 0."""
    strides = [hint(stride) for stride in broadcast_strides(operand, 3)]
    pairs = zip(operand.sizes, operand.strides, strict=True)
    return {
        "name": name,
        "dtype": operand.dtype,
        "type": operand.cpp_type,
        "extent": 1 + sum((hint(size) - 1) * hint(stride) for size, stride in pairs),
        "offset": hint(operand.offset),
        "strides": strides,
    }


def _title(problem: GemmProblem, hint: Callable[[Expr], int]) -> str:
    batch, m, n, k = (hint(size) for size in (problem.batch, problem.m, problem.n, problem.k))
    many = f"{batch} times " if problem.batched else ""
    return f"{many}({m} x {k}) @ ({k} x {n}), {problem.a.dtype}, activation {problem.activation}"


def _build(target: Target) -> dict[str, Any]:
    amd = target if target.kind == "amdgpu" else Target("amdgpu", "gfx942")
    nvidia = target if target.kind == "cuda" else Target("cuda", "sm_90")
    return {
        "default": {"amdgpu": "hip", "cuda": "cuda", "cpu": "cpu"}[target.kind],
        "amd": amd,
        "nvidia": nvidia,
        "cpu": Target("cpu"),
        "cpu_flags": " ".join(instruction_set()),
    }
