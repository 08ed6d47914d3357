"""A small table whose cells are given: pins, history, sources, problems."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import TypeVar

from rich.cells import cell_len

from rocm_tui.render.table import GAP, Cells, Column, Line, Slot, Span, fit, heading, slot_at
from rocm_tui.session.numbers import quantity
from rocm_tui.tui.widgets.line_view import LineView

_Item = TypeVar("_Item")


class Grid(LineView):
    """Rows of cells below a heading; each column is as wide as its contents need.

    A click on a heading sorts by what stands there, the next turns the order round, the third gives
    the rows their own order back.
    """

    def __init__(self, columns: Sequence[Column], nothing: str, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._columns = columns
        self.nothing = nothing
        self._rows: Sequence[Cells] = ()
        self._names: Sequence[object] = ()
        self._slots: tuple[Slot, ...] = ()
        self._wants = self.wants()
        self._sort: tuple[str, bool] | None = None
        self._places: Sequence[int] = ()

    def put(self, rows: Sequence[Cells], names: Sequence[object] = ()) -> None:
        """Show these rows; the cursor stays on the row of its name, else at its place."""
        name = self._names[self.at] if self.at < len(self._names) else None
        self._rows, self._names = rows, names
        self._wants = self.wants()
        self._order()
        if name is not None and name in names:
            at = self._places.index(names.index(name))
            self.top += at - self.cursor
            self.cursor = at
        self.sync()

    @property
    def at(self) -> int:
        """Which of the rows that were put is under the cursor; their number where none is."""
        return self._places[self.cursor] if self.cursor < len(self._places) else len(self._rows)

    def pick(self, items: Sequence[_Item]) -> _Item | None:
        """Return the one of these, an item for each row, that is under the cursor."""
        return items[self.at] if self.at < len(items) else None

    def go_to(self, row: int) -> None:
        """Put the cursor on one of the rows that were put."""
        self.move_cursor(self._places.index(row))

    def _order(self) -> None:
        if self._sort is None:
            self._places = range(len(self._rows))
        else:
            column, reverse = self._sort
            self._places = lines_by(self._texts(column), reverse)

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
        return len(self._rows)

    def wants(self) -> dict[str, int]:
        """Cells of the widest content of each column that is to be shown."""
        return {
            column.key: max([cell_len(row[column.key][0]) for row in self._rows], default=0)
            for column in self._columns
        }

    def heading(self, width: int) -> list[Line]:
        self._slots = fit(self._columns, self._wants, width - 2)
        line: list[Span] = [(" ", "head")]
        column, reverse = self._sort or ("", False)
        for slot in self._slots:
            here = slot.column.key == column
            line += heading(slot, falls(self._texts(column), reverse) if here else None)
        return [(*line, (" " * width, "head"))]

    def line(self, index: int, width: int) -> Line:
        line: list[Span] = []
        for slot in self._slots:
            text, style = self._rows[self._places[index]][slot.column.key]
            line += [(slot.cell(text), style), (" " * GAP, "")]
        return tuple(line)

    def empty(self, width: int) -> list[Line]:
        parts = wrap(self.nothing, max(20, width - 4))
        return [(), *((("  " + part, "dim"),) for part in parts)]


def lines_by(texts: Sequence[str], reverse: bool) -> list[int]:
    """The places of these cells in order: quantities the largest first, words by their letters, or
    `reverse`. Cells that say nothing stand last either way; equal ones keep their order."""
    filled_at = [at for at, text in enumerate(texts) if text.strip(" –")]
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
    values = [quantity(text) for text in texts if text.strip(" –")]
    numeric = bool(values) and all(value is not None for value in values)
    return numeric != reverse


def _quantity(pair: tuple[float | None, int]) -> float:
    return pair[0] or 0.0
