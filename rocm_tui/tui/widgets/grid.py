"""A small table whose cells are given: pins, history, sources, problems."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

from rocm_tui.render.layout import GAP, Slot, fit
from rocm_tui.render.table import Cells, Column, Line, Span
from rocm_tui.tui.widgets.line_view import LineView


class Grid(LineView):
    """Rows of cells below a heading; each column is as wide as its contents need."""

    def __init__(self, columns: Sequence[Column], nothing: str, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._columns = columns
        self._nothing = nothing
        self._rows: Sequence[Cells] = ()
        self._names: Sequence[object] = ()
        self._slots: tuple[Slot, ...] = ()
        self._wants = self.wants()

    def put(self, rows: Sequence[Cells], names: Sequence[object] = ()) -> None:
        """Show these rows; the cursor stays on the row of its name, else at its place."""
        name = self._names[self.cursor] if self.cursor < len(self._names) else None
        self._rows, self._names = rows, names
        self._wants = self.wants()
        if name is not None and name in names:
            at = names.index(name)
            self.top += at - self.cursor
            self.cursor = at
        self.sync()

    def count(self) -> int:
        return len(self._rows)

    def wants(self) -> dict[str, int]:
        """Cells of the widest content of each column that is to be shown."""
        return {
            column.key: max([cell_len(row[column.key][0]) for row in self._rows], default=0)
            for column in self._columns
        }

    def heading(self, width: int) -> list[Line]:
        self._slots = fit(self._columns, self._wants, width - 2)
        line: list[Span] = [(" ", "head")]
        for slot in self._slots:
            line += [(slot.cell(slot.column.title), "head"), (" " * GAP, "head")]
        return [(*line, (" " * width, "head"))]

    def line(self, index: int, width: int) -> Line:
        line: list[Span] = []
        for slot in self._slots:
            text, style = self._rows[index][slot.column.key]
            line += [(slot.cell(text), style), (" " * GAP, "")]
        return tuple(line)

    def empty(self, width: int) -> list[Line]:
        return [(), (("  " + self._nothing, "dim"),)]
