"""Where a byte string occurs in a file, nearly as fast as the file can be read.

The file is read, not mapped: a log that is cut while it is searched would end the program. Reading
happens outside the interpreter lock, so the threads share the work with whoever parses.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

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
    for at in range(start, stop, _PIECE):
        piece = min(_PIECE, stop - at)
        size = os.preadv(fd, [view[: piece + overlap]], at)
        if not size:
            break
        # One that begins in the overlap belongs to the next piece.
        places = (place for place in _find(buffer, size, markers, common) if place < piece)
        found.extend(at + place for place in sorted(places))
    return found


def _find(buffer: bytearray, size: int, markers: Sequence[Marker], common: set[int]) -> list[int]:
    """By one letter of a marker, several times as fast, unless each of them is `common` here."""
    found: list[int] = []
    rest = list(markers)
    while rest:
        marker, places = rest[-1]
        rare = next((place for place in places if marker[place] not in common), None)
        if rare is None:
            found += find_all(buffer, marker, size)
            rest.pop()
            continue
        letter = marker[rare]
        shared = [one for one in rest if any(one[0][place] == letter for place in one[1])]
        there = _find_rare(buffer, size, letter, shared)
        if there is None:
            common.add(letter)
            continue
        found += there
        rest = [one for one in rest if one not in shared]
    return found


def _find_rare(
    buffer: bytearray, size: int, letter: int, markers: Sequence[Marker]
) -> list[int] | None:
    """By a letter that each of these has at one of its places; None if that is not rare here."""
    wanted = [
        (marker, place) for marker, places in markers for place in places if marker[place] == letter
    ]
    found: list[int] = []
    at = buffer.find(letter, 0, size)
    for _ in range(_RARE):
        if at < 0:
            return found
        for marker, place in wanted:
            if at >= place and buffer.startswith(marker, at - place, size):
                found.append(at - place)
        at = buffer.find(letter, at + 1, size)
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
