"""Where a byte string occurs in a file, nearly as fast as the file can be read.

The file is read, not mapped: a log that is cut while it is searched would end the program. Reading
happens outside the interpreter lock, so the threads share the work with whoever parses.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

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
    found: list[int] = []
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
        found.extend(at + place for place in sorted(places) if place < piece)
    return found


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
    found: dict[int, list[tuple[bytes, int]]] = {}
    ways: list[_Way] = []
    for marker, places in markers:
        rare = next((place for place in places if marker[place] not in common), None)
        if rare is None:
            ways.append(_Way(None, ((marker, 0),)))
        else:
            found.setdefault(marker[rare], []).append((marker, rare))
    for letter, shared in found.items():
        nexts = bytes(marker[place + 1] for marker, place in shared)
        ways.append(_Way(letter, tuple(shared), nexts))
    return ways


def _find(buffer: bytearray, size: int, ways: Sequence[_Way]) -> list[int] | int:
    """Where they are; or the letter that turned out not to be rare."""
    found: list[int] = []
    for way in ways:
        if way.letter is None:
            found += find_all(buffer, way.markers[0][0], size)
            continue
        there = _find_rare(buffer, size, way.letter, way)
        if there is None:
            return way.letter
        found += there
    return found


def _find_rare(buffer: bytearray, size: int, letter: int, way: _Way) -> list[int] | None:
    """By a letter; None if that is not rare here."""
    found: list[int] = []
    at = buffer.find(letter, 0, size - 1)
    for _ in range(_RARE):
        if at < 0:
            return found
        if buffer[at + 1] in way.nexts:
            for marker, place in way.markers:
                if at >= place and buffer.startswith(marker, at - place, size):
                    found.append(at - place)
        at = buffer.find(letter, at + 1, size - 1)
    return None


def find_all(data: bytes | bytearray, part: bytes, stop: int) -> list[int]:
    """Where `part` occurs in the first `stop` bytes, last one first.

    CPython searches backwards for several bytes several times as fast as forwards.
    """
    found: list[int] = []
    at = data.rfind(part, 0, stop)
    while at >= 0:
        found.append(at)
        at = data.rfind(part, 0, at + len(part) - 1)
    return found
