"""The common table, whole and undisturbed, taken in one go.

What the line-by-line parser finds in such a table this finds too, several times as fast; it leaves
everything unusual to that parser.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

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
    row_of,
)
from rocm_tui.ingest.formats.autotune.lines import Part, single_part
from rocm_tui.ingest.formats.autotune.search import MAX_TABLE

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
    header = _part(prefix + first)
    footer = _part(text[bottom:-1])
    if not isinstance(header, Header) or not isinstance(footer, Footer):
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
