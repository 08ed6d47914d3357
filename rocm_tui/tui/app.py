"""The Textual app: its screens and keys, and when the screens are brought up to date."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING

from rich.segment import Segment
from textual.app import SystemCommand
from textual.color import Color
from textual.filter import LineFilter
from textual.notifications import SeverityLevel
from textual.screen import Screen

from backend.disk.layout import Layout
from rocm_tui.config.places import config_given, name_of_theme, state_path
from rocm_tui.harmless import cells, plain
from rocm_tui.tui import themes
from rocm_tui.tui.base import BaseApp, BaseScreen, after, load_screen
from rocm_tui.tui.keys import palette_entries
from rocm_tui.tui.screens.watch import WatchScreen, back_to_watch, watch_of
from rocm_tui.tui.widgets.line_view import LineView
from rocm_tui.tui.widgets.one_line import TitleBar

if TYPE_CHECKING:  # types only: the first screen stands before what they need is loaded
    from backend.pins.state import PinStatus
    from rocm_tui.jobs.queue import Job, JobQueue
    from rocm_tui.launch.program import Launched
    from rocm_tui.tui.screens.dialogs import Leave

_COMMANDS = (
    ("view: Show what was done", "Actions, their commands", "app.open('done')"),
    ("app: Change theme", "Colours", "app.change_theme"),
)
"""Commands of the palette without a key: name, hint and action."""

_BREATH = 0.002
"""Seconds left for keys between two batches of waiting records."""
_TICK = 5.0
"""Seconds between two updates of the displayed ages."""
_AFTER = 3.0
"""Seconds for which the logs of a job are still read after the job is over."""
_MISTAKES = 3
"""The maximum number of mistakes in the settings that are shown one by one."""
_REASON = 160
"""The maximum characters of a reason in a notice: at 80 columns it covers only a few lines."""
_DONE = {
    "tune": "Tuned",
    "measure": "Measured",
    "verify": "Verified",
    "trial": "Tried",
    "improve": "Improved",
    "prove": "Proved",
}
_STAYS = "Read-only from the start: `rocm-tui watch --no-read-only` can change something."


class RocmTui(BaseApp):
    """`rocm-tui watch`."""

    TITLE = "rocm-tui"
    ENABLE_COMMAND_PALETTE = True
    stops_program = False
    """Whether the program that was started here should end too."""

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
        """`python` is the interpreter for workers; see `find_python`. `launched` runs already."""
        super().__init__(
            paths,
            layout,
            polling=polling,
            python=python,
            launched=launched,
            read_only=read_only,
        )
        self._pace = Pace()
        self._taking: asyncio.TimerHandle | None = None
        self._harmless = HarmlessFilter()
        self.terminal_colors = self.console.color_system or ""
        for theme in themes.themes_for(self.terminal_colors):
            self.register_theme(theme)
        fitting = themes.default_theme(self.terminal_colors, os.environ)
        chosen = self._chosen_theme() or fitting
        self.theme = chosen if chosen in self.available_themes else fitting

    def _chosen_theme(self) -> str:
        """Return the person's theme, or ""; own colours are applied to the themes first."""
        if not config_given() and not state_path().exists():
            return ""
        from rocm_tui.config.settings import settings_now
        from rocm_tui.tui.appearance import recoloured

        settings = settings_now().config
        for theme in themes.themes_for(self.terminal_colors):
            self.register_theme(recoloured(theme, settings.colours))
        if settings.theme.name != "auto":
            return settings.theme.name
        return self.memory.recall(name_of_theme(self.terminal_colors), "")

    def get_line_filters(self) -> Sequence[LineFilter]:
        return [*super().get_line_filters(), self._harmless]

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return themes.DEFAULTS if self.current_theme.dark else themes.LIGHT_DEFAULTS

    def refresh_css(self, animate: bool = True) -> None:
        """Before the first screen only set the variables: everything is parsed once for it."""
        if self.screen_stack:
            super().refresh_css(animate)
        else:
            self.stylesheet.set_variables(self.get_css_variables())

    def get_default_screen(self) -> Screen[None]:
        return WatchScreen()

    def on_ready(self) -> None:
        after(self, 0.002, self._start)  # meanwhile a thread writes the first screen

    def _start(self) -> None:
        self.feed.start()
        self.set_interval(_TICK, self._tick)
        self.watch(self, "theme", self._remember_theme, init=False)
        if config_given():
            self._take_up_settings()
        if state_path().exists() and self.memory.trouble:
            self._warn_long(self.memory.trouble)
        if self.launched is not None:
            self._follow_program(self.launched)

    def _remember_theme(self, name: str) -> None:
        self.memory.remember(name_of_theme(self.terminal_colors), name)

    def _take_up_settings(self) -> None:
        """Use the person's own keys, and say what is wrong in their file."""
        from rocm_tui.config.settings import settings_now
        from rocm_tui.tui import appearance

        settings = settings_now()
        mistakes = [*settings.mistakes, *appearance.mistakes(settings)]
        if settings.config.keys:
            from rocm_tui.tui import keymap  # all screens

            self.own_keys, wrong = keymap.mistakes(settings)
            self.set_keymap(dict(self.own_keys))
            mistakes += wrong
        for mistake in mistakes[:_MISTAKES]:
            self._warn_long(str(mistake))
        if len(mistakes) > _MISTAKES:
            self._warn_long(f"{len(mistakes) - _MISTAKES} more: rocm-tui config --check")

    def _warn_long(self, text: str) -> None:
        self.notify(plain(text), severity="warning", markup=False, timeout=15)

    def stop_feed(self) -> None:
        """End reading, reconciling and every job; safe to call again."""
        if self._jobs is not None:
            self._jobs.stop()
        if self._feed is not None:
            self._feed.stop()
        if self._memory is not None:
            self._memory.flush()

    # From the threads to the screens.

    def wake(self) -> None:
        self.call_from_any_thread(self._schedule)

    def _schedule(self, wait: float = 0.0) -> None:
        """Schedule one update with the new records, however often this is called before it."""
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
        try:
            self._bring_up_to_date()
        except Exception as error:  # the loop would only log it, and records that wait stay there
            self._handle_exception(error)

    def _bring_up_to_date(self) -> None:
        taken = self.feed.take()
        for status in taken.drifted:
            self._report_drift(status)
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
            before = LineView.all_painted  # the screens below are not written
            if isinstance(screen, BaseScreen) and screen.has_widgets:
                screen.update()
        self._pace.updated(begun, time.monotonic(), LineView.all_painted - before)

    def _tick(self) -> None:
        if isinstance(self.screen, BaseScreen) and self.screen.has_widgets:
            self.screen.tick()

    def _follow_jobs(self, queue: JobQueue) -> None:
        """Read the logs of running jobs, and report the jobs that ended."""
        jobs, ended = queue.look()
        for job in jobs:
            if not job.over and job.progress.log:
                self.feed.follow(job.progress.log, job.id)
        for job in ended:
            self._report_job(job)
            after(self, _AFTER, partial(self.feed.leave, job.id))

    # Notices of what happened without a key.

    def _report_drift(self, status: PinStatus) -> None:
        after = "Applied again." if status.state == "active" else f"It is {status.state} now."
        why = status.detail.partition(": ")[2] or "another process wrote over it"
        text = f"The pin of {status.pin.op} had drifted: {why}. {after}"
        self.notify(plain(text), severity="warning", markup=False)

    def _report_job(self, job: Job) -> None:
        """Report the outcome of a job, and log it."""
        if job.command:
            outcome = job.reason or job.outcome or job.state
            self.log_done(job.command, outcome, ok=job.state == "done")
        if job.state == "failed":
            text = f"Failed: {job.kind} {job.title}: {brief(job.reason)} (4)"
            self.notify(plain(text), severity="error", markup=False, timeout=10)
        elif job.state == "done":
            text = f"{_DONE[job.kind]} {job.title}: {brief(job.outcome)}"
            self.notify(plain(text), markup=False, timeout=8)
        else:
            self.notify(plain(f"Cancelled: {job.kind} {job.title}"), markup=False)

    def _follow_program(self, launched: Launched) -> None:
        """Notify on any screen when the program has ended or its output is lost."""
        done: set[str] = set()

        def once(name: str, say: partial[None]) -> None:
            if name not in done:
                done.add(name)
                say()

        def listen() -> None:
            if not launched.running:
                end = partial(self._report_end, launched)
                self.call_from_any_thread(partial(once, "end", end))
            if launched.lost:
                text = f"Output of {launched.title} is lost: {launched.lost}. The program goes on."
                self.call_from_any_thread(partial(once, "lost", partial(self.warn, text)))

        launched.listen(listen)
        if not launched.running:  # it may have ended before
            once("end", partial(self._report_end, launched))
        self.update_screens()

    def _report_end(self, launched: Launched) -> None:
        from rocm_tui.launch.program import ending

        code = launched.code or 0
        text = f"{launched.title} has ended: {ending(code)} (0 shows its output)"
        severity: SeverityLevel = "error" if code else "information"
        self.notify(plain(text), severity=severity, markup=False, timeout=10)
        self.update_screens()

    # The keys that work everywhere.

    def action_open(self, name: str) -> None:
        """Open Watch, or one of `SCREENS` above it; its own key closes it again."""
        if name == "watch":
            back_to_watch(self)
            return
        kind = load_screen(name)
        here = type(self.screen)
        spot = watch_of(self).spot
        if name == "compare" and here is not kind and (why := watch_of(self).why_not_compared):
            self.warn(why)
            return
        back_to_watch(self)
        if here is kind:
            return
        if name == "compare" and spot is not None:
            self.open_screen(name, spot.row, spot.marked)
        else:
            self.push_screen(kind())

    def action_output(self) -> None:
        """Show the output below the panes of Watch, then on all of the screen, then nowhere."""
        shown = self.programs.shown
        if shown is None:
            self.warn("No program was started here: rocm-tui watch -- CMD starts one.")
        elif not isinstance(self.screen, WatchScreen):
            self.action_open("output")
            if isinstance(self.screen, WatchScreen):
                self.screen.dock(None)
        elif self.screen.docked:
            self.action_open("output")
        else:
            self.screen.dock(shown)

    def action_help(self) -> None:
        """Open the help above the current screen, or close it."""
        if isinstance(self.screen, load_screen("help")):
            self.pop_screen()
        else:
            self.open_screen("help")

    async def action_close(self) -> None:
        """Close the screen; from Watch, quit."""
        if isinstance(self.screen, WatchScreen):
            await self.action_quit()
        elif isinstance(self.screen, BaseScreen):
            self.screen.action_back()

    def action_read_only(self) -> None:
        """Turn read-only on; or off, after a question, unless it was fixed at the start."""
        if self.asking:
            return
        if not self.read_only:
            self._set_read_only(True)
            running = " Jobs started before go on." if self.unfinished else ""
            self.notify(f"Read-only: nothing is written or started.{running}", markup=False)
        elif self.stays_read_only:
            self.refuse(_STAYS)
        else:
            self.run_worker(self._ask_to_turn_off())

    async def _ask_to_turn_off(self) -> None:
        from rocm_tui.tui.screens.dialogs import confirm

        lines = ["Keys pin, tune, measure and verify again; drifted pins are applied again."]
        if await confirm(self, "Turn read-only off?", "Turn off", lines):
            self._set_read_only(False)

    def _set_read_only(self, read_only: bool) -> None:
        self.read_only = self.feed.reconciler.read_only = read_only
        self.feed.reconciler.poke()
        for screen in self.screen_stack:
            for title in screen.query(TitleBar):
                title.sync()
        self.update_screens()

    async def action_quit(self) -> None:
        """Quit; ask first if jobs or the program are still running. A second time, do not ask."""
        runs = self.launched is not None and self.launched.running
        if not (self.unfinished or runs):
            self.exit()
            return
        from rocm_tui.tui.screens.dialogs import LeaveScreen

        if isinstance(self.screen, LeaveScreen):
            self.exit()
            return

        def answered(leave: Leave | None) -> None:
            if leave is not None:
                self.stops_program = leave == "stop"
                self.exit()

        running = self.launched if runs else None
        self.push_screen(LeaveScreen(running, self.unfinished), answered)

    def action_command_palette(self) -> None:
        """Open the palette, unless a question is open."""
        if not self.asking:
            super().action_command_palette()

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Yield the commands that apply now, named `group: Verb object`."""
        if isinstance(screen, BaseScreen):
            yield from screen.commands()
        for name, hint, action in (*palette_entries(self.BINDINGS), *_COMMANDS):
            if self._leads_somewhere(action):
                yield SystemCommand(name, hint, partial(self.run_action, action))

    def _leads_somewhere(self, action: str) -> bool:
        """Return whether there is something to show: a program's output, a tuner's table."""
        if action == "app.output":
            return self.programs.any_known
        if action == "app.open('entries')":
            from rocm_tui.actions.tables import tables_among

            return bool(tables_among(self.feed.watcher.sources()))
        return True


def brief(reason: str) -> str:
    """Return the first words of a reason; Jobs shows the whole reason."""
    return shorten(reason, _REASON, placeholder=" …")


_FRAME, _FIRST = 0.05, 0.25
"""The minimum seconds between two updates while records keep arriving, and while the records that
existed at the start are still being read."""
_HELD = 0.1
"""Seconds that the first rows wait for the rest of the existing ones: painting a part delays the
whole, and nobody notices such a short wait."""
_CELLS = 2700.0
"""Cells per second that updates may repaint: some 9 kB/s over SSH. Anything beyond waits."""
_AHEAD = 0.7
"""Seconds' worth of cells by which a burst may exceed that."""
_LEISURE = 2.0
"""An update rests this many times as long as it took, so that a big table leaves time for keys."""


