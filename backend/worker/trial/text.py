"""Words, values and sizes in a captured graph's text: only numbers, dtypes, devices, names of ops,
sums and products of symbols, and constant tensors."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from backend.inductor.torch.captured import NAMESPACES, OpOverload

MOST_TERMS = 200

Expression = Callable[[Mapping[str, Any]], Any]
"""A size as a function of the symbols' values, which are numbers or open sizes."""

_OPERATIONS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


class TextRefused(Exception):
    """A text is not a captured graph of ours; the message is one line with the location."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason if line is None else f"line {line}: {reason}")


def expression(node: ast.expr, symbols: Container[str]) -> Expression:
    """Return a size. Raises TextRefused for anything else."""
    if sum(1 for _ in ast.walk(node)) > 5 * MOST_TERMS:
        raise TextRefused("a size is too long", node.lineno)
    return _read_size(node, symbols)


def _read_size(node: ast.expr, symbols: Container[str]) -> Expression:
    match node:
        case ast.Constant(value=int(number)) if type(number) is int and abs(number) < 1 << 62:
            return lambda _: number
        case ast.Name(id=name) if name in symbols:
            return lambda values: values[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = _read_size(operand, symbols)
            return lambda values: -inner(values)
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int(power))):
            if 0 <= power <= 4:
                base = _read_size(left, symbols)
                return lambda values: base(values) ** power
        case ast.BinOp(left=left, op=kind, right=right) if type(kind) in _OPERATIONS:
            apply, first, second = (
                _OPERATIONS[type(kind)],
                _read_size(left, symbols),
                _read_size(right, symbols),
            )
            return lambda values: apply(first(values), second(values))
    raise TextRefused("a size of numbers and symbols is expected", getattr(node, "lineno", None))


def keywords_of(call: ast.Call) -> dict[str, ast.expr]:
    options = {word.arg: word.value for word in call.keywords if word.arg is not None}
    if len(options) != len(call.keywords):
        raise TextRefused("its keywords are not names, or are repeated", call.lineno)
    return options


def no_more(options: Mapping[str, ast.expr], call: ast.Call) -> None:
    if options:
        raise TextRefused(f"`{next(iter(options))}` is an unknown keyword", call.lineno)


def dotted(node: ast.expr) -> list[str]:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        raise TextRefused("a name is expected", node.lineno)
    return [node.id, *reversed(parts)]


def op_of(names: list[str], line: int, *front: str) -> Any:
    """Return an op of torch itself that accesses no file."""
    *before, namespace, name, overload = names if len(names) == 3 + len(front) else ["", "", ""]
    if tuple(before) != front or namespace not in NAMESPACES:
        raise TextRefused(f"{'.'.join(names)[:100]} is not an op of torch", line)
    packet = getattr(getattr(torch.ops, namespace), name, None)
    op = getattr(packet, overload, None)
    if not isinstance(op, OpOverload):
        raise TextRefused(f"this torch has no op {namespace}.{name}.{overload}", line)
    if any("file" in argument.name for argument in op._schema.arguments):
        raise TextRefused(f"{namespace}.{name} reads a file", line)
    return op


_WORD = re.compile(r"[a-z0-9_]{1,40}")


def scalar(node: ast.expr) -> Any:
    match node:
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            number = scalar(operand)
            if isinstance(number, (int, float)):
                return -number
        case ast.Name(id="inf"):
            return float("inf")
        case ast.Name(id="nan"):
            return float("nan")
        case ast.Constant(value=None | bool()):
            return node.value
        case ast.Constant(value=int(number)) if abs(number) <= 1 << 63:
            return number
        case ast.Constant(value=float(number)):
            return number
        case ast.Constant(value=str(word)) if _WORD.fullmatch(word):
            return word
    raise TextRefused("a number, a tensor or a word of torch is expected", node.lineno)


def whole_number(node: ast.expr) -> int:
    number = scalar(node)
    if type(number) is not int:
        raise TextRefused("a whole number is expected", node.lineno)
    return number


def is_constant(node: ast.expr | None, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def enumerated(node: ast.expr) -> Any:
    """Return `torch.float32`, `torch.strided`, `torch.contiguous_format`."""
    match node:
        case ast.Attribute(value=ast.Name(id="torch"), attr=name):
            value = getattr(torch, name, None)
            if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
                return value
    raise TextRefused("a dtype, layout or memory format is expected", node.lineno)


def parse_dtype(node: ast.expr) -> torch.dtype:
    value = enumerated(node)
    if not isinstance(value, torch.dtype):
        raise TextRefused("a dtype is expected", node.lineno)
    return value


def parse_device(node: ast.expr) -> torch.device:
    """Parse `device(type='cuda', index=0)`."""
    match node:
        case ast.Call(func=ast.Name(id="device"), args=[]):
            options = keywords_of(node)
            kind, index = options.pop("type", None), options.pop("index", None)
            no_more(options, node)
            if isinstance(kind, ast.Constant) and kind.value in ("cpu", "cuda"):
                place = str(kind.value)
                return (
                    torch.device(place)
                    if index is None
                    else torch.device(place, whole_number(index))
                )
    raise TextRefused("a device, cpu or cuda, is expected", node.lineno)


def named_device(node: ast.expr) -> torch.device:
    """Parse `'cuda:0'`."""
    match node:
        case ast.Constant(value=str(name)) if re.fullmatch(r"cpu|cuda(:\d{1,2})?", name):
            return torch.device(name)
    raise TextRefused("a device, cpu or cuda, is expected", node.lineno)


SEED = 0x7A1D


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant tensor of the graph: `numbers`, else drawn."""

    name: str
    numbers: tuple[float | int | bool, ...] | None
    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


def constant_of(statement: ast.stmt) -> Constant:
    """Parse `self.register_buffer('NAME', torch.tensor([1, 2]).to(torch.int64).reshape([2]))`, or
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
    raise TextRefused("`self.register_buffer(NAME, TENSOR)` is expected", statement.lineno)


def _made(name: str, call: ast.Call) -> Constant:
    shape: tuple[int, ...] | None = None
    match call:
        case ast.Call(
            func=ast.Attribute(value=ast.Call() as inner, attr="reshape"),
            args=[ast.List() as sizes],
            keywords=[],
        ):
            shape, call = tuple(map(whole_number, sizes.elts)), inner
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
            options = keywords_of(source)
            where = options.pop("device", None)
            no_more(options, source)
            place = torch.device("cpu") if where is None else named_device(where)
            if maker == "tensor":
                numbers = tuple(map(scalar, listed.elts))
                return Constant(name, numbers, shape or (), parse_dtype(kind), place)
            if shape is None:
                sizes_ = tuple(map(whole_number, listed.elts))
                return Constant(name, None, sizes_, parse_dtype(kind), place)
    raise TextRefused("a tensor of few numbers, or a drawn one, is expected", call.lineno)


def constant_tensor(constant: Constant, generators: dict[str, torch.Generator]) -> Tensor:
    """Create the tensor. Raises torch's errors if there are no such tensors here."""
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


def generator_of(device: torch.device, generators: dict[str, torch.Generator]) -> torch.Generator:
    name = str(device)
    if name not in generators:
        generators[name] = torch.Generator(device)
        generators[name].manual_seed(SEED)
    return generators[name]
