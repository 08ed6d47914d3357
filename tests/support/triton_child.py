"""A process that has Triton: its interpreter on CPU tensors, or its compiler for AMD.

It serves one pickled request after the other, from `triton_lab.py`.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from backend.templates.operand import Expr, Operand
from backend.templates.triton.choice import compile_choice, write_module
from backend.templates.triton.module_file import load_module
from tests.support.chains import evaluate
from tests.support.sparse import sparse
from tests.support.triton_lab import Case, Numbers, receive, send

GUARD = 4096
"""Elements before and after each tensor that no kernel may write and none may use."""
FAR = 1 << 28
"""Elements from which on a tensor is mapped alone, and what lies between its own is not touched."""


def serve(folder: Path) -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what Triton prints is not an answer
    if os.environ["TRITON_INTERPRET"] == "1":
        teach_bfloat16()
    while (request := receive(sys.stdin.buffer)) is not None:
        what, argument = request
        try:
            if what == "run":
                answer: Any = run(argument, folder)
            else:
                answer = compile_choice(argument, folder)
        except Exception:
            answer = traceback.format_exc()
        send(answers, answer)


def teach_bfloat16() -> None:
    """Triton's interpreter multiplies the bits of bfloat16 as integers (triton#11584, not mended).

    Matrix cores multiply the values and add in fp32: so does this.
    """
    import numpy
    import triton.language as tl
    from triton.runtime import interpreter

    plain = interpreter.InterpreterBuilder.create_dot

    def widened(handle: Any) -> Any:
        if handle.dtype.scalar != tl.bfloat16:
            return handle
        bits = handle.data.astype(numpy.uint32) << 16
        return interpreter.TensorHandle(bits.view(numpy.float32), tl.float32)

    def create_dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        return plain(self, widened(a), widened(b), *rest)

    interpreter.InterpreterBuilder.create_dot = create_dot


def run(case: Case, folder: Path) -> Numbers:
    def launch(*arguments: Any) -> None:
        choice = case.choice
        load_module(write_module(choice, folder), choice.source).launch(*arguments)

    return compare(case, launch)


def compare(case: Case, launch: Callable[..., None]) -> Numbers:
    """Compare what `launch`, which is called as a choice's module is, writes with float64."""
    import torch

    choice, problem = case.choice, case.problem
    torch.manual_seed(case.seed)
    a, b = _random(problem.a, case.sizes), _random(problem.b, case.sizes)
    named = {extra.name: _random(extra, case.sizes) for extra in case.extras}
    outputs = {x.name: _guarded(x, case.sizes) for x in (problem.out, *case.others)}
    for storage, _ in outputs.values():
        storage.fill_(7)
    before = {name: storage.clone() for name, (storage, _) in outputs.items()}
    arguments = [a, b, *(named[name] for name in choice.extras)]
    arguments += [outputs[name][1] for name in choice.outputs]
    if choice.workspace is not None:
        count = _number(choice.workspace_bytes, case.sizes) // 4
        dtype = getattr(torch, choice.sums)
        fill = float("nan") if dtype.is_floating_point else torch.iinfo(dtype).min
        arguments.append(torch.full((count // (dtype.itemsize // 4),), fill, dtype=dtype))
    sizes = [case.sizes[str(symbol)] for symbol in choice.sizes]
    launch(*arguments, *sizes)

    product, size = a.double() @ b.double(), a.double().abs() @ b.double().abs()
    if problem.acc == "int32":
        product = product.to(torch.int32)
    values = {name: tensor.double() for name, tensor in named.items()}
    unit = {"float32": 2.0**-24, "float64": 2.0**-52, "int32": 0.0}[problem.acc]
    terms = size + sum(value.abs() for value in values.values()) + product.abs()
    inner = (a.shape[-1] + 16) * unit * terms
    tiny = 1e-6 if problem.acc == "float32" else 1e-13
    expected = {problem.out.name: product}
    if problem.epilogue is not None:
        steps = evaluate(problem.epilogue.steps, product, named)
        expected = {store.to.name: steps[store.step] for store in problem.epilogue.stores}
    error, stray = 0.0, 0
    for name in choice.outputs:
        storage, out = outputs[name]
        want = expected[name].expand(out.shape).double()
        got = out.double().clone()
        rounding = torch.finfo(out.dtype).eps if out.dtype.is_floating_point else 0.0
        wrong = (got - want).abs() / (4 * inner + rounding * want.abs() + tiny)
        wrong = torch.where(got.isfinite(), wrong, torch.inf)
        error = max(error, float(wrong.max()) if wrong.numel() else 0.0)
        out.copy_(torch.full_like(out, 7))
        stray += int((storage != before[name]).sum())
    return Numbers(error, stray)


def _random(operand: Operand, numbers: dict[str, int]) -> Any:
    """Random values with NaN wherever the tensor has no element, or the least whole number."""
    import torch

    storage, view = _guarded(operand, numbers)
    if not storage.dtype.is_floating_point:
        storage.fill_(torch.iinfo(storage.dtype).min)
        return view.random_(-128, 128)
    storage.fill_(float("nan"))
    view.copy_(torch.randn(view.shape))
    return view


def _number(size: Expr, numbers: dict[str, int]) -> int:
    import sympy

    expr = sympy.sympify(size)
    return int(expr.subs({symbol: numbers[str(symbol)] for symbol in expr.free_symbols}))


def _guarded(operand: Operand, numbers: dict[str, int]) -> tuple[Any, Any]:
    import torch

    sizes = [_number(size, numbers) for size in operand.sizes]
    strides = [_number(stride, numbers) for stride in operand.strides]
    reach = sum(max(0, s - 1) * t for s, t in zip(sizes, strides, strict=True)) + 1
    if reach > FAR:
        elements = sparse(reach, getattr(torch, operand.dtype)).as_strided(sizes, strides)
        return elements, elements
    storage = torch.empty(reach + 2 * GUARD, dtype=getattr(torch, operand.dtype))
    return storage, storage.as_strided(sizes, strides, GUARD)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
