"""Tables as text, as Markdown and as cells of the screen, each made of one description.

A column has a title, a function that writes its cell, an alignment, a style and a sentence for the
help. `fit` decides which columns a width has room for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import fields as dataclass_fields
from textwrap import wrap
from typing import Generic, TypeVar

from rich.cells import cell_len, set_cell_size

from rocm_tui import say
from rocm_tui.harmless import plain, plain_all
from rocm_tui.session.numbers import shorten

Span = tuple[str, str]
"""Text and the name of its style, which the screen's palette knows; or empty."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `title` heads it on the screen, `about` is its sentence in the help.

    On the screen `least` cells are needed to show it at all, `most` is all it ever takes. `drop` is
    the order of leaving a narrow one: the highest leaves first, 0 never leaves. Those from
    `SPARE` on leave already when another column cannot have its `good` width. A cell is cut
    in its middle where it has no room; one of `facts` loses the last of its words. A name that is
    `whole` is cut only where no other column can leave for it.
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
    whole: bool = False


Line = tuple[Span, ...]
Cells = Mapping[str, Span]
"""One row of the screen, by the keys of its columns."""
_S = TypeVar("_S")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Field(Column, Generic[_T]):
    """A column that makes its cells. `name` heads it in text, else the title in small letters.

    `short` is the text for the screen, where that has less room or another mark. What somebody
    wrote, in a last column, is to `fold` in text: it goes on below.
    """

    name: str = ""
    text: Callable[[_T], str] = str
    style: str | Callable[[_T], str] = ""
    short: Callable[[_T], str] | None = None
    fold: bool = False

    @property
    def heading(self) -> str:
        return self.name or self.title.lower()

    def cell(self, thing: _T) -> Span:
        """As the screen shows it."""
        style = self.style if isinstance(self.style, str) else self.style(thing)
        return (self.short or self.text)(thing), style


def fields_of(fields: Iterable[Field[_S]], part: Callable[[_T], _S]) -> tuple[Field[_T], ...]:
    """Return the same columns for things whose `part` they describe."""
    return tuple(_field_of(field, part) for field in fields)


def _field_of(field: Field[_S], part: Callable[[_T], _S]) -> Field[_T]:
    own = {column.name: getattr(field, column.name) for column in dataclass_fields(Column)}
    style, short = field.style, field.short
    return Field(
        **own,
        name=field.name,
        text=lambda thing: field.text(part(thing)),
        style=style if isinstance(style, str) else lambda thing: style(part(thing)),
        short=None if short is None else lambda thing: short(part(thing)),
        fold=field.fold,
    )


def problem_line(fields: Iterable[Field[_T]], thing: _T) -> str:
    """Return the texts of these fields on one line."""
    return " ".join(text for field in fields if (text := field.text(thing)))


def cells(fields: Iterable[Field[_T]], thing: _T) -> dict[str, Span]:
    """One row of the screen."""
    return {field.key: field.cell(thing) for field in fields}


def text_table(fields: Sequence[Field[_T]], things: Iterable[_T], width: int | None = None) -> str:
    """Return the text that a command prints: a heading, then a line for each item. On a terminal,
    or with a `width`, less important columns are left out and names are shortened in the middle."""
    width = say.width() if width is None else width
    right = "".join("r" if field.right else "l" for field in fields)
    texts = [field.text for field in fields]

    rows = [plain_all([text(thing) for text in texts]) for thing in things]
    if width is not None:
        return _fitted(fields, rows, width)
    return _aligned([[field.heading for field in fields], *rows], right)


