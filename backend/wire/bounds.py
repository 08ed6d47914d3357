"""What a text or a number may be that a stranger wrote, as type hints for `codec`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from backend.errors import brief
from backend.model.session import LATEST

MAX_TEXT = 65_536
"""Characters of one text; an inputs key of 64 inputs has about 10,000."""


def is_text(text: str) -> str:
    """Of a bounded length, and such that it can be written to a file."""
    if len(text) > MAX_TEXT:
        return "is too long"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "holds half a character"
    return ""


def is_name(text: str) -> str:
    """One printable line, not empty."""
    return "" if text and text.isprintable() else f"is no name: {brief(text, 60)!r}"


def is_whole(number: int) -> str:
    return "" if 0 <= number < 1 << 31 else "is no whole number from 0 to 2147483647"


def is_moment(seconds: float) -> str:
    return "" if 0 <= seconds <= LATEST else f"is no number from 0 to {LATEST:.0f}"


def is_named(members: Mapping[str, object]) -> str:
    return "" if all(map(str.isprintable, members)) else "is no object of named members"


Text = Annotated[str, is_text]
Name = Annotated[str, is_text, is_name]
Whole = Annotated[int, is_whole]
"""A small count or a place in a list."""
Moment = Annotated[float, is_moment]
"""Unix seconds that a calendar can print."""
