"""Jobs: the work of the workers, and everything that was done from the screen, as commands."""

from __future__ import annotations

import time
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType

from backend.counted import counted
from backend.errors import StoreError
from rocm_tui.actions.commands import CommandRecord, read_commands
from rocm_tui.harmless import plain
from rocm_tui.jobs.queue import Job
from rocm_tui.render.jobs import left_cell, progress_cell, took
from rocm_tui.render.pins import moment
from rocm_tui.render.table import Field, Line, Span, cells, wrapped
from rocm_tui.session import numbers as fmt
from rocm_tui.tui.base import BaseScreen
from rocm_tui.tui.keys import key
from rocm_tui.tui.widgets.grid import Grid
from rocm_tui.tui.widgets.line_view import LineView
from rocm_tui.tui.widgets.one_line import OneLine
from rocm_tui.tui.widgets.output import folded_text

_EVERY = 1.0
"""Seconds between two updates of times and logs while this screen is open."""
_MOST = 4
"""The maximum lines of a job's result above its log."""

_NOTHING = "No job yet. In Watch (1), m measures a tuning, t tunes it again."
_BEGINS = "its worker starts: Python, then torch"
"""Shown for a running job that has not reported progress yet."""
_STATE = {"running": "accent", "queued": "dim", "failed": "bad", "cancelled": "dim"}


def _result(job: Job) -> str:
    """Return the outcome; for a running job the leading choice, or its step."""
    progress = job.progress
    if job.over:
        return job.reason or job.outcome
    if job.state == "queued":
        return f"waiting for device {plain(job.device)}"
    if progress.best and progress.best_ms is not None:
        return f"{progress.best} {fmt.once(fmt.duration(progress.best_ms))} is ahead"
    return job.step or progress.what or _BEGINS


def _took(job: Job) -> str:
    seconds = took(job, time.time())
    return fmt.running(seconds) if seconds and not job.over else fmt.seconds(seconds)


def _style(job: Job) -> str:
    return "bad" if job.reason else "" if job.over else "dim"


JOBS: tuple[Field[Job], ...] = (
    Field(
        "state", "STATE", 9, 9, text=lambda job: job.state,
        style=lambda job: _STATE.get(job.state, ""),
        about="queued until its device is free, running, done, failed, cancelled",
    ),
    Field(
        "kind", "JOB", 7, 7, drop=5, text=lambda job: job.kind, style="dim",
        about="tune, measure, verify, trial, improve or prove",
    ),
    Field(
        "what", "WHAT", 20, 40, good=30, text=lambda job: plain(job.title), style="strong",
        about="the op, its operands and their type",
    ),
    Field(
        "device", "DEV", 3, 4, drop=4, text=lambda job: plain(job.device), style="dim",
        about="the index of a GPU, or cpu: one job a device runs at once",
    ),
    Field(
        "progress", "PROGRESS", 14, 16, drop=1, text=lambda job: plain(progress_cell(job)),
        style=lambda job: "accent" if job.state == "running" else "dim",
        about="choices compiled or timed, clear verdicts or processes, of all",
    ),
    Field(
        "left", "LEFT", 8, 10, drop=3, right=True, text=lambda job: left_cell(job, time.time()),
        about="seconds to go, at the pace so far; ≤ what its budget leaves",
    ),
    Field(
        "time", "TIME", 8, 10, right=True, style="dim",
        text=_took,
        about="time since it began, or the time that it took",
    ),
    Field(
        "result", "RESULT", 18, 200, text=lambda job: plain(_result(job)), style=_style,
        about="the choice that is ahead, the result, or why there is none",
    ),
)  # fmt: skip
"""The columns of a job."""


_CHANGING = ("state", "progress", "left", "time")
"""Columns whose text changes each second."""


class JobsGrid(Grid):
    """Columns of numbers have a fixed width, so that the table stays still while they change."""

    def wants(self) -> dict[str, int]:
        most = {column.key: column.most for column in JOBS if column.key in _CHANGING}
        return {key: max(want, most.get(key, 0)) for key, want in super().wants().items()}


class JobLog(LineView):
    """The result of a job or why it failed; below it, the worker's stderr, followed to its end."""

    BINDING_GROUP_TITLE = "Log"

    def __init__(self) -> None:
        super().__init__(id="log")
        self._outcome: Span = ("", "")
        self._log: list[str] = []
        self._pieces: list[str] = []
        self._fitted: object = None

    def put(self, outcome: Span, log: list[str]) -> None:
        """Show the sentence `outcome` above these lines, and follow their end from there."""
        if (outcome, log) == (self._outcome, self._log):
            return
        at_end = self.top + self.room >= len(self._pieces)  # nobody has scrolled up to read
        follow = outcome != self._outcome or (at_end and self.cursor >= len(self._pieces) - 1)
        self._outcome, self._log = outcome, log
        self._fit(self.size.width)
        if follow:
            self.cursor = max(0, len(self._pieces) - 1)
            self.top = len(self._pieces)
        self.sync()

    def _fit(self, width: int) -> None:
        self._fitted = (width, self._log)
        self._pieces = [
            piece for line in self._log for piece in folded_text(line, max(20, width - 3))
        ]

    def heading(self, width: int) -> list[Line]:
        if self._fitted != (width, self._log):
            self._fit(width)
            self.cursor, self.top = len(self._pieces) - 1, len(self._pieces)
        text, style = self._outcome
        parts: list[Line] = [((f" {part}", style),) for part in wrapped(text, width - 3)]
        return [*parts[:_MOST], ()] if parts else []

    def count(self) -> int:
        return len(self._pieces)

    def line(self, index: int, width: int) -> Line:
        return ((self._pieces[index], "dim"),)

    def empty(self, width: int) -> list[Line]:
        return [(("  The worker wrote nothing to stderr.", "dim"),)] if self._outcome[0] else []


