"""Which tunings came while a person looked elsewhere.

A program that takes a choice from the cache asks for it first: its row stands alone for a moment,
then it is one with the row of the tuning that timed the choices. That is no news, and neither is a
row that tells of no time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

from rocm_tui.session.difference import difference
from rocm_tui.session.merge import is_reuse, is_selection
from rocm_tui.session.model import Row


class News:
    """The keys of the rows that came since `clear`."""

    def __init__(self) -> None:
        self._keys: set[str] = set()

    def take(self, before: Sequence[Row], rows: Sequence[Row]) -> None:
        """These rows stand where those of `before` stood; what comes first of all is no news."""
        went, came = difference(before, rows)
        known, there = {row.key for row in went}, {row.key for row in came}
        new = [row for row in came if row.key not in known]
        self._keys -= known - there
        if before and new:
            ids = {alias for row in new for alias in row.ids}
            names = {name for row in before if _has(row, ids) for name in names_of(row)}
            self._keys |= {row.key for row in new if names.isdisjoint(names_of(row))}

    def clear(self) -> None:
        """They have been seen."""
        self._keys.clear()

    def count(self, rows: Iterable[object]) -> int:
        """How many of these are news."""
        if not self._keys:
            return 0
        return sum(isinstance(row, Row) and row.key in self._keys and _tells(row) for row in rows)


def names_of(row: Row) -> set[str]:
    """What a row is known by: its key changes while a source is written anew, its ids do not."""
    return {row.key} | {f"{alias} {row.occurrence}" for alias in row.ids}


def _has(row: Row, ids: AbstractSet[str]) -> bool:
    """Whether it is known by one of these; asked of all rows, each time that one comes."""
    return row.id in ids or (bool(row.aliases) and not ids.isdisjoint(row.aliases))


def _tells(row: Row) -> bool:
    tuning = row.tuning
    return tuning.state != "running" and (is_selection(tuning) or not is_reuse(tuning))
