"""Watch: the live table of tunings, and the details of the tuning under the cursor."""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual import on
from textual.app import App, ComposeResult, SystemCommand
from textual.binding import BindingType
from textual.events import DescendantFocus, Resize
from textual.timer import Timer

from backend.counted import counted
from rocm_tui.harmless import plain
from rocm_tui.session.numbers import shorten
from rocm_tui.tui import watch_keys
from rocm_tui.tui.base import BaseScreen, after
from rocm_tui.tui.keys import Key, own_key, written
from rocm_tui.tui.watch_keys import Spot
from rocm_tui.tui.widgets.line_view import LineView

if TYPE_CHECKING:  # types only: this screen is shown before these modules are loaded
    from backend.model.choice import Choice
    from rocm_tui.actions.cover import Missed
    from rocm_tui.ingest.records import SourceStatus
    from rocm_tui.jobs.queue import Job
    from rocm_tui.launch.program import Program
    from rocm_tui.render.next_step import Situation
    from rocm_tui.render.table import Line
    from rocm_tui.session.model import Row
    from rocm_tui.tui.widgets.device_strip import Devices
    from rocm_tui.tui.widgets.output import Dock
    from rocm_tui.tui.widgets.panes import Panes

_DEVICES_AFTER = 0.5
"""Seconds before the first search for GPUs: the first screen has been painted by then."""

_MISSES_AFTER, _MISSES_EVERY = 1.0, 60.0
"""Seconds before the first search for misses in logs, and between two searches."""

_NARROW_TITLE = 110
"""Columns of the screen below which the title is abbreviated."""
_TORCH_AGAIN = 30.0
"""Seconds before the next search for a Python with torch if there was none."""

_BEFORE_VIEWS = 4
"""Keys about the tuning that precede those of other views in the line of keys."""

_WITHOUT_ROWS = frozenset(
    ("devices", "switch", "switch_back", "back", "border_back", "border_on", "border_reset")
)
"""Keys that work without a tuning."""


