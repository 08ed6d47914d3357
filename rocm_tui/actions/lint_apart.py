"""`lint` for the screen: in a process of its own, so that neither keys nor memory feel it.

The process tells a line of JSON for all that is said, then one for each file in which it is said:
on which lines, which of these, and the details.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from subprocess import DEVNULL, PIPE, Popen
from tempfile import TemporaryFile

from backend.tables.model import Device, Table
from rocm_tui import say
from rocm_tui.actions.lint import device_here, marks_in
from rocm_tui.errors import UsageError
from rocm_tui.harmless import plain
from rocm_tui.tables.device import device_given
from rocm_tui.tables.findings import LEVELS, Finding, Level
from rocm_tui.tables.marks import NOTHING, FileMarks, Marks

MOST_ROWS = 100_000
"""Of all tables: they take about 20 s of a core, and 60 MiB for as long."""
_NICE = 10
_WHO = "rocm-tui: "
_LEVEL: dict[str, Level] = {level: level for level in LEVELS}


@dataclass(frozen=True, slots=True)
class Checked:
    """What was found, for which device (None: for none), how many tables were beyond `MOST_ROWS` or
    could not be read, and why nothing is known, where that is so."""

    marks: Marks = NOTHING
    device: Device | None = None
    left_out: int = 0
    trouble: str = ""


async def lint_apart(tables: Sequence[Table]) -> Checked:
    """What `rocm-tui lint` finds on this machine in tables of files, row by row. Whoever cancels it
    ends the process."""
    paths = [table.path for table in _within(tables)]
    device, left_out = device_here(), len(tables) - len(paths)
    if not paths:
        return Checked(device=device, left_out=left_out)
    command = [sys.executable, "-m", __name__, str(device or ""), *paths]
    with TemporaryFile() as errors:
        try:
            child = Popen(command, stdin=DEVNULL, stdout=PIPE, stderr=errors)
        except OSError as error:
            return Checked(trouble=f"lint did not start: {error.strerror or error}")
        try:
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, child.pid, _NICE)
            told = await asyncio.to_thread(_heard, child, paths)
        except asyncio.CancelledError:
            child.kill()  # the thread that reads from it buries it
            raise
        errors.seek(0)
        said = errors.read().decode("utf-8", "replace").strip().splitlines() or ["no reason told"]
    if told is None:
        trouble = f"lint failed: {plain(said[-1].removeprefix(_WHO))}"
        return Checked(device=device, left_out=left_out, trouble=trouble)
    marks, unread = told
    return Checked(marks, device, left_out + unread)


def _within(tables: Sequence[Table]) -> Iterator[Table]:
    room = MOST_ROWS
    for table in tables:
        if len(table.entries) <= room:
            room -= len(table.entries)
            yield table


def _heard(child: Popen[bytes], paths: Sequence[str]) -> tuple[Marks, int] | None:
    """What the process tells, taken as it comes; None if it failed."""
    with child:
        assert child.stdout is not None
        try:
            told = _unpacked(child.stdout, paths)
        except (ValueError, LookupError, TypeError, StopIteration):
            return None  # it ended early
    return told if child.returncode == 0 else None


def _unpacked(lines: Iterable[bytes], paths: Sequence[str]) -> tuple[Marks, int]:
    known = {os.path.normpath(path): path for path in paths}
    told = map(json.loads, lines)
    head = next(told)
    kinds = tuple(
        Finding(rule, _LEVEL[level], "", None, what, todo)
        for rule, level, what, todo in head["kinds"]
    )
    of = {
        known.get(one["file"]) or known[os.path.normpath(one["file"])]: FileMarks.of(
            one["lines"], one["kinds"], one["details"]
        )
        for one in told
    }
    return Marks(kinds, of), head["unread"]


def _packed(marks: Marks, unread: int) -> Iterator[object]:
    kinds = [(kind.rule, kind.level, kind.what, kind.todo) for kind in marks.kinds]
    yield {"kinds": kinds, "unread": unread}
    for path, one in marks.of.items():
        yield {
            "file": path,
            "lines": one.lines.tolist(),
            "kinds": one.kinds.tolist(),
            "details": one.texts(),
        }


def main(words: Sequence[str]) -> int:
    """The process's own part: a device, or nothing, and the files."""
    device, *paths = words
    try:
        marks, unread = marks_in(paths, device_given(device) if device else None)
    except UsageError as error:
        say.err(str(error))
        return 2
    for told in _packed(marks, unread):
        say.out_json(told)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
