"""Colours: one calm accent on quiet greys, dark and light; blue and orange for people who cannot
distinguish red from green; and one theme for terminals of 16 colours.

For terminals of 256 colours each theme has a twin with colours of the terminal's own palette: Rich,
which looks for the nearest colour of that palette, leaves them as they are. Text has a contrast of
4.5:1, less important text 3:1, on the line under the cursor too; a test computes it.

From a theme come the styles of a line, by name. Component classes would say the same in style
sheets, but each costs time at every start.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from rich.style import Style
from textual.app import App
from textual.color import Color
from textual.theme import Theme


def _theme(
    name: str,
    text: str,
    background: str,
    *,
    surface: str,
    panel: str,
    accent: str,
    good: str = "",
    warn: str,
    bad: str,
    dim: str,
    head: str,
    idle: str,
    cursor: str,
    blurred: str,
    rail: str,
    dark: bool = True,
    bad_style: str = "none",
    notice: str = "",
) -> Theme:
    """Return a theme in which Textual's widgets have the same few colours: no palette has mixtures.

    `bad_style` marks bad values by more than their colour, `notice` is behind notices.
    """
    return Theme(
        name=name,
        primary=accent,
        secondary=accent,
        accent=accent,
        success=good or accent,
        warning=warn,
        error=bad,
        foreground=text,
        background=background,
        surface=surface,
        panel=panel,
        dark=dark,
        variables={
            "line-dim": dim,
            "line-head": head,
            "line-idle": idle,
            "line-cursor": cursor,
            "line-cursor-blurred": blurred,
            "line-cursor-text": "",
            "line-rail": rail,
            "line-bad": bad_style,
            "text": text,
            "text-muted": dim,
            "text-disabled": dim,
            "text-success": good or accent,
            "text-warning": warn,
            "text-error": bad,
            "text-accent": accent,
            "text-primary": accent,
            "foreground-muted": dim,
            "foreground-disabled": dim,
            "panel-lighten-1": notice or panel,
            "panel-darken-1": surface,
            "border": accent,
            "border-blurred": rail,
            "block-cursor-foreground": text,
            "block-cursor-background": cursor,
            "block-cursor-blurred-foreground": text,
            "block-cursor-blurred-background": cursor,
            "block-hover-background": blurred,
            "input-cursor-foreground": background,
            "input-cursor-background": text,
            "input-selection-foreground": text,
            "input-selection-background": cursor,
            "scrollbar": rail,
            "scrollbar-hover": dim,
            "scrollbar-active": accent,
            "scrollbar-background": panel,
            "scrollbar-background-hover": panel,
            "scrollbar-background-active": panel,
            "scrollbar-corner-color": panel,
        },
    )


DARK = _theme(
    "rocm-dark", "#d3d8e0", "#12151b", surface="#191d25", panel="#20252f", accent="#6fb8c5",
    warn="#d9a962", bad="#e08686", dim="#8a94a5", head="#98a2b3", idle="#6f798a", cursor="#26303c",
    blurred="#1c222b", rail="#4a5362",
)  # fmt: skip
LIGHT = _theme(
    "rocm-light", "#23272e", "#fafaf8", surface="#f1f1ee", panel="#e6e7e4", accent="#0f6a7c",
    warn="#805300", bad="#a83232", dim="#646b76", head="#59606b", idle="#747b85", cursor="#d8e4e7",
    blurred="#e9eded", rail="#b4b8bd", dark=False,
)  # fmt: skip
BLUE_ORANGE = _theme(
    "rocm-blue-orange", "#dfdfe6", "#12151b", surface="#191d25", panel="#20252f", accent="#6cb2f0",
    good="#6cb2f0", warn="#e9dca0", bad="#f0953c", dim="#8f98a8", head="#98a2b3", idle="#6f798a",
    cursor="#26303c", blurred="#1c222b", rail="#4a5362", bad_style="underline",
)  # fmt: skip
BLUE_ORANGE_LIGHT = _theme(
    "rocm-blue-orange-light", "#1f2329", "#fafaf8", surface="#f1f1ee", panel="#e6e7e4",
    accent="#0b5cad", good="#0b5cad", warn="#5c4a00", bad="#9a4a00", dim="#646b76", head="#59606b",
    idle="#747b85", cursor="#dbe5f0", blurred="#e9eded", rail="#b4b8bd", dark=False,
    bad_style="underline",
)  # fmt: skip

_BLACK, _GREY3, _GREY5, _GREY7 = "#121212", "#1c1c1c", "#262626", "#303030"
DARK_256 = _theme(
    "rocm-dark", "#d7d7ff", _BLACK, surface=_GREY3, panel=_GREY5, accent="#5fd7d7", warn="#d7af5f",
    bad="#ff8787", dim="#949494", head="#afafd7", idle="#767676", cursor=_GREY7, blurred=_GREY5,
    rail="#626262",
)  # fmt: skip
LIGHT_256 = _theme(
    "rocm-light", _GREY5, "#ffffff", surface="#ffffff", panel="#d7d7ff", accent="#005f87",
    warn="#5f5f00", bad="#af0000", dim="#626262", head="#4e4e4e", idle="#6c6c6c", cursor="#d7ffff",
    blurred="#ffffff", rail="#949494", dark=False, notice="#ffffd7",
)  # fmt: skip
BLUE_ORANGE_256 = _theme(
    "rocm-blue-orange", "#d7d7ff", _BLACK, surface=_GREY3, panel=_GREY5, accent="#87afff",
    good="#87afff", warn="#ffffaf", bad="#ffaf00", dim="#949494", head="#afafd7", idle="#767676",
    cursor=_GREY7, blurred=_GREY5, rail="#626262", bad_style="underline",
)  # fmt: skip
BLUE_ORANGE_LIGHT_256 = _theme(
    "rocm-blue-orange-light", _GREY5, "#ffffff", surface="#ffffff", panel="#d7d7ff",
    accent="#005faf", good="#005faf", warn="#5f5f00", bad="#af5f00", dim="#626262", head="#4e4e4e",
    idle="#6c6c6c", cursor="#ffffd7", blurred="#ffffff", rail="#949494", dark=False,
    bad_style="underline", notice="#ffffd7",
)  # fmt: skip

ANSI = Theme(
    name="rocm-16",
    ansi=True,
    primary="ansi_cyan",
    secondary="ansi_cyan",
    accent="ansi_cyan",
    success="ansi_cyan",
    warning="ansi_yellow",
    error="ansi_bright_red",
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
        "scrollbar": "ansi_bright_black",
        "scrollbar-hover": "ansi_bright_black",
        "scrollbar-active": "ansi_cyan",
        "scrollbar-background": "ansi_default",
        "scrollbar-background-hover": "ansi_default",
        "scrollbar-background-active": "ansi_default",
        "scrollbar-corner-color": "ansi_default",
        "input-cursor-background": "ansi_white",
        "input-cursor-foreground": "ansi_black",
        "panel": "ansi_default",
        "line-dim": "ansi_default",
        "line-head": "ansi_default",
        "line-idle": "ansi_bright_black",
        "line-cursor": "ansi_cyan",
        "line-cursor-blurred": "ansi_default",
        "line-cursor-text": "ansi_black",
        "line-rail": "ansi_bright_black",
        "line-bad": "underline",
    },
)
"""The terminal's own palette, which is unknown: the line under the cursor is black on cyan,
whatever its text means."""

FULL = (DARK, LIGHT, BLUE_ORANGE, BLUE_ORANGE_LIGHT, ANSI)
OF_256 = (DARK_256, LIGHT_256, BLUE_ORANGE_256, BLUE_ORANGE_LIGHT_256, ANSI)


def themes_for(color_system: str | None) -> tuple[Theme, ...]:
    """Return each theme as this terminal can show it; color systems are Rich's."""
    return OF_256 if color_system == "256" else FULL


