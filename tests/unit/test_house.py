"""The rules that hold the house up."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.places import ROOT

TORCH_FREE = [
    *sorted((ROOT / "rocm_tui").rglob("*.py")),
    *(
        path
        for room in ("wire", "disk", "cache", "pins", "sharing", "toolchain")
        for path in sorted((ROOT / "backend" / room).rglob("*.py"))
    ),
    *sorted((ROOT / "backend").glob("*.py")),
]
FOR_TORCH = {ROOT / "backend" / "demo.py"}
ALLOWED = {"jinja2", "sympy", "filelock", "torch", "triton", "backend"}
"""What `backend` may import: what torch installs, and Triton where it is."""
OPTIONAL = {"elftools", "msgpack"}
PRIVATE_TORCH = set((ROOT / "backend" / "inductor" / "torch").glob("*.py"))
"""One file a subject: versions, what comes before Inductor, tunings, kernels, running choices."""


@functools.cache
def imports(path: Path) -> set[str]:
    """Every module name that a file imports, at any depth."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def top(names: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in names}


@pytest.mark.parametrize("path", TORCH_FREE, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_torch(path: Path) -> None:
    assert path in FOR_TORCH or "torch" not in top(imports(path))


@pytest.mark.parametrize(
    "path", sorted((ROOT / "backend").rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT))
)
def test_backend_needs_only_what_torch_installs(path: Path) -> None:
    strangers = top(imports(path)) - ALLOWED - set(sys.stdlib_module_names)
    assert strangers <= (OPTIONAL if path.name == "resources.py" else set())


@pytest.mark.parametrize(
    "path", sorted((ROOT / "backend").rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT))
)
def test_private_torch_names_in_their_files(path: Path) -> None:
    private = {
        name for name in imports(path) if any(p.startswith("_") for p in name.split(".")[1:])
        and name.startswith("torch.")
    }  # fmt: skip
    assert not private or path in PRIVATE_TORCH


def test_watch_never_loads_torch() -> None:
    code = (
        "import sys, pkgutil, importlib, rocm_tui\n"
        "for m in pkgutil.walk_packages(rocm_tui.__path__, 'rocm_tui.'):\n"
        "    if not m.name.endswith('__main__'): importlib.import_module(m.name)\n"
        "import backend.pins.store\n"
        "assert 'torch' not in sys.modules, 'torch was imported'\n"
        "print(len([m for m in sys.modules if m.startswith('rocm_tui')]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 20


SPEAKS = {
    ROOT / "rocm_tui" / "say.py",
    ROOT / "rocm_tui" / "hook_path" / "rocm_tui_autoload.py",  # in another's program, on its own
}


def _last_name(called: ast.expr) -> str:
    return called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")


@pytest.mark.parametrize(
    "path", sorted((ROOT / "rocm_tui").rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT))
)
def test_nothing_is_printed_but_by_the_one_way_out(path: Path) -> None:
    """A text that goes around it could be a command to the terminal."""
    if path in SPEAKS:
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and _last_name(node.func) in ("print", "write", "writelines"):
            said = ast.unparse(node.func)
            assert said != "print", f"line {node.lineno}: say.out or say.err"
            stream = r"sys\.(__)?std(out|err)(__)?(\.buffer)?\.write(lines)?"
            assert not re.fullmatch(stream, said), f"line {node.lineno}: say.out or say.err"
