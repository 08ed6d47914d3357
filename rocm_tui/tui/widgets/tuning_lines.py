"""The columns that a table of tunings needs, and its lines, made anew only where they changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Generic, TypeVar

from rich.cells import cell_len

from rocm_tui.config.places import config_given
from rocm_tui.render import facets, groups, narrow
from rocm_tui.render import tunings as tuning_cells
from rocm_tui.render.job_progress import mark
from rocm_tui.render.layout import GAP, Slot, fit, natural
from rocm_tui.render.shares import SHARES
from rocm_tui.render.table import Line
from rocm_tui.session.difference import difference
from rocm_tui.session.facets import Differing, SourceNames, source_of
from rocm_tui.session.grouping import Entry, Folded, Heading
from rocm_tui.session.model import Row
from rocm_tui.session.named import short_names

if TYPE_CHECKING:  # types only: jobs are asked for later
    from rocm_tui.jobs.queue import Job

_Answer = TypeVar("_Answer")
_SAMPLE = 200
"""Rows that decide how wide the columns are."""
_MEASURED = ("shape", "dtype", "winner", "pin", "tuner", "device", "devices", "layout", "rank")
_BEATEN = 9
"""Cells of a lead that names the choice which is faster."""
_KEPT = 500
"""Lines that are remembered, of those that were shown."""


def _widths(row: Row) -> tuple[int, ...]:
    """Cells that the contents of the measured columns take."""
    cells = tuning_cells.cells(row, 0.0, keys=_MEASURED)
    return tuple([cell_len(text) for text, _ in cells.values()])


class _OfRows(Generic[_Answer]):
    """What a function says of each row, asked again only when the row has changed."""

    def __init__(self, ask: Callable[[Row], _Answer]) -> None:
        self._ask = ask
        self._answers: dict[str, tuple[Row, _Answer]] = {}

    def of(self, rows: Sequence[Row]) -> list[_Answer]:
        answers, known = [], self._answers
        for row in rows:  # each time that one changes
            answer = known.get(row.key)
            if answer is None or answer[0] is not row:
                answer = known[row.key] = row, self._ask(row)
            answers.append(answer[1])
        return answers

    def keep(self, rows: list[Row]) -> None:
        """Forget the rows that are gone, once they are as many as these."""
        if len(self._answers) > 2 * len(rows):
            answers = zip(rows, self.of(rows), strict=True)
            self._answers = {row.key: (row, answer) for row, answer in answers}


class _Ops:
    """How wide the widest op is of all rows, of which most stay as they were."""

    def __init__(self) -> None:
        self._rows: Sequence[Row] = ()
        self._counts = Counter[str]()
        self._width = 0

    def of(self, rows: Sequence[Row]) -> int:
        """In cells; of rows that are not changed afterwards."""
        gone, came = difference(self._rows, rows)
        self._rows = rows
        change = Counter(row.tuning.op for row in came)
        change.subtract(row.tuning.op for row in gone)
        new = [op for op in change if not self._counts[op]]
        self._counts.update(change)
        if lost := [op for op in change if not self._counts[op]]:
            for op in lost:
                del self._counts[op]
            self._width, new = 0, [*self._counts]
        self._width = max(self._width, *[cell_len(narrow.op(op)) for op in new], 0)
        return self._width


def _hidden() -> frozenset[str]:
    """The keys of the columns that the settings hide."""
    if not config_given():
        return frozenset()
    from rocm_tui.config.reading import config  # for those who have settings
    from rocm_tui.tui.looks import hidden

    return hidden(config().columns.hide)


class TuningLines:
    """What `measure` was last told of decides the columns."""

    def __init__(self) -> None:
        self._slots: tuple[Slot, ...] = ()
        self._fitted: object = None
        self._wants: dict[str, int] = {}
        self._hidden = _hidden()
        self._names: Mapping[str, str] = {}
        self._widths = _OfRows(_widths)
        self._ops = _Ops()
        self._differing = Differing()
        self._sources = SourceNames()
        self._lines: dict[str, tuple[Row, object, Line]] = {}

    def measure(self, rows: list[Row], by: str) -> None:
        """The widest content of each column, among the first of these rows, grouped `by` that."""
        self._widths.keep(rows)
        sample = rows[:_SAMPLE]
        widths = zip(*self._widths.of(sample), strict=True) if sample else repeat((0,))
        self._wants = dict(zip(_MEASURED, map(max, widths), strict=False))
        self._wants["op"] = self._ops.of(rows)
        if len(rows) > _SAMPLE:  # the others may hold wider ones
            for column in tuning_cells.COLUMNS:
                if self._wants.get(column.key):
                    self._wants[column.key] = max(column.least, self._wants[column.key])
        # Columns of one width say it themselves: 0 is no content that asks for less.
        self._wants |= dict.fromkeys(("n", "time", "tflops", "gain", "lead", "age"), 0)
        differing, names = facets.shown(rows, self._differing.of, self._sources.of)
        for key in facets.KEYS - differing.keys():
            self._wants.pop(key, None)
        if "source" in differing:
            self._wants["source"] = max(map(cell_len, names.values()))
        elif by == "session":
            names = short_names(map(source_of, sample))
        if names != self._names:
            self._names = names
            self._lines.clear()
        if any(row.tuning.measured is not None for row in sample):
            self._wants |= {"error": 0, "lead": _BEATEN}
        if any(row.share is not None for row in sample):
            self._wants |= dict.fromkeys((field.key for field in SHARES), 0)
        for key in self._hidden:
            self._wants.pop(key, None)

    @property
    def wanted(self) -> int:
        """Cells in which no column is cut or left out."""
        return natural(tuning_cells.COLUMNS, self._wants)

    def slots(self, width: int) -> tuple[Slot, ...]:
        """The columns that so many cells have room for."""
        state = (width, *self._wants.items())
        if state != self._fitted:
            self._fitted = state
            self._slots = fit(tuning_cells.COLUMNS, self._wants, width)
        return self._slots

    def line(self, entry: Entry, by: str, width: int, now: float, job: Job | None) -> Line:
        """How an entry of a list grouped `by` that is shown; `job` is about it."""
        if isinstance(entry, Heading):
            return groups.heading_line(entry, by, self._names)
        if isinstance(entry, Folded):
            return groups.folded_line(entry)
        slots = self.slots(width)
        if job is not None:
            return self._drawn(entry, slots, now, job)
        state = tuning_cells.age_text(entry, now), slots
        known = self._lines.get(entry.key)
        if known is None or known[0] is not entry or known[1] != state:
            if len(self._lines) > _KEPT:
                self._lines.clear()
            known = entry, state, self._drawn(entry, slots, now, None)
            self._lines[entry.key] = known
        return known[2]

    def _drawn(self, row: Row, slots: tuple[Slot, ...], now: float, job: Job | None) -> Line:
        cells = tuning_cells.cells(row, now, self._names, [slot.column.key for slot in slots])
        place = "lead" if "lead" in cells else "gain"  # a narrow screen has no lead
        if job is not None and place in cells:
            runs = row.tuning.state == "running" and place == "lead"
            own = cells[place][0] if runs else ""
            cells[place] = mark(job, own), "dim" if job.state == "queued" else "accent"
        line: list[tuple[str, str]] = []
        for slot in slots:
            text, style = cells[slot.column.key]
            line += [(slot.cell(text), style), (" " * GAP, "")]
        return tuple(line[:-1])