def _of_lines(theme: Theme) -> dict[str, str]:
    return {name: value for name, value in theme.variables.items() if name.startswith("line-")}


DEFAULTS = _of_lines(DARK)
"""The colours of lines, for Textual's own themes, which lack them."""
LIGHT_DEFAULTS = _of_lines(LIGHT)


def default_theme(color_system: str | None, env: Mapping[str, str] | None = None) -> str:
    """Return the initial theme: a terminal of 16 colours keeps its own palette; one whose
    `COLORFGBG` has a light background gets the light one."""
    if color_system in ("standard", "windows"):
        return ANSI.name
    behind = (env or {}).get("COLORFGBG", "").rpartition(";")[2]
    return LIGHT.name if behind in ("7", "15") else DARK.name


STYLES = {
    "": ("foreground", "background", False),
    "dim": ("line-dim", "", False),
    "strong": ("", "", True),
    "accent": ("accent", "", False),
    "good": ("success", "", True),
    "warn": ("warning", "", False),
    "bad": ("error", "", False),
    "head": ("line-head", "panel", False),
    "title": ("accent", "panel", True),
    "found": ("background", "accent", True),
    "idle": ("line-idle", "panel", False),
    "rail": ("line-rail", "", False),
    "cursor": ("line-cursor-text", "line-cursor", False),
    "cursor-blurred": ("", "line-cursor-blurred", False),
}
"""Foreground and background, as names of theme variables, and whether the text is bold."""


def styles(app: App[Any]) -> dict[str, Style]:
    """Return the styles of the app's current theme."""
    variables = app.theme_variables
    return line_styles(tuple(variables.get(name, "") for name in NAMES))


def laid(base: Style, style: Style, cursor: Style) -> Style:
    """Return `style` on the background of `base`; on the cursor's, in the cursor's own colour, if
    it has one: then no two hues of the terminal can be relied on."""
    both = base + style
    if cursor.color is None or both.bgcolor != cursor.bgcolor:
        return both
    return both + Style(color=cursor.color)


NAMES = tuple(sorted({name for row in STYLES.values() for name in row[:2] if name} | {"line-bad"}))


@lru_cache(maxsize=8)
def line_styles(values: tuple[str, ...]) -> dict[str, Style]:
    """Return the styles for these values of `NAMES`; a style with an empty colour keeps the colour
    below it."""
    given = dict(zip(NAMES, values, strict=True))
    underline = given.pop("line-bad") == "underline"
    colours = {name: Color.parse(value).rich_color for name, value in given.items() if value}
    return {
        name: Style(
            color=colours.get(front),
            bgcolor=colours.get(back),
            bold=bold or None,
            underline=(underline and name == "bad") or None,
        )
        for name, (front, back, bold) in STYLES.items()
    }
