"""The queue of jobs, with real worker processes: some good, some hang, die or take all memory."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import psutil
import pytest

from backend.disk.layout import Layout
from backend.model.events import SessionEnded
from backend.processes import tree
from rocm_tui.actions.tune import typed_problem
from rocm_tui.errors import RocmTuiError
from rocm_tui.jobs import limits as memory
from rocm_tui.jobs import tune as tune_request
from rocm_tui.jobs.limits import Limits
from rocm_tui.jobs.queue import Job, JobQueue, Order, QueueRun
from rocm_tui.jobs.run import RunJob
from rocm_tui.render import jobs as jobs_
from rocm_tui.render.jobs import progress_text
from tests.support.hooked import sessions
from tests.support.odd_workers import Odd, odd_python
from tests.support.terminal_lab import alive
from tests.support.torch_models import child_env

MIB = 1 << 20
PATIENCE = 60.0
"""Seconds; the processes that must end would sleep for ten minutes."""


class Lab:
    """A queue whose workers are those of `odd_workers`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.woken = 0
        self.queues: list[JobQueue] = []

    def queue(self, limits: Limits | None = None) -> JobQueue:
        def wake() -> None:
            self.woken += 1

        python = odd_python(self.folder)
        made = JobQueue(Layout(self.folder / "cache"), wake, python=python, limits=limits)
        self.queues.append(made)
        return made

    def order(self, act: str, lane: str = "0", until: str = "") -> Order:
        def work(run: RunJob) -> str:
            return f"came to {run(Odd(act, until)).kind}"

        return Order("tune", f"odd {act}", lane, work)

    def pid(self, name: str) -> int:
        path = self.folder / f"{name}.pid"
        wait(lambda: path.exists() and path.read_text(), name)
        return int(path.read_text())


def wait(true: Callable[[], object], what: object, seconds: float = PATIENCE) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.01)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    found = Lab(tmp_path)
    yield found
    for queue in found.queues:
        queue.stop()


def now(queue: JobQueue, id: int) -> Job:
    return next(job for job in queue.jobs() if job.id == id)


def over(queue: JobQueue, id: int) -> Job:
    wait(lambda: now(queue, id).over, now(queue, id))
    return now(queue, id)


def gone(*pids: int) -> bool:
    """Wait for the end of these processes; False if one lives on. An orphan may stay a zombie."""
    end = time.monotonic() + PATIENCE
    while any(map(alive, pids)):
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def test_one_at_a_time_a_device_and_devices_side_by_side(lab: Lab) -> None:
    queue = lab.queue()
    one = queue.submit(lab.order("wait", "0", "a"))
    two = queue.submit(lab.order("ok", "0"))
    three = queue.submit(lab.order("wait", "1", "a"))
    wait(lambda: all(now(queue, j.id).progress.timed for j in (one, three)), queue.jobs())
    assert [job.state for job in queue.jobs()] == ["running", "queued", "running"]
    assert progress_text(now(queue, one.id).progress) == "1/4 timed, best x ~500.0 µs"
    (lab.folder / "a").write_text("go")
    for job in (one, two, three):
        over(queue, job.id)
    jobs, ended = queue.look()
    assert [job.id for job in jobs] == [three.id, two.id, one.id]
    assert {job.id for job in ended} == {1, 2, 3} and queue.look()[1] == []
    assert {job.outcome for job in jobs} == {"came to wait", "came to ok"}
    assert now(queue, two.id).log == ("acting: ok",)
    first, second = now(queue, one.id), now(queue, two.id)
    assert first.ended and second.started and first.ended <= second.started
    with pytest.raises(FrozenInstanceError):
        first.state = "failed"  # type: ignore[misc]


def test_an_order_of_several_devices_is_done_by_the_first_that_is_free(lab: Lab) -> None:
    queue = lab.queue()
    held = queue.submit(lab.order("wait", "0", "a"))
    either = replace(lab.order("ok", "0"), other_lanes={"1": lab.order("ok").env})
    first = over(queue, queue.submit(either).id)
    assert (first.state, first.device) == ("done", "1") and not now(queue, held.id).over
    (lab.folder / "a").write_text("go")
    assert over(queue, held.id).device == "0"


