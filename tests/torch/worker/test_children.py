"""Workers of a worker, and what they share about the arms of a search."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import psutil
import pytest

from backend.disk.layout import Layout
from backend.errors import CacheUnreadable
from backend.model.graph import RETUNED, TEMPLATES, Arm, CompileOption, Swap
from backend.model.problem import TuningKey
from backend.wire.jobs import TrialJob, TrialResult
from backend.worker.children import run_children
from backend.worker.jobs import trial
from backend.worker.jobs.trial import ArmCache, ArmSelector, _by_times, _retuned

pytestmark = pytest.mark.torch

WORDS = ["-W", "ignore", "-m", "backend.worker"]
GONE = TrialJob("0000000", ((),))
"""It is answered at once: there is no such graph."""


@pytest.fixture(autouse=True)
def _in_a_worker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "orig_argv", [sys.executable, *WORDS])
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))


def workers() -> list[psutil.Process]:
    """Supervisors and the workers below them."""
    return [
        child
        for child in psutil.Process().children(recursive=True)
        if child.status() != psutil.STATUS_ZOMBIE and WORDS[-1] in child.cmdline()
    ]


def test_each_job_has_its_result_or_the_reason_why_not() -> None:
    seen = list[int]()
    answers = run_children(
        [GONE, TrialJob("0000000", ()), GONE], 300, lambda: seen.append(len(workers())), at_once=2
    )
    first, error, last = answers
    assert isinstance(first, TrialResult) and "cannot be read" in first.reason
    assert error == "the job's `arms` are empty"
    assert last == first
    assert max(seen) == 2 * 2 and not workers()


def test_a_child_that_dies_says_so_and_the_others_go_on() -> None:
    killed = set[int]()

    def kill() -> None:
        if not killed and (inner := [w for w in workers() if w.ppid() != os.getpid()]):
            first = inner[0]
            killed.add(first.pid)
            os.kill(first.pid, signal.SIGSEGV)

    answers = run_children([GONE, GONE], 300, kill)
    texts = [answer for answer in answers if isinstance(answer, str)]
    assert texts == ["one of the processes died of SIGSEGV"]
    assert sum(isinstance(answer, TrialResult) for answer in answers) == 1


def test_each_child_sees_the_next_gpu() -> None:
    shown = dict[int, tuple[str, str]]()

    def look() -> None:
        for child in workers():
            env = child.environ()
            shown[child.pid] = env["HIP_VISIBLE_DEVICES"], env["CUDA_VISIBLE_DEVICES"]

    answers = run_children([GONE] * 3, 300, look, gpus=["7", "GPU-a"])
    assert all(isinstance(answer, TrialResult) for answer in answers)
    gpus = Counter(shown.values())
    assert gpus == {("7", "7"): 2 * 2, ("GPU-a", "GPU-a"): 2}
    assert os.environ.get("CUDA_VISIBLE_DEVICES") != "7"


def test_at_the_deadline_all_are_ended() -> None:
    answers = run_children([GONE] * 3, 0.0, lambda: None, at_once=1)
    assert answers == ["it was ended after 0 s"] * 3
    assert not workers()


def test_a_child_is_ended_if_the_next_cannot_be_started() -> None:
    cannot: Any = object()
    with pytest.raises(AttributeError):
        run_children([GONE, cannot], 300, lambda: None)
    assert not workers()


A = Swap("mm", "[]", "highest", "a")
SIMD = CompileOption("cpp.simdlen", "1")


def test_times_that_another_process_kept_stay(tmp_path: Path) -> None:
    cache = ArmCache(Layout(tmp_path), "state", "cpu")
    arm: Arm = (SIMD,)
    cache.keep_times(arm, "first", {"x": 1.0})
    cache.keep_times(arm, "second", {"x": 2.0})
    cache.keep_times(arm, "first", {"x": 3.0, "y": 4.0})
    assert cache.times((A, SIMD)) == {"first": {"x": 1.0, "y": 4.0}, "second": {"x": 2.0}}
    assert cache.times(()) == {}


def test_times_that_cannot_be_read_are_not_overwritten(tmp_path: Path) -> None:
    cache = ArmCache(Layout(tmp_path), "state", "cpu")
    cache.keep_times((SIMD,), "first", {"x": 1.0})
    path = cache.file((SIMD,), "times")
    path.write_bytes(b'{"first": ')
    with pytest.raises(CacheUnreadable):
        cache.keep_times((SIMD,), "second", {"x": 2.0})
    assert path.read_bytes() == b'{"first": '
    assert cache.times((SIMD,)) == {"first": {"x": 1.0}, "second": {"x": 2.0}}


def test_an_arm_whose_times_cannot_be_written_has_them_nevertheless(tmp_path: Path) -> None:
    cache, key = ArmCache(Layout(tmp_path), "state", "cpu"), TuningKey("mm", "[]", "highest")
    cache.layout.home.mkdir(parents=True)
    (cache.layout.home / "arms").write_bytes(b"")  # also root can make no folder here
    choices: Any = [Mock(**{"hash_key.return_value": hash}) for hash in "ab"]
    benchmarks = list[int]()

    def benchmark(given: Any) -> dict[Any, float]:
        benchmarks.append(len(given))
        return {choice: 1.0 + at for at, choice in enumerate(given)}

    for _ in range(2):
        selector = ArmSelector((RETUNED,), cache)
        times = selector._looked_up(choices, key, benchmark)
        assert [times[choice] for choice in choices] == [1.0, 2.0]
    assert benchmarks == [2]
    assert _retuned(cache, [(), (RETUNED,)]) == [(RETUNED,)]


@pytest.mark.parametrize("shared", [True, False])
def test_an_arm_whose_name_cannot_be_written_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    cache = ArmCache(Layout(tmp_path), "state", "cpu")
    graph: Any = object()

    def compiled(*_: Any, **__: Any) -> Any:
        selector = selectors.pop()
        selector.shared = shared
        if shared:
            cache.layout.home.mkdir(parents=True)
            (cache.layout.home / "arms").write_bytes(b"")
        return graph

    selectors = list[Any]()
    monkeypatch.setattr(trial.torch_api, "set_selector", selectors.append)
    monkeypatch.setattr(trial, "_compiled_arm", compiled)
    given: Any = None
    assert trial.compile_arm(given, {}, (), (SIMD,), stock=False, cache=cache) is graph
    assert not cache.load((SIMD,), "graph")


def test_what_an_option_needs_is_benchmarked_by_one_process(tmp_path: Path) -> None:
    cache = ArmCache(Layout(tmp_path), "state", "cpu")
    ours: Arm = (TEMPLATES,)
    arms: list[Arm] = [(A,), (SIMD,), (SIMD, A), ours, (TEMPLATES, A)]
    assert _by_times(cache, (), arms) == ([(SIMD,), ours], [(A,), (SIMD, A), (TEMPLATES, A)])
    assert _by_times(cache, ours, arms)[0] == [(A,), (SIMD,)]
