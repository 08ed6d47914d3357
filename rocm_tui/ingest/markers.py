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


Marker = tuple[bytes, int]
"""What is looked for, and the place in it of a byte that ordinary text seldom has."""


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
    common: set[bytes] = set()
    for at in range(start, stop, _PIECE):
        piece = min(_PIECE, stop - at)
        size = os.preadv(fd, [view[: piece + overlap]], at)
        if not size:
            break
        here: list[int] = []
        for marker, rare in markers:
            # One that begins in the overlap belongs to the next piece.
            end = min(size, piece + len(marker) - 1)
            places = None if marker in common else _find_rare(buffer, end, marker, rare)
            if places is None:
                common.add(marker)
                places = find_all(buffer, marker, end)
            here += places
        found.extend(at + place for place in sorted(here))
    return found


def _find_rare(buffer: bytearray, size: int, marker: bytes, rare: int) -> list[int] | None:
    """By one letter of the marker, several times as fast; None if that is not rare here."""
    letter = marker[rare]
    found: list[int] = []
    at = buffer.find(letter, rare, size)
    for _ in range(_RARE):
        if at < 0:
            return found
        if buffer.startswith(marker, at - rare, size):
            found.append(at - rare)
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
