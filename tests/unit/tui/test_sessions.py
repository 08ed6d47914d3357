"""The screen Sessions on real logs: states, the rows of one, the report of one."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import replace
from pathlib import Path

import pytest

from backend.disk.layout import Layout
from backend.disk.sessions import EventWriter
from backend.model.choice import Choice
from backend.model.events import (
    ActivityChanged,
    BenchmarkStarted,
    ChoiceSelected,
    ChoiceTimed,
    ProcessExited,
    SessionEnded,
    TuningStarted,
)
from backend.model.session import Session
from backend.model.tuning import Selection
from backend.processes.tree import identity
from tests.support.screen_lab import inputs, panes_of, running, screen_text, until

HOST = socket.gethostname()
BEGUN = time.time() - 600
CHOICES = (Choice(name="mm", hash="mm-bb"), Choice(name="triton_mm_1", hash="triton_mm-aa"))


def session(number: int, **facts: object) -> Session:
    """One that this process could have been."""
    known = Session(
        id=f"s{number}",
        host=HOST,
        pid=number,
        argv=("python", f"train{number}.py"),
        torch="2.13.0+cpu",
        device="cpu",
        started=BEGUN + number,
        process=identity(os.getpid()),
    )
    return replace(known, **facts)  # type: ignore[arg-type]


def tune(log: EventWriter, n: int, m: int, by: Selection | None) -> None:
    when = BEGUN + 60 * n + log.session.pid
    shapes, strides = ((m, 64), (64, 64)), ((64, 1), (64, 1))
    dtypes = ("torch.float32",) * 2
    log.write(
        TuningStarted(n, when, "mm", inputs(m), "highest", shapes, strides, dtypes, "cpu", CHOICES)
    )
    if by != "cache":
        log.write(BenchmarkStarted(n, when))
        log.write(ChoiceTimed(n, "mm-bb", 0.02))
    if by == "timing":
        log.write(ChoiceTimed(n, "triton_mm-aa", 0.01))
    if by is not None:
        seconds = 2.0 if by == "timing" else None
        log.write(ChoiceSelected(n, when + 1, "triton_mm-aa", by, seconds, None))


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A session, its rerun that timed nothing, and a job with a rank that tunes, one that died."""
    layout = Layout(tmp_path)
    for number, by in ((11, "timing"), (12, "cache")):
        log = EventWriter(layout, session(number))
        for n, m in enumerate((128, 256), start=1):
            tune(log, n, m, "timing" if by == "timing" else "cache")
        log.write(SessionEnded(BEGUN + 200))
        log.close()
    head = EventWriter(layout, session(20, id="job-20", torch="", device=None))
    head.write(ActivityChanged(BEGUN, "running"))
    rank = EventWriter(layout, session(21, id="job-21", rank=0))
    tune(rank, 1, 512, None)
    dead = EventWriter(layout, session(22, id="job-22", rank=1))
    dead.write(ProcessExited(BEGUN + 100, -9))
    return tmp_path


@pytest.mark.parametrize("size", [(80, 24), (140, 45), (220, 60)])
async def test_what_each_process_does(cache: Path, size: tuple[int, int]) -> None:
    async with running(cache, cache, size=size) as (app, pilot):
        await panes_of(app, pilot, 3)
        await pilot.press("6")
        await until(pilot, lambda: "died by SIGKILL" in screen_text(app.screen))
        text = screen_text(app.screen)
        assert "tuning mm, 1 of 2" in text and text.count(" done ") == 2
        order = [text.index(f"{HOST}-{pid}") for pid in (20, 21, 22, 12, 11)]
        assert order == sorted(order)
        assert "5 sessions" in text and "2 alive" in text
        assert f"{HOST}-20, running" in text  # of the one under the cursor, in full
        await pilot.press("6")
        assert app.screen.query("#body")


async def test_enter_says_that_a_session_recorded_no_tuning(cache: Path) -> None:
    async with running(cache, cache, size=(140, 45)) as (app, pilot):
        await panes_of(app, pilot, 3)
        await pilot.press("6", "down", "down", "enter")
        none = f"{HOST}-22 recorded no tuning."
        await until(pilot, lambda: any(none in notice.message for notice in app._notifications))
        assert app.screen.query("#sessions"), "an empty table says less"


async def test_enter_shows_its_rows_alone(cache: Path) -> None:
    async with running(cache, cache, size=(140, 45)) as (app, pilot):
        panes = await panes_of(app, pilot, 3)
        await pilot.press("6", "down", "enter")
        await until(pilot, lambda: len(panes.table.rows) == 1)
        assert panes.table.filter == f"session:{HOST}-21"
        await pilot.press("escape", "6", "enter")  # the one that stands for the whole job
        await until(pilot, lambda: panes.table.filter == "session:job")
        assert len(panes.table.rows) == 1


async def test_the_report_of_one_session_and_the_way_to_the_others(cache: Path) -> None:
    async with running(cache, cache, size=(140, 45)) as (app, pilot):
        await panes_of(app, pilot, 3)
        await pilot.press("6", "end", "e")
        await until(pilot, lambda: "Tuning took 4.0 s" in screen_text(app.screen))
        assert f"session {HOST}-11" in screen_text(app.screen)
        await pilot.press("escape", "5")
        await until(pilot, lambda: "3 tunings · 3 sessions" in screen_text(app.screen))
        await pilot.press("left_square_bracket")
        await until(pilot, lambda: f"session {HOST}-11" in screen_text(app.screen))
        assert "session 3 of 3" in screen_text(app.screen)
        await pilot.press("left_square_bracket")
        await until(pilot, lambda: f"session {HOST}-12" in screen_text(app.screen))
        await until(pilot, lambda: "took nothing here" in screen_text(app.screen))


async def test_what_comes_from_the_cache_is_no_news(cache: Path) -> None:
    async with running(cache, cache, size=(140, 45)) as (app, pilot):
        panes = await panes_of(app, pilot, 3)
        await pilot.press("down")
        log = EventWriter(Layout(cache), session(30))
        tune(log, 1, 128, None)
        tune(log, 2, 256, None)
        await until(pilot, lambda: panes.table.total > 3)
        assert panes.table.unseen == 0  # they run
        for n in (1, 2):
            log.write(ChoiceSelected(n, BEGUN, "triton_mm-aa", "cache", None, None))
        again = EventWriter(Layout(cache), session(31))
        tune(again, 1, 128, "cache")
        tune(again, 2, 2048, "timing")
        await until(pilot, lambda: panes.table.unseen == 1)
        await until(pilot, lambda: "1 new ↑" in screen_text(app.screen))


async def test_a_worker_of_ours_is_called_one(tmp_path: Path) -> None:
    argv = ("/env/bin/python", "/opt/rocm_tui/hook_path/rocm_tui_worker.py", "/opt/backend")
    log = EventWriter(Layout(tmp_path), session(7, argv=argv))
    tune(log, 1, 8, "timing")
    log.close()
    async with running(tmp_path, size=(140, 45)) as (app, pilot):
        await panes_of(app, pilot, 1)
        await pilot.press("6")
        await until(pilot, lambda: "a worker of rocm-tui" in screen_text(app.screen))
