"""The log of a program, as it arrives: AUTOTUNE tables among anything else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from backend.model.session import Fault
from rocm_tui.ingest.log_parser import LOOK_BACK, LogParser
from rocm_tui.ingest.log_text import MARKERS
from rocm_tui.ingest.long_lines import is_forced, line_end, piece_start
from rocm_tui.ingest.records import Record


class StderrLog:
    """A streaming reader. Pieces may be cut anywhere; the result does not depend on where."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._parser = LogParser(source)
        self._offset = 0
        self._line = 1
        self._carry = b""
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
        data = self._carry + data
        self._carry = data[self._lines(data) :]
        return self._take()

    def close(self) -> list[Record]:
        """The log has ended, perhaps in the middle of a line or of a table."""
        rest, self._carry = self._carry, b""
        if rest:
            self._lines(rest + b"\n")
        self._parser.finish()
        return self._take()

    def settle(self) -> list[Record]:
        """Nothing came for a while: tables that are open count as cut off until more comes."""
        return self._parser.cut()

    def _take(self) -> list[Record]:
        records = self._parser.take()
        if not any(isinstance(record, Fault) for record in records):
            return records
        if self._count_lines is not None:
            self._lines_before = self._count_lines()
            self._count_lines = None
        return [
            replace(r, line=r.line + self._lines_before)
            if isinstance(r, Fault) and r.line is not None
            else r
            for r in records
        ]

    def _lines(self, data: bytes) -> int:
        """Take lines, and pieces of over-long ones, up to the last that ends; return how far that
        is. Skip to the next marker where nothing else is expected."""
        at, base = 0, self._offset
        while True:
            if not self._parser.busy(base + at):
                at = self._skip(data, at)
            end = line_end(data, at)
            if end < 0:
                break
            if self._skipped:
                before, self._skipped = self._skipped, b""
                self._parser.look_back(before, partial(_line_of, before, self._line))
            table_end = self._parser.table(data, at, base + at, self._line)
            if table_end:
                self._line += data.count(b"\n", at, table_end)
                at = table_end
                continue
            ended = data[end - 1] == ord("\n")
            cut = is_forced(data, end)
            self._parser.line(data[at : end - ended], base + at, self._line, cut)
            self._line += ended
            at = end
        self._offset = base + at
        return at

    def _skip(self, data: bytes, at: int) -> int:
        """Where the next line with a marker begins; without one, the last that has no end yet."""
        found = [place for marker, _ in MARKERS if (place := data.find(marker, at)) >= 0]
        start = piece_start(data, at, min(found, default=len(data)))
        self._line += data.count(b"\n", at, start)
        skipped = self._skipped + data[max(at, start - LOOK_BACK) : start]
        self._skipped = skipped[-LOOK_BACK:]
        return start


def _line_of(before: bytes, line: int, start: int) -> int:
    """The number of the line that begins at `start`, if `line` begins at the end."""
    return line - before.count(b"\n", start)
