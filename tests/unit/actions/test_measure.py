"""Which choices are worth measuring, and how a worker is asked for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from backend.model.choice import Choice, MeasuredChoice, Measurement
from backend.model.tuning import Pin, Tuning
from backend.pins.state import PinStatus
from backend.wire.jobs import (
    MeasureJob,
    MeasureResult,
    Progress,
    WorkerJob,
)
from rocm_tui.actions.measure import (
    Measuring,
    NotMeasured,
    check_percent,
    choices_to_measure,
    measure_job,
    worth_measuring,
)
from rocm_tui.config.settings import Config
from rocm_tui.errors import NoSuchChoice, UsageError
from rocm_tui.jobs.limits import JobError, WorkerDied
from rocm_tui.session.model import Row
from tests.support.pin_lab import KEY

TIMES = {"cpp_0": 1.0, "cpp_1": 1.04, "cpp_2": 1.2, "cpp_3": 1.5, "mm": 2.0, "mm_dtype": 3.0}
TUNING = Tuning(
    KEY.op,
    inputs_key=KEY.inputs,
    precision=KEY.precision,
    choices=tuple(Choice(name, f"{name}-h", ms) for name, ms in TIMES.items()),
    threads=3,
)


def names(choices: Any) -> list[str]:
    return [choice.label for choice in choices]


@pytest.mark.parametrize(
    ("within", "pinned", "worth"),
    [
        (0.0, None, ["cpp_0", "cpp_1", "mm"]),
        (0.2, None, ["cpp_0", "cpp_1", "cpp_2", "mm"]),
        (0.0, "cpp_3-h", ["cpp_0", "cpp_1", "cpp_3", "mm"]),
        (9.0, None, list(TIMES)),
    ],
)
def test_the_fastest_two_atens_best_and_the_pinned_one_are_always_worth_it(
    within: float, pinned: str | None, worth: list[str]
) -> None:
    assert names(worth_measuring(TUNING, pinned, within)) == worth
    assert worth_measuring(replace(TUNING, choices=())) == ()
    row = Row("k", "abc1234", 1, TUNING)
    if pinned:
        pin = Pin(KEY.op, KEY.inputs, KEY.precision, pinned, "it", "s", {})
        row = replace(row, pin=PinStatus(pin, "active", ""))
    assert names(choices_to_measure(row, (), within)) == worth


def test_a_job_has_the_budget_of_the_settings_and_the_threads_of_the_tuning() -> None:
    job = measure_job(TUNING, TUNING.choices[:2])
    assert job.hashes == ("cpp_0-h", "cpp_1-h") and job.threads == 3
    assert (job.op, job.inputs, job.precision) == (KEY.op, KEY.inputs, KEY.precision)
    assert (job.budget, job.caches, job.rounds) == (Config().budgets.measure, None, 0)
    job = measure_job(TUNING, TUNING.choices[:2], budget=2.5, caches="hot", rounds=7)
    assert (job.budget, job.caches, job.rounds) == (2.5, "hot", 7)
    with pytest.raises(NoSuchChoice):
        measure_job(TUNING, [*TUNING.choices[:1], Choice("log_only", None, 1.0)])


class Worker:
    """A `RunJob` whose answers depend on the job; `jobs` are those that it was given."""

    def __init__(self, answer: Callable[[MeasureJob], MeasureResult]) -> None:
        self.jobs: list[MeasureJob] = []
        self._answer = answer

    def __call__(self, job: WorkerJob[Any]) -> Any:
        assert isinstance(job, MeasureJob)
        self.jobs.append(job)
        return self._answer(job)


def measured(job: MeasureJob, *missing: str) -> MeasureResult:
    found = [hash for hash in job.hashes if hash not in missing]
    choices = tuple(
        MeasuredChoice(hash, 1.0, 1.0, 1.0, 0.01, 9, 1.0, 1.0, 1.0, "tied") for hash in found
    )
    result = Measurement(job.op, job.inputs, job.precision, 1.0, choices)
    return MeasureResult(True, measurement=result, missing=missing, modes=3)


def measuring(worker: Worker, *, budget: float = 9.0) -> Measuring:
    return Measuring(worker, TUNING, TUNING.choices[:3], budget=budget)


def test_the_mode_that_offers_all_choices_stays() -> None:
    worker = Worker(lambda job: measured(job, *() if job.mode == 1 else ("cpp_2-h",)))
    again = measuring(worker)
    assert len(again.once().choices) == len(again.once().choices) == 3
    assert [(job.mode, job.partly) for job in worker.jobs] == [(0, False), (1, False), (1, False)]
    assert again.budget == 9.0


def test_where_no_mode_offers_all_the_one_with_most_is_used() -> None:
    missing = {0: ("cpp_1-h", "cpp_2-h"), 1: ("cpp_2-h",), 2: ("cpp_0-h", "cpp_1-h")}
    worker = Worker(lambda job: measured(job, *missing[job.mode]))
    again = measuring(worker)
    assert [choice.hash for choice in again.once().choices] == ["cpp_0-h", "cpp_1-h"]
    again.once()
    modes = [(job.mode, job.partly) for job in worker.jobs]
    assert modes == [(0, False), (1, False), (2, False), (1, True), (1, True)]


def test_where_no_mode_offers_any_nothing_is_asked_again() -> None:
    worker = Worker(lambda job: measured(job, *job.hashes))
    measuring(worker).once()
    assert [job.partly for job in worker.jobs] == [False] * 3


def test_a_choice_that_ends_its_worker_is_left_out_from_then_on() -> None:
    def answer(job: MeasureJob) -> MeasureResult:
        if "cpp_1-h" not in job.broken:
            error = WorkerDied("it died")
            error.blamed, error.last = "cpp_1-h", Progress(seconds_left=4.0)
            raise error
        return measured(job)

    worker = Worker(answer)
    again = measuring(worker)
    again.once()
    again.once()
    assert [job.broken for job in worker.jobs] == [{}, *[{"cpp_1-h": "it died"}] * 2]
    assert [job.budget for job in worker.jobs] == [9.0, 4.0, 9.0]


@pytest.mark.parametrize("blamed", [None, "another"])
def test_a_worker_that_dies_for_another_reason_ends_it(blamed: str | None) -> None:
    def answer(job: MeasureJob) -> MeasureResult:
        error = WorkerDied("it died")
        error.blamed = blamed
        raise error

    worker = Worker(answer)
    with pytest.raises(JobError, match="it died"):
        measuring(worker).once()
    assert len(worker.jobs) == 1


def test_where_each_choice_ends_its_worker_nothing_is_measured() -> None:
    def answer(job: MeasureJob) -> MeasureResult:
        error = WorkerDied("it died")
        error.blamed = next(hash for hash in job.hashes if hash not in job.broken)
        raise error

    worker = Worker(answer)
    with pytest.raises(NotMeasured, match=r"none of the choices.*cpp_2: it died"):
        measuring(worker).once()
    assert len(worker.jobs) == 3


@pytest.mark.parametrize(("percent", "share"), [(0, 0.0), (50, 0.5), (999_999_999, 9_999_999.99)])
def test_a_percentage_becomes_a_share(percent: float, share: float) -> None:
    assert check_percent(percent) == pytest.approx(share)


@pytest.mark.parametrize("percent", [-0.1, 1e9, float("nan"), float("inf")])
def test_what_is_no_percentage_is_refused_by_its_name(percent: float) -> None:
    with pytest.raises(UsageError, match="--within"):
        check_percent(percent)