def test_a_job_without_a_result_is_tried_once_more_on_another_device(lab: Lab) -> None:
    """There is no third try, and none on the same device."""
    queue = lab.queue()
    tried: list[str] = []
    dying = {"0"}

    def work(run: RunJob) -> str:
        assert isinstance(run, QueueRun)
        tried.append(run.lane)
        return run(Odd("die" if run.lane in dying else "ok")).kind

    env = lab.order("ok").env
    order = Order("tune", "odd", "0", work, env, other_lanes={"1": env, "2": env})
    done = over(queue, queue.submit(order).id)
    assert (done.state, done.outcome, done.device, tried) == ("done", "ok", "1", ["0", "1"])
    dying |= {"1", "2"}
    tried.clear()
    failed = over(queue, queue.submit(order).id)
    assert failed.state == "failed" and "signal 9" in failed.reason
    assert len(tried) == len(set(tried)) == 2
    tried.clear()
    alone = over(queue, queue.submit(replace(order, other_lanes={})).id)
    assert alone.state == "failed" and tried == ["0"]
    assert over(queue, queue.submit(lab.order("ok", "0")).id).state == "done"


def test_it_wakes_once_until_somebody_looks(lab: Lab) -> None:
    queue = lab.queue()
    over(queue, queue.submit(lab.order("ok")).id)
    assert lab.woken == 1
    queue.look()
    over(queue, queue.submit(lab.order("ok")).id)
    assert lab.woken == 2


def test_cancel_ends_everything_at_once_and_the_next_begins(lab: Lab) -> None:
    queue = lab.queue()
    job = queue.submit(lab.order("hang"))
    waiting = queue.submit(lab.order("hang"))
    after = queue.submit(lab.order("ok"))
    worker, child = lab.pid("hang"), lab.pid("child")
    assert len(tree.tree(worker)) == 2
    begin = time.monotonic()
    assert queue.cancel(waiting.id) and queue.cancel(job.id)
    assert time.monotonic() - begin < PATIENCE  # it does not wait for the job
    assert [now(queue, j.id).state for j in (job, waiting)] == ["cancelled", "cancelled"]
    assert gone(worker, child), "what it had started in a session of its own, too"
    assert over(queue, after.id).state == "done"
    assert not queue.cancel(job.id) and not queue.cancel(99)
    assert now(queue, job.id).started and now(queue, waiting.id).started is None
    assert {j.id for j in queue.look()[1]} == {job.id, waiting.id, after.id}


def test_a_killed_worker_is_a_failed_job(lab: Lab) -> None:
    queue = lab.queue()
    job = over(queue, queue.submit(lab.order("die")).id)
    assert job.state == "failed" and "signal 9" in job.reason and "memory" in job.reason
    assert job.log == ("acting: die",) == tuple(queue.log(job.id))
    assert over(queue, queue.submit(lab.order("ok")).id).state == "done"


def test_one_that_takes_all_memory_fails_alone(lab: Lab) -> None:
    queue = lab.queue(Limits(memory=300 * MIB, of=4096 * MIB))
    job = over(queue, queue.submit(lab.order("hog")).id)
    assert job.state == "failed" and job.reason.endswith("of 4.0 GiB and was ended"), job.reason
    used = float(job.reason.split()[2])
    assert 0.28 < used < 3.0, job.reason
    assert gone(lab.pid("hog"))


@pytest.mark.parametrize(
    ("act", "limits", "said"),
    [
        ("hang", Limits(silence=4.0), "said nothing for 4 s"),
        ("hang", Limits(seconds=4.0, silence=None), "no result within 4 s"),
        ("mute", Limits(), "the worker ended"),
        ("babble", Limits(), "is no event into the worker's channel"),
    ],
)
def test_one_that_hangs_is_ended(lab: Lab, act: str, limits: Limits, said: str) -> None:
    queue = lab.queue(limits)
    job = over(queue, queue.submit(lab.order(act)).id)
    assert job.state == "failed" and said in job.reason, job.reason
    assert gone(lab.pid(act), *([lab.pid("child")] if act == "hang" else []))


