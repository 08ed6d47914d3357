"""The live table of tunings."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice, repeat
from typing import TYPE_CHECKING, cast

from rich.cells import cell_len
from textual.message import Message

from rocm_tui.config.places import config_given
from rocm_tui.harmless import plain
from rocm_tui.render import tunings as tuning_lines
from rocm_tui.render.jobs import mark
from rocm_tui.render.shares import SHARES
from rocm_tui.render.table import (
    GAP,
    Line,
    Slot,
    Span,
    fit,
    heading,
    natural,
    short_op,
    slot_at,
    whole,
)
from rocm_tui.session.grouping import (
    Arrangement,
    DifferingFacets,
    Entry,
    Folded,
    Heading,
    SourceNames,
    UnseenRows,
    arrange,
    folds,
    is_other,
    names_of,
    source_of,
)
from rocm_tui.session.model import Row
from rocm_tui.session.query.complete import Completion
from rocm_tui.session.query.fields import BY_NAME, FIELDS, FieldValues, Known, QueryField
from rocm_tui.session.query.grammar import Query
from rocm_tui.session.query.match import ordered, placer
from rocm_tui.session.sessions import short_names
from rocm_tui.tui.base import BaseApp
from rocm_tui.tui.widgets.line_view import LineView

if TYPE_CHECKING:  # types only: jobs and filters are asked for later
    from rocm_tui.jobs.queue import Job

SORTS = ("age", "gain", "lead", "time", "to_gain", "share", "op")
"""The orders that a key cycles through; a click on a heading uses any column's."""
_COLUMNS = {field.column or field.name: field for field in FIELDS}
"""The field that orders a column, by the column's key."""

_SAMPLE = 200
"""The number of rows that determine the widths of columns."""
_MEASURED = ("shape", "dtype", "winner", "pin", "tuner", "device", "devices", "layout", "rank")
_NAMED_BY_HEADING = {"session": "source", "device": "device"}
"""The column that the headings of groups make superfluous, by the field of the groups."""
_BEATEN = 8
"""Cells of a lead that names the faster choice."""
_EDGES = 3
"""Cells for the cursor's mark, the rail, and a blank."""


def _alike(entry: Entry, other: Entry) -> bool:
    """Return whether two entries, seen at two moments, are the same row or group."""
    if isinstance(entry, Row) or isinstance(other, Row):
        return isinstance(entry, Row) and isinstance(other, Row) and entry.key == other.key
    return type(entry) is type(other) and entry.group == other.group


def _widths(row: Row) -> tuple[int, ...]:
    """Return the cells that the contents of the measured columns take."""
    cells = tuning_lines.cells(row, 0.0, keys=_MEASURED)
    return tuple([cell_len(text) for text, _ in cells.values()])


def _hidden() -> frozenset[str]:
    """Return the keys of the columns that the settings hide."""
    if not config_given():
        return frozenset()
    from rocm_tui.config.settings import config  # only if there are settings
    from rocm_tui.tui.appearance import hidden

    return hidden(config().columns.hide)


