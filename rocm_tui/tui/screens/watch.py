"""Watch: the live table of tunings, and all about the one under the cursor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult, SystemCommand
from textual.binding import BindingType
from textual.events import DescendantFocus, Resize
from textual.timer import Timer

from backend.counted import counted
from rocm_tui.tui import watch_keys
from rocm_tui.tui.counts import of_jobs, of_rows, tally
from rocm_tui.tui.screens.base import BaseScreen
from rocm_tui.tui.screens.tuning_actions import TuningActions
from rocm_tui.tui.watch_keys import Spot
from rocm_tui.tui.widgets.line_view import LineView
from rocm_tui.tui.widgets.welcome import Welcome

if TYPE_CHECKING:  # types only: this screen stands before what they need is loaded
    from rocm_tui.launch.program import Program
    from rocm_tui.session.model import Row
    from rocm_tui.tui.devices import Devices
    from rocm_tui.tui.docking import Dock
    from rocm_tui.tui.widgets.panes import Panes

_DEVICES_AFTER = 0.5
"""Seconds from which on it is looked for GPUs: the first screen stands by then."""

_WITHOUT_ROWS = frozenset(
    ("devices", "switch", "switch_back", "back", "border_back", "border_on", "border_reset")
)
"""Keys that do something where no tuning is."""


class WatchScreen(TuningActions):
    """Newest tunings first; a row is painted only when it changed.

    The panes are mounted with the first tuning: what draws them is not needed before.
    """

    AUTO_FOCUS = "#welcome"
    LEAVE = ("q", "quit", "app.close")
    BINDINGS: ClassVar[list[BindingType]] = [*watch_keys.bindings()]
    _seconds: Timer | None = None

    def __init__(
        self,
        make_panes: Callable[[list[Row]], Panes],
        make_devices: Callable[[BaseScreen], Devices],
        make_dock: Callable[[BaseScreen], Dock],
    ) -> None:
        super().__init__()
        self._make_panes = make_panes
        self._counts: list[str] = []
        self._tally = tally()
        self._make_devices = make_devices
        self._make_dock = make_dock
        self._standing = False

    def compose_body(self) -> ComposeResult:
        yield Welcome(self.program.paths, alone=self.program.launched is None)

    def on_mount(self) -> None:
        self.show_title("Watch", [])
        self._keys()
        if self.program.launched is not None:
            self._seconds = self.set_interval(1.0, self._welcome)
        self.set_timer(_DEVICES_AFTER, self._look_around)

    def _look_around(self) -> None:
        self._standing = True
        self._devices.begin()
        self._dock.begin()
        self.program.look_for_misses()
        self._keys()

    @cached_property
    def _dock(self) -> Dock:
        """The output below the panes."""
        return self._make_dock(self)

    def on_resize(self, event: Resize) -> None:
        if self._standing:
            self._dock.resized()

    def on_screen_resume(self) -> None:
        if self.docked:
            self._dock.resumed()

    @property
    def docked(self) -> bool:
        """Whether the output stands below the panes."""
        return bool(self.query("#output"))

    def dock(self, program: Program | None) -> None:
        """Show its output below the panes and go there; None: put it away."""
        if program is not None:
            self._dock.show(program)
        else:
            self._dock.hide()
            self._to_table()

    @cached_property
    def _devices(self) -> Devices:
        """The strip of devices, which is nothing before it is needed."""
        return self._make_devices(self)

    @property
    def spot(self) -> Spot | None:
        """Where the person is, for the table of keys; None where no tuning is."""
        row, panes = self.row, self.panes
        if row is None or panes is None:
            return None
        marked = panes.detail.marked
        return Spot(row, panes.chosen, marked, panes.inside, self.job is not None)

    # Following the model.

    def update(self) -> None:
        """Show what the model holds now."""
        rows = self.program.feed.model.listed()
        self._counts = of_rows(rows, self._tally)
        if self.panes is not None:
            self.panes.show(rows)
        elif rows:
            self._open_panes()
        else:
            self._welcome()
        self.describe()  # the title is painted with the rows

    def _open_panes(self) -> None:
        self.panes = self._make_panes(self.program.feed.model.listed())
        if self._seconds is not None:
            self._seconds.stop()
        self.call_later(self._replace_welcome, self.panes)

    async def _replace_welcome(self, panes: Panes) -> None:
        with self.app.batch_update():  # else nothing stands there in between
            await self.query_one("#body").mount(panes, before=0)
            await self.query_one("#welcome").remove()

    def tick(self) -> None:
        """Time has passed."""
        if self.panes is not None:
            self.panes.table.tick()
        else:
            self._welcome()

    def _welcome(self) -> None:
        for welcome in self.query(Welcome):
            told = self.program.doing_lines(welcome.size.width, tail=not self.docked)
            feed = self.program.feed
            welcome.put(feed.watcher.sources(), told, read=feed.read)

    def commands(self) -> Iterator[SystemCommand]:
        panes = self.panes
        if panes is None:
            return
        for field in (field for field in panes.table.sorts if field is not panes.table.sort):
            sort = partial(panes.sort_by, field)
            yield SystemCommand(f"tunings: Sort by {field.called}", "Key s", sort)
        for name, text in panes.saved_filters.items():
            take = partial(panes.filter.take, f"@{name}")
            yield SystemCommand(f"tunings: Filter @{name}", text, take)
        for name, beside, action in watch_keys.commands(self.spot, self.program.read_only):
            yield SystemCommand(name, beside, partial(self.run_action, action))

    def describe(self) -> None:
        """Bring the title and the keys up to date."""
        problems = self.program.count_troubles()
        facts = [*self._counts, *self.program.doing_facts(), *of_jobs(self.program.unfinished)]
        facts += [f"{counted(problems, 'problem')} (S)"] if problems else []
        notice = ""
        if self.panes is not None:
            table = self.panes.table
            facts.append(f"sort: {table.sort.called}{' reversed' * table.reverse}")
            facts += [f"by {table.arrangement.by}"] if table.arrangement.by else []
            notice = f"{table.unseen} new ↑ home" if table.unseen else ""
        self.show_title("Watch", facts, notice)
        self._keys()

    def _keys(self) -> None:
        spot = self.spot
        read_only = self.program.read_only
        keys, idle = watch_keys.footer(spot, read_only) if spot else ([], frozenset())
        keys += [("C", "report", "app.open('report')")] if spot else []
        known = self._dock.known if self._standing else self.program.launched is not None
        keys += [("O", "output", "app.output")] if known else []
        views = (("J", "jobs"), ("P", "pins"), ("L", "sessions"), ("S", "sources"))
        self.show_keys([*keys, *((key, name, f"app.open('{name}')") for key, name in views)], idle)

    def on_panes_moved(self) -> None:
        self.describe()

    @on(LineView.CursorMoved, "#detail")
    def _choice_moved(self) -> None:
        self._keys()

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        self._keys()

    # Keys.

    async def action_key(self, id: str) -> None:
        """Do what the key of this id does, or say why it does nothing here."""
        panes = self.panes
        if id == "mark" and panes is not None and not panes.inside and panes.table.turn():
            return
        entry, read_only, spot = watch_keys.by_id(id), self.program.read_only, self.spot
        why_not = entry.why_not(spot, read_only) if panes else None
        if id == "tune" and spot is None and self.program.missed:
            self.tune_missed()
        elif why_not:
            self.program.refuse(why_not)
        elif self.panes is not None or id in _WITHOUT_ROWS:
            await self.run_action(f"screen.{id}")

    def action_devices(self) -> None:
        self._devices.toggle()

    def action_switch(self, by: int = 1) -> None:
        """From the table to the choices, the output, the table."""
        stops = [self.panes.table, self.panes.detail] if self.panes else []
        stops += self.query("#output-lines").results(LineView)
        at = stops.index(self.focused) if self.focused in stops else -1
        if stops:
            to = stops[(at + by) % len(stops)]
            if self.panes is not None and to is self.panes.detail:
                self.panes.enter(choices=True)
            else:
                self.set_focus(to)

    def action_switch_back(self) -> None:
        self.action_switch(-1)

    def _to_table(self) -> None:
        if self.panes is not None:
            self.panes.enter(choices=False)

    @on(LineView.Chosen, "#output-lines")
    async def _output_chosen(self) -> None:
        await self.run_action("app.output")

    def _move_border(self, by: int) -> None:
        if self.focused is not None and self.focused.id == "output-lines":
            self._dock.grow(-by)
        elif self.panes is not None:
            self.panes.move_border(by)

    def action_border_back(self) -> None:
        self._move_border(-1)

    def action_border_on(self) -> None:
        self._move_border(1)

    def action_border_reset(self) -> None:
        self._move_border(0)

    def action_details(self) -> None:
        if self.panes is not None:
            self.panes.enter(choices=True)

    def action_table(self) -> None:
        self._to_table()

    def action_sort(self) -> None:
        if self.panes is not None:
            self.panes.sort_by(self.panes.table.following_sort)

    def action_reverse(self) -> None:
        if self.panes is not None:
            self.panes.sort_by(self.panes.table.sort, reverse=not self.panes.table.reverse)

    def action_group(self) -> None:
        if self.panes is not None:
            self.panes.group_as(self.panes.table.arrangement.next)

    def action_fold(self) -> None:
        if self.panes is not None:
            how = self.panes.table.arrangement
            self.panes.group_as(replace(how, fold=not how.fold))

    async def action_filter(self) -> None:
        if self.panes is not None:
            await self.panes.open_filter()

    def action_back(self) -> None:
        if self.panes is None:
            self.set_focus(None)
        elif self.focused is not None and self.focused.id == "output-lines":
            self._to_table()
        else:
            self.panes.back()

    def filter_by(self, text: str) -> None:
        """Let this be the filter, as if it had been typed."""
        if self.panes is not None:
            self.panes.enter(choices=False)
            self.panes.filter.take(text)
        else:
            self.program.warn("No tuning yet.")

    def go_to(self, row: Row) -> None:
        """Put the cursor on this tuning, if the filter lets it through."""
        if self.panes is not None:
            self.panes.enter(choices=False)
            if not self.panes.table.go_to(row):
                self.program.warn("The filter hides that tuning.")
