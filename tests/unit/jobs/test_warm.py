"""Workers that are kept for the next job: real processes that know no torch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backend.disk.layout import Layout
from backend.model.tuning import Tuning
from backend.wire.jobs import (
    EnvironmentJob,
    MeasureJob,
    TrialJob,
    TuneJob,
    VerifyJob,
    WorkerJob,
)
from rocm_tui.jobs import warm
from rocm_tui.jobs.limits import JobError, Limits, WorkerDied
from rocm_tui.jobs.queue import JobQueue, Order
from rocm_tui.jobs.run import RunJob
from rocm_tui.jobs.warm import Needs, Workers, needs_of
from rocm_tui.jobs.worker import Stale
from tests.support.odd_workers import Odd, odd_python
from tests.support.places import ROOT
from tests.support.terminal_lab import alive
from tests.support.waiting_workers import log_of, waiting_python


class Lab:
    """Workers of `odd_workers`, and which process did each job."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = odd_python(folder)
        self.keepers: list[Workers] = []

    def workers(self, **options: Any) -> Workers:
        self.keepers.append(Workers(self.folder / "cache", **options))
        return self.keepers[-1]

    def run(self, workers: Workers, act: str = "ok", mode: int = 0, **env: str) -> int:
        """Do a job; the process that did it."""
        limits = Limits(seconds=60.0)
        workers.run(
            Odd(act, mode=mode),
            lambda progress: None,
            python=self.python,
            env={**os.environ, **env},
            limits=limits,
        )
        return self.pids[-1]

    @property
    def pids(self) -> list[int]:
        return [int(line) for line in (self.folder / "pids").read_text().split()]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path)
    yield made
    for keeper in made.keepers:
        keeper.end()


def wait(true: Callable[[], object], what: object) -> None:
    end = time.monotonic() + 90.0
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.01)


def test_the_next_job_has_the_same_process_and_another_session_another_one(lab: Lab) -> None:
    workers, other = lab.workers(), lab.workers()
    first = lab.run(workers)
    assert lab.run(workers) == first
    assert lab.run(other) != first
    assert len(workers.waiting) == len(other.waiting) == 1
    assert [os.getsid(pid) for pid in workers.waiting] == workers.waiting
    workers.end()
    wait(lambda: not alive(first), "ended")
    last = lab.run(workers)
    wait(lambda: not alive(last), "nothing is kept once it was ended")
    assert workers.waiting == []


def test_each_has_one_of_its_own_where_none_is_kept(lab: Lab) -> None:
    workers = lab.workers(most=0)
    assert lab.run(workers) != lab.run(workers)
    wait(lambda: not any(map(alive, lab.pids)), "ended")


def test_other_needs_have_another_process_and_the_oldest_gives_way(lab: Lab) -> None:
    workers = lab.workers(most=2)
    first, second = lab.run(workers), lab.run(workers, mode=1)
    assert first != second and lab.run(workers) == first and lab.run(workers, mode=1) == second
    third = lab.run(workers, mode=2)
    wait(lambda: not alive(first), "the oldest ended")
    assert len(workers.waiting) == 2 and alive(second) and alive(third)
    elsewhere = lab.run(workers, mode=2, CUDA_VISIBLE_DEVICES="1")
    assert elsewhere != third and len(workers.waiting) == 3, "another device has its own bound"
    assert lab.run(workers, mode=2) == third


def test_only_those_end_that_have_waited_long(lab: Lab) -> None:
    workers = lab.workers(idle=3600.0)
    first, second = lab.run(workers), lab.run(workers, mode=1)
    oldest, latest = workers._idle
    workers._idle = [replace(oldest, since=oldest.since - 3601.0), latest]
    assert lab.run(workers, mode=1) == second
    wait(lambda: not alive(first), "ended")
    assert len(workers.waiting) == 1 and alive(second)


@pytest.mark.parametrize("act", ["die", "mute", "spent"])
def test_one_that_gave_no_result_or_is_spent_serves_no_further_job(lab: Lab, act: str) -> None:
    workers = lab.workers()
    first = lab.run(workers)
    if act == "spent":
        assert lab.run(workers, act) == first
    else:
        with pytest.raises(WorkerDied):
            lab.run(workers, act)
        assert lab.pids[-1] == first
    assert workers.waiting == [] and not alive(first)
    assert lab.run(workers) != first


def test_one_that_died_while_it_waited_harms_no_job(lab: Lab) -> None:
    workers = lab.workers()
    first = lab.run(workers)
    os.kill(first, signal.SIGKILL)
    (idle,) = workers._idle
    wait(lambda: not idle.worker.alive, "killed, and its supervisor is gone too")
    assert lab.run(workers) != first


def test_a_new_one_that_is_stale_at_once_fails_the_job(lab: Lab) -> None:
    with pytest.raises(Stale):
        lab.run(lab.workers(), "stale")
    assert len(lab.pids) == 1


def test_one_whose_torch_was_replaced_gives_the_job_to_a_new_one(lab: Lab) -> None:
    workers = lab.workers()
    first = lab.run(workers)
    again = lab.run(workers, "stale")
    assert again != first and not alive(first)
    assert lab.pids == [first, first, again]
    (lab.folder / "told").unlink()
    workers.end()
    with pytest.raises(JobError, match="replaced"):
        lab.run(lab.workers(), "stale")


