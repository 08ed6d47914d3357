"""Runs a program whose lines say when they were printed, and hears them at that time, whatever the
load."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from rocm_tui.jobs.program import Ended, OnLine, run_program


def run_at_printed_times(command: Sequence[str], env: Mapping[str, str], on_line: OnLine) -> Ended:
    lines: list[tuple[float, str]] = []

    def hear(line: str, when: float) -> None:
        at = re.search(r" at ([\d.]+) s$", line)
        lines.append((float(at[1]) if at else when, line))

    ended = run_program(command, env, hear)
    for when, line in sorted(lines):
        on_line(line, when)
    return ended
