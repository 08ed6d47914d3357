"""A recorded call of flex attention becomes a graph. Nothing of its text is ever run.

Each statement of its functions must be one that PyTorch's own printer makes: a call of an op of
torch. It becomes a node of an FX graph, by what reads captured graphs too; anything else is refused
with its line.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from backend.model.problem import TensorSpec
from backend.wire.flex import FUNCTIONS, FlexCall, NotACall, call_of
from backend.worker.trial.program import Function
from backend.worker.trial.text import TextRefused, constant_of

MOST_DEPTH = 4
"""How deep arguments may be nested."""


@dataclass(frozen=True, slots=True)
class TensorRef:
    """The tensor of this number stands here."""

    number: int


@dataclass(frozen=True, slots=True)
class FunctionRef:
    """The function of this name stands here."""

    function: str


@dataclass(frozen=True, slots=True)
class AttentionCall:
    """`arguments` are literals, a `TensorRef` for a tensor and a `FunctionRef` for a function."""

    op: str
    arguments: tuple[Any, ...]
    tensors: tuple[TensorSpec, ...]
    functions: Mapping[str, Function]

    @property
    def backward(self) -> bool:
        return self.op == "flex_attention_backward"

    @property
    def block_mask(self) -> tuple[Any, ...]:
        """The lengths of queries and keys; how many blocks of keys there are for each of queries,
        and which; the same of those that are whole; both by keys; the size of a block; a name."""
        mask: tuple[Any, ...] = self.arguments[9 if self.backward else 4]
        return mask

    @property
    def lengths(self) -> tuple[int, int, int, int]:
        """Of queries, of keys, and of a block of them."""
        (*_, queries, _), (*_, keys, _) = (
            self.tensors[place.number].sizes for place in self.arguments[:2]
        )
        tall, wide = self.block_mask[-3:-1]
        return queries, keys, tall, wide

    @property
    def scale(self) -> float:
        return float(self.arguments[10 if self.backward else 5])

    @property
    def options(self) -> Mapping[str, Any]:
        """Of the kernel."""
        given: Mapping[str, Any] = self.arguments[11 if self.backward else 6]
        return given

    def module(self) -> torch.fx.GraphModule:
        """A graph of the call alone, whose inputs are the memory of the tensors: `t0`, `t1`, ...
        Raises TextRefused."""
        graph, root = torch.fx.Graph(), torch.nn.Module()
        for name, function in self.functions.items():
            root.add_module(name, function.module())
        bases = [graph.placeholder(f"t{at}") for at in range(len(self.tensors))]
        views = [
            graph.call_function(
                torch.ops.aten.as_strided.default,
                (base, list(spec.sizes), list(spec.strides), spec.offset),
            )
            if spec.offset
            else base
            for base, spec in zip(bases, self.tensors, strict=True)
        ]

        def filled(value: Any) -> Any:
            if isinstance(value, TensorRef):
                return views[value.number]
            if isinstance(value, FunctionRef):
                return graph.get_attr(value.function)
            if isinstance(value, tuple):
                return tuple(map(filled, value))
            if isinstance(value, dict):
                return {key: filled(each) for key, each in value.items()}
            return value

        op = getattr(torch.ops.higher_order, self.op)
        called = graph.call_function(op, tuple(map(filled, self.arguments)))
        count = 3 if self.backward else 1
        graph.output(
            tuple(graph.call_function(operator.getitem, (called, at)) for at in range(count))
        )
        return torch.fx.GraphModule(root, graph)


def read_call(text: str) -> AttentionCall:
    """The call that was recorded. Raises TextRefused, for one that could not be recorded too."""
    try:
        recorded = call_of(text)
    except NotACall as error:
        raise TextRefused(f"what was recorded of it is no call: {error}") from error
    if recorded.reason:
        raise TextRefused(recorded.reason)
    return _call(recorded)


def _call(recorded: FlexCall) -> AttentionCall:
    parsed = _parsed(recorded.call, "eval").body
    match parsed:
        case ast.Call(func=ast.Name(id=op), args=given, keywords=[]) if op in FUNCTIONS:
            pass
        case _:
            raise TextRefused("a call of flex attention is expected")
    functions = {name: _function(name, recorded.functions.get(name, "")) for name in FUNCTIONS[op]}
    reader = _Arguments(len(recorded.tensors), functions)
    arguments = tuple(reader.read(each) for each in given)
    call = AttentionCall(op, arguments, recorded.tensors, functions)
    call.module()
    return call


def _function(name: str, text: str) -> Function:
    try:
        *before, forward = _parsed(text, "exec").body or [None]
        if not isinstance(forward, ast.FunctionDef):
            raise TextRefused("`forward` is expected")
        return Function(tuple(map(constant_of, before)), forward)
    except TextRefused as error:
        raise TextRefused(f"{name}: {error}") from error


def _parsed(text: str, mode: str) -> Any:
    try:
        return ast.parse(text, mode=mode)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise TextRefused("it is no Python", getattr(error, "lineno", None)) from error


class _Arguments:
    def __init__(self, tensors: int, functions: Mapping[str, Function]) -> None:
        self._names: dict[str, Any] = {f"t{at}": TensorRef(at) for at in range(tensors)}
        self._names |= {name: FunctionRef(name) for name in functions}

    def read(self, node: ast.expr, depth: int = 0) -> Any:
        """Raises TextRefused."""
        if depth > MOST_DEPTH:
            raise TextRefused("its arguments are nested too deep")
        match node:
            case ast.Name(id=name) if name in self._names:
                return self._names[name]
            case ast.Tuple(elts=parts):
                return tuple(self.read(part, depth + 1) for part in parts)
            case ast.Dict(keys=keys, values=values):
                words = [self.read(key, depth + 1) for key in keys if key is not None]
                if len(words) != len(values) or not all(isinstance(w, str) for w in words):
                    raise TextRefused("its options have odd names")
                given = [self.read(value, depth + 1) for value in values]
                return dict(zip(words, given, strict=True))
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
                return -number
            case ast.Constant(value=None | bool() | int() | float() | str() as value):
                return value
        raise TextRefused("one of its arguments is no number, tensor or function")
