"""The table of tuners, and which of them wrote a file.

A new tuner is a `Tuner` in this folder and one line in `TUNERS`.
"""

from __future__ import annotations

from pathlib import PurePath

from backend.model.problem import Problem
from backend.tables import aiter, hipblaslt, ladder, miopen, tunableop
from backend.tables.model import BOM, Entry, Table, Tuner, table_of

TUNERS = (
    tunableop.TUNER,
    hipblaslt.TUNER,
    miopen.TUNER,
    aiter.TUNER,
    ladder.MOE,
    ladder.AITER_TRITON,
)
"""The first that knows a file has written it."""
HEAD = 16 << 10
"""Bytes that are enough to tell."""
_BY_NAME = {tuner.name: tuner for tuner in TUNERS}


def sniff(head: bytes, name: str) -> Tuner | None:
    """Who wrote the file of this name (or path) that begins with `head`; None for no table."""
    head = head[:HEAD].removeprefix(BOM)
    name = PurePath(name).name
    return next((tuner for tuner in TUNERS if tuner.knows(head, name)), None)


def parse(data: bytes, path: str) -> Table | None:
    """The table that these bytes are, of the file `path`; None for none. Raises ValueError for a
    document that is damaged."""
    tuner = sniff(data[:HEAD], path)
    if tuner is None:
        return None
    if tuner.lines is not None:
        text = data if tuner.text is None else tuner.text(data)
        return table_of(tuner.name, tuner.lines(path), text, path)
    assert tuner.document is not None
    return tuner.document(data, path)


def tuner_named(name: str) -> Tuner:
    """Raises KeyError."""
    return _BY_NAME[name]


def problem_of_entry(table: Table, entry: Entry) -> Problem:
    """What an entry is to torch. Raises NotAProblem."""
    return _BY_NAME[table.tuner].problem(entry)
