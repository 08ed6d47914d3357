"""An agent: what tunes on one device of a fleet, one unit at a time and the next one at hand.

Its workers are those of every other job, in a cache dir of its own, so that nothing that others
wrote decides what is tuned, and its times get nowhere but into what it says. Whatever becomes of a
worker is the end of a choice or of a unit, never of the agent.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from backend.cache.journal import Journal, Tuned, line_of
from backend.disk.layout import Layout
from backend.errors import StoreError
from backend.wire.jobs import CompileJob, EnvironmentJob, Gpu, Progress, WorkerJob
from rocm_tui.environment import CPU, device_env, without_gpus
from rocm_tui.errors import RocmTuiError
from rocm_tui.fleet.facts import Pulse, device_of, facts_of
from rocm_tui.fleet.messages import (
    BEAT,
    Beat,
    Cancel,
    Compile,
    Compiled,
    Done,
    Facts,
    Gone,
    Hello,
    Offer,
    Stop,
    ToAgent,
    ToDriver,
    Unit,
)
from rocm_tui.fleet.places import sharing_code
from rocm_tui.harmless import plain
from rocm_tui.jobs.limits import Limits
from rocm_tui.jobs.run import run_watched
from rocm_tui.jobs.tune import tuned
from rocm_tui.jobs.warm import Workers
from rocm_tui.jobs.worker import Worker

R = TypeVar("R")
_READINGS = 4
"""Of the device while it works, a heartbeat: many a unit is over within one."""


class _Over(RocmTuiError):
    """The lease was cancelled, or the agent ends."""


@dataclass(slots=True, eq=False)
class _Lease:
    id: str
    unit: Unit
    gpu: Gpu | None = None
    """For which it is compiled, where it is not tuned."""
    over: bool = False
    worker: Worker | None = None
    progress: Progress = field(default_factory=Progress)


class Agent:
    """`send` is called from several threads, one at a time. `scratch` is the cache dir of this
    agent alone; who started the agent removes it. `end` may be called from any thread."""

    def __init__(
        self,
        name: str,
        device: str | None,
        python: str,
        scratch: Path,
        send: Callable[[ToDriver], None],
        limits: Limits | None = None,
        shared: Path | None = None,
    ) -> None:
        """`shared` is the cache dir whose compiled kernels it takes and adds to.
        Raises UsageError for a device that there is not."""
        self.name = name
        self._device = device
        self._python = python
        self._layout = Layout(scratch)
        self._send = send
        self._limits = limits or Limits.of_this_machine()
        self._env = device_env(os.environ, device)
        if shared is not None:
            self._env = sharing_code(self._env, shared)
        self._shared = shared
        self._workers = Workers(scratch)
        self._facts = Facts()
        self._pulse: Pulse | None = None
        self._leases: list[_Lease] = []  # the first is at work
        self._changed = threading.Condition()
        self._speaking = threading.Lock()
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._work, name="agent", daemon=True),
            threading.Thread(target=self._beat, name="heartbeat", daemon=True),
        ]
        self._greeted = threading.Event()

    def start(self) -> None:
        """Begin; the first that it says is `Hello`, or `Gone` with the reason."""
        for thread in self._threads:
            thread.start()

    def take(self, message: ToAgent) -> None:
        """Hear the driver. Never blocks for long."""
        if isinstance(message, Offer | Compile):
            gpu = message.gpu if isinstance(message, Compile) else None
            with self._changed:
                if not any(lease.id == message.lease for lease in self._leases):
                    self._leases.append(_Lease(message.lease, message.unit, gpu))
                self._changed.notify_all()
        elif isinstance(message, Cancel):
            self._cancel(message.lease)
        elif isinstance(message, Stop):
            self.end()

    def wait(self, timeout: float | None = None) -> bool:
        """Until it ends; whether it has."""
        return self._over.wait(timeout)

    def end(self) -> None:
        """End all work, and all workers; nothing more is said."""
        self._over.set()
        with self._changed:
            leases, self._leases = self._leases, []
            self._changed.notify_all()
        for lease in leases:
            self._kill(lease)
        self._workers.end()
        self._greeted.set()
        if self._pulse is not None:
            self._pulse.stop()
        for thread in self._threads:
            if thread is not threading.current_thread() and thread.ident is not None:
                thread.join(BEAT)

    # The thread that works.

    def _work(self) -> None:
        try:
            self._greet()
        except (RocmTuiError, StoreError, OSError) as error:
            self._say(Gone(self.name, plain(f"it cannot work: {error}")))
            self._over.set()
            return
        while not self._over.is_set():
            with self._changed:
                while not self._leases and not self._over.is_set():
                    self._changed.wait()
                if self._over.is_set():
                    return
                lease = self._leases[0]
            done = self._tune(lease) if lease.gpu is None else self._compile(lease, lease.gpu)
            with self._changed:
                self._leases = [each for each in self._leases if each is not lease]
                cancelled = lease.over
            if not cancelled and not self._over.is_set():
                self._say(done)

    def _greet(self) -> None:
        environment = self._run(EnvironmentJob(compilers=self._device != CPU), None)
        self._facts = facts_of(environment, self._device, shared=self._shared)
        if not environment.gpu and self._device not in (None, CPU):
            raise RocmTuiError(f"torch sees no GPU {self._device}")
        self._pulse = Pulse(device_of(self._facts))
        self._say(Hello(self.name, self._facts))
        self._greeted.set()

    def _tune(self, lease: _Lease) -> Done:
        """What came of it; nothing is raised."""
        begin = time.monotonic()
        done = Done(self.name, lease.id, lease.unit.id, self._facts)
        if self._pulse is not None:
            self._pulse.medians()
        try:
            self._seed(lease.unit)
            job = lease.unit.job
            if self._device == CPU and job.inputs is None and job.device is None:
                job = replace(job, device=CPU)  # GPUs stay visible to it: it would take one

            def run(job: WorkerJob[R]) -> R:
                return self._run(job, lease)

            result = tuned(run, job, any_mode=job.any_mode)
        except (RocmTuiError, StoreError, OSError) as error:
            done = replace(done, reason=plain(str(error)) or "it failed")
        except Exception as error:  # the outermost boundary: the agent lives on
            done = replace(done, reason=plain(f"{type(error).__name__}: {error}"))
        else:
            if result.ok:
                done = replace(done, result=result)
            else:
                reason, single = plain(result.reason), result.single
                done = replace(done, reason=reason, own=True, single=single)
        clock, power = self._pulse.medians() if self._pulse is not None else (None, None)
        facts = replace(self._facts, clock=clock, power=power)
        return replace(done, facts=facts, seconds=time.monotonic() - begin)

    def _compile(self, lease: _Lease, gpu: Gpu) -> Compiled:
        """The same of what is compiled ahead."""
        said = Compiled(self.name, lease.id, lease.unit.id)
        try:
            result = self._run(CompileJob(lease.unit.job, gpu), lease)
        except (RocmTuiError, StoreError, OSError) as error:
            return replace(said, reason=plain(str(error)) or "it failed")
        except Exception as error:  # the outermost boundary: the agent lives on
            return replace(said, reason=plain(f"{type(error).__name__}: {error}"))
        return replace(said, result=result)

    def _seed(self, unit: Unit) -> None:
        """Let this cache dir tell in which mode the problem was tuned, as the driver's does: a
        tuning is made again whatever the cache says of it. Raises StoreErrors."""
        job = unit.job
        if unit.known and job.inputs is not None and job.precision is not None:
            tuned = Tuned(job.op, job.inputs, job.precision, unit.known, time.time())
            path = self._layout.autotune / self._facts.system_hash
            Journal(self._layout.root, path).append(line_of(tuned))

    def _run(self, job: WorkerJob[R], lease: _Lease | None) -> R:
        """Raises JobError, and _Over."""

        def started(worker: Worker) -> None:
            if lease is not None:
                lease.worker = worker
            if self._is_over(lease):
                worker.kill()

        def heard(progress: Progress) -> None:
            if lease is not None:
                lease.progress = progress

        if self._is_over(lease):
            raise _Over("cancelled")
        try:
            return run_watched(
                job,
                python=self._python,
                layout=self._layout,
                env=without_gpus(self._env) if isinstance(job, CompileJob) else self._env,
                limits=self._limits,
                on_progress=heard,
                on_worker=started,
                workers=None if lease is None else self._workers,
            )
        except RocmTuiError as error:
            if self._is_over(lease):
                raise _Over("cancelled") from error
            raise
        finally:
            if lease is not None:
                lease.worker = None

    def _is_over(self, lease: _Lease | None) -> bool:
        return self._over.is_set() or (lease is not None and lease.over)

    # What others do to it.

    def _cancel(self, id: str) -> None:
        with self._changed:
            found = [lease for lease in self._leases if lease.id == id]
            for lease in found:
                lease.over = True
            self._leases = [
                lease for lease in self._leases if lease not in found or lease is self._leases[0]
            ]
        for lease in found:
            self._kill(lease)

    def _kill(self, lease: _Lease) -> None:
        lease.over = True
        worker = lease.worker
        if worker is not None:
            with contextlib.suppress(OSError):
                worker.kill()

    # The heartbeat.

    def _beat(self) -> None:
        self._greeted.wait()
        for turn in itertools.count(1):
            if self._over.wait(BEAT / _READINGS):
                return
            with self._changed:
                leases = [lease for lease in self._leases if not lease.over]
                progress = leases[0].progress if leases else Progress()
            beats = turn % _READINGS == 0
            if self._pulse is not None and (leases or beats):
                self._pulse.ask()
            if not beats:
                continue
            state = self._pulse.state() if self._pulse is not None else None
            self._say(
                Beat(
                    self.name,
                    tuple(lease.id for lease in leases),
                    progress,
                    state.clock_mhz if state else None,
                    state.power_w if state else None,
                    state.temperature_c if state else None,
                )
            )

    def _say(self, message: ToDriver) -> None:
        with self._speaking:
            self._send(message)
