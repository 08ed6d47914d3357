"""The job `tune`: Inductor's own tuning made again, under the key that a model's own has."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from backend.cache.autotune import cache_paths, read_caches
from backend.cache.journal import Journal
from backend.cache.lookup import PATIENCE_SECONDS
from backend.disk import safe
from backend.disk.layout import Layout
from backend.model.events import (
    BenchmarkStarted,
    ChoiceFailed,
    ChoiceSelected,
    ChoiceTimed,
    SessionEnded,
)
from backend.model.problem import TuningKey
from backend.model.tuning import Tuning as Record
from backend.pins.store import PinStore
from rocm_tui.jobs.worker import Worker, spawn_worker
from tests.support.documents import document
from tests.support.hooked import by_tuning, sessions
from tests.support.pin_lab import measured
from tests.support.terminal_lab import raised_numbers
from tests.support.torch_models import child_env, compiled

pytestmark = pytest.mark.torch

JOB = {
    "job": "tune",
    "op": "bmm",
    "shapes": [[4, 32, 64], [4, 64, 96]],
    "dtypes": ["torch.float32"],
}


@dataclass(frozen=True)
class Tuned:
    """One tune job on an empty cache; then a model with that bmm, as stock PyTorch compiles it."""

    cache: Path
    result: dict[str, Any]
    heard: list[Any]
    benchmarks: int
    before: bytes


def model(cache: Path) -> int:
    """Compile the model under stock PyTorch; how many tunings it benchmarked."""
    return compiled(["small_bmm"], cache).tuned["small_bmm"]


def entry(cache: Path) -> tuple[TuningKey, dict[str, float]]:
    """The one tuning of a cache: its key and times."""
    (file,), problems = read_caches(Layout(cache))
    assert problems == []
    ((key, times),) = file.entries.items()
    return key, dict(times)


def cache_file(cache: Path) -> Path:
    (path,) = (p for p in Layout(cache).autotune.iterdir() if not p.name.startswith("."))
    return path


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tuned") / "cache"


@pytest.fixture(scope="module")
def worker(cache: Path) -> Iterator[Worker]:
    with spawn_worker(sys.executable, cache, child_env(cache)) as found:
        yield found


@pytest.fixture(scope="module")
def tuned(cache: Path, worker: Worker) -> Tuned:
    heard: list[Any] = []
    result = worker.exchange(JOB, heard.append, 300)
    before = cache_file(cache).read_bytes()
    return Tuned(cache, result, heard, model(cache), before)


def test_our_kernels_are_timed_in_a_process_that_no_choice_is_blamed_for(tmp_path: Path) -> None:
    """The process that runs our kernels starts with the first of them and serves the others."""
    job = {**JOB, "templates": True}
    with spawn_worker(sys.executable, tmp_path / "cache", child_env(tmp_path / "cache")) as worker:
        result = worker.exchange(job)
    ours = [choice for choice in result["choices"] if choice["hash"].startswith("rocm_")]
    assert len(ours) > 1
    assert [choice for choice in ours if choice["failed"]] == []


def test_the_model_finds_its_tuning_and_benchmarks_nothing(tuned: Tuned, tmp_path: Path) -> None:
    assert tuned.result["ok"], tuned.result
    assert tuned.benchmarks == 0
    assert cache_file(tuned.cache).read_bytes() == tuned.before
    assert model(tmp_path) == 1, "on an empty cache the same model does benchmark"
    own, own_times = entry(tmp_path)
    key, times = entry(tuned.cache)
    assert key == own == TuningKey(*(tuned.result[n] for n in ("op", "inputs", "precision")))
    assert times.keys() == own_times.keys() and len(times) == 2
    assert times == {choice["hash"]: choice["ms"] for choice in tuned.result["choices"]}
    assert tuned.result["system_hash"] == cache_file(tmp_path).name


def test_it_is_told_while_it_runs_and_recorded(tuned: Tuned) -> None:
    told = [event for event in tuned.heard if event.get("total")]
    assert [event["timed"] for event in told[:3]] == [0, 1, 2]
    assert all(event["total"] == 2 for event in told)
    times = [choice["ms"] for choice in tuned.result["choices"]]
    assert told[-1]["best_ms"] == min(times) == times[0]
    assert told[-1]["best"] == tuned.result["choices"][0]["name"]
    session = sessions(tuned.cache)[0]
    ((_, events),) = by_tuning(session)
    assert isinstance(session[-1], SessionEnded)
    kinds = [BenchmarkStarted, ChoiceTimed, ChoiceTimed, ChoiceSelected]
    assert [type(event) for event in events] == kinds
    assert events[-1].by == "timing"
    assert Path(told[0]["log"]).parent == Layout(tuned.cache).sessions


def test_a_spent_budget_leaves_choices_out_and_no_time_is_lost(
    tuned: Tuned, worker: Worker
) -> None:
    """Ours are offered too; they have no times yet, so that the cache must say that they failed."""
    key, before = entry(tuned.cache)
    job = {**JOB, "templates": True, "budget": 0.001}
    result = worker.exchange(job, timeout=300)
    assert result["ok"], result
    first, *rest = result["choices"]
    reason = "not timed: the budget of 0.001 s was spent"
    assert first["ms"] > 0 and len(rest) == result["skipped"] >= 3
    assert {(choice["failed"], choice["reason"]) for choice in rest} == {(True, reason)}
    assert result["seconds"] < 60
    _, after = entry(tuned.cache)
    assert {name: after[name] for name in before} == {**before, first["hash"]: first["ms"]}
    ours = after.keys() - before.keys()
    assert ours and {after[name] for name in ours} == {float("inf")}
    ((_, events),) = by_tuning(sessions(tuned.cache)[-1])
    assert {e.reason for e in events if isinstance(e, ChoiceFailed)} == {reason}

    again = worker.exchange({"job": "tune", **key_words(key)}, timeout=300)
    assert again["ok"] and len(again["choices"]) == 2
    _, kept = entry(tuned.cache)
    assert ours < kept.keys(), "what was not offered this time stays"
    assert all(kept[choice["hash"]] == choice["ms"] for choice in again["choices"])
    assert model(tuned.cache) == 0


def key_words(key: TuningKey) -> dict[str, str]:
    return {"op": key.op, "inputs": key.inputs, "precision": key.precision}


def test_a_pin_survives_and_learns_the_new_times(tuned: Tuned, worker: Worker) -> None:
    key, times = entry(tuned.cache)
    slow = max((h for h, ms in times.items() if ms < float("inf")), key=times.__getitem__)
    pins = PinStore(Layout(tuned.cache))
    pins.pin(None, key, slow)
    result = worker.exchange({"job": "tune", **key_words(key)}, timeout=300)
    assert result["ok"] and result["pin"] == "active", result
    new = {choice["hash"]: choice["ms"] for choice in result["choices"]}
    assert new != {name: times[name] for name in new}
    (status,) = pins.status()
    assert status.state == "active" and status.pin.drifts == 0
    learned = measured(pins, key)
    assert learned is not None and {name: learned[name] for name in new} == new
    _, held = entry(tuned.cache)
    assert held[slow] == new[slow]
    (path,) = cache_paths(Layout(tuned.cache))
    rivals = {name for name, ms in held.items() if ms < float("inf")} - {slow}
    assert len(raised_numbers(path)) == len(rivals) > 0
    pins.unpin(key)
    _, free = entry(tuned.cache)
    assert {name: free[name] for name in new} == new
    assert [found.what for found in pins.history()] == ["pin", "retune", "unpin"]


def test_times_that_cannot_be_kept_are_no_success(tuned: Tuned, worker: Worker) -> None:
    pins = Layout(tuned.cache).pins
    before = pins.read_bytes()
    pins.write_text("{broken")
    result = worker.exchange(JOB, timeout=300)
    assert not result["ok"] and "measured but not kept" in result["reason"], result
    assert str(pins) in result["reason"] and pins.read_text() == "{broken"
    pins.write_bytes(before)


def test_times_are_kept_although_another_process_is_writing_the_file_for_seconds(
    tuned: Tuned, worker: Worker
) -> None:
    (path,) = cache_paths(Layout(tuned.cache))
    journal = Journal(tuned.cache, path)
    before = journal.signature()
    with ThreadPoolExecutor(1) as pool:
        with safe.locked(tuned.cache, path):
            job = pool.submit(worker.exchange, JOB, timeout=300)
            while journal.signature() == before and not job.done():
                time.sleep(0.05)
            time.sleep(PATIENCE_SECONDS + 1)  # longer than a program waits
        result = job.result()
    assert result["ok"], result
    times = {choice["hash"]: choice["ms"] for choice in result["choices"]}
    assert entry(tuned.cache)[1].items() >= times.items()  # a test before may have left ours, too


def test_times_are_kept_although_the_pin_cannot_be_applied_again(
    tuned: Tuned, worker: Worker
) -> None:
    (path,) = cache_paths(Layout(tuned.cache))
    journal, pins = Journal(tuned.cache, path), Layout(tuned.cache).pins
    before, good = journal.signature(), pins.read_bytes()
    with ThreadPoolExecutor(1) as pool:
        with safe.locked(tuned.cache, path):
            job = pool.submit(worker.exchange, JOB, timeout=300)
            while journal.signature() == before and not job.done():
                time.sleep(0.05)
            pins.write_text("{broken")  # its times are in the journal, and wait for the file
        result = job.result()
    pins.write_bytes(good)
    assert result["ok"] and result["pin"] is None, result
    key, _ = entry(tuned.cache)
    assert journal.choices(key) >= {choice["hash"] for choice in result["choices"]}


def test_the_command_tunes_by_id_and_prints_the_row(tuned: Tuned) -> None:
    key, before = entry(tuned.cache)
    id_ = Record(key.op, inputs_key=key.inputs, precision=key.precision).id
    words = [sys.executable, "-m", "rocm_tui", "tune", id_, "--json", "--no-templates"]
    done = subprocess.run(
        words, env=child_env(tuned.cache), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr
    told = document(done.stdout, "tune")
    (row,) = told["tunings"]
    assert row["id"] == id_ and row["selected_by"] == "timing" and told["failed"] == []
    _, after = entry(tuned.cache)
    assert after.keys() == before.keys() and after != before


F32 = "'cpu', 'torch.float32'"


@pytest.mark.parametrize(
    ("job", "why"),
    [
        ({"op": "convolution"}, "convolution cannot be rebuilt"),
        ({"backends": ["ATEN"]}, "nothing to choose from: Inductor offers bmm"),
        ({"shapes": [[4, 32], [32, 4]], "op": "mm"}, "nothing to choose from: Inductor offers mm"),
        (
            {"inputs": f"[({F32}, 32, 4, 8, 2, 0), ({F32}, 4, 8, 8, 1, 0)]", "op": "mm"},
            "Inductor tuned mm",
        ),
        ({"device": "cuda"}, "no torch.float32 tensor on cuda here"),
        ({"dtypes": ["torch.load"]}, "no dtype"),
    ],
)
def test_what_cannot_be_tuned_says_why(worker: Worker, job: dict[str, Any], why: str) -> None:
    result = worker.exchange({**JOB, "precision": "highest", **job}, timeout=200)
    assert not result["ok"] and why in result["reason"] and "\n" not in result["reason"], result
    json.dumps(result)


NEWER = """
import sys
class Version(tuple):
    major, minor, micro = 3, 11, 9
