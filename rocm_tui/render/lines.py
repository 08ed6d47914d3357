"""Lines of spans in so many cells: without their last facts, folded, filled up."""

from __future__ import annotations

import re

from rich.cells import cell_len

from rocm_tui.render.table import Line, Span

_BELOW = "   "
"""Before what is folded."""


def whole(line: Line, width: int) -> Line:
    """A line without its last facts, each a span after a `·`, that `width` cells cannot hold."""
    kept = list(line)
    while sum(cell_len(text) for text, _ in kept) > width and kept[-1][0].startswith(" · "):
        kept.pop()
    return tuple(kept)


def folded(line: Line, width: int) -> list[Line]:
    """In lines of so many cells, cut between words; those below begin further right."""
    if sum(cell_len(text) for text, _ in line) <= width:
        return [line]
    lines: list[list[Span]] = [[]]
    used = 0
    for text, style in line:
        for word in re.findall(r" *[^ ]+| +", text):
            if used + cell_len(word) > width and used > len(_BELOW):
                lines.append([(_BELOW, "")])
                used, word = len(_BELOW), word.lstrip(" ")
            lines[-1].append((word, style))
            used += cell_len(word)
    return [tuple(one) for one in lines]


def filled(line: Line, width: int) -> Line:
    """A line with the colour of headings up to its end."""
    return (*line, (" " * width, "head"))
