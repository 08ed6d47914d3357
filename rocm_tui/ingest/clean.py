"""Text of a file made harmless, once, where it enters.

A log can hold any byte. An escape sequence that reaches the terminal can write the clipboard,
clear the screen or change the title, so nothing that is shown may keep one.
"""

from __future__ import annotations

import re

# Each alternative consumes what it matches without trying again: CSI; then OSC, DCS, PM, APC, SOS
# up to their end (or the end of the text); then two-byte escapes. The 8-bit forms are included.
_ESCAPE = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]?"
    "|(?:\x1b[\\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\\\|\x9c)?"
    "|\x1b[ -/]*[0-~]?"
)

# C0 and C1 controls, DEL, the marks that reorder text, the separators that break lines, and lone
# surrogates, which no terminal can be sent.
_CONTROL: dict[int, str | None] = dict.fromkeys(
    [
        *range(0x20),
        *range(0x7F, 0xA0),
        0x061C,
        *range(0x200B, 0x2010),
        *range(0x2028, 0x202F),
        *range(0x2060, 0x2070),
        0xFEFF,
        *range(0xD800, 0xE000),
    ]
)
_CONTROL[0x09] = " "


def clean(text: str) -> str:
    """`text` without escape sequences and control characters; tabs become spaces.

    Linear in the length of `text`, and idempotent.
    """
    if text.isascii() and text.isprintable():
        return text
    return _ESCAPE.sub("", text).translate(_CONTROL)


def clean_bytes(data: bytes) -> str:
    """Bytes of a file as clean text; what is no UTF-8 becomes U+FFFD."""
    return clean(data.decode("utf-8", "replace"))
