"""The rebuilt source of a choice, and a folder in which it builds and runs alone.

The source is rendered from the tuning's op, inputs key, config and hash. The result has the hash of
the choice, or is rejected: so a factor or an activation that the op had beside its inputs, or
another version of the templates, is detected. The module of a Triton choice is looked up among
the modules that tuning left in the cache dir.

The folder has the kernel, a Makefile, and a `main` that fills, runs, checks and times. It also has
our headers, so that it can be sent: nothing else of ours is needed to build it with hipcc, nvcc or
g++.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, get_args

from backend.counted import counted
from backend.disk.safe import read_bytes
from backend.errors import CacheUnreadable, ConfigError, TemplateError, UnsupportedProblemError
from backend.model.ops import OPS, Op
from backend.model.origin import any_toolchain, choice_hash, kernel_hash, own_template
from backend.model.problem import TensorSpec, parse_inputs_key
from backend.templates.config import parse_template_config
from backend.templates.operand import ACC, DType, Operand
from backend.templates.problem import (
    ACTIVATIONS,
    SCALES,
    GemmProblem,
    broadcast_strides,
    input_order,
)
from backend.templates.rendering import Rendered, jinja_environment, render
from backend.templates.triton.heuristics import ARCHES
from backend.templates.triton.module_file import ENTRY, INTERPRETER
from backend.toolchain.target import INCLUDE, CompileOptions, Target, defines
from backend.toolchain.targets import instruction_set

KERNEL, MAIN, MAKEFILE = "kernel.hip", "main.hip", "Makefile"


class ReproducerError(Exception):
    """The folder cannot be written; the message is one line."""


def write(folder: Path, rendered: Rendered, target: Target) -> list[Path]:
    """Write the files and return them.

    `target` is the choice's, and the one that `make` builds; the Makefile has the others too.
    Raises ReproducerError if the folder already has other content.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ReproducerError(f"{folder} exists and is not empty: name a new folder")
    try:
        shutil.copytree(INCLUDE, folder / "include", ignore=shutil.ignore_patterns("amdgpu"))
        templates = jinja_environment()
        main = templates.get_template("reproducer.hip.jinja")
        makefile = templates.get_template("reproducer.makefile.jinja")
        files = {
            KERNEL: rendered.source,
            MAIN: main.render(**_main_values(rendered)),
            MAKEFILE: makefile.render(**_build(target)),
        }
        for name, text in files.items():
            (folder / name).write_text(text)
    except OSError as error:
        raise ReproducerError(f"cannot write {folder}: {error.strerror}") from error
    return [folder / name for name in files]


def _main_values(rendered: Rendered) -> dict[str, Any]:
    problem = rendered.problem
    scales = [f"scale{at}" for at in range(len(problem.scales))]
    named = ("a", "b", "bias", *scales, "c", "d")
    inputs = {
        name: operand
        for name, operand in zip(named, problem.inputs(), strict=False)
        if operand is not None
    }
    roles = {operand.name: name for name, operand in (*inputs.items(), ("out", problem.out))}
    return {
        "entry": rendered.name,
        "config": rendered.config.description,
        "title": _title(problem),
        "parameters": ", ".join(f"{arg.ty} {arg.name}" for arg in rendered.args),
        "arguments": [
            f"{roles[arg.name]}.device" if isinstance(arg.value, Operand) else str(int(arg.value))
            for arg in rendered.args
        ],
        "inputs": [_tensor(name, operand) for name, operand in inputs.items()],
        "output": _tensor("out", problem.out),
        "sizes": [int(size) for size in (problem.batch, problem.m, problem.n, problem.k)],
        "scales": scales,
        "rounding": _ROUNDING.get(problem.acc, "1e-3" if problem.fast_sums else "1e-6"),
        "problem": problem,
    }


_ROUNDING = {"float64": "1e-13", "int32": "0"}
"""The error of a sum that is no mistake, as a part of the sum of its terms' sizes, by its type."""


def _tensor(name: str, operand: Operand) -> dict[str, Any]:
    """Return extent and strides as (batch, row, column); missing and broadcast ones have 0."""
    strides = [int(stride) for stride in broadcast_strides(operand, 3)]
    pairs = zip(operand.sizes, operand.strides, strict=True)
    return {
        "name": name,
        "dtype": operand.dtype,
        "type": operand.cpp_type,
        "extent": 1 + sum((int(size) - 1) * int(stride) for size, stride in pairs),
        "offset": int(operand.offset),
        "strides": strides,
    }


def _title(problem: GemmProblem) -> str:
    batch, m, n, k = (int(size) for size in (problem.batch, problem.m, problem.n, problem.k))
    many = f"{counted(batch, 'time')} " if problem.batched else ""
    return f"{many}({m} x {k}) @ ({k} x {n}), {problem.a.dtype}, activation {problem.activation}"


def _build(target: Target) -> dict[str, Any]:
    amd = target if target.kind == "amdgpu" else Target("amdgpu", "gfx942")
    nvidia = target if target.kind == "cuda" else Target("cuda", "sm_90")
    return {
        "default": {"amdgpu": "hip", "cuda": "cuda", "cpu": "cpu"}[target.kind],
        "amd": amd,
        "nvidia": nvidia,
        "defines": lambda of: " ".join(defines(of, CompileOptions())),
        "cpu_flags": " ".join(instruction_set()),
    }


