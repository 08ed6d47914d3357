"""The live table of tunings."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar, cast

from rich.cells import cell_len
from textual.binding import BindingType
from textual.message import Message

from rocm_tui.config.reading import config
from rocm_tui.harmless import plain
from rocm_tui.render import facets, groups
from rocm_tui.render import tunings as tuning_cells
from rocm_tui.render.job_progress import mark
from rocm_tui.render.layout import GAP, Slot, fit, heading, slot_at
from rocm_tui.render.table import Line, Span
from rocm_tui.session.facets import short_names, source_of
from rocm_tui.session.grouping import Arrangement, Entry, Folded, Heading, arrange
from rocm_tui.session.model import Row
from rocm_tui.session.news import News, names_of
from rocm_tui.session.query.complete import Completion
from rocm_tui.session.query.fields import BY_NAME, FIELDS, Facts, Known, QueryField
from rocm_tui.session.query.match import predicate
from rocm_tui.session.query.order import ordered, placer
from rocm_tui.session.query.tree import EVERYTHING, Query
from rocm_tui.tui.host import Host
from rocm_tui.tui.watch_keys import bindings
from rocm_tui.tui.widgets.line_view import LineView

if TYPE_CHECKING:  # types only: jobs are asked for later
    from rocm_tui.jobs.queue import Job

_Answer = TypeVar("_Answer")
_SAMPLE = 400
"""Rows that decide how wide the columns are."""
_MEASURED = ("op", "shape", "dtype", "winner", "lead", "pin", "device", "layout", "rank")


SORTS = ("age", "gain", "lead", "time", "to_gain", "share", "op")
"""The orders that a key goes through; a click on a heading has any column's."""
_COLUMNS = {field.column or field.name: field for field in FIELDS}
"""The field that orders a column, by the column's key."""


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


def _alike(entry: Entry, other: Entry) -> bool:
    """Whether two lines are of the same thing, at two moments."""
    if isinstance(entry, Row) or isinstance(other, Row):
        return isinstance(entry, Row) and isinstance(other, Row) and entry.key == other.key
    return type(entry) is type(other) and entry.group == other.group


