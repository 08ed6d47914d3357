"""Single words and values in a captured graph's text: numbers, dtypes, devices, names of ops."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

import torch

from backend.inductor.torch.captured import NAMESPACES, OpOverload
from backend.worker.trial.expressions import Refused


def options_of(call: ast.Call) -> dict[str, ast.expr]:
    options = {word.arg: word.value for word in call.keywords if word.arg is not None}
    if len(options) != len(call.keywords):
        raise Refused("its keywords are no names, or stand there twice", call.lineno)
    return options


def no_more(options: Mapping[str, ast.expr], call: ast.Call) -> None:
    if options:
        raise Refused(f"`{next(iter(options))}` is not known here", call.lineno)


def dotted(node: ast.expr) -> list[str]:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        raise Refused("a name is expected", node.lineno)
    return [node.id, *reversed(parts)]


def op_of(names: list[str], line: int, *front: str) -> Any:
    """An op of torch itself, that touches no file."""
    *before, namespace, name, overload = names if len(names) == 3 + len(front) else ["", "", ""]
    if tuple(before) != front or namespace not in NAMESPACES:
        raise Refused(f"{'.'.join(names)[:100]} is no op of torch", line)
    packet = getattr(getattr(torch.ops, namespace), name, None)
    op = getattr(packet, overload, None)
    if not isinstance(op, OpOverload):
        raise Refused(f"this torch has no op {namespace}.{name}.{overload}", line)
    if any("file" in argument.name for argument in op._schema.arguments):
        raise Refused(f"{namespace}.{name} reads a file", line)
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
    raise Refused("a number, a tensor or a word of torch is expected", node.lineno)


def whole(node: ast.expr) -> int:
    number = scalar(node)
    if type(number) is not int:
        raise Refused("a whole number is expected", node.lineno)
    return number


def is_constant(node: ast.expr | None, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def enumerated(node: ast.expr) -> Any:
    """`torch.float32`, `torch.strided`, `torch.contiguous_format`."""
    match node:
        case ast.Attribute(value=ast.Name(id="torch"), attr=name):
            value = getattr(torch, name, None)
            if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
                return value
    raise Refused("a dtype, layout or memory format is expected", node.lineno)


def dtype_of(node: ast.expr) -> torch.dtype:
    value = enumerated(node)
    if not isinstance(value, torch.dtype):
        raise Refused("a dtype is expected", node.lineno)
    return value


def device_of(node: ast.expr) -> torch.device:
    """`device(type='cuda', index=0)`"""
    match node:
        case ast.Call(func=ast.Name(id="device"), args=[]):
            options = options_of(node)
            kind, index = options.pop("type", None), options.pop("index", None)
            no_more(options, node)
            if isinstance(kind, ast.Constant) and kind.value in ("cpu", "cuda"):
                place = str(kind.value)
                return torch.device(place) if index is None else torch.device(place, whole(index))
    raise Refused("a device, cpu or cuda, is expected", node.lineno)


def named_device(node: ast.expr) -> torch.device:
    """`'cuda:0'`"""
    match node:
        case ast.Constant(value=str(name)) if re.fullmatch(r"cpu|cuda(:\d{1,2})?", name):
            return torch.device(name)
    raise Refused("a device, cpu or cuda, is expected", node.lineno)
