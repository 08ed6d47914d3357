"""Statements of a captured graph, or of a function in one, become nodes of an FX graph."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from backend.inductor.torch.captured import PLAIN
from backend.wire.flex import FUNCTIONS
from backend.worker.trial.constants import Constant, constant_of, constant_tensor
from backend.worker.trial.expressions import Refused
from backend.worker.trial.words import (
    device_of,
    dotted,
    enumerated,
    op_of,
    options_of,
    scalar,
    whole,
)

MOST_STATEMENTS = 200_000
MOST_DEPTH = 12
"""How deep lists of arguments may be nested."""


def parameters(function: ast.FunctionDef) -> tuple[str, ...]:
    """Names of the arguments but `self`."""
    given = function.args
    odd = given.posonlyargs or given.kwonlyargs or given.vararg or given.kwarg or given.defaults
    if function.name != "forward" or odd or function.decorator_list or function.returns:
        raise Refused("`forward` takes plain arguments alone", function.lineno)
    if any(argument.annotation for argument in given.args) or not given.args:
        raise Refused("`forward` takes plain arguments alone", function.lineno)
    return tuple(argument.arg for argument in given.args[1:])


_OPERATORS: Mapping[type, str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "truediv",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.USub: "neg",
    ast.UAdd: "pos",
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.BitAnd: "and_",
    ast.BitOr: "or_",
}


class Translation:
    """Statements of `forward` as nodes."""

    def __init__(self, names: Iterable[str], constants: Iterable[str]) -> None:
        self.graph = torch.fx.Graph()
        self.nodes: dict[str, torch.fx.Node] = {}
        self._constants = frozenset(constants)
        for name in names:
            self.nodes[name] = self.graph.placeholder(name)

    def translate(self, forward: ast.FunctionDef, *, one: bool = False) -> torch.fx.Node:
        """The output's node; that of `one` value may be no tuple. Raises Refused."""
        if len(forward.body) > MOST_STATEMENTS:
            raise Refused("it has too many statements")
        *body, last = forward.body
        for statement in body:
            self._statement(statement)
        if not isinstance(last, ast.Return) or last.value is None:
            raise Refused("a tuple is to be returned", last.lineno)
        if not one and not isinstance(last.value, (ast.Tuple, ast.List)):
            raise Refused("a tuple is to be returned", last.lineno)
        return self.graph.output(self._value(last.value))

    def _statement(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Assign(value=ast.Constant(value=None)):
                return  # a name that is needed no more
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self.nodes[name] = self._node(value, name)
                return
        raise Refused("an assignment to a name is expected", statement.lineno)

    def _node(self, value: ast.expr, name: str) -> torch.fx.Node:
        match value:
            case ast.Attribute(value=ast.Name(id="self"), attr=attribute):
                if attribute not in self._constants:
                    raise Refused(f"there is no constant {attribute}", value.lineno)
                return self.graph.create_node("get_attr", attribute, name=name)
            case ast.Call(
                func=ast.Attribute(
                    value=ast.Attribute(
                        value=ast.Attribute(value=ast.Name(id="torch"), attr="ops"),
                        attr="higher_order",
                    ),
                    attr=attribute,
                ),
                args=given,
                keywords=[],
            ) if attribute in FUNCTIONS:
                arguments = tuple(map(self._value, given))
                op = getattr(torch.ops.higher_order, attribute)
                node = self.graph.create_node("call_function", op, arguments, name=name)
                node.meta["original_aten"] = op  # kernels are named after it
                return node
            case ast.Call(func=called):
                op = op_of(dotted(called), value.lineno, "torch", "ops")
                words = options_of(value)
                options = {word: self._value(given) for word, given in words.items()}
                arguments = tuple(map(self._value, value.args))
                return self.graph.create_node("call_function", op, arguments, options, name)
            case ast.Subscript(value=ast.Name() as source, slice=index):
                place = whole(index)
                arguments = (self._value(source), place)
                return self.graph.create_node(
                    "call_function", operator.getitem, arguments, name=name
                )
            case ast.BinOp(left=left, op=kind, right=right):
                return self._arithmetic(kind, (left, right), value, name)
            case ast.Compare(left=left, ops=[kind], comparators=[right]):
                return self._arithmetic(kind, (left, right), value, name)
            case ast.UnaryOp(op=kind, operand=operand):
                return self._arithmetic(kind, (operand,), value, name)
        raise Refused("a call of an op of torch is expected", value.lineno)

    def _arithmetic(
        self, kind: ast.AST, operands: tuple[ast.expr, ...], whole: ast.expr, name: str
    ) -> torch.fx.Node:
        word = _OPERATORS.get(type(kind), "")
        arguments = tuple(map(self._value, operands))
        known = word in PLAIN and any(isinstance(each, torch.fx.Node) for each in arguments)
        if not known or (word == "pow" and arguments[1] not in range(9)):
            raise Refused("such arithmetic is not known", whole.lineno)
        return self.graph.create_node(
            "call_function", getattr(operator, word), arguments, name=name
        )

    def _value(self, node: ast.expr, depth: int = 0) -> Any:
        if depth > MOST_DEPTH:
            raise Refused("it is nested too deep", node.lineno)
        match node:
            case ast.Name(id=name) if name in self.nodes:
                return self.nodes[name]
            case ast.List(elts=parts):
                return [self._value(part, depth + 1) for part in parts]
            case ast.Tuple(elts=parts):
                return tuple(self._value(part, depth + 1) for part in parts)
            case ast.Dict(keys=keys, values=values):
                return dict(zip(map(_word, keys), map(_option, values), strict=True))
            case ast.Attribute(value=ast.Name(id="torch")):
                return enumerated(node)
            case ast.Call():
                return device_of(node)
        return scalar(node)


_WORD = re.compile(r"[A-Za-z0-9_]{0,60}")


def _word(node: ast.expr | None) -> str:
    match node:
        case ast.Constant(value=str(word)) if _WORD.fullmatch(word):
            return word
    raise Refused("a word is expected", getattr(node, "lineno", None))


def _option(node: ast.expr) -> Any:
    """Of a kernel: a word, or a number."""
    match node:
        case ast.Constant(value=str()):
            return _word(node)
    return scalar(node)


@dataclass(frozen=True, slots=True)
class Function:
    """A function of numbers, that flex attention calls: its constants, and `forward`."""

    constants: tuple[Constant, ...]
    forward: ast.FunctionDef

    def module(self) -> torch.fx.GraphModule:
        """Anew each time: Inductor changes what it gets. Raises Refused."""
        names = [constant.name for constant in self.constants]
        translation = Translation(parameters(self.forward), names)
        translation.translate(self.forward, one=True)
        root = torch.nn.Module()
        for constant in self.constants:
            root.register_buffer(constant.name, constant_tensor(constant, {}))
        return torch.fx.GraphModule(root, translation.graph)


def function_of(made: ast.ClassDef) -> Function:
    """The function that a class of the text is. Raises Refused."""
    match made:
        case ast.ClassDef(
            bases=[base],
            keywords=[],
            body=[ast.FunctionDef(name="__init__") as begin, ast.FunctionDef() as forward],
            decorator_list=[],
        ) if dotted(base) == ["torch", "nn", "Module"]:
            function = Function(tuple(map(constant_of, begin.body[1:])), forward)
        case _:
            raise Refused("a class with two functions is expected", made.lineno)
    plain = not begin.decorator_list and [each.arg for each in begin.args.args] == ["self"]
    if not plain or ast.unparse(begin.body[0]) != "super().__init__()" or begin.args.defaults:
        raise Refused("the class begins in another way", begin.lineno)
    function.module()
    return function
