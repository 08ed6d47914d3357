"""Watch: the live table of tunings, and all about the one under the cursor."""

from __future__ import annotations

from asyncio import sleep, to_thread
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.events import DescendantFocus

from rocm_tui.harmless import plain
from rocm_tui.render.problems import troubles
from rocm_tui.screens.base import BaseScreen
from rocm_tui.session.numbers import shorten
from rocm_tui.widgets.line_view import Line, LineView
from rocm_tui.widgets.one_line import Key, KeyBar

if TYPE_CHECKING:
    from backend.records import Choice
    from rocm_tui.job_queue import Job
    from rocm_tui.render.choices import Footprint
    from rocm_tui.session.kernel_resources import KernelResources
    from rocm_tui.session.model import Row
    from rocm_tui.widgets.panes import Panes

_PAUSE = 0.15
"""Seconds that the cursor must rest on a tuning before files are read for it."""


class Welcome(LineView):
    """What stands there before the first tuning."""

    def __init__(self, paths: list[str]) -> None:
        super().__init__(id="welcome")
        self._paths = paths
        self._states: Mapping[str, str] = {}

    def tell(self, states: Mapping[str, str]) -> None:
        """How each source is, by path."""
        self._states = states
        self.sync()

    def count(self) -> int:
        return 0

    def empty(self, width: int) -> list[Line]:
        more = f" and {len(self._paths) - 1} more" if len(self._paths) > 1 else ""
        run, demo = "rocm-tui run -- python train.py", "rocm-tui demo"
        return [
            (),
            (("  No tuning yet.", "strong"),),
            (),
            (("  A row appears here for each operation that torch.compile tunes with", ""),),
            (("  max_autotune: its choices, their times, and which one wins.", ""),),
            (),
            ((f"  {run:<34}", "accent"), ("your own program, unchanged", "dim")),
            ((f"  {demo:<34}", "accent"), ("a small model, right now", "dim")),
            (),
            ((f"  Watching {plain(self._paths[0])}{more}", "dim"),),
            *self._trouble(width),
        ]

    def _trouble(self, width: int) -> list[Line]:
        """What keeps sources from being read: a wrong path should not look like a quiet one."""
        words = {"waiting": "is not there yet", "unreadable": "cannot be read (S says why)"}
        return [
            ((f"  {shorten(plain(path), max(20, width - 32))} {words[state]}", "warn"),)
            for path, state in self._states.items()
            if state in words
        ]


