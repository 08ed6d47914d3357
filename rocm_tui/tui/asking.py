"""What the program does for a screen: a question, the action off the event loop, a word of it."""

from __future__ import annotations

import os
from asyncio import to_thread
from collections.abc import Callable, Coroutine, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from backend.counted import counted
from backend.disk.layout import Layout
from backend.model.choice import Choice
from backend.model.pin import Pin
from backend.model.problem import Problem
from backend.model.tuning import Tuning
from backend.pins.state import PinStatus
from rocm_tui.actions.cover import Missed
from rocm_tui.actions.measure import (
    choices_to_measure,
    find_suspects,
    measure,
    measure_job,
    measure_machine,
    require_here,
)
from rocm_tui.actions.verify import NotVerified, keep_result, verify
from rocm_tui.actions.verify_program import as_tuned
from rocm_tui.environment import device_env, device_to_measure, lane
from rocm_tui.errors import RocmTuiError
from rocm_tui.harmless import plain
from rocm_tui.jobs.queue import Job, Order
from rocm_tui.jobs.run import RunJob
from rocm_tui.jobs.tune import problem_of, tune
from rocm_tui.render.choices import name_of
from rocm_tui.render.jobs import outcome, pin_title, problem_title, verified_text
from rocm_tui.render.measured import meaning, standing
from rocm_tui.search.types import Search
from rocm_tui.session.devices import TunedDevice
from rocm_tui.session.graph_rows import GraphRow
from rocm_tui.session.model import Row
from rocm_tui.session.numbers import seconds
from rocm_tui.tui.host import Host
from rocm_tui.tui.improving import ask_to_improve, ask_to_pin_found, ask_to_prove
from rocm_tui.tui.misses_tuned import ask_to_tune_missed
from rocm_tui.tui.pinning import apply_again, ask_to_pin, ask_to_undo, ask_to_unpin
from rocm_tui.tui.screens.base import BaseScreen
from rocm_tui.tui.screens.dialogs import ConfirmScreen, TuneAnswer, TuneScreen
from rocm_tui.tui.trying import ask_for_trial
from rocm_tui.tui.untuned_lists import UntunedList, list_order, untuned_list_of

UNASKED = 10
"""How many suspects are measured without asking first."""


