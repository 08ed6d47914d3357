"""The table, the tuning under its cursor, and the filter above both."""

from __future__ import annotations

from asyncio import sleep, to_thread
from pathlib import Path
from typing import TYPE_CHECKING, cast

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.message import Message
from textual.widgets import Input

from backend.model.choice import Choice
from backend.model.origin import template_of
from rocm_tui.harmless import plain
from rocm_tui.session import stats
from rocm_tui.session.model import Row
from rocm_tui.session.query.fields import BY_NAME, QueryField
from rocm_tui.session.query.grammar import read
from rocm_tui.tui.host import Host
from rocm_tui.tui.widgets.detail import Detail
from rocm_tui.tui.widgets.line_view import LineView
from rocm_tui.tui.widgets.one_line import OneLine
from rocm_tui.tui.widgets.tunings import TuningsTable

if TYPE_CHECKING:  # types only: they are loaded in a thread
    from rocm_tui.config.memory import Memory
    from rocm_tui.render.choices import Footprint
    from rocm_tui.session.kernel_resources import KernelResources


class FilterBar(Horizontal):
    """Words to match, and a banner for as long as they hide something. Hidden without a filter.

    Enter keeps the filter, escape clears it.
    """

    DEFAULT_CSS = """
    FilterBar {
        height: 1; display: none; background: $background;
        &.-open, &.-active { display: block; }
        Input { display: none; width: 2fr; margin-left: 1; background: $background; }
        &.-open Input { display: block; }
        OneLine { width: 3fr; }
    }
    """

    class Changed(Message):
        """The words changed."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Closed(Message):
        """The person is done typing."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.text = ""

    def compose(self) -> ComposeResult:
        yield OneLine(id="banner")

    async def open(self) -> None:
        """Let the person type."""
        self.add_class("-open")
        if not self.query(Input):
            entry = Input(
                self.text, placeholder="words: op, shape, type, choice, pinned", compact=True
            )
            await self.mount(entry, before=0)
        self.query_one(Input).focus()

    def clear(self) -> None:
        """Show everything again."""
        if self.query(Input):
            self.query_one(Input).value = ""
        self._close()

    def count(self, passed: int, total: int) -> None:
        """Say what the filter does."""
        banner = self.query_one("#banner", OneLine)
        if self.text:
            text = plain(self.text)
            what = f" filter active: {text}" if not self.has_class("-open") else " filter active"
            banner.put(((what, "title"), (f"  {passed} of {total} · esc clears", "head")))
        else:
            banner.put(((" filter", "title"), ("  words that a row must hold", "head")))

    def _close(self) -> None:
        self.remove_class("-open")
        self.post_message(self.Closed())

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        self.text = event.value.strip()
        self.set_class(bool(self.text), "-active")
        self.post_message(self.Changed(self.text))

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._close()
        self.post_message(self.Changed(self.text))

    def on_key(self, event: events.Key) -> None:
        if event.key == "escape":
            event.stop()
            self.clear()


_PAUSE = 0.15
"""Seconds that the cursor must rest on a tuning before files are read for it."""
WIDE = 150
"""Columns from which the details stand beside the table."""


