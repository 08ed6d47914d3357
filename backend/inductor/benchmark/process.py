"""A benchmark process for each device, which may crash or hang: then only its choice has failed.

A process is started when first needed, serves one choice after the other, and is restarted after it
was lost. It ends with us, however we end, and when it has been idle for long.

A kernel may damage what runs after it. So if the process or its device is lost, the choice is run
again in a fresh process, and is blamed only if that is also lost, twice.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from multiprocessing import Pipe
from typing import Any

from torch import Tensor

from backend.inductor import child_python
from backend.inductor.benchmark.child import FORGET
from backend.inductor.benchmark.errors import (
    ChoiceError,
    Crashed,
    DeviceLost,
    Killed,
    NotStarted,
    ProcessLost,
    TimedOut,
    choice_error,
)
from backend.inductor.benchmark.request import forget_problem
from backend.inductor.benchmark.tensors import ComputeRequest, ComputeResult, packed, unpacked
from backend.processes import supervisor, tree

SECONDS = "ROCM_TUI_BENCHMARK_SECONDS"
"""The environment variable for the seconds of one choice; 0 benchmarks in this process."""

DEFAULT_SECONDS = 60.0
MOST_SECONDS = 86400.0
"""The limit if none is wanted: a day."""

START_SECONDS = 300.0
"""Seconds to start, which includes importing torch, maybe from a slow disk."""
STARTS = 2
"""Failed starts after which nothing more is benchmarked on the device."""

_NOT_STARTED = "the process that benchmarks does not start"
_SERVE = "from backend.inductor.benchmark.child import main; main(int(sys.argv[2]))"


TRIALS = 2
"""Fresh processes that a choice must end to be blamed."""


def benchmark(request: Any, inputs: Sequence[Tensor] = (), out: Tensor | None = None) -> float:
    """Return the milliseconds of `request.benchmark()`, run in the process of its device; `out`, if
    given, receives the result for `inputs`. Raises ChoiceError."""
    seconds = allowed_seconds()
    if seconds == 0:
        try:
            return float(request.benchmark(*inputs, out=out))
        except Exception as error:
            raise choice_error(error) from error
    bench = bench_of(str(request.device))
    if out is None:
        return float(bench.run(request, seconds))
    answer: ComputeResult = bench.run(ComputeRequest(request, tuple(map(packed, inputs))), seconds)
    out.copy_(unpacked(answer.output))
    return answer.milliseconds


def forget_tuning() -> None:
    """Release the tensors of a finished tuning in each process. One that serves another tuning of
    this program recreates them."""
    forget_problem()
    for bench in tuple(_benches.values()):
        bench.forget()


def allowed_seconds(env: Mapping[str, str] = os.environ) -> float:
    """Return the value of `SECONDS`, if it is a sensible number."""
    try:
        seconds = float(env.get(SECONDS, DEFAULT_SECONDS))
    except ValueError:
        return DEFAULT_SECONDS
    return min(seconds, MOST_SECONDS) if seconds >= 0 else DEFAULT_SECONDS


class _Idle(ProcessLost):
    """The process ended because it was idle."""


class BenchmarkProcess:
    """The process, and a pipe to it. One request at a time."""

    def __init__(self) -> None:
        ours, theirs = Pipe(duplex=True)
        self.pid = os.getpid()
        self._pipe = ours
        self._process = subprocess.Popen(
            child_python.command(_SERVE, str(theirs.fileno())),
            env=child_python.child_environment(),
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the program; we end this process ourselves
        )
        supervisor.spare(self._process.pid)  # it serves later choices
        theirs.close()
        self._ready = False
        self.fresh = True

    def alive(self) -> bool:
        return self.pid == os.getpid() and self._process.poll() is None

    def run(self, request: Any, seconds: float) -> float | ComputeResult:
        """Return the result of `request.benchmark()`. Raises NotStarted, ProcessLost, TimedOut, or
        the process's ChoiceError."""
        if not self._ready:
            self._wait_until_ready()
        try:
            self.fresh = False
            self._pipe.send(request)
            if not self._pipe.poll(seconds):
                self.close()
                raise TimedOut(f"no result within {seconds:g} s: its process was stopped")
            answer = self._received(seconds)
        except ChoiceError:
            raise
        except (EOFError, OSError) as error:
            how = self._how_it_ended()
            raise _lost_as(self._process.returncode)(f"crashed: {how}") from error
        except Exception as error:  # not an answer of ours, so its content is unknown
            self.close()
            raise ProcessLost("crashed: it wrote into the pipe of its process") from error
        if isinstance(answer, DeviceLost):
            self.close()
        if isinstance(answer, (float, ComputeResult)):
            return answer
        raise answer if isinstance(answer, ChoiceError) else ChoiceError(str(answer))

    def forget(self) -> None:
        """Make the process release the memory of its last tuning; does nothing if it is gone."""
        with contextlib.suppress(OSError):
            self._pipe.send(FORGET)

    def _received(self, seconds: float) -> object:
        """Receive an answer in time: a kernel may have corrupted the pipe to announce gigabytes."""
        late = threading.Timer(seconds, self._end)
        late.start()
        try:
            return self._pipe.recv()
        finally:
            late.cancel()

    def _wait_until_ready(self) -> None:
        # Importing torch does not count as a choice's time.
        try:
            if not self._pipe.poll(START_SECONDS):
                self.close()
                raise NotStarted(f"{_NOT_STARTED} within {START_SECONDS:g} s")
            self._pipe.recv()
        except (EOFError, OSError) as error:
            raise NotStarted(f"{_NOT_STARTED}: {self._how_it_ended()}") from error
        self._ready = True

    def close(self) -> None:
        """Kill the process if it lives, and forget it."""
        if self.pid != os.getpid():
            return
        self._end()
        self._process.wait()
        self._pipe.close()
        supervisor.spare(self._process.pid, False)

    def _end(self) -> None:
        """End the process with all that it started."""
        if self._process.poll() is None:  # otherwise the pid may have been reused
            tree.sweep(self._process.pid)
            self._process.kill()

    def _how_it_ended(self) -> str:
        try:
            code = self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.close()
            return "its process closed the pipe"
        self._pipe.close()
        supervisor.spare(self._process.pid, False)
        if code >= 0:
            return f"its process ended with status {code}"
        with contextlib.suppress(ValueError):
            return f"its process died of {signal.Signals(-code).name}"
        return f"its process died of signal {-code}"


