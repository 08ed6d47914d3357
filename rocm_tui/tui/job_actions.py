"""Put work into the job queue: tune, measure, verify. Each is started by `BaseApp.act`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from backend.counted import counted
from backend.disk.layout import Layout
from backend.model.choice import Choice
from backend.model.problem import Problem
from backend.model.tuning import Pin, Tuning
from backend.pins.state import PinStatus
from rocm_tui.actions.measure import (
    Measuring,
    choices_to_measure,
    find_suspects,
    measure_job,
)
from rocm_tui.actions.verify import NotVerified, keep_result
from rocm_tui.actions.verify import verify as verify_pin
from rocm_tui.actions.verify_program import pins_to_verify
from rocm_tui.environment import device_env, device_to_measure, lane
from rocm_tui.jobs.load import busy_warning
from rocm_tui.jobs.queue import Order
from rocm_tui.jobs.run import RunJob
from rocm_tui.jobs.tune import problem_of
from rocm_tui.jobs.tune import tune as tune_problem
from rocm_tui.render.choices import name_of
from rocm_tui.render.jobs import key_title, outcome, problem_title, verified_text
from rocm_tui.render.measured import meaning, standing
from rocm_tui.session.model import Row
from rocm_tui.session.numbers import seconds
from rocm_tui.tui.base import BaseApp
from rocm_tui.tui.screens.dialogs import TuneAnswer, TuneScreen, confirm
from rocm_tui.tui.tunableop import list_order, untuned_list_of

UNASKED = 10
"""The maximum number of suspects that are measured without asking."""


async def tune(app: BaseApp, row: Row) -> None:
    """Ask what to try, then queue the tuning of this problem."""
    if app.asking:
        return
    problem = problem_of(row.tuning)
    untuned = untuned_list_of(row)

    def typed(answer: TuneAnswer) -> str:
        options, device = answer.options, answer.device
        if answer.tunableop and untuned is not None:
            return app.shell.tune_list(untuned.path, untuned.results, options.budget, device)
        return app.shell.tune(row, options, device)

    answer = await app.push_screen_wait(TuneScreen(row, problem, typed, untuned))
    if answer is None:
        return
    if answer.tunableop and untuned is not None:
        budget = answer.options.budget
        order = list_order(untuned, answer.device, budget, row.id, app.layout)
    else:
        order = tune_order(problem, answer, row.id)
    app.queue(order, typed(answer), f"Tuning {order.title}")


async def measure(app: BaseApp, row: Row, marked: AbstractSet[str]) -> None:
    """Queue the measurement of the marked choices, else of those near the best."""
    wanted = [choice for choice in row.tuning.choices if name_of(choice) in marked]
    choices = choices_to_measure(row, wanted)
    measure_job(row.tuning, choices)  # what cannot be measured is said before a worker starts
    order = measure_order(row.tuning, choices, row.id, row.pin)
    count = counted(len(choices), "choice")
    command = app.shell.measure(row, choices)
    if warning := busy_warning([row.tuning]):
        lines = [f"{warning[0].upper()}{warning[1:]}."]
        if not await confirm(app, "Measure anyway?", "Measure", lines, command):
            return
    app.queue(order, command, f"Measuring {count} of {order.title}")


async def measure_suspects(app: BaseApp, rows: Sequence[Row]) -> None:
    """Queue measurements of the suspects, whose times are implausible; ask first if they are
    many."""
    if app.asking:
        return
    findings = find_suspects(row for row in rows if not app.jobs.about(row.tuning, {*row.ids}))
    suspects = findings.suspects
    if not suspects:
        app.warn(f"No suspect is left to measure. {findings.missing}".strip())
        return
    count = counted(len(suspects), "suspect")
    around = f"about {seconds(findings.seconds)} in all"
    lines = [
        f"Each in a job of its own, the longest first: {around}.",
        "4 shows them, x cancels one. Results show as they come.",
        *([findings.missing] if findings.others else []),
    ]
    warning = busy_warning(suspect.row.tuning for suspect in suspects)
    if warning:
        lines.append(f"{warning[0].upper()}{warning[1:]}.")
    command = app.shell.measure_suspects()
    asks = warning or len(suspects) > UNASKED
    if asks and not await confirm(app, f"Measure {count}?", "Measure", lines, command):
        return
    for suspect in suspects:
        row = suspect.row
        order = measure_order(row.tuning, suspect.choices, row.id, row.pin)
        app.jobs.submit(replace(order, command=app.shell.measure(row, suspect.choices)))
    words = f"Measuring {count}, {around} (4). {findings.missing}"
    app.notify(words.strip(), markup=False, timeout=4)


async def verify(app: BaseApp, status: PinStatus) -> None:
    """Queue a verification: does a compile really call the pinned choice?"""
    order = verify_order(status.pin, app.layout)
    app.queue(order, app.shell.verify(status.pin), f"Verifying the pin of {order.title}")


async def verify_all(app: BaseApp, statuses: Sequence[PinStatus]) -> None:
    """Queue a `verify` job for each of these pins."""
    for status in statuses:
        command = app.shell.verify(status.pin)
        app.jobs.submit(replace(verify_order(status.pin, app.layout), command=command))
    app.notify(f"Verifying {counted(len(statuses), 'pin')} (4).", markup=False, timeout=3)


def verify_order(pin: Pin, layout: Layout) -> Order:
    """Return the verification of a pin for the queue. A pin that does not hold is a failed job."""

    def work(run: RunJob) -> str:
        [asked] = pins_to_verify([pin], layout)
        result = verify_pin(run, asked)
        keep_result(layout, pin, result)
        if not result.ok:
            raise NotVerified(verified_text(pin, result))
        return verified_text(pin, result)

    return Order(
        kind="verify",
        title=key_title(pin.op, pin.inputs),
        lane=lane(None, pin.device),
        work=work,
        key=pin.key,
    )


def measure_order(
    tuning: Tuning, choices: Sequence[Choice], id: str, pin: PinStatus | None = None
) -> Order:
    """Return a measurement for the queue; its result names the choice in use of a pinned tuning."""

    device = device_to_measure(None, tuning.device_index)

    def work(run: RunJob) -> str:
        measurement = Measuring(run, tuning, choices).once()
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
    """Return a tuning for the queue."""
    given = problem
    if answer.device == "cpu" and problem.key is None:
        given = replace(problem, device="cpu")

    def work(run: RunJob) -> str:
        return outcome(tune_problem(run, given, answer.options))

    return Order(
        kind="tune",
        title=problem_title(problem),
        lane=lane(answer.device, problem.device),
        work=work,
        env=device_env(os.environ, answer.device),
        key=problem.key,
        tuning=id,
    )
