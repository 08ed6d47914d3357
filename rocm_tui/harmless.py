"""Foreign text made harmless for a terminal: the one table of what no text may contain there.

An escape sequence that reaches a terminal can write the clipboard, clear the screen or change the
title; a direction mark lets a name read as another. `clean` is for input, `plain` and `visible` are
for output.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

C0 = range(0x20)
DEL_AND_C1 = range(0x7F, 0xA0)
SURROGATES = range(0xD800, 0xE000)
"""Halves of characters, which cannot be sent to a terminal."""
UNSEEN = (
    0xAD,
    0x061C,
    0x180E,
    *range(0x200B, 0x2010),
    *range(0x2028, 0x202F),
    *range(0x2060, 0x2070),
    0xFEFF,
    *range(0xFFF9, 0xFFFC),
    *range(0xE0000, 0xE0080),
)
"""What reorders text, breaks lines, or takes no room: marks, joiners, separators, tags."""

# Each alternative consumes what it matches without trying again: CSI; then OSC, DCS, PM, APC, SOS
# up to their end (or the end of the text); then two-byte escapes. The 8-bit forms are included.
_ESCAPE = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]?"
    "|(?:\x1b[\\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\\\|\x9c)?"
    "|\x1b[ -/]*[0-~]?"
)


@cache
def _pictures() -> dict[int, str]:
    """Visible replacements of invisible characters. Most runs meet none: it has 2,000 entries, and
    is created at the first."""
    return {
        **{code: chr(0x2400 + code) for code in C0},
        **dict.fromkeys((*DEL_AND_C1, *UNSEEN, *SURROGATES), "\ufffd"),
        0x7F: "\u2421",
    }


@cache
def _removed() -> dict[int, str | None]:
    return {**dict.fromkeys(_pictures()), 0x09: " "}


@cache
def _one_line() -> dict[int, str]:
    return {**_pictures(), **dict.fromkeys((0x09, 0x0A, 0x0B, 0x0C, 0x0D), " ")}


@cache
def _lines() -> dict[int, str]:
    return {code: text for code, text in _pictures().items() if code not in (0x09, 0x0A)}


@cache
def _cells() -> dict[int, str | None]:
    return {**_removed(), 0x09: None, **dict.fromkeys(SURROGATES, "\ufffd")}


def clean(text: str) -> str:
    """Return `text` without escape sequences and control characters; tabs become spaces. Linear in
    the length of `text`, and idempotent."""
    if text.isprintable():
        return text
    return _ESCAPE.sub("", text).translate(_removed())


_MOST = 2000


def plain(text: str, most: int = _MOST) -> str:
    """Return the first `most` characters of `text` as one line for a terminal.

    An escape is shown as the picture `␛`, so that the reader sees that something was there.
    """
    text = text[:most]
    return text if text.isprintable() else text.translate(_one_line())


def plain_all(texts: Iterable[str]) -> list[str]:
    """Return each text `plain`; they are checked together, since few contain anything that is
    not."""
    lines = list(texts)
    together = "".join(lines)
    if together.isprintable() and len(together) <= _MOST:
        return lines
    return [plain(text) for text in lines]


def visible(text: str) -> str:
    """Return the same for a text of several lines, of any length: line ends and tabs stay."""
    bare = text.replace("\n", "").replace("\t", "")
    return text if bare.isprintable() else text.translate(_lines())


def cells(text: str) -> str:
    """Return `text` as wide on the screen as Textual assumes: what it gives no cell is removed."""
    return text if text.isprintable() else text.translate(_cells())


def clean_bytes(data: bytes) -> str:
    """Return the bytes of a file as clean text; what is not UTF-8 becomes U+FFFD."""
    return clean(data.decode("utf-8", "replace"))
