"""A table as text, as Markdown and as cells of the screen, made of one description; and JSON.

A column says what it is called, how a cell is got from a thing and written, how it stands and is
coloured, and in one sentence what it means: headings, help and glossary all come from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import fields as dataclass_fields
from typing import Any, Generic, TypeVar

from rocm_tui import say
from rocm_tui.harmless import plain, plain_all
from rocm_tui.render.column import Column as Column
from rocm_tui.render.column import Span as Span

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
    """The same columns for things of which `part` is what these tell of."""
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
    """What is known of it on one line."""
    return " ".join(text for field in fields if (text := field.text(thing)))


def cells(fields: Iterable[Field[_T]], thing: _T) -> dict[str, Span]:
    """One row of the screen."""
    return {field.key: field.cell(thing) for field in fields}


def text_table(
    fields: Sequence[Field[_T]],
    things: Iterable[_T],
    width: int | None = None,
) -> str:
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
    from textwrap import wrap  # for narrow terminals alone

    indent = min(len(head), width // 2)
    lines = wrap(text, width - indent, break_long_words=False, break_on_hyphens=False)
    return head + f"\n{' ' * indent}".join(lines)


_SHORT = 12
"""Cells that a text needs where its column says nothing: an id or a word stays whole."""


def _fitted(fields: Sequence[Field[_T]], rows: Sequence[Sequence[str]], width: int) -> str:
    """The same in so many cells. Numbers and ids are never cut: they leave, or stay whole."""
    from rich.cells import cell_len  # not loaded for what goes into a pipe

    from rocm_tui.render.layout import fit

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
        first, *more = _folded(last, slots[-1].width) if folds else [last]
        parts = [slot.cell(text) for slot, text in zip(slots, (*before, first), strict=True)]
        written.append("  ".join(parts).rstrip())
        written += [indent + text for text in more]
    return "\n".join(written)


def _folded(text: str, width: int) -> list[str]:
    from textwrap import wrap  # for narrow terminals alone

    return wrap(text, width, break_on_hyphens=False) or [text]


def table(header: Sequence[str], rows: Sequence[Sequence[str]], right: str = "") -> str:
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


def attributes(thing: object, names: str) -> dict[str, Any]:
    """JSON of what bears the same name there; tuples are lists."""
    values = {name: getattr(thing, name) for name in names.split()}
    return {key: list(v) if isinstance(v, tuple) else v for key, v in values.items()}


def code_span(value: str) -> str:
    """Foreign text in a code span that it cannot leave: no markup, no mention, no new cell."""
    return f"`{plain(value).replace('`', chr(39)).replace('|', '¦')}`"
