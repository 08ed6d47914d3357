"""Constants of a captured graph: as its text tells them, and as tensors."""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from backend.worker.trial.expressions import Refused
from backend.worker.trial.words import dtype_of, named_device, no_more, options_of, scalar, whole

SEED = 0x7A1D


@dataclass(frozen=True, slots=True)
class Constant:
    """A tensor of the graph itself: `numbers`, else drawn."""

    name: str
    numbers: tuple[float | int | bool, ...] | None
    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


def constant_of(statement: ast.stmt) -> Constant:
    """`self.register_buffer('NAME', torch.tensor([1, 2]).to(torch.int64).reshape([2]))`, or
    `torch.randn([64, 64]).to(torch.float16)`, or `torch.zeros`."""
    match statement:
        case ast.Expr(
            value=ast.Call(
                func=ast.Attribute(value=ast.Name(id="self"), attr="register_buffer"),
                args=[ast.Constant(value=str(name)), ast.Call() as made],
                keywords=[],
            )
        ) if name.isidentifier():
            return _made(name, made)
    raise Refused("`self.register_buffer(NAME, TENSOR)` is expected", statement.lineno)


def _made(name: str, call: ast.Call) -> Constant:
    shape: tuple[int, ...] | None = None
    match call:
        case ast.Call(
            func=ast.Attribute(value=ast.Call() as inner, attr="reshape"),
            args=[ast.List() as sizes],
            keywords=[],
        ):
            shape, call = tuple(map(whole, sizes.elts)), inner
    match call:
        case ast.Call(
            func=ast.Attribute(
                value=ast.Call(
                    func=ast.Attribute(value=ast.Name(id="torch"), attr=maker),
                    args=[ast.List() as listed],
                ) as source,
                attr="to",
            ),
            args=[kind],
            keywords=[],
        ) if maker in ("tensor", "randn", "zeros"):
            options = options_of(source)
            where = options.pop("device", None)
            no_more(options, source)
            place = torch.device("cpu") if where is None else named_device(where)
            if maker == "tensor":
                numbers = tuple(map(scalar, listed.elts))
                return Constant(name, numbers, shape or (), dtype_of(kind), place)
            if shape is None:
                sizes_ = tuple(map(whole, listed.elts))
                return Constant(name, None, sizes_, dtype_of(kind), place)
    raise Refused("a tensor of few numbers, or a drawn one, is expected", call.lineno)


def constant_tensor(constant: Constant, generators: dict[str, torch.Generator]) -> Tensor:
    """Raises what torch raises where there are no such tensors here."""
    if constant.numbers is not None:
        kind = torch.float64 if constant.dtype.is_floating_point else None
        numbers = torch.tensor(constant.numbers, dtype=kind, device=constant.device)
        return numbers.to(constant.dtype).reshape(constant.shape)
    generator = generator_of(constant.device, generators)
    count = math.prod(constant.shape)
    if not constant.dtype.is_floating_point:
        return torch.zeros(constant.shape, dtype=constant.dtype, device=constant.device)
    scale = 1 / math.sqrt(constant.shape[-1]) if len(constant.shape) > 1 else 1.0
    numbers = torch.empty(count, device=constant.device)
    numbers.normal_(generator=generator).mul_(scale)
    return numbers.reshape(constant.shape).to(constant.dtype)


def generator_of(device: torch.device, known: dict[str, torch.Generator]) -> torch.Generator:
    name = str(device)
    if name not in known:
        known[name] = torch.Generator(device)
        known[name].manual_seed(SEED)
    return known[name]
