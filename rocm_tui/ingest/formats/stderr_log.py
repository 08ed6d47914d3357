"""The log of a program: AUTOTUNE tables, and Triton's own tunings, among anything else.

`StderrLog` reads it as it arrives. `scan` reads a big one that lies there already: the markers are
searched for in the raw bytes, and only the lines around them are parsed. Both skip by the same
rule, so they find the same.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path

from backend.model.session import Fault
from rocm_tui.ingest.collector import no_collector
from rocm_tui.ingest.formats.autotune.fast import (
    LOOK_BACK,
    count_lines,
    is_forced,
    line_end,
    line_start,
    marker_offsets,
    piece_start,
    read_between,
)
from rocm_tui.ingest.formats.autotune.lines import AUTOTUNE_MARK, MARKERS
from rocm_tui.ingest.formats.autotune.parser import LogParser
from rocm_tui.ingest.formats.reader import LOGS, Format, Give
from rocm_tui.ingest.records import Record

BIG = 8 << 20
"""Bytes from which on a scan is faster than the streaming reader."""
_READ = 8 << 10
"""Bytes that are read around a marker; then twice as many each time, while what follows is wanted
or has a marker, and at most:"""
_READ_MOST = 512 << 10
_MANY = 1000
"""Records that are offered before all is read."""


class StderrLog:
    """A streaming reader. Pieces may be cut anywhere; the result does not depend on where.

    The place of a line, which problems carry, is its number; or its offset, while there is a file
    in which `numbers` can look for the number when it is asked for.
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
            ended = data[end - 1] == ord("\n")
            line = data[at : end - ended]
            table_end = AUTOTUNE_MARK in line and self._parser.table(data, at, base + at, place)
            if table_end:
                self._line += data.count(b"\n", at, table_end)
                at = table_end
                continue
            self._parser.line(line, base + at, place, is_forced(data, end))
            self._line += ended
            at = end
        self._offset = base + at
        return at

    def _skip(self, data: bytes, at: int) -> int:
        """Where the next line with a marker begins; without one, the last that has no end yet."""
        after = at
        while True:
            place, size = len(data), 0
            for marker, _ in MARKERS:
                nearer = data.find(marker, after, place + len(marker) - 1)
                if nearer >= 0:
                    place, size = nearer, len(marker)
            start = piece_start(data, at, place)
            if not 0 <= line_end(data, start) < place + size:
                break
            after = place + 1  # cut in two with its line, which has no end within reason
        if self._numbers is None:
            self._line += data.count(b"\n", at, start)
        skipped = self._skipped + data[max(at, start - LOOK_BACK) : start]
        self._skipped = skipped[-LOOK_BACK:]
        return start

    # For a file of which not all is fed

    @property
    def busy(self) -> bool:
        """Whether it wants what follows, whatever that holds."""
        return self._parser.busy(self._offset)

    @property
    def offset(self) -> int:
        """Where the line begins that has no end yet."""
        return self._offset

    @property
    def fed(self) -> int:
        """Up to where the bytes were fed."""
        return self._offset + len(self._carry)

    def jump(self, offset: int, skipped: bytes) -> None:
        """Go on at a later line; `skipped` are the last bytes before it that were not fed."""
        self._skipped = (self._skipped + skipped)[-LOOK_BACK:]
        self._offset, self._carry = offset, b""

    def _place_in(self, before: bytes, end: int, start: int) -> int:
        """The place of the line that begins at an index of `before`, which ends at `end`."""
        if self._numbers is None:
            return self._line - before.count(b"\n", start)
        return end - len(before) + start


def _all(records: list[Record]) -> list[Record]:
    return records


@no_collector()
def scan(fd: int, source: str, size: int, give: Give = _all) -> tuple[list[Record], StderrLog]:
    """Read the first `size` bytes of the log `fd`; and the reader that goes on from there. What was
    found is offered to `give` meanwhile, which returns what it did not take.

    Raises OSError if it cannot be read. Needs a few MiB of memory, whatever the size.
    """
    log = StderrLog(source, LineNumbers(source))
    records: list[Record] = []
    step, before = _READ, -1
    for place in chain(marker_offsets(fd, size, MARKERS), (size,)):
        while log.fed <= place and log.fed < size:
            start = log.offset
            if before < start and not log.busy:  # what is there of its line has no marker
                start = line_start(fd, place, start)
            if start > log.offset:
                log.jump(start, read_between(fd, max(log.offset, start - LOOK_BACK), start))
                step = _READ
            data = read_between(fd, log.fed, min(log.fed + step, size))
            if not data:
                break
            records += log.feed(data)
            if len(records) >= _MANY:
                records = give(records)
            step = min(2 * step, _READ_MOST)
        before = place
    return records, log


class LineNumbers:
    """Numbers of the lines of a file that begin at given offsets."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._known = {0: 1}

    def put_in(self, records: list[Record]) -> list[Record]:
        """The same, with the numbers of lines in place of offsets."""
        offsets = sorted(r.line for r in records if isinstance(r, Fault) and r.line is not None)
        if offsets:
            with contextlib.suppress(OSError), Path(self._path).open("rb") as file:
                self._count(file.fileno(), offsets)
        return [replace(r, line=self._number(r)) if isinstance(r, Fault) else r for r in records]

    def _count(self, fd: int, offsets: list[int]) -> None:
        for offset in offsets:
            near = max(known for known in self._known if known <= offset)
            self._known[offset] = self._known[near] + count_lines(fd, near, offset)

    def _number(self, problem: Fault) -> int | None:
        """None if the file was there, and now nobody can tell."""
        return None if problem.line is None else self._known.get(problem.line)


FORMAT = Format("stderr log", suffixes=LOGS, stream=StderrLog, scan=scan, scan_from=BIG)
