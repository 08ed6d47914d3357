"""Tune again: ask what Inductor shall try, then leave it to the queue of jobs."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Button, Input, Static

from backend.records import Tuning
from rocm_tui import format as fmt
from rocm_tui.actions.options import device_env, lane
from rocm_tui.errors import RocmTuiError, UsageError
from rocm_tui.format import plain
from rocm_tui.job_queue import Order
from rocm_tui.job_run import RunJob
from rocm_tui.screens.base import Dialog
from rocm_tui.session.providers import template_of
from rocm_tui.tune_request import TuneOptions, outcome, problem_of, title, tune
from rocm_tui.tune_words import backends

if TYPE_CHECKING:
    from rocm_tui.screens.program import RocmTui
    from rocm_tui.session.model import Row


@dataclass(frozen=True, slots=True)
class Asked:
    """The person's answer: what to try, and on which device (None: as the environment says)."""

    options: TuneOptions
    device: str | None


class Tick(Static, can_focus=True):
    """Something to turn on: `[x]` says so without any colour."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("space", "turn", "Turn on or off")]

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

    def _show(self) -> None:
        self.update(Content(f"[{'x' if self.value else ' '}] {self._label}"))


class TuneScreen(Dialog[Asked]):
    """Gives the answer, and None for no."""

    CSS_PATH = "tuning.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "no", "No", id="tune.no"),
        Binding("enter", "yes", "Start", id="tune.yes", priority=True),
    ]

    def __init__(self, row: Row, problem: Tuning) -> None:
        super().__init__()
        self._row = row
        self._problem = problem

    def compose(self) -> ComposeResult:
        ours = any(map(template_of, self._row.tuning.choices))
        with Vertical(id="question"):
            yield Static(Content(f"Tune {title(self._problem)}"), id="what", markup=False)
            yield Static(Content("\n".join(_about(self._row))), id="lines", markup=False)
            yield Tick("exhaustive search space: hours rather than minutes", id="space")
            yield Tick("our kernels too", ours, id="templates")
            for name, hint in (
                ("backends", "as Inductor is set; or a list such as ATEN,TRITON,CPP,CK"),
                ("budget", "no end; or seconds, after which the best so far wins"),
                ("device", "as it was; or the index of a GPU"),
            ):
                with Horizontal(classes="field"):
                    yield Static(name, classes="name", markup=False)
                    yield Input(placeholder=hint, id=name, max_length=100, compact=True)
            yield Static("", id="wrong", markup=False)
            with Horizontal(id="answers"):
                yield Button("Start  enter", id="yes", compact=True)
                yield Button("Cancel  esc", id="no", compact=True)

    def on_mount(self) -> None:
        self.query_one("#yes").focus()

    def _text(self, name: str) -> str | None:
        return self.query_one(f"#{name}", Input).value.strip() or None

    def _answer(self) -> Asked:
        """Raises UsageError for what makes no sense."""
        budget, device = self._text("budget"), self._text("device")
        device_env(os.environ, device)
        try:
            seconds = None if budget is None else float(budget)
        except ValueError:
            seconds = 0.0
        if seconds is not None and not 0 < seconds < 1e9:
            raise UsageError("the budget is a number of seconds above 0")
        options = TuneOptions(
            backends=backends(self._text("backends")),
            search_space="exhaustive" if self.query_one("#space", Tick).value else None,
            templates=self.query_one("#templates", Tick).value,
            budget=seconds,
        )
        return Asked(options, device)

    @on(Button.Pressed, "#yes")
    def action_yes(self) -> None:
        if self.query_one("#no").has_focus:
            self.answer(None)
            return
        try:
            self.answer(self._answer())
        except UsageError as error:
            self.query_one("#wrong", Static).update(Content(plain(str(error))))

    @on(Button.Pressed, "#no")
    def action_no(self) -> None:
        self.answer(None)


def _about(row: Row) -> list[str]:
    """What will be done, and what it took the last time."""
    took = row.tuning.seconds.benchmark
    lines = ["Every choice is compiled and timed again, in a worker."]
    lines += [f"Timing them took {fmt.seconds(took)} the last time."] if took else []
    lines.append("The times go where the model's own tuning has them; old graphs stay.")
    if row.pin is not None:
        lines.append(f"The pin to {row.pin.pin.label} holds; it learns the new times.")
    return list(map(plain, lines))


async def ask_and_tune(app: RocmTui, row: Row) -> None:
    """Put the tuning under the cursor into the queue, as the person wants it."""
    if app.asking:
        return
    try:
        problem = problem_of(row.tuning)
    except RocmTuiError as error:
        app.notify(plain(str(error)), severity="error", markup=False, timeout=8)
        return
    asked = await app.push_screen_wait(TuneScreen(row, problem))
    if asked is None:
        return
    job = app.jobs.submit(order(problem, asked, row.id))
    begins = "waits for its device" if job.state == "queued" else "begins"
    app.notify(f"Tuning {job.title} {begins} (J).", markup=False, timeout=3)


def order(problem: Tuning, asked: Asked, id: str) -> Order:
    """The work of a tuning, for the queue."""
    given = problem
    if asked.device == "cpu" and problem.key is None:
        given = replace(problem, device="cpu")

    def work(run: RunJob) -> str:
        return outcome(tune(run, given, asked.options))

    return Order(
        kind="tune",
        title=title(problem),
        lane=lane(asked.device, problem.device),
        work=work,
        env=device_env(os.environ, asked.device),
        key=problem.key,
        tuning=id,
    )