class Asking:
    """The requests of one program. They are workers of the program: what they do counts even if
    the screen that asked is left meanwhile."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def _begin(self, request: Coroutine[None, None, None], group: str) -> None:
        self._host.run_worker(request, group=group)

    # Pins.

    def pin(self, row: Row, choice: Choice) -> None:
        self._begin(ask_to_pin(self._host, row, choice), "pin")

    def unpin(self, status: PinStatus) -> None:
        self._begin(ask_to_unpin(self._host, status), "pin")

    def undo(self) -> None:
        self._begin(ask_to_undo(self._host), "pin")

    def apply_pins(self, done: Callable[[], None]) -> None:
        self._begin(self._apply_pins(done), "pin")

    async def _apply_pins(self, done: Callable[[], None]) -> None:
        await apply_again(self._host)
        done()

    # Jobs.

    def tune(self, row: Row) -> None:
        self._begin(self._tune(row), "tune")

    async def _tune(self, row: Row) -> None:
        host = self._host
        if host.asking:
            return
        try:
            problem = problem_of(row.tuning)
        except RocmTuiError as error:
            host.refuse(str(error))
            return
        untuned = untuned_list_of(row)
        typed = _typed(host, row, untuned)
        answer = await host.push_screen_wait(TuneScreen(row, problem, typed, untuned))
        if answer is not None:
            try:
                order = _tune_order(host, row, problem, answer, untuned)
            except RocmTuiError as error:
                host.refuse(str(error))
                return
            job = host.jobs.submit(replace(order, command=typed(answer)))
            self._tell_begun(f"Tuning {job.title}", job)

    def tune_missed(self, missed: Missed) -> None:
        self._begin(self._queued(ask_to_tune_missed(self._host, missed)), "tune")

    def measure(self, row: Row, marked: AbstractSet[str]) -> None:
        host, tuning = self._host, row.tuning
        wanted = [choice for choice in tuning.choices if name_of(choice) in marked]
        choices = choices_to_measure(row, wanted)
        try:
            measure_job(tuning, choices)  # what cannot be measured is said before a worker starts
        except RocmTuiError as error:
            host.refuse(str(error))
            return
        order = measure_order(tuning, choices, row.id, row.pin)
        job = host.jobs.submit(replace(order, command=host.shell.measure(row, choices)))
        count = counted(len(choices), "choice")
        self._tell_begun(f"Measuring {count} of {job.title}", job)

    def measure_suspects(self, rows: Sequence[Row]) -> None:
        self._begin(self._measure_suspects(rows), "suspects")

    async def _measure_suspects(self, rows: Sequence[Row]) -> None:
        host = self._host
        if host.asking:
            return
        known = find_suspects(row for row in rows if not self._has_job(row))
        suspects = known.suspects
        if not suspects:
            host.warn(f"No suspect is left to measure. {known.missing}".strip())
            return
        count = counted(len(suspects), "suspect")
        around = f"about {seconds(known.seconds)} in all"
        if len(suspects) > UNASKED:
            lines = [
                f"Each in a job of its own, the longest first: {around}.",
                "J shows them, x cancels one. Results show as they come.",
                *([known.missing] if known.others else []),
            ]
            command = host.shell.measure_suspects()
            question = ConfirmScreen(
                f"Measure {count}", "Measure", lines, command=lambda note: command
            )
            if await host.push_screen_wait(question) is None:
                return
        for suspect in suspects:
            row = suspect.row
            order = measure_order(row.tuning, suspect.choices, row.id, row.pin)
            command = host.shell.measure(row, suspect.choices)
            host.jobs.submit(replace(order, command=command))
        words = f"Measuring {count}, {around} (J). {known.missing}"
        host.notify(words.strip(), markup=False, timeout=4)

    def _has_job(self, row: Row) -> bool:
        return self._host.jobs.about(row.tuning, {*row.ids}) is not None

    def verify(self, status: PinStatus) -> None:
        job = self._verify(status)
        self._tell_begun(f"Verifying the pin of {job.title}", job)

    def verify_all(self, statuses: Sequence[PinStatus]) -> None:
        jobs = [self._verify(status) for status in statuses]
        count = counted(len(jobs), "pin")
        self._host.notify(f"Verifying {count} (J).", markup=False, timeout=3)

    def _verify(self, status: PinStatus) -> Job:
        host = self._host
        order = verify_order(status.pin, host.layout)
        return host.jobs.submit(replace(order, command=host.shell.verify(status.pin)))

    def trial(self, row: Row, marked: AbstractSet[str]) -> None:
        self._begin(self._trial(row, marked), "trial")

    async def _trial(self, row: Row, marked: AbstractSet[str]) -> None:
        job = await ask_for_trial(self._host, row, marked)
        if job is not None:
            self._tell_begun(f"Trial of {job.title}", job)

    def improve(self, graph: GraphRow) -> None:
        self._begin(self._queued(ask_to_improve(self._host, graph)), "improve")

    def prove(self, graph: GraphRow) -> None:
        self._begin(self._queued(ask_to_prove(self._host, graph)), "improve")

    def pin_found(self, graph: GraphRow, search: Search) -> None:
        self._begin(ask_to_pin_found(self._host, graph, search), "pin")

    async def _queued(self, asked: Coroutine[None, None, Job | None]) -> None:
        job = await asked
        if job is not None:
            self._tell_begun(f"{job.kind.capitalize()} {job.title}:", job)

    def _tell_begun(self, what: str, job: Job) -> None:
        begins = "waits for its device" if job.state == "queued" else "begins"
        self._host.notify(f"{what} {begins} (J).", markup=False, timeout=3)

    def measure_peak(self, machine: TunedDevice) -> None:
        self._begin(self._measure_peak(machine), "peak")

    async def _measure_peak(self, machine: TunedDevice) -> None:
        host = self._host
        try:
            require_here(machine)
            label = plain(machine.label)
            host.notify(f"Measuring the peak of {label}: some three seconds.", markup=False)
            peak = await to_thread(measure_machine, machine, host.layout, host.python)
        except RocmTuiError as error:
            host.refuse(str(error))
            return
        host.peaks[machine] = peak
        if isinstance(host.screen, BaseScreen):
            host.screen.update()


def _typed(host: Host, row: Row, untuned: UntunedList | None) -> Callable[[TuneAnswer], str]:
    """The command of a tuning, by what was answered."""

    def typed(answer: TuneAnswer) -> str:
        options, device = answer.options, answer.device
        if answer.tunableop and untuned is not None:
            return host.shell.tune_list(untuned.path, untuned.results, options.budget, device)
        return host.shell.tune(row, options, device)

    return typed


def _tune_order(
    host: Host, row: Row, problem: Problem, answer: TuneAnswer, untuned: UntunedList | None
) -> Order:
    """Raises UsageError."""
    if answer.tunableop and untuned is not None:
        return list_order(untuned, answer.device, answer.options.budget, row.id, host.layout)
    return tune_order(problem, answer, row.id)


def verify_order(pin: Pin, layout: Layout) -> Order:
    """The work of proving one pin, for the queue. A pin that does not hold is a failed job."""

    def work(run: RunJob) -> str:
        [asked] = as_tuned([pin], layout)
        result = verify(run, asked)
        keep_result(layout, pin, result)
        if not result.ok:
            raise NotVerified(verified_text(pin, result))
        return verified_text(pin, result)

    return Order(
        kind="verify", title=pin_title(pin), lane=lane(None, pin.device), work=work, key=pin.key
    )


def measure_order(
    tuning: Tuning, choices: Sequence[Choice], id: str, pin: PinStatus | None = None
) -> Order:
    """The work of a measurement, for the queue; of a pinned tuning it tells what is in use."""

    device = device_to_measure(None, tuning.device_index)

    def work(run: RunJob) -> str:
        measurement = measure(run, tuning, choices)
        result = standing(tuning, measurement)
        held = pin is not None and pin.state != "orphaned"
        return f"{result}; {meaning(tuning, measurement, id, pin)}" if held else result

    return Order(
        kind="measure",
        title=problem_title(tuning),
        lane=lane(device, tuning.device),
        work=work,
        env=device_env(os.environ, device),
        key=tuning.key,
        tuning=id,
    )


def tune_order(problem: Problem, answer: TuneAnswer, id: str) -> Order:
    """The work of a tuning, for the queue."""
    given = problem
    if answer.device == "cpu" and problem.key is None:
        given = replace(problem, device="cpu")

    def work(run: RunJob) -> str:
        return outcome(tune(run, given, answer.options))

    return Order(
        kind="tune",
        title=problem_title(problem),
        lane=lane(answer.device, problem.device),
        work=work,
        env=device_env(os.environ, answer.device),
        key=problem.key,
        tuning=id,
    )
