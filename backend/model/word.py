"""Words of which a later version may have more than this one: a state, a reason. They are read,
kept and shown as they are written; only what is known is acted on."""

from __future__ import annotations

from typing import Annotated

MOST = 40
"""Characters."""


def is_word(text: str) -> str:
    """What is wrong with it, or nothing."""
    return "" if 0 < len(text) <= MOST and text.isprintable() else "is no word"


Word = Annotated[str, is_word]
