"""The log of a program: AUTOTUNE tables, and Triton's own tunings, among anything else.

`StderrLog` reads it as it arrives. `scan` reads a big one that lies there already: the markers are
searched for in the raw bytes, and only the lines around them are parsed. Both skip by the same
rule, so they find the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from backend.model.session import Fault
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
    """A streaming reader. Pieces may be cut anywhere; the result does not depend on where.

    The place of a line, which problems carry, is its number; or its offset, while there is a file
    in which `numbers` can look for the number when it is asked for.
    """

    def __init__(self, source: str) -> None:
        self._parser = LogParser(source)
        self._numbers: LineNumbers | None = None
        self._offset = 0
        self._line = 1
        self._carry = b""
        self._skipped = b""

    @classmethod
    def resume(
        cls, parser: LogParser, numbers: LineNumbers, offset: int, skipped: bytes
    ) -> StderrLog:
        """Go on where `parser` has read up to the line at `offset`; `skipped` are the last bytes
        before it that the parser was not given."""
        self = cls(parser.source)
        self._parser, self._numbers = parser, numbers
        self._offset, self._skipped = offset, skipped
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
        return records if self._numbers is None else self._numbers.put_in(records)

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
                self._parser.look_back(before, partial(self._place_in, before, base + at))
            place = self._line if self._numbers is None else base + at
            table_end = self._parser.table(data, at, base + at, place)
            if table_end:
                self._line += data.count(b"\n", at, table_end)
                at = table_end
                continue
            ended = data[end - 1] == ord("\n")
            cut = is_forced(data, end)
            self._parser.line(data[at : end - ended], base + at, place, cut)
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

    def _place_in(self, before: bytes, end: int, start: int) -> int:
        """The place of the line that begins at an index of `before`, which ends at `end`."""
        if self._numbers is None:
            return self._line - before.count(b"\n", start)
        return end - len(before) + start


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
    numbers = LineNumbers(source)
    records = numbers.put_in(parser.take(), fd)
    rest = StderrLog.resume(parser, numbers, end, lines.text(max(at, end - LOOK_BACK), end))
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


class LineNumbers:
    """Numbers of the lines of a file that begin at given offsets."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._last = (0, 1)

    def put_in(self, records: list[Record], fd: int | None = None) -> list[Record]:
        """The same, with the numbers of lines in place of offsets; `fd` is the file, if open."""
        offsets = {record.line for record in records if isinstance(record, Fault)} - {None}
        if not offsets:
            return records
        if fd is not None:
            return _with_lines(records, self._count(fd, offsets))
        try:
            with Path(self._path).open("rb") as file:
                return _with_lines(records, self._count(file.fileno(), offsets))
        except OSError:  # it was there; now nobody can tell
            return _with_lines(records, {})

    def _count(self, fd: int, offsets: Iterable[int | None]) -> dict[int | None, int]:
        places = sorted(offset for offset in offsets if offset is not None)
        at, number = self._last if self._last[0] <= places[0] else (0, 1)
        numbers: dict[int | None, int] = {}
        for offset in places:
            number += count_lines(fd, at, offset)
            numbers[offset] = number
            at = offset
        self._last = at, number
        return numbers


def _with_lines(records: list[Record], numbers: Mapping[int | None, int]) -> list[Record]:
    return [
        replace(record, line=numbers.get(record.line)) if isinstance(record, Fault) else record
        for record in records
    ]


FORMAT = Format("stderr log", suffixes=LOGS, stream=StderrLog, scan=scan, scan_from=BIG)