class WatchScreen(BaseScreen):
    """Newest tunings first; a row is painted only when it changed.

    `panes` are mounted with the first tuning: their modules are not needed before.
    """

    PLACE = "Watch"
    AUTO_FOCUS = "#welcome"
    LEAVE = ("q", "quit", "app.close")
    BINDINGS: ClassVar[list[BindingType]] = [entry.binding for entry in watch_keys.KEYS]
    _seconds: Timer | None = None

    def __init__(self) -> None:
        super().__init__()
        self.panes: Panes | None = None
        self._complete = False
        self._sizes: _Sizes = []
        self._searching = False
        self._no_torch = False
        self._rows: list[Row] = []
        self._counted: tuple[list[Row], Sequence[Row], list[str]] | None = None

    def compose_body(self) -> ComposeResult:
        yield Welcome(self.program.paths, alone=self.program.launched is None)

    def on_mount(self) -> None:
        self.show_title([])
        self._keys()
        if self.program.launched is not None:
            self._seconds = self.set_interval(1.0, self._welcome)
        after(self, _DEVICES_AFTER, self._complete_screen)

    def _complete_screen(self) -> None:
        self._complete = True
        self._devices.begin()
        self._dock.begin()
        after(self, _MISSES_AFTER, self._look_for_misses)
        after(self, _MISSES_AFTER, self._look_for_torch)
        self.set_interval(_MISSES_EVERY, self._look_for_misses)
        self._keys()

    @cached_property
    def _dock(self) -> Dock:
        """The output below the panes."""
        from rocm_tui.tui.widgets.output import Dock

        return Dock(self)

    def on_resize(self, event: Resize) -> None:
        self.describe()  # the title has another length
        if self._complete:
            self._dock.resized()

    def on_screen_resume(self) -> None:
        if self.docked:
            self._dock.resumed()

    @property
    def docked(self) -> bool:
        """Whether the output is shown below the panes."""
        return bool(self.query("#output"))

    def dock(self, program: Program | None) -> None:
        """Show a program's output below the panes and focus it; None hides the pane."""
        if program is not None:
            self._dock.show(program)
        else:
            self._dock.hide()
            self._to_table()

    @cached_property
    def _devices(self) -> Devices:
        """The strip of devices, loaded when it is first needed."""
        from rocm_tui.tui.widgets.device_strip import Devices

        return Devices(self)

    @property
    def row(self) -> Row | None:
        """The tuning under the cursor."""
        return self.panes.table.current if self.panes else None

    @property
    def job(self) -> Job | None:
        """The job about the tuning under the cursor."""
        return self._job_about(self.row)

    def _job_about(self, row: Row | None) -> Job | None:
        if row is None or not self.program.unfinished:
            return None
        return self.program.jobs.about(row.tuning, {*row.ids})

    @property
    def spot(self) -> Spot | None:
        """The person's position, for the table of keys; None without a tuning."""
        row, panes = self.row, self.panes
        if row is None or panes is None:
            return None
        marked = panes.detail.marked
        return Spot(row, panes.chosen, marked, panes.inside, self.job is not None)

    def _next_step(self, row: Row, choice: Choice | None) -> str:
        """Return the next step for a row whose keys act on `choice`."""
        from rocm_tui.render.next_step import next_step

        return next_step(row, self._situation(row, choice))

    def _situation(self, row: Row, choice: Choice | None) -> Situation:
        from rocm_tui.render.next_step import Situation

        job = self._job_about(row)
        spot = Spot(row, choice, frozenset(), False, job is not None)
        stays = self.program.stays_read_only
        off = "restart with --no-read-only" if stays else "turn it off (ctrl+r)"
        return Situation(
            can=lambda id: watch_keys.by_id(id).why_not(spot, read_only=False) is None,
            key=self._key_of,
            chosen=choice,
            job=f"{job.kind} is {job.state}" if job else "",
            locked=off if self.program.read_only else "",
            no_torch=self._no_torch,
        )

    def _key_of(self, id: str) -> str:
        """Return the first key of this id in the table of keys, as it is written."""
        entry = watch_keys.by_id(id)
        own = own_key(self, entry.action, self.program.own_keys)
        return own or written(entry.keys.partition(",")[0])

    # Following the model.

    def update(self) -> None:
        """Show the current rows of the model."""
        self._rows = rows = self.program.feed.model.listed()
        if self.panes is not None:
            self.panes.show(rows)
        elif rows:
            self._open_panes()
        else:
            self._welcome()
        self.describe()  # the title is painted with the rows

    def _open_panes(self) -> None:
        from rocm_tui.tui.widgets.panes import Panes

        rows = self.program.feed.model.listed()
        self.panes = Panes(rows, self.program.layout.root, self._next_step)
        if self._seconds is not None:
            self._seconds.stop()
        self.call_later(self._replace_welcome, self.panes)

    async def _replace_welcome(self, panes: Panes) -> None:
        with self.app.batch_update():  # else the screen is empty in between
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
            feed = self.program.feed
            lines = self._program_lines(welcome.size.width)
            welcome.put(feed.watcher.sources(), lines, self.program.missed, read=feed.read)

    def _program_lines(self, width: int) -> list[Line]:
        """Describe the programs, with the end of the output of the one that was started here."""
        launched, processes = self.program.launched, self.program.feed.model.processes
        if launched is None and processes.latest is None:
            return []
        from rocm_tui.render.problems import why_no_tuning
        from rocm_tui.render.table import folded
        from rocm_tui.tui.processes import lines

        shown = lines(launched, processes, width, tail=not self.docked)
        if why := why_no_tuning(self.program.feed.model):
            shown += [(), *folded(((f"  No tuning: {why}.", "warn"),), width)]
        return shown

    def _title_facts(self) -> list[str]:
        """Return the facts of the title, the most important first."""
        model = self.program.feed.model
        hidden = self.panes.table.hidden if self.panes is not None else ()
        counts = self._counts_of(self._rows, hidden)
        facts = counts[:1] if counts[0][0] != "0" or self.program.feed.read else []
        if hidden:
            others = _others_text(hidden, short=self.size.width < _NARROW_TITLE)
            facts.append(f"+{others}: {self._key_of('others')}")
        if model.problems:
            from rocm_tui.render.problems import troubles

            facts.append(f"{counted(len(troubles(model.problems)), 'problem')} (7)")
        facts += _job_counts(self.program.unfinished)
        if missed := self.program.missed:
            facts.append(f"{sum(log.products + log.nameless for log in missed):,} missed (7)")
        launched, processes = self.program.launched, model.processes
        if launched is not None or processes.live:
            from rocm_tui.tui.processes import facts as program_facts

            facts += program_facts(launched, processes)
        return facts + counts[1:]

    def _counts_of(self, rows: list[Row], hidden: Sequence[Row]) -> list[str]:
        """Return the counts of rows, cached: moving the cursor should not count ten thousand rows
        again."""
        before = self._counted
        if before is None or before[0] is not rows or before[1] is not hidden:
            self._counted = before = rows, hidden, _row_counts(rows, hidden)
        return before[2]

    def _look_for_torch(self) -> None:
        if not self.program.read_only:
            self.run_worker(self._find_torch(), group="torch", exclusive=True)

    async def _find_torch(self) -> None:
        """Search for a Python with torch, as the first job will: without it no key that starts a
        job is recommended."""
        from rocm_tui.environment import NoTorchPython, find_python

        before = self._no_torch
        try:
            await self.in_thread(find_python, self.program.python)
            self._no_torch = False
        except NoTorchPython:
            self._no_torch = True
            after(self, _TORCH_AGAIN, self._look_for_torch)  # a person may install it
        if self._no_torch != before:
            self.update()

    # Logs that say what tuned tables lack.

    def _look_for_misses(self) -> None:
        if self.program.paths and not self._searching:  # long logs take longer than the interval
            self._searching = True
            self.run_worker(self._find_misses(), group="misses")

    async def _find_misses(self) -> None:
        app = self.program
        try:
            found = await to_thread(_misses, app.paths, app.feed.watcher.sources(), self._sizes)
        finally:
            self._searching = False
        if found is None:
            return
        self._sizes, missed = found
        if missed != app.missed:
            app.missed = missed
            app.update_screens()

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
        """Update the title and the keys."""
        facts = self._title_facts()
        notice = ""
        if self.panes is not None:
            table = self.panes.table
            facts.append(f"sort: {table.sort.called}{' reversed' * table.reverse}")
            facts += [f"by {table.arrangement.by}"] if table.arrangement.by else []
            notice = f"{table.unseen} new ↑ home" if table.unseen else ""
        self.show_title(facts, notice)
        self._keys()

    def _keys(self) -> None:
        spot, app = self.spot, self.program
        views: list[Key] = []
        if self._dock.has_program if self._complete else app.launched is not None:
            views.append(("0", "output", "app.output"))
        if spot is not None and spot.row.tuning.entry is not None:
            views.append(("9", "entries", "app.open('entries')"))
        if spot is not None:
            from rocm_tui.render.next_step import next_key  # needed with the first row

            step = next_key(spot.row, self._situation(spot.row, spot.choice))
            keys = watch_keys.footer(spot, app.read_only, step)
            self.show_keys([*keys[:_BEFORE_VIEWS], *views, *keys[_BEFORE_VIEWS:]])
            return
        if app.missed and not app.read_only:
            views.insert(0, ("t", "tune missed", watch_keys.by_id("tune").action))
        others = (("7", "sources"), ("6", "sessions"), ("8", "trials"))
        self.show_keys([*views, *((key, name, f"app.open('{name}')") for key, name in others)])

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
        else:
            read = self.program.feed.read
            self.program.warn("No tuning yet." if read else "Existing tunings are still loading.")

    def action_pin(self) -> None:
        spot = self.spot
        if spot is not None and spot.choice is not None:
            from rocm_tui.tui import pin_actions

            self.program.act(pin_actions.pin, spot.row, spot.choice)

    def action_unpin(self) -> None:
        row = self.row
        if row is not None and row.pin is not None:
            from rocm_tui.tui import pin_actions

            self.program.act(pin_actions.unpin, row.pin)

    def action_verify(self) -> None:
        row = self.row
        if row is not None and row.pin is not None:
            from rocm_tui.tui import job_actions

            self.program.act(job_actions.verify, row.pin)

    def action_undo(self) -> None:
        from rocm_tui.tui import pin_actions

        self.program.act(pin_actions.undo)

    def action_mark(self) -> None:
        if self.panes is not None:
            self.panes.detail.mark_current()

    def action_compare(self) -> None:
        """Compare the marked choices of the tuning under the cursor, or those near the best."""
        if (spot := self.spot) is not None:
            self.program.open_screen("compare", spot.row, spot.marked)

    def action_history(self) -> None:
        """Show the history of the problem under the cursor."""
        if self.row is not None:
            self.program.open_screen("history", self.row)

    def action_read(self) -> None:
        spot = self.spot
        if spot is not None and spot.choice is not None:
            self.program.open_screen("source", spot.row, spot.choice)

    def action_tune(self) -> None:
        if self.row is not None:
            from rocm_tui.tui import job_actions

            self.program.act(job_actions.tune, self.row)

    def tune_missed(self) -> None:
        """Tune the products that tables lacked according to the one log that is watched."""
        missed = self.program.missed
        if len(missed) == 1:
            from rocm_tui.tui import tunableop

            self.program.act(tunableop.tune_missed, missed[0])
        else:
            self.program.warn("Several logs missed products: 7 lists them, t there tunes them.")

    def action_measure(self) -> None:
        """Measure the marked choices of the tuning under the cursor, or those near the best."""
        if (spot := self.spot) is not None:
            from rocm_tui.tui import job_actions

            self.program.act(job_actions.measure, spot.row, spot.marked)

    def action_measure_suspects(self) -> None:
        """Measure the suspects of all sources, even if the filter hides them."""
        from rocm_tui.tui import job_actions

        self.program.act(job_actions.measure_suspects, self.program.feed.model.rows())

    def action_trial(self) -> None:
        """Try the marked choices of the tuning under the cursor in the graph that contains it."""
        if (spot := self.spot) is not None:
            from rocm_tui.tui import graph_actions

            self.program.act(graph_actions.try_choices, spot.row, spot.marked)

    def action_cancel(self) -> None:
        """End the job about the tuning under the cursor."""
        job = self.job
        if job is not None:
            self.program.jobs.cancel(job.id)

    def action_copy(self) -> None:
        spot = self.spot
        if spot is None:
            return
        if spot.inside and spot.choice is not None:
            self.program.copy(spot.choice.typed, f"the choice {spot.choice.label}")
        else:
            self.program.copy(spot.row.id, "the tuning's id, for show, pin and verify")

    def action_devices(self) -> None:
        self._devices.toggle()

    def action_switch(self, by: int = 1) -> None:
        """Move the focus from the table to the choices, the output, and the table again."""
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

    def action_others(self) -> None:
        if self.panes is not None:
            how = self.panes.table.arrangement
            if how.others or self.panes.table.hidden:
                self.panes.group_as(replace(how, others=not how.others))
            else:
                self.program.warn("No row of another tuner is hidden.")

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

    @property
    def why_not_compared(self) -> str | None:
        """Why there is nothing to compare, or None."""
        if self.spot is None:
            return "Nothing to compare: Watch lists no tuning yet. max_autotune fills it."
        return watch_keys.by_id("compare").why_not(self.spot, self.program.read_only)

    def filter_by(self, text: str) -> None:
        """Filter by `text`, as if it had been typed."""
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


