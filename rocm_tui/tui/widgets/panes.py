"""The table, the tuning under its cursor, and the filter above both."""

from __future__ import annotations

from asyncio import sleep, to_thread
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message

from backend.model.choice import Choice
from backend.model.origin import has_resources
from rocm_tui.harmless import plain
from rocm_tui.render import choices as choice_lines
from rocm_tui.render import detail as detail_lines
from rocm_tui.render.choices import Footprint
from rocm_tui.render.shares import share_line
from rocm_tui.render.table import Line, Slot, filled, folded, whole
from rocm_tui.render.tuned_tables import beside_lines
from rocm_tui.session import stats
from rocm_tui.session.grouping import GROUPS, Arrangement
from rocm_tui.session.model import Row
from rocm_tui.session.query.complete import Completion, Suggestion, last_word
from rocm_tui.session.query.fields import BY_NAME, QueryField
from rocm_tui.tui.base import BaseApp
from rocm_tui.tui.widgets.filter_bar import FilterBar, Offers, order_in
from rocm_tui.tui.widgets.line_view import LineView
from rocm_tui.tui.widgets.tunings import TuningsTable

if TYPE_CHECKING:  # types only: they are loaded in a thread, or with the first filter
    from rocm_tui.config.memory import Memory, Workspace
    from rocm_tui.session.kernel_resources import KernelResources
    from rocm_tui.session.query.grammar import Reading

_LEAST = 4
"""Lines that the choices keep; the lines above them give way."""


class Detail(LineView):
    """A list of choices, with the cursor on one of them, below a short report.

    `marked` holds the names of the choices that a person marked, to compare them.
    """

    BINDING_GROUP_TITLE = "Choices"

    def __init__(self, step: Callable[[Row], str], *, id: str | None = None) -> None:
        """`step` returns the next step for a row."""
        super().__init__(id=id)
        self._step = step
        self.row: Row | None = None
        self.marked: frozenset[str] = frozenset()
        self._footprints: Mapping[str, Footprint] = choice_lines.NOTHING
        self._slots: tuple[Slot, ...] = ()
        self._fitted: object = None
        self._moved = False

    @property
    def current(self) -> Choice | None:
        """The choice under the cursor."""
        if self.row is None or self.cursor >= len(self.row.tuning.choices):
            return None
        return self.row.tuning.choices[self.cursor]

    def show(self, row: Row | None) -> None:
        """Show this tuning. While it is the same, a cursor that was moved stays on its choice,
        and one that was not on the fastest."""
        before, current = self.row, self.current
        self.row = row
        if row is None or before is None or not _same(before, row):
            self.cursor = self.top = 0
            self._moved = False
            self._footprints = choice_lines.NOTHING
            self.marked = frozenset()
        elif self._moved and current is not None and current.hash is not None:
            hashes = [choice.hash for choice in row.tuning.choices]
            if current.hash in hashes:
                self.cursor = hashes.index(current.hash)
        self.sync()

    def show_footprints(self, footprints: Mapping[str, Footprint]) -> None:
        """Show which resources of their GPU the kernels of this tuning use, by choice hash."""
        self._footprints = footprints
        self.sync()

    def mark(self, names: frozenset[str]) -> None:
        """Mark exactly these choices."""
        self.marked = names
        self.sync()

    def mark_current(self) -> None:
        """Mark or unmark the choice under the cursor, and go to the next one."""
        if self.current is not None:
            self.mark(self.marked ^ {choice_lines.name_of(self.current)})
            self.move_cursor(self.cursor + 1)

    def move_cursor(self, index: int) -> None:
        self._moved = True
        super().move_cursor(index)

    def count(self) -> int:
        return len(self.row.tuning.choices) if self.row else 0

    def _layout(self, width: int) -> tuple[Slot, ...]:
        assert self.row is not None
        tuning = self.row.tuning
        state = (width, self.row.key, tuning.choices, tuning.measured, self._footprints)
        if state != self._fitted:
            self._fitted = state
            self._slots = choice_lines.choice_slots(self.row, width, self._footprints)
        return self._slots

    def heading(self, width: int) -> list[Line]:
        row = self.row
        if row is None:
            return []
        head = choice_lines.choice_heading(row, self._layout(width - 2))
        room = self.size.height - 2 - min(_LEAST, self.count())
        report = [whole(line, width) for line in self._report(row, max(1, room))]
        below = [piece for line in report for piece in folded(line, width)]
        return [
            filled(detail_lines.title(row), width),
            *(below if len(below) <= room else report),
            filled(head, width),
        ]

    def _report(self, row: Row, room: int) -> list[Line]:
        """Return the lines above the choices, without the least important ones if room is short."""
        footprints = self._footprints
        takes = detail_lines.takes(self.current, footprints) if footprints else None
        lines = [
            (0, detail_lines.row_verdict(row)),
            (-1, ((f" → {self._step(row)}", "accent"),)),
            *((0.5, line) for line in detail_lines.device_lines(row)),
            (1, detail_lines.suspect(row)),
            (1, detail_lines.measured(row.tuning)),
            (3, detail_lines.cost(row.tuning)),
            (2, detail_lines.pin_line(row)),
            *((2.6, line) for line in beside_lines(row)),
            (2.5, share_line(row.share)),
            (2.2, self._tried(row)),
            (4, self._about_choice()),
            (5, takes),
        ]
        kept = [(rank, line) for rank, line in lines if line is not None]
        while len(kept) > room:
            kept.remove(max(kept, key=lambda ranked: ranked[0]))
        return [line for _, line in kept]

    def _tried(self, row: Row) -> Line | None:
        if row.share is None or row.share.tried is None:
            return None
        from rocm_tui.render.graphs import trial_line

        return trial_line(row.share.tried)

    def _about_choice(self) -> Line:
        """Return the choice under the cursor in full, since the list cuts it; blank without focus.
        For a table of another tuner, whose list shows only blocks, the config."""
        choice = self.current
        if choice is not None and choice.description and self.row and self.row.tuning.entry:
            return ((f" {plain(choice.description)}", "dim"),)
        if choice is None or not self.has_focus:
            return ()
        facts = [choice.label] + ([choice.hash] if choice.hash and choice.name else [])
        if choice.failed:
            facts.insert(0, f"failed: {choice.reason or 'no reason known'}")
        return ((" " + plain(" · ".join(facts)), "dim"),)

    def line(self, index: int, width: int) -> Line:
        assert self.row is not None
        slots = self._layout(width)
        return choice_lines.choice_line(self.row, index, slots, self._footprints, self.marked)


