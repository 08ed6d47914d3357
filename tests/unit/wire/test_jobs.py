"""Jobs and what comes of them over the wire: every field comes back, and nonsense is one line."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest

from backend.model.choice import Choice, MeasuredChoice, Measurement
from backend.model.graph import Swap, Trial, TrialArm
from backend.wire.codec import dumps, to_json
from backend.wire.jobs import (
    JOBS,
    CompileJob,
    CompileResult,
    Environment,
    EnvironmentJob,
    Gpu,
    JobInvalid,
    MeasureJob,
    MeasureResult,
    Progress,
    ResultInvalid,
    TrialJob,
    TrialResult,
    TunableOpJob,
    TunableOpResult,
    TunedProduct,
    TuneJob,
    TuneResult,
    VerifyJob,
    VerifyResult,
    WorkerJob,
    answer_of,
    job_of,
    job_words,
    progress_of,
)
from tests.support.places import ROOT

BEST = MeasuredChoice("a-1", 1.0, 0.9, 1.1, 0.01, 9, 1.0, 0.0, float("inf"), "unclear")
MEASURED = Measurement("mm", "[]", "highest", 1.0, (BEST,), (Choice("b", "b-1", failed=True),))
TRIED = Trial("a1b2c3d", 1.0, (TrialArm((), 1.0), TrialArm((), failed="no")), trouble=("busy",))
ANSWERED: list[tuple[WorkerJob[Any], object]] = [
    (EnvironmentJob(fit=True), Environment("2.13.0", hip="7.0", gpu=True, compute_units=304)),
    (
        CompileJob(TuneJob("mm", "[]", "highest"), Gpu("gfx942", 304, {"hip": "a1"})),
        CompileResult(ok=True, compiled=3, found=1, failed={"a": "no"}, off=("Triton: gone",)),
    ),
    (
        TunableOpJob("/c/t", "GemmTunableOp_Half_NN,nn_4_8_2_ld_4_2_4"),
        TunableOpResult(
            True, "no", {"PT_VERSION": "2.13.0"}, (TunedProduct("a", "b", "Default", float("inf")),)
        ),
    ),
    (
        MeasureJob("mm", "[]", "highest", ("a-1", "b-1"), 1.5, broken={"b-1": "it died"}),
        MeasureResult(ok=True, measurement=MEASURED, missing=("b-1",), modes=3),
    ),
    (
        TuneJob("mm", shapes=((4, 8), (8, 2)), dtypes=("torch.float32",), backends=("ATEN",)),
        TuneResult(ok=True, op="mm", choices=(Choice("a", "a-1", 0.5),), skipped=1, pin="active"),
    ),
    (
        TrialJob("a1b2c3d", ((), (Swap("mm", "[]", "highest", "a-1"),)), 1.5, error=0.1, root="/c"),
        TrialResult(ok=True, trial=TRIED),
    ),
    (VerifyJob("mm", "[]", "highest", "a-1", 1, 4), VerifyResult(ok=False, reason="no", modes=3)),
]


@pytest.mark.parametrize(("job", "answer"), ANSWERED, ids=lambda value: type(value).__name__)
def test_what_goes_over_the_wire_comes_back(job: WorkerJob[Any], answer: Any) -> None:
    assert job_of(json.loads(dumps(job_words(job)))) == job
    assert answer_of(job, json.loads(dumps(to_json(answer)))) == answer
    later = {**job_words(job), "id": 1, "mark": 5, "new": True}
    assert job_of(json.loads(dumps(later))) == job, (
        "the envelope, and what a later version may add, is passed over"
    )


def test_each_kind_has_a_sample_and_a_module() -> None:
    assert {type(job) for job, _ in ANSWERED} == set(JOBS.values())
    folder = ROOT / "backend" / "worker" / "jobs"
    assert {path.stem for path in folder.glob("[a-z]*.py")} == set(JOBS)


KEY = {"op": "mm", "inputs": "[]", "precision": "highest"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({}, "no such job: None"),
        ({"job": ["tune"]}, "no such job"),
        ({"job": "verify", **KEY}, "needs the text `hash`"),
        ({"job": "measure", **KEY}, "needs `hashes`"),
        ({"job": "measure", **KEY, "hashes": []}, "`hashes` is empty"),
        ({"job": "measure", **KEY, "hashes": [1]}, "is not text: 1"),
        ({"job": "measure", **KEY, "hashes": ["a"], "budget": 0}, "a number of seconds above 0"),
        ({"job": "measure", **KEY, "hashes": ["a"], "budget": "inf"}, "a number of seconds"),
        ({"job": "verify", **KEY, "hash": "a", "threads": 0}, "a whole number above 0"),
        ({"job": "verify", **KEY, "hash": "a", "mode": -1}, "a whole number, 0 or more"),
        ({"job": "tune", "op": "mm", "shapes": [[4, -1]]}, "whole numbers, 0 or more"),
        ({"job": "tune", "op": "mm", "search_space": "huge"}, "is none of DEFAULT, EXHAUSTIVE"),
        ({"job": "tune", "op": "mm", "broken": {"a": 1}}, "is not text: 1"),
    ],
)
def test_a_job_that_makes_no_sense_says_why(words: dict[str, Any], said: str) -> None:
    with pytest.raises(JobInvalid, match=said) as caught:
        job_of(words)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("words", [{}, {"ok": "yes"}, {"ok": True, "measurement": {"op": "mm"}}])
def test_an_answer_that_makes_no_sense_is_none(words: dict[str, Any]) -> None:
    with pytest.raises(ResultInvalid, match="the worker's answer makes no sense"):
        answer_of(MeasureJob("mm", "[]", "highest", ("a",)), words)


def test_progress_that_makes_no_sense_says_nothing() -> None:
    told = {"event": "progress", "what": "x", "timed": 1, "total": 4, "best_ms": 0.5, "log": "/l"}
    assert progress_of(told) == Progress("x", timed=1, total=4, best_ms=0.5, log="/l")
    for field in fields(Progress):
        wrong = [None, 5] if field.type == "str" else ["x", -1, 10**400, True]
        for value in wrong:
            assert progress_of({"what": "x", field.name: value}) in (Progress(), Progress("x"))
