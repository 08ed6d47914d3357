"""A table of cells: pins, history, sources, problems."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from itertools import accumulate
from textwrap import wrap
from typing import TypeVar

from rich.cells import cell_len

from rocm_tui.render.table import (
    GAP,
    Cells,
    Column,
    Line,
    Slot,
    Span,
    fit,
    heading,
    slot_at,
    wrapped,
)
from rocm_tui.session.numbers import NONE, quantity
from rocm_tui.tui.widgets.line_view import LineView

_Item = TypeVar("_Item")
_BLANK = f" {NONE}"
"""What a cell without a value consists of."""
_MOST_LINES = 8
"""The maximum lines of a row, so that a long text leaves room for others."""


class Grid(LineView):
    """Rows of cells below a heading; each column is as wide as its contents need, and one without
    any value is left out.

    A click on a heading sorts by its column, the next click reverses the order, and the third gives
    the rows their own order back. The columns `wraps` go on in further lines of their row where
    they have more text than room.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        nothing: str,
        *,
        wraps: Collection[str] = (),
        id: str | None = None,
    ) -> None:
        super().__init__(id=id)
        self._columns = columns
        self._wraps = wraps
        self._parts: list[dict[str, list[str]]] = []
        self._firsts: list[int] = []
        self._fitted: object = None
        self.nothing = nothing
        self._rows: Sequence[Cells] = ()
        self._names: Sequence[object] = ()
        self._slots: tuple[Slot, ...] = ()
        self._wants = self.wants()
        self._sort: tuple[str, bool] | None = None
        self._places: Sequence[int] = ()

    def put(self, rows: Sequence[Cells], names: Sequence[object] = ()) -> None:
        """Show these rows; the cursor stays on the row with its name, else at its index."""
        name = self._names[self.at] if self.at < len(self._names) else None
        self._rows, self._names = rows, names
        self._wants = self.wants()
        self._order()
        if name is not None and name in names:
            at = self._first_line(self._places.index(names.index(name)))
            self.top += at - self.cursor
            self.cursor = at
        self.sync()

    @property
    def at(self) -> int:
        """The index, among the rows that were put, of the row under the cursor; if there is none,
        their number."""
        place = self._place(self.cursor)
        return self._places[place] if place < len(self._places) else len(self._rows)

    def pick(self, items: Sequence[_Item]) -> _Item | None:
        """Return the one of `items`, one for each row, that is under the cursor."""
        return items[self.at] if self.at < len(items) else None

    # Rows of several lines.

    def _place(self, line: int) -> int:
        """Return the index of the row that has this line."""
        return bisect_right(self._firsts, line) - 1 if self._firsts else line

    def _first_line(self, place: int) -> int:
        return self._firsts[place] if self._firsts else place

    def _wrap(self) -> None:
        """Wrap the texts for the current widths; the cursor stays on its row."""
        widths = {s.column.key: s.width for s in self._slots if s.column.key in self._wraps}
        if widths == self._fitted:
            return
        place = self._place(self.cursor)
        self._fitted = widths
        if not widths:
            return
        self._parts = [
            {
                key: wrap(
                    self._rows[at][key][0],
                    width,
                    break_on_hyphens=False,
                    max_lines=_MOST_LINES,
                    placeholder=" …",
                )
                for key, width in widths.items()
            }
            for at in self._places
        ]
        heights = (max(1, *map(len, parts.values())) for parts in self._parts)
        self._firsts = list(accumulate(heights, initial=0))
        self.cursor = self._firsts[max(0, min(place, len(self._parts) - 1))]

    @property
    def cursor_lines(self) -> range:
        if not self._firsts:
            return super().cursor_lines
        place = max(0, min(self._place(self.cursor), len(self._parts) - 1))
        return range(self._firsts[place], self._firsts[place + 1]) if self._parts else range(0)

    def move_cursor(self, index: int) -> None:
        if self._parts:
            index = self._firsts[self._place(max(0, min(index, self.count() - 1)))]
        super().move_cursor(index)

    def action_move(self, by: int) -> None:
        place = max(0, min(self._place(self.cursor) + by, len(self._rows) - 1))
        self.move_cursor(self._first_line(place) if self._rows else 0)

    def _order(self) -> None:
        if self._sort is None:
            self._places = range(len(self._rows))
        else:
            column, reverse = self._sort
            self._places = lines_by(self._texts(column), reverse)
        if self._wraps:
            self.cursor = self._place(self.cursor)
            self._parts, self._firsts, self._fitted = [], [], None
            self._wrap()

    def _texts(self, column: str) -> list[str]:
        return [row[column][0] for row in self._rows]

    def choose_heading(self, x: int) -> None:
        slot = slot_at(self._slots, x - 1) if self._rows else None
        if slot is None:
            return
        key = slot.column.key
        steps = {None: (key, False), (key, False): (key, True), (key, True): None}
        self._sort = steps.get(self._sort, (key, False))
        self._order()
        self.cursor = self.top = 0
        self.sync()
        self.post_message(self.CursorMoved(self))

    def count(self) -> int:
        return self._firsts[-1] if self._firsts else len(self._rows)

    def wants(self) -> dict[str, int]:
        """Return the cells of the widest content of each column that has any."""
        texts = {column.key: self._texts(column.key) for column in self._columns}
        return {key: max(map(cell_len, column)) for key, column in texts.items() if _says(column)}

    def heading(self, width: int) -> list[Line]:
        self._slots = fit(self._columns, self._wants, width - 2)
        if not self._rows:
            return []
        self._wrap()
        line: list[Span] = [(" ", "head")]
        column, reverse = self._sort or ("", False)
        for slot in self._slots:
            here = slot.column.key == column
            line += heading(slot, falls(self._texts(column), reverse) if here else None)
        return [(*line, (" " * width, "head"))]

    def line(self, index: int, width: int) -> Line:
        line: list[Span] = []
        place = self._place(index)
        part = index - self._first_line(place)
        parts = self._parts[place] if self._parts else {}
        for slot in self._slots:
            text, style = self._rows[self._places[place]][slot.column.key]
            if slot.column.key in parts:
                text = "".join(parts[slot.column.key][part : part + 1])
            elif part:
                text = ""
            line += [(slot.cell(text), style), (" " * GAP, "")]
        return tuple(line)

    def empty(self, width: int) -> list[Line]:
        parts = wrapped(self.nothing, width - 4)
        return [(), *((("  " + part, "dim"),) for part in parts)]


