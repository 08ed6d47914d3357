"""Which columns of a table fit the screen, and how wide each is. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size

from rocm_tui.render.column import Column, Span
from rocm_tui.session.numbers import shorten

GAP = 2
SPARE = 5
"""Columns whose `drop` is this or more give way to the good width of others."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A column that fits, and its width in cells."""

    column: Column
    width: int

    def cell(self, text: str) -> str:
        """`text` cut and aligned to exactly this width."""
        if self.column.facts:
            while cell_len(text) > self.width and " " in text:
                text = text.rpartition(" ")[0]
        text = shorten(text, self.width)
        if cell_len(text) > self.width:
            text = set_cell_size(text, self.width)
        blank = " " * (self.width - cell_len(text))
        return blank + text if self.column.right else text + blank


def fit(columns: Sequence[Column], wants: Mapping[str, int], width: int) -> tuple[Slot, ...]:
    """Give each column what its contents want, drop the least important, then squeeze the rest.

    `wants` holds the widest content of a column, in cells; columns it does not name are left out.
    """
    kept = [column for column in columns if column.key in wants]
    _leave(kept, SPARE, {c.key: max(c.least, min(c.good, wants[c.key])) for c in kept}, width)
    _leave(kept, 1, {c.key: c.least for c in kept}, width)
    sizes = {c.key: max(c.least, min(c.most, max(wants[c.key], cell_len(c.title)))) for c in kept}
    over = _total(list(sizes.values())) - width
    for column in kept:  # blanks go before text does
        content = max(wants[column.key], cell_len(column.title)) if wants[column.key] else width
        blank = min(over, sizes[column.key] - content)
        if blank > 0:
            sizes[column.key] -= blank
            over -= blank
    for column in kept:  # and facts that are told elsewhere, too
        if over > 0 and column.facts and column.good:
            spared = min(over, max(0, sizes[column.key] - max(column.least, column.good)))
            sizes[column.key] -= spared
            over -= spared
    while over > 0:
        loose = [c.key for c in kept if sizes[c.key] > c.least]
        if not loose:
            break
        sizes[max(loose, key=lambda key: sizes[key])] -= 1
        over -= 1
    return tuple(Slot(column, sizes[column.key]) for column in kept)


def natural(columns: Sequence[Column], wants: Mapping[str, int]) -> int:
    """Cells in which every column has what its contents want."""
    kept = [column for column in columns if column.key in wants]
    return _total([max(c.least, min(c.most, max(wants[c.key], cell_len(c.title)))) for c in kept])


def heading(slot: Slot, falls: bool | None = None) -> tuple[Span, Span]:
    """The title of a column and the gap behind it; with a sign where the rows are ordered by it."""
    if falls is None:
        return (slot.cell(slot.column.title), "head"), (" " * GAP, "head")
    title, sign = slot.cell(slot.column.title), "▼" if falls else "▲"
    if slot.column.right:
        return (title + sign, "title"), (" " * (GAP - 1), "head")
    blank = slot.width + GAP - cell_len(title.rstrip()) - 1
    return (title.rstrip() + sign, "title"), (" " * blank, "head")


def slot_at(slots: Sequence[Slot], x: int) -> Slot | None:
    """The column whose heading, or the gap behind it, has cell `x`."""
    at = 0
    for slot in slots:
        at += slot.width + GAP
        if x < at:
            return slot
    return None


def _leave(kept: list[Column], lowest: int, sizes: Mapping[str, int], width: int) -> None:
    """Take the least important columns out until the others fit at these sizes."""
    while _total([sizes[column.key] for column in kept]) > width:
        first = max(kept, key=lambda column: column.drop)
        if first.drop < lowest:
            return
        kept.remove(first)


def _total(sizes: Sequence[int]) -> int:
    return sum(sizes) + GAP * max(0, len(sizes) - 1)
