"""A process for each device that benchmarks for us and may crash or hang: then its choice has
failed, nothing else.

One is started when first needed, serves one choice after the other, and is started again after it
was lost. It ends with us, however we end, and by itself when it was idle for long.

A kernel may damage what runs after it. So one after which the process or its device was lost is run
again where nothing has run before, and is to blame only if that is lost too, twice.
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
from backend.inductor.benchmark.tensors import Computed, OnGiven, packed, unpacked
from backend.processes import supervisor, tree

SECONDS = "ROCM_TUI_BENCHMARK_SECONDS"
"""The variable: how long one choice may take, checks included; 0 benchmarks in this process."""

DEFAULT_SECONDS = 60.0
MOST_SECONDS = 86400.0
"""Who wants no end gets a day."""

START_SECONDS = 300.0
"""torch is imported meanwhile, maybe from a slow disk."""
STARTS = 2
"""So often it is tried in vain; then nothing more is benchmarked on the device."""

_NOT_STARTED = "the process that benchmarks does not start"
_SERVE = "from backend.inductor.benchmark.child import main; main(int(sys.argv[2]))"


TRIALS = 2
"""Fresh processes that a choice must end to be blamed for it."""


def benchmark(request: Any, inputs: Sequence[Tensor] = (), out: Tensor | None = None) -> float:
    """Milliseconds of `request.benchmark()`, run in the process of its device; `out`, if there is
    one, gets what it makes of `inputs`. Raises ChoiceError."""
    seconds = allowed_seconds()
    if seconds == 0:
        try:
            return float(request.benchmark(*inputs, out=out))
        except Exception as error:
            raise choice_error(error) from error
    bench = bench_of(str(request.device))
    if out is None:
        return float(bench.run(request, seconds))
    answer: Computed = bench.run(OnGiven(request, tuple(map(packed, inputs))), seconds)
    out.copy_(unpacked(answer.output))
    return answer.milliseconds


def forget() -> None:
    """A tuning is over: let no process keep its tensors. One that serves another tuning of this
    program finds out by itself."""
    forget_problem()
    for bench in tuple(_benches.values()):
        bench.forget()


def allowed_seconds(env: Mapping[str, str] = os.environ) -> float:
    """What `SECONDS` says, if it is a number that makes sense."""
    try:
        seconds = float(env.get(SECONDS, DEFAULT_SECONDS))
    except ValueError:
        return DEFAULT_SECONDS
    return min(seconds, MOST_SECONDS) if seconds >= 0 else DEFAULT_SECONDS


class _Idle(ProcessLost):
    """The process ended as it does when nobody needs it."""


class BenchmarkProcess:
    """The process, and a pipe to it. One request at a time."""

    def __init__(self) -> None:
        ours, theirs = Pipe(duplex=True)
        self.pid = os.getpid()
        self._pipe = ours
        self._process = subprocess.Popen(
            child_python.command(_SERVE, str(theirs.fileno())),
            env=child_python.environment(),
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # ctrl-C is for the program; we end this one ourselves
        )
        supervisor.spare(self._process.pid)  # it serves the choices to come
        theirs.close()
        self._ready = False
        self.fresh = True

    def alive(self) -> bool:
        return self.pid == os.getpid() and self._process.poll() is None

    def run(self, request: Any, seconds: float) -> float | Computed:
        """What `request.benchmark()` says. Raises NotStarted, ProcessLost, TimedOut, or a
        ChoiceError with what the process said."""
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
        except Exception as error:  # no answer of ours, so nothing can be told of what it is
            self.close()
            raise ProcessLost("crashed: it wrote into the pipe of its process") from error
        if isinstance(answer, DeviceLost):
            self.close()
        if isinstance(answer, (float, Computed)):
            return answer
        raise answer if isinstance(answer, ChoiceError) else ChoiceError(str(answer))

    def forget(self) -> None:
        """Let it give back the memory of its last tuning; nothing where it is gone."""
        with contextlib.suppress(OSError):
            self._pipe.send(FORGET)

    def _received(self, seconds: float) -> object:
        """What a kernel wrote there may say that gigabytes follow, for which we do not wait."""
        late = threading.Timer(seconds, self._end)
        late.start()
        try:
            return self._pipe.recv()
        finally:
            late.cancel()

    def _wait_until_ready(self) -> None:
        # Importing torch is no part of a choice's time.
        try:
            if not self._pipe.poll(START_SECONDS):
                self.close()
                raise NotStarted(f"{_NOT_STARTED} within {START_SECONDS:g} s")
            self._pipe.recv()
        except (EOFError, OSError) as error:
            raise NotStarted(f"{_NOT_STARTED}: {self._how_it_ended()}") from error
        self._ready = True

    def close(self) -> None:
        """Kill it if it lives, and forget it."""
        if self.pid != os.getpid():
            return
        self._end()
        self._process.wait()
        self._pipe.close()
        supervisor.spare(self._process.pid, False)

    def _end(self) -> None:
        """With all that it started."""
        if self._process.poll() is None:  # else the number may be another process's by now
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
    """By how it ended. Memory that runs out ends it by SIGKILL, and so do people."""
    if code == 0:
        return _Idle
    return Killed if code in (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGHUP) else ProcessLost


class DeviceBench:
    """The process of one device, started again where it was lost; one choice at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: BenchmarkProcess | None = None
        self._vain = 0
        """Starts one after the other that failed."""

    def run(self, request: Any, seconds: float) -> Any:
        """See `BenchmarkProcess.run`; raises Crashed instead of ProcessLost where the choice is to
        blame. One that was lost late is not tried again: it would take several times as long as a
        choice may."""
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
                        continue  # it ended by itself while we were about to ask
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
"""By device: those of several devices run side by side."""
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
