"""What a terminal of 256 colours is sent: colours of its palette alone, those of the theme."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from rich.color import Color, ColorSystem

from rocm_tui.tui import themes
from tests.support import sample_job
from tests.support.terminal_lab import Terminal, needs_tmux

pytestmark = needs_tmux
WATCH = (sys.executable, "-m", "rocm_tui", "watch")


@pytest.mark.parametrize("theme", [themes.DARK_256, themes.BLUE_ORANGE_LIGHT_256])
def test_only_the_themes_own_colours_reach_a_terminal_of_256(
    tmp_path: Path, theme: themes.Theme
) -> None:
    sample_job.write(tmp_path)
    config = tmp_path / "config.toml"
    config.write_text(f'[theme]\nname = "{theme.name}"\n')
    env = {"TERM": "xterm-256color", "COLORTERM": "", "ROCM_TUI_CONFIG": str(config)}
    command = [*WATCH, "--cache-dir", str(tmp_path), str(tmp_path)]
    with Terminal(command, (80, 24), env) as terminal:
        terminal.wait_for("8192×8192×8192")
        terminal.press("5")
        terminal.wait_for("Tuning saves")
        terminal.press("BTab")
        terminal.wait_for("ck4inductor is not installed")
        sent = terminal.screen(colours=True)
    assert "8;2;" not in sent
    given = [theme.foreground, theme.background, theme.surface, theme.panel, theme.accent]
    given += [theme.success, theme.warning, theme.error, *theme.variables.values()]
    known = {
        Color.parse(one).downgrade(ColorSystem.EIGHT_BIT).number
        for one in given
        if one and one.startswith("#")
    }
    seen = {int(number) for number in re.findall(r"[34]8;5;(\d+)", sent)}
    assert len(seen) > 3 and seen <= known
