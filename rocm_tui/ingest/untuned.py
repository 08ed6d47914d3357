"""A file of what programs asked other tuners for: its form, its products, how often each is asked
for, and what of it is none."""

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
    """`problems` with how often the file asks for each; `left_out` how many lines, by reason."""

    problems: dict[Problem, int] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)

    @property
    def lines(self) -> int:
        """How many lines ask for something."""
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
    """Its products. Raises CacheUnreadable."""
    asks, table = Asks(), registry.read_table(path)
    known: dict[tuple[object, ...], Problem] = {}
    for entry in table.entries:
        key = entry.op, entry.key
        try:
            problem = known.get(key) or known.setdefault(
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
    """The calls of hipBLASLt that a program's output tells of. Raises OSError."""
    asks = Asks()
    known: dict[Gemm, Problem] = {}
    with open_regular(path, follow=True) as stream:
        for line in _lines(stream):
            try:
                gemm = hipblaslt.gemm_of(line.decode("utf-8", "replace").strip())
                if gemm is not None:
                    asks.add(known.get(gemm) or known.setdefault(gemm, problem_of_gemm(gemm)))
            except NotAProblem as error:
                asks.leave_out(str(error))
    return asks


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    """Each line with a call, but for those that are too long."""
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