def _says(texts: Sequence[str]) -> bool:
    """Return whether any of these cells has a value."""
    return any(text.strip(_BLANK) for text in texts)


def lines_by(texts: Sequence[str], reverse: bool) -> list[int]:
    """Return the places of these cells in order: quantities the largest first, words by their
    letters, or `reverse`. Empty cells are last either way; equal ones keep their order."""
    filled_at = [at for at, text in enumerate(texts) if text.strip(_BLANK)]
    values = [quantity(texts[at]) for at in filled_at]
    if filled_at and all(value is not None for value in values):
        pairs = sorted(zip(values, filled_at, strict=True), key=_quantity, reverse=not reverse)
        places = [at for _, at in pairs]
    else:
        places = sorted(filled_at, key=lambda at: texts[at].casefold(), reverse=reverse)
    filled = set(filled_at)
    return [*places, *(at for at in range(len(texts)) if at not in filled)]


def falls(texts: Sequence[str], reverse: bool) -> bool:
    """Return whether such an order has the largest, or the last letter, on top."""
    values = [quantity(text) for text in texts if text.strip(_BLANK)]
    numeric = bool(values) and all(value is not None for value in values)
    return numeric != reverse


def _quantity(pair: tuple[float | None, int]) -> float:
    return pair[0] or 0.0