class WatchScreen(BaseScreen):
    """Newest tunings first; a row is painted only when it changed.

    The panes are mounted with the first tuning: what draws them is not needed before.
    """

    AUTO_FOCUS = "#welcome"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "Filter the tunings", id="watch.filter"),
        Binding("s", "sort", "Sort by the next column", id="watch.sort"),
        Binding("p", "pin", "Pin a choice", id="watch.pin"),
        Binding("u", "unpin", "Take the pin back", id="watch.unpin"),
        Binding("space", "mark", "Mark a choice", id="watch.mark"),
        Binding("c", "compare", "Compare choices", id="watch.compare"),
        Binding("t", "tune", "Tune again", id="watch.tune"),
        Binding("m", "measure", "Measure again and again", id="watch.measure"),
        Binding("x", "cancel", "Cancel the job", id="watch.cancel"),
        Binding("y", "copy", "Copy", id="watch.copy"),
        Binding("tab", "switch", "Other pane", id="watch.switch"),
        Binding("shift+tab", "switch", "Other pane", show=False, id="watch.switch_back"),
        Binding("l,right", "details", "To the choices", show=False, id="watch.details"),
        Binding("h,left", "table", "To the table", show=False, id="watch.table"),
        Binding("escape", "back", "Clear the filter, or back to the table", id="watch.back"),
    ]
    panes: Panes | None = None
    _resources: KernelResources | None = None
    _asked: object = None

    def compose_body(self) -> ComposeResult:
        yield Welcome(self.program.paths)

    def on_mount(self) -> None:
        self.show_title("Watch", [])
        self._keys()

    @property
    def row(self) -> Row | None:
        """The tuning under the cursor."""
        return self.panes.table.current if self.panes else None

    # Following the model.

    def update(self) -> None:
        """Show what the model holds now."""
        rows = self.program.feed.model.rows()
        if self.panes is None and rows:
            self._open_panes()
        if self.panes is not None and self.panes.is_mounted:
            self.panes.show(rows)
        else:
            self._welcome()
            self.describe()

    def _open_panes(self) -> None:
        from rocm_tui.widgets.panes import Panes

        self.panes = Panes(self.program.feed.model.rows())
        self.query_one("#body").mount(self.panes)
        self.query_one("#welcome").remove()

    def tick(self) -> None:
        """Time has passed."""
        if self.panes is not None:
            self.panes.table.tick()
        else:
            self._welcome()

    def _welcome(self) -> None:
        states = {one.path: one.state for one in self.program.feed.watcher.sources()}
        for welcome in self.query(Welcome):
            welcome.tell(states)

    def describe(self) -> None:
        """Bring the title and the keys up to date."""
        model = self.program.feed.model
        rows = model.rows()
        running = sum(row.tuning.state == "running" for row in rows)
        problems = len(troubles(model.problems))
        facts = [f"{len(rows)} tunings" if len(rows) != 1 else "1 tuning"]
        facts += [f"{running} running"] if running else []
        facts += _of_jobs(self.program.unfinished)
        facts += [f"{problems} problem{'s' * (problems != 1)} (S)"] if problems else []
        notice = ""
        if self.panes is not None:
            table = self.panes.table
            facts.append(f"sort: {table.sort}")
            notice = f"{table.unseen} new ↑ g" if table.unseen else ""
        self.show_title("Watch", facts, notice)
        self._keys()

    def _keys(self) -> None:
        keys: list[Key] = []
        row = self.row
        if row is not None and self.panes is not None:
            keys.append(("p", "pin", "pin"))
            keys += [("u", "unpin", "unpin")] if row.pin else []
            keys += [("x", "cancel", "cancel")] if self.program.unfinished else []
            keys += [("space", "mark", "mark")] if self.panes.inside else []
            keys += [("t", "tune", "tune"), ("m", "measure", "measure")]
            keys.append(("c", "compare", "compare"))
            keys.append(("tab", "table" if self.panes.inside else "choices", "switch"))
            keys += [("/", "filter", "filter"), ("s", "sort", "sort"), ("y", "copy", "copy")]
            keys.append(("C", "report", "app.report"))
        keys += [("J", "jobs", "app.jobs"), ("P", "pins", "app.pins")]
        keys.append(("S", "sources", "app.sources"))
        keys += [("?", "help", "app.help"), ("q", "quit", "app.quit")]
        self.query_one("#keys", KeyBar).show(keys)

    def on_panes_moved(self) -> None:
        self.describe()
        self._ask_resources()

    def _ask_resources(self) -> None:
        """What the kernels of the tuning under the cursor take, where that can be known."""
        row = self.row
        if row is None:
            self._asked = None  # the details have forgotten what was told
            return
        from rocm_tui.session.providers import template_of

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
        told = await to_thread(self._look_up, ours)
        if self.panes is not None and self.row is not None and self.row.key == key:
            self.panes.detail.tell(told)

    def _look_up(self, ours: list[Choice]) -> dict[str, Footprint]:
        from rocm_tui.render.resources import tell
        from rocm_tui.session.kernel_resources import KernelResources

        if self._resources is None:
            self._resources = KernelResources(self.program.layout.root)
        return tell(self._resources.of(ours))

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        self._keys()

    # Keys.

    def action_switch(self) -> None:
        if self.panes is not None:
            self.panes.enter(choices=not self.panes.inside)

    def action_details(self) -> None:
        if self.panes is not None:
            self.panes.enter(choices=True)

    def action_table(self) -> None:
        if self.panes is not None:
            self.panes.enter(choices=False)

    def action_sort(self) -> None:
        if self.panes is not None:
            self.panes.sort_by(self.panes.table.following_sort)

    async def action_filter(self) -> None:
        if self.panes is not None:
            await self.panes.open_filter()

    def action_back(self) -> None:
        if self.panes is not None:
            self.panes.back()

    def action_pin(self) -> None:
        row = self.row
        choice = self.panes.chosen if self.panes else None
        if row is None or choice is None:
            return
        from rocm_tui.screens.pinning import pin

        self.run_worker(pin(self.program, row, choice), group="pin")

    def action_unpin(self) -> None:
        row = self.row
        if row is None:
            return
        if row.pin is None:
            self.notify("This tuning is not pinned.", severity="warning", markup=False)
            return
        from rocm_tui.screens.pinning import unpin

        self.run_worker(unpin(self.program, row.pin), group="pin")

    def action_mark(self) -> None:
        if self.panes is not None and self.panes.inside:
            self.panes.detail.mark_current()

    def action_compare(self) -> None:
        """The marked choices of the tuning under the cursor, or those near the best."""
        row = self.row
        if row is None or self.panes is None or not row.tuning.choices:
            return
        from rocm_tui.screens.compare import CompareScreen

        self.app.push_screen(CompareScreen(row, self.panes.detail.marked))

    def go_to(self, row: Row) -> None:
        """Put the cursor on this tuning, if the filter lets it through."""
        if self.panes is not None:
            self.panes.enter(choices=False)
            if not self.panes.table.go_to(row):
                self.notify("The filter hides that tuning.", severity="warning", markup=False)

    def action_tune(self) -> None:
        row = self.row
        if row is None:
            return
        from rocm_tui.screens.tuning import ask_and_tune

        self.run_worker(ask_and_tune(self.program, row), group="tune")

    def action_measure(self) -> None:
        """The marked choices of the tuning under the cursor, or those near the best."""
        row = self.row
        if row is None or self.panes is None:
            return
        from rocm_tui.screens.measure import measure_row

        measure_row(self.program, row, self.panes.detail.marked)

    def action_cancel(self) -> None:
        """End the job about the tuning under the cursor."""
        row = self.row
        if row is None:
            return
        job = self.program.jobs.about(row.tuning, {row.id, *row.aliases})
        if job is None:
            text = "No job of this screen is about this tuning; J lists the jobs."
            self.notify(text, severity="warning", markup=False)
        else:
            self.program.jobs.cancel(job.id)

    def action_copy(self) -> None:
        row = self.row
        if row is None or self.panes is None:
            return
        choice = self.panes.chosen
        if self.panes.inside and choice is not None:
            self.program.copy(choice.hash or choice.label, f"the choice {choice.label}")
        else:
            self.program.copy(row.id, "the tuning's id, for show, pin and verify")


def _of_jobs(jobs: list[Job]) -> list[str]:
    """`1 job running (J)`; queued ones count too."""
    if not jobs:
        return []
    return [f"{len(jobs)} jobs running (J)" if len(jobs) > 1 else "1 job running (J)"]
