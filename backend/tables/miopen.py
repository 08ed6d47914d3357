"""MIOpen's databases of convolutions: find-dbs (`.fdb.txt`, `.ufdb.txt`), which say how long each
solver took, and perf-dbs (`.db.txt`, `.udb.txt`, until 2019 `.pdb.txt`; in SQLite `.db`, `.udb`),
which hold a solver's configuration.

    576-4-4-1x1-192-4-4-8-0x0-1x1-1x1-0-NCHW-FP32-F=GemmFwd1x1_0_1:0.0412,0,miopenConvolution...;...

The key is read in `miopen_keys`. Until 2022 a solver stood behind its algorithm,
`algorithm:solver,ms,workspace,algorithm,key` (MIOpen 3.3: src/include/miopen/perf_field.hpp).

A file is called by its device: `gfx906_60` has 60 compute units, `gfx942130` has 0x130. What MIOpen
compiled (`.kdb`, `.ukdb`) is no table.
"""

from __future__ import annotations

import re
from pathlib import PurePath

from backend.model.problem import Problem
from backend.tables.begins import MIOPEN, SQLITE
from backend.tables.gemm import NOT_ITS_FORM
from backend.tables.miopen_keys import DIRECTIONS, direction_of, problem_of
from backend.tables.model import Device, Entry, Fields, NotARow, Tuner, finite

_NAME = re.compile(r"\.(?:u?fdb|u?db|(?:cd\.)?pdb)\.txt\Z")
_DEVICE = re.compile(
    r"(gfx(?:[789][0-9a-f]{2}|1[0-9a-f]{3}))(?:_(\d{1,4})|([0-9a-f]{2,3}))?(?=[._])"
)
_ALGORITHM = "miopen"
"""How all algorithms are called."""


class Reader:
    """The lines of one file, whose device stands in its name."""

    facts: Fields = ()
    columns: tuple[str, ...] = ()

    def __init__(self, path: str = "") -> None:
        self._device = device_of(PurePath(path).name)

    def take(self, line: bytes, number: int) -> bool:
        _, equals, values = line.partition(b"=")
        if not equals and not line.strip():
            return False
        if b":" not in values:
            raise NotARow(NOT_ITS_FORM)
        return True

    def entry(self, line: bytes, number: int, start: int) -> Entry:
        key, _, values = line.decode("utf-8", "replace").partition("=")
        solvers = [_solver(part) for part in values.split(";") if part]
        ranked = sorted(solvers, key=lambda told: (told[1] is None, told[1]))
        direction = direction_of(key)
        return Entry(
            number,
            start,
            start + len(line),
            DIRECTIONS.get(direction, direction),
            (("problem", key),),
            ranked[0][0] if ranked else "",
            ranked[0][1] if ranked else None,
            self._device,
            tuple((solver, told) for solver, _, told in ranked),
            others=tuple((solver, ms) for solver, ms, _ in ranked[1:]),
        )


def device_of(name: str) -> Device:
    """The device that the name of a file tells."""
    found = _DEVICE.search(name)
    if found is None:
        return Device()
    units = int(found[2]) if found[2] else int(found[3], 16) if found[3] else None
    return Device(found[1], units, found[0])


def _solver(part: str) -> tuple[str, float | None, str]:
    """A solver, its milliseconds, and what else is told of it."""
    id, _, told = part.partition(":")
    cells = told.split(",")
    if id.startswith(_ALGORITHM) and len(cells) > 2:
        return cells[0], finite(cells[1]), ",".join(cells[2:])
    if len(cells) > 2 and cells[2].startswith(_ALGORITHM):
        return id, finite(cells[0]), ",".join(cells[1:])
    return id, None, told


def _problem(entry: Entry) -> Problem:
    return problem_of(entry.key[0][1])


def _text(data: bytes) -> bytes:
    """A perf-db in SQLite as text, what is text as it is."""
    if not data.startswith(SQLITE):
        return data
    try:
        from backend.tables.miopen_sqlite import text_of
    except ImportError as error:
        raise ValueError("this Python has no sqlite3") from error
    return text_of(data)


def _knows(head: bytes, name: str) -> bool:
    if head.startswith(SQLITE):
        return b"perf_db" in head
    return MIOPEN.match(head) is not None or (_NAME.search(name) is not None and b"=" in head)


TUNER = Tuner("miopen", _knows, _problem, lines=Reader, text=_text)
