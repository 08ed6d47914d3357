"""Where lines end, when some have no end within reason.

A progress bar is one line of hours, a notebook can be one line of megabytes. Nobody holds such a
line: it is read as pieces of at most `MAX_LINE` bytes, as if it had ends there. Where the pieces
end depends on the line alone, so whoever reads it finds the same.
"""

from __future__ import annotations

MAX_LINE = 256 << 10
"""Bytes. A longer line is read in pieces."""


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
