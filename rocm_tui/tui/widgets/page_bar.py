"""A line with the names of a screen's pages."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

from rocm_tui.render.table import Line, Span
from rocm_tui.tui.widgets.one_line import Key, KeyBar


class PageBar(KeyBar):
    """The names of the pages, each with its key and how much it holds; one of them is open."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._open = ""

    def open(self, action: str, keys: Sequence[Key]) -> None:
        """Show these pages; the one with this action is open."""
        self._open, self.keys = action, tuple(keys)
        self.sync()

    def heading(self, width: int) -> list[Line]:
        line: list[Span] = []
        for letter, label, action in self._fitting(width):
            here = action == self._open
            line += [("▌" if here else " ", "title"), (letter, "title" if here else "head")]
            line.append((f" {label} ", "title" if here else "head"))
        return [(*line, (" " * width, "head"))]

    def _fitting(self, width: int) -> tuple[Key, ...]:
        """Where not all fit, the last give way, or the first where the open one is behind them."""
        shown = list(self.keys)
        while len(shown) > 1 and sum(map(cells, shown)) > width:
            shown.pop(0 if shown[-1][2] == self._open else -1)
        return tuple(shown)


def cells(key: Key) -> int:
    """Of a page in the line."""
    return cell_len(key[0]) + cell_len(key[1]) + 3
