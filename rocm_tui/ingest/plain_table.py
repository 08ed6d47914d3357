"""The common table, whole and undisturbed, taken in one go.

What the line-by-line parser finds in such a table this finds too, several times as fast; it leaves
everything unusual to that parser.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from rocm_tui.ingest.log_lines import Dtypes, Footer, Header, Part, Row, Strides, parts

MAX_TABLE = 24 << 10
_END = b"Process AUTOTUNE "
_WORD = b"AUTOTUNE "
# Each piece ends at a character that the piece itself cannot hold, so nothing is tried twice.
_TABLE = re.compile(
    r"(AUTOTUNE [^\n]*)\n"
    r"(?:(strides: \[[^\n]*)\n)?"
    r"(?:(dtypes: torch\.[^\n]*)\n)?"
    r"((?: {2}[A-Za-z_][\w.:<>-]* \d{1,9}\.\d{1,9} ms \d{1,9}\.\d{1,9}%(?: [^\n]*)?\n)+)"
    r"((?:Single|Sub)Process AUTOTUNE [^\n]*)\n"
)
_ROW = re.compile(r"  (\S+) (\S+) ms ([^%]+)%(?: ([^\n]*))?\n")


@dataclass(frozen=True, slots=True)
class PlainTable:
    """A table and where it ends in the data that it was found in."""

    prefix: str
    header: Header
    operands: tuple[Part, ...]
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
    if b"\n" in prefix or not raw.isascii() or raw.count(_WORD) != 2 or b"{" in raw:
        return None
    if prefix:
        if not _is_plain(prefix) or raw.count(b"\n" + prefix) != raw.count(b"\n") - 1:
            return None
        raw = raw.replace(b"\n" + prefix, b"\n")
    text = raw.decode("ascii")
    match = _TABLE.fullmatch(text)
    if not match or not text.replace("\n", "").isprintable():
        return None
    first, strides, dtypes, rows, last = match.groups()
    return _made(prefix.decode("ascii"), first, (strides, dtypes), rows, last, end)


def _is_plain(prefix: bytes) -> bool:
    return prefix.isascii() and prefix.decode("ascii").isprintable() and b'"' not in prefix


def _made(
    prefix: str,
    first: str,
    operands: tuple[str | None, str | None],
    rows: str,
    last: str,
    end: int,
) -> PlainTable | None:
    header = _only(prefix + first)
    footer = _only(last)
    if not isinstance(header, Header) or not isinstance(footer, Footer):
        return None
    known = tuple(part for part in map(_only, filter(None, operands)) if part)
    if not all(isinstance(part, Strides | Dtypes) for part in known):
        return None
    found = [
        Row(name, float(ms), float(percent), description.rstrip(" "))
        for name, ms, percent, description in _ROW.findall(rows)
    ]
    if footer.num_choices is not None and footer.num_choices < len(found):
        return None
    return PlainTable(prefix, header, known, found, footer, end)


@lru_cache(maxsize=256)
def _only(text: str) -> Part | None:
    """The one thing that a line says. The same operands and dtypes come again and again."""
    found = [part for _, part in parts(text)]
    return found[0] if len(found) == 1 else None
