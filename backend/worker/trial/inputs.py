"""Inputs and constants of a captured graph, as its text tells them."""

from __future__ import annotations

import ast
from dataclasses import dataclass

import torch

from backend.counted import counted
from backend.wire.captured import Head
from backend.worker.trial.expressions import Expression, Refused, expression
from backend.worker.trial.words import (
    device_of,
    dtype_of,
    is_constant,
    no_more,
    options_of,
    whole,
)

Shape = tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Storage:
    """Memory of an input, in bytes; several inputs may be views of one."""

    size: Expression
    device: torch.device


@dataclass(frozen=True, slots=True)
class TensorInput:
    """A view of a storage, by its number."""

    name: str
    storage: int
    sizes: Shape
    strides: Shape
    dtype: torch.dtype
    offset: Expression


@dataclass(frozen=True, slots=True)
class SizeInput:
    """A size that is handed over as a number: `value` of the symbols, which was `hint`."""

    name: str
    value: Expression
    hint: int


Input = TensorInput | SizeInput


class Inputs:
    """Reads the calls of `reader`."""

    def __init__(self, head: Head, names: tuple[str, ...]) -> None:
        self._symbols = head.symbols
        self._names = names
        self._storages: dict[str, int] = {}
        self._made: list[Storage] = []
        self._inputs: list[Input] = []

    def read(self, function: ast.FunctionDef) -> tuple[tuple[Storage, ...], tuple[Input, ...]]:
        if function.name != "load_args" or [a.arg for a in function.args.args] != ["reader"]:
            raise Refused("`load_args(reader)` is expected", function.lineno)
        if function.decorator_list or function.args.defaults or function.returns:
            raise Refused("`load_args(reader)` is expected", function.lineno)
        for statement in function.body:
            if not isinstance(statement, ast.Pass):
                self._statement(statement)
        if len(self._inputs) != len(self._names):
            made = counted(len(self._inputs), "input is", "inputs are")
            count = f"{made} made, and `forward` takes {len(self._names)}"
            raise Refused(count, function.lineno)
        return tuple(self._made), tuple(self._inputs)

    def _statement(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call):
                self._storage(name, call)
            case ast.Expr(value=ast.Call() as call):
                self._input(call)
            case _:
                raise Refused("a call of `reader` is expected", statement.lineno)

    def _storage(self, name: str, call: ast.Call) -> None:
        kind, arguments, options = _reader_call(call)
        if kind != "storage" or len(arguments) != 2 or not is_constant(arguments[0], None):
            raise Refused("`reader.storage(None, SIZE)` is expected", call.lineno)
        where = options.pop("device", None)
        options.pop("dtype_hint", None)
        no_more(options, call)
        place = torch.device("cpu") if where is None else device_of(where)
        self._storages[name] = len(self._made)
        self._made.append(Storage(self._number(arguments[1]), place))

    def _input(self, call: ast.Call) -> None:
        kind, arguments, options = _reader_call(call)
        if len(self._inputs) >= len(self._names):
            raise Refused("there are more inputs than `forward` takes", call.lineno)
        name = self._names[len(self._inputs)]
        if kind == "symint" and len(arguments) == 1:
            self._inputs.append(self._size(name, arguments[0], options, call))
        elif kind == "tensor" and len(arguments) == 3:
            self._inputs.append(self._tensor(name, arguments, options, call))
        else:
            raise Refused("`reader.tensor` or `reader.symint` is expected", call.lineno)

    def _size(
        self, name: str, given: ast.expr, options: dict[str, ast.expr], call: ast.Call
    ) -> SizeInput:
        hint = whole(given)
        text = options.pop("expr", None)
        no_more(options, call)
        if text is None:
            return SizeInput(name, self._number(given), hint)
        if not isinstance(text, ast.Constant) or not isinstance(text.value, str):
            raise Refused("an expression is text", call.lineno)
        try:
            value = ast.parse(text.value[:1000], mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise Refused("a size is no Python", call.lineno) from error
        for node in ast.walk(value):
            if isinstance(node, ast.expr):
                node.lineno = call.lineno
        return SizeInput(name, self._number(value), hint)

    def _tensor(
        self, name: str, arguments: list[ast.expr], options: dict[str, ast.expr], call: ast.Call
    ) -> TensorInput:
        storage, sizes, strides = arguments
        if not isinstance(storage, ast.Name) or storage.id not in self._storages:
            raise Refused("no such storage", call.lineno)
        dtype, offset = options.pop("dtype", None), options.pop("storage_offset", None)
        if not is_constant(options.pop("is_leaf", None), True):
            raise Refused("`is_leaf=True` is expected", call.lineno)
        no_more(options, call)
        spec = TensorInput(
            name,
            self._storages[storage.id],
            self._shape(sizes),
            self._shape(strides),
            torch.float32 if dtype is None else dtype_of(dtype),
            expression(ast.Constant(0), {}) if offset is None else self._number(offset),
        )
        if len(spec.sizes) != len(spec.strides):
            raise Refused("it has not as many strides as sizes", call.lineno)
        return spec

    def _shape(self, node: ast.expr) -> Shape:
        if not isinstance(node, ast.Tuple):
            raise Refused("a tuple of sizes is expected", node.lineno)
        return tuple(map(self._number, node.elts))

    def _number(self, node: ast.expr) -> Expression:
        return expression(node, self._symbols)


def _reader_call(call: ast.Call) -> tuple[str, list[ast.expr], dict[str, ast.expr]]:
    match call.func:
        case ast.Attribute(value=ast.Name(id="reader"), attr=kind):
            return kind, call.args, options_of(call)
    raise Refused("a call of `reader` is expected", call.lineno)