def watch_of(app: App[Any]) -> WatchScreen:
    """Return Watch, which is below all other screens."""
    return next(screen for screen in app.screen_stack if isinstance(screen, WatchScreen))


def back_to_watch(app: App[Any]) -> WatchScreen:
    """Close all screens above Watch."""
    watch = watch_of(app)
    while app.screen is not watch:
        app.pop_screen()
    return watch


_Sizes = list[tuple[str, int]]
"""The files in which misses were searched, with their sizes."""


def _misses(
    paths: list[str], sources: Sequence[SourceStatus], before: _Sizes
) -> tuple[_Sizes, list[Missed]] | None:
    """Return the sizes of the logs that were named and the misses in them; None if no size is
    another one than `before`. This runs in a thread: a path may be on a network that does not
    answer."""
    if not any(Path(path).is_file() for path in paths):
        return None
    from rocm_tui.actions.cover import missed_in
    from rocm_tui.actions.tables import tables_among

    tables = tables_among(sources)
    sizes = [(path, _size(path)) for path in (*paths, *tables)]
    return None if sizes == before else (sizes, missed_in(paths, tables))


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:
        return -1


def _row_counts(rows: list[Row], hidden: Sequence[Row]) -> list[str]:
    """Return the counts: `12 tunings`, `2 suspects (a)`, `1 being tuned`, `3 from a cache`."""
    running = sum(row.tuning.state == "running" for row in rows)
    cached = sum(row.tuning.borrowed for row in rows) - sum(row.tuning.borrowed for row in hidden)
    entries = sum(row.tuning.entry is not None for row in rows)
    untimed = sum(row.tuning.entry is None for row in hidden)
    suspects = sum(row.suspect is not None for row in rows)
    tuned = len(rows) - cached - entries - untimed
    facts = [counted(tuned, "tuning")] if tuned or not entries else []
    facts += [f"{counted(suspects, 'suspect')} (a)"] if suspects else []
    facts += [f"{running:,} being tuned"] if running else []
    facts += [f"{cached:,} from a cache"] if cached else []
    if entries and not hidden:
        facts.append(counted(entries, "entry of a table", "entries of tables"))
    return facts


