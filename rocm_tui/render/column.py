"""One column of a table: what it is called, how wide it may be, what it means."""

from __future__ import annotations

from dataclasses import dataclass

Span = tuple[str, str]
"""Text and the name of its style, which the screen's palette knows; or empty."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `title` heads it on the screen, `about` is its sentence in the help.

    On the screen `least` cells are needed to show it at all, `most` is all it ever takes. `drop` is
    the order of leaving a narrow one: the highest leaves first, 0 never leaves. Those from
    `layout.SPARE` on leave already when another column cannot have its `good` width. A cell is cut
    in its middle where it has no room; one of `facts` loses the last of its words.
    """

    key: str
    title: str
    least: int = 0
    most: int = 0
    drop: int = 0
    right: bool = False
    good: int = 0
    about: str = ""
    facts: bool = False
