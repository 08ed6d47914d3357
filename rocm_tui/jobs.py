"""Workers: processes in the user's torch environment that do one job after another.

A worker may crash, hang or be killed without harm to us. It has a process group of its own and
dies with us, however we end.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from backend.store.errors import brief
from backend.store.paths import cache_dir as default_cache_dir
from rocm_tui import hook_env, process_tree
from rocm_tui.job_errors import JobError, JobFailed, JobTimeout, TooMuchMemory, WorkerDied
from rocm_tui.job_limits import Clock, Limits
from rocm_tui.job_mark import SharedMark

__all__ = [
    "JobError",
    "JobFailed",
    "JobTimeout",
    "Limits",
    "TooMuchMemory",
    "Worker",
    "WorkerDied",
    "run_job",
    "spawn_worker",
]

TIMEOUT = 600.0
"""Seconds for one job. A verify compiles its op a few times."""

LOG_LINES = 200
_LAST_BREATH = 2.0
"""Seconds that a worker has to end after it closed its end of the pipe."""
_CHUNK = 1 << 16
_MAX_LINE = 16 << 20

OnEvent = Callable[[Mapping[str, Any]], None]


def run_job(
    job: Mapping[str, Any],
    on_event: OnEvent | None = None,
    *,
    python: str,
    cache_dir: Path | None = None,
    timeout: float = TIMEOUT,
) -> dict[str, Any]:
    """Do one job in a worker of its own. Raises JobError."""
    with spawn_worker(python, cache_dir) as worker:
        return worker.run(job, on_event, timeout)


def spawn_worker(
    python: str, cache_dir: Path | None = None, env: Mapping[str, str] = os.environ
) -> Worker:
    """Start a worker in the interpreter `python`; use it in a `with` statement. Raises WorkerDied.

    Its environment is `env` without hooks, so it compiles as stock PyTorch does, on the cache dir
    `cache_dir`. It ends with the thread that started it.
    """
    return Worker(python, cache_dir or default_cache_dir(env), env)


class Worker:
    """A running worker. Not for several threads at once."""

    def __init__(self, python: str, cache_dir: Path, env: Mapping[str, str]) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
        self._next_id = 1
        self._unread = b""
        self._last_log: list[str] = []
        self._mark = SharedMark()
        self._last: Mapping[str, Any] = {}
        script = hook_env.FOLDER / "rocm_tui_worker.py"
        try:
            self._process = subprocess.Popen(
                [python, str(script), str(hook_env.BACKEND)],
                env={
                    **hook_env.unhooked(env),
                    "TORCHINDUCTOR_CACHE_DIR": str(cache_dir.absolute()),
                },
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                start_new_session=True,
                pass_fds=[self._mark.descriptor],
            )
        except OSError as error:
            self._stderr.close()
            self._mark.close()
            raise WorkerDied(f"cannot start a worker with {python}: {error.strerror}") from error
        process_tree.prefer_for_oom(self._process.pid)

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def run(
        self,
        job: Mapping[str, Any],
        on_event: OnEvent | None = None,
        timeout: float | None = TIMEOUT,
        limits: Limits | None = None,
    ) -> dict[str, Any]:
        """Send `job`, hear its events, return its result; `limits` count instead of `timeout`.

        Raises JobError.
        """
        job_id, self._next_id = self._next_id, self._next_id + 1
        self._last = {}
        self._send({**job, "id": job_id})
        clock = Clock(limits or Limits(seconds=timeout, silence=None), self._mark)
        while True:
            event = self._next_event(clock)
            clock.heard()
            if event.get("id") != job_id:
                continue
            self._last = event
            if on_event is not None:
                on_event(event)
            if event.get("event") == "result" and isinstance(event.get("result"), dict):
                result: dict[str, Any] = event["result"]
                return result
            if event.get("event") == "error":
                raise JobFailed(
                    f"the job {job.get('job')} failed: {brief(str(event.get('error')), 300)}"
                )

    def log(self, lines: int = LOG_LINES) -> list[str]:
        """The last lines that the worker, or what it started, wrote to stderr. From any thread."""
        try:
            size = os.fstat(self._stderr.fileno()).st_size
            data = os.pread(self._stderr.fileno(), _CHUNK, max(0, size - _CHUNK))
        except (OSError, ValueError):
            return self._last_log[-lines:]
        return data.decode(errors="replace").splitlines()[-lines:]

    def kill(self) -> None:
        """End the worker and whatever it started, now; from any thread."""
        if self._process.returncode is None:  # else the number may be another process's by now
            process_tree.end(self._process.pid)

    def close(self) -> None:
        """End the worker and whatever it started."""
        self.kill()
        self._process.wait()
        self._last_log = self.log()
        for stream in (self._process.stdin, self._process.stdout, self._stderr, self._mark):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def _send(self, job: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._mark.clear()
            line = json.dumps({**job, "mark": self._mark.descriptor})
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
        except (OSError, ValueError) as error:
            raise self._died() from error

    def _next_event(self, clock: Clock) -> Mapping[str, Any]:
        while b"\n" not in self._unread:
            self._read(clock)
        line, _, self._unread = self._unread.partition(b"\n")
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            return {}  # no event of ours
        return event if isinstance(event, dict) else {}

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
                if isinstance(error, JobTimeout) and place is not None:
                    error.blamed = place.hash
                raise
            if select.select([out], [], [], clock.wait)[0]:
                break
            if _has_ended(self._process.pid):  # and something that it started holds the pipe
                raise self._died()
        data = os.read(out, _CHUNK)
        if not data:
            raise self._died()
        self._unread += data
        if len(self._unread) > _MAX_LINE:
            self.close()
            raise WorkerDied("the worker said something that is no event and was killed")

    def _died(self) -> WorkerDied:
        end = time.monotonic() + _LAST_BREATH
        while not _has_ended(self._process.pid) and time.monotonic() < end:
            time.sleep(0.01)
        process_tree.end(self._process.pid)  # what it started, while its number is still its own
        code = self._process.wait()
        how = f"signal {-code}, {_signal_name(-code)}" if code < 0 else f"exit code {code}"
        if code == -signal.SIGKILL:
            how += ": somebody killed it, or the system for want of memory"
        said = [line for line in self.log() if line.strip()]
        last = f": {brief(said[-1].strip(), 200)}" if said else ""
        error = WorkerDied(f"the worker ended ({how}){last}")
        place = self._mark.place()
        if code != -signal.SIGKILL and place is not None:
            error.blamed = place.hash
        error.last = self._last
        return error


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "which has no name"


def _has_ended(pid: int) -> bool:
    """Whether our child has ended; it is not reaped."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
    except ChildProcessError:
        return True
