"""A file of what programs asked other tuners for: its form, its products, how often each is asked
for, and what of it is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import BinaryIO

from backend.disk.safe import open_regular, read_head
from backend.errors import CacheUnreadable
from backend.model.problem import Problem
from backend.tables import hipblaslt
from backend.tables.model import (
    BOM,
    MAX_LINE,
    TOO_LONG,
    Gemm,
    NotAProblem,
    NotARow,
    Tuner,
    problem_of_gemm,
)
from backend.tables.registry import HEAD, tuner_at

Reader = Callable[[bytes], Problem | None]
"""What a line asks for, None for nothing; raises NotAProblem or NotARow."""


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
    return _table_of(path) is not None


def read_table(path: Path) -> Asks:
    """Its products. Raises OSError."""
    reader = _table_of(path)
    return Asks() if reader is None else _read(path, reader)


def read_log(path: Path) -> Asks:
    """The calls of hipBLASLt that a program's output tells of. Raises OSError."""
    return _read(path, _problems(hipblaslt.gemm_of), hipblaslt.WORD.encode())


def _table_of(path: Path) -> Reader | None:
    try:
        tuner = tuner_at(path)
    except (CacheUnreadable, ValueError):  # a NUL in its name
        return None
    return None if tuner is None or tuner.lines is None else _entries(tuner, path)


def _problems(gemm_of: Callable[[str], Gemm | None]) -> Reader:
    known: dict[Gemm, Problem] = {}

    def read(line: bytes) -> Problem | None:
        gemm = gemm_of(_text(line))
        if gemm is None:
            return None
        return known.get(gemm) or known.setdefault(gemm, problem_of_gemm(gemm))

    return read


def _entries(tuner: Tuner, path: Path) -> Reader:
    assert tuner.lines is not None
    lines = tuner.lines(str(path))
    lines.look_ahead(read_head(path, HEAD))
    known: dict[tuple[object, ...], Problem] = {}
    numbers = count(1)

    def read(line: bytes) -> Problem | None:
        line, number = line.removeprefix(BOM).rstrip(b"\r\n"), next(numbers)
        if not lines.take(line, number):
            return None
        entry = lines.entry(line, number, 0)
        key = entry.op, entry.key
        return known.get(key) or known.setdefault(key, tuner.problem(entry))

    return read


def _read(path: Path, reader: Reader, word: bytes = b"") -> Asks:
    """Only lines with `word` in them are looked at."""
    asks = Asks()
    with open_regular(path, follow=True) as stream:
        for line in _lines(stream):
            if line is None:
                if not word:
                    asks.leave_out(TOO_LONG)
                continue
            if word not in line:
                continue
            try:
                problem = reader(line)
            except (NotAProblem, NotARow) as error:
                asks.leave_out(str(error))
            else:
                if problem is not None:
                    asks.add(problem)
    return asks


def _lines(stream: BinaryIO) -> Iterator[bytes | None]:
    """Each line; None for one that is too long."""
    at_start = True
    while line := stream.readline(MAX_LINE):
        whole = line.endswith(b"\n") or len(line) < MAX_LINE
        if at_start and whole:
            yield line
        elif whole:
            yield None
        at_start = whole
    if not at_start:
        yield None


def _text(line: bytes) -> str:
    return line.removeprefix(BOM).decode("utf-8", "replace").strip()


def in_words(left_out: Mapping[str, int]) -> str:
    """`6 × an fp8 or int8 product with scales, 2 × ...`: most first."""
    ranked = sorted(left_out.items(), key=lambda item: -item[1])
    return ", ".join(f"{count} × {reason}" for reason, count in ranked)
