"""Questions above the screens: whether to change something, what to tune, how to quit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, cast

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Button, Input, Static

from backend.model.problem import Problem
from rocm_tui.actions.tune import offers_ours, tune_options
from rocm_tui.errors import UsageError
from rocm_tui.harmless import plain
from rocm_tui.jobs.queue import Job
from rocm_tui.jobs.tune import TuneOptions
from rocm_tui.launch.program import Program
from rocm_tui.render.jobs import problem_title
from rocm_tui.session import numbers as fmt
from rocm_tui.session.model import Row
from rocm_tui.tui.base import BaseApp, Dialog
from rocm_tui.tui.keys import key

_WAITING = ("Looking up what will change …",)
Leave = Literal["detach", "stop"]
"""Whether the program continues or is asked to end."""


class ConfirmScreen(Dialog[str]):
    """Answer with the note (empty without one) for yes, and None for no.

    Without `lines` it waits: it says so and takes no yes until `show_lines` is called. `warning` is
    shown first. `command` returns the command that does the same in a shell, with the note as typed
    so far.
    """

    CSS_PATH = "dialogs.tcss"
    VERTICAL_BREAKPOINTS = [(0, "-short"), (32, "-tall")]  # noqa: RUF012 - as Textual has it
    BINDINGS: ClassVar[list[BindingType]] = [
        key("enter", "yes", "confirm.yes", "yes"),
        key("y", "copy", "confirm.copy", "copy the command that does the same"),
        key("n", "note", "confirm.note", "to the note, where there is one"),
    ]

    def __init__(
        self,
        title: str,
        verb: str,
        lines: Sequence[str] = (),
        *,
        note: bool = False,
        warning: str | None = None,
        command: Callable[[str], str] | None = None,
    ) -> None:
        super().__init__()
        self._command = command
        self._title = title
        self._lines = lines
        self._warning = warning
        self._verb = verb
        self._note = note

    def compose(self) -> ComposeResult:
        with Vertical(id="question"):
            yield Static(Content(plain(self._title)), id="what", markup=False)
            if self._warning:
                yield Static(Content(plain(self._warning)), id="warning", markup=False)
            yield Static(self._text(), id="lines", markup=False)
            if self._command is not None:
                yield Static(self._shown_command(), id="command", markup=False)
            if self._note:
                yield Input(placeholder="n: why? (optional note)", max_length=200, compact=True)
            yield from self.compose_answers(self._verb)

    def on_mount(self) -> None:
        self.show_lines(self._lines)  # they may have come since `compose`
        self.query_one("#yes").focus()

    @property
    def _noted(self) -> str:
        return self.query_one(Input).value.strip() if self.query(Input) else ""

    def _shown_command(self) -> Content:
        text = self._command(self._noted) if self._command else ""
        return Content(f"$ {plain(text)}   (y copies)")

    @on(Input.Changed)
    def _note_changed(self) -> None:
        for shown in self.query("#command").results(Static):
            shown.update(self._shown_command())

    def action_note(self) -> None:
        for entry in self.query(Input):
            entry.focus()

    def action_copy(self) -> None:
        if self._command is not None:
            cast(BaseApp, self.app).copy(self._command(self._noted), "the command")

    def _text(self) -> Content:
        return Content("\n".join(plain(line) for line in self._lines or _WAITING))

    def show_lines(self, lines: Sequence[str]) -> None:
        """Show what will change, and accept a yes from now on."""
        self._lines = lines
        for shown in self.query("#lines").results(Static):  # none before it opens or once closed
            shown.update(self._text())

    @on(Input.Submitted)
    @on(Button.Pressed, "#yes")
    def action_yes(self) -> None:
        if not self._lines:
            return  # nobody can agree to what is not shown yet
        self.answer(self._noted)


async def confirm(
    app: BaseApp, title: str, verb: str, lines: Sequence[str], command: str = ""
) -> bool:
    """Ask whether to do this, which `command` does in a shell; False also where another question
    is open."""
    if app.asking:
        return False
    question = ConfirmScreen(
        title, verb, lines, command=(lambda note: command) if command else None
    )
    return await app.push_screen_wait(question) is not None


@dataclass(frozen=True, slots=True)
class UntunedList:
    """An untuned list of TunableOp at `path`, the table of `results` beside it, and why it cannot
    be tuned here."""

    path: str
    results: str
    why_not: str = ""

    @property
    def label(self) -> str:
        """The offer, or the reason why it is not available."""
        into = plain(Path(self.results).name)
        return f"TunableOp instead: {self.why_not or f'the whole list, into {into}'}"


@dataclass(frozen=True, slots=True)
class TuneAnswer:
    """The answer: what to try, and on which device (None: as the environment says); with
    `tunableop` PyTorch's tuner does it instead."""

    options: TuneOptions
    device: str | None
    tunableop: bool = False


class Tick(Static, can_focus=True):
    """A tick: `[x]` shows its state without colour."""

    BINDINGS: ClassVar[list[BindingType]] = [key("space", "turn", "tune.turn", "turn on or off")]

    class Turned(Message):
        """The tick was turned on or off."""

    def __init__(self, label: str, value: bool = False, *, id: str) -> None:
        super().__init__(markup=False, id=id)
        self._label = label
        self.value = value

    def on_mount(self) -> None:
        self._show()

    def on_click(self) -> None:
        self.action_turn()

    def action_turn(self) -> None:
        self.value = not self.value
        self._show()
        self.post_message(self.Turned())

    def _show(self) -> None:
        self.update(Content(f"[{'x' if self.value else ' '}] {self._label}"))