class JobsScreen(BaseScreen):
    """The jobs above, newest first; the log of the one under the cursor below."""

    PLACE = "Jobs"
    CSS_PATH = "lists.tcss"
    AUTO_FOCUS = "#jobs"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("x", "cancel", "jobs.cancel", "cancel the job, and whatever it started",
            footer="cancel"),
        key("tab", "app.focus_next", "jobs.other", "between the jobs and the log", footer="log"),
        key("d", "app.open('done')", "jobs.done",
            "everything that was done from the screen, pins too", footer="history"),
        key("y", "copy", "jobs.copy", "copy the result of the job", footer="copy result"),
        key("c", "copy_command", "jobs.command", "copy the command that does the same",
            footer="copy command"),
        key("escape", "back", "jobs.back", "back"),
    ]  # fmt: skip

    def compose_body(self) -> ComposeResult:
        yield JobsGrid(JOBS, _NOTHING, wraps=("result",), id="jobs")
        yield OneLine(id="about")
        yield JobLog()

    def on_mount(self) -> None:
        self._jobs: list[Job] = []
        self.update()
        self.set_interval(_EVERY, self.update)

    @property
    def current(self) -> Job | None:
        """The job under the cursor."""
        return self.query_one("#jobs", Grid).pick(self._jobs)

    def update(self) -> None:
        """Show the jobs as they are now; the cursor stays on its job."""
        self._jobs = self.program.jobs.jobs()
        rows = [cells(JOBS, job) for job in self._jobs]
        self.query_one("#jobs", Grid).put(rows, [job.id for job in self._jobs])
        running = sum(job.state == "running" for job in self._jobs)
        queued = sum(job.state == "queued" for job in self._jobs)
        facts = [f"{running} running"] + ([f"{queued} queued"] if queued else [])
        self.show_title(facts)
        self._describe()

    @on(LineView.CursorMoved, "#jobs")
    def _describe(self) -> None:
        job = self.current
        self.sync_keys()
        about, log = self.query_one("#about", OneLine), self.query_one(JobLog)
        if job is None:
            about.put(((" Log", "head"),))
            log.put(("", ""), [])
            return
        command = f"  $ {plain(job.command)}" if job.command else ""
        title = (f" {job.kind} {job.title}: {job.state}", "head")
        about.put((title, (command, "title")))
        outcome = (job.reason, "bad") if job.reason else (job.outcome, "strong")
        log.put(outcome, self.program.jobs.log(job.id))

    def applies(self, action: str) -> bool:
        """Only the list of actions needs no job under the cursor."""
        job = self.current
        if job is None:
            return action == "app.open('done')"
        return not job.over if action == "cancel" else bool(job.command or action != "copy_command")

    def action_cancel(self) -> None:
        job = self.require(self.current, "job")
        if job is not None and not self.program.jobs.cancel(job.id):
            self.program.warn("That job is over.")

    def action_copy_command(self) -> None:
        if (job := self.require(self.current, "job")) is not None and job.command:
            self.program.copy(job.command, "the command")

    def action_copy(self) -> None:
        if (job := self.require(self.current, "job")) is not None:
            text = job.reason or job.outcome or job.title
            self.program.copy(text, "the result of the job" if job.over else "the job")


DONE: tuple[Field[CommandRecord], ...] = (
    Field(
        "when", "WHEN", 16, 16, text=lambda done: moment(done.when), style="dim",
        about="when it was done, or when its job ended",
    ),
    Field(
        "command", "COMMAND", 24, 90, text=lambda done: plain(done.command), style="accent",
        about="the command that does the same; y copies it",
    ),
    Field(
        "outcome", "OUTCOME", 20, 200, drop=1, text=lambda done: plain(done.outcome),
        style=lambda done: "" if done.ok else "warn", about="the result",
    ),
    Field(
        "who", "WHO", 4, 14, drop=2, text=lambda done: plain(done.who), style="dim",
        about="who did it",
    ),
)  # fmt: skip


class DoneScreen(BaseScreen):
    """The list of actions; `y` copies a command."""

    PLACE = "Done"
    CSS_PATH = "lists.tcss"
    AUTO_FOCUS = "#done"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("y", "copy", "done.copy", "copy the command", footer="copy"),
        key("escape", "back", "done.back", "back"),
    ]

    def compose_body(self) -> ComposeResult:
        nothing = "Nothing was done yet from a screen on this cache directory."
        yield Grid(DONE, nothing, wraps=("command", "outcome"), id="done")

    def on_mount(self) -> None:
        self._done: list[CommandRecord] = []
        self.show_title([])
        self.sync_keys()
        self.run_worker(self._load(), group="done", exclusive=True)

    async def _load(self) -> None:
        try:
            actions = await self.in_thread(read_commands, self.program.layout)
        except (StoreError, OSError) as error:
            self.program.refuse(str(error))
            return
        self._done = list(reversed(actions))
        grid = self.query_one("#done", Grid)
        grid.put([cells(DONE, done) for done in self._done])
        failed = sum(not done.ok for done in actions)
        facts = [counted(len(actions), "action")]
        self.show_title(facts + ([f"{failed} with trouble"] if failed else []))
        self.sync_keys()

    def applies(self, action: str) -> bool:
        """There is a command to copy."""
        return bool(self._done)

    def action_copy(self) -> None:
        done = self.require(self.query_one("#done", Grid).pick(self._done), "action")
        if done is not None:
            self.program.copy(done.command, "the command")
