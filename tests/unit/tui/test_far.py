"""Tunings of another host on the screen: through a real ssh to a server of our own."""

from __future__ import annotations

import shlex
from itertools import repeat
from pathlib import Path

import pytest

from backend.disk.layout import Layout
from rocm_tui.ingest.far import source as far_source
from rocm_tui.tui.app import RocmTui
from rocm_tui.tui.screens.sources import SourcesScreen
from rocm_tui.tui.screens.watch import WatchScreen
from rocm_tui.tui.widgets.one_line import KeyBar, TitleBar
from tests.support.screen_lab import panes_of, screen_text, until, write_cache
from tests.support.ssh_lab import needs_sshd, serving, wait_for


@needs_sshd
async def test_a_far_cache_dir_beside_our_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of both; keys that write are dim on those of the other host, and copy its command; it is
    lost and comes back, and its rows stay."""
    here, far = tmp_path / "here", tmp_path / "far 'dir"
    write_cache(here, 8)
    write_cache(far, 900)
    monkeypatch.setattr(far_source, "pauses", lambda: repeat(1.2))
    copied: list[str] = []
    monkeypatch.setattr(RocmTui, "copy_to_clipboard", lambda self, text: copied.append(text))
    with serving(tmp_path / "ssh") as server:
        monkeypatch.setenv("ROCM_TUI_SSH", server.env)
        app = RocmTui((here, server.address(far)), Layout(here))
        async with app.run_test(size=(160, 40)) as pilot:
            panes = await panes_of(app, pilot, 2)
            table, keys = panes.table, app.screen.query_one("#keys", KeyBar)
            assert "loop:" in screen_text(table)
            await pilot.press("home")
            while not str(table.current and table.current.tuning.sources).count("ssh://"):
                await pilot.press("down")
            await until(pilot, lambda: "screen.key('tune')" in keys.idle)
            for key, word in (("p", "pin"), ("t", "tune"), ("m", "measure"), ("u", "unpin")):
                await pilot.press(key)
                await until(pilot, lambda word=word: copied and f"rocm-tui {word} " in copied[-1])
            assert isinstance(app.screen, WatchScreen) and not app.jobs.jobs()
            assert table.current is not None
            words = shlex.split(copied[0])
            assert words[:2] == ["ssh", "loop"]
            assert shlex.split(words[2])[1:] == [
                *("pin", table.current.id, "triton_mm-aa", "--cache-dir", str(far))
            ]
            server.stop()
            await until(pilot, lambda: "loop: lost " in screen_text(app.screen))
            assert table.total == 2
            await pilot.press("S")
            sources = app.screen
            assert isinstance(sources, SourcesScreen)
            await until(pilot, lambda: "lost 1" in screen_text(sources))
            await pilot.press("S")
            server.start()
            title = app.screen.query_one("#title", TitleBar)
            await until(pilot, lambda: "loop:" not in title.render_line(0).text)
            assert table.total == 2
            write_cache(far, 900, 7)
            await until(pilot, lambda: table.total == 3)
        app.stop_feed()
        wait_for(lambda: not server.sessions())
