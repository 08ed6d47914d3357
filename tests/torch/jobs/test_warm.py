"""Several jobs in one real worker: each as in one of its own, and in the process of the last."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from backend.cache.autotune import read_caches
from backend.disk.layout import Layout
from backend.model.choice import Choice, Measurement
from backend.model.events import SessionEnded, SessionStarted
from backend.model.origin import kind_of
from backend.model.problem import TuningKey
from backend.model.tuning import Tuning
from backend.pins.store import PinStore
from backend.wire.jobs import MeasureJob, TuneJob, VerifyJob
from backend.worker.protocol import EventReceiver
from rocm_tui.actions.measure import Measuring
from rocm_tui.actions.verify import PinToVerify, Verifying
from rocm_tui.jobs.limits import Limits
from rocm_tui.jobs.run import run_watched
from rocm_tui.jobs.warm import Workers
from tests.support.hooked import by_tuning, sessions
from tests.support.rogue_workers import hash_of, rogue_python
from tests.support.terminal_lab import alive
from tests.support.torch_models import child_env

pytestmark = pytest.mark.torch

SHAPES = (((4, 32, 64), (4, 64, 96)), ((4, 32, 64), (4, 64, 80)))


class Lab:
    """Jobs in the workers of one session; `pids` are the processes that did them."""

    def __init__(self, folder: Path, python: str = sys.executable, **env: str) -> None:
        self.layout = Layout(folder / "cache")
        self.python = python
        self.env = child_env(self.layout.root, env)
        self.workers = Workers(self.layout.root)
        self.pids: list[int] = []

    def run(self, job: Any) -> Any:
        return run_watched(
            job,
            python=self.python,
            layout=self.layout,
            env=self.env,
            limits=Limits(stuck=20.0),
            on_progress=lambda progress: None,
            on_worker=lambda worker: self.pids.append(worker.pid),
            workers=self.workers,
        )

    def entries(self) -> list[tuple[TuningKey, Mapping[str, float]]]:
        (file,), problems = read_caches(self.layout)
        assert problems == []
        return list(file.entries.items())


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Two tunings, made by one worker."""
    made = Lab(tmp_path_factory.mktemp("warm"))
    for shapes in SHAPES:
        result = made.run(TuneJob("bmm", shapes=shapes, dtypes=("torch.float32",)))
        assert result.ok, result
    yield made
    made.workers.end()


def test_two_tunings_of_one_process_are_two_whole_sessions(lab: Lab) -> None:
    assert len(set(lab.pids[:2])) == 1
    first, second = sessions(lab.layout.root)[:2]
    ids = set()
    for events in (first, second):
        assert [isinstance(e, SessionStarted) for e in events].count(True) == 1
        assert isinstance(events[0], SessionStarted) and isinstance(events[-1], SessionEnded)
        assert [isinstance(e, SessionEnded) for e in events].count(True) == 1
        ((started, between),) = by_tuning(events)
        assert started.n == 1 and between[-1].by == "timing"
        ids.add(events[0].session.id)
    assert len(ids) == 2


def test_measured_again_in_the_same_process_each_in_a_session_of_its_own(lab: Lab) -> None:
    before = len(sessions(lab.layout.root))
    (first, times), (second, others) = lab.entries()
    jobs = [
        MeasureJob(key.op, key.inputs, key.precision, tuple(hashes), budget=0.3)
        for key, hashes in ((first, times), (first, list(times)[:1]), (second, others))
    ]
    begin = len(lab.pids)
    for job in (*jobs, jobs[0]):
        result = lab.run(job)
        assert result.ok and not result.measurement.failed, result
        assert {choice.hash for choice in result.measurement.choices} == set(job.hashes)
        assert result.measurement.inputs == job.inputs
    assert len(set(lab.pids[begin:])) == 1
    new = sessions(lab.layout.root)[before:]
    assert len({events[0].session.id for events in new}) == 4
    assert all(isinstance(events[-1], SessionEnded) for events in new)


def test_what_the_last_job_set_is_set_anew_by_the_next(lab: Lab) -> None:
    """C++ choices depend on the number of threads; the hash of the other number's is not there."""
    key, times = lab.entries()[0]
    cpp = tuple(hash for hash in times if kind_of(hash) == "cpp")
    own = MeasureJob(key.op, key.inputs, key.precision, cpp, budget=0.2)
    threads = MeasureJob(key.op, key.inputs, key.precision, cpp, budget=0.2, threads=7)
    begin = len(lab.pids)
    assert lab.run(own).missing == ()
    assert lab.run(threads).missing == cpp
    assert lab.run(own).missing == ()
    assert len(set(lab.pids[begin:])) == 1


def test_a_pin_between_two_jobs_counts(lab: Lab) -> None:
    key, times = lab.entries()[0]
    pins = PinStore(lab.layout)
    fast, slow = sorted(times, key=times.__getitem__)[:2]
    job = VerifyJob(key.op, key.inputs, key.precision, slow)
    assert lab.run(job).hash == fast
    pins.pin(None, key, slow)
    begin = len(lab.pids)
    result = lab.run(job)
    assert result.ok and result.hash == slow, result
    pins.unpin(key)
    assert lab.run(job).hash == fast
    assert lab.pids[begin - 1 :] == [lab.pids[begin - 1]] * 3
    tuned = lab.run(TuneJob(key.op, key.inputs, key.precision))
    assert tuned.ok and tuned.pin is None
    pins.pin(None, key, slow)
    tuned = lab.run(TuneJob(key.op, key.inputs, key.precision))
    assert tuned.pin == "active"
    assert lab.pids[-1] == lab.pids[-2] != lab.pids[begin], "verify has a process of its own"


