"""The question before leaving, where a program or jobs would notice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Button, Static

from rocm_tui.harmless import plain
from rocm_tui.jobs.queue import Job
from rocm_tui.launch.program import Program
from rocm_tui.session import numbers as fmt
from rocm_tui.tui.keys import key
from rocm_tui.tui.screens.base import Dialog

Leave = Literal["detach", "stop"]
"""What becomes of the program: it goes on, or it is asked to end."""


class LeaveScreen(Dialog[Leave]):
    """Leave, and what becomes of the program; None: stay. Enter takes what ends nothing."""

    CSS_PATH = "dialogs.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("enter,d", "detach", "leave.detach", "leave; the program goes on"),
        key("s", "stop", "leave.stop", "leave and stop the program"),
    ]

    def __init__(self, launched: Program | None, jobs: Sequence[Job]) -> None:
        """`launched` is the program that still runs, if one does."""
        super().__init__()
        self._launched = launched
        self._jobs = jobs

    def compose(self) -> ComposeResult:
        title, lines = _question(self._launched, self._jobs)
        text = "\n".join(plain(line) for line in lines)
        with Vertical(id="question"):
            yield Static(Content(plain(title)), id="what", markup=False)
            yield Static(Content(text), id="lines", markup=False)
            with Horizontal(id="answers"):
                if self._launched is not None:
                    yield Button("Leave it running  d", id="yes", compact=True)
                    yield Button("Stop it  s", id="stop", compact=True)
                else:
                    yield Button("Quit  enter", id="yes", compact=True)
                yield Button("Stay  esc", id="no", compact=True)

    def on_mount(self) -> None:
        self.query_one("#yes").focus()

    @on(Button.Pressed, "#yes")
    def action_detach(self) -> None:
        self.answer("detach")

    @on(Button.Pressed, "#stop")
    def action_stop(self) -> None:
        if self._launched is not None:
            self.answer("stop")


def _question(launched: Program | None, jobs: Sequence[Job]) -> tuple[str, list[str]]:
    told = [f"{job.state}: {job.kind} {job.title}" for job in jobs]
    if launched is None:
        return "Quit? It ends the jobs of this screen.", told
    lines = [
        f"{launched.title} has been running for {fmt.seconds(launched.age)}.",
        "d  It goes on without the screen; rocm-tui watch shows it again.",
        "s  It is asked to end (SIGTERM), and killed after 10 s.",
        f"{_kept(launched)}: {launched.log}",
    ]
    if told:
        lines += ["Either way the jobs of this screen end:", *told]
    return "Quit? The program still runs.", lines


def _kept(program: Program) -> str:
    return (
        f"Not all of its output is kept, {program.lost}" if program.lost else "Its output is kept"
    )