def _lost_as(code: int | None) -> type[ProcessLost]:
    """Return the error for an exit code. Out of memory ends a process by SIGKILL, as do people."""
    if code == 0:
        return _Idle
    return Killed if code in (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGHUP) else ProcessLost


class DeviceBench:
    """The process of one device, restarted if lost; one choice at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: BenchmarkProcess | None = None
        self._vain = 0
        """Consecutive failed starts."""

    def run(self, request: Any, seconds: float) -> Any:
        """See `BenchmarkProcess.run`; raises Crashed instead of ProcessLost if the choice is to
        blame. A choice that was lost late is not tried again, which would take several times its
        limit."""
        with self._lock:
            end, trials = time.monotonic() + seconds, 0
            while True:
                if self._vain >= STARTS:
                    raise NotStarted(_NOT_STARTED)
                process = self._current()
                trials += process.fresh
                self._vain += process.fresh
                try:
                    return process.run(request, seconds)
                except ProcessLost as error:
                    if isinstance(error, _Idle) and not trials:
                        continue  # it ended, being idle, just before the request
                    if trials == TRIALS and error.own:
                        raise Crashed(str(error)) from error
                    if trials == TRIALS or time.monotonic() > end:
                        raise
                finally:
                    if not process.fresh:
                        self._vain = 0

    def forget(self) -> None:
        if self._lock.acquire(blocking=False):
            try:
                if self._process is not None and self._process.alive():
                    self._process.forget()
            finally:
                self._lock.release()

    def close(self) -> None:
        """End the process, if there is one."""
        if self._process is not None:
            self._process.close()
            self._process = None

    def _current(self) -> BenchmarkProcess:
        if self._process is None or not self._process.alive():
            self._process = BenchmarkProcess()
        return self._process


_benches: dict[str, DeviceBench] = {}
"""By device: those of several devices run in parallel."""
_lock = threading.Lock()


def bench_of(device: str) -> DeviceBench:
    with _lock:
        if not _benches:
            atexit.register(shut_down)
        return _benches.setdefault(device, DeviceBench())


def shut_down() -> None:
    """End the processes."""
    for bench in tuple(_benches.values()):
        bench.close()


def _after_fork() -> None:
    # The child has neither the locks nor the processes of its parent.
    global _lock
    _lock = threading.Lock()
    _benches.clear()


os.register_at_fork(after_in_child=_after_fork)
