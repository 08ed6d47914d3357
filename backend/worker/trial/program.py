"""The graph of a captured graph's text, which is never run.

The text is hostile until each of its statements is recognised as one of the few forms that our
writer produces; it is translated statement by statement into nodes of an FX graph. Anything else is
refused with its line. The text around the class and its inputs must be exactly the writer's.
"""

from __future__ import annotations

import ast
import keyword
import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from backend.counted import counted
from backend.inductor.torch.captured import PLAIN
from backend.wire.captured import (
    FINALE,
    FUNCTIONS,
    MODES,
    MOST_BYTES,
    PRELUDE,
    Head,
    HeadInvalid,
    head_of,
)
from backend.worker.trial.text import (
    Constant,
    Expression,
    TextRefused,
    constant_of,
    constant_tensor,
    dotted,
    enumerated,
    expression,
    is_constant,
    keywords_of,
    no_more,
    op_of,
    parse_device,
    parse_dtype,
    scalar,
    whole_number,
)

Shape = tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Storage:
    """The memory of an input, in bytes; several inputs may be views of one."""

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
    """A size passed as a number: `value` of the symbols."""

    name: str
    value: Expression


Input = TensorInput | SizeInput


class Inputs:
    """A reader of the calls of `reader`."""

    def __init__(self, head: Head, names: tuple[str, ...]) -> None:
        self._symbols = head.symbols
        self._names = names
        self._storages: dict[str, int] = {}
        self._memory: list[Storage] = []
        self._inputs: list[Input] = []

    def read(self, function: ast.FunctionDef) -> tuple[tuple[Storage, ...], tuple[Input, ...]]:
        if function.name != "load_args" or [a.arg for a in function.args.args] != ["reader"]:
            raise TextRefused("`load_args(reader)` is expected", function.lineno)
        if function.decorator_list or function.args.defaults or function.returns:
            raise TextRefused("`load_args(reader)` is expected", function.lineno)
        for statement in function.body:
            if not isinstance(statement, ast.Pass):
                self._statement(statement)
        if len(self._inputs) != len(self._names):
            inputs_text = counted(len(self._inputs), "input is", "inputs are")
            count = f"{inputs_text} made, and `forward` takes {len(self._names)}"
            raise TextRefused(count, function.lineno)
        return tuple(self._memory), tuple(self._inputs)

    def _statement(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call):
                self._storage(name, call)
            case ast.Expr(value=ast.Call() as call):
                self._input(call)
            case _:
                raise TextRefused("a call of `reader` is expected", statement.lineno)

    def _storage(self, name: str, call: ast.Call) -> None:
        kind, arguments, options = _reader_call(call)
        if kind != "storage" or len(arguments) != 2 or not is_constant(arguments[0], None):
            raise TextRefused("`reader.storage(None, SIZE)` is expected", call.lineno)
        where = options.pop("device", None)
        options.pop("dtype_hint", None)
        no_more(options, call)
        place = torch.device("cpu") if where is None else parse_device(where)
        self._storages[name] = len(self._memory)
        self._memory.append(Storage(self._number(arguments[1]), place))

    def _input(self, call: ast.Call) -> None:
        kind, arguments, options = _reader_call(call)
        if len(self._inputs) >= len(self._names):
            raise TextRefused("there are more inputs than `forward` takes", call.lineno)
        name = self._names[len(self._inputs)]
        if kind == "symint" and len(arguments) == 1:
            self._inputs.append(self._size(name, arguments[0], options, call))
        elif kind == "tensor" and len(arguments) == 3:
            self._inputs.append(self._tensor(name, arguments, options, call))
        else:
            raise TextRefused("`reader.tensor` or `reader.symint` is expected", call.lineno)

    def _size(
        self, name: str, given: ast.expr, options: dict[str, ast.expr], call: ast.Call
    ) -> SizeInput:
        whole_number(given)  # its value at the capture, which may differ now
        text = options.pop("expr", None)
        no_more(options, call)
        if text is None:
            return SizeInput(name, self._number(given))
        if not isinstance(text, ast.Constant) or not isinstance(text.value, str):
            raise TextRefused("an expression is text", call.lineno)
        try:
            value = ast.parse(text.value[:1000], mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise TextRefused("a size is not Python", call.lineno) from error
        for node in ast.walk(value):
            if isinstance(node, ast.expr):
                node.lineno = call.lineno
        return SizeInput(name, self._number(value))

    def _tensor(
        self, name: str, arguments: list[ast.expr], options: dict[str, ast.expr], call: ast.Call
    ) -> TensorInput:
        storage, sizes, strides = arguments
        if not isinstance(storage, ast.Name) or storage.id not in self._storages:
            raise TextRefused("no such storage", call.lineno)
        dtype, offset = options.pop("dtype", None), options.pop("storage_offset", None)
        if not is_constant(options.pop("is_leaf", None), True):
            raise TextRefused("`is_leaf=True` is expected", call.lineno)
        no_more(options, call)
        spec = TensorInput(
            name,
            self._storages[storage.id],
            self._shape(sizes),
            self._shape(strides),
            torch.float32 if dtype is None else parse_dtype(dtype),
            expression(ast.Constant(0), {}) if offset is None else self._number(offset),
        )
        if len(spec.sizes) != len(spec.strides):
            raise TextRefused("it has not as many strides as sizes", call.lineno)
        return spec

    def _shape(self, node: ast.expr) -> Shape:
        if not isinstance(node, ast.Tuple):
            raise TextRefused("a tuple of sizes is expected", node.lineno)
        return tuple(map(self._number, node.elts))

    def _number(self, node: ast.expr) -> Expression:
        return expression(node, self._symbols)


def _reader_call(call: ast.Call) -> tuple[str, list[ast.expr], dict[str, ast.expr]]:
    match call.func:
        case ast.Attribute(value=ast.Name(id="reader"), attr=kind):
            return kind, call.args, keywords_of(call)
    raise TextRefused("a call of `reader` is expected", call.lineno)


MOST_STATEMENTS = 200_000
MOST_DEPTH = 12
"""The maximum nesting of arguments."""


def parameters(function: ast.FunctionDef) -> tuple[str, ...]:
    """Return the names of the arguments without `self`."""
    given = function.args
    odd = given.posonlyargs or given.kwonlyargs or given.vararg or given.kwarg or given.defaults
    if function.name != "forward" or odd or function.decorator_list or function.returns:
        raise TextRefused("`forward` takes plain arguments alone", function.lineno)
    if any(argument.annotation for argument in given.args) or not given.args:
        raise TextRefused("`forward` takes plain arguments alone", function.lineno)
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
    """Translates the statements of `forward` to nodes."""

    def __init__(self, names: Iterable[str], constants: Iterable[str]) -> None:
        self.graph = torch.fx.Graph()
        self.nodes: dict[str, torch.fx.Node] = {}
        self._constants = frozenset(constants)
        for name in names:
            self.nodes[name] = self.graph.placeholder(name)

    def translate(self, forward: ast.FunctionDef, *, one: bool = False) -> torch.fx.Node:
        """Return the output's node; with `one` a single value instead of a tuple. Raises
        TextRefused."""
        if len(forward.body) > MOST_STATEMENTS:
            raise TextRefused("it has too many statements")
        *body, last = forward.body
        for statement in body:
            self._statement(statement)
        if not isinstance(last, ast.Return) or last.value is None:
            raise TextRefused("a tuple is to be returned", last.lineno)
        if not one and not isinstance(last.value, (ast.Tuple, ast.List)):
            raise TextRefused("a tuple is to be returned", last.lineno)
        return self.graph.output(self._value(last.value))

    def _statement(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Assign(value=ast.Constant(value=None)):
                return  # deletes a name that is no longer needed
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self.nodes[name] = self._node(value, name)
                return
        raise TextRefused("an assignment to a name is expected", statement.lineno)

    def _node(self, value: ast.expr, name: str) -> torch.fx.Node:
        match value:
            case ast.Attribute(value=ast.Name(id="self"), attr=attribute):
                if attribute not in self._constants:
                    raise TextRefused(f"there is no constant {attribute}", value.lineno)
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
                node.meta["original_aten"] = op  # kernels are named after this op
                return node
            case ast.Call(func=called):
                op = op_of(dotted(called), value.lineno, "torch", "ops")
                words = keywords_of(value)
                options = {word: self._value(given) for word, given in words.items()}
                arguments = tuple(map(self._value, value.args))
                return self.graph.create_node("call_function", op, arguments, options, name)
            case ast.Subscript(value=ast.Name() as source, slice=index):
                place = whole_number(index)
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
        raise TextRefused("a call of an op of torch is expected", value.lineno)

    def _arithmetic(
        self, kind: ast.AST, operands: tuple[ast.expr, ...], whole: ast.expr, name: str
    ) -> torch.fx.Node:
        word = _OPERATORS.get(type(kind), "")
        arguments = tuple(map(self._value, operands))
        supported = word in PLAIN and any(isinstance(each, torch.fx.Node) for each in arguments)
        if not supported or (word == "pow" and arguments[1] not in range(9)):
            raise TextRefused("unsupported arithmetic", whole.lineno)
        return self.graph.create_node(
            "call_function", getattr(operator, word), arguments, name=name
        )

    def _value(self, node: ast.expr, depth: int = 0) -> Any:
        if depth > MOST_DEPTH:
            raise TextRefused("it is nested too deep", node.lineno)
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
                return parse_device(node)
        return scalar(node)


_WORD = re.compile(r"[A-Za-z0-9_]{0,60}")


def _word(node: ast.expr | None) -> str:
    match node:
        case ast.Constant(value=str(word)) if _WORD.fullmatch(word):
            return word
    raise TextRefused("a word is expected", getattr(node, "lineno", None))


def _option(node: ast.expr) -> Any:
    """Return an option of a kernel: a word, or a number."""
    match node:
        case ast.Constant(value=str()):
            return _word(node)
    return scalar(node)


@dataclass(frozen=True, slots=True)
class Function:
    """A function of numbers that flex attention calls: its constants, and `forward`."""

    constants: tuple[Constant, ...]
    forward: ast.FunctionDef

    def module(self) -> torch.fx.GraphModule:
        """Build a new module each time, since Inductor changes its input. Raises TextRefused."""
        names = [constant.name for constant in self.constants]
        translation = Translation(parameters(self.forward), names)
        translation.translate(self.forward, one=True)
        root = torch.nn.Module()
        for constant in self.constants:
            root.register_buffer(constant.name, constant_tensor(constant, {}))
        return torch.fx.GraphModule(root, translation.graph)


def function_of(definition: ast.ClassDef) -> Function:
    """Return the function of a class in the text. Raises TextRefused."""
    match definition:
        case ast.ClassDef(
            bases=[base],
            keywords=[],
            body=[ast.FunctionDef(name="__init__") as begin, ast.FunctionDef() as forward],
            decorator_list=[],
        ) if dotted(base) == ["torch", "nn", "Module"]:
            function = Function(tuple(map(constant_of, begin.body[1:])), forward)
        case _:
            raise TextRefused("a class with two functions is expected", definition.lineno)
    plain = not begin.decorator_list and [each.arg for each in begin.args.args] == ["self"]
    if not plain or ast.unparse(begin.body[0]) != "super().__init__()" or begin.args.defaults:
        raise TextRefused("the class begins in another way", begin.lineno)
    function.module()
    return function


@dataclass(frozen=True, slots=True)
class CapturedProgram:
    """A parsed text. `graph` builds a new FX graph each time, since Inductor changes its input."""

    head: Head
    storages: tuple[Storage, ...]
    inputs: tuple[Input, ...]
    constants: tuple[Constant, ...]
    functions: Mapping[str, Function]
    forward: ast.FunctionDef

    def graph(self) -> torch.fx.Graph:
        """Build the graph. Raises TextRefused."""
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
        """Build the graph with its constants, and new functions. Raises TextRefused."""
        functions = {name: function.module() for name, function in self.functions.items()}
        return torch.fx.GraphModule({**constants, **functions}, self.graph())


def program_of(text: str) -> CapturedProgram:
    """Parse a text. Raises TextRefused with a one-line message that names the line of the text."""
    if len(text) > MOST_BYTES:
        raise TextRefused(f"a captured graph has at most {MOST_BYTES >> 20} MiB")
    try:
        head = head_of(text)
    except HeadInvalid as error:
        raise TextRefused(str(error)) from error
    _check_frame(text, head)
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        raise TextRefused("it is not Python", line) from error
    sizes, imports, rest = len(head.symbols), 5, tree.body[len(head.symbols) + 5 :]
    if len(tree.body) != sizes + imports + 5:
        raise TextRefused("it has other statements than a class and its inputs")
    definition, load_args = rest[:2]
    if not isinstance(definition, ast.ClassDef) or not isinstance(load_args, ast.FunctionDef):
        raise TextRefused("a class and a function of its inputs are expected", rest[0].lineno)
    if len(definition.body) != 2 or definition.decorator_list:
        raise TextRefused("the class has other members than two functions", definition.lineno)
    begin, forward = definition.body
    if not isinstance(begin, ast.FunctionDef) or not isinstance(forward, ast.FunctionDef):
        raise TextRefused("the class has other members than two functions", definition.lineno)
    names = parameters(forward)
    storages, inputs = Inputs(head, names).read(load_args)
    constants, functions = _members(begin.body[1:])
    program = CapturedProgram(head, storages, inputs, constants, functions, forward)
    program.graph()
    return program


_SIZE = r"(?:[a-zA-Z_]\w* = \d{1,18}\n)"


def _check_frame(text: str, head: Head) -> None:
    """Check that everything except the class's body and the inputs is exactly the writer's text."""
    start = text.index("\n") + 1 if "\n" in text else len(text)
    sizes = "".join(f"{name} = {hint}\n" for name, hint in sorted(head.symbols.items()))
    if not all(re.fullmatch(_SIZE, line) for line in sizes.splitlines(keepends=True)):
        raise TextRefused("its symbols are not names with sizes", 1)
    if any(keyword.iskeyword(name) for name in head.symbols):
        raise TextRefused("its symbols are not names with sizes", 1)
    if not text.startswith(sizes + PRELUDE, start):
        raise TextRefused("it does not begin as a captured graph does", 2)
    if not text.endswith("\n" + FINALE + MODES[bool(head.symbols)]):
        raise TextRefused("it does not end as a captured graph does", text.count("\n"))


def _members(
    statements: Sequence[ast.stmt],
) -> tuple[tuple[Constant, ...], Mapping[str, Function]]:
    """Return constants, and functions: each a class, instantiated by the next statement."""
    constants: list[Constant] = []
    functions: dict[str, Function] = {}
    rest = iter(statements)
    for statement in rest:
        if not isinstance(statement, ast.ClassDef):
            constants.append(constant_of(statement))
            continue
        name, instance = statement.name, next(rest, statement)
        if ast.unparse(instance) != f"self.{name} = {name}()":
            raise TextRefused(f"`self.{name} = {name}()` is expected", instance.lineno)
        functions[name] = function_of(statement)
    return tuple(constants), functions