def _same(before: Row, after: Row) -> bool:
    """Return whether two rows are the same tuning; the key changes while a source is rewritten."""
    if before.tuning.device_index != after.tuning.device_index:
        return False
    ids = {*before.ids} & {*after.ids}
    return before.key == after.key or (bool(ids) and before.occurrence == after.occurrence)


_PAUSE = 0.15
"""Seconds that the cursor must rest on a tuning before files are read for it."""
_STEP = 4
"""Columns by which a key moves the border; it moves one line."""
WIDE = 150
"""The minimum columns with the choices beside the table."""
_BESIDE = 72
"""Columns that the choices keep if there is enough room."""
_FEWEST = 36
_LOWEST = 5
"""The minimum columns and lines of both panes, wherever a person puts the border."""


def columns_of_table(width: int, wanted: int) -> int:
    """Return the width of the table: what its columns need, if the choices keep their room."""
    return max(_FEWEST, min(wanted, width - 1 - min(_BESIDE, width * 2 // 5)))


def moved(size: int, by: int, whole: int, *, beside: bool) -> int:
    """Return the table's size with the border moved, as far as both panes keep their minimum."""
    least = _FEWEST if beside else _LOWEST
    return max(least, min(size + by, whole - least))


def size_of(share: float, whole: int, *, beside: bool) -> int:
    """Return the table's size, in cells, for a share of the whole that a person chose."""
    return moved(round(share * whole), 0, whole, beside=beside)


class Panes(Vertical):
    """Two panes, one below or beside the other; the details follow the cursor of the table."""

    DEFAULT_CSS = """
    Panes {
        #panes { height: 1fr; }
        #tunings { width: 1fr; height: 1fr; }
        #detail { width: 1fr; height: 1fr; max-height: 24; }
        &.-split #detail { max-height: 100%; }
        layers: default offers;
        &.-wide #panes { layout: horizontal; }
        &.-wide #detail { max-height: 100%; margin-left: 1; }
    }
    """

    class Moved(Message):
        """Another tuning is under the cursor, or the same one has changed."""

    def __init__(
        self, rows: list[Row], cache_root: Path, step: Callable[[Row, Choice | None], str]
    ) -> None:
        """`step` returns the next step for a row and the choice, or None, that the keys act on."""
        super().__init__(id="all")
        self._rows = rows
        self._mounted = False
        self._cache_root = cache_root
        self._resources: KernelResources | None = None
        self._requested: object = None
        self._wanted = 0
        self._given: tuple[int | None, int | None] = (None, None)
        self._completion: Completion | None = None
        self.table = TuningsTable(self._follow, id="tunings")
        self.detail = Detail(lambda row: step(row, self.chosen), id="detail")
        self.offers = Offers()
        self.filter = FilterBar(
            self._offers, self._past_filters, self._fault, self.offers, id="filter"
        )

    def compose(self) -> ComposeResult:
        yield self.filter
        with Vertical(id="panes"):
            yield self.table
            yield self.detail
        yield self.offers

    def on_mount(self) -> None:
        if not self.is_attached:  # the program ends just now
            return
        self.screen.set_focus(self.table)
        last = self.workspace
        sort = BY_NAME.get(last.recall("sort", "age"))
        if sort is not None:
            self.table.sort_by(sort, reverse=last.recall("reverse", False))
        by, fold, others = (
            last.recall("group", ""),
            last.recall("fold", True),
            last.recall("others", False),
        )
        how = Arrangement(by if by in GROUPS else "", fold=fold, others=others)
        self.table.arrangement = how
        self._mounted = True
        self.show(self._rows)

    def on_resize(self) -> None:
        if self.is_attached:
            self._wanted = 0
            self._place_border()

    # The border between the table and the choices.

    @property
    def _beside(self) -> bool:
        return self.screen.size.width >= WIDE  # as wide as the panes, but known earlier

    @property
    def _whole(self) -> int:
        """The cells that the two panes share, along the axis of their border."""
        return self.screen.size.width if self._beside else self.query_one("#panes").size.height

    @property
    def _share(self) -> str:
        """The name in memory of the table's share in this layout; 0 if nobody chose one."""
        return "split beside" if self._beside else "split below"

    def _place_border(self) -> None:
        """Put the border where the person had it in this layout, else where the columns need it."""
        share, whole = self.memory.recall(self._share, 0.0), self._whole
        self.set_class(self._beside, "-wide")
        self.set_class(0 < share < 1, "-split")
        size = None
        if 0 < share < 1:
            size = size_of(share, whole, beside=self._beside)
        elif self._beside:
            self._wanted = max(self._wanted, self.table.wanted)  # never back: it should not jump
            size = columns_of_table(self.screen.size.width, self._wanted)
        self._give(size)

    def _give(self, size: int | None) -> None:
        """Give the table `size` cells; None leaves it to the style sheet."""
        given = (size, None) if self._beside else (None, size)
        if given != self._given:  # setting a style lays out and paints the whole screen
            self._given = given
            self.table.styles.width, self.table.styles.height = given

    def move_border(self, by: int) -> None:
        """Enlarge the table by `by` steps; with 0 the columns decide again."""
        if not by:
            self.memory.remember(self._share, 0.0)
            self._wanted = 0
            self._place_border()
            return
        size = self.table.size.width if self._beside else self.table.size.height
        self._put_border(size + by * (_STEP if self._beside else 1))

    def _put_border(self, size: int) -> None:
        whole = self._whole
        if whole > 0:
            size = moved(size, 0, whole, beside=self._beside)
            self.memory.remember(self._share, round(size / whole, 4))
            self._place_border()

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Start dragging on the border: the blank beside the choices, or their first line."""
        where, at = self.detail.region, event.screen_offset
        edge = at.x == where.x - 1 if self._beside else at.y == where.y
        if edge and where.y <= at.y < where.bottom and event.button == 1:
            event.stop()
            self.capture_mouse()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if self.app.mouse_captured is self:
            first, at = self.table.region, event.screen_offset
            self._put_border(at.x - first.x if self._beside else at.y - first.y)

    def on_mouse_up(self) -> None:
        self.release_mouse()

    @property
    def memory(self) -> Memory:
        return cast(BaseApp, self.app).memory

    @property
    def workspace(self) -> Workspace:
        return cast(BaseApp, self.app).workspace

    @property
    def inside(self) -> bool:
        """Whether the choices have the focus."""
        return self.screen.focused is self.detail

    @property
    def chosen(self) -> Choice | None:
        """The choice under the cursor, or from the table the fastest."""
        row = self.table.current
        if self.inside or row is None:
            return self.detail.current
        return stats.fastest(row.tuning) or next(iter(row.tuning.choices), None)

    def show(self, rows: list[Row]) -> None:
        """Show these rows, newest first, as soon as the panes are mounted. The row under the cursor
        stays while a person is among its choices."""
        self._rows = rows
        if not self._mounted:
            return
        self.table.show(rows, hold=self.inside)
        if self._beside and self.table.wanted > self._wanted:
            self._place_border()
        self._follow()

    def _follow(self) -> None:
        self.detail.show(self.table.current)
        self._request_resources()
        self.post_message(self.Moved())

    def _request_resources(self) -> None:
        """Load what the kernels of the tuning under the cursor use, if that is known."""
        row = self.table.current
        if row is None:
            self._requested = None  # the details have dropped the footprints
            return
        ours = [choice for choice in row.tuning.choices if has_resources(choice)]
        names = [(choice.hash, choice.description) for choice in ours]
        requested = (row.key, row.tuning.state, row.tuning.compiled, names)
        if requested == self._requested:
            return
        self._requested = requested
        if ours:
            self.run_worker(self._load_resources(row.key, ours), group="resources", exclusive=True)

    async def _load_resources(self, key: str, ours: list[Choice]) -> None:
        await sleep(_PAUSE)
        footprints = await to_thread(self._look_up, ours)
        row = self.table.current
        if row is not None and row.key == key:
            self.detail.show_footprints(footprints)

    def _look_up(self, ours: list[Choice]) -> dict[str, Footprint]:
        """Look the kernels up, in a thread: templates and toolchain take long to load."""
        from rocm_tui.render.side_by_side import footprints
        from rocm_tui.session.kernel_resources import KernelResources

        if self._resources is None:
            self._resources = KernelResources(self._cache_root)
        return footprints(self._resources.of(ours))

    @on(LineView.Chosen, "#tunings")
    def _row_chosen(self) -> None:
        self.enter(choices=True)

    @on(LineView.Chosen, "#detail")
    async def _choice_chosen(self) -> None:
        await self.screen.run_action("screen.key('pin')")

    def enter(self, *, choices: bool) -> None:
        """Go to the choices or to the table."""
        if choices and self.table.current is not None:
            self._follow()  # keys may arrive before the message that the cursor moved
            self.screen.set_focus(self.detail)
        else:
            self.screen.set_focus(self.table)

    def back(self) -> None:
        """Clear the marks, else leave the choices, else clear the filter."""
        if self.inside and self.detail.marked:
            self.detail.mark(frozenset())
        elif self.inside:
            self.screen.set_focus(self.table)
        else:
            self.filter.clear()

    def sort_by(self, field: QueryField, *, reverse: bool = False) -> None:
        self.table.sort_by(field, reverse=reverse)
        self.workspace.remember("sort", field.name)
        self.workspace.remember("reverse", reverse)
        self._follow()

    def group_as(self, how: Arrangement) -> None:
        """Group and fold the rows differently."""
        self.table.group_as(how)
        self.workspace.remember("group", how.by)
        self.workspace.remember("fold", how.fold)
        self.workspace.remember("others", how.others)
        self._follow()

    @on(TuningsTable.SortAsked)
    def _sort_asked(self, event: TuningsTable.SortAsked) -> None:
        again = event.field is self.table.sort
        self.sort_by(event.field, reverse=again and not self.table.reverse)

    # The filter.

    @property
    def saved_filters(self) -> dict[str, str]:
        """The saved filters by name, for `@name`."""
        return self.memory.recall("filters", {})

    def _past_filters(self) -> list[str]:
        return self.memory.recall("filter history", [])

    def _read(self, text: str) -> Reading:
        from rocm_tui.session.query.grammar import read  # with the first filter

        return read(text, self.saved_filters)

    def _fault(self, text: str) -> str:
        """Return the first fault of a filter, or an empty string."""
        return next((fault.what for fault in self._read(text).faults), "")

    def _offers(self, text: str) -> list[Suggestion]:
        if self._completion is None:
            self._completion = self.table.completion(self.saved_filters)
        return self._completion.offers(text)

    async def open_filter(self) -> None:
        self._completion = None
        await self.filter.open()
        self._count()

    @on(FilterBar.Changed)
    def _filter_changed(self, event: FilterBar.Changed) -> None:
        """Filter the rows; meanwhile a half-typed last word that no row matches is ignored."""
        text, _, _ = order_in(event.text)
        reading = self._read(text)
        if event.typing and not self.table.count_passing(reading.query) and self._offers(text):
            reading = self._read(last_word(text)[1])
        self.table.let_through(reading.query, text)
        self._count(reading)
        self._follow()
        if not event.typing and text:
            self.memory.add("filter history", text)

    @on(Offers.Taken)
    def _offer_taken(self, event: Offers.Taken) -> None:
        self.filter.take_offer(event.index)

    def _count(self, reading: Reading | None = None) -> None:
        fault = reading.faults[0].what if reading and reading.faults else ""
        self.filter.count(len(self.table.rows), self.table.total, fault)

    @on(FilterBar.Ordered)
    def _filter_ordered(self, event: FilterBar.Ordered) -> None:
        kept = event.order == "save"
        self.memory.put("filters", event.name, event.text if kept else None)
        self._completion = None
        how = " until this screen ends (read-only)" if self.memory.read_only else ""
        said = f"Saved as @{event.name}{how}: {event.text}" if kept else f"Forgot @{event.name}"
        self.notify(plain(said), markup=False, timeout=4)

    @on(FilterBar.Closed)
    def _filter_closed(self) -> None:
        self.screen.set_focus(self.table)
