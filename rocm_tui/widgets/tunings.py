"""The live table of tunings."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.cells import cell_len

from rocm_tui.format import plain
from rocm_tui.session import stats
from rocm_tui.session.model import Row
from rocm_tui.widgets import tuning_cells
from rocm_tui.widgets.columns import GAP, Slot, fit
from rocm_tui.widgets.line_view import Line, LineView

_SAMPLE = 400
"""Rows that decide how wide the columns are."""
_MEASURED = ("op", "shape", "dtype", "winner", "pin")


def _time(row: Row) -> float:
    best = stats.winner(row.tuning)
    return -(best.ms or 0.0) if best else float("inf")


SORTS: dict[str, Callable[[Row], float | str]] = {
    "newest": lambda row: 0.0,
    "gain": lambda row: -(stats.gain(row.tuning) or 0.0),
    "lead": lambda row: -(stats.lead(row.tuning) or 0.0),
    "time": _time,
    "op": lambda row: row.tuning.op,
}
"""Ways to order the table: the largest first, except op. Equal ones stay newest first."""


def matches(row: Row, words: Sequence[str]) -> bool:
    """Whether every word stands in the op, shape, type, winner, id or pin state of a row.

    `x` stands for the `×` of a shape, which few keyboards have.
    """
    if not words:
        return True
    cells = tuning_cells.cells(row, 0.0)
    state = f"pinned {row.pin.state}" if row.pin else ""
    told = [cells[key][0] for key in ("op", "shape", "dtype", "winner", "lead")]
    text = " ".join((*told, state, row.tuning.state, row.id)).lower()
    text = text.replace("×", "x")
    return all(word.replace("×", "x") in text for word in words)


def _names(row: Row) -> set[str]:
    """What a row is known by: its key changes while a source is written anew, its ids do not."""
    return {row.key} | {f"{alias} {row.occurrence}" for alias in row.aliases}


class TuningsTable(LineView):
    """Rows newest first, sorted and filtered. The cursor stays on its row, or at the newest."""

    BINDING_GROUP_TITLE = "Tunings"
    SORT_COLUMN: ClassVar[dict[str, str]] = {"newest": "age"}

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.rows: list[Row] = []
        self.total = 0
        self.unseen = 0
        self.sort = "newest"
        self.words: tuple[str, ...] = ()
        self.now = time.time()
        self._all: list[Row] = []
        self._follow = True
        self._slots: tuple[Slot, ...] = ()
        self._fitted: object = None
        self._wants: dict[str, int] = {}
        self._widths: dict[str, tuple[Row, tuple[int, ...]]] = {}

    @property
    def current(self) -> Row | None:
        """The row under the cursor."""
        return self.rows[self.cursor] if self.cursor < len(self.rows) else None

    @property
    def following_sort(self) -> str:
        """The order after the present one."""
        names = list(SORTS)
        return names[(names.index(self.sort) + 1) % len(names)]

    def show(self, rows: list[Row], *, hold: bool = False) -> None:
        """Take the model's rows, newest first. With `hold` the cursor stays where it is."""
        known = {name for row in self._all for name in _names(row)}
        self._all = rows
        added = sum(known.isdisjoint(_names(row)) for row in rows) if known else 0
        self._order(follow=self._follow and not hold and self.sort == "newest")
        self.unseen = 0 if self.cursor == 0 else self.unseen + added
        self.now = time.time()
        self.sync()

    def order(self, *, sort: str | None = None, words: tuple[str, ...] | None = None) -> None:
        """Sort or filter another way."""
        self.sort = sort or self.sort
        self.words = self.words if words is None else words
        self._order(follow=False)
        self.sync()

    def _order(self, *, follow: bool) -> None:
        current = self.current
        rows = [row for row in self._all if matches(row, self.words)] if self.words else self._all
        self.rows = sorted(rows, key=SORTS[self.sort])
        self.total = len(self._all)
        if follow or current is None:
            self.cursor = self.top = 0
        else:
            self._find(current)
        self._measure()

    def _find(self, current: Row) -> None:
        offset = self.cursor - self.top
        names = _names(current)
        fits = [at for at, row in enumerate(self.rows) if not names.isdisjoint(_names(row))]
        if fits:
            exact = [at for at in fits if self.rows[at].key == current.key]
            self.cursor = (exact or fits)[0]
            self.top = max(0, self.cursor - offset)

    def go_to(self, row: Row) -> bool:
        """Put the cursor on this row; False if it is not shown."""
        found = [at for at, one in enumerate(self.rows) if one.key == row.key]
        if found:
            self.move_cursor(found[0])
        return bool(found)

    def tick(self) -> None:
        """Repaint the ages that read differently by now."""
        self.now = time.time()
        self.sync()

    def move_cursor(self, index: int) -> None:
        super().move_cursor(index)
        self._follow = self.cursor == 0
        if self._follow:
            self.unseen = 0

    # Layout.

    def _measure(self) -> None:
        """The widest content of each column, among the newest rows."""
        sample = self._all[:_SAMPLE]
        self._widths = {row.key: self._widths_of(row) for row in sample}
        found = [widths for _, widths in self._widths.values()]
        self._wants = {
            key: max((w[at] for w in found), default=0) for at, key in enumerate(_MEASURED)
        }
        self._wants |= dict.fromkeys(("n", "time", "tflops", "gain", "lead", "age"), 0)
        if any(row.tuning.rank is not None for row in sample):
            self._wants["rank"] = 4
        if any(row.tuning.measured is not None for row in sample):
            self._wants["error"] = 4

    def _widths_of(self, row: Row) -> tuple[Row, tuple[int, ...]]:
        known = self._widths.get(row.key)
        if known is not None and known[0] is row:
            return known
        cells = tuning_cells.cells(row, 0.0)
        return row, tuple(cell_len(cells[key][0]) for key in _MEASURED)

    def _layout(self, width: int) -> tuple[Slot, ...]:
        state = (width, *self._wants.items())
        if state != self._fitted:
            self._fitted = state
            self._slots = fit(tuning_cells.COLUMNS, self._wants, width)
        return self._slots

    def count(self) -> int:
        return len(self.rows)

    def heading(self, width: int) -> list[Line]:
        if not self._all:
            return []
        sorted_by = self.SORT_COLUMN.get(self.sort, self.sort)
        line: list[tuple[str, str]] = [(" ", "head")]
        for slot in self._layout(width - 2):
            at = slot.column.key == sorted_by
            line.append((slot.cell(slot.column.title), "title" if at else "head"))
            line.append((" " * GAP, "head"))
        return [(*line, (" " * width, "head"))]

    def line(self, index: int, width: int) -> Line:
        cells = tuning_cells.cells(self.rows[index], self.now)
        line: list[tuple[str, str]] = []
        for slot in self._layout(width):
            text, style = cells[slot.column.key]
            line += [(slot.cell(text), style), (" " * GAP, "")]
        return tuple(line[:-1])

    def empty(self, width: int) -> list[Line]:
        words = plain(" ".join(self.words))
        return [(), ((f"  No tuning matches “{words}”. Esc clears the filter.", "dim"),)]