class TuningLines:
    """Draws entries; the rows of the last `measure` determine the columns."""

    def __init__(self) -> None:
        self._slots: tuple[Slot, ...] = ()
        self._fitted: object = None
        self.sorted_by = ""
        """The key of the column that stays, since the rows are sorted by it."""
        self._wants: dict[str, int] = {}
        self._hidden = _hidden()
        self._names: Mapping[str, str] = {}
        self._differing = DifferingFacets()
        self._sources = SourceNames()
        self._with_values = tuning_lines.ColumnsWithValues()

    def measure(self, rows: list[Row], by: str, *, jobs: bool = False) -> None:
        """Take the widest content of each column among the first of these rows, which are grouped
        `by` a field. With `jobs` there is a column for the mark of a job."""
        sample = rows[:_SAMPLE]
        widths = zip(*map(_widths, sample), strict=True) if sample else repeat((0,))
        self._wants = dict(zip(_MEASURED, map(max, widths), strict=False))
        ops = {row.tuning.op for row in rows}
        devices = [tuning_lines.device_label(device) for row in sample for device in row.devices]
        self._wants["op"] = max(map(cell_len, [*map(short_op, ops), *devices]), default=0)
        if len(rows) > _SAMPLE:  # the others may be wider
            for column in tuning_lines.COLUMNS:
                if self._wants.get(column.key):
                    self._wants[column.key] = max(column.least, self._wants[column.key])
        # Columns of a fixed width set it themselves, so their contents count as 0.
        self._wants |= dict.fromkeys(("n", "time", "tflops", "gain", "lead", "age"), 0)
        differing, names = tuning_lines.facet_fields(rows, self._differing.of, self._sources.of)
        for key in tuning_lines.FACET_KEYS - differing.keys():
            self._wants.pop(key, None)
        if "source" in differing:
            self._wants["source"] = max(map(cell_len, names.values()))
        elif by == "session":
            names = short_names(map(source_of, sample))
        self._names = names
        if any(row.tuning.measured is not None for row in sample):
            self._wants |= {"error": 0, "lead": _BEATEN}
        if any(row.share is not None for row in sample):
            self._wants |= dict.fromkeys((field.key for field in SHARES), 0)
        kept = {"op", *self._with_values.of(rows)} | ({"lead"} if jobs else set())
        kept.discard(_NAMED_BY_HEADING.get(by, ""))
        for key in [key for key in self._wants if key in self._hidden or key not in kept]:
            del self._wants[key]

    @property
    def wanted(self) -> int:
        """The cells with which no column is cut or left out."""
        return natural(tuning_lines.COLUMNS, self._wants)

    def slots(self, width: int) -> tuple[Slot, ...]:
        """Return the columns that fit in `width` cells."""
        state = (width, self.sorted_by, *self._wants.items())
        if state != self._fitted:
            self._fitted = state
            columns = [
                replace(column, drop=0) if column.key == self.sorted_by else column
                for column in tuning_lines.COLUMNS
            ]
            self._slots = fit(columns, self._wants, width)
        return self._slots

    def line(self, entry: Entry, by: str, width: int, now: float, job: Job | None) -> Line:
        """Return the line of an entry in a list grouped `by` a field; `job` is about it."""
        if isinstance(entry, Heading):
            return whole(tuning_lines.heading_line(entry, by, self._names), width)
        if isinstance(entry, Folded):
            return tuning_lines.folded_line(entry)
        return self._drawn(entry, self.slots(width), now, job)

    def _drawn(self, row: Row, slots: tuple[Slot, ...], now: float, job: Job | None) -> Line:
        cells = tuning_lines.cells(row, now, self._names, [slot.column.key for slot in slots])
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


