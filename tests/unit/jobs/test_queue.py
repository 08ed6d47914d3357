"""The queue's view of its jobs: what others see, which job is about a tuning, and tries again.

The work of each order is a function here; workers as real processes are in the other files.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backend.disk.layout import Layout
from backend.errors import StoreError
from backend.model.problem import TuningKey
from backend.model.tuning import Tuning
from backend.wire.jobs import Progress
from rocm_tui.errors import RocmTuiError
from rocm_tui.jobs import queue as queues
from rocm_tui.jobs.limits import JobError
from rocm_tui.jobs.queue import Job, JobQueue, Order, QueueRun

KEY = TuningKey("mm", "[]", "highest")
TUNING = Tuning("mm", inputs_key="[]", precision="highest", sources=("/s.jsonl",))


@pytest.fixture
def woken() -> list[float]:
    return []


@pytest.fixture
def queue(tmp_path: Path, woken: list[float]) -> Iterator[JobQueue]:
    made = JobQueue(Layout(tmp_path), lambda: woken.append(time.monotonic()))
    yield made
    made.stop()


class Held:
    """Work that lasts until it is let go."""

    def __init__(self, result: str | Exception = "done") -> None:
        self.begun, self.go = threading.Event(), threading.Event()
        self.result = result
        self.lanes: list[str] = []

    def __call__(self, run: QueueRun) -> str:
        self.lanes.append(run.lane)
        self.begun.set()
        assert self.go.wait(60)
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


def order(work: Callable[[QueueRun], str], **more: object) -> Order:
    return Order("tune", "title", "0", work, **more)  # type: ignore[arg-type]


def job(queue: JobQueue, id: int) -> Job:
    (found,) = [job for job in queue.jobs() if job.id == id]
    return found


def ended(queue: JobQueue, id: int) -> Job:
    end = time.monotonic() + 60
    while not (found := job(queue, id)).over:
        assert time.monotonic() < end
        time.sleep(0.005)
    return found


def test_a_job_has_its_order_and_its_times(queue: JobQueue, woken: list[float]) -> None:
    begun, work = time.time(), Held("it was\x1b[31m fast")
    submitted = queue.submit(order(work, key=KEY, tuning="abc1234", command="rocm-tui tune"))
    assert work.begun.wait(60)
    running = job(queue, submitted.id)
    assert (running.id, running.kind, running.title, running.device) == (1, "tune", "title", "0")
    assert (running.key, running.tuning, running.command) == (KEY, "abc1234", "rocm-tui tune")
    assert running.state == "running" and not running.over and running.ended is None
    assert running.started is not None and begun <= running.started
    jobs, new = queue.look()
    assert jobs == [running] and new == [] and woken
    work.go.set()
    done = ended(queue, 1)
    assert (done.state, done.reason) == ("done", "") and "\x1b" not in done.outcome
    assert done.ended is not None and done.ended >= running.started
    assert queue.look() == ([done], [done]) and queue.look() == ([done], [])


@pytest.mark.parametrize(
    ("error", "reason", "logged"),
    [
        (RocmTuiError("no such thing"), "no such thing", False),
        (StoreError("the disk is full"), "the disk is full", False),
        (JobError("the worker died"), "the worker died", False),
        (ValueError("ours"), "ValueError: ours", True),
    ],
)
def test_work_that_fails_ends_its_own_job_alone(
    queue: JobQueue, error: Exception, reason: str, logged: bool
) -> None:
    broken, next_one = Held(error), Held()
    first, second = queue.submit(order(broken)), queue.submit(order(next_one))
    assert job(queue, second.id).state == "queued" and not next_one.begun.is_set()
    broken.go.set()
    failed = ended(queue, first.id)
    assert (failed.state, failed.reason, failed.outcome) == ("failed", reason, "")
    assert bool(failed.log) is logged and queue.log(first.id) == list(failed.log)
    next_one.go.set()
    assert ended(queue, second.id).state == "done"
    assert [found.id for found in queue.jobs()] == [2, 1], "the newest first"


def test_one_job_a_device_and_the_oldest_first(queue: JobQueue) -> None:
    works = [Held() for _ in range(3)]
    for work, lane in zip(works, ("0", "0", "1"), strict=True):
        queue.submit(replace(order(work), lane=lane))
    assert works[0].begun.wait(60) and works[2].begun.wait(60)
    assert [found.state for found in queue.jobs()] == ["running", "queued", "running"]
    for work in works:
        work.go.set()
    assert ended(queue, 2).state == "done"


def test_the_first_free_device_does_it_and_another_tries_once_more(queue: JobQueue) -> None:
    blocks, fails = Held(), Held(JobError("the worker died"))
    queue.submit(order(blocks))
    queue.submit(order(fails, other_lanes={"1": {}, "2": {}}))
    assert fails.begun.wait(60) and job(queue, 2).device == "1"
    fails.go.set()
    failed = ended(queue, 2)
    assert (failed.state, failed.reason) == ("failed", "the worker died")
    assert fails.lanes == ["1", "2"], "once more, and then no more"
    blocks.go.set()
    alone = Held(JobError("the worker died"))
    alone.go.set()
    assert ended(queue, queue.submit(order(alone)).id).state == "failed"
    assert alone.lanes == ["0"]


def test_a_step_is_shown_with_the_time_that_is_left(queue: JobQueue) -> None:
    work, told = Held(), threading.Event()

    def tell(run: QueueRun) -> str:
        run.tell("measuring\x1b[31m", 2, 5, 30.0)
        told.set()
        result = work(run)
        run.tell("the end")
        return result

    queue.submit(order(tell))
    assert told.wait(60)
    running = job(queue, 1)
    assert (running.done, running.total) == (2, 5) and "\x1b" not in running.step
    assert running.until is not None and 0 < running.until - time.time() <= 30
    work.go.set()
    last = ended(queue, 1)
    assert (last.step, last.done, last.total, last.until) == ("the end", 0, 0, None)


def test_a_job_that_is_cancelled_ends_at_once(queue: JobQueue) -> None:
    works = [Held() for _ in range(2)]
    for work in works:
        queue.submit(order(work))
    assert works[0].begun.wait(60)
    assert queue.cancel(1) and queue.cancel(2)
    assert not queue.cancel(1) and not queue.cancel(7)
    assert {found.state for found in queue.jobs()} == {"cancelled"}
    works[0].go.set()
    after = Held()
    after.go.set()
    assert ended(queue, queue.submit(order(after)).id).state == "done"
    assert job(queue, 1).outcome == "" and not works[1].begun.is_set()
    assert queue.log(7) == []


class Stubborn(Held):
    """Work in a worker whose end takes its time; it is the worker, too."""

    def __init__(self) -> None:
        super().__init__()
        self.let, self.killed = threading.Event(), threading.Event()

    def __call__(self, run: QueueRun) -> str:
        run.queue._started(run.entry, self)  # type: ignore[arg-type]
        return super().__call__(run)

    def kill(self) -> None:
        assert self.let.wait(10)
        self.killed.set()
        self.go.set()


def test_only_the_end_of_the_queue_waits_for_the_end_of_a_worker(queue: JobQueue) -> None:
    """A process in a disk or GPU call takes its time, and `x` must not stop the screen."""
    first, second = Stubborn(), Stubborn()
    queue.submit(order(first))
    assert first.begun.wait(60)
    assert queue.cancel(1) and not first.killed.is_set()
    first.let.set()
    assert first.killed.wait(60)
    queue.submit(order(second))
    assert second.begun.wait(60)
    second.let.set()
    queue.stop()
    assert second.killed.is_set()


def test_the_newest_unfinished_job_about_a_tuning(queue: JobQueue) -> None:
    works = [Held() for _ in range(3)]
    for work, about in zip(works, ({"key": KEY}, {"tuning": "abc1234"}, {}), strict=True):
        queue.submit(order(work, **about))
    newest = queue.about(TUNING, {"abc1234", "def"})
    assert newest is not None and newest.id == 2
    other = replace(TUNING, op="bmm")
    assert queue.about(other, {"def"}) is None
    assert queue.cancel(2)
    oldest = queue.about(TUNING, {"abc1234"})
    assert oldest is not None and oldest.id == 1
    assert queue.about(Tuning("mm"), set()) is None, "both have no key"
    for work in works:
        work.go.set()


@pytest.mark.parametrize(
    ("change", "ids", "about"),
    [
        ({}, set(), False),
        ({"key": KEY}, set(), True),
        ({"key": TuningKey("bmm", "[]", "highest")}, set(), False),
        ({"tuning": "abc"}, {"abc"}, True),
        ({"tuning": "abc"}, {"ab"}, False),
        ({"progress": Progress(log="/s.jsonl")}, set(), True),
        ({"progress": Progress(log="/t.jsonl")}, set(), False),
    ],
)
def test_what_a_job_is_about(change: dict[str, object], ids: set[str], about: bool) -> None:
    made = Job(1, "tune", "t", "0", None, None, "running")
    assert replace(made, **change).is_about(TUNING, ids) is about  # type: ignore[arg-type]
    states = ("queued", "running", "done", "failed", "cancelled")
    overs = [replace(made, state=state).over for state in states]  # type: ignore[arg-type]
    assert overs == [False, False, True, True, True]


def test_only_so_many_ended_jobs_are_remembered(
    queue: JobQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "KEPT", 2)
    work = Held()
    work.go.set()
    for _ in range(4):
        ended(queue, queue.submit(order(work)).id)
    assert [found.id for found in queue.jobs()] == [4, 3, 2]
    queue.submit(order(work))
    assert 2 not in [found.id for found in queue.jobs()]


def test_the_screen_is_woken_once_until_it_looks(queue: JobQueue, woken: list[float]) -> None:
    work = Held()
    queue.submit(order(work))
    assert work.begun.wait(60) and len(woken) == 1
    queue.look()
    work.go.set()
    ended(queue, 1)
    end = time.monotonic() + 60
    while len(woken) < 2 and time.monotonic() < end:
        time.sleep(0.005)
    assert len(woken) == 2


def test_a_job_without_a_thread_fails_and_leaves_the_device_to_the_next(
    queue: JobQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, held, last = threading.Thread.start, Held(), Held()
    queue.submit(order(held))
    second, third = queue.submit(order(Held())), queue.submit(order(last))

    def refuse(thread: threading.Thread) -> None:
        if thread.name == f"job {second.id}":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    held.go.set()
    last.go.set()
    assert ended(queue, third.id).state == "done"
    assert (job(queue, 1).state, job(queue, second.id).state) == ("done", "failed")
    assert job(queue, second.id).reason == "can't start new thread"
    assert {one.id for one in queue.look()[1]} == {1, second.id, third.id}


def test_a_queue_that_is_stopped_starts_nothing_more(queue: JobQueue) -> None:
    work = Held()
    work.go.set()
    queue.stop()
    queue.submit(order(work))
    assert job(queue, 1).state == "queued" and not work.begun.is_set()


@pytest.mark.parametrize("fails", [False, True])
def test_a_job_in_a_worker_has_the_device_of_its_order(
    queue: JobQueue, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fails: bool
) -> None:
    asked: list[tuple[object, ...]] = []

    def run_watched(job: str, **options: Any) -> str:
        asked.append((job, options["python"], options["layout"], options["env"]))
        assert (options["workers"] is None) is (options["layout"] != Layout(tmp_path))
        options["on_progress"](Progress(what="compiling", compiled=3))
        if fails:
            raise JobError("the worker died")
        return f"{job} done"

    monkeypatch.setattr(queues, "find_python", lambda given: "/python")
    monkeypatch.setattr(queues, "run_watched", run_watched)
    private = Layout(tmp_path / "private")

    def work(run: Any) -> str:
        answer: str = run("first")
        return answer + ", " + run.at(private)("second")

    submitted = queue.submit(order(work, env={"A": "0"}))
    done = ended(queue, submitted.id)
    first = ("first", "/python", Layout(tmp_path), {"A": "0"})
    assert asked == [first] if fails else asked[0] == first and asked[1][2] == private
    assert (done.state, done.reason, done.outcome) == (
        ("failed", "the worker died", "") if fails else ("done", "", "first done, second done")
    )
    assert (done.progress.what, done.progress.compiled) == ("compiling", 3)
