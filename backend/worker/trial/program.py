"""A captured graph's text becomes a graph. Nothing of it is ever run.

The text is hostile until each statement of it was recognised as one of the few that our writer
makes; it is translated statement by statement into nodes of an FX graph. What is not recognised is
refused with its line. What surrounds the class and its inputs must be the writer's text to the
letter.
"""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from backend.wire.captured import FINALE, MODES, MOST_BYTES, PRELUDE, Head, NotAHead, head_of
from backend.worker.trial.constants import Constant, constant_of
from backend.worker.trial.expressions import Refused
from backend.worker.trial.inputs import Input, Inputs, Storage
from backend.worker.trial.translation import Function, Translation, function_of, parameters
from backend.worker.trial.words import op_of


@dataclass(frozen=True, slots=True)
class Program:
    """What a text says. `graph` makes a new FX graph each time: Inductor changes what it gets."""

    head: Head
    storages: tuple[Storage, ...]
    inputs: tuple[Input, ...]
    constants: tuple[Constant, ...]
    functions: Mapping[str, Function]
    forward: ast.FunctionDef

    def graph(self) -> torch.fx.Graph:
        """Raises Refused."""
        names = [given.name for given in self.inputs]
        constants = [constant.name for constant in self.constants]
        translation = Translation(names, [*constants, *self.functions])
        output = translation.translate(self.forward)
        if self.head.visible is not None:
            output.meta["user_visible_output_idxs"] = list(self.head.visible)
        for name, origin in self.head.origins.items():
            if name in translation.nodes:
                translation.nodes[name].meta["original_aten"] = op_of(origin.split("."), 1)
        return translation.graph

    def module(self, constants: Mapping[str, torch.Tensor]) -> torch.fx.GraphModule:
        """The graph with its constants, and its functions made anew. Raises Refused."""
        functions = {name: function.module() for name, function in self.functions.items()}
        return torch.fx.GraphModule({**constants, **functions}, self.graph())


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
    names = parameters(forward)
    storages, inputs = Inputs(head, names).read(load_args)
    constants, functions = _members(begin.body[1:])
    program = Program(head, storages, inputs, constants, functions, forward)
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


def _members(
    statements: Sequence[ast.stmt],
) -> tuple[tuple[Constant, ...], Mapping[str, Function]]:
    """Constants, and functions: each a class, of which the next statement makes one."""
    constants: list[Constant] = []
    functions: dict[str, Function] = {}
    rest = iter(statements)
    for statement in rest:
        if not isinstance(statement, ast.ClassDef):
            constants.append(constant_of(statement))
            continue
        name, made = statement.name, next(rest, statement)
        if ast.unparse(made) != f"self.{name} = {name}()":
            raise Refused(f"`self.{name} = {name}()` is expected", made.lineno)
        functions[name] = function_of(statement)
    return tuple(constants), functions
