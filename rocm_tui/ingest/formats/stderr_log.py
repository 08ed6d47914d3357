"""The log of a program: AUTOTUNE tables, and Triton's own tunings, among anything else.

`StderrLog` reads it as it arrives. `scan` reads a big one that lies there already: the markers are
searched for in the raw bytes, and only the lines around them are parsed. Both skip by the same
rule, so they find the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from backend.records import Problem
from rocm_tui.ingest.collector import no_collector
from rocm_tui.ingest.formats.autotune.lines import AUTOTUNE_MARK, MARKERS
from rocm_tui.ingest.formats.autotune.parser import LogParser
from rocm_tui.ingest.formats.autotune.search import (
    LOOK_BACK,
    MAX_TABLE,
    FileLines,
    count_lines,
    is_forced,
    line_end,
    marker_offsets,
    piece_start,
)
from rocm_tui.ingest.formats.reader import LOGS, Format
from rocm_tui.ingest.records import Record

BIG = 8 << 20
"""Bytes from which on a scan is faster than the streaming reader."""


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

    waits = False

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
        before = self._lines_before
        return [_with_line(record, lambda place: place + before) for record in records]

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
        places = [place for marker, _ in MARKERS if (place := data.find(marker, at)) >= 0]
        start = piece_start(data, at, min(places, default=len(data)))
        self._line += data.count(b"\n", at, start)
        skipped = self._skipped + data[max(at, start - LOOK_BACK) : start]
        self._skipped = skipped[-LOOK_BACK:]
        return start


def _line_of(before: bytes, line: int, start: int) -> int:
    """The number of the line that begins at `start`, if `line` begins at the end."""
    return line - before.count(b"\n", start)


@no_collector()
def scan(fd: int, source: str, size: int) -> tuple[list[Record], StderrLog]:
    """Read the first `size` bytes of the log `fd`; and the reader that goes on from there.

    Raises OSError if it cannot be read. Needs a few MiB of memory, whatever the size.
    """
    lines = FileLines(fd, size, MARKERS)
    parser = LogParser(source)
    at = _follow(parser, lines, 0)
    for marker in marker_offsets(fd, size, MARKERS):
        if marker < at:
            continue
        start = lines.start_of(marker, at)
        if not lines.holds(start, marker):
            continue  # cut in two with its line, which has no end within reason
        parser.busy(start)
        skipped = lines.text(max(at, start - LOOK_BACK), start)
        after = _take(parser, lines, start, skipped)
        if after is None:
            break  # not ended yet: the reader that goes on takes it
        at = _follow(parser, lines, after)
    end = lines.last_line()
    records = parser.take()
    places = [r.line for r in records if isinstance(r, Problem) and r.line is not None]
    numbers = _line_numbers(fd, places)
    records = [_with_line(record, numbers.__getitem__) for record in records]
    before = partial(_count_before, source, end)
    if parser.places:  # open tables: their problems count from the line at `end`, as later ones do
        lines_before = before()
        numbers = _line_numbers(fd, parser.places)
        parser.replace_places({k: v - lines_before for k, v in numbers.items()})
        before = partial(int, lines_before)
    rest = StderrLog.resume(parser, end, before, lines.text(max(at, end - LOOK_BACK), end))
    records += rest.feed(lines.text(end, size))
    return records, rest


def _follow(parser: LogParser, lines: FileLines, at: int) -> int:
    """Parse on while the parser wants it; return where it stopped."""
    while parser.busy(at):
        after = _take(parser, lines, at)
        if after is None:
            return at
        at = after
    return at


def _take(parser: LogParser, lines: FileLines, at: int, before: bytes = b"") -> int | None:
    """Parse the line or the table at `at`; return what follows it, None if it has no end yet."""
    line, after, cut = lines.line(at)
    if after is None:
        return None
    if before:
        parser.look_back(before, partial(int.__add__, at - len(before)))
    if AUTOTUNE_MARK in line:
        window, low = lines.window(at, MAX_TABLE)
        end = parser.table(window, low, at, at)
        if end:
            return at + end - low
    parser.line(line, at, at, cut)
    return after


def _line_numbers(fd: int, offsets: list[int]) -> dict[int, int]:
    numbers: dict[int, int] = {}
    at, number = 0, 1
    for offset in sorted(set(offsets)):
        number += count_lines(fd, at, offset)
        numbers[offset] = number
        at = offset
    return numbers


def _with_line(record: Record, number_of: Callable[[int], int]) -> Record:
    """A problem's place becomes the number of its line."""
    if isinstance(record, Problem) and record.line is not None:
        return replace(record, line=number_of(record.line))
    return record


def _count_before(path: str, stop: int) -> int:
    """The lines of a file before an offset; what is left of them if it was cut meanwhile."""
    try:
        with Path(path).open("rb") as stream:
            return count_lines(stream.fileno(), 0, stop)
    except OSError:
        return 0


FORMAT = Format("stderr log", suffixes=LOGS, stream=StderrLog, scan=scan, scan_from=BIG)