class TuningsTable(LineView):
    """Rows newest first, sorted, filtered and grouped. The cursor stays on its row, or at the
    newest. `rows` pass the filter, `entries` are the lines that show them, and `hidden` are the
    rows of other tuners, which a key shows."""

    BINDING_GROUP_TITLE = "Tunings"

    class SortAsked(Message):
        """A heading was clicked."""

        def __init__(self, field: QueryField) -> None:
            super().__init__()
            self.field = field

    def __init__(self, moved: Callable[[], None], *, id: str | None = None) -> None:
        """`moved` is called when another line is under the cursor."""
        super().__init__(id=id)
        self._moved = moved
        self.rows: list[Row] = []
        self.entries: Sequence[Entry] = self.rows
        self.arrangement = Arrangement()
        self.total = 0
        self.unseen = 0
        self._news = UnseenRows()
        self.sort = BY_NAME["age"]
        self.reverse = False
        self.filter = ""
        self.now = time.time()
        self._all: list[Row] = []
        self.hidden: Sequence[Row] = ()
        self._follow = True
        self._jobs: Sequence[Job] = ()
        self._query: Query | None = None
        self._facts: FieldValues | None = None
        self._lines = TuningLines()

    @property
    def current(self) -> Row | None:
        """The row under the cursor; None on the line of a group or of folded rows."""
        entry = self.entry
        return entry if isinstance(entry, Row) else None

    @property
    def entry(self) -> Entry | None:
        """The entry of the line under the cursor."""
        return self.entries[self.cursor] if self.cursor < len(self.entries) else None

    @property
    def facts(self) -> FieldValues:
        """The values of fields, as far as the sessions are known."""
        if self._facts is None:
            self._facts = FieldValues(Known(cast(BaseApp, self.app).feed.model.sessions))
        return self._facts

    @property
    def newest_first(self) -> bool:
        return self.sort.name == "age" and not self.reverse

    @property
    def sorts(self) -> list[QueryField]:
        """The orders in which this table has something to show, in the order of the key."""
        fields = [BY_NAME[name] for name in SORTS]
        return [field for field in fields if self._has_values(field)]

    @property
    def following_sort(self) -> QueryField:
        """The order after the current one."""
        names = [field.name for field in self.sorts]
        at = names.index(self.sort.name) if self.sort.name in names else -1
        return BY_NAME[names[(at + 1) % len(names)]]

    def _has_values(self, field: QueryField) -> bool:
        """Return whether any row has a value of this field; the age always has one."""
        if field.moving:
            return True
        place = placer(field, self.facts)
        return any(place(row) is not None for row in self._all)

    def show(self, rows: list[Row], *, hold: bool = False) -> None:
        """Show the model's rows, newest first. With `hold` the cursor stays where it is."""
        before, self._all = self._all, rows
        self._jobs = cast(BaseApp, self.app).unfinished
        newest = self.newest_first
        self._order(follow=self._follow and not hold and newest and self.top == 0)
        if self._follow and self.cursor <= self._first:
            self._news.clear()  # the cursor follows new rows
        elif newest:
            self._news.take(before, rows)
        self.unseen = min(self._news.count(self.rows), self.cursor)
        self.now = time.time()
        self.sync()

    def _saw(self) -> None:
        """Note that the person has seen the new rows."""
        self._news.clear()
        self.unseen = 0

    def sort_by(self, field: QueryField, *, reverse: bool = False) -> None:
        """Sort the rows differently, and show the top."""
        self.sort, self.reverse = field, reverse
        self._lines.sorted_by = "" if field.name == "age" else field.column or field.name
        self._order(follow=True)
        self._follow = True
        self._saw()
        self.sync()

    def group_as(self, how: Arrangement) -> None:
        """Group and fold the rows differently."""
        self.arrangement = how
        self._order(follow=False)
        if self.top and isinstance(self.entries[self.top - 1], Heading):
            self.top -= 1  # the heading of the first row
        self._saw()
        self.sync()

    def turn(self) -> bool:
        """Close or open the group or the devices under the cursor, or unfold; False for a row
        without anything to open."""
        entry = self.entry
        if isinstance(entry, Row):
            if entry.devices:
                self.group_as(self.arrangement.with_devices(entry.key))
            return bool(entry.devices)
        if isinstance(entry, Heading):
            self.group_as(self.arrangement.turned(entry.group))
        elif isinstance(entry, Folded):
            self.group_as(replace(self.arrangement, fold=False))
        return entry is not None

    def action_choose(self) -> None:
        if not self.turn():
            super().action_choose()

    def let_through(self, query: Query, text: str) -> None:
        """Show the rows that pass; `text` is the filter as the person wrote it."""
        from rocm_tui.session.query.grammar import EVERYTHING  # with the first filter

        self._query, self.filter = None if query == EVERYTHING else query, text
        self._order(follow=False)
        self._saw()
        self.sync()

    def count_passing(self, query: Query) -> int:
        """Count the rows that would pass a filter."""
        return len(self._passing(query))

    def _passing(self, query: Query) -> list[Row]:
        from rocm_tui.session.query.match import predicate  # with the first filter

        return list(filter(predicate(query, self.facts), self._all))

    def completion(self, saved: Mapping[str, str]) -> Completion:
        """Return the completions of a filter for these rows."""
        return Completion(self._all, self.facts, saved)

    def _order(self, *, follow: bool) -> None:
        current, rows, facts = self.entry, self._all, self.facts
        facts.known.now = time.time()
        facts.keep(rows, len(rows))
        if self._query is None:
            rows = measured = self._without_others(rows)
        else:
            self.hidden, measured = (), rows
            rows = self._passing(self._query)
        if not self.newest_first:
            rows = ordered(rows, self.sort, facts, self.reverse)
        self.rows, self.total = rows, len(self._all)
        how = self.arrangement
        searching = self._query is not None  # matches are shown, not folded away
        if searching or not (how.by or len([*islice(filter(folds, self._all), 2)]) > 1):
            how = replace(how, fold=False)
        self.entries = arrange(rows, how)
        if follow or current is None:
            self.cursor, self.top = self._first, 0
        else:
            self._find(current)
        self._clamp()
        self._lines.measure(measured, how.by, jobs=bool(self._jobs))

    def _without_others(self, rows: list[Row]) -> list[Row]:
        """Return the rows without those of other tuners, unless a person shows them or all are
        theirs."""
        others = [row for row in rows if is_other(row)]
        if self.arrangement.others or len(others) == len(rows):
            others = []
        self.hidden = others
        return [row for row in rows if not is_other(row)] if others else rows

    def _find(self, current: Entry) -> None:
        offset = self.cursor - self.top
        place = self._place(current)
        if place is None and isinstance(current, Row):
            names = names_of(current)
            shown = ((at, row) for at, row in enumerate(self.entries) if isinstance(row, Row))
            place = next((at for at, row in shown if not names.isdisjoint(names_of(row))), None)
            place = self._holder(current) if place is None else place
        elif place is None and not isinstance(current, Row):
            place = self._place(current.rows[0])  # grouped another way
        if place is not None:
            self.cursor, self.top = place, place - offset

    @property
    def _first(self) -> int:
        """The line of the first row; a heading may be above it."""
        return next((at for at, entry in enumerate(self.entries) if isinstance(entry, Row)), 0)

    def _place(self, entry: Entry) -> int | None:
        """Return the line that shows this entry."""
        return next((at for at, shown in enumerate(self.entries) if _alike(shown, entry)), None)

    def _holder(self, row: Row) -> int | None:
        """Return the line of the closed group, or of the folded rows, that contains this row."""
        return next(
            (
                at
                for at, shown in enumerate(self.entries)
                if isinstance(shown, Folded | Heading)
                and not (isinstance(shown, Heading) and shown.open)
                and any(its.key == row.key for its in shown.rows)
            ),
            None,
        )

    def go_to(self, row: Row) -> bool:
        """Put the cursor on this row; False if the filter hides it."""
        if any(other.key == row.key for other in self.hidden):
            self.group_as(replace(self.arrangement, others=True))
        if self._place(row) is None and any(shown.key == row.key for shown in self.rows):
            self.group_as(replace(self.arrangement, closed=frozenset(), fold=False))
        problem = next((r for r in self.rows if any(d.key == row.key for d in r.devices)), None)
        if problem is not None and problem.key not in self.arrangement.opened:
            self.group_as(self.arrangement.with_devices(problem.key))
        place = self._place(row)
        if place is not None:
            self.move_cursor(place)
        return place is not None

    def tick(self) -> None:
        """Repaint the ages whose text has changed."""
        self.now = time.time()
        self.sync()

    def move_cursor(self, index: int) -> None:
        super().move_cursor(index)
        self._look()

    def cursor_moved(self) -> None:
        """React at once: a reaction to a message would be painted separately, a second time."""
        self._look()
        self._moved()

    def _look(self) -> None:
        """Note that the person looks at the row under the cursor."""
        self._follow = self.cursor <= self._first
        if self._follow:
            self._saw()

    # Layout.

    def count(self) -> int:
        return len(self.entries)

    def heading(self, width: int) -> list[Line]:
        if not self._all:
            return []
        by = self.sort.column or self.sort.name
        line: list[Span] = [(" ", "head")]
        for slot in self._lines.slots(width - 2):
            falls = self.sort.largest != self.reverse if slot.column.key == by else None
            line += heading(slot, falls)
        return [(*line, (" " * width, "head"))]

    def choose_heading(self, x: int) -> None:
        """Sort by the column at this cell; if it is the order already, reverse it."""
        slot = slot_at(self._lines.slots(self.size.width - 2), x - 1)
        field = _COLUMNS.get(slot.column.key) if slot else None
        if field is not None:
            self.post_message(self.SortAsked(field))

    def line(self, index: int, width: int) -> Line:
        entry, by = self.entries[index], self.arrangement.by
        job = self._job(entry) if self._jobs and isinstance(entry, Row) else None
        return self._lines.line(entry, by, width, self.now, job)

    @property
    def wanted(self) -> int:
        """The columns of the screen with which nothing of the table is cut."""
        return self._lines.wanted + _EDGES

    def _job(self, row: Row) -> Job | None:
        """Return the newest unfinished job about this tuning."""
        ids = {*row.ids}
        return next((job for job in self._jobs if job.is_about(row.tuning, ids)), None)

    def empty(self, width: int) -> list[Line]:
        text = f"No tuning matches “{plain(self.filter)}”. Esc clears the filter."
        if not self._all:
            text = "No tuning any more: what was read is gone. New ones appear here; 7 says why."
        return [(), ((f"  {text}", "dim"),)]
