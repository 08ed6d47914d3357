"""What loads what: the screen without torch, a command without the others, no test another."""

from __future__ import annotations

import ast
import subprocess
import sys

from tests.support import house
from tests.support.places import ROOT


def test_watch_never_loads_torch() -> None:
    code = (
        "import sys, pkgutil, importlib, importlib.util, rocm_tui\n"
        "left_out = {'rocm_tui.__main__'}\n"
        "if importlib.util.find_spec('mcp') is None: left_out.add('rocm_tui.mcp.server')\n"
        "for m in pkgutil.walk_packages(rocm_tui.__path__, 'rocm_tui.'):\n"
        "    if m.name not in left_out: importlib.import_module(m.name)\n"
        "import backend.pins.store\n"
        "assert 'torch' not in sys.modules, 'torch was imported'\n"
        "print(len([m for m in sys.modules if m.startswith('rocm_tui')]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 20


def test_a_command_loads_its_own_module_alone() -> None:
    """`ls` is no reason to load the screens, nor the modules of other commands."""
    code = (
        "import sys\n"
        "from rocm_tui.cli import main\n"
        "sys.argv = ['rocm-tui', 'ls', '--json', '/nowhere']\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(*[m for m in sys.modules if m.startswith('rocm_tui.cli.') or 'textual' in m])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    loaded = done.stdout.splitlines()[-1].split()
    assert not [name for name in loaded if "textual" in name]
    commands = {"watch", "run", "demo", "tune", "measure", "verify", "compare", "doctor", "pin"}
    assert not commands & {name.rpartition(".")[2] for name in loaded}


def test_no_test_file_imports_another() -> None:
    """What several tests share lies in `tests/support`."""
    shared = []
    for path in (ROOT / "tests").rglob("*.py"):
        if ".test_" not in (text := path.read_text()):
            continue
        for node in ast.walk(ast.parse(text)):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            shared += [f"{path.name}: {name}" for name in names if ".test_" in name]
    assert shared == []


def test_every_package_says_what_it_is_for() -> None:
    bare = [
        path
        for path, text in house.product().items()
        if path.endswith("/__init__.py") and not text.startswith('"""')
    ]
    assert bare == []
