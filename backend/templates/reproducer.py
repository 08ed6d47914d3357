"""The source of a choice again, and the folder in which it builds and runs alone.

The source is made from what a tuning is known by: op, inputs key, config, hash. The result has the
hash of the choice, or there is none: a factor or an activation that the op had beside its inputs,
or another version of the templates, is found out by it. The module of a Triton choice is looked for
among those that tuning left below the cache dir.

The folder has the kernel, a Makefile, and a `main` that fills, runs, checks and times. It holds our
headers too, so that it can be sent: nothing else of ours is needed to build it with hipcc, nvcc or
g++.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from backend.counted import counted
from backend.disk.safe import read_bytes
from backend.errors import CacheUnreadable, ConfigError, TemplateError
from backend.model.ops import OPS, Op
from backend.model.origin import any_toolchain, choice_hash, kernel_hash, own_template
from backend.model.problem import TensorSpec, parse_inputs_key
from backend.templates.config import GemmConfig, SkinnyConfig, config_of
from backend.templates.operand import DType, Expr, Operand
from backend.templates.problem import ACTIVATIONS, GemmProblem, broadcast_strides
from backend.templates.rendering import Rendered, environment, render_gemm, render_skinny
from backend.templates.triton.heuristics import ARCHES
from backend.templates.triton.module_file import ENTRY, INTERPRETER
from backend.toolchain.target import INCLUDE, CompileOptions, Target, defines
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
        templates = environment()
        main = templates.get_template("reproducer.hip.jinja")
        makefile = templates.get_template("reproducer.makefile.jinja")
        files = {
            KERNEL: rendered.source,
            MAIN: main.render(**_main_values(rendered, hint)),
            MAKEFILE: makefile.render(**_build(target)),
        }
        for name, text in files.items():
            (folder / name).write_text(text)
    except OSError as error:
        raise ReproducerError(f"cannot write {folder}: {error.strerror}") from error
    return [folder / name for name in files]


def _main_values(rendered: Rendered, hint: Callable[[Expr], int]) -> dict[str, Any]:
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
"""A longer module is none of ours, nor is a pipe."""


def kept_source(folder: Path, description: str, hash: str) -> tuple[Path, str]:
    """The module of the choice `hash` in `folder`: file and text. Raises ReproducerError."""
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
    """What the choice `hash` was made from. Raises ReproducerError, InputsKeyInvalid."""
    template = own_template(hash)
    row = OPS.get(op)
    if row is None or not row.buildable or template not in ("gemm", "skinny"):
        raise ReproducerError(f"{hash[:80]} of {op[:40]} is no choice of our templates")
    operands = _operands(op, row, parse_inputs_key(inputs).specs)
    for problem in _problems(operands):
        try:
            rendered = _render(template, problem, description, _reorder(row, problem))
        except TemplateError as error:
            raise ReproducerError(f"the config does not fit its inputs: {error}") from error
        kernel = kernel_hash(rendered.source, rendered.name, str(target))
        if choice_hash(template, kernel, rendered.config.description) == any_toolchain(hash):
            return rendered
    raise ReproducerError(
        f"{hash[:80]} was made for {op} with factors that its inputs do not tell, for another "
        f"target than {target}, or by another version of the templates"
    )


DTYPES: dict[str, DType] = {
    "float16": "float16",
    "bfloat16": "bfloat16",
    "float32": "float32",
}
"""Those that its program makes numbers of."""


def _operands(op: str, row: Op, specs: Sequence[TensorSpec]) -> dict[str, Operand]:
    if not row.takes(len(specs)):
        raise ReproducerError(f"{op} has {counted(len(row.inputs), 'input')}, its key {len(specs)}")
    roles = zip(row.inputs, specs, strict=False)
    operands: dict[str, Operand] = {
        role: _operand(role, spec) for role, spec in roles if role != "copy"
    }
    if "c" in operands or "scale_a" in operands:
        raise ReproducerError(f"no reproducer is made for {op}")
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
    """The likely ones first. What the graph knew of alignment is in the config already."""
    a, b, bias = operands["a"], operands["b"], operands.get("bias")
    sizes = (*a.sizes[:-1], b.sizes[-1])
    strides = [1]
    for size in sizes[:0:-1]:
        strides.insert(0, strides[0] * size)
    out = Operand("out", a.dtype, sizes, tuple(strides))
    for activation in ACTIVATIONS:
        yield GemmProblem(a, b, out, bias, activation)


def _reorder(row: Op, problem: GemmProblem) -> list[int] | None:
    """The order in which the kernel takes its inputs; that of the template for a linear layer."""
    return None if problem.bias is None or row.weight else row.reorder


def _render(
    template: str, problem: GemmProblem, description: str, reorder: list[int] | None
) -> Rendered:
    try:
        config = config_of(template, description)
    except ConfigError as error:
        raise ReproducerError(str(error)) from error
    name = f"rocm_{template}"
    if isinstance(config, GemmConfig):
        return render_gemm(problem, config, name, input_reorder=reorder)
    assert isinstance(config, SkinnyConfig)
    return render_skinny(problem, config, name, input_reorder=reorder)
