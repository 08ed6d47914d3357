"""A table as text, as Markdown and as cells of the screen, made of one description; and JSON.

A column says what it is called, how a cell is got from a thing and written, how it stands and is
coloured, and in one sentence what it means: headings, help and glossary all come from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import fields as dataclass_fields
from typing import Any, Generic, TypeVar

from rocm_tui.harmless import plain

Span = tuple[str, str]
"""Text and the name of its style, which the screen's palette knows; or empty."""
Line = tuple[Span, ...]
Cells = Mapping[str, Span]
"""One row of the screen, by the keys of its columns."""
_S = TypeVar("_S")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `title` heads it on the screen, `about` is its sentence in the help.

    On the screen `least` cells are needed to show it at all, `most` is all it ever takes. `drop` is
    the order of leaving a narrow one: the highest leaves first, 0 never leaves. Those from
    `layout.SPARE` on leave already when another column cannot have its `good` width.
    """

    key: str
    title: str
    least: int = 0
    most: int = 0
    drop: int = 0
    right: bool = False
    good: int = 0
    about: str = ""


@dataclass(frozen=True, slots=True)
class Field(Column, Generic[_T]):
    """A column that makes its cells. `name` heads it in text, else the title in small letters.

    `short` is the text for the screen, where that has less room or another mark.
    """

    name: str = ""
    text: Callable[[_T], str] = str
    style: str | Callable[[_T], str] = ""
    short: Callable[[_T], str] | None = None

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
    )


def problem_line(fields: Iterable[Field[_T]], thing: _T) -> str:
    """What is known of it on one line."""
    return " ".join(text for field in fields if (text := field.text(thing)))


def cells(fields: Iterable[Field[_T]], thing: _T) -> dict[str, Span]:
    """One row of the screen."""
    return {field.key: field.cell(thing) for field in fields}


def text_table(fields: Sequence[Field[_T]], things: Iterable[_T]) -> str:
    """What a command prints: a heading, then a line a thing."""
    right = "".join("r" if field.right else "l" for field in fields)
    rows = [[field.text(thing) for field in fields] for thing in things]
    return table([field.heading for field in fields], rows, right)


def table(header: Sequence[str], rows: Sequence[Sequence[str]], right: str = "") -> str:
    """Columns of text; those whose place in `right` holds `r` are aligned to the right."""
    lines = [[plain(text) for text in row] for row in (header, *rows)]
    widths = [max(len(row[at]) for row in lines) for at in range(len(header))]
    return "\n".join(
        "  ".join(
            text.rjust(width) if right[at : at + 1] == "r" else text.ljust(width)
            for at, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in lines
    )


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
