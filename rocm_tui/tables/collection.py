"""Many tuned tables at once, and what a person looks for in them.

A million entries stay bytes: a word is looked for in the bytes of each table, and only the rows
that are shown are read.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import PurePath

from backend.tables.model import Entry, Table
from rocm_tui.tables.findings import NOTHING, Found, RowFindings

_PLACES = frozenset(("tuner", "file", "device", "lint"))
_NAMED = re.compile(r"([A-Za-z_]\w*)=(\S+)")


@dataclass(frozen=True, slots=True)
class TableRow:
    """An entry, its table, and the findings of `lint`."""

    table: Table
    entry: Entry
    findings: Found = ()

    @property
    def place(self) -> str:
        """`results0.csv:7`."""
        return f"{PurePath(self.table.path).name}:{self.entry.line}"

    @property
    def path_line(self) -> str:
        """The whole path and the line, as `pin` takes it."""
        return f"{self.table.path}:{self.entry.line}"


@dataclass(frozen=True, slots=True)
class RowFilter:
    """What a person looks for: entries with all these `words` in their text, and these values by
    name.

    It is case-sensitive. `tuner`, `file` and `device` are parts of the table's tuner, its path and
    the entry's device; `lint` is part of a finding, empty for any finding, None if findings do not
    matter. Any other name is that of a column.
    """

    words: tuple[str, ...] = ()
    named: tuple[tuple[str, str], ...] = ()
    tuner: str = ""
    file: str = ""
    device: str = ""
    lint: str | None = None

    @property
    def everything(self) -> bool:
        return self == RowFilter()


def parse_row_filter(text: str) -> RowFilter:
    """`Gemm_Rocblas M=16 tuner:aiter file:llama device:gfx942 lint:duplicate`."""
    words: list[str] = []
    named: list[tuple[str, str]] = []
    places: dict[str, str] = {}
    for word in text.split():
        name, colon, value = word.partition(":")
        match = _NAMED.fullmatch(word)
        if colon and name in _PLACES:
            places[name] = value
        elif match is not None:
            named.append((match[1], match[2]))
        else:
            words.append(word)
    return RowFilter(tuple(words), tuple(named), **places)


class TableCollection:
    """Tables, one behind the other; an entry's number counts through all of them. `marks` are what
    is known of them by now."""

    def __init__(self, tables: Sequence[Table], marks: RowFindings = NOTHING) -> None:
        self.tables = tuple(tables)
        self.marks = marks
        self._starts = [0, *accumulate(len(table.entries) for table in self.tables)]

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, number: int) -> TableRow:
        at = bisect_right(self._starts, number) - 1
        table = self.tables[at]
        entry = table.entries[number - self._starts[at]]
        marks = self.marks
        findings = (*marks.at(table.path, entry.line), *marks.whole(table.path))
        return TableRow(table, entry, findings)

    def like(self, one: TableRow) -> int | None:
        """Return the number of an entry of an earlier collection, None if its table is not here.

        It is where its line has its key, else where its text is now, else what is nearest to its
        line.
        """
        path = one.table.path
        at = next((at for at, table in enumerate(self.tables) if table.path == path), None)
        if at is None or not self.tables[at].entries:
            return None
        return self._starts[at] + _place_like(self.tables[at], one)

    def find(self, wanted: RowFilter) -> Iterator[int | None]:
        """The numbers of all entries that fit, ascending; None now and then where none came for a
        while, so that whoever asks may stop."""
        if wanted.everything:
            yield from range(len(self))
            return
        for table, start in zip(self.tables, self._starts, strict=False):
            if wanted.tuner in table.tuner and wanted.file in table.path:
                lines = None if wanted.lint is None else self.marks.lines(table.path, wanted.lint)
                if lines is None:
                    yield from _found(table, start, wanted)
                elif lines:
                    yield from _on(lines, table, start, wanted)
            yield None


def _place_like(table: Table, one: TableRow) -> int:
    lines, key = table.numbers, (one.entry.op, one.entry.key)
    first = bisect_left(lines, one.entry.line)
    for place in range(
        first, bisect_right(lines, one.entry.line)
    ):  # a JSON document may be one line
        entry = table.entries[place]
        if (entry.op, entry.key) == key:
            return place
    starts, text = table.starts, one.table.text(one.entry)
    at = table.data.find(text)
    while at >= 0:
        place = bisect_left(starts, at)
        if (
            place < len(starts)
            and starts[place] == at
            and table.entries[place].end == at + len(text)
        ):
            return place
        at = table.data.find(text, at + 1)
    return min(first, len(lines) - 1)


def _on(lines: frozenset[int], table: Table, start: int, wanted: RowFilter) -> Iterator[int | None]:
    """Yield the entries on these lines."""
    for place, line in enumerate(table.numbers):
        if line in lines:
            yield start + place if _fits(table, table.entries[place], wanted) else None
        elif not place % 1024:
            yield None


def _found(table: Table, start: int, wanted: RowFilter) -> Iterator[int | None]:
    needles = sorted((*wanted.words, *(value for _, value in wanted.named)), key=len)
    if not needles:
        for number, entry in enumerate(table.entries, start):
            yield number if _fits(table, entry, wanted) else None
        return
    needle, alone = needles[-1].encode(), wanted == RowFilter(words=wanted.words[:1])
    data, starts = table.data, table.starts
    at, after = data.find(needle), 0
    while at >= 0:
        place = bisect_right(starts, at, after) - 1
        if place >= after:
            if alone and b"\n" not in data[starts[place] : at]:
                yield start + place  # without reading it
            else:
                entry = table.entries[place]
                fits = at < entry.end and _fits(table, entry, wanted)
                yield start + place if fits else None
            after = place + 1
        at = data.find(needle, starts[after]) if after < len(starts) else -1


def _fits(table: Table, entry: Entry, wanted: RowFilter) -> bool:
    if wanted.device and wanted.device not in f"{entry.device} {entry.device.name}":
        return False
    if wanted.words:
        text = table.text(entry)
        if not all(word.encode() in text for word in wanted.words):
            return False
    if not wanted.named:
        return True
    values = {**dict(entry.extra), **dict(entry.key), "solution": entry.solution}
    return all(values.get(name) == value for name, value in wanted.named)
