"""The log of a program: AUTOTUNE tables, and Triton's own tunings, among anything else.

Most lines of a log say nothing of a tuning. Where no table is open the reader searches the raw
bytes for the next marker, and parses the lines around it alone.

A progress bar is one line of hours, a notebook can be one line of megabytes. The reader never holds
such a line: it takes it in pieces of at most `MAX_LINE` bytes, as if it had ends there. Where the
pieces end depends on the line alone, however the bytes arrive.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from functools import partial
from pathlib import Path

from backend.model.session import Fault
from rocm_tui.ingest.formats.autotune_lines import MARKERS
from rocm_tui.ingest.formats.autotune_tables import LogParser
from rocm_tui.ingest.formats.reader import LOGS, Format
from rocm_tui.ingest.records import Record

MAX_LINE = 256 << 10
"""Bytes. A longer line is read in pieces."""
LOOK_BACK = 16 << 10
"""Bytes before a header in which its statistics and failed choices may be."""
_READ = 120 << 10
"""Bytes that are read at once to count lines."""
_RARE = 200
"""Occurrences in one read up to which a letter is rare."""


class StderrLog:
    """A streaming reader. Pieces may be cut anywhere; the result does not depend on where.

    The place of a line, which problems carry, is its number; or its offset, while there is a file
    in which `numbers` can look for the number when it is needed.
    """

    def __init__(self, source: str, numbers: LineNumbers | None = None) -> None:
        self._parser = LogParser(source)
        self._numbers = numbers
        self._offset = 0
        self._line = 1
        self._carry = b""
        self._skipped = b""

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

    @property
    def waits(self) -> bool:
        """Whether a kernel is being tuned: the next configuration may take minutes."""
        return bool(self._parser.running)

    def settle(self) -> list[Record]:
        """Nothing came for a while: tables that are open count as cut off until more comes, and
        kernels whose tunings have no end, after a long silence."""
        return self._numbered(self._parser.cut())

    def _take(self) -> list[Record]:
        return self._numbered(self._parser.take())

    def _numbered(self, records: list[Record]) -> list[Record]:
        return records if self._numbers is None else self._numbers.put_in(records)

    def _lines(self, data: bytes) -> int:
        """Take lines, and pieces of over-long ones, up to the last that ends; return how far that
        is. Skip to the next marker where nothing else is expected."""
        at, base = 0, self._offset
        while True:
            if not self._parser.busy(base + at):
                at = self._skip(data, at)
            end = _line_end(data, at)
            if end < 0:
                break
            if self._skipped:
                before, self._skipped = self._skipped, b""
                self._parser.look_back(before, partial(self._place_in, before, base + at))
            place = self._line if self._numbers is None else base + at
            ended = data[end - 1] == ord("\n")
            line = data[at : end - ended]
            self._parser.line(line, base + at, place, _is_forced(data, end))
            self._line += ended
            at = end
        self._offset = base + at
        return at

    def _skip(self, data: bytes, at: int) -> int:
        """Where the next line with a marker begins; without one, the last that has no end yet."""
        after = at
        while True:
            place, size = len(data), 0
            for marker, rare in MARKERS:
                nearer = _find(data, marker, rare, after, place + len(marker) - 1)
                if nearer >= 0:
                    place, size = nearer, len(marker)
            start = _piece_start(data, at, place)
            if not 0 <= _line_end(data, start) < place + size:
                break
            after = place + 1  # cut in two with its line, which has no end within reason
        if self._numbers is None:
            self._line += data.count(b"\n", at, start)
        skipped = self._skipped + data[max(at, start - LOOK_BACK) : start]
        self._skipped = skipped[-LOOK_BACK:]
        return start

    def _place_in(self, before: bytes, end: int, start: int) -> int:
        """The place of the line that begins at an index of `before`, which ends at `end`."""
        if self._numbers is None:
            return self._line - before.count(b"\n", start)
        return end - len(before) + start


def of_file(source: str) -> StderrLog:
    """Return the reader of a file, which counts lines only where a problem needs their number."""
    return StderrLog(source, LineNumbers(source))


class LineNumbers:
    """Numbers of the lines of a file that begin at given offsets."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._known = {0: 1}

    def put_in(self, records: list[Record]) -> list[Record]:
        """Return the records with the numbers of lines in place of offsets."""
        offsets = sorted(r.line for r in records if isinstance(r, Fault) and r.line is not None)
        if offsets:
            with contextlib.suppress(OSError), Path(self._path).open("rb") as file:
                for offset in offsets:
                    near = max(counted for counted in self._known if counted <= offset)
                    lines = _count_lines(file.fileno(), near, offset)
                    self._known[offset] = self._known[near] + lines
        numbers = self._known.get  # None if the file to count in is gone
        return [
            replace(r, line=numbers(r.line)) if isinstance(r, Fault) and r.line is not None else r
            for r in records
        ]


# Lines, and pieces of over-long ones


def _line_end(data: bytes, at: int) -> int:
    """Where the line that begins at `data[at]`, or its next piece, ends; -1 if more must be known.

    That is behind its newline. An over-long line is best cut where its writer began anew: at a
    carriage return, or at a newline written as backslash and n.
    """
    newline = data.find(b"\n", at, at + MAX_LINE + 1)
    if newline >= 0:
        return newline + 1
    limit = at + MAX_LINE
    if len(data) <= limit:
        return -1
    back, escaped = data.rfind(b"\r", at, limit), data.rfind(b"\\n", at, limit)
    return max(back + 1, escaped + 2) if max(back, escaped) >= 0 else limit


def _piece_start(data: bytes, at: int, place: int) -> int:
    """Where the line, or the piece, that holds `data[place]` begins, if one begins at `at`."""
    start = data.rfind(b"\n", at, place) + 1 or at
    while 0 <= (end := _line_end(data, start)) <= place:
        start = end
    return start


def _is_forced(data: bytes, end: int) -> bool:
    """Whether a line was cut before `data[end]` where nothing says that something new begins."""
    return data[end - 1] not in b"\r\n" and data[end - 2 : end] != b"\\n"


def _find(data: bytes, marker: bytes, rare: int, start: int, end: int) -> int:
    """Return `data.find(marker, start, end)`, several times as fast.

    CPython finds a single byte faster than several, and several faster backwards. `rare` is the
    place in the marker of a letter that few logs are full of.
    """
    at = data.find(marker[rare], start + rare, end)
    for _ in range(_RARE):
        if at < 0:
            return -1
        if data.startswith(marker, at - rare, end):
            return at - rare
        at = data.find(marker[rare], at + 1, end)
    return data.find(marker, start, end) if data.rfind(marker, start, end) >= 0 else -1


def _count_lines(fd: int, start: int, stop: int) -> int:
    """How many lines end between two offsets."""
    buffer = bytearray(_READ)
    view = memoryview(buffer)
    number = 0
    while start < stop:
        size = os.preadv(fd, [view[: min(_READ, stop - start)]], start)
        if not size:
            break
        number += buffer.count(b"\n", 0, size)
        start += size
    return number


FORMAT = Format("stderr log", suffixes=LOGS, stream=StderrLog, of_file=of_file)
