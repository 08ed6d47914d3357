"""Workers of a worker, and what they share about the arms of a search."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import psutil
import pytest

from backend.disk.layout import Layout
from backend.errors import CacheUnreadable
from backend.model.graph import RETUNED, TEMPLATES, Arm, CompileOption, Swap, Trial, TrialArm
from backend.model.problem import TuningKey
from backend.wire.jobs import TrialJob, TrialResult
from backend.worker import children
from backend.worker.children import run_children
from backend.worker.jobs import trial
from backend.worker.jobs.trial import ArmCache, ArmSelector, _by_times, _retuned
from tests.support.terminal_lab import command_line

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
    found = psutil.Process().children(recursive=True)
    return [child for child in found if WORDS[-1] in command_line(child)]


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
            with suppress(psutil.Error, KeyError):  # it has ended since
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


ANSWERS = """
import json, sys, time
from backend.wire.codec import to_json
from backend.wire.jobs import TrialResult
from backend.worker.protocol import EventSender
words = json.loads(sys.stdin.readline())
EventSender(1, words["id"], words["token"]).result(to_json(TrialResult(True, reason="done")))
sys.stdout.flush()
time.sleep({seconds})
"""
DONE = TrialResult(True, reason="done")


def answering(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Make each child a process that gives its result and ends `seconds` later."""
    words = [sys.executable, "-c", ANSWERS.format(seconds=seconds)]
    monkeypatch.setattr(sys, "orig_argv", words)


def test_a_child_that_hangs_after_its_result_is_ended_and_its_result_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answering(monkeypatch, 1000)
    monkeypatch.setattr(children, "END_SECONDS", 0.1)
    assert run_children([GONE] * 2, 300, lambda: None, at_once=1) == [DONE] * 2


def test_a_child_that_cannot_be_started_costs_no_result_of_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answering(monkeypatch, 0)
    stock, started = subprocess.Popen, list[int]()

    def popen(*args: Any, **options: Any) -> Any:
        started.append(1)
        if len(started) == 2:
            raise BlockingIOError(errno.EAGAIN, "no more processes")
        return stock(*args, **options)

    monkeypatch.setattr(subprocess, "Popen", popen)
    answers = run_children([GONE] * 3, 300, lambda: None, at_once=1)
    assert answers == [DONE, "one of the processes did not start: no more processes", DONE]
    started[:] = [1]
    with pytest.raises(BlockingIOError):
        run_children([GONE] * 3, 300, lambda: None)


def test_what_cannot_be_tried_here_costs_no_trial_of_other_gpus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arms: list[Arm] = [(), (A,), (SIMD,)]
    elsewhere = [Trial("g", 0.0, (TrialArm((), ms=1.0), TrialArm((A,), ms=0.9)))]

    def here(*_: Any) -> Trial:
        raise trial.NothingTried("no memory")

    monkeypatch.setattr(trial, "drawn_inputs", lambda _: [])
    monkeypatch.setattr(trial, "_compiled", lambda *_: ({}, {}))
    monkeypatch.setattr(trial, "_with_new_times", lambda kept, _: kept)
    monkeypatch.setattr(trial, "_compile_side_by_side", lambda *_: False)
    monkeypatch.setattr(trial, "_tried_on_gpus", lambda *_: tuple(elsewhere))
    monkeypatch.setattr(trial, "_tried_here", here)
    job = TrialJob("g", tuple(arms), gpus=("0", "1"), control=False)
    given: Any = Mock()
    done = trial._tried(job, given, given, given, given).trial
    assert done is not None and [arm.swaps for arm in done.arms] == [(), (A,)]
    assert done.trouble == ("1 arm could not be tried: no memory",)
    elsewhere.clear()
    with pytest.raises(trial.NothingTried):
        trial._tried(job, given, given, given, given)


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
