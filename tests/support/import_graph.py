"""Who imports whom in the two packages, and which of those imports break the order of rooms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

from tests.support.dotted_names import Imported

FLOORS = [
    {"backend.model", "backend.processes"},
    {"backend.wire", "backend.measure"},
    {"backend.disk"},
    {"backend.cache", "backend.ranks", "backend.tables", "backend.toolchain"},
    {"backend.pins", "backend.templates"},
    {"backend.sharing"},
    {"backend.inductor"},
    {"backend.worker"},
    {"rocm_tui.config"},
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
    {"rocm_tui.actions", "rocm_tui.mcp", "rocm_tui.render"},
    {"rocm_tui.cli", "rocm_tui.tui"},
]
"""A room imports rooms of lower floors only, and none of its own floor but for `BESIDE`."""

BESIDE = {
    ("rocm_tui.cli", "rocm_tui.tui"): "`watch` starts the app",
    ("rocm_tui.report", "rocm_tui.compare"): "a report compares the ranks of its job",
}

ENTRANCES = {
    "rocm_tui/__main__.py": "it starts the program",
    "rocm_tui/__init__.py": "programs call it, and torch loads it as its extension",
    "backend/__init__.py": "torch loads it as its extension, and it activates the hooks",
}

FOREIGN = {
    "rocm_tui.hook_path": "its files run in other programs, each alone",
}

LEAVES = {"rocm_tui", "backend"}
"""Files beside the rooms (`say`, `errors`, ...) serve all rooms, and import no room."""


class Arrow(NamedTuple):
    """An import: the file `importer` needs the file `imported`."""

    importer: str
    imported: str
    line: int


def wrong_arrows(imports: Mapping[str, Iterable[Imported]]) -> list[str]:
    """Circles, imports that do not go down, and rooms without a floor.

    Imports in functions and for types count as well: a circle that is put off is a circle.
    """
    drawn = list(_arrows(imports))
    rooms = [
        (room_of(arrow.importer), room_of(arrow.imported))
        for arrow in drawn
        if arrow.importer not in ENTRANCES
    ]
    return [
        *_without_floor({room_of(path) for path in imports}),
        *_upwards(drawn),
        *_circle((arrow.importer, arrow.imported) for arrow in drawn),
        *_circle((importer, imported) for importer, imported in rooms if importer != imported),
        *(f"{pair}: no exception is needed any more" for pair in BESIDE if pair not in rooms),
    ]


def module_of(path: str) -> str:
    """`backend.model.choice` for `backend/model/choice.py`; a package has its folder's name."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def room_of(path: str) -> str:
    """The folder of a file, two deep: `backend.pins`; for a leaf, its package."""
    return ".".join(path.split("/")[:-1][:2])


def _arrows(imports: Mapping[str, Iterable[Imported]]) -> Iterator[Arrow]:
    modules = {module_of(path): path for path in imports}
    for importer, names in imports.items():
        for line, name in names:
            if name.endswith("."):  # the start of a computed name: any module of that room
                continue
            imported = modules.get(name) or modules.get(name.rpartition(".")[0])
            if imported is not None and imported != importer:
                yield Arrow(importer, imported, line)


def _without_floor(rooms: set[str]) -> list[str]:
    floors = {room for floor in FLOORS for room in floor}
    inner = rooms - LEAVES - {*FOREIGN}
    new = [f"{room}: has no floor; add it to FLOORS" for room in sorted(inner - floors)]
    return new + [f"{room}: is in FLOORS and has no files" for room in sorted(floors - inner)]


def _upwards(arrows: Iterable[Arrow]) -> Iterator[str]:
    floor = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
    for importer, imported, line in arrows:
        above, below = room_of(importer), room_of(imported)
        if importer in ENTRANCES or above == below or above in FOREIGN or below in LEAVES:
            continue
        down = floor.get(above, -1) > floor.get(below, len(floor))
        if not down and (above, below) not in BESIDE:
            yield f"{importer}:{line}: imports {imported}, which is not on a lower floor"


def _circle(edges: Iterable[tuple[str, str]]) -> list[str]:
    """Some circle among them; empty where there is none."""
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for importer, imported in edges:
        sorter.add(importer, imported)
    try:
        sorter.prepare()
    except CycleError as error:
        return ["circle: " + " -> ".join(error.args[1])]
    return []