class Pace:
    """Decides when the screens may be updated again."""

    def __init__(self) -> None:
        self._next = self._paid_until = 0.0
        self._stage = 0

    def wait(self, now: float, *, rows: bool, settled: bool) -> float:
        """Return the seconds until the next update, which is due at 0 or below. The first `rows`
        wait for a moment; when `settled`, everything that existed at the start is shown at once."""
        stage = 2 if settled else 1 if rows else 0
        if stage > self._stage:
            self._stage, self._next = stage, now + _HELD if stage == 1 else 0.0
        return self._next - now

    def updated(self, begun: float, now: float, cells: int) -> None:
        """Record an update that took from `begun` to `now` and repainted this number of cells."""
        self._paid_until = max(self._paid_until, now) + cells / _CELLS
        rest = max(_FRAME if self._stage == 2 else _FIRST, (now - begun) * _LEISURE)
        self._next = max(now + rest, self._paid_until - _AHEAD)


class HarmlessFilter(LineFilter):
    """Removes what would be a command to the terminal, whichever widget drew it.

    Our own rows are already `plain`; toasts, tooltips, the palette and pasted text are Textual's.
    """

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        if all(text.isprintable() for text, _, _ in segments):
            return segments
        return [Segment(cells(text), style, control) for text, style, control in segments]
