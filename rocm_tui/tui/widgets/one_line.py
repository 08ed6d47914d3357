"""Single lines at the edges of a screen: where you are, and which keys matter now."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from textual import events

from rocm_tui.tui.keys import Key
from rocm_tui.tui.widgets.line_view import LineView

if TYPE_CHECKING:  # types only, see LineView
    from rocm_tui.render.table import Line, Span


class OneLine(LineView, can_focus=False):
    """A line that does not scroll: something at the left, something at the right."""

    DEFAULT_CSS = "OneLine { height: 1; width: 1fr; background: $panel; }"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.left: Line = ()
        self.right: Line = ()

    def put(self, left: Line, right: Line = ()) -> None:
        """Show these; the right part gives way where there is no room for both."""
        self.left, self.right = left, right
        self.sync()

    def count(self) -> int:
        return 0

    def heading(self, width: int) -> list[Line]:
        taken = sum(cell_len(text) for text, _ in (*self.left, *self.right))
        gap = width - taken
        if gap < 1 or not self.right:
            return [(*_cut(self.left, width), (" " * width, "head"))]
        return [(*self.left, (" " * gap, "head"), *self.right)]


def _cut(line: Line, width: int) -> Line:
    """Cut a line to what fits, with a sign where that is not all."""
    if sum(cell_len(text) for text, _ in line) <= width:
        return line
    kept: list[Span] = []
    room = width - 1
    for text, style in line:
        if cell_len(text) > room:
            return (*kept, (set_cell_size(text, max(0, room)) + "…", style))
        kept.append((text, style))
        room -= cell_len(text)
    return tuple(kept)


class TitleBar(OneLine):
    """The program, the screen, and facts about it; where room is short the last ones give way."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._facts: Sequence[str] = ()
        self._place: Line = ()

    def show(self, place: str, facts: Sequence[str], notice: str = "") -> None:
        left: list[Span] = [(" rocm-tui ", "title"), (f" {place}", "head")]
        if notice:
            left.append((f"   {notice}", "title"))
        self._facts, self._place = facts, tuple(left)
        self.put(self._place)

    def heading(self, width: int) -> list[Line]:
        kept = (("   READ-ONLY", "title"),) if getattr(self.app, "read_only", False) else ()
        self.left = (*self._place, *kept)
        facts, room = list(self._facts), width - sum(cell_len(text) for text, _ in self.left)
        while facts and cell_len(" · ".join(facts)) + 2 > room:
            facts.pop()
        self.right = ((" · ".join(facts) + " ", "head"),) if facts else ()
        return super().heading(width)


class KeyBar(OneLine):
    """The most useful keys; a click on one does what the key does.

    Where not all fit, the last two (help and quit) stay, and of the others the first; those that
    do nothing now are dim, and give way before them.
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.keys: tuple[Key, ...] = ()
        self.idle: frozenset[str] = frozenset()

    def show(self, keys: Sequence[Key], idle: Collection[str] = ()) -> None:
        """`idle` are the actions that do nothing now."""
        shown = tuple(keys), frozenset(idle)
        if shown != (self.keys, self.idle):  # they are given with each row that changes
            self.keys, self.idle = shown
            self.sync()

    def heading(self, width: int) -> list[Line]:
        line: list[Span] = []
        for key, label, action in self._fitting(width):
            idle = action in self.idle
            line += [(f" {key}", "idle" if idle else "title")]
            line += [(f" {label} ", "idle" if idle else "head")]
        return [(*line, (" " * width, "head"))]

    def _fitting(self, width: int) -> tuple[Key, ...]:
        first, last = list(self.keys[:-2]), self.keys[-2:]
        while first and sum(map(_width, (*first, *last))) > width:
            idle = [at for at, key in enumerate(first) if key[2] in self.idle]
            first.pop(idle[-1] if idle else -1)
        return (*first, *last)

    async def on_click(self, event: events.Click) -> None:  # type: ignore[override]
        event.stop()
        at = 0
        for key in self._fitting(self.size.width):
            at += _width(key)
            if event.x < at:
                await self.screen.run_action(key[2])
                return


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
        """Drop the last pages where not all fit, or the first where the open one is the last."""
        shown = list(self.keys)
        while len(shown) > 1 and sum(map(_width, shown)) > width:
            shown.pop(0 if shown[-1][2] == self._open else -1)
        return tuple(shown)


def _width(key: Key) -> int:
    return cell_len(key[0]) + cell_len(key[1]) + 3
