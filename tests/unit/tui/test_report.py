"""The report's pages, and plots."""

from __future__ import annotations

import asyncio
from pathlib import Path
from threading import Event
from time import sleep
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from rocm_tui.render.plot import BESIDES, Mark, axis, draw
from rocm_tui.tui.screens import report as report_screen
from rocm_tui.tui.screens.report import ReportPage, ReportScreen
from rocm_tui.tui.screens.watch import WatchScreen
from tests.support import sample_job
from tests.support.screen_lab import panes_of, running, screen_text, until


@pytest.mark.parametrize("size", [(80, 24), (200, 60)])
async def test_every_page_by_its_number_and_by_turning(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    sample_job.write(tmp_path)
    async with running(tmp_path, size=size) as (app, pilot):
        await panes_of(app, pilot, 10)
        await pilot.press("5")
        await until(pilot, lambda: isinstance(app.screen, ReportScreen))
        await until(pilot, lambda: "Tuning saves" in screen_text(app.screen))
        for key, says in (
            ("alt+2", "2 problems were tuned again"),
            ("alt+3", "1 of 2 problems agrees; 1 differs."),
            ("alt+4", "ck4inductor is not installed"),
            ("tab", "Tuning saves"),
            ("shift+tab", "ck4inductor is not installed"),
        ):
            await pilot.press(key)
            await until(pilot, lambda says=says: says in screen_text(app.screen))  # type: ignore[misc]
            assert all(len(line) <= size[0] for line in screen_text(app.screen).splitlines())
        await pilot.click("#pages", offset=(4, 0))
        await until(pilot, lambda: "Tuning saves" in screen_text(app.screen))
        page = app.screen.query_one("#saved", ReportPage)
        await pilot.press("j")
        row = page.current
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, WatchScreen))
        assert row is not None and isinstance(app.screen, WatchScreen) and app.screen.row
        assert app.screen.row.id == row.id


async def test_the_report_follows_what_is_watched(tmp_path: Path) -> None:
    log = sample_job.Log(tmp_path, 0)
    log.tune("mm", sample_job.TALL, {"mm": 0.02, "triton_mm_4": 0.01}, ago=60)
    async with running(tmp_path) as (app, pilot):
        await panes_of(app, pilot, 1)
        await pilot.press("5")
        await until(pilot, lambda: "saved 1" in screen_text(app.screen))
        log.tune("mm", sample_job.HEAD, {"mm": 2.0, "triton_mm_4": 1.9}, ago=30)
        await until(pilot, lambda: "saved 2" in screen_text(app.screen))
        await pilot.press("5")
        assert isinstance(app.screen, WatchScreen)


@pytest.mark.parametrize("key", ["3", "7", "4"])
async def test_a_key_before_the_first_source_was_read(tmp_path: Path, key: str) -> None:
    async with running(tmp_path) as (app, pilot):
        app.action_open("report")
        await pilot.press(key, "5")
        await until(pilot, lambda: "No tuning has times to compare yet." in screen_text(app.screen))


@pytest.mark.parametrize("turns", range(0, 12, 2))
async def test_a_screen_that_closes_while_its_report_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    """Its widgets go one by one, in several turns of the event loop."""
    closing, compute = Event(), report_screen._look

    def look(*of: Any) -> object:
        contents = compute(*of)
        assert closing.wait(20)
        return contents

    monkeypatch.setattr(report_screen, "_look", look)
    async with running(tmp_path) as (app, pilot):
        app.action_open("report")
        await pilot.pause()
        app.pop_screen()
        for _ in range(turns):
            await asyncio.sleep(0)
        closing.set()
        sleep(0.05)  # the thread ends before the next turn
        await pilot.pause(0.1)
        assert isinstance(app.screen, WatchScreen)


async def test_nothing_watched_is_a_report_of_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as (app, pilot):
        await pilot.press("5")
        await until(pilot, lambda: "No tuning has times to compare yet." in screen_text(app.screen))
        await pilot.press("shift+tab", "j", "enter", "y")
        assert "Requested backends unknown" in screen_text(app.screen)


def plain(lines: list[tuple[tuple[str, str], ...]]) -> list[str]:
    return ["".join(text for text, _ in line) for line in lines]


def test_a_curve_and_its_points_stand_where_the_axes_say() -> None:
    x, y = axis([2.0, 500.0], 60), axis([2.0, 500.0], 12)
    marks = [Mark(10.0, 10.0, "A", ""), Mark(1000.0, 1.0, "B", "")]
    lines = plain(draw(x, y, lambda at: min(100.0, at), marks, "t"))
    assert len(lines) == 12 + BESIDES
    assert lines[0].strip() == "t" and "100 ┤" in lines[4]
    # It bends at 100, two thirds of the way along, the flat part a third below the top.
    flat = next(line for line in lines if "⠉⠉⠉" in line or "⣀⣀⣀" in line or "⠒⠒⠒" in line)
    assert 40 <= flat.index(flat.rstrip()[-1]) - 8 <= 60 and lines.index(flat) in (4, 5)
    assert lines[12].rstrip().endswith("B") and any(line[8 + 20] == "A" for line in lines[1:13])
    assert lines[-2].count("┬") == len(lines[-1].split())


@given(
    st.lists(st.floats(1e-4, 1e5), min_size=1, max_size=5), st.integers(3, 90), st.integers(1, 30)
)
def test_any_plot_fills_its_cells(values: list[float], width: int, height: int) -> None:
    x, y = axis(values, width), axis(values, height)
    marks = [Mark(value, value, "•", "") for value in values]
    lines = plain(draw(x, y, lambda at: at, marks, "t"))
    assert len(lines) == height + BESIDES
    assert {cell_len(line) for line in lines[1 : height + 1]} == {width + 8}
    assert any("•" in line for line in lines)
