"""Big files without reading them line by line: where lines end, and where a byte string occurs.

A progress bar is one line of hours, a notebook can be one line of megabytes. Nobody holds such a
line: it is read as pieces of at most `MAX_LINE` bytes, as if it had ends there. Where the pieces
end depends on the line alone, so whoever reads it finds the same.

A file is read, not mapped: a log that is cut while it is searched would end the program. Reading
happens outside the interpreter lock, so the threads share the work with whoever parses.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

MAX_LINE = 256 << 10
"""Bytes. A longer line is read in pieces."""
MAX_TABLE = 12 << 10
"""Bytes of the biggest table that is taken in one go."""
LOOK_BACK = 16 << 10
"""Bytes before a header in which its statistics, and choices that failed, may stand."""
_READ = 48 << 10
"""Bytes read at a time where lines are read one after another."""
_COUNT = 1 << 20


def line_end(data: bytes, at: int) -> int:
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


def piece_start(data: bytes, at: int, place: int) -> int:
    """Where the line, or the piece, that holds `data[place]` begins, if one begins at `at`."""
    start = data.rfind(b"\n", at, place) + 1 or at
    while 0 <= (end := line_end(data, start)) <= place:
        start = end
    return start


def is_forced(data: bytes, end: int) -> bool:
    """Whether a line was cut before `data[end]` where nothing says that something new begins."""
    return data[end - 1] not in b"\r\n" and data[end - 2 : end] != b"\\n"


_PIECE = 256 << 10
"""Bytes searched at a time: what a core's own cache holds."""
_STRETCH = 16 << 20
"""Bytes a thread takes at a time."""
_THREADS = 2
_RARE = 200
"""Occurrences in a piece up to which a letter is rare."""


Marker = tuple[bytes, tuple[int, ...]]
"""What is looked for, and the places in it of bytes that ordinary text seldom has. A byte that
several markers share is looked for once."""


def marker_offsets(fd: int, size: int, markers: Sequence[Marker]) -> Iterator[int]:
    """Where the markers occur in the first `size` bytes, ascending.

    Raises OSError if the file cannot be read; a file that shrinks meanwhile just ends.
    """
    stretches = iter(range(0, size, _STRETCH))
    waiting: deque[Future[list[int]]] = deque()
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="rocm-tui-scan") as pool:
        try:
            while True:
                while len(waiting) < 2 * _THREADS and (at := next(stretches, None)) is not None:
                    end = min(at + _STRETCH, size)
                    waiting.append(pool.submit(_search, fd, at, end, markers))
                if not waiting:
                    return
                yield from waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _search(fd: int, start: int, stop: int, markers: Sequence[Marker]) -> list[int]:
    overlap = max(len(marker) for marker, _ in markers) - 1
    buffer = bytearray(_PIECE + overlap)
    view = memoryview(buffer)
    offsets: list[int] = []
    common: set[int] = set()
    ways = _ways(markers, common)
    for at in range(start, stop, _PIECE):
        piece = min(_PIECE, stop - at)
        size = os.preadv(fd, [view[: piece + overlap]], at)
        if not size:
            break
        places = _find(buffer, size, ways)
        while isinstance(places, int):  # a letter that is not rare in this log
            common.add(places)
            ways = _ways(markers, common)
            places = _find(buffer, size, ways)
        # One that begins in the overlap belongs to the next piece.
        offsets.extend(at + place for place in sorted(places) if place < piece)
    return offsets


@dataclass(frozen=True, slots=True)
class _Way:
    """How some markers are found: by a letter that each has at a place; else (None) as a whole.

    `nexts` are what follows the letter in them.
    """

    letter: int | None
    markers: tuple[tuple[bytes, int], ...]
    nexts: bytes = b""


def _ways(markers: Sequence[Marker], common: Set[int]) -> list[_Way]:
    """By one letter a marker is found several times as fast as by all, unless they are common."""
    by_letter: dict[int, list[tuple[bytes, int]]] = {}
    ways: list[_Way] = []
    for marker, places in markers:
        rare = next((place for place in places if marker[place] not in common), None)
        if rare is None:
            ways.append(_Way(None, ((marker, 0),)))
        else:
            by_letter.setdefault(marker[rare], []).append((marker, rare))
    for letter, shared in by_letter.items():
        nexts = bytes(marker[place + 1] for marker, place in shared)
        ways.append(_Way(letter, tuple(shared), nexts))
    return ways


def _find(buffer: bytearray, size: int, ways: Sequence[_Way]) -> list[int] | int:
    """Where they are; or the letter that turned out not to be rare."""
    places: list[int] = []
    for way in ways:
        if way.letter is None:
            places += find_all(buffer, way.markers[0][0], size)
            continue
        there = _find_rare(buffer, size, way.letter, way)
        if there is None:
            return way.letter
        places += there
    return places


def _find_rare(buffer: bytearray, size: int, letter: int, way: _Way) -> list[int] | None:
    """By a letter; None if that is not rare here."""
    places: list[int] = []
    at = buffer.find(letter, 0, size - 1)
    for _ in range(_RARE):
        if at < 0:
            return places
        if buffer[at + 1] in way.nexts:
            for marker, place in way.markers:
                if at >= place and buffer.startswith(marker, at - place, size):
                    places.append(at - place)
        at = buffer.find(letter, at + 1, size - 1)
    return None


def find_all(data: bytes | bytearray, part: bytes, stop: int) -> list[int]:
    """Where `part` occurs in the first `stop` bytes, last one first.

    CPython searches backwards for several bytes several times as fast as forwards.
    """
    places: list[int] = []
    at = data.rfind(part, 0, stop)
    while at >= 0:
        places.append(at)
        at = data.rfind(part, 0, at + len(part) - 1)
    return places


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


class FileLines:
    """Lines of a file at given offsets, through one small window."""

    def __init__(self, fd: int, size: int, markers: Sequence[Marker]) -> None:
        self._fd = fd
        self._size = size
        self._markers = [marker for marker, _ in markers]
        self._longest = max(map(len, self._markers))
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
        end = self._search_end(at)
        if end is not None:
            self._last = at, end
        return end

    def _search_end(self, at: int) -> int | None:
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
        if end is None or end - marker >= self._longest:
            return True
        return self.text(marker, end).startswith(tuple(self._markers))

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