sys.version_info = Version((3, 11, 9, "final", 0))
"""
"""Older ones compile no choice ahead (https://github.com/python/cpython/issues/106905)."""
BROKEN = """#!/bin/sh
for word; do
    case $word in *.cpp) ;; *) continue ;; esac
    grep -q micro_gemm "$word" && { echo "x.cpp:1:1: error: no" >&2; exit 1; }
done
exec g++ "$@"
"""


def test_what_fails_to_compile_ahead_is_kept_as_failed(tmp_path: Path) -> None:
    """torch keeps no time of it, and a program in which it does not fail tunes all again."""
    (tmp_path / "sitecustomize.py").write_text(NEWER)
    compiler = tmp_path / "g++"
    compiler.write_text(BROKEN)
    compiler.chmod(0o755)
    env = child_env(tmp_path / "cache") | {"CXX": str(compiler)}
    env["PYTHONPATH"] = f"{tmp_path}:{env.get('PYTHONPATH', '')}"
    with spawn_worker(sys.executable, tmp_path / "cache", env) as worker:
        result = worker.exchange(JOB)
    assert result["ok"], result
    _, times = entry(tmp_path / "cache")
    assert sorted(map(math.isinf, times.values())) == [False, True]
    reasons = [choice["reason"] for choice in result["choices"] if choice["failed"]]
    assert len(reasons) == 1 and "error: no" in str(reasons), reasons
