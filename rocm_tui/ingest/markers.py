"""Where a byte string occurs in a file, nearly as fast as the file can be read.

Reading and searching both happen outside the interpreter lock, so two threads share the work:
`bytes.find` holds the lock and is half as fast as the C library's `memmem`.
"""

from __future__ import annotations

import ctypes
import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from typing import Any

_PIECE = 256 << 10
"""Bytes searched at a time: what a core's own cache holds."""
_STRETCH = 4 << 20
"""Bytes a thread takes at a time."""
_THREADS = 2
_RARE = 200
"""Occurrences in a piece up to which a byte is rare."""


def marker_offsets(fd: int, size: int, marker: bytes, rare: int) -> Iterator[int]:
    """Where `marker` occurs in the first `size` bytes, ascending.

    `rare` is the place in `marker` of a byte that ordinary text seldom has.
    Raises OSError if the file cannot be read; a file that shrinks meanwhile just ends.
    """
    stretches = iter(range(0, size, _STRETCH))
    waiting: deque[Future[list[int]]] = deque()
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="rocm-tui-scan") as pool:
        try:
            while True:
                while len(waiting) < 2 * _THREADS and (at := next(stretches, None)) is not None:
                    end = min(at + _STRETCH, size)
                    waiting.append(pool.submit(_search, fd, at, end, marker, rare))
                if not waiting:
                    return
                yield from waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _search(fd: int, start: int, stop: int, marker: bytes, rare: int) -> list[int]:
    overlap = len(marker) - 1
    buffer = bytearray(_PIECE + overlap)
    view = memoryview(buffer)
    found: list[int] = []
    is_rare = True
    for at in range(start, stop, _PIECE):
        # A marker that begins in the overlap belongs to the next piece.
        size = os.preadv(fd, [view[: min(_PIECE, stop - at) + overlap]], at)
        if not size:
            break
        places = _find_rare(buffer, size, marker, rare) if is_rare else None
        if places is None:
            is_rare = False
            places = _find_all(buffer, size, marker)
        found.extend(at + place for place in places)
    return found


def _find_rare(buffer: bytearray, size: int, marker: bytes, rare: int) -> list[int] | None:
    """By one byte of the marker, several times as fast; None if that byte is not rare here."""
    functions = _functions()
    if functions is None:
        return None
    memchr = functions[1]
    base = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
    stop = base + size
    address = memchr(base, marker[rare], size)
    found: list[int] = []
    for _ in range(_RARE):
        if not address:
            return found
        place = address - base - rare
        if place >= 0 and buffer.startswith(marker, place, size):
            found.append(place)
        address = memchr(address + 1, marker[rare], stop - address - 1)
    return None


def _find_all(buffer: bytearray, size: int, marker: bytes) -> list[int]:
    functions = _functions()
    found: list[int] = []
    if functions is None:
        place = buffer.find(marker, 0, size)
        while place >= 0:
            found.append(place)
            place = buffer.find(marker, place + 1, size)
        return found
    memmem = functions[0]
    base = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
    address = memmem(base, size, marker, len(marker))
    while address:
        found.append(address - base)
        address = memmem(address + 1, size - (address + 1 - base), marker, len(marker))
    return found


@lru_cache(maxsize=1)
def _functions() -> tuple[Any, Any] | None:
    """The C library's memmem and memchr, or None where it has not both."""
    try:
        library = ctypes.CDLL(None)
        memmem, memchr = library.memmem, library.memchr
    except (OSError, AttributeError, TypeError):
        return None
    memmem.restype = memchr.restype = ctypes.c_void_p
    memmem.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
    memchr.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
    return memmem, memchr
