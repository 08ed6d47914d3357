"""Workers: processes in the user's torch environment that do one job after another.

A worker may crash, hang or be killed without harm to us. It has a process group of its own and
dies with us, however we end.

    JobError
    ├── WorkerDied    the process ended in the middle of a job
    ├── JobTimeout    it took too long and was killed
    └── JobFailed     the job itself raised an error
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
from rocm_tui import hook_env
from rocm_tui.errors import RocmTuiError

TIMEOUT = 600.0
"""Seconds for one job. A verify compiles its op a few times."""

_CHUNK = 1 << 16

OnEvent = Callable[[Mapping[str, Any]], None]


class JobError(RocmTuiError):
    """A job gave no result."""


class WorkerDied(JobError):
    """The worker ended in the middle of a job."""


class JobTimeout(JobError):
    """The job took too long."""


class JobFailed(JobError):
    """The job raised an error of its own."""


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
            )
        except OSError as error:
            self._stderr.close()
            raise WorkerDied(f"cannot start a worker with {python}: {error.strerror}") from error

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
        self, job: Mapping[str, Any], on_event: OnEvent | None = None, timeout: float = TIMEOUT
    ) -> dict[str, Any]:
        """Send `job`, hear its events, return its result. Raises JobError."""
        job_id, self._next_id = self._next_id, self._next_id + 1
        self._send({**job, "id": job_id})
        deadline = time.monotonic() + timeout
        while True:
            event = self._next_event(deadline, timeout)
            if event.get("id") != job_id:
                continue
            if on_event is not None:
                on_event(event)
            if event.get("event") == "result" and isinstance(event.get("result"), dict):
                result: dict[str, Any] = event["result"]
                return result
            if event.get("event") == "error":
                raise JobFailed(
                    f"the job {job.get('job')} failed: {brief(str(event['error']), 300)}"
                )

    def close(self) -> None:
        """End the worker and whatever it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def _send(self, job: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(job).encode() + b"\n")
            self._process.stdin.flush()
        except (OSError, ValueError) as error:
            raise self._died() from error

    def _next_event(self, deadline: float, timeout: float) -> Mapping[str, Any]:
        while b"\n" not in self._unread:
            self._read(deadline, timeout)
        line, _, self._unread = self._unread.partition(b"\n")
        try:
            event = json.loads(line)
        except ValueError:
            return {}  # no event of ours
        return event if isinstance(event, dict) else {}

    def _read(self, deadline: float, timeout: float) -> None:
        assert self._process.stdout is not None
        out = self._process.stdout.fileno()
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([out], [], [], left)[0]:
            self.close()
            raise JobTimeout(f"the worker gave no result within {timeout:.0f} s and was killed")
        data = os.read(out, _CHUNK)
        if not data:
            raise self._died()
        self._unread += data

    def _died(self) -> WorkerDied:
        self._process.wait()
        code = self._process.returncode
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        self._stderr.seek(0)
        said = self._stderr.read()[-4000:].decode(errors="replace").strip().splitlines()
        last = f": {brief(said[-1], 200)}" if said else ""
        return WorkerDied(f"the worker ended ({how}){last}")
