"""Workers: processes in the user's torch environment that do one job after another.

A worker may crash, hang or be killed without harm to us. A supervisor process makes sure that
nothing it started outlives it, or us, however we end. As long as the supervisor lives, even
stopped, all that the worker started descends from it. When it is killed, we adopt its children,
which have the worker's mark in their environment, and end them.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import psutil

from backend.counted import counted
from backend.disk.layout import cache_dir as default_cache_dir
from backend.errors import brief
from backend.inductor.hooks.environment import TEMPLATES
from backend.measure.devices import gpus
from backend.processes import tree
from backend.processes.shared import SPOILED, SharedMark, new_ring, printed_bytes, printed_text
from backend.wire.codec import dumps
from backend.wire.jobs import Progress, ResultInvalid, WorkerJob, answer_of, job_words, progress_of
from backend.worker.protocol import EventReceiver
from rocm_tui.config.settings import config
from rocm_tui.environment import BACKEND, HOOKS, unhooked, visible_devices
from rocm_tui.errors import UsageError
from rocm_tui.harmless import plain
from rocm_tui.jobs.limits import Clock, JobError, JobFailed, Limits, WorkerDied

TIMEOUT = 600.0
"""Seconds for one job. A verify compiles its op a few times."""


class Stale(JobError):
    """The worker is not what a new one would be: its torch was replaced meanwhile."""


_LAST_BREATH = 2.0
"""Seconds that a worker has to end after it closed its end of the pipe."""
_CHUNK = 1 << 16

R = TypeVar("R")
Event = Mapping[str, Any]
"""A message of a worker, as parsed JSON; see `backend.worker.protocol`."""
OnProgress = Callable[[Progress], None]


def visible_gpus(env: Mapping[str, str]) -> list[str]:
    """Return the GPUs that `env` shows, by its names. Drivers may take seconds to answer."""
    shown = visible_devices(env)
    return [gpu.label for gpu in gpus()] if shown is None else shown


def first_gpus(env: Mapping[str, str], count: int) -> tuple[str, ...]:
    """Return `count` of the GPUs that `env` shows; none for 1, which is a job's own. Raises
    UsageError if it shows fewer."""
    if count == 1:
        return ()
    shown = visible_gpus(env)
    if len(shown) < count:
        raise UsageError(f"--gpus {count}: {counted(len(shown), 'GPU')} visible here")
    return tuple(shown[:count])


def run_job(
    job: WorkerJob[R], *, python: str, cache_dir: Path | None = None, timeout: float = TIMEOUT
) -> R:
    """Do one job in a worker of its own. Raises JobError."""
    with spawn_worker(python, cache_dir) as worker:
        return worker.run(job, timeout=timeout)


def spawn_worker(
    python: str, cache_dir: Path | None = None, env: Mapping[str, str] = os.environ
) -> Worker:
    """Start a worker in the interpreter `python`; use it in a `with` statement. Raises WorkerDied.

    Its environment is `env` without hooks, so it compiles as stock PyTorch does, on the cache dir
    `cache_dir`.
    """
    return Worker(python, cache_dir or default_cache_dir(env), env)


class Worker:
    """A running worker. Not for several threads at once."""

    def __init__(self, python: str, cache_dir: Path, env: Mapping[str, str]) -> None:
        self._next_id = 1
        self._last_log: list[str] = []
        self._mark = SharedMark()
        self._log: int | None = new_ring()
        self._token = secrets.token_hex(16)
        self._events = EventReceiver(self._token)
        self._heard: deque[Event] = deque()
        self._last: Progress | None = None
        self._orphans = Orphans()
        self._before = 0
        self.spent = False
        """Whether it says that it can do no further job."""
        script = HOOKS / "rocm_tui_worker.py"
        try:
            self._process = subprocess.Popen(
                [python, str(script), str(BACKEND)],
                env={
                    **unhooked(env),
                    **self._orphans.mark,
                    TEMPLATES: "0",  # for the user's programs: a job says what it offers
                    "TORCHINDUCTOR_PIPELINE_GEMM_AUTOTUNING": "0",  # it writes no times to a cache
                    "TORCHINDUCTOR_CACHE_DIR": str(cache_dir.absolute()),
                },
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                start_new_session=True,
                pass_fds=[self._mark.descriptor],
            )
        except OSError as error:
            self._orphans.end(None)
            self._close_memory()
            raise WorkerDied(f"cannot start a worker with {python}: {error.strerror}") from error

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.returncode is None and not tree.has_ended(self._process.pid)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def run(
        self,
        job: WorkerJob[R],
        on_progress: OnProgress | None = None,
        timeout: float | None = TIMEOUT,
        limits: Limits | None = None,
    ) -> R:
        """Do `job`, report its progress, and return its result; `limits` replace `timeout`.

        Raises JobError.
        """

        def hear(event: Event) -> None:
            if self._last is not None and on_progress is not None:
                on_progress(self._last)

        answer = self.exchange(job_words(job), hear, timeout, limits)
        try:
            return answer_of(job, answer)
        except ResultInvalid as error:
            raise JobFailed(f"the job {job.name} failed: {error}") from error

    def exchange(
        self,
        words: Mapping[str, Any],
        on_event: Callable[[Event], None] | None = None,
        timeout: float | None = TIMEOUT,
        limits: Limits | None = None,
    ) -> dict[str, Any]:
        """The same in JSON, as it goes over the pipes: send a job, hear events, return the result.

        Raises JobError.
        """
        job_id, self._next_id = self._next_id, self._next_id + 1
        self._last, self._before = None, self._printed()
        self._send({**words, "id": job_id})
        clock = Clock(
            limits or Limits(seconds=timeout, silence=None),
            self._mark,
            self._printed,
            lambda: self._events.noise,
        )
        while True:
            event = self._next_event(clock)
            clock.heard()
            if event.get("id") != job_id:
                continue
            self._last = heard_progress(event)
            if on_event is not None:
                on_event(event)
            if event.get("event") == "result" and isinstance(event.get("result"), dict):
                self.spent = bool(event.get("spent"))
                result: dict[str, Any] = event["result"]
                return result
            if event.get("event") == "stale":
                self.spent = True
                raise Stale("the worker's torch was replaced by another while it ran")
            if event.get("event") == "error":
                raise JobFailed(
                    f"the job {words.get('job')} failed: {brief(str(event.get('error')), 300)}"
                )

    def log(self, lines: int | None = None) -> list[str]:
        """The last lines that the worker, or what it started, wrote to stderr since its last job
        began. From any thread."""
        lines = lines or config().limits.log_lines
        log = self._log  # another thread may close it meanwhile
        if log is None:
            return self._last_log[-lines:]
        try:
            return printed_text(log, self._before).splitlines()[-lines:]
        except OSError:
            return self._last_log[-lines:]

    def _printed(self) -> int:
        return printed_bytes(self._log) if self._log else 0

    def kill(self) -> None:
        """End the worker and whatever it started, now; from any thread."""
        if self._process.returncode is None:  # else the number may be another process's by now
            self._orphans.end(self._process.pid)

    def close(self) -> None:
        """End the worker and whatever it started."""
        self.kill()
        self._process.wait()
        self._orphans.forget()
        self._last_log = self.log()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._close_memory()

    def _close_memory(self) -> None:
        self._mark.close()
        log, self._log = self._log, None
        if log is not None:
            os.close(log)

    def _send(self, words: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._mark.clear()
            line = dumps({**words, "mark": self._mark.descriptor, "token": self._token})
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
        except (OSError, ValueError) as error:
            raise self._died() from error

    def _next_event(self, clock: Clock) -> Event:
        while not self._heard:
            self._read(clock)
        return self._heard.popleft()

    def _read(self, clock: Clock) -> None:
        assert self._process.stdout is not None
        out = self._process.stdout.fileno()
        while True:
            try:
                clock.look(self._process.pid)
            except JobError as error:
                place = self._mark.place()
                self.close()
                error.last = self._last
                error.blamed = None if place is None else place.hash
                raise
            if select.select([out], [], [], clock.wait)[0]:
                break
            # It may have written and ended since. Without data, what it started holds the pipe.
            if tree.has_ended(self._process.pid) and not select.select([out], [], [], 0)[0]:
                raise self._died()
        data = os.read(out, _CHUNK)
        if not data:
            raise self._died()
        self._heard.extend(self._events.feed(data))

    def _died(self) -> WorkerDied:
        end = time.monotonic() + _LAST_BREATH
        while not tree.has_ended(self._process.pid) and time.monotonic() < end:
            time.sleep(0.01)
        place = self._mark.place()
        late = not tree.has_ended(self._process.pid)
        self._orphans.end(self._process.pid)
        code = self._process.wait()
        how = f"signal {-code}, {_signal_name(-code)}" if code < 0 else f"exit code {code}"
        if code == -signal.SIGKILL and late:
            how = f"killed, as it had closed its channel {_LAST_BREATH:.0f} s before"
        elif code == -signal.SIGKILL:
            how += ": somebody killed it, or the system for want of memory"
        lines = [line for line in self.log() if line.strip()]
        last = f": {brief(lines[-1].strip(), 200)}" if lines else ""
        error = WorkerDied(f"the worker ended ({how}){last}")
        if place is not None:
            if place.why and code == SPOILED:
                error = WorkerDied(brief(place.why, 200))
            error.blamed = place.hash
        error.last = self._last
        return error


def heard_progress(event: Event) -> Progress | None:
    """Return the progress in an event, with harmless text; None for other events."""
    if event.get("event") != "progress":
        return None
    progress = progress_of(event)
    return replace(progress, what=plain(progress.what, 200), best=plain(progress.best, 200))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "which has no name"


_NAME = "WORKER_OF_ROCM_TUI"
_lock = threading.Lock()
_workers = 0
"""How many there are. Without any, orphans are none of our business."""


class Orphans:
    """The processes of one worker."""

    def __init__(self) -> None:
        self.mark = {_NAME: secrets.token_hex(16)}
        """Added to the worker's environment."""
        self._forgotten = False
        _count(1)

    def end(self, supervisor: int | None) -> None:
        """Kill `supervisor`, which we have not waited for, its descendants, and adopted ones."""
        if supervisor is not None:
            tree.end(supervisor, bury=False)
        for pid in self._adopted():
            tree.end(pid)
        if supervisor is None:
            self.forget()

    def forget(self) -> None:
        """The worker has ended."""
        if not self._forgotten:
            self._forgotten = True
            _count(-1)

    def _adopted(self) -> list[int]:
        ((name, value),) = self.mark.items()
        session, pids = os.getsid(0), []
        for child in psutil.Process().children():
            with contextlib.suppress(psutil.Error, OSError):  # it has ended
                if os.getsid(child.pid) != session and child.environ().get(name) == value:
                    pids.append(child.pid)
        return pids


def _count(by: int) -> None:
    global _workers
    with _lock:
        _workers += by
        tree.adopt(_workers > 0)
