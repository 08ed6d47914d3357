"""How far a job is: counts, a bar, and no time to go before it can be told."""

from __future__ import annotations

from dataclasses import replace

from backend.model.choice import NOT_TIMED, Choice
from backend.model.tuning import Pin, Tuning
from backend.wire.jobs import Progress, VerifyResult
from rocm_tui.jobs.queue import Job
from rocm_tui.render.choices import choices_text
from rocm_tui.render.jobs import (
    left_cell,
    mark,
    progress_cell,
    skipped_text,
    took,
    verified_text,
)
from rocm_tui.session.model import Row

JOB = Job(1, "tune", "mm 8×8", "cpu", None, None, "running", started=100.0)


def test_choices() -> None:
    compiling = replace(JOB, progress=Progress("compiling", compiled=3, total=12))
    assert progress_cell(compiling).split() == ["━━", "3/12"] and mark(compiling) == "▶ 3/12"
    timed = replace(JOB, progress=Progress("", 12, 1, 12, seconds_left=60.0))
    assert left_cell(timed, 110.0) == "≤ 1 min 0 s"  # of the budget: one time is no pace
    timed = replace(JOB, progress=Progress("", 12, 6, 12, seconds_left=8.0))
    assert (progress_cell(timed), left_cell(timed, 110.0)) == ("━━━━     6/12", "8.0 s")


def test_verdicts_processes_budgets() -> None:
    clear = Progress("", rounds=40, settled=2, choices=5, seconds_left=12.0)
    measured = replace(JOB, kind="measure", progress=clear)
    assert mark(measured) == "▶ 2/4" and left_cell(measured, 1.0) == "≤ 12 s"
    proof = replace(JOB, kind="prove", done=2, total=10)
    assert (mark(proof), left_cell(proof, 140.0)) == ("▶ 2/10", "2 min 40 s")
    assert left_cell(replace(proof, done=1), 140.0) == "–"
    search = replace(JOB, kind="improve", step="tuning 1 of 7, mm 8×8", until=400.0)
    assert (progress_cell(search), mark(search)) == ("tuning 1 of 7", "▶ runs")
    assert left_cell(search, 150.0) == "≤ 4 min 10 s"


def test_those_that_wait_and_those_that_are_over() -> None:
    waits = replace(JOB, state="queued", started=None)
    assert (progress_cell(waits), mark(waits), left_cell(waits, 5.0)) == ("", "queued", "–")
    over = replace(JOB, state="done", ended=112.0)
    assert (left_cell(over, 500.0), took(over, 500.0), took(waits, 5.0)) == ("", 12.0, None)
    assert mark(replace(JOB, state="running"), "0/2") == "▶ 0/2"


def test_a_pin_that_is_not_offered_is_named_as_a_person_knows_it() -> None:
    pin = Pin("bmm", "x", "highest", "cpp-3f2", "cpp_CppMicroGemm_0", "s", {})
    reason = "cpp-3f2 is none of the 3 choices that this torch offers"
    said = verified_text(pin, VerifyResult(False, reason))
    assert said == (
        "not verified: cpp_CppMicroGemm_0 (cpp-3f2) is none of the 3 choices that this torch offers"
    )
    unnamed = replace(pin, label=pin.hash)
    assert verified_text(unnamed, VerifyResult(False, reason)) == f"not verified: {reason}"


def test_what_a_budget_left_out_is_said_and_is_no_failure() -> None:
    """Inductor's cache has it as failed, so that it is not taken until it is tuned again."""
    reason = f"{NOT_TIMED}the budget of 1 s was spent"
    choices = (Choice("a", "a-1", 1.0), Choice("b", "b-1", failed=True, reason=reason))
    tuning = Tuning("mm", choices=choices)
    assert skipped_text(tuning) == (
        "1 of 2 choices not timed, the budget was spent: the cache has it as failed until the next "
        "tuning"
    )
    assert "not timed  " in choices_text(Row("k", "abc", 1, tuning))
    broken = replace(tuning, choices=(choices[0], replace(choices[1], reason="it crashed")))
    assert skipped_text(broken) == ""
    assert "failed  " in choices_text(Row("k", "abc", 1, broken))
