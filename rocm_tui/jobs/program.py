"""A person's program that runs for us: its output, line by line with times, and an end that leaves
no process behind, however we end ourselves.

It has a session of its own and no terminal. Both outputs go through pipes, so Python is run
unbuffered.
"""

from __future__ import annotations

import os
import selectors
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from backend.measure.trial import ArmStanding
from backend.processes.tree import has_ended
from rocm_tui.harmless import clean_bytes
from rocm_tui.jobs.worker import Orphans

LINES = 200
"""The last lines that are kept."""
_CHUNK = 1 << 16
_MOST_LINE = 1 << 20
_LAST = 0.5
"""Seconds that output may still come in after the program's end, from what it left running."""
_LOOK = 0.5

OnLine = Callable[[str, float], None]
"""Gets a line and its time by `time.perf_counter`, in seconds."""


@dataclass(slots=True)
class Ended:
    """`status` is the exit code, or minus the signal; `lines` are the last ones of both outputs."""

    status: int
    seconds: float
    lines: list[str] = field(default_factory=list)


Side = Literal["without", "with"]
SIDES: tuple[Side, Side] = ("without", "with")
"""The baseline comes first."""


@dataclass(frozen=True, slots=True)
class ProgramRun:
    """One run: `pair` 0 is the one that compiles and does not count. `ms` is a step's median.
    `label` names the side to a person: `with the pins`."""

    pair: int
    side: Side
    label: str
    ms: float
    steps: int
    seconds: float


@dataclass(frozen=True, slots=True)
class TableUse:
    """The tuned table of a side; `path` is None for no table.

    `hits` and `misses` count the lookups that the side's first run reported.
    """

    path: str | None
    name: str
    tuner: str
    entries: int
    hits: int
    misses: int

    @property
    def unseen(self) -> bool:
        """Whether no lookup was seen to hit this table."""
        return self.path is not None and not self.hits


@dataclass(frozen=True, slots=True)
class ProgramTrial:
    """All runs, and how the second side compares with the baseline, which comes first.

    `trouble` has sentences on what makes the result doubtful; `tables` are those of the sides, if
    they differ in that, and not in the pins.
    """

    command: tuple[str, ...]
    runs: tuple[ProgramRun, ...]
    standings: tuple[ArmStanding, ...]
    pairs: int
    seconds: float
    trouble: tuple[str, ...] = field(default=())
    tables: tuple[TableUse, ...] = ()

    @property
    def unseen(self) -> tuple[TableUse, ...]:
        return tuple(use for use in self.tables if use.unseen)

    @property
    def verdict(self) -> ArmStanding:
        """The result for the second side; `unclear` if a table had no hit, whatever the times."""
        result = self.standings[-1]
        return replace(result, verdict="unclear") if self.unseen else result


def run_program(command: Sequence[str], env: Mapping[str, str], on_line: OnLine) -> Ended:
    """Run `command` to its end. What it started and left running is ended then too.

    Raises OSError if it cannot be started.
    """
    orphans = Orphans()
    began = time.perf_counter()
    try:
        process = subprocess.Popen(
            command,
            env={"PYTHONUNBUFFERED": "1", **env, **orphans.mark},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except BaseException:
        orphans.end(None)
        raise
    lines: deque[str] = deque(maxlen=LINES)

    def hear(line: str, when: float) -> None:
        lines.append(line)
        on_line(line, when)

    try:
        _read(process, hear)
        seconds = time.perf_counter() - began
    finally:
        # It is not reaped before: until then its number is its own.
        orphans.end(process.pid)
        process.wait()
        orphans.forget()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
    return Ended(process.returncode, seconds, list(lines))


def _read(process: subprocess.Popen[bytes], hear: OnLine) -> None:
    """Until the program has ended and what it printed is read."""
    with selectors.DefaultSelector() as selector:
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            selector.register(stream, selectors.EVENT_READ, _Lines())
        end: float | None = None
        while selector.get_map():
            if end is None and has_ended(process.pid):
                end = time.monotonic() + _LAST
            if end is not None and time.monotonic() > end:
                break  # something that it left running holds the pipes
            for ready, _ in selector.select(0.05 if end is not None else _LOOK):
                data = os.read(ready.fd, _CHUNK)
                now = time.perf_counter()
                if not data:
                    selector.unregister(ready.fileobj)
                for line in ready.data.feed(data):
                    hear(line, now)
        while not has_ended(process.pid):  # it closed its outputs and goes on
            time.sleep(_LOOK / 10)


class _Lines:
    """Cuts bytes into lines; a carriage return ends one too, as progress bars have it."""

    def __init__(self) -> None:
        self._begun = b""

    def feed(self, data: bytes) -> Iterator[str]:
        """The lines that are whole now; without data, the last one too."""
        *whole, begun = (self._begun + data).replace(b"\r", b"\n").split(b"\n")
        if not data or len(begun) > _MOST_LINE:
            whole, begun = [*whole, begun], b""
        self._begun = begun
        yield from (clean_bytes(line) for line in whole if line.strip())