class Panes(Vertical):
    """Two panes, one below or beside the other; the details follow the cursor of the table."""

    DEFAULT_CSS = """
    Panes {
        #panes { height: 1fr; }
        #tunings { width: 1fr; height: 1fr; }
        #detail { width: 1fr; height: 1fr; max-height: 24; }
        &.-wide #panes { layout: horizontal; }
        &.-wide #tunings { width: 3fr; }
        &.-wide #detail { width: 2fr; max-height: 100%; margin-left: 1; }
    }
    """

    class Moved(Message):
        """Another tuning is under the cursor, or the same one has changed."""

    def __init__(self, rows: list[Row], cache_root: Path) -> None:
        super().__init__(id="all")
        self._rows = rows
        self._cache_root = cache_root
        self._resources: KernelResources | None = None
        self._asked: object = None
        self.table = TuningsTable(id="tunings")
        self.detail = Detail(id="detail")
        self.filter = FilterBar(id="filter")

    def compose(self) -> ComposeResult:
        yield self.filter
        with Vertical(id="panes"):
            yield self.table
            yield self.detail

    def on_mount(self) -> None:
        self.screen.set_focus(self.table)
        sort = BY_NAME.get(self.memory.recall("sort", "age"))
        if sort is not None:
            self.table.sort_by(sort, reverse=self.memory.recall("reverse", False))
        self.show(self._rows)

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(event.size.width >= WIDE, "-wide")

    @property
    def memory(self) -> Memory:
        return cast(Host, self.app).memory

    @property
    def inside(self) -> bool:
        """Whether the person is among the choices."""
        return self.screen.focused is self.detail

    @property
    def chosen(self) -> Choice | None:
        """The choice under the cursor, or from the table the fastest."""
        row = self.table.current
        if self.inside or row is None:
            return self.detail.current
        return stats.fastest(row.tuning) or next(iter(row.tuning.choices), None)

    def show(self, rows: list[Row]) -> None:
        """Show these rows, newest first; the cursor's stays while a person is inside."""
        self.table.show(rows, hold=self.inside)
        self._follow()

    def _follow(self) -> None:
        self.detail.show(self.table.current)
        self._ask_resources()
        self.post_message(self.Moved())

    def _ask_resources(self) -> None:
        """What the kernels of the tuning under the cursor take, where that can be known."""
        row = self.table.current
        if row is None:
            self._asked = None  # the details have forgotten what was told
            return
        ours = [choice for choice in row.tuning.choices if template_of(choice)]
        names = [(choice.hash, choice.description) for choice in ours]
        asked = (row.key, row.tuning.state, row.tuning.compiled, names)
        if asked == self._asked:
            return
        self._asked = asked
        if ours:
            self.run_worker(self._tell_resources(row.key, ours), group="resources", exclusive=True)

    async def _tell_resources(self, key: str, ours: list[Choice]) -> None:
        await sleep(_PAUSE)
        footprints = await to_thread(self._look_up, ours)
        row = self.table.current
        if row is not None and row.key == key:
            self.detail.show_footprints(footprints)

    def _look_up(self, ours: list[Choice]) -> dict[str, Footprint]:
        """In a thread, where the templates and the toolchain are loaded, which takes long."""
        from rocm_tui.render.side_by_side import tell
        from rocm_tui.session.kernel_resources import KernelResources

        if self._resources is None:
            self._resources = KernelResources(self._cache_root)
        return tell(self._resources.of(ours))

    @on(LineView.CursorMoved, "#tunings")
    def _cursor_moved(self) -> None:
        self._follow()

    @on(LineView.Chosen, "#tunings")
    def _row_chosen(self) -> None:
        self.enter(choices=True)

    @on(LineView.Chosen, "#detail")
    async def _choice_chosen(self) -> None:
        await self.screen.run_action("screen.key('pin')")

    def enter(self, *, choices: bool) -> None:
        """Go to the choices or to the table."""
        if choices and self.table.current is not None:
            self._follow()  # keys may come faster than the message that the cursor moved
            self.screen.set_focus(self.detail)
        else:
            self.screen.set_focus(self.table)

    def back(self) -> None:
        """Take the marks away, else out of the details, else out of the filter."""
        if self.inside and self.detail.marked:
            self.detail.mark(frozenset())
        elif self.inside:
            self.screen.set_focus(self.table)
        else:
            self.filter.clear()

    def sort_by(self, field: QueryField, *, reverse: bool = False) -> None:
        self.table.sort_by(field, reverse=reverse)
        self.memory.remember("sort", field.name)
        self.memory.remember("reverse", reverse)
        self._follow()

    @on(TuningsTable.SortAsked)
    def _sort_asked(self, event: TuningsTable.SortAsked) -> None:
        again = event.field is self.table.sort
        self.sort_by(event.field, reverse=again and not self.table.reverse)

    async def open_filter(self) -> None:
        await self.filter.open()

    @on(FilterBar.Changed)
    def _filter_changed(self, event: FilterBar.Changed) -> None:
        self.table.let_through(read(event.text).query, event.text)
        self.filter.count(len(self.table.rows), self.table.total)
        self._follow()

    @on(FilterBar.Closed)
    def _filter_closed(self) -> None:
        self.screen.set_focus(self.table)
