"""M: what is suspect goes into the queue, the longest first; many are asked about."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Static

from backend.disk.layout import Layout
from rocm_tui.jobs import load
from rocm_tui.jobs.load import Load
from rocm_tui.session.query.grammar import EVERYTHING, parse
from rocm_tui.tui.app import RocmTui
from rocm_tui.tui.screens.dialogs import ConfirmScreen
from rocm_tui.tui.screens.watch import WatchScreen
from tests.support.odd_workers import odd_python
from tests.support.screen_lab import panes_of, screen_text, until, write_cache
from tests.support.terminal_lab import table


@asynccontextmanager
async def running(
    folder: Path, sizes: list[int], *paths: Path
) -> AsyncIterator[tuple[RocmTui, Pilot[int]]]:
    """The screen on a cache of mm; the fastest takes 0.01 ms a row of its operand."""
    write_cache(folder / "cache", *sizes)
    (folder / "act").write_text("hang")
    layout = Layout(folder / "cache")
    app = RocmTui(paths or (layout.root,), layout, python=odd_python(folder))
    async with app.run_test(size=(140, 40)) as pilot:
        try:
            yield app, pilot
        finally:
            app.stop_feed()


def told(app: RocmTui, words: str) -> bool:
    return any(words in note.message for note in app._notifications)


async def test_few_are_measured_unasked_the_longest_first(tmp_path: Path) -> None:
    async with running(tmp_path, [400, 730, 800, 1200, 8]) as (app, pilot):
        panes = await panes_of(app, pilot, 5)
        await until(pilot, lambda: "3 suspects (a)" in screen_text(app.screen).splitlines()[0])
        panes.table.let_through(parse("suspect"), "suspect")
        assert len(panes.table.rows) == 3
        panes.table.let_through(EVERYTHING, "")
        await pilot.press("a")
        await until(pilot, lambda: len(app.jobs.jobs()) == 3)
        titles = [job.title for job in reversed(app.jobs.jobs())]
        assert titles == [f"mm {m}×64 · 64×64 f32" for m in (1200, 800, 400)]
        await until(pilot, lambda: told(app, "Measuring 3 suspects, about 45 s in all (4)."))
        await pilot.press("a")
        await until(pilot, lambda: told(app, "No suspect is left to measure."))
        assert len(app.jobs.jobs()) == 3


async def test_many_are_asked_about(tmp_path: Path) -> None:
    async with running(tmp_path, [400 * n for n in range(1, 12)]) as (app, pilot):
        await panes_of(app, pilot, 11)
        for answer in ("escape", "enter"):
            assert not app.jobs.jobs()
            await pilot.press("a")
            await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
            assert "Measure 11 suspects" in str(app.screen.query_one("#what", Static).content)
            lines = str(app.screen.query_one("#lines", Static).content)
            assert "about 2 min 45 s in all" in lines and "the longest first" in lines
            await pilot.press(answer)
            await until(pilot, lambda: isinstance(app.screen, WatchScreen))
        await until(pilot, lambda: len(app.jobs.jobs()) == 11)


async def test_none_and_none_that_can_be_measured_are_said(tmp_path: Path) -> None:
    async with running(tmp_path / "a", [8]) as (app, pilot):
        await panes_of(app, pilot, 1)
        assert "suspect" not in screen_text(app.screen).splitlines()[0]
        await pilot.press("a")
        await until(pilot, lambda: told(app, "No suspect is left to measure."))
    log = tmp_path / "train.log"
    log.write_text(table(16).replace("0.0100", "0.0001"))
    async with running(tmp_path / "b", [8], log) as (app, pilot):
        await panes_of(app, pilot, 1)
        await pilot.press("a")
        await until(pilot, lambda: told(app, "1 suspect is known from logs alone"))
        await until(pilot, lambda: "press t to tune it here" in screen_text(app.screen))
        assert not app.jobs.jobs()


async def test_a_busy_machine_is_named_before_a_cpu_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(load.BUSY_LOAD)
    monkeypatch.setattr(load, "read_load", lambda: Load(20.0, 2, 71.5))
    async with running(tmp_path, [400]) as (app, pilot):
        await panes_of(app, pilot, 1)
        for key, title in (("m", "Measure anyway?"), ("a", "Measure 1 suspect?")):
            for answer in ("escape", "enter"):
                await pilot.press(key)
                await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
                assert title in str(app.screen.query_one("#what", Static).content)
                lines = str(app.screen.query_one("#lines", Static).content)
                assert "Load 20 on 2 cores: the result will probably be unclear." in lines
                await pilot.press(answer)
                await until(pilot, lambda: isinstance(app.screen, WatchScreen))
                assert answer == "enter" or not app.unfinished
            await until(pilot, lambda: app.unfinished)
            await pilot.press("x")
            await until(pilot, lambda: not app.unfinished)
