"""What a log says that could not be used, each kind so often and no more."""

from __future__ import annotations

from collections.abc import Mapping

from backend.records import Problem
from rocm_tui.ingest.formats.autotune.grammar import Row

MAX_PROBLEMS = 50
"""Problems of one kind that are reported one by one; that there are more is said once."""


class LogProblems:
    """Those that were not taken yet; and rows whose table's beginning is missing."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._found: list[Problem] = []
        self._counts: dict[str, int] = {}
        self._orphans: dict[str, list[int]] = {}

    def add(self, kind: str, place: int, what: str) -> None:
        self._counts[kind] = self._counts.get(kind, 0) + 1
        if self._counts[kind] <= MAX_PROBLEMS:
            short = what if len(what) <= 300 else what[:299] + "…"
            self._found.append(Problem(self.source, short, place))
        elif self._counts[kind] == MAX_PROBLEMS + 1:
            more = f"more problems of this kind follow and are not listed: {kind}"
            self._found.append(Problem(self.source, more, place))

    def once(self, kind: str, place: int, what: str) -> None:
        """Say it the first time only."""
        if kind not in self._counts:
            self.add(kind, place, what)

    def orphan(self, key: str, place: int) -> None:
        """A row of the stream `key` belongs to no table."""
        self._orphans.setdefault(key, []).append(place)

    def end_of_orphans(self, key: str, place: int, choices: int | None) -> None:
        """The end of a table whose beginning is missing."""
        self.add("headless", place, _headless(len(self._orphans.pop(key, ())), choices))

    def report_orphans(self, key: str | None = None) -> None:
        """Tell of the rows that wait for their table's end: of one stream, or of all."""
        for each in list(self._orphans) if key is None else [key]:
            lost = self._orphans.pop(each, None)
            if lost:
                self.add("headless", lost[0], _headless(len(lost), None))

    def take(self) -> list[Problem]:
        found, self._found = self._found, []
        return found

    @property
    def places(self) -> list[int]:
        """Those of rows that are still to be told of."""
        return [place for places in self._orphans.values() for place in places]

    def replace_places(self, numbers: Mapping[int, int]) -> None:
        for places in self._orphans.values():
            places[:] = [numbers[place] for place in places]


def row_problem(row: Row, takers: int) -> str:
    why = "could belong to several tables" if takers else "belongs to no open table"
    return f"the row of {row.label[:100]} ({row.ms:g} ms) {why}"


def _headless(rows: int, choices: int | None) -> str:
    told = f" of {choices} choices" if choices is not None else ""
    if not rows:
        return f"the end of a table{told} whose beginning is missing"
    plural = "row" if rows == 1 else "rows"
    return f"{rows} {plural} of a table{told} whose beginning is missing"