class TuningsTable(LineView):
    """Rows newest first, sorted, filtered and grouped. The cursor stays on its row, or at the
    newest. `rows` are those that pass the filter, `entries` the lines that show them."""

    BINDING_GROUP_TITLE = "Tunings"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("trial")]

    class SortAsked(Message):
        """A heading was clicked."""

        def __init__(self, field: QueryField) -> None:
            super().__init__()
            self.field = field

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.rows: list[Row] = []
        self.entries: Sequence[Entry] = self.rows
        self.arrangement = Arrangement()
        self.total = 0
        self.unseen = 0
        self._news = News()
        self.sort = BY_NAME["age"]
        self.reverse = False
        self.filter = ""
        self.now = time.time()
        self._all: list[Row] = []
        self._follow = True
        self._slots: tuple[Slot, ...] = ()
        self._fitted: object = None
        self._wants: dict[str, int] = {}
        self._names: Mapping[str, str] = {}
        self._jobs: Sequence[Job] = ()
        self._query: Query = EVERYTHING
        self._facts: Facts | None = None
        self._widths = _OfRows(_widths)

    @property
    def current(self) -> Row | None:
        """The row under the cursor; None on a line that stands for several."""
        entry = self.entry
        return entry if isinstance(entry, Row) else None

    @property
    def entry(self) -> Entry | None:
        """What the line under the cursor shows."""
        return self.entries[self.cursor] if self.cursor < len(self.entries) else None

    @property
    def facts(self) -> Facts:
        """What the fields say of the rows, as far as the sessions are known."""
        if self._facts is None:
            self._facts = Facts(Known(cast(Host, self.app).feed.model.sessions))
        return self._facts

    @property
    def newest_first(self) -> bool:
        return self.sort.name == "age" and not self.reverse

    @property
    def sorts(self) -> list[QueryField]:
        """The orders in which this table has something to show, in the order of the key for it."""
        fields = [BY_NAME[name] for name in SORTS]
        return [field for field in fields if self._tells(field)]

    @property
    def following_sort(self) -> QueryField:
        """The order after the present one."""
        names = [field.name for field in self.sorts]
        at = names.index(self.sort.name) if self.sort.name in names else -1
        return BY_NAME[names[(at + 1) % len(names)]]

    def _tells(self, field: QueryField) -> bool:
        """Whether anything is known of it; that rows come one after another always is."""
        if field.moving:
            return True
        place = placer(field, self.facts)
        return any(place(row) is not None for row in self._all)

    def show(self, rows: list[Row], *, hold: bool = False) -> None:
        """Take the model's rows, newest first. With `hold` the cursor stays where it is."""
        before, self._all = self._all, rows
        self._jobs = cast(Host, self.app).unfinished
        newest = self.newest_first
        follow = self._follow and not hold and newest and self.top == 0
        self._order(follow=follow)
        if newest:
            self._news.take(before, rows)
        if follow:
            self._news.clear()
        self.unseen = min(self._news.count(self.rows), self.cursor)
        self.now = time.time()
        self.sync()

    def _saw(self) -> None:
        """The person has seen what came."""
        self._news.clear()
        self.unseen = 0

    def sort_by(self, field: QueryField, *, reverse: bool = False) -> None:
        """Order the rows another way, and show the top."""
        self.sort, self.reverse = field, reverse
        self._order(follow=True)
        self._follow = True
        self._saw()
        self.sync()

    def group_as(self, how: Arrangement) -> None:
        """Group and fold the rows another way."""
        self.arrangement = how
        self._order(follow=False)
        if self.top and isinstance(self.entries[self.top - 1], Heading):
            self.top -= 1  # the heading of the first row
        self._saw()
        self.sync()

    def turn(self) -> bool:
        """Close or open the group under the cursor, or unfold; False if it stands on a row."""
        entry = self.entry
        if isinstance(entry, Heading):
            self.group_as(self.arrangement.turned(entry.group))
        elif isinstance(entry, Folded):
            self.group_as(replace(self.arrangement, fold=False))
        return not isinstance(entry, Row) and entry is not None

    def action_choose(self) -> None:
        if not self.turn():
            super().action_choose()

    def let_through(self, query: Query, text: str) -> None:
        """Show the rows that pass; `text` is how the person wrote it."""
        self._query, self.filter = query, text
        self._order(follow=False)
        self._saw()
        self.sync()

    def count_passing(self, query: Query) -> int:
        """How many rows a filter would let through."""
        return sum(map(predicate(query, self.facts), self._all))

    def completion(self, saved: Mapping[str, str]) -> Completion:
        """What may follow in a filter over these rows."""
        return Completion(self._all, self.facts, saved)

    def _order(self, *, follow: bool) -> None:
        current, rows, facts = self.entry, self._all, self.facts
        facts.known.now = time.time()
        facts.keep(rows, len(rows))
        self._widths.keep(rows)
        if self._query != EVERYTHING:
            rows = list(filter(predicate(self._query, facts), rows))
        if not self.newest_first:
            rows = ordered(rows, self.sort, facts, self.reverse)
        self.rows, self.total = rows, len(self._all)
        found = self._query != EVERYTHING  # what is searched for is shown, not folded away
        how = self.arrangement
        self.entries = arrange(rows, replace(how, fold=False) if found else how)
        if follow or current is None:
            self.cursor, self.top = self._first, 0
        else:
            self._find(current)
        self._clamp()
        self._measure()

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
        """The line of the first row: a heading may stand above it."""
        return next((at for at, entry in enumerate(self.entries) if isinstance(entry, Row)), 0)

    def _place(self, entry: Entry) -> int | None:
        """The line that shows this."""
        return next((at for at, shown in enumerate(self.entries) if _alike(shown, entry)), None)

    def _holder(self, row: Row) -> int | None:
        """The line that stands for this row and others."""
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
        if self._place(row) is None and any(shown.key == row.key for shown in self.rows):
            self.group_as(replace(self.arrangement, closed=frozenset(), fold=False))
        place = self._place(row)
        if place is not None:
            self.move_cursor(place)
        return place is not None

    def tick(self) -> None:
        """Repaint the ages that read differently by now."""
        self.now = time.time()
        self.sync()

    def move_cursor(self, index: int) -> None:
        super().move_cursor(index)
        self._follow = self.cursor <= self._first
        if self._follow:
            self._saw()

    # Layout.

    def _measure(self) -> None:
        """The widest content of each column, among the newest rows."""
        sample = self._all[:_SAMPLE]
        widths = [self._widths.of(row) for row in sample]
        self._wants = {
            key: max((w[at] for w in widths), default=0) for at, key in enumerate(_MEASURED)
        }
        self._wants |= dict.fromkeys(("n", "time", "tflops", "gain", "age"), 0)
        differing, self._names = facets.shown(self._all)
        for key in facets.KEYS - differing.keys():
            self._wants.pop(key, None)
        if self.arrangement.by == "session" and not self._names:
            self._names = short_names(map(source_of, sample))
        if "source" in differing:
            self._wants["source"] = max(map(cell_len, self._names.values()))
        if any(row.tuning.measured is not None for row in sample):
            self._wants["error"] = 4
        if any(row.share is not None for row in sample):
            self._wants |= {"calls": 5, "share": 7, "to_gain": 7}
        self._hide()

    def _hide(self) -> None:
        """Leave out what the settings hide."""
        names = config().columns.hide
        if names:
            from rocm_tui.tui.looks import hidden  # for those who hide some

            for key in hidden(names):
                self._wants.pop(key, None)

    def _layout(self, width: int) -> tuple[Slot, ...]:
        state = (width, *self._wants.items())
        if state != self._fitted:
            self._fitted = state
            self._slots = fit(tuning_cells.COLUMNS, self._wants, width)
        return self._slots

    def count(self) -> int:
        return len(self.entries)

    def heading(self, width: int) -> list[Line]:
        if not self._all:
            return []
        by = self.sort.column or self.sort.name
        line: list[Span] = [(" ", "head")]
        for slot in self._layout(width - 2):
            falls = self.sort.largest != self.reverse if slot.column.key == by else None
            line += heading(slot, falls)
        return [(*line, (" " * width, "head"))]

    def choose_heading(self, x: int) -> None:
        """Order by the column there; by the one that orders already, the other way."""
        slot = slot_at(self._layout(self.size.width - 2), x - 1)
        field = _COLUMNS.get(slot.column.key) if slot else None
        if field is not None:
            self.post_message(self.SortAsked(field))

    def line(self, index: int, width: int) -> Line:
        entry = self.entries[index]
        if isinstance(entry, Heading):
            return groups.heading_line(entry, self.arrangement.by, self._names)
        if isinstance(entry, Folded):
            return groups.folded_line(entry)
        cells = tuning_cells.cells(entry, self.now, self._names)
        job = self._job(entry)
        if job is not None:
            own = cells["lead"][0] if entry.tuning.state == "running" else ""
            cells["lead"] = mark(job, own), "dim" if job.state == "queued" else "accent"
        line: list[tuple[str, str]] = []
        for slot in self._layout(width):
            text, style = cells[slot.column.key]
            line += [(slot.cell(text), style), (" " * GAP, "")]
        return tuple(line[:-1])

    def _job(self, row: Row) -> Job | None:
        """The newest job about this tuning that is not over."""
        ids = {row.id, *row.aliases}
        return next((job for job in self._jobs if job.is_about(row.tuning, ids)), None)

    def empty(self, width: int) -> list[Line]:
        text = f"No tuning matches “{plain(self.filter)}”. Esc clears the filter."
        if not self._all:
            text = "No tuning any more: what was read is gone. New ones appear here; S says why."
        return [(), ((f"  {text}", "dim"),)]
