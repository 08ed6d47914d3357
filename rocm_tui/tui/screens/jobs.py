"""Jobs: what workers do and did, and all that was done from the screen with its command."""

from __future__ import annotations

import time
from asyncio import to_thread
from textwrap import wrap
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
from rocm_tui.render.table import Field, Line, Span, cells
from rocm_tui.session import numbers as fmt
from rocm_tui.tui.base import BaseScreen
from rocm_tui.tui.keys import key
from rocm_tui.tui.widgets.grid import Grid
from rocm_tui.tui.widgets.line_view import LineView
from rocm_tui.tui.widgets.one_line import OneLine
from rocm_tui.tui.widgets.output import folded_text

_EVERY = 1.0
"""Seconds between two looks at times and logs, while this screen is open."""
_MOST = 4
"""Lines that what came out may take."""

_NOTHING = (
    "No job yet. In Watch, t tunes again what is under the cursor, m measures it, g tries it."
)
_BEGINS = "its worker begins: Python, then torch"
"""Shown for a running job without any progress yet."""
_STATE = {"running": "accent", "queued": "dim", "failed": "bad", "cancelled": "dim"}


def _result(job: Job) -> str:
    """Return the outcome; for a running job which choice is ahead, or its step."""
    progress = job.progress
    if job.over:
        return job.reason or job.outcome
    if job.state == "queued":
        return f"waits for its device, {plain(job.device)}"
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
        "what", "WHAT", 20, 40, text=lambda job: plain(job.title), style="strong",
        about="the op, its operands and their type",
    ),
    Field(
        "device", "DEV", 3, 4, drop=3, text=lambda job: plain(job.device), style="dim",
        about="the index of a GPU, or cpu: one job a device runs at once",
    ),
    Field(
        "progress", "PROGRESS", 14, 16, drop=1, text=lambda job: plain(progress_cell(job)),
        style=lambda job: "accent" if job.state == "running" else "dim",
        about="choices compiled or timed, clear verdicts or processes, of all",
    ),
    Field(
        "left", "LEFT", 8, 10, drop=1, right=True, text=lambda job: left_cell(job, time.time()),
        about="seconds to go, at the pace so far; ≤ what its budget leaves",
    ),
    Field(
        "time", "TIME", 8, 10, right=True, style="dim",
        text=_took,
        about="since it began, and what it took",
    ),
    Field(
        "result", "RESULT", 18, 200, drop=4, text=lambda job: plain(_result(job)), style=_style,
        about="which choice is ahead, what came out, or why nothing did",
    ),
)  # fmt: skip
"""The columns of a job."""


class JobsGrid(Grid):
    """Each column has its width whatever stands in it: what changes each second must not jump."""

    def wants(self) -> dict[str, int]:
        return {column.key: column.most for column in JOBS}


class JobLog(LineView):
    """Why a job failed or what came out; below it, what its worker wrote to stderr, to its end."""

    BINDING_GROUP_TITLE = "Log"

    def __init__(self) -> None:
        super().__init__(id="log")
        self._outcome: Span = ("", "")
        self._log: list[str] = []
        self._pieces: list[str] = []
        self._fitted: object = None

    def put(self, outcome: Span, log: list[str]) -> None:
        """Show the sentence `told`, and these lines below it; follow their end from there."""
        if (outcome, log) == (self._outcome, self._log):
            return
        at_end = self.top + self.room >= len(self._pieces)  # not scrolled up to read
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
        parts: list[Line] = [((f" {part}", style),) for part in wrap(text, max(20, width - 3))]
        return [*parts[:_MOST], ()] if parts else []

    def count(self) -> int:
        return len(self._pieces)

    def line(self, index: int, width: int) -> Line:
        return ((self._pieces[index], "dim"),)

    def empty(self, width: int) -> list[Line]:
        return [(("  The worker wrote nothing to stderr.", "dim"),)] if self._outcome[0] else []


class JobsScreen(BaseScreen):
    """The jobs above, newest first; the log of the one under the cursor below."""

    CSS_PATH = "lists.tcss"
    AUTO_FOCUS = "#jobs"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("x", "cancel", "jobs.cancel", "cancel the job, and whatever it started",
            footer="cancel"),
        key("tab", "app.focus_next", "jobs.other", "between the jobs and the log", footer="log"),
        key("y", "copy", "jobs.copy", "copy what became of the job", footer="copy"),
        key("c", "copy_command", "jobs.command", "copy the command that does the same",
            footer="copy command"),
        key("d", "app.open('done')", "jobs.done", "all that was done from the screen, pins too",
            footer="done"),
        key("escape", "back", "jobs.back", "back"),
    ]  # fmt: skip

    def compose_body(self) -> ComposeResult:
        yield JobsGrid(JOBS, _NOTHING, id="jobs")
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
        facts = [f"{running} running"] + ([f"{queued} waiting"] if queued else [])
        self.show_title("Jobs", facts)
        self._describe()

    def _describe(self) -> None:
        job = self.current
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

    @on(LineView.CursorMoved, "#jobs")
    def _moved(self) -> None:
        self._describe()

    def action_cancel(self) -> None:
        job = self.require(self.current, "job")
        if job is not None and not self.program.jobs.cancel(job.id):
            self.program.warn("That job is over.")

    def action_copy_command(self) -> None:
        job = self.require(self.current, "job")
        if job is not None and job.command:
            self.program.copy(job.command, "the command")

    def action_copy(self) -> None:
        job = self.require(self.current, "job")
        if job is not None:
            text = job.reason or job.outcome or job.title
            self.program.copy(text, "what became of the job" if job.over else "the job")


DONE: tuple[Field[CommandRecord], ...] = (
    Field(
        "when", "WHEN", 16, 16, text=lambda done: moment(done.when), style="dim",
        about="when it was done, or its job ended",
    ),
    Field(
        "command", "COMMAND", 24, 90, text=lambda done: plain(done.command), style="accent",
        about="the command that does the same; y copies it",
    ),
    Field(
        "outcome", "OUTCOME", 20, 200, drop=1, text=lambda done: plain(done.outcome),
        style=lambda done: "" if done.ok else "warn", about="what came of it",
    ),
    Field(
        "who", "WHO", 4, 14, drop=2, text=lambda done: plain(done.who), style="dim",
        about="who did it",
    ),
)  # fmt: skip


class DoneScreen(BaseScreen):
    """A list; `y` copies a command."""

    CSS_PATH = "lists.tcss"
    AUTO_FOCUS = "#done"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("y", "copy", "done.copy", "copy the command", footer="copy"),
        key("escape", "back", "done.back", "back"),
    ]

    def compose_body(self) -> ComposeResult:
        yield Grid(DONE, "Nothing was done from a screen of this cache dir yet.", id="done")

    def on_mount(self) -> None:
        self._done: list[CommandRecord] = []
        self.show_title("Done", [])
        self.run_worker(self._load(), group="done", exclusive=True)

    async def _load(self) -> None:
        try:
            actions = await to_thread(read_commands, self.program.layout)
        except (StoreError, OSError) as error:
            self.program.refuse(str(error))
            return
        self._done = list(reversed(actions))
        for grid in self.query("#done").results(Grid):  # none where this screen was left
            grid.put([cells(DONE, done) for done in self._done])
        failed = sum(not done.ok for done in actions)
        facts = [counted(len(actions), "action")]
        self.show_title("Done", facts + ([f"{failed} with trouble"] if failed else []))

    def action_copy(self) -> None:
        cursor = self.query_one("#done", Grid).cursor
        if cursor < len(self._done):
            self.program.copy(self._done[cursor].command, "the command")
