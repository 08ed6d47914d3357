"""All tunings of a big log, without reading it line by line.

The markers are searched for in the raw bytes; only the lines around them are parsed. The result
is the streaming reader's, which skips by the same rule.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path

from backend.model.session import Fault
from rocm_tui.collector import no_collector
from rocm_tui.ingest.log_parser import LOOK_BACK, LogParser
from rocm_tui.ingest.log_text import AUTOTUNE, MARKERS
from rocm_tui.ingest.long_lines import MAX_LINE, is_forced, line_end
from rocm_tui.ingest.markers import marker_offsets
from rocm_tui.ingest.plain_table import MAX_TABLE
from rocm_tui.ingest.records import Record
from rocm_tui.ingest.stderr_log import StderrLog

BIG = 8 << 20
"""Bytes from which on a scan is faster than the streaming reader."""
_READ = 48 << 10
"""Bytes read at a time where lines are read one after another."""
_COUNT = 1 << 20
_LONGEST = max(len(marker) for marker, _ in MARKERS)


@no_collector()
def scan(fd: int, source: str, size: int) -> tuple[list[Record], StderrLog]:
    """Read the first `size` bytes of the log `fd`; and the reader that goes on from there.

    Raises OSError if it cannot be read. Needs a few MiB of memory, whatever the size.
    """
    lines = _Lines(fd, size)
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
    places = [r.line for r in records if isinstance(r, Fault) and r.line is not None]
    numbers = _line_numbers(fd, places)
    records = [_at_line(record, numbers) for record in records]
    before = partial(_count_before, source, end)
    if parser.places:  # open tables: their problems count from the line at `end`, as later ones do
        lines_before = before()
        numbers = _line_numbers(fd, parser.places)
        parser.replace_places({k: v - lines_before for k, v in numbers.items()})
        before = partial(int, lines_before)
    rest = StderrLog.resume(parser, end, before, lines.text(max(at, end - LOOK_BACK), end))
    records += rest.feed(lines.text(end, size))
    return records, rest


def _follow(parser: LogParser, lines: _Lines, at: int) -> int:
    """Parse on while the parser wants it; return where it stopped."""
    while parser.busy(at):
        after = _take(parser, lines, at)
        if after is None:
            return at
        at = after
    return at


def _take(parser: LogParser, lines: _Lines, at: int, before: bytes = b"") -> int | None:
    """Parse the line or the table at `at`; return what follows it, None if it has no end yet."""
    line, after, cut = lines.line(at)
    if after is None:
        return None
    if before:
        parser.look_back(before, partial(int.__add__, at - len(before)))
    if AUTOTUNE in line:
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


def _at_line(record: Record, numbers: dict[int, int]) -> Record:
    if isinstance(record, Fault) and record.line is not None:
        return replace(record, line=numbers[record.line])
    return record


def _count_before(path: str, stop: int) -> int:
    """The lines of a file before an offset; what is left of them if it was cut meanwhile."""
    try:
        with Path(path).open("rb") as stream:
            return count_lines(stream.fileno(), 0, stop)
    except OSError:
        return 0


def count_lines(fd: int, start: int, stop: int) -> int:
    """How many lines end between two offsets."""
    buffer = bytearray(_COUNT)
    view = memoryview(buffer)
    number = 0
    while start < stop:
        size = os.preadv(fd, [view[: min(_COUNT, stop - start)]], start)
        if not size:
            break
        number += buffer.count(b"\n", 0, size)
        start += size
    return number


class _Lines:
    """Lines of a file at given offsets, through one small window."""

    def __init__(self, fd: int, size: int) -> None:
        self._fd = fd
        self._size = size
        self._start = 0
        self._window = b""
        self._last = (-1, 0)

    def text(self, start: int, stop: int) -> bytes:
        """The bytes between two offsets."""
        low = start - self._start
        if low >= 0 and stop - self._start <= len(self._window):
            return self._window[low : stop - self._start]
        return _pread(self._fd, start, min(stop, self._size))

    def window(self, at: int, size: int) -> tuple[bytes, int]:
        """Bytes that hold `size` from `at` on, as far as the file goes; and where `at` is there."""
        stop = min(at + size, self._size)
        if not self._start <= at < stop <= self._start + len(self._window):
            self._load(at, max(size, _READ))
        return self._window, at - self._start

    def line(self, at: int) -> tuple[bytes, int | None, bool]:
        """The line that begins at `at`, or its next piece, without its end; where what follows
        begins; and whether it was cut where nothing new begins.

        None instead of that place if the line has no end yet.
        """
        end = self._end(at)
        if end is None:
            return b"", None, False
        low, high = at - self._start, end - self._start
        ended = self._window[high - 1] == ord("\n")
        return self._window[low : high - ended], end, is_forced(self._window, high)

    def _end(self, at: int) -> int | None:
        """Where the line or the piece that begins at `at` ends, which is in the window then."""
        if self._last[0] == at:
            return self._last[1]
        end = self._found_end(at)
        if end is not None:
            self._last = at, end
        return end

    def _found_end(self, at: int) -> int | None:
        for size in (_READ, MAX_LINE + 1):
            if not self._start <= at < self._start + len(self._window):
                self._load(at, size)
            end = line_end(self._window, at - self._start)
            if end >= 0:
                return self._start + end
            if self._start + len(self._window) >= self._size:
                return None
            self._load(at, size)
        end = line_end(self._window, at - self._start)
        return self._start + end if end >= 0 else None

    def start_of(self, at: int, floor: int) -> int:
        """Where the line that holds the offset `at` begins, or the piece; not before `floor`,
        where a line or a piece begins."""
        low = max(floor, at - LOOK_BACK)
        if not self._start <= low <= at < self._start + len(self._window):
            self._load(low, at - low + MAX_TABLE)
        newline = self._window.rfind(b"\n", low - self._start, at - self._start)
        if newline >= 0:
            start = self._start + newline + 1
        else:
            start = low if low == floor else self._far_start(low, floor)
        while (end := self._end(start)) is not None and end <= at:
            start = end
        return start

    def _far_start(self, at: int, floor: int) -> int:
        """The same for a line that is longer than most."""
        while at > floor:
            low = max(floor, at - MAX_LINE)
            newline = _pread(self._fd, low, at).rfind(b"\n")
            if newline >= 0:
                return low + newline + 1
            at = low
        return floor

    def holds(self, start: int, marker: int) -> bool:
        """Whether the marker at an offset stands in the line that begins at `start`."""
        end = self._end(start)
        if end is None or end - marker >= _LONGEST:
            return True
        text = self.text(marker, end)
        return any(text.startswith(mark) for mark, _ in MARKERS)

    def last_line(self) -> int:
        """Where the last line begins, which has no end yet; the size if there is none."""
        return self.start_of(self._size, 0) if self._size else 0

    def _load(self, at: int, size: int) -> None:
        self._start = at
        self._last = (-1, 0)
        self._window = _pread(self._fd, at, min(at + size, self._size))


def _pread(fd: int, start: int, stop: int) -> bytes:
    parts: list[bytes] = []
    while start < stop and (part := os.pread(fd, stop - start, start)):
        parts.append(part)
        start += len(part)
    return b"".join(parts)
