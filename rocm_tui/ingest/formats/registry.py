"""The table of formats, and which of them a file has. What is not listed here nobody reads.

A new format is one file in this folder and one line in `FORMATS`.
"""

from __future__ import annotations

import codecs
import re

from rocm_tui.ingest.formats import (
    cache_file,
    event_log,
    kernel_configs,
    mm_log,
    profiler_trace,
    stderr_log,
    torch_trace,
    tuned_table,
)
from rocm_tui.ingest.formats.reader import Format

FORMATS = (
    *tuned_table.FORMATS,
    *tuned_table.PACKED,
    event_log.FORMAT,
    cache_file.FORMAT,
    kernel_configs.TRITON_CONFIGS,
    kernel_configs.BEST_CONFIG,
    mm_log.FORMAT,
    torch_trace.FORMAT,
    profiler_trace.FORMAT,
    stderr_log.FORMAT,  # any other text: a program's log may hold something of ours later
)
"""The first whose beginning fits is it."""
_BINARY = Format("binary", refused="not a text file; nothing was read from it")
_BY_NAME = {format.name: format for format in (*FORMATS, tuned_table.KERNELS, _BINARY)}
_BY_SUFFIX = {
    suffix: frozenset(format.name for format in FORMATS if suffix in format.suffixes)
    for suffix in frozenset().union(*(format.suffixes for format in FORMATS))
}

ANY_TEXT = FORMATS[-1].name
EMPTY = "empty"
"""The format of a file whose content is still too short; `` is that of one not looked at."""
HEAD = 16 << 10
"""Bytes that are enough to recognise a format."""

_OPENING = re.compile(rb'[\[{][\s\[{]*(?:"[\w(]{0,20})?\Z')
_TEXT_CONTROLS = b"\t\n\r\f\b\x1b"
_CONTROLS = bytes(byte for byte in range(32) if byte not in _TEXT_CONTROLS)


def format_named(name: str) -> Format | None:
    """None for a file whose format is not known yet."""
    return _BY_NAME.get(name)


def known_format(path: str) -> str:
    """The name of the format that a file must have by its place; `` for most."""
    places = ((format.name, format.place) for format in FORMATS if format.place)
    return next((name for name, place in places if place.search(path)), "")


def suffix_formats(suffix: str) -> frozenset[str] | None:
    """The names of the formats to expect behind this suffix in a folder; None for no source."""
    return _BY_SUFFIX.get(suffix)


def sniff(head: bytes) -> str:
    """Return the name of the format of a file that begins with `head`; EMPTY if that is too
    short."""
    head = head[:HEAD].removeprefix(b"\xef\xbb\xbf")
    if not head.strip():
        return EMPTY
    if _is_binary(head):
        packed = (*tuned_table.PACKED, tuned_table.KERNELS)
        return next((f.name for f in packed if f.begins and f.begins.match(head)), _BINARY.name)
    start = head.lstrip()
    for format in FORMATS:
        if format.begins and format.begins.match(start):
            return format.name
    if _OPENING.match(start) or (b"\n" not in head and len(head) < HEAD):
        return EMPTY
    return ANY_TEXT


def _is_binary(head: bytes) -> bool:
    """Whether it has more control bytes than text has, or NULs and anything else that text lacks.

    A log has a NUL where a program wrote one, and a run of them where it was cut while it was
    written; all else is text.
    """
    odd = len(head) - len(head.translate(None, _CONTROLS))
    nuls = head.count(0)
    if nuls:
        return odd > nuls or not _is_utf_8(head)
    return odd * 20 > len(head) + 200


def _is_utf_8(head: bytes) -> bool:
    """Whether it is, but for a last character that may be cut."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True
