"""The list of entries of tuned tables, a million of them: only those in sight are read."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import overload

from rich.cells import cell_len

from rocm_tui.render.entries import ENTRIES, entry_lines
from rocm_tui.render.table import Cells, Line, cells
from rocm_tui.tables.shelf import Shelf, Shelved
from rocm_tui.tui.widgets.grid import Grid
from rocm_tui.tui.widgets.line_view import LineView

MOST_SORTED = 5000
"""Rows that are read to be sorted; a tenth of a second."""
_SAMPLE = 200
"""Rows by which the columns are as wide as they are."""
_WIDE = 170
"""Cells from which on rules have room."""
_KEPT = 2 * MOST_SORTED


class _Rows(Sequence[Cells]):
    """The cells of these entries, made when they are asked for."""

    def __init__(self, shelf: Shelf, numbers: Sequence[int]) -> None:
        self._shelf, self._numbers = shelf, numbers
        self._made: dict[int, Cells] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, at: int) -> Cells: ...
    @overload
    def __getitem__(self, at: slice) -> list[Cells]: ...
    def __getitem__(self, at: int | slice) -> Cells | list[Cells]:
        if isinstance(at, slice):
            return [self[one] for one in range(*at.indices(len(self)))]
        made = self._made.get(at)
        if made is None:
            if len(self._made) >= _KEPT:
                self._made.clear()
            made = self._made[at] = cells(ENTRIES, self._shelf[self._numbers[at]])
        return made


class EntriesGrid(Grid):
    """Entries by their numbers, which ascend; more may be found while they are shown."""

    def __init__(self, *, id: str | None = None) -> None:
        self._shelf = Shelf(())
        self._numbers: Sequence[int] = ()
        super().__init__(ENTRIES, "", id=id)

    @property
    def current(self) -> Shelved | None:
        """The entry under the cursor."""
        return self._shelf[self._numbers[self.at]] if self.at < len(self._numbers) else None

    def show(self, shelf: Shelf, numbers: Sequence[int]) -> None:
        """Show these; the cursor stays on its entry if that is among them, and if it stood on one
        of a table that was read anew, on what is there of it."""
        before, row = self.current, self.cursor - self.top
        same = self._shelf.tables == shelf.tables
        number = self._numbers[self.at] if before else None
        if before and not same:
            number = shelf.like(before)
        self._shelf, self._numbers = shelf, numbers
        if self._sort is not None and len(numbers) > MOST_SORTED:
            self._sort = None
        self.put(_Rows(shelf, numbers))
        at = len(numbers) if number is None else bisect_left(numbers, number)
        if number is not None and not same:  # what is nearest
            at = min(at, len(numbers) - 1)
        cursor = 0
        if 0 <= at < len(numbers) and (not same or numbers[at] == number):
            cursor = self._places.index(at)
            self.top = cursor - row
        self.move_cursor(cursor)

    def grow(self) -> None:
        """More were found."""
        if self._sort is None:
            self._order()
            self.sync()

    def wants(self) -> dict[str, int]:
        rows = self._rows[:_SAMPLE]
        wants = {
            column.key: max([cell_len(row[column.key][0]) for row in rows], default=0)
            for column in self._columns
        }
        self._rule = wants["lint"]
        return wants

    def heading(self, width: int) -> list[Line]:
        """Where there is little room, what lint found is a sign; its rule stands below the list."""
        if self._rows:
            self._wants = {**self._wants, "lint": self._rule if width >= _WIDE else 1}
        return super().heading(width)

    def choose_heading(self, x: int) -> None:
        if len(self._rows) > MOST_SORTED:
            self.app.notify(
                f"{len(self._rows):,} entries are not sorted; / finds fewer of them", markup=False
            )
            return
        super().choose_heading(x)


class EntryDetail(LineView, can_focus=False):
    """All of one entry."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._entry: Shelved | None = None

    def show(self, entry: Shelved | None) -> None:
        if entry != self._entry:
            self._entry = entry
            self.sync()

    def count(self) -> int:
        return 0

    def heading(self, width: int) -> list[Line]:
        return entry_lines(self._entry, width, self.size.height) if self._entry else []