def test_what_goes_wrong_around_the_worker_is_told(lab: Lab) -> None:
    queue = lab.queue()

    def work(run: RunJob) -> str:
        raise ValueError("one\nline")

    job = over(queue, queue.submit(Order("measure", "x", "0", work)).id)
    assert job.state == "failed" and job.reason == "ValueError: one line"
    assert "ValueError: one" in job.log
    other = JobQueue(Layout(lab.folder), lambda: None, python=str(lab.folder / "none"))
    job = over(other, other.submit(lab.order("ok")).id)
    assert job.state == "failed" and "--python" in job.reason


def test_stop_leaves_nothing(lab: Lab) -> None:
    queue = lab.queue()
    running, queued = queue.submit(lab.order("hang")), queue.submit(lab.order("ok"))
    worker, child = lab.pid("hang"), lab.pid("child")
    queue.stop()
    assert gone(worker, child)
    assert [now(queue, j.id).state for j in (running, queued)] == ["cancelled"] * 2
    assert now(queue, queue.submit(lab.order("ok")).id).state == "queued"


def test_the_machine_s_memory_is_known_and_the_worker_goes_first(lab: Lab) -> None:
    there = memory.memory_of_machine()
    assert there is not None and 0 < there <= psutil.virtual_memory().total
    queue = lab.queue()
    queue.submit(lab.order("hang"))
    worker = lab.pid("hang")
    assert Path(f"/proc/{worker}/oom_score_adj").read_text().strip() == "1000"
    found = tree.tree(worker)
    assert 0 < memory.proportional(found) <= memory.resident(found)


@pytest.mark.torch
def test_a_cancelled_tuning_leaves_no_process_and_no_time(tmp_path: Path) -> None:
    """The real job: our templates make it long enough to be cancelled in the middle."""
    cache = tmp_path / "cache"
    others = psutil.Process().children()
    queue = JobQueue(Layout(cache), lambda: None, python=sys.executable)
    problem = typed_problem(["bmm", "8x128x256", "8x256x192"], dtype="f32")
    options = tune_request.TuneOptions(templates=True)

    def work(run: RunJob) -> str:
        return jobs_.outcome(tune_request.tune(run, problem, options))

    job = queue.submit(Order("tune", "bmm", "cpu", work, child_env(cache)))
    wait(lambda: now(queue, job.id).progress.timed, "a timed choice", 240)
    (worker,) = set(psutil.Process().children()) - set(others)
    processes = [process.pid for process in tree.tree(worker.pid)]
    assert now(queue, job.id).progress.total > now(queue, job.id).progress.timed > 0
    assert queue.cancel(job.id)
    assert gone(*processes)
    queue.stop()
    (events,) = sessions(cache)
    assert isinstance(events[-1], SessionEnded)
    assert not [path for path in cache.glob("cache/*") if path.is_file()]


@pytest.mark.parametrize("change", ["tell", "run"])
def test_a_job_is_changed_once_nobody_else_holds_the_lock(tmp_path: Path, change: str) -> None:
    """Else a cancellation in between would be overwritten."""
    queue = JobQueue(Layout(tmp_path), lambda: None, python=str(tmp_path / "no python"))
    begin, changed = threading.Event(), threading.Event()

    def work(run: RunJob) -> str:
        begin.wait(PATIENCE)
        if change == "tell":
            run.tell("half")  # type: ignore[attr-defined]
        else:
            with contextlib.suppress(RocmTuiError):  # there is no python
                run(Odd("ok"))
        changed.set()
        return ""

    job = queue.submit(Order("tune", "odd", "0", work))
    with queue._lock:
        begin.set()
        assert not changed.wait(0.5)
    assert changed.wait(PATIENCE)
    over(queue, job.id)