MAX_BYTES = 4 << 20
"""A longer module is not ours, nor is a pipe."""


def kept_source(folder: Path, description: str, hash: str) -> tuple[Path, str]:
    """Return file and text of the choice `hash`'s module in `folder`. Raises ReproducerError."""
    for path, source in _sources(folder):
        for target in (INTERPRETER, *ARCHES):
            kernel = kernel_hash(source, ENTRY, target)
            if choice_hash("triton", kernel, description) == any_toolchain(hash):
                return path, source
    raise ReproducerError(
        f"the module of {hash[:80]} is not in {folder}: tune again with `--templates` to have it"
    )


def _sources(folder: Path) -> Iterator[tuple[Path, str]]:
    for path in sorted(folder.glob("*.py")):
        try:
            yield path, read_bytes(path, MAX_BYTES).decode()
        except (CacheUnreadable, UnicodeDecodeError):
            continue  # it cannot have the hash of a choice


def rebuild(op: str, inputs: str, description: str, hash: str, target: Target) -> Rendered:
    """Return the rendered source of the choice `hash`. Raises ReproducerError, InputsKeyInvalid."""
    template = own_template(hash)
    row = OPS.get(op)
    if row is None or not row.buildable or template not in ("gemm", "skinny"):
        raise ReproducerError(f"{hash[:80]} of {op[:40]} is not a choice of our templates")
    operands = _operands(op, row, parse_inputs_key(inputs).specs)
    fits, why_not = False, ""
    for problem in _problems(operands):
        try:
            rendered = _render(template, problem, description, _reorder(row, problem))
        except TemplateError as error:
            why_not = str(error)  # another type of the result may fit
            continue
        fits = True
        kernel = kernel_hash(rendered.source, rendered.name, str(target))
        if choice_hash(template, kernel, rendered.config.description) == any_toolchain(hash):
            return rendered
    if not fits:
        raise ReproducerError(f"the config does not fit its inputs: {why_not}")
    raise ReproducerError(
        f"{hash[:80]} was made for {op} with factors that its inputs do not show, for another "
        f"target than {target}, or by another version of the templates"
    )


DTYPES: dict[str, DType] = {name: name for name in get_args(DType) if name in ACC}
"""The types of inputs."""


def _operands(op: str, row: Op, specs: Sequence[TensorSpec]) -> dict[str, Operand]:
    if not row.takes(len(specs)):
        raise ReproducerError(f"{op} has {counted(len(row.inputs), 'input')}, its key {len(specs)}")
    roles = zip(row.inputs, specs, strict=False)
    operands: dict[str, Operand] = {
        role: _operand(role, spec) for role, spec in roles if role != "copy"
    }
    weight = operands["b"]
    if row.packed:
        operands["b"] = Operand("b", weight.dtype, weight.sizes[::-1], (1, weight.sizes[1]))
    elif row.weight:
        operands["b"] = replace(weight, sizes=weight.sizes[::-1], strides=weight.strides[::-1])
    return operands


def _operand(name: str, spec: TensorSpec) -> Operand:
    dtype = spec.dtype.removeprefix("torch.")
    if dtype not in DTYPES:
        raise ReproducerError(f"no reproducer is made for the dtype {dtype[:40]}")
    return Operand(name, DTYPES[dtype], spec.sizes, spec.strides, spec.offset)


def _problems(operands: dict[str, Operand]) -> Iterator[GemmProblem]:
    """Yield the likely problems first; the config already reflects the graph's alignment."""
    a, b, bias = operands["a"], operands["b"], operands.get("bias")
    scales = tuple(_scale(operands[role]) for role in SCALES if role in operands)
    second = (operands["c"], operands["d"]) if "c" in operands else None
    sizes = (*a.sizes[:-1], b.sizes[-1])
    strides = [1]
    for size in sizes[:0:-1]:
        strides.insert(0, strides[0] * size)
    is_fp8 = a.dtype.startswith("float8")
    results: tuple[DType, ...] = ("bfloat16", "float16", "float32")
    if not is_fp8:
        results = ("int32",) if a.dtype == "int8" else (a.dtype,)
    options = product(results, (False, True) if is_fp8 else (False,), ACTIVATIONS)
    for dtype, fast_sums, activation in options:
        out = Operand("out", dtype, sizes, tuple(strides))
        with suppress(UnsupportedProblemError):
            yield GemmProblem(
                a, b, out, bias, activation, scales=scales, second=second, fast_sums=fast_sums
            )


def _scale(operand: Operand) -> Operand:
    """Return a scale as the templates take it: one number has no dimensions."""
    is_single = all(size == 1 for size in operand.sizes)
    return replace(operand, sizes=(), strides=()) if is_single else operand


def _reorder(row: Op, problem: GemmProblem) -> list[int]:
    """Return the kernel's order of inputs: the op's, or the template's for a linear layer."""
    return input_order(problem, row.roles if row.weight else [row.roles[at] for at in row.reorder])


def _render(template: str, problem: GemmProblem, description: str, reorder: list[int]) -> Rendered:
    try:
        config = parse_template_config(template, description)
    except ConfigError as error:
        raise ReproducerError(str(error)) from error
    return render(problem, config, f"rocm_{template}", input_reorder=reorder)
