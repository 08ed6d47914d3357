"""What the names in one source file refer to, read from its text: imports, aliases, literal names.

The analysis ignores scopes and order: a name that is bound twice has both meanings. That suits
house rules, which would rather report a line too many than miss one.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

_IMPORTERS = frozenset(
    "importlib.import_module importlib.__import__ builtins.__import__ __import__ "
    "pkgutil.resolve_name".split()
)
BY_NAME = frozenset({"getattr", "setattr", "hasattr", "delattr"})


class Imported(NamedTuple):
    """A module, or a name in a module, that a file imports."""

    line: int
    name: str


def walk(tree: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Every node with the qualified name of the function or class around it, `LiveLine._write`."""
    pending = [("", tree)]
    while pending:
        scope, node = pending.pop()
        yield scope, node
        inner = scope
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{scope}.{node.name}" if scope else node.name
        pending += [(inner, child) for child in ast.iter_child_nodes(node)]


class DottedNames:
    """Resolve the expressions of one file to dotted names, `sys.stdout` or `torch._dynamo`."""

    def __init__(self, path: str, tree: ast.Module) -> None:
        self._package = path.removesuffix(".py").split("/")[:-1]
        self._meanings: dict[str, set[str]] = defaultdict(set)
        self._assigned: dict[str, list[ast.expr]] = defaultdict(list)
        self._resolved: dict[str, frozenset[str]] = {}
        self.imported: list[Imported] = []
        """Import statements and calls of `import_module` and the like, at any depth."""
        nodes = list(ast.walk(tree))
        for node in nodes:
            self._bind(node)
        for node in nodes:
            if isinstance(node, ast.Call) and (name := self._imported_by_call(node)):
                self.imported.append(Imported(node.lineno, name))

    def of(self, node: ast.AST) -> frozenset[str]:
        """All that an expression may refer to; empty where that is computed."""
        if isinstance(node, ast.Name):
            return self._of_name(node.id)
        if isinstance(node, ast.Attribute):
            return frozenset(f"{base}.{node.attr}" for base in self.of(node.value))
        if isinstance(node, ast.Call):
            return self._of_call(node)
        if isinstance(node, ast.Subscript) and "sys.modules" in self.of(node.value):
            return frozenset(filter(None, [self.text(node.slice)]))
        return frozenset()

    def text(self, node: ast.AST | None) -> str | None:
        """A literal string, also by a constant of the file; of an f-string its literal start."""
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, str) else None
        if isinstance(node, ast.JoinedStr) and node.values:
            return self.text(node.values[0])
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return self.text(node.left)
        if isinstance(node, ast.Name):
            values = [value for value in self._assigned[node.id] if isinstance(value, ast.Constant)]
            return next((text for value in values if (text := self.text(value))), None)
        return None

    def number(self, node: ast.AST) -> int | None:
        """A literal integer, also by a constant of the file."""
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, int) else None
        if isinstance(node, ast.Name):
            values = [value for value in self._assigned[node.id] if isinstance(value, ast.Constant)]
            return next((number for value in values if (number := self.number(value))), None)
        return None

    def _bind(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                self.imported.append(Imported(node.lineno, alias.name))
                name = alias.asname or alias.name.partition(".")[0]
                self._meanings[name].add(alias.name if alias.asname else name)
        elif isinstance(node, ast.ImportFrom):
            module = self._module(node)
            for alias in node.names:
                full = module if alias.name == "*" else f"{module}.{alias.name}"
                self.imported.append(Imported(node.lineno, full))
                self._meanings[alias.asname or alias.name].add(full)
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    self._assigned[target.id].append(node.value)

    def _module(self, node: ast.ImportFrom) -> str:
        above = self._package[: len(self._package) - node.level + 1] if node.level else []
        return ".".join([*above, *filter(None, [node.module])])

    def _of_name(self, name: str) -> frozenset[str]:
        if name not in self._resolved:
            self._resolved[name] = frozenset({name})  # where it is assigned to itself
            meanings = set(self._meanings[name])
            for value in self._assigned[name]:
                meanings |= self.of(value)
            self._resolved[name] = frozenset(meanings or {name})
        return self._resolved[name]

    def _of_call(self, node: ast.Call) -> frozenset[str]:
        called = self.of(node.func)
        if called & BY_NAME and len(node.args) > 1 and (name := self.text(node.args[1])):
            return frozenset(f"{base}.{name}" for base in self.of(node.args[0]))
        if "sys.modules.get" in called and node.args:
            return frozenset(filter(None, [self.text(node.args[0])]))
        return frozenset(filter(None, [self._imported_by_call(node)]))

    def _imported_by_call(self, node: ast.Call) -> str | None:
        return self.text(node.args[0]) if node.args and self.of(node.func) & _IMPORTERS else None
