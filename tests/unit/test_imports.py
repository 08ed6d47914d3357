"""The import graph of the house: no circles, arrows in one direction, files of a size."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.import_graph import arrows, circle, modules, room_of
from tests.support.places import ROOT

LONGEST = 400
"""Lines. A longer file has a seam."""

FLOORS = [
    {"backend.model", "backend.processes"},
    {"backend.wire", "backend.measure", "backend.tables"},
    {"backend.disk"},
    {"backend.cache", "backend.ranks", "backend.toolchain"},
    {"backend.pins", "backend.templates"},
    {"backend.sharing", "backend.reproducer"},
    {"backend.inductor"},
    {"backend.worker"},
    {"rocm_tui.config", "rocm_tui.ssh"},
    {"rocm_tui.ingest"},
    {"rocm_tui.session"},
    {"rocm_tui.tables"},
    {
        "rocm_tui.compare",
        "rocm_tui.report",
        "rocm_tui.search",
        "rocm_tui.jobs",
        "rocm_tui.launch",
    },
    {"rocm_tui.fleet"},
    {"rocm_tui.actions", "rocm_tui.render"},
    {"rocm_tui.cli", "rocm_tui.tui"},
]
"""A room imports rooms of lower floors only, and none of its own floor but for `BESIDE`."""

BESIDE = {
    ("rocm_tui.cli", "rocm_tui.tui"): "`watch` starts the app",
    ("rocm_tui.report", "rocm_tui.compare"): "a report compares the ranks of its job",
}

ENTRANCES = {"rocm_tui.__main__", "backend"}
"""What starts the program, and what torch loads of us: they reach into rooms, no room to them."""

FOREIGN = {"rocm_tui.hook_path"}
"""Files that run in other programs, by themselves."""

LEAVES = {"rocm_tui", "backend"}
"""Files beside the rooms (`say`, `errors`, ...) serve all rooms, and import no room."""


def test_no_circle_among_modules() -> None:
    """Imports inside functions and for types count: a circle that is put off is a circle."""
    assert circle((arrow.importer, arrow.imported) for arrow in arrows()) == []


def test_no_circle_among_rooms() -> None:
    inner = [arrow for arrow in arrows() if arrow.importer not in ENTRANCES]
    edges = {(room_of(arrow.importer), room_of(arrow.imported)) for arrow in inner}
    assert circle((a, b) for a, b in edges if a != b) == []


def test_arrows_point_down() -> None:
    floor = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
    wrong = []
    for arrow in arrows():
        if arrow.importer in ENTRANCES:
            continue
        above, below = room_of(arrow.importer), room_of(arrow.imported)
        if above == below or above in FOREIGN or (above, below) in BESIDE or below in LEAVES:
            continue
        if above in LEAVES or floor[above] <= floor[below]:
            wrong.append(f"{arrow.importer}:{arrow.line} imports {arrow.imported}")
    assert wrong == []


def test_every_room_has_a_floor_and_a_sign() -> None:
    rooms = {room_of(name) for name in modules()} - LEAVES - FOREIGN
    assert rooms == set().union(*FLOORS)
    for name, path in modules().items():
        if path.name == "__init__.py":
            assert path.read_text().startswith('"""'), f"{name}: say what the room is for"


@pytest.mark.parametrize("path", modules().values(), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_file_is_too_long(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LONGEST


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
