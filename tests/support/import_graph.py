"""Who imports whom in the two packages: read from the text, nothing is run."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

from tests.support.places import ROOT

PACKAGES = ("backend", "rocm_tui")


class Arrow(NamedTuple):
    """One import statement's effect: `importer` needs `imported`; `inside` a function or not."""

    importer: str
    imported: str
    line: int
    inside: bool


def name_of(path: Path) -> str:
    """`backend.model.choice` of its file; a package is known by its folder."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> Mapping[str, Path]:
    """Each module of the two packages with its file."""
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return {name_of(path): path for path in paths}


def _targets(node: ast.AST, known: Iterable[str]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in known)
    elif isinstance(node, ast.ImportFrom) and node.module:
        for alias in node.names:
            full = f"{node.module}.{alias.name}"
            if full in known:
                yield full
            elif node.module in known:
                yield node.module


@cache
def arrows() -> tuple[Arrow, ...]:
    """Every import among our modules: at the top, in functions, and for types alone."""
    known = modules()
    drawn = []
    for name, path in known.items():
        tree = ast.parse(path.read_text())
        inner = {
            id(child)
            for function in ast.walk(tree)
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            for child in ast.walk(function)
        }
        for node in ast.walk(tree):
            for target in _targets(node, known):
                if target != name:
                    drawn.append(Arrow(name, target, getattr(node, "lineno", 0), id(node) in inner))
    return tuple(drawn)


def room_of(module: str) -> str:
    """The folder that a module lies in, two deep: `backend.pins`; the package itself for a leaf."""
    parts = module.split(".")
    deep = len(parts) > 2 or modules()[module].name == "__init__.py"
    return ".".join(parts[:2]) if deep else parts[0]


def circle(edges: Iterable[tuple[str, str]]) -> list[str]:
    """Some circle among them, as the names on it; empty where there is none."""
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for importer, imported in edges:
        sorter.add(importer, imported)
    try:
        sorter.prepare()
    except CycleError as error:
        names: list[str] = error.args[1]
        return names
    return []
