"""One page of the report: what it says in a sentence, then its table."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

from rocm_tui.render.pages import Page
from rocm_tui.render.table import Column
from rocm_tui.session.model import Row
from rocm_tui.widgets.grid import Grid
from rocm_tui.widgets.line_view import Line, Span
from rocm_tui.widgets.one_line import Key, KeyBar


class ReportPage(Grid):
    """A table below sentences; columns without content are left out."""

    def __init__(self, columns: Sequence[Column], *, id: str) -> None:
        super().__init__(columns, "", id=id)
        self._page: Page | None = None

    def show(self, page: Page) -> None:
        self._page = page
        self.put(page.cells)

    @property
    def current(self) -> Row | None:
        """The tuning that the line under the cursor is about."""
        page = self._page
        return page.rows[self.cursor] if page and self.cursor < len(page.rows) else None

    def wants(self) -> dict[str, int]:
        return {key: want for key, want in super().wants().items() if want}

    def heading(self, width: int) -> list[Line]:
        if self._page is None:
            return []
        said: list[Line] = []
        for text, style in self._page.said:
            said += [((f" {part}", style),) for part in wrap(text, width - 2)]
        above: list[Line] = [(), *said, ()] if said else []
        return [*above, *super().heading(width)] if self._page.cells else above

    def empty(self, width: int) -> list[Line]:
        return [(), (("  Reading…", "dim"),)] if self._page is None else []


class PageBar(KeyBar):
    """The names of the pages, each with its key and how much it holds; one of them is open."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._open = ""

    def open(self, action: str, keys: Sequence[Key]) -> None:
        """Show these pages; the one with this action is open."""
        self._open = action
        self.show(keys)

    def heading(self, width: int) -> list[Line]:
        line: list[Span] = []
        for key, label, action in self.keys:
            here = action == self._open
            line += [("▌" if here else " ", "title"), (key, "title" if here else "head")]
            line.append((f" {label} ", "title" if here else "head"))
        return [(*line, (" " * width, "head"))]

    def _fitting(self, width: int) -> tuple[Key, ...]:
        return self.keys
