"""Colours: one calm accent on quiet greys, dark and light, and one for 16-colour terminals.

From them come the styles of a line, by name. Component classes would say the same in style sheets,
but each costs time at every start.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from rich.style import Style
from textual.app import App
from textual.color import Color
from textual.theme import Theme

DARK = Theme(
    name="rocm-dark",
    primary="#6fb8c5",
    secondary="#6fb8c5",
    accent="#6fb8c5",
    success="#6fb8c5",
    warning="#d9a962",
    error="#dc7f7f",
    foreground="#d3d8e0",
    background="#12151b",
    surface="#191d25",
    panel="#20252f",
    dark=True,
    variables={
        "line-dim": "#8a94a5",
        "line-head": "#8a94a5",
        "line-cursor": "#26303c",
        "line-cursor-blurred": "#1c222b",
        "line-rail": "#4a5362",
    },
)

LIGHT = Theme(
    name="rocm-light",
    primary="#0f6a7c",
    secondary="#0f6a7c",
    accent="#0f6a7c",
    success="#0f6a7c",
    warning="#8a5a00",
    error="#a83232",
    foreground="#23272e",
    background="#fafaf8",
    surface="#f1f1ee",
    panel="#e6e7e4",
    dark=False,
    variables={
        "line-dim": "#646b76",
        "line-head": "#59606b",
        "line-cursor": "#d8e4e7",
        "line-cursor-blurred": "#e9eded",
        "line-rail": "#b4b8bd",
    },
)

ANSI = Theme(
    name="rocm-16",
    ansi=True,
    primary="ansi_cyan",
    secondary="ansi_cyan",
    accent="ansi_cyan",
    success="ansi_cyan",
    warning="ansi_yellow",
    error="ansi_red",
    foreground="ansi_default",
    background="ansi_default",
    surface="ansi_default",
    panel="ansi_default",
    boost="ansi_default",
    dark=True,
    variables={
        "ansi-background": "ansi_black",
        "ansi-foreground": "ansi_white",
        "border-blurred": "ansi_bright_black",
        "block-cursor-foreground": "ansi_black",
        "block-cursor-background": "ansi_cyan",
        "input-cursor-background": "ansi_white",
        "input-cursor-foreground": "ansi_black",
        "panel": "ansi_default",
        "line-dim": "ansi_default",
        "line-head": "ansi_bright_blue",
        "line-cursor": "ansi_blue",
        "line-cursor-blurred": "ansi_default",
        "line-rail": "ansi_bright_black",
    },
)

ALL = (DARK, LIGHT, ANSI)

DEFAULTS = {name: value for name, value in DARK.variables.items() if name.startswith("line-")}
"""What a theme of Textual's own lacks."""
LIGHT_DEFAULTS = {n: value for n, value in LIGHT.variables.items() if n.startswith("line-")}


def default_theme(color_system: str | None) -> str:
    """The theme to start with: a terminal of 16 colours keeps its own palette."""
    return ANSI.name if color_system in ("standard", "windows") else DARK.name


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
    "found": ("warning", "panel", True),
    "idle": ("line-rail", "panel", False),
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
