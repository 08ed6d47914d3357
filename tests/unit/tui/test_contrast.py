"""Textual's own widgets in our themes: questions, the palette and fields can be read."""

from __future__ import annotations

from pathlib import Path

from rich.color import ColorSystem
from textual.geometry import Region
from textual.widgets import Input

from rocm_tui.tui import themes
from tests.support import drawing
from tests.support.colours import contrast
from tests.support.scenes import dress
from tests.support.screen_lab import asked, panes_of, running, until, write_cache

LOOKS = [
    *((theme, None) for theme in themes.FULL if not theme.ansi),
    *((theme, ColorSystem.EIGHT_BIT) for theme in themes.OF_256 if not theme.ansi),
    (themes.ANSI, ColorSystem.STANDARD),
]
LEAST = 3.0
_MAGENTA = "#9d65ff"
"""What Textual takes for the scrollbars of a theme of 16 colours."""


def weak(lines: list[list[drawing.Run]], region: Region) -> set[str]:
    """Texts in a region that hardly differ from what is behind them; lines and dots are no text."""
    found = set()
    for y, line in enumerate(lines):
        for x, text, front, back, _ in line:
            inside = region.contains(x, y) and region.contains(x + len(text) - 1, y)
            words = any(letter.isalnum() for letter in text)
            if inside and words and contrast(front, back) < LEAST:
                found.add(f"{text.strip()!r} {front} on {back}: {contrast(front, back):.1f}")
    return found


async def test_every_theme_on_what_textual_draws(tmp_path: Path) -> None:
    write_cache(tmp_path, 8)
    bad: dict[str, set[str]] = {}
    async with running(tmp_path, size=(100, 30)) as (app, pilot):
        await panes_of(app, pilot, 1)

        async def look(what: str, widget: str) -> None:
            for theme, colors in LOOKS:
                dress(app, theme)
                app.refresh_css(animate=False)  # now, so that nothing need be waited for
                regions = [one.region for one in app.screen.query(widget)]
                assert regions, what
                lines = drawing.lines_of(app, colors)
                for region in regions:
                    found = weak(lines, region)
                    if found:
                        bad[f"{what} in {app.theme} {colors}"] = found

        await pilot.press("tab", "j", "p")
        await asked(app, pilot)
        await look("a question", "#question")
        await pilot.press("escape")
        await pilot.press("escape", "slash")
        await until(pilot, lambda: app.screen.query(Input))
        await look("the filter", "FilterBar")
        await pilot.press("escape")
        await pilot.press("ctrl+p")
        await until(pilot, lambda: len(app.screen_stack) > 1)
        await pilot.pause(0.3)
        await look("the palette", "CommandPalette > *")
        for theme, colors in LOOKS:
            dress(app, theme)
            app.refresh_css(animate=False)
            lines = drawing.lines_of(app, colors)
            (chosen,) = (run for line in lines for run in line if "Change theme" in run[1])
            (other,) = (run for line in lines for run in line if "app: Quit" in run[1])
            if contrast(chosen[3], other[3]) < 1.1:
                bad[f"the chosen command in {app.theme}"] = {chosen[3], other[3]}
            scrollbar = {run[3] for line in lines for run in line if run[0] + len(run[1]) == 100}
            if _MAGENTA in scrollbar:
                bad[f"the scrollbar in {app.theme}"] = scrollbar
    assert bad == {}
