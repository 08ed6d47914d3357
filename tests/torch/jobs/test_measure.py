"""The job `measure` on real choices of this CPU: ATen's and Inductor's C++ kernels."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from backend.disk.sessions import read_log
from backend.model.choice import Measurement
from backend.model.events import SessionEnded, SessionStarted, TuningMeasured
from backend.wire.codec import read
from backend.wire.jobs import MeasureResult
from rocm_tui.actions.measure import measurement_of
from rocm_tui.jobs.limits import JobFailed
from rocm_tui.jobs.worker import Worker, spawn_worker
from tests.support.cpu_offers import onednn_takes_bfloat16
from tests.support.places import ROOT
from tests.support.torch_models import child_env
from tests.support.warm_python import warm_python

pytestmark = pytest.mark.torch

SHAPES = [[4, 48, 48], [4, 48, 48]]
"""On the CPU of the first writing, with one thread: ATen 10.5 us, C++ 3 to 8 % more."""
RUNS = 10


@dataclass(frozen=True)
class Lab:
    """A worker, and the job that measures all choices of one bmm."""

    worker: Worker
    job: dict[str, Any]
    cache: Path

    def measure(self, **more: Any) -> Measurement:
        return measured(self.worker.exchange({**self.job, **more}))


def measured(result: dict[str, Any]) -> Measurement:
    """What a worker told in JSON."""
    return measurement_of(read(MeasureResult, result))


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    cache = tmp_path_factory.mktemp("measure") / "cache"
    tune = {"job": "tune", "op": "bmm", "shapes": SHAPES, "dtypes": ["torch.float32"]}
    with spawn_worker(sys.executable, cache) as worker:
        first = worker.exchange(tune)
        job = {
            "job": "measure",
            **{name: first[name] for name in ("op", "inputs", "precision")},
            "hashes": [choice["hash"] for choice in first["choices"]],
            "budget": 5.0,
        }
        yield Lab(worker, job, cache)


def _stem(hash: str) -> str:
    return hash.partition("-")[0]


def test_ten_measurements_agree_with_each_other(lab: Lab) -> None:
    """A verdict is false with a chance of 2.5 %, so more than two of ten that contradict the
    others have one of 0.2 %."""
    found = [lab.measure() for _ in range(RUNS)]
    for at in map(_stem, lab.job["hashes"]):
        said = Counter(c.verdict for one in found for c in one.choices if _stem(c.hash) == at)
        assert said.total() == RUNS and min(said["faster"], said["slower"]) <= 2, (at, said)
    for one in found:
        best, other = one.choices
        assert 0 < best.low <= best.ms <= best.high and best.ratio == 1.0
        assert other.ratio_low <= other.ratio <= other.ratio_high
        assert one.reference_ms is not None and one.rounds >= 1


def test_a_measurement_is_a_session_of_its_own_and_tunes_nothing(lab: Lab) -> None:
    caches = {path: path.read_bytes() for path in (lab.cache / "cache").iterdir()}
    result = lab.worker.exchange(lab.job)
    started, told, ended = _events(Path(result["log"]))
    assert isinstance(started, SessionStarted) and isinstance(ended, SessionEnded)
    assert told == TuningMeasured(measured(result))
    assert told.measurement.session == started.session.id
    assert told.measurement.system_hash == started.session.system_hash
    assert {path: path.read_bytes() for path in (lab.cache / "cache").iterdir()} == caches


def _events(path: Path) -> list[Any]:
    events, problems = read_log(path)
    assert problems == []
    return events


def test_progress_counts_rounds_and_what_is_left_of_the_budget(lab: Lab) -> None:
    heard: list[Any] = []
    job = {**lab.job, "budget": 1.0}
    lab.worker.exchange(job, heard.append)
    told = [event for event in heard if "rounds" in event]
    assert told and told[-1]["choices"] == 2 and told[-1]["rounds"] >= 1
    assert all(event["seconds_left"] <= 1.0 for event in told)


def test_calls_whose_operands_are_in_no_cache_take_longer_and_the_measurement_says_so(
    lab: Lab,
) -> None:
    """Small operands are hot unless cold is asked for; a call is known better than to a tick."""
    small, hot, cold = (
        lab.measure(**caches, budget=2.0) for caches in ({}, {"caches": "hot"}, {"caches": "cold"})
    )
    assert (small.caches, hot.caches, cold.caches) == ("hot", "hot", "cold")
    for choice in hot.choices:
        other = cold.of(choice.hash)
        assert other is not None and other.ms > choice.ms
    for one in (hot, cold):
        assert one.resolution_ms is not None and 0 < one.resolution_ms < 1e-3


def test_choices_that_are_not_offered_are_asked_for_in_another_mode(lab: Lab) -> None:
    hashes = [*lab.job["hashes"], "triton_mm-ffff"]
    result = lab.worker.exchange({**lab.job, "hashes": hashes})
    assert (result["ok"], result["conclusive"], result["modes"]) == (False, False, 3)
    assert result["missing"] == ["triton_mm-ffff"] and "triton_mm-ffff" in result["reason"]
    found = lab.measure(hashes=hashes, partly=True, budget=0.5)
    (failed,) = found.failed
    assert failed.hash == "triton_mm-ffff" and "does not offer" in (failed.reason or "")
    assert len(found.choices) == 2


def test_what_cannot_be_measured_says_why(lab: Lab) -> None:
    result = lab.worker.exchange({**lab.job, "op": "convolution"})
    assert not result["ok"] and "cannot be rebuilt" in result["reason"]
    result = lab.worker.exchange({**lab.job, "inputs": "[]"})
    assert not result["ok"] and result["reason"]
    for wrong in ({"hashes": []}, {"hashes": "x"}, {"budget": 0}, {"budget": "1"}, {"mode": 9}):
        with pytest.raises(JobFailed):
            lab.worker.exchange({**lab.job, **wrong})


def test_what_does_not_compile_and_what_cannot_be_kept_is_told_and_the_rest_measured(
    lab: Lab, tmp_path: Path
) -> None:
    """A compiler that refuses the C++ template's kernel and nothing else; no place for a log."""
    compiler = tmp_path / "g++"
    compiler.write_text(
        f"#!/bin/sh\nif cat -- \"$@\" 2>/dev/null | grep -q micro_gemm; then\n"
        f"  echo 'kernel.cpp:1: error: refused' >&2; exit 1\nfi\n"
        f"PATH={os.environ['PATH']} exec g++ \"$@\"\n"
    )  # fmt: skip
    compiler.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "rocm_tui").write_text("no folder")
    with spawn_worker(sys.executable, cache, env) as worker:
        result = worker.exchange(lab.job)
        found = measured(result)
        (only,), (failed,) = found.choices, found.failed
        alone = measured(worker.exchange({**lab.job, "hashes": [only.hash]}))
        compiler.write_text(f'#!/bin/sh\nPATH={os.environ["PATH"]} exec g++ "$@"\n')
        again = measured(worker.exchange(lab.job))
    assert alone.failed == again.failed == ()  # not asked for; tried again
    assert (_stem(only.hash), only.verdict) == ("bmm", "unclear")
    assert _stem(failed.hash or "").startswith("Cpp") and "refused" in (failed.reason or "")
    assert result["log"] is None and "kept nowhere" in found.trouble[-1]


def test_all_choices_compute_the_same_on_tensors_that_moved(tmp_path: Path) -> None:
    """Strides, offsets and packed weights are the real ones, or the results would differ."""
    done = subprocess.run(
        [*warm_python(), "-m", "tests.support.measure_child"],
        cwd=ROOT,
        env=child_env(tmp_path),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    cases = [json.loads(line) for line in done.stdout.splitlines()]
    ops = ["bmm", "packed_linear", *["linear_unary"] * onednn_takes_bfloat16()]
    assert [case["op"] for case in cases] == ops
    for case in cases:
        assert case["choices"] >= 2 and case["failed"] == {}, case
        assert case["elsewhere"] and case["like"] and case["error"] < 0.02, case
