"""Single lines at the edges of a screen: the current place, and the keys that matter now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len
from textual import events

from rocm_tui.tui.keys import Key
from rocm_tui.tui.widgets.line_view import LineView

if TYPE_CHECKING:  # types only, see LineView
    from rocm_tui.render.table import Line, Span


class OneLine(LineView, can_focus=False):
    """A line that does not scroll, with a left and a right part."""

    GROUND = "head"
    DEFAULT_CSS = "OneLine { height: 1; width: 1fr; background: $panel; }"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.left: Line = ()
        self.right: Line = ()

    def put(self, left: Line, right: Line = ()) -> None:
        """Show these; the right part is omitted if there is no room for both."""
        self.left, self.right = left, right
        self.sync()

    def heading(self, width: int) -> list[Line]:
        taken = sum(cell_len(text) for text, _ in (*self.left, *self.right))
        gap = width - taken
        if gap < 1 or not self.right:
            return [(*self.left, (" " * width, "head"))]
        return [(*self.left, (" " * gap, "head"), *self.right)]


_BRAND_FROM = 100
"""The minimum cells with room for the program's name beside the places."""


class TitleBar(OneLine):
    """The places of the first level with their keys, or the name of another screen, and facts, the
    most important first; facts without room are left out. A click on a place opens it."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._place = self._notice = ""
        self._places: Sequence[Key] = ()
        self._facts: Sequence[str] = ()

    def show(self, place: str, places: Sequence[Key], facts: Sequence[str], notice: str) -> None:
        """Show the current place: one of the `places`, or another screen if none is given."""
        self._place, self._places, self._facts, self._notice = place, places, facts, notice
        self.sync()

    def heading(self, width: int) -> list[Line]:
        line: list[Span] = []
        if not self._places or width >= _BRAND_FROM:
            line.append((" rocm-tui ", "title"))
        for letter, name, _ in self._places:
            here = name == self._place
            line += [("▌" if here else " ", "title"), (letter, "title")]
            line.append((f" {name}", "title" if here else "head"))
        if not self._places:
            line.append((f" {self._place}", "head"))
        if self._notice:
            line.append((f"   {self._notice}", "title"))
        if getattr(self.app, "read_only", False):
            line.append(("   READ-ONLY", "title"))
        facts: list[str] = []
        room = width - sum(cell_len(text) for text, _ in line) - 3
        for fact in self._facts:
            if cell_len(" · ".join((*facts, fact))) <= room:
                facts.append(fact)
        self.left = tuple(line)
        self.right = ((" · ".join(facts) + " ", "head"),) if facts else ()
        return super().heading(width)

    async def on_click(self, event: events.Click) -> None:  # type: ignore[override]
        event.stop()
        at = cell_len(" rocm-tui ") if self.size.width >= _BRAND_FROM else 0
        for letter, name, action in self._places:
            begin, at = at, at + cell_len(letter) + cell_len(name) + 2
            if begin <= event.x < at:
                await self.screen.run_action(action)


class KeyBar(OneLine):
    """The keys that do something now, the most useful first; a click on one does the same as the
    key. If not all fit, the last two (back and help) stay, and the first ones of the others."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.keys: tuple[Key, ...] = ()

    def show(self, keys: Sequence[Key]) -> None:
        if tuple(keys) != self.keys:  # they are set again with each row that changes
            self.keys = tuple(keys)
            self.sync()

    def heading(self, width: int) -> list[Line]:
        line: list[Span] = []
        for key, label, _ in self._fitting(width):
            line += [(f" {key}", "title"), (f" {label} ", "head")]
        return [(*line, (" " * width, "head"))]

    def _fitting(self, width: int) -> tuple[Key, ...]:
        first, last = list(self.keys[:-2]), self.keys[-2:]
        while first and sum(map(_width, (*first, *last))) > width:
            first.pop()
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
    """The names of the pages, each with its key, if it has one, and its count; one is open."""

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
            name = f"{letter} {label} ".lstrip()
            line += [("▌" if here else " ", "title"), (name, "title" if here else "head")]
        return [(*line, (" " * width, "head"))]

    def _fitting(self, width: int) -> tuple[Key, ...]:
        """Drop the last pages if not all fit, or the first ones if the open page is the last."""
        shown = list(self.keys)
        while len(shown) > 1 and sum(map(_width, shown)) > width:
            shown.pop(0 if shown[-1][2] == self._open else -1)
        return tuple(shown)


def _width(key: Key) -> int:
    return cell_len(key[0]) + cell_len(key[1]) + (3 if key[0] else 2)
