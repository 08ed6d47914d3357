"""The live table of tunings."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf
from typing import ClassVar, Generic, TypeVar

from rich.cells import cell_len
from textual.binding import BindingType

from rocm_tui.harmless import plain
from rocm_tui.render import tunings as tuning_cells
from rocm_tui.render.layout import GAP, Slot, fit
from rocm_tui.render.table import Line
from rocm_tui.session import stats
from rocm_tui.session.model import Row
from rocm_tui.tui.watch_keys import bindings
from rocm_tui.tui.widgets.line_view import LineView

_Answer = TypeVar("_Answer")
_SAMPLE = 400
"""Rows that decide how wide the columns are."""
_MEASURED = ("op", "shape", "dtype", "winner", "pin")


def _falling(value: float | None) -> float:
    return inf if value is None else -value


SORTS: dict[str, Callable[[Row], float | str]] = {
    "newest": lambda row: 0.0,
    "vs ATen": lambda row: _falling(stats.gain(row.tuning)),
    "lead": lambda row: _falling(stats.lead(row.tuning)),
    "time": lambda row: _falling(stats.time_ms(row.tuning, stats.winner(row.tuning))),
    "to gain": lambda row: _falling(row.share.to_gain if row.share else None),
    "share": lambda row: _falling(row.share.share if row.share else None),
    "op": lambda row: row.tuning.op,
}
"""Ways to order the table: the largest first, except op; what is not known last. Equal ones stay
newest first."""


def searched(row: Row) -> str:
    """What the words of a filter are looked for in: op, shape, type, winner, lead, pin state, id;
    `suspect`.

    `x` stands for the `×` of a shape, which few keyboards have.
    """
    cells = tuning_cells.cells(row, 0.0)
    state = f"pinned {row.pin.state}" if row.pin else ""
    texts = [cells[key][0] for key in ("op", "shape", "dtype", "winner", "lead")]
    suspect = "suspect" if row.suspect else ""
    text = " ".join((*texts, state, suspect, row.tuning.state, row.id)).lower()
    return text.replace("×", "x")


def _names(row: Row) -> set[str]:
    """What a row is known by: its key changes while a source is written anew, its ids do not."""
    return {row.key} | {f"{alias} {row.occurrence}" for alias in row.aliases}


def _widths(row: Row) -> tuple[int, ...]:
    """Cells that the contents of the measured columns take."""
    cells = tuning_cells.cells(row, 0.0)
    return tuple(cell_len(cells[key][0]) for key in _MEASURED)


class _OfRows(Generic[_Answer]):
    """What a function says of each row, asked again only when the row has changed."""

    def __init__(self, ask: Callable[[Row], _Answer]) -> None:
        self._ask = ask
        self._answers: dict[str, tuple[Row, _Answer]] = {}

    def of(self, row: Row) -> _Answer:
        known = self._answers.get(row.key)
        if known is None or known[0] is not row:
            known = self._answers[row.key] = row, self._ask(row)
        return known[1]

    def keep(self, rows: list[Row]) -> None:
        """Forget the rows that are gone, once they are as many as these."""
        if len(self._answers) > 2 * len(rows):
            self._answers = {row.key: (row, self.of(row)) for row in rows}


def _added(before: list[Row], rows: list[Row]) -> int:
    """How many of these rows were not there before; none where there was none."""
    keys = {row.key for row in before}
    new = [row for row in rows if row.key not in keys]
    if not keys or not new:
        return 0
    known = {name for row in before for name in _names(row)}
    return sum(known.isdisjoint(_names(row)) for row in new)


class TuningsTable(LineView):
    """Rows newest first, sorted and filtered. The cursor stays on its row, or at the newest."""

    BINDING_GROUP_TITLE = "Tunings"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("trial")]
    SORT_COLUMN: ClassVar[dict[str, str]] = {
        "newest": "age",
        "vs ATen": "gain",
        "to gain": "to_gain",
    }

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
        self._texts = _OfRows(searched)
        self._places = _OfRows(SORTS[self.sort])
        self._widths = _OfRows(_widths)

    @property
    def current(self) -> Row | None:
        """The row under the cursor."""
        return self.rows[self.cursor] if self.cursor < len(self.rows) else None

    @property
    def following_sort(self) -> str:
        """The order after the present one."""
        names = list(SORTS)
        return names[(names.index(self.sort) + 1) % len(names)]

    @property
    def other_sorts(self) -> list[str]:
        """The orders that are not the present one."""
        return [name for name in SORTS if name != self.sort]

    def show(self, rows: list[Row], *, hold: bool = False) -> None:
        """Take the model's rows, newest first. With `hold` the cursor stays where it is."""
        before, self._all = self._all, rows
        newest = self.sort == "newest"
        self._order(follow=self._follow and not hold and newest and self.top == 0)
        added = _added(before, self.rows) if newest else 0
        self.unseen = min(self.unseen + added, self.cursor)
        self.now = time.time()
        self.sync()

    def order(self, *, sort: str | None = None, words: tuple[str, ...] | None = None) -> None:
        """Sort or filter another way."""
        if sort is not None:
            self.sort, self._places = sort, _OfRows(SORTS[sort])
        if words is not None:
            self.words = tuple(word.replace("×", "x") for word in words)
        self._order(follow=False)
        self.unseen = 0
        self.sync()

    def _order(self, *, follow: bool) -> None:
        current = self.current
        rows = self._all
        for known in (self._texts, self._places, self._widths):
            known.keep(rows)
        if self.words:
            rows = [row for row in rows if all(w in self._texts.of(row) for w in self.words)]
        self.rows = rows if self.sort == "newest" else sorted(rows, key=self._places.of)
        self.total = len(self._all)
        if follow or current is None:
            self.cursor = self.top = 0
        else:
            self._find(current)
        self._clamp()
        self._measure()

    def _find(self, current: Row) -> None:
        offset = self.cursor - self.top
        place = next((at for at, row in enumerate(self.rows) if row.key == current.key), None)
        if place is None:
            names = _names(current)
            fits = (at for at, row in enumerate(self.rows) if not names.isdisjoint(_names(row)))
            place = next(fits, None)
        if place is not None:
            self.cursor, self.top = place, place - offset

    def go_to(self, row: Row) -> bool:
        """Put the cursor on this row; False if it is not shown."""
        place = next((at for at, shown in enumerate(self.rows) if shown.key == row.key), None)
        if place is not None:
            self.move_cursor(place)
        return place is not None

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
        widths = [self._widths.of(row) for row in sample]
        self._wants = {
            key: max((w[at] for w in widths), default=0) for at, key in enumerate(_MEASURED)
        }
        self._wants |= dict.fromkeys(("n", "time", "tflops", "gain", "lead", "age"), 0)
        if any(row.tuning.rank is not None for row in sample):
            self._wants["rank"] = 4
        if any(row.tuning.measured is not None for row in sample):
            self._wants["error"] = 4
        if any(row.share is not None for row in sample):
            self._wants |= {"calls": 5, "share": 7, "to_gain": 7}

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
        text = f"No tuning matches “{words}”. Esc clears the filter."
        if not self._all:
            text = "No tuning any more: what was read is gone. New ones appear here; S says why."
        return [(), ((f"  {text}", "dim"),)]
