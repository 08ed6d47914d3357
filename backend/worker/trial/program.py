"""A captured graph's text becomes a graph. Nothing of it is ever run.

The text is hostile until each statement of it was recognised as one of the few that our writer
makes; it is translated statement by statement into nodes of an FX graph. What is not recognised is
refused with its line. What surrounds the class and its inputs must be the writer's text to the
letter.
"""

from __future__ import annotations

import ast
import keyword
import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from backend.inductor.torch.captured import PLAIN
from backend.wire.captured import FINALE, MODES, MOST_BYTES, PRELUDE, Head, NotAHead, head_of
from backend.worker.trial.expressions import Refused
from backend.worker.trial.inputs import Constant, Input, Inputs, Storage, constant_of
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


@dataclass(frozen=True, slots=True)
class Program:
    """What a text says. `graph` makes a new FX graph each time: Inductor changes what it gets."""

    head: Head
    storages: tuple[Storage, ...]
    inputs: tuple[Input, ...]
    constants: tuple[Constant, ...]
    forward: ast.FunctionDef

    def graph(self) -> torch.fx.Graph:
        """Raises Refused."""
        return _Translation(self).graph()


def program_of(text: str) -> Program:
    """Raises Refused with one line, that names the line of the text."""
    if len(text) > MOST_BYTES:
        raise Refused(f"a captured graph has at most {MOST_BYTES >> 20} MiB")
    try:
        head = head_of(text)
    except NotAHead as error:
        raise Refused(str(error)) from error
    _check_frame(text, head)
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        raise Refused("it is no Python", line) from error
    sizes, imports, rest = len(head.symbols), 5, tree.body[len(head.symbols) + 5 :]
    if len(tree.body) != sizes + imports + 5:
        raise Refused("it has other statements than a class and its inputs")
    made, load_args = rest[:2]
    if not isinstance(made, ast.ClassDef) or not isinstance(load_args, ast.FunctionDef):
        raise Refused("a class and a function of its inputs are expected", rest[0].lineno)
    if len(made.body) != 2 or made.decorator_list:
        raise Refused("the class has other members than two functions", made.lineno)
    begin, forward = made.body
    if not isinstance(begin, ast.FunctionDef) or not isinstance(forward, ast.FunctionDef):
        raise Refused("the class has other members than two functions", made.lineno)
    names = _parameters(forward)
    storages, inputs = Inputs(head, names).read(load_args)
    constants = tuple(constant_of(statement) for statement in begin.body[1:])
    program = Program(head, storages, inputs, constants, forward)
    program.graph()
    return program


_SIZE = r"(?:[a-zA-Z_]\w* = \d{1,18}\n)"


def _check_frame(text: str, head: Head) -> None:
    """All but the class's body and the inputs is as the writer writes it."""
    start = text.index("\n") + 1 if "\n" in text else len(text)
    sizes = "".join(f"{name} = {hint}\n" for name, hint in sorted(head.symbols.items()))
    if not all(re.fullmatch(_SIZE, line) for line in sizes.splitlines(keepends=True)):
        raise Refused("its symbols are no names with sizes", 1)
    if any(keyword.iskeyword(name) for name in head.symbols):
        raise Refused("its symbols are no names with sizes", 1)
    if not text.startswith(sizes + PRELUDE, start):
        raise Refused("it does not begin as a captured graph does", 2)
    if not text.endswith("\n" + FINALE + MODES[bool(head.symbols)]):
        raise Refused("it does not end as a captured graph does", text.count("\n"))


def _parameters(function: ast.FunctionDef) -> tuple[str, ...]:
    """Names of the arguments but `self`."""
    given = function.args
    odd = given.posonlyargs or given.kwonlyargs or given.vararg or given.kwarg or given.defaults
    if function.name != "forward" or odd or function.decorator_list or function.returns:
        raise Refused("`forward` takes plain arguments alone", function.lineno)
    if any(argument.annotation for argument in given.args) or not given.args:
        raise Refused("`forward` takes plain arguments alone", function.lineno)
    return tuple(argument.arg for argument in given.args[1:])


# The graph


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


class _Translation:
    """Statements of `forward` as nodes."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._graph = torch.fx.Graph()
        self._nodes: dict[str, torch.fx.Node] = {}
        self._constants = {constant.name for constant in program.constants}

    def graph(self) -> torch.fx.Graph:
        statements = self._program.forward.body
        if len(statements) > MOST_STATEMENTS:
            raise Refused("it has too many statements")
        for given in self._program.inputs:
            self._nodes[given.name] = self._graph.placeholder(given.name)
        *body, last = statements
        for statement in body:
            self._statement(statement)
        if not isinstance(last, ast.Return) or not isinstance(last.value, (ast.Tuple, ast.List)):
            raise Refused("a tuple is to be returned", last.lineno)
        output = self._graph.output(self._value(last.value))
        if self._program.head.visible is not None:
            output.meta["user_visible_output_idxs"] = list(self._program.head.visible)
        for name, origin in self._program.head.origins.items():
            if name in self._nodes:
                self._nodes[name].meta["original_aten"] = op_of(origin.split("."), 1)
        return self._graph

    def _statement(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Assign(value=ast.Constant(value=None)):
                return  # a name that is needed no more
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self._nodes[name] = self._node(value, name)
                return
        raise Refused("an assignment to a name is expected", statement.lineno)

    def _node(self, value: ast.expr, name: str) -> torch.fx.Node:
        match value:
            case ast.Attribute(value=ast.Name(id="self"), attr=attribute):
                if attribute not in self._constants:
                    raise Refused(f"there is no constant {attribute}", value.lineno)
                return self._graph.create_node("get_attr", attribute, name=name)
            case ast.Call(func=called):
                op = op_of(dotted(called), value.lineno, "torch", "ops")
                words = options_of(value)
                options = {word: self._value(given) for word, given in words.items()}
                arguments = tuple(map(self._value, value.args))
                return self._graph.create_node("call_function", op, arguments, options, name)
            case ast.Subscript(value=ast.Name() as source, slice=index):
                place = whole(index)
                arguments = (self._value(source), place)
                return self._graph.create_node(
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
        return self._graph.create_node(
            "call_function", getattr(operator, word), arguments, name=name
        )

    def _value(self, node: ast.expr, depth: int = 0) -> Any:
        if depth > MOST_DEPTH:
            raise Refused("it is nested too deep", node.lineno)
        match node:
            case ast.Name(id=name) if name in self._nodes:
                return self._nodes[name]
            case ast.List(elts=parts):
                return [self._value(part, depth + 1) for part in parts]
            case ast.Tuple(elts=parts):
                return tuple(self._value(part, depth + 1) for part in parts)
            case ast.Attribute(value=ast.Name(id="torch")):
                return enumerated(node)
            case ast.Call():
                return device_of(node)
        return scalar(node)