def test_one_that_waits_too_long_ends(lab: Lab) -> None:
    patient = lab.workers(idle=600.0)
    first = lab.run(patient)
    (one,) = patient._idle
    one.since -= 599.0
    assert lab.run(patient) == first
    assert patient._idle[0].since > one.since + 599.0, "its time begins anew"
    workers = lab.workers(idle=0.3)
    first = lab.run(workers)
    second = lab.run(workers, mode=1)
    wait(lambda: not alive(first), "ended")
    wait(lambda: not alive(second), "ended")
    assert workers.waiting == []


def test_one_that_holds_much_memory_is_not_kept(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm, "IDLE_SHARE", 0.0)
    workers = lab.workers()
    assert lab.run(workers) != lab.run(workers)


def test_the_queue_keeps_one_a_device_and_cancel_ends_it(lab: Lab) -> None:
    queue = JobQueue(Layout(lab.folder / "cache"), lambda: None, python=lab.python)

    def order(act: str) -> Order:
        def work(run: RunJob) -> str:
            return run(Odd(act)).kind

        return Order("tune", act, "0", work, tuning=act)

    def over(id: int) -> bool:
        return next(job for job in queue.jobs() if job.id == id).over

    try:
        for _ in range(2):
            job = queue.submit(order("ok"))
            wait(lambda id=job.id: over(id), queue.jobs())  # type: ignore[misc]
        first, second = lab.pids
        assert first == second and alive(first)
        assert [job.log for job in queue.jobs()] == [("acting: ok",)] * 2
        hangs = queue.submit(order("hang"))
        wait((lab.folder / "child.pid").exists, "it hangs")
        assert lab.pids[-1] == first
        job = queue.about(Tuning("mm"), {"hang"})
        assert job is not None and job.id == hangs.id
        assert queue.about(Tuning("mm"), {"ok"}) is None, "it is over"
        assert queue.cancel(hangs.id)
        wait(lambda: not alive(first), "cancelled")
        after = queue.submit(order("ok"))
        wait(lambda: over(after.id), queue.jobs())
        assert lab.pids[-1] != first
    finally:
        queue.stop()
    assert not alive(lab.pids[-1]), "it ends with the screen"


SESSION = """
import sys, threading, time
from pathlib import Path
from rocm_tui.jobs.limits import Limits
from rocm_tui.jobs.warm import Workers
from tests.support.odd_workers import Odd
workers = Workers(Path(sys.argv[2]))
def work():
    workers.run(Odd(), lambda progress: None, python=sys.argv[1], limits=Limits())
thread = threading.Thread(target=work)
thread.start()
thread.join()
print(workers.waiting, flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("end", ["kill", "exit"])
def test_none_outlives_its_session_nor_ends_with_a_thread_of_it(lab: Lab, end: str) -> None:
    """The job's thread has ended, of which Linux tells the children as if it were the parent."""
    with subprocess.Popen(
        [sys.executable, "-c", SESSION, lab.python, str(lab.folder / "cache")],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as session:
        assert session.stdout is not None and session.stdout.readline() != "[]\n"
        (pid,) = lab.pids
        time.sleep(0.5)
        assert alive(pid), "it waits for the next job"
        if end == "kill":
            session.kill()
        else:
            session.communicate("end\n")
    wait(lambda: not alive(pid), "it ended with its session")


OP = ("mm", "[]", "highest")


def test_what_a_job_needs() -> None:
    measure, ours = MeasureJob(*OP, ("mm-a",)), MeasureJob(*OP, ("mm-a", "rocm_gemm-b"))
    assert needs_of(measure) == needs_of(TuneJob(*OP)) == Needs("choices", 0, "highest")
    assert needs_of(ours) == needs_of(TuneJob(*OP, templates=True)) != needs_of(measure)
    assert needs_of(TuneJob("mm", shapes=((2, 2),))).precision is None
    assert needs_of(MeasureJob(*OP, ("mm-a",), mode=2)).mode == 2
    assert needs_of(VerifyJob(*OP, "mm-a")) == Needs("verify", 0, "highest")
    assert needs_of(VerifyJob(*OP, "rocm_gemm-b")).templates
    assert needs_of(TrialJob("aaaaaa1", ((),))) == Needs("trial", private=True)
    assert needs_of(TrialJob("aaaaaa1", ((),), stock=True)) == Needs("trial")
    assert needs_of(EnvironmentJob()) == Needs("fresh")
    assert needs_of(EnvironmentJob(fit=True)) == Needs("environment")


def test_a_worker_that_has_only_described_its_environment_goes_on_to_tune(tmp_path: Path) -> None:
    """In any mode, and with any precision; then it serves those needs alone."""
    folder, workers = tmp_path, Workers(tmp_path / "cache")
    python, limits = waiting_python(folder), Limits(seconds=60.0)

    def run(job: WorkerJob[Any]) -> set[int]:
        workers.run(job, lambda progress: None, python=python, limits=limits)
        return set(workers.waiting)

    try:
        first = run(EnvironmentJob())
        assert run(TuneJob("mm", "[1]", "high", mode=1, budget=0.05)) == first
        assert first < run(EnvironmentJob(fit=True)), "what looks into a fresh process gets one"
        run(TuneJob("mm", "[1]", "highest", budget=0.05))
    finally:
        workers.end()
    tuned = [entry["pid"] for entry in log_of(folder) if entry["what"] == "ends"]
    assert len(set(tuned)) == 2
