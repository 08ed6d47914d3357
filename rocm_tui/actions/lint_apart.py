"""`lint` for the screen: in a process of its own, so that neither keys nor memory feel it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from subprocess import DEVNULL, PIPE, Popen

from backend.tables.model import Device, Table
from rocm_tui.actions.lint import device_here
from rocm_tui.harmless import plain
from rocm_tui.tables.findings import LEVELS, Finding, Level
from rocm_tui.tables.marks import NOTHING, Marks, marks_of

MOST_ROWS = 100_000
"""Of all tables: they take about 20 s of a core, and 300 MiB for as long."""
_NICE = 10
_WHO = "rocm-tui: "
_LEVEL: dict[str, Level] = {level: level for level in LEVELS}


@dataclass(frozen=True, slots=True)
class Checked:
    """What was found, for which device (None: for none), how many tables were beyond `MOST_ROWS`,
    and why nothing is known, where that is so."""

    marks: Marks = NOTHING
    device: Device | None = None
    left_out: int = 0
    trouble: str = ""


async def lint_apart(tables: Sequence[Table]) -> Checked:
    """What `rocm-tui lint` finds on this machine in tables of files, row by row. Whoever cancels it
    ends the process."""
    paths = [table.path for table in _within(tables)]
    device = device_here()
    if not paths:
        return Checked(device=device, left_out=len(tables))
    on = [f"--device={device}"] if device else []
    command = [sys.executable, "-m", "rocm_tui", "lint", "--each", "--json", *on, "--", *paths]
    try:
        child = Popen(command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE)
    except OSError as error:
        return Checked(trouble=f"lint did not start: {error.strerror or error}")
    try:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, child.pid, _NICE)
        out, err = await asyncio.to_thread(child.communicate)
    except asyncio.CancelledError:
        child.kill()  # the thread that reads from it buries it
        raise
    left_out = len(tables) - len(paths)
    if child.returncode not in (0, 1):
        lines = err.decode("utf-8", "replace").strip().splitlines() or ["no reason told"]
        return Checked(
            device=device,
            left_out=left_out,
            trouble=f"lint failed: {plain(lines[-1].removeprefix(_WHO))}",
        )
    marks = await asyncio.to_thread(_marks, out, paths)
    return Checked(marks, device, left_out)


def _within(tables: Sequence[Table]) -> Iterator[Table]:
    room = MOST_ROWS
    for table in tables:
        if len(table.entries) <= room:
            room -= len(table.entries)
            yield table


def _marks(out: bytes, paths: Sequence[str]) -> Marks:
    told = json.loads(out)
    known = {os.path.normpath(path): path for path in paths}
    once: dict[str, str] = {}  # a hundred thousand findings say a few things
    return marks_of(
        Finding(
            once.setdefault(one["rule"], one["rule"]),
            _LEVEL[one["level"]],
            known.get(one["file"]) or known[os.path.normpath(one["file"])],
            one["line"],
            one["what"],
            once.setdefault(one["todo"], one["todo"]),
        )
        for one in told["findings"]
    )
