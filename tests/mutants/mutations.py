"""Every small fault that can be planted in a module: found in its syntax tree, made in its text."""

from __future__ import annotations

import ast
from dataclasses import dataclass

_OPPOSITE: dict[type[ast.operator], str] = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "//", ast.FloorDiv: "*", ast.Div: "*", ast.Mod: "//",
}  # fmt: skip
_DEFAULTS = {"str": '""', "bool": "True", "int": "0", "float": "0.0", "bytes": 'b""'} | {
    "tuple": "()", "list": "[]", "dict": "{}", "set": "set()",
}  # fmt: skip
"""What a function returns instead of its result, by the name of its annotation; else None."""
_UNORDERED = {"min", "max", "suppress", "contextlib.suppress"}
"""Functions whose result does not depend on the order of their arguments."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """Replaces the bytes from `start` to `end` of a module; `line` is where they begin."""

    kind: str
    line: int
    start: int
    end: int
    original: str
    mutant: str

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.mutant.encode() + source[self.end :]

    def is_fault(self, source: bytes) -> bool:
        """Whether the mutant is valid Python, and not the same program."""
        try:
            return ast.dump(ast.parse(self.apply(source))) != ast.dump(ast.parse(source))
        except SyntaxError:
            return False


def mutations_by_line(source: bytes) -> dict[int, list[Mutation]]:
    """Return the mutations of each line that has any; some may turn out to be no fault."""
    finder = _Finder(source)
    finder.visit(ast.parse(source))
    by_line: dict[int, list[Mutation]] = {}
    for mutation in finder.found:
        by_line.setdefault(mutation.line, []).append(mutation)
    return by_line


class _Finder(ast.NodeVisitor):
    def __init__(self, source: bytes) -> None:
        self._source = source
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._returns: list[str | None] = []  # the default of each function around a node
        self.found: list[Mutation] = []

    def _text(self, node: ast.AST) -> str:
        start, end = self._span(node)
        return self._source[start:end].decode()

    def _span(self, node: ast.AST) -> tuple[int, int]:
        assert isinstance(node, ast.expr | ast.stmt)
        assert node.end_lineno is not None and node.end_col_offset is not None
        return (
            self._starts[node.lineno - 1] + node.col_offset,
            self._starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def _replace(self, kind: str, node: ast.expr | ast.stmt, mutant: str) -> None:
        start, end = self._span(node)
        self.found.append(Mutation(kind, node.lineno, start, end, self._text(node), mutant))

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Before Python 3.12 the positions within an f-string are wrong."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for default in [*node.args.defaults, *filter(None, node.args.kw_defaults)]:
            self.visit(default)
        annotation = node.returns
        if isinstance(annotation, ast.Subscript):
            annotation = annotation.value
        name = annotation.id if isinstance(annotation, ast.Name) else ""
        self._returns.append(_DEFAULTS.get(name, "None"))
        for statement in node.body:
            self.visit(statement)
        self._returns.pop()

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for statement in node.body:
            self.visit(statement)

    def visit_If(self, node: ast.If | ast.IfExp) -> None:
        if "TYPE_CHECKING" not in ast.unparse(node.test):
            self._replace("cond-true", node.test, "True")
            self._replace("cond-false", node.test, "False")
            self.generic_visit(node)

    visit_IfExp = visit_If

    def visit_While(self, node: ast.While) -> None:
        self._replace("cond-false", node.test, "False")
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._replace("drop-raise", node, "pass")
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and self._returns[-1] is not None:
            self._replace("return", node.value, self._returns[-1])
            self.visit(node.value)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self._replace("drop-call", node, "pass")
        self.generic_visit(node)

    def visit_With(self, node: ast.With) -> None:
        for item in node.items:
            if "lock" in ast.unparse(item.context_expr).lower():
                nothing = "__import__('contextlib').nullcontext()"
                self._replace("no-lock", item.context_expr, nothing)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._replace("bool", node, str(not node.value))
        elif isinstance(node.value, int):
            self._replace("int+1", node, str(node.value + 1))

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        for dropped in (0, len(node.values) - 1):
            kept = [self._text(value) for value in node.values if value != node.values[dropped]]
            word = " and " if isinstance(node.op, ast.And) else " or "
            self._replace("drop-operand", node, f"({word.join(f'({text})' for text in kept)})")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        sign = _OPPOSITE.get(type(node.op))
        texts = (ast.JoinedStr, ast.Tuple, ast.List)
        joins_text = any(
            isinstance(side, texts) or (isinstance(side, ast.Constant) and not _number(side))
            for side in (node.left, node.right)
        )
        if sign is not None and not joins_text:
            mutant = f"(({self._text(node.left)}) {sign} ({self._text(node.right)}))"
            self._replace("arithmetic", node, mutant)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        first, second = [*node.args[:2], None, None][:2]
        ordered = ast.unparse(node.func) not in _UNORDERED
        starred = any(isinstance(arg, ast.Starred) for arg in node.args[:2])
        if first and second and ordered and not starred:
            (start, between), (then, end) = self._span(first), self._span(second)
            comma = self._source[between:then].decode()
            text, mutant = (
                f"{a}{comma}{b}"
                for a, b in (
                    (self._text(first), self._text(second)),
                    (self._text(second), self._text(first)),
                )
            )
            self.found.append(Mutation("swap", first.lineno, start, end, text, mutant))
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._replace("comp-if", test, "True")
        self.generic_visit(node)


def _number(node: ast.Constant) -> bool:
    return isinstance(node.value, int | float)
