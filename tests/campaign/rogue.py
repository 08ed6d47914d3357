"""Choices that do what none should, drawn and mixed, in real `measure` jobs on one bmm.

In each job some rogues run beside an honest choice: the honest one must be told, a rogue that ends
or lies must have failed, nothing may be left running, and no disk may fill.
"""

from __future__ import annotations

import os
import random
import secrets
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from backend.disk.layout import Layout
from backend.model.choice import Choice, Measurement
from backend.model.tuning import Tuning
from rocm_tui.actions.measure import Measuring
from rocm_tui.errors import RocmTuiError
from rocm_tui.jobs.limits import Limits
from rocm_tui.jobs.run import run_watched
from tests.campaign import Figure
from tests.support.rogue_acts import ACTS, HARMLESS, LIARS, MARK, left
from tests.support.rogue_workers import hash_of, rogue_python

KEY = "[{0}, {0}]".format("('cpu', 'torch.float32', 4, 48, 48, 2304, 48, 1, 0)")
TOGETHER = 6
"""Rogues in a job. Each that ends its worker costs another, which imports torch."""
DISK = 64 << 20
"""Bytes that a job may leave or take on the disk."""
STUCK = 5.0


class _Count:
    """Tries, and those that broke the promise; of the first of them what was seen."""

    def __init__(self) -> None:
        self.tries = self.bad = 0
        self.note = ""

    def add(self, good: bool, note: str) -> None:
        self.tries += 1
        if not good:
            self.bad += 1
            self.note = self.note or note


def run(folder: Path, seconds: float, seed: int) -> Iterator[Figure]:
    draw = random.Random(seed)
    rogues = sorted((ACTS.keys() | LIARS.keys()) - {"honest"})
    told, failed, processes, disk = (_Count() for _ in range(4))
    end, seen = time.monotonic() + seconds, set[str]()
    waiting: list[str] = []
    while not told.tries or time.monotonic() < end:
        if len(waiting) < TOGETHER:
            waiting += draw.sample(rogues, len(rogues))
        names, waiting = list(dict.fromkeys(waiting[:TOGETHER])), waiting[TOGETHER:]
        seen |= set(names)
        value = secrets.token_hex(8)
        found = _measured(folder, ["honest", *names], value)
        what = f"beside {', '.join(names)}: {found}"[:300]
        running = left(value)
        for pid in running:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        processes.add(not running, f"{len(running)} {what}")
        disk.add(_size(folder) < DISK, f"{_size(folder) >> 20} MiB {what}")
        if isinstance(found, str):
            told.add(False, what)
            continue
        able = {choice.hash for choice in found.choices}
        told.add(hash_of("honest") in able, what)
        for name in names:
            if name not in HARMLESS:
                failed.add(hash_of(name) not in able, f"{name} {what}")
    each = f"{len(seen)} of {len(rogues)} kinds of rogues"
    yield Figure(
        "measure beside rogues", told.tries, told.bad, "others reported", told.note or each
    )
    yield Figure("rogues that end, block or lie", failed.tries, failed.bad, "failed", failed.note)
    yield Figure("jobs with rogues", processes.tries, processes.bad, "0 left", processes.note)
    yield Figure("jobs with rogues", disk.tries, disk.bad, f"< {DISK >> 20} MiB", disk.note)


def _measured(folder: Path, names: list[str], value: str) -> Measurement | str:
    """What was found, or why nothing was."""
    choices = tuple(Choice(name, hash_of(name), 1.0) for name in names)
    tuning = Tuning("bmm", inputs_key=KEY, precision="highest", choices=choices)
    env = {**os.environ, MARK: value, "ROGUES": ",".join(names)}
    python, layout = rogue_python(folder), Layout(folder / "cache")
    try:
        return Measuring(
            lambda job: run_watched(
                job,
                python=python,
                layout=layout,
                env=env,
                limits=Limits(stuck=STUCK, memory=4 << 30, of=4 << 30),
                on_progress=lambda progress: None,
            ),
            tuning,
            choices,
            budget=1.0,
        ).once()
    except RocmTuiError as error:
        return str(error)


def _size(folder: Path) -> int:
    """Bytes that its files take."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            total += path.lstat().st_blocks * 512
    return total
