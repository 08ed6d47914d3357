"""Much text quickly: big files searched without reading them line by line, and the common table,
whole and undisturbed, taken in one go.

A progress bar is one line of hours, a notebook can be one line of megabytes. Nobody holds such a
line: it is read as pieces of at most `MAX_LINE` bytes, as if it had ends there. Where the pieces
end depends on the line alone, so whoever reads it finds the same.

A file is read, not mapped: a log that is cut while it is searched would end the program. Reading
happens outside the interpreter lock, so the threads share the work with whoever parses.

What the line-by-line parser finds in a whole table this finds too, several times as fast; it leaves
everything unusual to that parser.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from rocm_tui.ingest.formats.autotune.grammar import (
    AUTOTUNE,
    DTYPES,
    PROCESSES,
    ROW,
    STRIDES,
    Dtypes,
    Footer,
    Header,
    Row,
    Strides,
    footer_at,
    plain_header,
    row_of,
)
from rocm_tui.ingest.formats.autotune.lines import Part, only_header, single_part

if TYPE_CHECKING:  # most logs are not that big
    from concurrent.futures import Future

MAX_LINE = 256 << 10
"""Bytes. A longer line is read in pieces."""
MAX_TABLE = 12 << 10
"""Bytes of the biggest table that is taken in one go."""
LOOK_BACK = 16 << 10
"""Bytes before a header in which its statistics, and choices that failed, may stand."""
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
    from concurrent.futures import ThreadPoolExecutor

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


def line_start(fd: int, at: int, floor: int) -> int:
    """Where the line that holds the offset `at` begins; `floor` if that is not behind it."""
    reach = 1 << 10
    while at > floor:
        low = max(floor, at - reach)
        newline = read_between(fd, low, at).rfind(b"\n")
        if newline >= 0:
            return low + newline + 1
        at, reach = low, MAX_LINE
    return floor


def read_between(fd: int, start: int, stop: int) -> bytes:
    """The bytes between two offsets, as far as the file goes."""
    parts: list[bytes] = []
    while start < stop and (part := os.pread(fd, stop - start, start)):
        parts.append(part)
        start += len(part)
    return b"".join(parts)


_WORD = AUTOTUNE.encode()
_END = b"Process " + _WORD
_PLAIN = bytes(range(0x20, 0x7F)) + b"\n"
# Each piece ends at a character that the piece itself cannot hold, so nothing is tried twice.
_TOP = re.compile(
    rf"({AUTOTUNE}[^\n]*)\n(?:({STRIDES}\[[^\n]*)\n)?(?:({DTYPES}[^\n]*)\n)?(?=  [A-Za-z_])"
)
_ROW = re.compile(rf"^  {ROW}\n", re.MULTILINE | re.ASCII)


@dataclass(frozen=True, slots=True)
class PlainTable:
    """A table and where it ends in the data that it was found in."""

    prefix: str
    header: Header
    operands: list[Strides | Dtypes]
    rows: list[Row]
    footer: Footer
    end: int


def plain_table(data: bytes, at: int) -> PlainTable | None:
    """The table whose header's line begins at `at`, if all of it is there and is plain.

    The same prefix, or none, must stand on each of its lines.
    """
    word = data.find(_WORD, at, at + 256)
    if word < 0:
        return None
    tail = data.find(_END, word, at + MAX_TABLE)
    end = data.find(b"\n", tail, at + MAX_TABLE) + 1 if tail >= 0 else 0
    if not end:
        return None
    prefix = data[at:word]
    raw = data[word:end]
    if b"\n" in prefix or raw.count(_WORD) != 2 or b"{" in raw or b"\\" in raw:
        return None
    if raw.translate(None, _PLAIN):
        return None
    if prefix:
        if not _is_plain(prefix) or raw.count(b"\n" + prefix) != raw.count(b"\n") - 1:
            return None
        raw = raw.replace(b"\n" + prefix, b"\n")
    return _made(prefix.decode("ascii"), raw.decode("ascii"), end)


def _is_plain(prefix: bytes) -> bool:
    return not prefix.translate(None, _PLAIN) and b'"' not in prefix


def _made(prefix: str, text: str, end: int) -> PlainTable | None:
    top = _TOP.match(text)
    bottom = text.rfind("\n", 0, -1) + 1
    if not top or not text.startswith(PROCESSES, bottom):
        return None
    first, strides, dtypes = top.groups()
    header = None if prefix else plain_header(first)
    header = header or only_header(prefix + first, len(prefix))
    footer, _ = footer_at(text, text.find(AUTOTUNE, bottom)) or (None, 0)
    if header is None or footer is None:
        return None
    operands: list[Strides | Dtypes] = []
    for line in filter(None, (strides, dtypes)):
        part = _part(line)
        if isinstance(part, (Strides, Dtypes)):
            operands.append(part)
        elif part is not None:
            return None
    groups = _ROW.findall(text, top.end(), bottom)
    rows = [row_of(name, ms, percent, description) for name, ms, percent, description in groups]
    if len(rows) != text.count("\n", top.end(), bottom):  # one of the lines is no row
        return None
    if footer.num_choices is not None and footer.num_choices < len(rows):
        return None
    return PlainTable(prefix, header, operands, rows, footer, end)


@lru_cache(maxsize=256)
def _part(text: str) -> Part | None:
    """What a line says. The same operands and dtypes come again and again."""
    _, part = single_part(text) or (0, None)
    return part
