"""A file of the products that programs requested from other tuners: its form, its products, how
often each is requested, and which lines are none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from backend.disk.safe import open_regular
from backend.errors import CacheUnreadable
from backend.model.problem import Problem
from backend.tables import hipblaslt, registry
from backend.tables.model import MAX_LINE, Gemm, NotAProblem, problem_of_gemm


@dataclass(slots=True)
class Asks:
    """What a file requests: `problems` with their number of calls, `left_out` lines by reason."""

    problems: dict[Problem, int] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)

    @property
    def lines(self) -> int:
        """Return the number of lines that request a product."""
        return sum(self.problems.values()) + sum(self.left_out.values())

    def add(self, problem: Problem, calls: int = 1) -> None:
        self.problems[problem] = self.problems.get(problem, 0) + calls

    def leave_out(self, reason: str) -> None:
        if reason not in self.left_out and len(self.left_out) >= _REASONS:
            reason = "other reasons"
        self.left_out[reason] = self.left_out.get(reason, 0) + 1


_REASONS = 20
"""Kept apart: a damaged file may have one a line."""


def is_table(path: Path) -> bool:
    """Whether the file is a table of another tuner, and no log."""
    try:
        tuner = registry.tuner_at(path)
    except (CacheUnreadable, ValueError):  # a NUL in its name
        return False
    return tuner is not None and tuner.lines is not None


def read_table(path: Path) -> Asks:
    """Return the products of a table. Raises CacheUnreadable."""
    asks, table = Asks(), registry.read_table(path)
    problems: dict[tuple[object, ...], Problem] = {}
    for entry in table.entries:
        key = entry.op, entry.key
        try:
            problem = problems.get(key) or problems.setdefault(
                key, registry.problem_of_entry(table, entry)
            )
        except NotAProblem as error:
            asks.leave_out(str(error))
        else:
            asks.add(problem)
    for fault in table.problems:
        asks.leave_out(fault.what)
    return asks


def read_log(path: Path) -> Asks:
    """Return the calls of hipBLASLt in a program's output. Raises OSError."""
    asks = Asks()
    problems: dict[Gemm, Problem] = {}
    with open_regular(path, follow=True) as stream:
        for line in _lines(stream):
            try:
                gemm = hipblaslt.gemm_of(line.decode("utf-8", "replace").strip())
                if gemm is not None:
                    asks.add(problems.get(gemm) or problems.setdefault(gemm, problem_of_gemm(gemm)))
            except NotAProblem as error:
                asks.leave_out(str(error))
    return asks


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    """Yield each line with a call, except lines that are too long."""
    at_start = True
    while line := stream.readline(MAX_LINE):
        whole = line.endswith(b"\n") or len(line) < MAX_LINE
        if at_start and whole and hipblaslt.WORD.encode() in line:
            yield line
        at_start = whole


def in_words(left_out: Mapping[str, int]) -> str:
    """`6 × an fp8 or int8 product with scales, 2 × ...`: most first."""
    ranked = sorted(left_out.items(), key=lambda item: -item[1])
    return ", ".join(f"{count} × {reason}" for reason, count in ranked)
