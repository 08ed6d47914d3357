"""Which test files should notice a fault in a module, the most likely first."""

from __future__ import annotations

import ast
import re
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path

FAR = 5
"""The distance of a test file that reaches a module by no import: through a child process, say."""


class TestFiles:
    """The test files of a tree, and how they import its modules."""

    __test__ = False  # pytest would take the name for a class of tests

    def __init__(self, root: Path, packages: tuple[str, ...]) -> None:
        folders = (*packages, "tests")
        files = [path for name in folders for path in sorted((root / name).rglob("*.py"))]
        names = {_module(path.relative_to(root)): str(path.relative_to(root)) for path in files}
        self._tests = [
            path
            for path in names.values()
            if Path(path).name.startswith("test_") and not path.startswith("tests/gpu/")
        ]  # tests that need a GPU are skipped on most machines, and notice nothing
        self._importers: dict[str, set[str]] = {path: set() for path in names.values()}
        for path in names.values():
            for imported in _imports(root / path, names):
                self._importers[imported].add(path)

    def ranked(self, module: str) -> list[str]:
        """Return the test files that mirror a module or import it, by closeness.

        A file mirrors a module when its path has the same words: `tests/unit/pins/test_state.py`
        and `backend/pins/state.py`.
        """
        distances = self._distances(module)
        words, stem = _words(module), _words(Path(module).stem)

        def closeness(test: str) -> float:
            common = len(words & _words(test)) + 2 * len(stem & _words(Path(test).stem))
            return common - 2 * distances.get(test, FAR)

        near = [test for test in self._tests if closeness(test) > -2 * FAR]
        return sorted(near, key=lambda test: (-closeness(test), test))

    def _distances(self, module: str) -> dict[str, int]:
        """How many imports lead from each file to the module."""
        found, queue = {module: 0}, deque([module])
        while queue:
            imported = queue.popleft()
            for importer in self._importers[imported] - found.keys():
                found[importer] = found[imported] + 1
                queue.append(importer)
        return found


def _module(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def _imports(path: Path, files: Mapping[str, str]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_bytes())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            imported = files.get(name) or files.get(name.rpartition(".")[0])
            if imported is not None:
                yield imported


def _words(path: str) -> set[str]:
    """The beginnings of its words, so that `watch` is close to `watcher`."""
    words = set(re.split(r"[/_.]", path)) - {"", "py", "test", "tests", "unit", "backend"}
    return {word[:5] for word in words}