class TuneScreen(Dialog[TuneAnswer]):
    """Answer with what to tune, or None for no."""

    CSS_PATH = "dialogs.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("enter", "yes", "tune.yes", "yes", priority=True),
        key("y", "copy", "tune.copy", "copy the command that does the same"),
    ]

    def __init__(
        self,
        row: Row,
        problem: Problem,
        command: Callable[[TuneAnswer], str] | None = None,
        untuned: UntunedList | None = None,
    ) -> None:
        """`command` returns the shell command for an answer; `untuned` is the list of TunableOp
        that the row is an entry of."""
        super().__init__()
        self._command = command
        self._row = row
        self._problem = problem
        self._untuned = untuned

    def compose(self) -> ComposeResult:
        ours = offers_ours(self._row.tuning)
        with Vertical(id="question"):
            yield Static(Content(f"Tune {problem_title(self._problem)}"), id="what", markup=False)
            yield Static(Content("\n".join(_about(self._row))), id="lines", markup=False)
            yield Tick("exhaustive search space: hours rather than minutes", id="space")
            yield Tick("rocm-tui's templates among the choices", ours, id="templates")
            if self._untuned is not None:
                instead = Tick(self._untuned.label, id="tunableop")
                instead.disabled = bool(self._untuned.why_not)
                yield instead
            for name, hint in (
                ("backends", "as Inductor is set; or a list such as ATEN,TRITON,CPP,CK"),
                ("budget", "no end; or seconds, after which the best so far wins"),
                ("device", "as it was; or the index of a GPU"),
            ):
                with Horizontal(classes="field"):
                    yield Static(name, classes="name", markup=False)
                    yield Input(placeholder=hint, id=name, max_length=100, compact=True)
            yield Static("", id="wrong", markup=False)
            yield Static(self._shown_command(), id="command", markup=False)
            yield from self.compose_answers("Start")

    def on_mount(self) -> None:
        self.query_one("#yes").focus()
        self.call_after_refresh(self.show_command)

    def _shown_command(self) -> Content:
        """Return the command for the current answers; empty if they are invalid."""
        if self._command is None:
            return Content("")
        try:
            text = self._command(self._answer()) if self.is_mounted else ""
        except UsageError:
            text = ""
        return Content(f"$ {plain(text)}   (y copies)" if text else "")

    @on(Input.Changed)
    @on(Tick.Turned)
    def show_command(self) -> None:
        """Update the command after an answer has changed."""
        for shown in self.query("#command").results(Static):
            shown.update(self._shown_command())

    def action_copy(self) -> None:
        if self._command is not None:
            with suppress(UsageError):
                cast(BaseApp, self.app).copy(self._command(self._answer()), "the command")

    def _text(self, name: str) -> str | None:
        return self.query_one(f"#{name}", Input).value.strip() or None

    def _answer(self) -> TuneAnswer:
        """Return the answer. Raises UsageError for invalid values."""
        device = self._text("device")
        options = tune_options(
            backends=self._text("backends"),
            search_space="exhaustive" if self.query_one("#space", Tick).value else None,
            templates=self.query_one("#templates", Tick).value,
            budget=self._text("budget"),
            device=device,
        )
        tunableop = any(tick.value for tick in self.query("#tunableop").results(Tick))
        return TuneAnswer(options, device, tunableop)

    @on(Button.Pressed, "#yes")
    def action_yes(self) -> None:
        if self.query_one("#no").has_focus:
            self.answer(None)
            return
        try:
            self.answer(self._answer())
        except UsageError as error:
            self.query_one("#wrong", Static).update(Content(plain(str(error))))


def _about(row: Row) -> list[str]:
    """Describe the tuning, and how long it took the last time."""
    took = row.tuning.seconds.benchmark
    lines = ["Every choice is compiled and timed again, in a worker."]
    lines += [f"Timing them took {fmt.seconds(took)} the last time."] if took else []
    lines.append("Results go to the model's autotune cache; compiled graphs are kept.")
    if row.pin is not None:
        lines.append(f"The pin to {row.pin.pin.label} holds; it learns the new times.")
    return list(map(plain, lines))


class LeaveScreen(Dialog[Leave]):
    """Quit, and what happens to the program; None: stay. Enter chooses what ends nothing."""

    CSS_PATH = "dialogs.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("enter,d", "detach", "leave.detach", "leave; the program goes on"),
        key("s", "stop", "leave.stop", "leave and stop the program"),
    ]

    def __init__(self, launched: Program | None, jobs: Sequence[Job]) -> None:
        """`launched` is the program, if it still runs."""
        super().__init__()
        self._launched = launched
        self._jobs = jobs

    def compose(self) -> ComposeResult:
        title, lines = _leave_question(self._launched, self._jobs)
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


def _leave_question(launched: Program | None, jobs: Sequence[Job]) -> tuple[str, list[str]]:
    ended = [f"{job.state}: {job.kind} {job.title}" for job in jobs]
    if launched is None:
        return "Quit? It ends the jobs of this screen.", ended
    lines = [
        f"{launched.title} has been running for {fmt.seconds(launched.age)}.",
        "d  It goes on without the screen; rocm-tui watch shows it again.",
        "s  It is asked to end (SIGTERM), and killed after 10 s.",
        f"{_kept(launched)}: {launched.log}",
    ]
    if ended:
        lines += ["Either way the jobs of this screen end:", *ended]
    return "Quit? The program still runs.", lines


def _kept(program: Program) -> str:
    return (
        f"Not all of its output is kept, {program.lost}" if program.lost else "Its output is kept"
    )
