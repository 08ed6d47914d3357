"""The log of a program, as it arrives: AUTOTUNE tables among anything else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from backend.records import Problem
from rocm_tui.ingest.log_parser import AUTOTUNE, LOOK_BACK, LogParser
from rocm_tui.ingest.records import Record

MAX_LINE = 32 << 20
"""Bytes. Of a longer line only the beginning and the end are looked at."""


class StderrLog:
    """A streaming reader. Pieces may be cut anywhere; the result does not depend on where."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._parser = LogParser(source)
        self._offset = 0
        self._line = 1
        self._carry = bytearray()
        self._skipped = b""
        self._count_lines: Callable[[], int] | None = None
        self._lines_before = 0

    @classmethod
    def resume(
        cls, parser: LogParser, offset: int, count_lines: Callable[[], int], skipped: bytes
    ) -> StderrLog:
        """Go on where `parser` has read up to the line at `offset`.

        `count_lines` counts the lines before that one, and is asked when a problem needs it;
        `skipped` are the last bytes before it that the parser was not given.
        """
        self = cls(parser.source)
        self._parser, self._offset, self._skipped = parser, offset, skipped
        self._count_lines = count_lines
        return self

    def feed(self, data: bytes) -> list[Record]:
        """Take the next bytes of the log."""
        last = data.rfind(b"\n")
        if last < 0:
            self._carry += data
            if len(self._carry) > MAX_LINE:
                del self._carry[MAX_LINE // 4 : -MAX_LINE // 4]
            return []
        complete = bytes(self._carry) + data[: last + 1]
        self._carry = bytearray(data[last + 1 :])
        self._lines(complete)
        return self._take()

    def close(self) -> list[Record]:
        """The log has ended, perhaps in the middle of a line or of a table."""
        if self._carry:
            rest = bytes(self._carry)
            self._carry = bytearray()
            self._lines(rest + b"\n")
        self._parser.finish()
        return self._take()

    def settle(self) -> list[Record]:
        """Nothing came for a while: tables that are open count as cut off until more comes."""
        return self._parser.cut()

    def _take(self) -> list[Record]:
        records = self._parser.take()
        if not any(isinstance(record, Problem) for record in records):
            return records
        if self._count_lines is not None:
            self._lines_before = self._count_lines()
            self._count_lines = None
        return [
            replace(r, line=r.line + self._lines_before)
            if isinstance(r, Problem) and r.line is not None
            else r
            for r in records
        ]

    def _lines(self, data: bytes) -> None:
        """Take whole lines; skip to the next marker where none is expected."""
        at, base = 0, self._offset
        while at < len(data):
            if not self._parser.busy(base + at):
                start = _next_marked_line(data, at)
                self._line += data.count(b"\n", at, start)
                skipped = self._skipped + data[max(at, start - LOOK_BACK) : start]
                self._skipped = skipped[-LOOK_BACK:]
                at = start
                if at >= len(data):
                    break
                before = self._skipped
                self._parser.look_back(before, partial(_line_of, before, self._line))
            self._skipped = b""
            table_end = self._parser.table(data, at, base + at, self._line)
            if table_end:
                self._line += data.count(b"\n", at, table_end)
                at = table_end
                continue
            end = data.find(b"\n", at)
            self._parser.line(data[at:end], base + at, self._line)
            self._line += 1
            at = end + 1
        self._offset = base + len(data)


def _next_marked_line(data: bytes, at: int) -> int:
    """Where the next line with a marker begins, `at` or later; the end if there is none."""
    found = data.find(AUTOTUNE, at)
    return len(data) if found < 0 else data.rfind(b"\n", at, found) + 1 or at


def _line_of(before: bytes, line: int, start: int) -> int:
    """The number of the line that begins at `start`, if `line` begins at the end."""
    return line - before.count(b"\n", start)
