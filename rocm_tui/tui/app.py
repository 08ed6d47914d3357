"""The last look at what a screen draws, whatever widget drew it.

The Textual app: when the screens are brought up to date, the keys that work everywhere.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rich.segment import Segment
from textual.app import App, SystemCommand
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.color import Color
from textual.filter import LineFilter
from textual.screen import ModalScreen, Screen

from backend.store.paths import Layout
from rocm_tui.collector import Pile
from rocm_tui.format import plain
from rocm_tui.harmless import cells
from rocm_tui.tui import themes
from rocm_tui.tui.screens.watch import WatchScreen
from rocm_tui.tui.widgets.line_view import LineView


class HarmlessFilter(LineFilter):
    """Takes out what would be a command to the terminal.

    The rows of our own are `plain` before; a toast, a tooltip, the palette and what was pasted into
    a field are Textual's.
    """

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        if all(text.isprintable() for text, _, _ in segments):
            return segments
        return [Segment(cells(text), style, control) for text, style, control in segments]


if TYPE_CHECKING:
    from backend.store.pins import PinStatus
    from rocm_tui.feed import Feed
    from rocm_tui.job_queue import Job, JobQueue
    from rocm_tui.session.devices import Peak
    from rocm_tui.session.roofline import Machine

_FRAME = 0.05
"""Least seconds between two updates while records keep coming; the first is shown at once."""
_BREATH = 0.005
"""Seconds for keys between two takes of records that are waiting."""
_CELLS = 2700.0
"""Cells a second that updates may repaint: some 9 kB over SSH. What is more waits for its turn."""
_AHEAD = 0.7
"""Seconds of that by which a burst may run ahead."""
_LEISURE = 2.0
"""No update for so many times what the last one took: a big table leaves time for keys."""
_TICK = 5.0
"""Seconds between two looks at the ages."""
_AFTER = 3.0
"""Seconds that the log of a job is read on when the job is over."""
_DONE = {"tune": "Tuned", "measure": "Measured"}


class RocmTui(App[int]):
    """`rocm-tui watch`."""

    TITLE = "rocm-tui"
    ENABLE_COMMAND_PALETTE = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "quit", "Quit", id="app.quit"),
        Binding("question_mark,f1", "help", "Help", id="app.help"),
        Binding("P", "pins", "Pins", id="app.pins"),
        Binding("J", "jobs", "Jobs", id="app.jobs"),
        Binding("S", "sources", "Sources", id="app.sources"),
        Binding("C", "report", "Report", id="app.report"),
    ]

    def __init__(
        self,
        paths: Sequence[Path | str],
        layout: Layout,
        *,
        polling: bool = False,
        python: str | None = None,
    ) -> None:
        """`python` is the interpreter for workers; see `find_python`."""
        super().__init__()
        self.paths = [str(path) for path in paths] or [str(layout.root)]
        self.layout = layout
        self.peaks: dict[Machine, Peak] = {}
        self._polling = polling
        self.python = python
        self._jobs: JobQueue | None = None
        self._feed: Feed | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._within: Context = copy_context()
        self._pile = Pile()
        self._scheduled = False
        self._show_at = self._paid_at = 0.0
        self._harmless = HarmlessFilter()
        for theme in themes.ALL:
            self.register_theme(theme)
        self.theme = themes.default_theme(self.console.color_system)

    @property
    def feed(self) -> Feed:
        """What fills the screens; made once the first screen stands, or by a key before that."""
        if self._feed is None:
            from rocm_tui.feed import Feed

            self._feed = Feed(self.paths, self.layout, self._wake, polling=self._polling)
        return self._feed

    @property
    def jobs(self) -> JobQueue:
        """The jobs that this screen runs; made when it is first asked for."""
        if self._jobs is None:
            from rocm_tui.job_queue import JobQueue

            self._jobs = JobQueue(self.layout, self._wake, python=self.python)
        return self._jobs

    @property
    def unfinished(self) -> list[Job]:
        """The jobs that run or wait, newest first."""
        jobs = self._jobs.jobs() if self._jobs is not None else []
        return [job for job in jobs if not job.over]

    @property
    def asking(self) -> bool:
        """Whether a question stands above the screens: there is never more than one."""
        return isinstance(self.screen, ModalScreen)

    def get_line_filters(self) -> Sequence[LineFilter]:
        return [*super().get_line_filters(), self._harmless]

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return themes.DEFAULTS if self.current_theme.dark else themes.LIGHT_DEFAULTS

    def get_default_screen(self) -> Screen[None]:
        return WatchScreen()

    def on_load(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._within = copy_context()

    def on_ready(self) -> None:
        self.call_after_refresh(self._start)

    def _start(self) -> None:
        self.feed.start()
        self.set_interval(_TICK, self._tick)
        gc.freeze()  # what start-up made stays; see run_watch
        gc.enable()

    def stop_feed(self) -> None:
        """End reading, reconciling and every job; safe to call again."""
        if self._jobs is not None:
            self._jobs.stop()
        if self._feed is not None:
            self._feed.stop()

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
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_later(wait, self._take)

    def _take(self) -> None:
        self._scheduled = False
        if not self.is_running:
            return
        taken = self.feed.take()
        self._pile.grown(taken.held, taken.more)
        for status in taken.drifted:
            self._tell_drift(status)
        if self._jobs is not None:
            self._follow_jobs(self._jobs)
        early = self._show_at - time.monotonic()
        if early <= 0:
            self._update()
        if taken.more:
            self._schedule(_BREATH)
        elif early > 0:
            self._schedule(early)

    def _update(self) -> None:
        begun, before = time.monotonic(), self._painted()
        for screen in self.screen_stack:
            update: Callable[[], None] | None = getattr(screen, "update", None)
            if update is not None and screen.is_mounted:
                update()
        now = time.monotonic()
        cost = max(0, self._painted() - before) / _CELLS
        self._paid_at = max(self._paid_at, now) + cost
        rest = max(_FRAME, (now - begun) * _LEISURE)
        self._show_at = max(now + rest, self._paid_at - _AHEAD)

    def _painted(self) -> int:
        return sum(view.painted for view in self.screen.query(LineView))

    def _tick(self) -> None:
        tick: Callable[[], None] | None = getattr(self.screen, "tick", None)
        if tick is not None and self.screen.is_mounted:
            tick()

    def _tell_drift(self, status: PinStatus) -> None:
        after = "Applied again." if status.state == "active" else f"It is {status.state} now."
        why = status.detail.partition(": ")[2] or "another process wrote over it"
        text = f"The pin of {status.pin.op} had drifted: {why}. {after}"
        self.notify(plain(text), severity="warning", markup=False)

    def _follow_jobs(self, queue: JobQueue) -> None:
        """Read the logs of those that run; tell of those that ended."""
        jobs, ended = queue.look()
        for job in jobs:
            if not job.over and job.progress.log:
                self.feed.follow(job.progress.log)
        for job in ended:
            self._tell_job(job)
            self.set_timer(_AFTER, partial(self.feed.leave, job.progress.log))

    def _tell_job(self, job: Job) -> None:
        what = f"{_DONE[job.kind]} {job.title}"
        if job.state == "failed":
            text = f"Failed: {job.kind} {job.title}: {job.reason} (J)"
            self.notify(plain(text), severity="error", markup=False, timeout=10)
        elif job.state == "done":
            self.notify(plain(f"{what}: {job.outcome}"), markup=False, timeout=8)
        else:
            self.notify(plain(f"Cancelled: {job.kind} {job.title}"), markup=False)

    # Keys and commands.

    async def action_quit(self) -> None:
        """Leave; where that ends jobs, a question comes first."""
        if not self.unfinished or self.asking:
            self.exit()
            return
        from rocm_tui.tui.screens.dialogs import ConfirmScreen

        def answered(note: str | None) -> None:
            if note is not None:
                self.exit()

        lines = [f"{job.state}: {job.kind} {job.title}" for job in self.unfinished]
        self.push_screen(
            ConfirmScreen("Quit? It ends the jobs of this screen.", "Quit", lines), answered
        )

    def pop_screen(self) -> AwaitComplete:
        """Of keys that come in one burst, those after the one that closed a screen close none."""
        return super().pop_screen() if len(self.screen_stack) > 1 else AwaitComplete()

    def action_command_palette(self) -> None:
        """What applies to the screens does not while a question stands above them."""
        if not self.asking:
            super().action_command_palette()

    def copy(self, text: str, what: str) -> None:
        """Put `text` on the clipboard of the person's terminal and say what it was."""
        text = plain(text)
        self.copy_to_clipboard(text)
        self.notify(f"Copied {plain(what)}: {text}", markup=False, timeout=4)

    def action_help(self) -> None:
        from rocm_tui.tui.screens.help import HelpScreen

        if isinstance(self.screen, HelpScreen):
            self.pop_screen()
        else:  # above the screen that it is asked on, to go back there
            self.push_screen(HelpScreen())

    def action_pins(self) -> None:
        from rocm_tui.tui.screens.pins import PinsScreen

        self._toggle(PinsScreen)

    def action_jobs(self) -> None:
        from rocm_tui.tui.screens.jobs import JobsScreen

        self._toggle(JobsScreen)

    def action_sources(self) -> None:
        from rocm_tui.tui.screens.sources import SourcesScreen

        self._toggle(SourcesScreen)

    def action_report(self) -> None:
        from rocm_tui.tui.screens.report import ReportScreen

        self._toggle(ReportScreen)

    def _toggle(self, kind: type[Screen[None]]) -> None:
        """Open a screen above Watch; its own key closes it again."""
        here = type(self.screen)
        while not isinstance(self.screen, WatchScreen):
            self.pop_screen()
        if here is not kind:
            self.push_screen(kind())

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        from rocm_tui.tui.screens.commands import commands

        return commands(self, screen)
