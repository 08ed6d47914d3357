"""The styles of a line, by name, from the colours of the theme.

Component classes would say the same in style sheets, but each costs time at every start.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from rich.style import Style
from textual.app import App
from textual.color import Color

STYLES = {
    "": ("foreground", "background", False),
    "dim": ("line-dim", "", False),
    "strong": ("", "", True),
    "accent": ("accent", "", False),
    "good": ("accent", "", True),
    "warn": ("warning", "", False),
    "bad": ("error", "", False),
    "head": ("line-head", "panel", False),
    "title": ("accent", "panel", True),
    "rail": ("line-rail", "", False),
    "cursor": ("", "line-cursor", False),
    "cursor-blurred": ("", "line-cursor-blurred", False),
}
"""Foreground and background, as names of theme variables, and whether the text is bold."""


def styles(app: App[Any]) -> dict[str, Style]:
    """The styles of the app's present theme."""
    variables = app.theme_variables
    return _styles(tuple(variables.get(name, "") for name in _NAMES))


_NAMES = tuple(sorted({name for row in STYLES.values() for name in row[:2] if name}))


@lru_cache(maxsize=8)
def _styles(values: tuple[str, ...]) -> dict[str, Style]:
    colours = {
        name: Color.parse(value).rich_color for name, value in zip(_NAMES, values, strict=True)
    }
    return {
        name: Style(color=colours.get(front), bgcolor=colours.get(back), bold=bold or None)
        for name, (front, back, bold) in STYLES.items()
    }
