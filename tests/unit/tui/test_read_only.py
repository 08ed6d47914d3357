"""Read-only: whatever writes or starts work is refused, by one rule; a drifted pin stays so."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pytest

from backend.disk.layout import Layout
from backend.pins.store import PinStore
from rocm_tui.cli.entry import main
from rocm_tui.tui.app import RocmTui
from rocm_tui.tui.host import Requests
from rocm_tui.tui.screens.dialogs import ConfirmScreen
from rocm_tui.tui.screens.watch import WatchScreen
from tests.support.screen_lab import asked, panes_of, running, screen_text, until, write_cache


def content(folder: Path) -> Mapping[str, bytes]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def said(app: RocmTui, words: str) -> bool:
    return any(words in note.message for note in app._notifications)


async def test_no_key_writes_or_starts_anything(tmp_path: Path) -> None:
    path = write_cache(tmp_path, 8, 900)
    old = path.read_bytes()
    layout = Layout(tmp_path)
    store = PinStore(layout)
    app = RocmTui((tmp_path,), layout, read_only=True)
    async with app.run_test(size=(140, 40)) as pilot:
        panes = await panes_of(app, pilot, 2)
        row = panes.table.current
        assert row is not None and row.tuning.key is not None
        store.pin(None, row.tuning.key, "mm-bb", note="by another program")
        path.write_bytes(old)  # it has drifted
        await until(pilot, lambda: row.key and app.feed.pins and "↻ #2" in screen_text(panes.table))
        before = content(tmp_path)
        for key in ("p", "u", "v", "t", "m", "M", "g", "U"):
            app.clear_notifications()
            await pilot.press(key)
            await until(pilot, lambda: said(app, "Read-only"))
            assert isinstance(app.screen, WatchScreen), key
        for key in ("r", "v", "V", "u", "U"):
            await pilot.press("P")
            app.clear_notifications()
            await pilot.press(key)
            await until(pilot, lambda: said(app, "Read-only"))
            await pilot.press("escape")
        asks = [name for name, _ in inspect.getmembers(Requests, inspect.isfunction)]
        for name in asks:
            if not name.startswith("_"):
                getattr(app.ask, name)(*[None] * 2)
        assert not app.jobs.jobs() and content(tmp_path) == before
        assert "READ-ONLY" in screen_text(app.screen).splitlines()[0]
        await pilot.press("ctrl+r")
        await until(pilot, lambda: said(app, "--no-read-only"))
        assert app.read_only
        app.stop_feed()
    assert store.status()[0].state == "drifted"


async def test_the_key_turns_it_on_and_after_a_question_off(tmp_path: Path) -> None:
    path = write_cache(tmp_path, 8)
    async with running(tmp_path) as (app, pilot):
        panes = await panes_of(app, pilot, 1)
        await pilot.press("ctrl+r", "p")
        await until(pilot, lambda: said(app, "Read-only (ctrl+r)"))
        assert isinstance(app.screen, WatchScreen)
        title = "READ-ONLY"
        await until(pilot, lambda: title in screen_text(app.screen).splitlines()[0])
        await pilot.press("ctrl+r")
        await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, WatchScreen))
        assert app.read_only and cast(bool, app.feed.read_only)
        await pilot.press("ctrl+r")
        await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.press("enter")
        await until(pilot, lambda: not app.read_only and isinstance(app.screen, WatchScreen))
        assert title not in screen_text(app.screen).splitlines()[0]
        before = path.read_bytes()
        await pilot.press("p")
        await asked(app, pilot)
        await pilot.press("enter")
        await until(pilot, lambda: panes.table.current and panes.table.current.pin)
        assert path.read_bytes() != before


def test_no_program_is_started(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["watch", "--read-only", "--cache-dir", str(tmp_path), "--", "touch", "made"]
    assert main(command) == 2
    assert "starts no program" in capsys.readouterr().err
