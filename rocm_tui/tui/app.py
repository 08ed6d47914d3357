"""The Textual app: which screens there are, when they are brought up to date, and who asks."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from textual.app import SystemCommand
from textual.filter import LineFilter
from textual.screen import Screen

from backend.disk.layout import Layout
from rocm_tui.tui import later, themes
from rocm_tui.tui.host import COMMANDS, Named, Requests
from rocm_tui.tui.in_order import InOrder
from rocm_tui.tui.outgoing import HarmlessFilter, Pace
from rocm_tui.tui.programs import Programs
from rocm_tui.tui.screens.base import BaseScreen
from rocm_tui.tui.screens.watch import WatchScreen
from rocm_tui.tui.telling import log_done, tell_drift, tell_job
from rocm_tui.tui.widgets.line_view import LineView

if TYPE_CHECKING:  # types only; see `later`
    from backend.model.choice import Choice
    from rocm_tui.actions.commands import Shell
    from rocm_tui.config.memory import Memory
    from rocm_tui.jobs.queue import Job, JobQueue
    from rocm_tui.launch.program import Launched
    from rocm_tui.render.table import Line
    from rocm_tui.session.feed import Feed
    from rocm_tui.session.model import Row
    from rocm_tui.tui.screens.leaving import Leave

_BREATH = 0.002
"""Seconds for keys between two takes of records that are waiting."""
_TICK = 5.0
"""Seconds between two looks at the ages."""
_AFTER = 3.0
"""Seconds that the log of a job is read on when the job is over."""


class RocmTui(InOrder):
    """`rocm-tui watch`."""

    TITLE = "rocm-tui"
    ENABLE_COMMAND_PALETTE = True
    stops_program = False
    """Whether the person wants the program that was started here to end, too."""

    def __init__(
        self,
        paths: Sequence[Path | str],
        layout: Layout,
        *,
        polling: bool = False,
        python: str | None = None,
        launched: Launched | None = None,
        read_only: bool = False,
    ) -> None:
        """`python` is the interpreter for workers; see `find_python`. `launched` runs already.
        What is `read_only` from the start stays so."""
        super().__init__()
        self.read_only = self._stays = read_only
        self.paths = [str(path) for path in paths] or [str(layout.root)]
        self.layout = layout
        self.peaks = {}
        self.python = python
        self.launched = launched
        self.missed = []
        recorded = partial(later.recorded_programs, layout)
        self.programs = Programs(launched, recorded, later.detached)
        self._polling = polling
        self._memory: Memory | None = None
        self._jobs: JobQueue | None = None
        self._feed: Feed | None = None
        self._ask: Requests | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._within: Context = copy_context()
        self._pace = Pace()
        self._taking: asyncio.TimerHandle | None = None
        self._harmless = HarmlessFilter()
        self.terminal_colors = self.console.color_system or ""
        for theme in themes.themes_for(self.terminal_colors):
            self.register_theme(theme)
        fitting = themes.default_theme(self.terminal_colors, os.environ)
        chosen = later.chosen_theme(self, self.terminal_colors) or fitting
        self.theme = chosen if chosen in self.available_themes else fitting

    @property
    def memory(self) -> Memory:
        if self._memory is None:
            self._memory = later.memory(self._stays)
        return self._memory

    @property
    def feed(self) -> Feed:
        """What fills the screens; made once the first screen stands, or by a key before that."""
        if self._feed is None:
            self._feed = later.feed(self.paths, self.layout, self._wake, self._polling)
            self._feed.read_only = self.read_only
        return self._feed

    @property
    def jobs(self) -> JobQueue:
        if self._jobs is None:
            self._jobs = later.jobs(self.layout, self._wake, self.python)
        return self._jobs

    @property
    def unfinished(self) -> list[Job]:
        jobs = self._jobs.jobs() if self._jobs is not None else []
        return [job for job in jobs if not job.over]

    def count_troubles(self) -> int:
        return later.count_troubles(self.feed.model.problems)

    def doing_facts(self) -> list[str]:
        missed = later.missed_facts(self.missed)
        return missed + later.doing_facts(self.launched, self.feed.model.processes)

    def look_for_misses(self) -> None:
        self._misses = later.misses(self)

    def doing_lines(self, width: int, *, tail: bool) -> list[Line]:
        return later.doing_lines(self.launched, self.feed.model.processes, width, tail)

    @property
    def ask(self) -> Requests:
        """Whatever writes or starts work is asked for here, so it is refused here."""
        if self.read_only:
            return later.refusing(self)
        if self._ask is None:
            self._ask = later.asking(self)
        return self._ask

    @property
    def shell(self) -> Shell:
        return later.shell(self)

    def log_done(self, command: str, outcome: str, *, ok: bool = True) -> None:
        self.run_worker(log_done(self, command, outcome, ok), group="log")

    def get_line_filters(self) -> Sequence[LineFilter]:
        return [*super().get_line_filters(), self._harmless]

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return themes.DEFAULTS if self.current_theme.dark else themes.LIGHT_DEFAULTS

    def refresh_css(self, animate: bool = True) -> None:
        """Before the first screen nothing has a style: all is parsed for it, and once."""
        if self.screen_stack:
            super().refresh_css(animate)
        else:
            self.stylesheet.set_variables(self.get_css_variables())

    def get_default_screen(self) -> Screen[None]:
        return WatchScreen(partial(later.panes, layout=self.layout), later.devices, later.dock)

    def on_load(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._within = copy_context()

    def on_ready(self) -> None:
        self.set_timer(0.002, self._start)  # meanwhile a thread writes the first screen

    def _start(self) -> None:
        self.feed.start()
        self.set_interval(_TICK, self._tick)
        later.take_up_settings(self, self.terminal_colors)
        if self.launched is not None:
            later.follow_launched(self, self.launched)

    def stop_feed(self) -> None:
        """End reading, reconciling and every job; safe to call again."""
        if self._jobs is not None:
            self._jobs.stop()
        if self._feed is not None:
            self._feed.stop()
        if self._memory is not None:
            self._memory.flush()

    # From the threads to the screens.

    def call_from_any_thread(self, what: Callable[[], object]) -> None:
        """Run `what` on the event loop soon, without waiting for it; a signal handler may, too."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: there is nothing left to show
                self._loop.call_soon_threadsafe(what, context=self._within)

    def _wake(self) -> None:
        self.call_from_any_thread(self._schedule)

    def _schedule(self, wait: float = 0.0) -> None:
        """Take in what arrived, soon; once, however often it is asked for."""
        assert self._loop is not None
        when = self._loop.time() + wait
        if self._taking is None or when < self._taking.when():
            if self._taking is not None:
                self._taking.cancel()
            self._taking = self._loop.call_at(when, self._take)

    def _take(self) -> None:
        self._taking = None
        if not self.is_running:
            return
        taken = self.feed.take()
        for status in taken.drifted:
            tell_drift(self, status)
        if self._jobs is not None:
            self._follow_jobs(self._jobs)
        early = self._pace.wait(time.monotonic(), rows=taken.held > 0, settled=taken.settled)
        if early <= 0:
            self._update()
        if taken.more:
            self._schedule(_BREATH)
        elif early > 0:
            self._schedule(early)

    def _update(self) -> None:
        begun, before = time.monotonic(), 0
        for screen in self.screen_stack:
            before = LineView.all_painted  # what lies below is not written
            if isinstance(screen, BaseScreen) and screen.is_mounted:
                screen.update()
        self._pace.updated(begun, time.monotonic(), LineView.all_painted - before)

    def _tick(self) -> None:
        if isinstance(self.screen, BaseScreen) and self.screen.is_mounted:
            self.screen.tick()

    def _follow_jobs(self, queue: JobQueue) -> None:
        """Read the logs of those that run; tell of those that ended."""
        jobs, ended = queue.look()
        for job in jobs:
            if not job.over and job.progress.log:
                self.feed.follow(job.progress.log)
        for job in ended:
            tell_job(self, job)
            self.set_timer(_AFTER, partial(self.feed.leave, job.progress.log))

    # The screens, and the keys that work everywhere.

    def compare(self, row: Row, marked: AbstractSet[str]) -> None:
        self.push_screen(later.compare_screen(row, marked))

    def compare_sessions(self, a: Named, b: Named) -> None:
        self.push_screen(later.session_comparison(a, b))

    def report_on(self, name: str, ids: Sequence[str]) -> None:
        self.push_screen(later.report_screen()(name, ids))

    def show_filtered(self, text: str) -> None:
        self._back_to_watch().filter_by(text)

    def read(self, row: Row, choice: Choice) -> None:
        self.push_screen(later.source_screen(row, choice))

    def show_history(self, row: Row) -> None:
        self.push_screen(later.history_screen(row))

    def show_row(self, row: Row) -> None:
        self._back_to_watch().go_to(row)

    def _back_to_watch(self) -> WatchScreen:
        while not isinstance(self.screen, WatchScreen):
            self.pop_screen()
        return self.screen

    def _toggle(self, kind: type[BaseScreen]) -> None:
        """Open a screen above Watch; its own key closes it again."""
        here = type(self.screen)
        self._back_to_watch()
        if here is not kind:
            self.push_screen(kind())

    def action_open(self, name: str) -> None:
        """One of the screens of `later.SCREENS`."""
        self._toggle(later.SCREENS[name]())

    def action_output(self) -> None:
        """In Watch below the others; then all of the screen; then away."""
        shown = self.programs.shown
        if shown is None:
            self.warn("No program was started here: rocm-tui watch -- CMD starts one.")
        elif not isinstance(self.screen, WatchScreen):
            self._toggle(later.output_screen())
            if isinstance(self.screen, WatchScreen):
                self.screen.dock(None)
        elif self.screen.docked:
            self._toggle(later.output_screen())
        else:
            self.screen.dock(shown)

    def show_output(self, run: str) -> bool:
        found = self.programs.choose(run)
        if found:
            self.push_screen(later.output_screen()())
        return found

    def action_help(self) -> None:
        """Above the screen that it is asked on, to go back there."""
        kind = later.help_screen()
        if isinstance(self.screen, kind):
            self.pop_screen()
        else:
            self.push_screen(kind())

    async def action_close(self) -> None:
        """Where `escape` goes; from Watch, leave."""
        if isinstance(self.screen, WatchScreen):
            await self.action_quit()
        elif isinstance(self.screen, BaseScreen):
            self.screen.action_back()

    def action_read_only(self) -> None:
        if not self.asking:
            later.turn_read_only(self, self._stays)

    async def action_quit(self) -> None:
        """Leave; where jobs or the program would notice, a question comes first."""
        runs = self.launched is not None and self.launched.running
        if not (self.unfinished or runs) or self.asking:
            self.exit()
            return

        def answered(leave: Leave | None) -> None:
            if leave is not None:
                self.stops_program = leave == "stop"
                self.exit()

        running = self.launched if runs else None
        self.push_screen(later.leave_question(running, self.unfinished), answered)

    def action_command_palette(self) -> None:
        """What applies to the screens does not while a question stands above them."""
        if not self.asking:
            super().action_command_palette()

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """`group: Verb object`, only what applies now."""
        if isinstance(screen, BaseScreen):
            yield from screen.commands()
        for name, hint, action in COMMANDS:
            if action != "app.output" or self.programs.known:
                yield SystemCommand(name, hint, partial(self.run_action, action))
