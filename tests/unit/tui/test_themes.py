"""Themes: contrast of every style on every ground, colours that the palette has."""

from __future__ import annotations

from itertools import product
from typing import get_args

import pytest
from rich.color import Color as RichColor
from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import TerminalTheme
from textual.color import Color
from textual.filter import Monochrome
from textual.theme import Theme

from rocm_tui.config.settings import ThemeName
from rocm_tui.tui import themes
from tests.support import colours

XTERM = TerminalTheme(
    (0, 0, 0),
    (229, 229, 229),
    [(0, 0, 0), (205, 0, 0), (0, 205, 0), (205, 205, 0), (0, 0, 238), (205, 0, 205),
     (0, 205, 205), (229, 229, 229)],
    [(127, 127, 127), (255, 0, 0), (0, 255, 0), (255, 255, 0), (92, 92, 255), (255, 0, 255),
     (0, 255, 255), (255, 255, 255)],
)  # fmt: skip
CASES = [*((theme, "truecolor") for theme in themes.FULL), *((t, "256") for t in themes.OF_256)]
GROUNDS = ("", "head", "cursor", "cursor-blurred")
LESS = {"dim", "head", "idle"}
"""What matters less: 3:1; and marks that are no text."""
MARKS = {"rail"}


def line_styles(theme: Theme) -> dict[str, Style]:
    variables = {**themes.DEFAULTS, **theme.to_color_system().generate(), **theme.variables}
    return themes.line_styles(tuple(variables.get(name, "") for name in themes.NAMES))


def shown(color: RichColor | None, system: str, *, front: bool) -> str:
    """As `#rrggbb`, as a terminal of that many colours has it."""
    color = color or RichColor.default()
    if system == "256":
        color = color.downgrade(ColorSystem.EIGHT_BIT)
    return color.get_truecolor(XTERM, foreground=front).hex


def contrast(style: Style, system: str) -> float:
    front, back = shown(style.color, system, front=True), shown(style.bgcolor, system, front=False)
    return colours.contrast(front, back)


def pairs(theme: Theme) -> list[tuple[str, Style]]:
    """Each style as `LineView` lays it on each ground: of bars, and below the cursor."""
    styles = line_styles(theme)
    made = []
    for ground, name in product(GROUNDS, themes.STYLES):
        if name in GROUNDS[2:] or (ground, name) == ("head", "bad"):  # a bar reports nothing bad
            continue
        base = styles[""] + styles[ground] if ground else styles[""]
        style = themes.laid(base, styles[name], styles["cursor"]) if name else base
        made.append((f"{name or 'text'} on {ground or 'background'}", style))
    return made


@pytest.mark.parametrize(("theme", "system"), CASES, ids=lambda one: getattr(one, "name", one))
@pytest.mark.parametrize("coloured", [True, False], ids=["", "NO_COLOR"])
def test_everything_can_be_read(theme: Theme, system: str, coloured: bool) -> None:
    weak = []
    for name, style in pairs(theme):
        if not coloured and not theme.ansi:
            ((_, seen, _),) = Monochrome().apply([Segment("x", style)], Color(0, 0, 0))
            style = seen or style
        word = name.split()[0]
        least = 1.5 if word in MARKS else 3.0 if word in LESS else 4.5
        if contrast(style, system) < least:
            weak.append(f"{name}: {contrast(style, system):.2f}")
    assert weak == []


@pytest.mark.parametrize(("theme", "system"), CASES, ids=lambda one: getattr(one, "name", one))
def test_notices_can_be_read(theme: Theme, system: str) -> None:
    """Textual draws them on `panel-lighten-1`, their titles in the colour of what they say."""
    behind = theme.variables.get("panel-lighten-1")
    assert theme.ansi or behind, "the colours of the terminal are its own"
    fronts = (theme.foreground, theme.success, theme.warning, theme.error)
    for front in fronts if behind else ():
        assert front is not None
        style = Style(color=RichColor.parse(front), bgcolor=RichColor.parse(behind or ""))
        assert contrast(style, system) >= 4.5, front


@pytest.mark.parametrize("theme", themes.OF_256, ids=lambda theme: theme.name)
def test_the_palette_has_the_colours_of_a_twin(theme: Theme) -> None:
    """So nothing shifts where the terminal has no others."""
    given = [theme.foreground, theme.background, theme.surface, theme.panel, theme.accent]
    given += [theme.success, theme.warning, theme.error, *theme.variables.values()]
    named = {one for one in given if one and one.startswith("#")}
    assert theme.ansi or len(named) > 8
    for colour in named:
        full = RichColor.parse(colour)
        nearest = full.downgrade(ColorSystem.EIGHT_BIT)
        assert nearest.get_truecolor() == full.triplet, colour


@pytest.mark.parametrize("theme", [*themes.FULL, *themes.OF_256], ids=lambda theme: theme.name)
def test_good_and_bad_differ_by_more_than_hue(theme: Theme) -> None:
    styles = line_styles(theme)
    good, bad = styles["good"], styles["bad"]
    assert good.bold and not bad.bold
    if "blue" in theme.name or theme.ansi:
        assert bad.underline and not good.underline


def test_each_look_has_its_twin_and_its_name_in_the_settings() -> None:
    names = [theme.name for theme in themes.FULL]
    assert names == [theme.name for theme in themes.OF_256]
    assert {*get_args(ThemeName)} == {"auto", *names}


def test_the_first_theme_is_what_the_terminal_can_show() -> None:
    assert themes.default_theme("standard") == "rocm-16"
    assert themes.default_theme("256") == themes.default_theme("truecolor", {}) == "rocm-dark"
    assert themes.default_theme("256", {"COLORFGBG": "0;15"}) == "rocm-light"
    assert themes.default_theme("256", {"COLORFGBG": "15;default;0"}) == "rocm-dark"
    assert themes.themes_for("256") is themes.OF_256