def test_a_spent_budget_is_that_of_its_own_job(lab: Lab) -> None:
    key, _ = lab.entries()[1]
    first = lab.run(TuneJob(key.op, key.inputs, key.precision, templates=True, budget=0.001))
    assert first.ok and first.skipped > 0
    second = lab.run(TuneJob(key.op, key.inputs, key.precision, templates=True, budget=600.0))
    assert second.ok and second.skipped == 0
    assert [choice for choice in second.choices if "budget" in (choice.reason or "")] == []
    assert lab.pids[-1] == lab.pids[-2]


def test_pins_are_verified_by_the_workers_of_the_session(lab: Lab) -> None:
    store = PinStore(lab.layout)
    key, times = lab.entries()[0]
    store.pin(None, key, min(times, key=times.__getitem__))
    pins = store.pins()
    started = []
    for _ in range(2):
        with Verifying(lab.python, lab.layout, env=lab.env, kept=lab.workers) as verifying:
            results = list(verifying.results([PinToVerify(pin) for pin in pins]))
        assert len(results) == len(pins) > 0
        started.append(verifying.workers)
    assert started in ([1, 0], [0, 0]) and lab.workers.waiting


BMM = "[{0}, {0}]".format("('cpu', 'torch.float32', 4, 48, 48, 2304, 48, 1, 0)")


def _measure(lab: Lab, *names: str) -> Measurement:
    choices = tuple(Choice(name, hash_of(name), 1.0) for name in names)
    tuning = Tuning("bmm", inputs_key=BMM, precision="highest", choices=choices)
    return Measuring(lab.run, tuning, choices, budget=20.0).once()


def test_a_choice_that_ends_its_worker_costs_a_new_one_and_verdicts_are_those_of_a_fresh_one(
    tmp_path: Path,
) -> None:
    names = ("honest", "dawdles", "aborts")
    lab = Lab(tmp_path, rogue_python(tmp_path), ROGUES=",".join(names))
    try:
        verdicts = []
        for _ in range(2):
            measurement = _measure(lab, "honest", "dawdles")
            verdicts.append([(choice.hash, choice.verdict) for choice in measurement.choices])
        assert verdicts[0] == verdicts[1]
        assert [hash for hash, _ in verdicts[0]] == [hash_of("honest"), hash_of("dawdles")]
        assert verdicts[0][1][1] == "slower"
        assert len(set(lab.pids)) == 1
        broken = _measure(lab, *names)
        (failed,) = broken.failed
        assert failed.hash == hash_of("aborts") and "SIGABRT" in (failed.reason or "")
        first, _, at, after = lab.pids
        assert at == first != after and not alive(first)
        again = _measure(lab, "honest", "dawdles")
        assert [(choice.hash, choice.verdict) for choice in again.choices] == verdicts[0]
        assert lab.pids[-1] == after
    finally:
        lab.workers.end()
    assert not alive(lab.pids[-1])


LOOP = """
import sys, threading, time
import backend.worker.__main__ as loop
from backend.worker import boundary as between_jobs
run, act = loop._run, sys.argv[1]
def acting(words, answers):
    result = run(words, answers)
    if act == "replaced":
        between_jobs._STAMP = None
    elif act == "aside":
        from backend.inductor import guard
        guard.step_aside(RuntimeError("test"))
    elif act == "busy":
        between_jobs.BUSY, between_jobs.SPINNING = 0.01, 0.2
        def spin():
            while True: pass
        threading.Thread(target=spin, daemon=True).start()
    return result
loop._run = acting
if act == "busy":
    tidy = loop._tidy
    def tidy_and_spin():
        tidy()
        while time.process_time() - between_jobs._rested[1] < 0.5:  # on a loaded machine, a while
            time.sleep(0.05)
    loop._tidy = tidy_and_spin
loop.main()
"""


@pytest.mark.parametrize(
    ("act", "told"),
    [
        ("nothing", [False, False]),
        ("replaced", [False, None]),
        ("busy", [False, None]),
        ("aside", [True, True]),
    ],
)
def test_a_worker_says_when_it_is_not_as_new(tmp_path: Path, act: str, told: list[Any]) -> None:
    """Whether each of two jobs left it spent; None for one that was not begun."""
    job = {"job": "verify", "op": "mm", "inputs": "[", "precision": "highest", "hash": "x"}
    lines = "".join(f"{json.dumps({**job, 'id': at, 'token': 't'})}\n" for at in (1, 2))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LOOP, act],
        input=lines.encode(),
        env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        timeout=300,
        check=True,
    )
    events = [e for e in EventReceiver("t").feed(done.stdout) if e["event"] in ("result", "stale")]
    assert [event.get("spent") for event in events] == told