def hanging(head: str, text: str, width: int | None = None) -> str:
    """`text` behind `head`; on a terminal, or with a `width`, in lines that all begin below the
    first one's text. A word is never cut: a path can be copied whole."""
    width = say.width() if width is None else width
    if width is None or len(head) + len(text) <= width:
        return head + text
    indent = min(len(head), width // 2)
    lines = wrap(text, width - indent, break_long_words=False, break_on_hyphens=False)
    return head + f"\n{' ' * indent}".join(lines)


_SHORT = 12
"""Cells that a text needs where its column says nothing: an id or a word stays whole."""


def _fitted(fields: Sequence[Field[_T]], rows: Sequence[Sequence[str]], width: int) -> str:
    """Align rows within `width` cells. Numbers and ids are never cut: they leave, or stay whole."""
    lines = ([field.heading for field in fields], *rows)
    places, wants = {}, {}
    for at, field in enumerate(fields):
        want = max(cell_len(line[at]) for line in lines)
        least = want if field.right else min(want, field.least or _SHORT)
        drop, good = field.drop, min(want, field.good)
        column = Column(field.key, field.heading, least, want, drop, field.right, good)
        places[column], wants[field.key] = at, want
    slots = fit(tuple(places), wants, width)
    folds = fields[places[slots[-1].column]].fold
    indent = " " * sum(slot.width + 2 for slot in slots[:-1])
    written = []
    for line in lines:
        *before, last = (line[places[slot.column]] for slot in slots)
        folded = wrap(last, slots[-1].width, break_on_hyphens=False) if folds else ()
        first, *more = folded or [last]
        parts = [slot.cell(text) for slot, text in zip(slots, (*before, first), strict=True)]
        written.append("  ".join(parts).rstrip())
        written += [indent + text for text in more]
    return "\n".join(written)


def wrapped(text: str, width: int) -> list[str]:
    """Return the lines of a sentence; a name such as `rocm-tui` is never cut at its hyphen."""
    return wrap(text, max(20, width), break_on_hyphens=False)


def plain_table(header: Sequence[str], rows: Sequence[Sequence[str]], right: str = "") -> str:
    """Columns of text; those whose place in `right` holds `r` are aligned to the right."""
    return _aligned([plain_all(row) for row in (header, *rows)], right)


def _aligned(lines: Sequence[Sequence[str]], right: str) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    sides = ("" if right[at : at + 1] == "r" else "-" for at in range(len(widths)))
    line = "  ".join(f"%{side}{width}s" for side, width in zip(sides, widths, strict=True))
    return "\n".join([(line % tuple(row)).rstrip() for row in lines])


def markdown_table(fields: Sequence[Field[_T]], things: Iterable[_T]) -> list[str]:
    """The same for a pull request; cells hold what Markdown makes of them."""
    rule = ["---:" if field.right else "---" for field in fields]
    rows = [[field.text(thing) for field in fields] for thing in things]
    return [f"| {' | '.join(row)} |" for row in ([f.heading for f in fields], rule, *rows)]


def code_span(value: str) -> str:
    """Foreign text in a code span that it cannot leave: no markup, no mention, no new cell."""
    return f"`{plain(value).replace('`', chr(39)).replace('|', '¦')}`"


# Which columns fit a width.

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
    least = {c.key: _least(c, wants[c.key]) for c in kept}
    good = {c.key: max(c.least, least[c.key], min(c.good, wants[c.key])) for c in kept}
    _leave(kept, SPARE, good, width)
    _leave(kept, 1, least, width)
    sizes = {c.key: max(c.least, min(c.most, max(wants[c.key], cell_len(c.title)))) for c in kept}
    over = _total(list(sizes.values())) - width
    for column in kept:  # blanks go before text does
        content = max(wants[column.key], cell_len(column.title)) if wants[column.key] else width
        blank = min(over, sizes[column.key] - content)
        if blank > 0:
            sizes[column.key] -= blank
            over -= blank
    for column in kept:  # and facts that are shown elsewhere, too
        if over > 0 and column.facts and column.good:
            spared = min(over, max(0, sizes[column.key] - max(column.least, column.good)))
            sizes[column.key] -= spared
            over -= spared
    for floors in (good, least, {c.key: c.least for c in kept}):
        while over > 0:
            loose = [c.key for c in kept if sizes[c.key] > floors[c.key]]
            if not loose:
                break
            sizes[max(loose, key=lambda key: sizes[key])] -= 1
            over -= 1
    return tuple(Slot(column, sizes[column.key]) for column in kept)


def _least(column: Column, want: int) -> int:
    """Return the cells without which a column leaves; one that is `whole` or has a `good` width
    wants no more than its contents and its title need."""
    if not want or not (column.whole or column.good):
        return column.least
    whole = max(column.least, min(column.most, want)) if column.whole else column.least
    return min(whole, max(want, cell_len(column.title)))


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


# Lines of spans.

_BELOW = "   "
"""Before what is folded."""


def whole(line: Line, width: int) -> Line:
    """A line without its last facts, each a span after a `·`, that `width` cells cannot hold."""
    kept = list(line)
    while sum(cell_len(text) for text, _ in kept) > width and kept[-1][0].startswith(" · "):
        kept.pop()
    return tuple(kept)


def folded(line: Line, width: int) -> list[Line]:
    """Fold a line between words to `width` cells; the lines below are indented."""
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
    return [tuple(spans) for spans in lines]


def filled(line: Line, width: int) -> Line:
    """A line with the colour of headings up to its end."""
    return (*line, (" " * width, "head"))


# Short words for narrow cells.

_OPS: Mapping[str, str] = {
    "persistent_reduction": "persistent",
    "user_autotune": "autotune",
    "flex_attention_backward": "flex_backward",
    "convolution_bwd_weight": "conv_weight",
    "convolution_bwd_input": "conv_input",
}
_BEGINS = re.compile(r"triton_(?:[a-z]+_)?fused_+(?=[a-z0-9])")

_NAMED = re.compile(r"\b([A-Za-z]{1,8})=(\d)")
_LAUNCHED = re.compile(r", (\d+) (warps|stages)\b")
_SHAPE = re.compile(r" block_shape=\[[\d, ]*\]")


def short_op(name: str) -> str:
    """A shorter word for an op whose name is longer than its column."""
    return _OPS.get(name) or plain(name)


def short_sizes(text: str) -> str:
    """A kernel of Inductor and its sizes, without the words that its op says already: `gelu 4096`
    of `triton_poi_fused_gelu 4096`; `M64 E128 N352` of experts; others as they are."""
    return _NAMED.sub(r"\1\2", _SHAPE.sub("", _BEGINS.sub("", text, count=1)))


def short_choice(text: str) -> str:
    """`16×128×64 w4 s2` of a config of another tuner's table; others as they are."""
    return _LAUNCHED.sub(lambda found: f" {found[2][0]}{found[1]}", text)
