"""The pieces of a line's bytes in which something of a tuning can stand.

A progress bar puts several texts on one line, with carriage returns between. A log inside of JSON
(a notebook, what Docker keeps of a container) has its line ends as backslash and n.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from rocm_tui.ingest.triton_lines import LINES

AUTOTUNE = b"AUTOTUNE "
MARKERS = ((AUTOTUNE, (2, 1)), (LINES[0].encode(), (0, 18)))
"""What a line holds that matters wherever it stands; and the places in it of letters that few logs
are full of: T, else U and f."""
BEFORE = (b'"num_choices', b"out of resource")
"""What may stand before a table and belongs to it."""
_LONG = 64 << 10
_BEGIN, _KEY, _SECONDS, _BEST = (line.encode() for line in LINES)
_ESCAPE = re.compile(rb"""\\(["'\\/bfrt]|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2})""")
_PLAIN = {b"b": b"", b"f": b"", b"r": b"", b"t": b" "}


def may_matter(line: bytes) -> bool:
    """Whether `parts` could find anything; written out because it is asked of every line."""
    return (
        b" ms " in line
        or AUTOTUNE in line
        or b'"num_choices' in line
        or b"strides: " in line
        or b"dtypes: " in line
        or b"..." in line
        or b"\xe2\x80\xa6" in line
        or b"out of resource" in line
        or _BEGIN in line
        or _KEY in line
        or _SECONDS in line
        or _BEST in line
    )


def segments(line: bytes) -> Iterable[bytes]:
    """The texts of a line, one after another; the first one always, others if they may matter."""
    escaped = b"\\n" in line
    if not escaped and b"\r" not in line:
        return (_window(line),)
    return _split(line, escaped)


def _split(line: bytes, escaped: bool) -> Iterator[bytes]:
    if escaped:
        line = line.replace(b"\\n", b"\r").replace(b"\\r", b"\r")
    first = True
    for text in line.split(b"\r"):
        if first or (text and may_matter(text)):
            piece = _window(text)
            yield _ESCAPE.sub(_unescaped, piece) if escaped and b"\\" in piece else piece
        first = False


def _unescaped(match: re.Match[bytes]) -> bytes:
    what = match[1]
    if what[0] in b"ux":
        return chr(int(what[1:], 16)).encode("utf-8", "replace")
    return _PLAIN.get(what, what)


def _window(text: bytes) -> bytes:
    """What matters of a text; all of it unless it is very long."""
    if len(text) <= _LONG:
        return text
    at = max(0, text.find(AUTOTUNE) - 4096)
    return text[at : at + _LONG]