def _others_text(hidden: Sequence[Row], *, short: bool) -> str:
    """Return `347 entries of other tuners`, `3 kernels without times`, of both the sum; where the
    title is `short`, `347 others`."""
    untimed = sum(row.tuning.entry is None for row in hidden)
    entries = len(hidden) - untimed
    if short:
        return counted(len(hidden), "other")
    if entries and untimed:
        return f"{entries + untimed:,} entries and untimed kernels"
    if entries:
        return counted(entries, "entry of another tuner", "entries of other tuners")
    return counted(untimed, "kernel without times", "kernels without times")


def _job_counts(jobs: list[Job]) -> list[str]:
    """Return `1 job running, 2 queued`; nothing without jobs."""
    if not jobs:
        return []
    running = sum(job.state == "running" for job in jobs)
    queued = len(jobs) - running
    first = running or queued
    text = f"{counted(first, 'job')} {'running' if running else 'queued'}"
    return [f"{text}, {queued} queued" if running and queued else text]


_COMMANDS = (
    ("rocm-tui watch -- python train.py", "start your program, and watch it here"),
    ("rocm-tui run -- python train.py", "the same from another terminal"),
    ("rocm-tui demo", "a small model, right now"),
)


class Welcome(LineView):
    """The text before the first tuning: the state of sources and programs, or what to do."""

    def __init__(self, paths: list[str], *, alone: bool) -> None:
        """`alone` if no program is started here: then the text says what to start."""
        super().__init__(id="welcome")
        self._paths = paths
        self._alone = alone
        self._read = False
        self._sources: Sequence[SourceStatus] = ()
        self._lines: Sequence[Line] = ()
        self._missed: Sequence[Missed] = ()

    def put(
        self,
        sources: Sequence[SourceStatus],
        lines: Sequence[Line],
        missed: Sequence[Missed],
        *,
        read: bool,
    ) -> None:
        """Show the state of each source, `lines` about the programs, and the products that logs
        `missed`; `read` is whether everything that existed at the start has been read."""
        self._sources, self._lines, self._missed, self._read = sources, lines, missed, read
        self.sync()

    def empty(self, width: int) -> list[Line]:
        more = f" and {len(self._paths) - 1} more" if len(self._paths) > 1 else ""
        names = _COMMANDS if self._alone else ()
        commands: list[Line] = [((f"  {name:<36}", "accent"), (do, "dim")) for name, do in names]
        return [
            (),
            (("  No tuning yet." if self._read else "  Loading existing tunings.", "strong"),),
            (),
            (("  A row appears here for each operation that torch.compile tunes with", ""),),
            (("  max_autotune: its choices, their times, and which one wins.", ""),),
            (),
            *(self._lines or commands),
            (),
            ((f"  Watching {plain(self._paths[0])}{more}", "dim"),),
            *self._trouble(width),
            *self._missed_lines(width),
        ]

    def _missed_lines(self, width: int) -> list[Line]:
        if not self._missed:
            return []
        from rocm_tui.render.table import folded  # few logs report misses

        lines: list[Line] = [((f"  {log.line}", "warn"),) for log in self._missed]
        return [part for line in lines for part in folded(line, width)]

    def _trouble(self, width: int) -> list[Line]:
        """Name sources that cannot be read: a wrong path should not look like an idle one."""
        words = {
            "waiting": "is not there yet",
            "not read": "is not read (7 says why)",
            "unreadable": "cannot be read (7 says why)",
        }
        lines: list[Line] = []
        for source in self._sources:
            if source.state == "not read" and not source.problems:
                continue  # in a folder, of a format that is not searched for there
            if source.state in words:
                path = shorten(plain(source.path), max(20, width - 32))
                lines.append(((f"  {path} {words[source.state]}", "warn"),))
        return lines
