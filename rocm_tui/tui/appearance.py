"""A person's own colours and columns, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

import msgspec
from rich.color import Color as RichColor
from textual.color import Color, ColorParseError
from textual.theme import Theme

from rocm_tui.config.settings import Colours, Mistake, Settings, nearest
from rocm_tui.render.tunings import COLUMNS

_MEMBERS: Mapping[str, tuple[str, ...]] = {
    "text": ("foreground", "text", "block-cursor-foreground"),
    "background": ("background",),
    "dim": ("line-dim", "text-muted", "text-disabled", "foreground-muted"),
    "accent": ("primary", "secondary", "accent", "text-accent", "border"),
    "good": ("success", "text-success"),
    "warn": ("warning", "text-warning"),
    "bad": ("error", "text-error"),
    "heading": ("line-head",),
    "cursor": ("line-cursor", "block-cursor-background"),
}
"""The fields, else the variables, of a theme that a colour of the settings replaces."""


_COLOURS = ": #rrggbb, a name such as cyan, or 0 to 255"


def recoloured(theme: Theme, colours: Colours) -> Theme:
    """Return the theme with the person's colours, as far as they are given and valid."""
    if colours == Colours():
        return theme
    given: dict[str, str] = msgspec.structs.asdict(colours)
    members = {field.name for field in fields(theme)}
    changed: dict[str, Any] = {}
    variables = dict(theme.variables)
    for name, value in given.items():
        colour = colour_of(value) if value else None
        for member in _MEMBERS[name] if colour else ():
            (changed if member in members else variables)[member] = str(colour)
    return replace(theme, **changed, variables=variables)


def colour_of(text: str) -> str | None:
    """Return a colour as themes have it, from `#rrggbb`, a name or one of 256 numbers; else
    None."""
    if text.isdecimal():
        number = int(text)
        return RichColor.from_ansi(number).get_truecolor().hex if number < 256 else None
    try:
        Color.parse(text)
    except ColorParseError:
        return None
    return text


def hidden(names: tuple[str, ...]) -> frozenset[str]:
    """Return the keys of the columns of Watch with these titles or names, in any case."""
    wanted = {name.lower() for name in names}
    return frozenset(
        column.key for column in COLUMNS if {column.key.lower(), column.title.lower()} & wanted
    )


def mistakes(settings: Settings) -> Iterator[Mistake]:
    """Yield the invalid colours, and the columns that do not exist."""
    for colour, value in msgspec.structs.asdict(settings.config.colours).items():
        if value and colour_of(value) is None:
            name = f"colours.{colour}"
            yield settings.mistake(name, f"{name}: {value!r} is no colour{_COLOURS}")
    for title in settings.config.columns.hide:
        if not hidden((title,)):
            near = nearest(title.lower(), [column.title.lower() for column in COLUMNS])
            yield settings.mistake("columns.hide", f"columns.hide: no column {title!r}{near}")
