"""Limits of a worker (time, silence, memory, processes, output), and the machine's memory.

What can become of a job instead of a result:

JobError
├── WorkerDied      the process ended in the middle of a job
├── JobTimeout      it took too long, or said nothing for too long, and was killed
├── TooMuch         it took or printed more than it may and was killed
└── JobFailed       the job itself raised an error
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from backend.counted import counted
from backend.processes import tree
from backend.processes.memory import cgroup_limits
from backend.processes.shared import SharedMark
from backend.processes.tree import Process
from backend.wire.jobs import Progress
from rocm_tui.errors import RocmTuiError, UsageError


class JobError(RocmTuiError):
    """A job gave no result.

    `blamed` is the hash of the choice that the worker was at when it died or hung, if that may be
    the cause; `last` is its last progress, if any; `log` is where the end of its log is kept.
    """

    blamed: str | None = None
    last: Progress | None = None
    log: Path | None = None


class WorkerDied(JobError):
    """The worker ended in the middle of a job."""


class JobTimeout(JobError):
    """The job took too long."""


class TooMuch(JobError):
    """The worker took more memory or processes than it may, or printed more."""


class JobFailed(JobError):
    """The job raised an error of its own."""


SILENCE = 900.0
"""Seconds without a word after which a worker counts as hung. A kernel may compile for minutes."""

SHARE = 0.8
"""The part of the machine's memory that a worker with all that it starts may take."""

STUCK = 60.0
"""Seconds that one choice may run before it counts as hung: a sample is a few calls."""

TIMED = 5
"""Factor on `STUCK` while Inductor times a choice, which takes many calls."""

PROCESSES = 1000
"""The most processes of a worker that run at once; Inductor's compilers are 32 at most."""

OUTPUT = 64 << 20
"""Bytes that a worker may print in one job. Only the end is kept, but passing on takes a CPU."""

NOISE = 64 << 20
"""Bytes that may come out of a worker's channel and are no events: nobody has a reason to write
there, but some write everywhere. Who does so for ever is still at it when that much has come."""

_LOOK = 0.25
"""Seconds between two looks at a worker."""
_FROZEN = 10 * _LOOK
"""Seconds without a look after which we were frozen, and the worker most likely with us: by `docker
pause`, `scontrol suspend`, or a virtual machine that moves to another host."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a job may take; None is no limit. `memory` is in bytes, of `of` bytes that there are;
    `stuck` is for a single choice that the worker has marked as running."""

    seconds: float | None = None
    silence: float | None = SILENCE
    stuck: float | None = STUCK
    memory: int | None = None
    of: int | None = None
    processes: int | None = PROCESSES
    output: int | None = OUTPUT

    @classmethod
    def of_this_machine(cls, workers: int = 1) -> Limits:
        """Return limits without a deadline: a worker must report now and then, and leave memory.

        `workers` that run at once share the memory.
        """
        there = memory_of_machine()
        return cls(memory=int(there * SHARE / workers), of=there)


class Clock:
    """Looks at the limits of one job while its worker is silent."""

    def __init__(
        self,
        limits: Limits,
        mark: SharedMark,
        printed: Callable[[], int],
        noise: Callable[[], int],
    ) -> None:
        self._limits = limits
        self._mark = mark
        self._printed = printed
        self._noise = noise
        self._before = printed()
        self._began = self._heard = self._next = self._looked = time.monotonic()

    @property
    def wait(self) -> float:
        """Seconds until the next look."""
        return max(0.0, min(self._left(), self._next - time.monotonic()))

    def heard(self) -> None:
        self._heard = time.monotonic()

    def look(self, pid: int) -> None:
        """Raises JobTimeout and TooMuch."""
        limits, now = self._limits, time.monotonic()
        if now - self._looked > _FROZEN:
            self._heard = min(now, self._heard + now - self._looked)
            self._mark.skip(now - self._looked)
        if limits.seconds is not None and now - self._began >= limits.seconds:
            raise JobTimeout(
                f"the worker gave no result within {limits.seconds:.0f} s and was killed"
            )
        if limits.silence is not None and now - self._heard >= limits.silence:
            raise JobTimeout(f"the worker said nothing for {limits.silence:.0f} s and was killed")
        if now >= self._next:
            self._next = now + _LOOK
            self._check_choice()
            self._check_output()
            if limits.memory is not None or limits.processes is not None:
                _check_tree(pid, limits)
        self._looked = time.monotonic()  # the look itself takes long with many processes

    def _check_choice(self) -> None:
        if self._limits.stuck is not None:
            ran, at_length = self._mark.running_for()
            most = self._limits.stuck * (TIMED if at_length else 1)
            if ran >= most:
                raise JobTimeout(f"it ran for {most:.0f} s without an end and was killed")

    def _check_output(self) -> None:
        printed, most = self._printed() - self._before, self._limits.output
        if most is not None and printed > most:
            raise TooMuch(f"it printed {printed >> 20} MiB and was ended")
        if self._noise() > NOISE:
            raise TooMuch("it wrote what is no event into the worker's channel and was ended")

    def _left(self) -> float:
        now = time.monotonic()
        ends = [
            since + limit - now
            for since, limit in (
                (self._began, self._limits.seconds),
                (self._heard, self._limits.silence),
            )
            if limit is not None
        ]
        return min(ends, default=_LOOK)


def _check_tree(pid: int, limits: Limits) -> None:
    """Not by psutil: with a hundred processes it takes half as long again, beside what is being
    measured, and it knows no sessions."""
    processes = tree.tree(pid)
    if limits.processes is not None and len(processes) > limits.processes:
        raise TooMuch(
            f"it ran {counted(len(processes), 'process', 'processes')} at once and was ended"
        )
    if limits.memory is None or resident(processes) <= limits.memory:
        return
    used = proportional(processes)
    if used > limits.memory:
        there = gib(limits.of if limits.of is not None else limits.memory)
        raise TooMuch(f"it used {gib(used)} of {there} and was ended")


GIB = 1 << 30


def resident(processes: Sequence[Process]) -> int:
    """Bytes of memory, where what several share counts several times."""
    return sum(process.resident for process in processes)


def proportional(processes: Sequence[Process]) -> int:
    """Bytes of memory, where each has its part of what is shared. Takes milliseconds a process."""
    total = 0
    for process in processes:
        try:
            memory = psutil.Process(process.pid).memory_full_info()
        except psutil.AccessDenied:
            total += process.resident
        except psutil.NoSuchProcess:
            continue  # it has ended
        else:
            total += getattr(memory, "pss", memory.rss)  # Linux alone has it
    return total


def memory_of_machine() -> int:
    """Bytes of memory that we and our workers can have: the machine's, or our cgroup's limit,
    which psutil does not know."""
    there: int = psutil.virtual_memory().total
    return min([there, *cgroup_limits()])


def gib(size: int) -> str:
    """Bytes as `18.2 GiB`."""
    return f"{size / GIB:.1f} GiB"


_MOST = 1e9


def check_seconds(value: float | str, name: str) -> float:
    """A time that a job may take. Raises UsageError, which calls it by `name`."""
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < _MOST:
        raise UsageError(f"{name} is a number of seconds above 0 and below {_MOST:g}")
    return seconds


def seconds_given(value: float | str | None, name: str) -> float | None:
    """The same of an option that need not be given: None where the settings say it."""
    return None if value is None else check_seconds(value, name)
