"""Jobs on the screen: started, followed, cancelled, lost; and a screen that lives through it."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest
from textual.pilot import Pilot
from textual.widgets import Input, Static

from backend.cache.autotune import read_caches
from backend.disk.layout import Layout
from backend.pins.store import PinStore
from rocm_tui.jobs.queue import Job
from rocm_tui.jobs.warm import MOST
from rocm_tui.tui.app import RocmTui
from rocm_tui.tui.screens.dialogs import Tick, TuneScreen
from rocm_tui.tui.screens.help import HelpScreen
from rocm_tui.tui.screens.jobs import JobsScreen
from rocm_tui.tui.screens.pins import PinsScreen
from rocm_tui.tui.screens.watch import WatchScreen
from tests.support.odd_workers import odd_python
from tests.support.screen_lab import SIZES, panes_of, screen_text, until, write_cache
from tests.support.terminal_lab import WATCH, Terminal, alive, command_line, needs_tmux, table

BMM = (
    "[('cpu', 'torch.float32', 8, 128, 256, 32768, 256, 1, 0), "
    "('cpu', 'torch.float32', 8, 256, 192, 49152, 192, 1, 0)]"
)


@asynccontextmanager
async def running(
    folder: Path, act: str, *paths: Path, size: tuple[int, int] = (80, 24)
) -> AsyncIterator[tuple[RocmTui, Pilot[int]]]:
    """The screen, on a cache with an mm, with workers that do `act`."""
    write_cache(folder / "cache", 8)
    (folder / "act").write_text(act)
    layout = Layout(folder / "cache")
    app = RocmTui(paths or (layout.root,), layout, python=odd_python(folder))
    async with app.run_test(size=size) as pilot:
        try:
            yield app, pilot
        finally:
            app.stop_feed()


async def start_tuning(app: RocmTui, pilot: Pilot[int]) -> None:
    await pilot.press("t")
    await until(pilot, lambda: isinstance(app.screen, TuneScreen))
    await pilot.press("enter")
    await until(pilot, lambda: isinstance(app.screen, WatchScreen) and app.jobs.jobs())


def told(app: RocmTui, words: str) -> Callable[[], bool]:
    return lambda: any(words in note.message for note in app._notifications)


def only(app: RocmTui) -> Job:
    (job,) = app.jobs.jobs()
    return job


@pytest.mark.parametrize("size", SIZES)
async def test_a_tuning_is_asked_for_followed_and_cancelled(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    async with running(tmp_path, "hang", size=size) as (app, pilot):
        await panes_of(app, pilot, 1)
        assert not app.unfinished
        await start_tuning(app, pilot)
        await until(pilot, lambda: "1 job running" in screen_text(app.screen))
        await until(pilot, lambda: only(app).progress.total == 4)
        await until(pilot, lambda: "▶ 1/4" in screen_text(app.screen))
        assert "x cancel" in screen_text(app.screen)
        await pilot.press("4")
        await until(pilot, lambda: isinstance(app.screen, JobsScreen))
        await until(pilot, lambda: "acting: hang" in screen_text(app.screen))
        text = screen_text(app.screen)
        assert "running" in text and "1/4" in text and "mm 8×64" in text
        assert "x ~500.0 µs" in text
        assert all(len(line) <= size[0] for line in text.splitlines())
        worker = int((tmp_path / "hang.pid").read_text())
        await pilot.press("x")
        await until(pilot, lambda: "cancelled" in screen_text(app.screen))
        await until(pilot, lambda: not alive(worker))
        await until(pilot, told(app, "Cancelled: tune mm"))
        await pilot.press("x")
        await until(pilot, told(app, "That job is over"))
        await pilot.press("y", "tab", "4")
        await until(pilot, lambda: isinstance(app.screen, WatchScreen))
        assert "job" not in screen_text(app.screen).splitlines()[0]


async def test_x_in_watch_ends_the_job_of_the_tuning_under_the_cursor(tmp_path: Path) -> None:
    async with running(tmp_path, "hang") as (app, pilot):
        await panes_of(app, pilot, 1)
        await pilot.press("x")
        await until(pilot, told(app, "No job of this screen"))
        await start_tuning(app, pilot)
        await pilot.press("m")
        await until(pilot, lambda: len(app.unfinished) == 2)
        await until(pilot, lambda: "1 job running, 1 queued" in screen_text(app.screen))
        assert [job.kind for job in app.jobs.jobs()] == ["measure", "tune"]
        assert [job.state for job in app.jobs.jobs()] == ["queued", "running"]
        await pilot.press("x", "x")
        await until(pilot, lambda: not app.unfinished)


async def test_leaving_asks_where_that_ends_a_job(tmp_path: Path) -> None:
    async with running(tmp_path, "hang") as (app, pilot):
        await panes_of(app, pilot, 1)
        await start_tuning(app, pilot)
        await pilot.press("q")
        await until(pilot, lambda: app.asking)
        assert str(app.screen.query_one("#lines", Static).content).startswith("running: tune mm ")
        await pilot.press("escape")
        await until(pilot, lambda: not app.asking)
        assert app.unfinished and app.is_running
        await pilot.press("q")
        await until(pilot, lambda: app.asking)
        await pilot.press("enter")
        await until(pilot, lambda: app._exit)


async def test_a_failed_job_says_why_and_the_screen_goes_on(tmp_path: Path) -> None:
    async with running(tmp_path, "die") as (app, pilot):
        await panes_of(app, pilot, 1)
        await start_tuning(app, pilot)
        await until(pilot, told(app, "Failed: tune mm"))
        await pilot.press("4")
        await until(pilot, lambda: "signal 9" in screen_text(app.screen))
        assert "acting: die" in screen_text(app.screen) and "failed" in screen_text(app.screen)
        await pilot.press("question_mark")
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))


async def test_the_question_refuses_what_makes_no_sense(tmp_path: Path) -> None:
    async with running(tmp_path, "ok") as (app, pilot):
        await panes_of(app, pilot, 1)
        await pilot.press("t")
        await until(pilot, lambda: isinstance(app.screen, TuneScreen))
        screen = app.screen
        wrong = screen.query_one("#wrong", Static)
        for name, text, said in (
            ("budget", "soon", "number of seconds"),
            ("backends", "TRITTON", "no such backend: TRITTON"),
            ("device", "gpu", "no device"),
        ):
            field = screen.query_one(f"#{name}", Input)
            field.value = text
            await pilot.press("enter")
            await until(pilot, lambda: said in str(wrong.content))  # noqa: B023
            field.value = ""
        assert not app.jobs.jobs()
        ours = screen.query_one("#templates", Tick)
        ours.focus()
        await pilot.press("space")
        assert ours.value and "[x] rocm-tui's templates" in str(ours.content)
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, WatchScreen))
        assert not app.jobs.jobs()


async def test_what_only_a_log_tells_can_be_tuned_but_not_measured(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(table(16))
    async with running(tmp_path, "hang", log) as (app, pilot):
        await panes_of(app, pilot, 1)
        await pilot.press("m")
        await until(pilot, told(app, "known from a log only"))
        await start_tuning(app, pilot)
        assert only(app).key is None and only(app).title == "mm 16×64 · 64×64 f32"
        await pilot.press("x")
        await until(pilot, lambda: only(app).state == "cancelled")


async def test_the_log_of_a_job_is_read_wherever_the_screen_looks(tmp_path: Path) -> None:
    """Only a training log is watched; the tuning that its row asks for appears all the same."""
    log = tmp_path / "train.log"
    log.write_text(table(16))
    async with running(tmp_path, "record", log) as (app, pilot):
        panes = await panes_of(app, pilot, 1)
        await start_tuning(app, pilot)
        await until(pilot, lambda: panes.table.total == 2)
        newest = panes.table.rows[0].tuning
        assert newest.state == "running" and newest.sources == (only(app).progress.log,)
        assert "0/2" in screen_text(panes.table)
        panes.table.move_cursor(0)
        await pilot.press("x")
        await until(pilot, lambda: only(app).state == "cancelled")
        await until(pilot, lambda: panes.table.rows[0].tuning.state == "cut")


async def test_the_palette_offers_what_applies(tmp_path: Path) -> None:
    async with running(tmp_path, "hang") as (app, pilot):
        await panes_of(app, pilot, 1)
        before = {command.title for command in app.get_system_commands(app.screen)}
        assert {"job: Tune again", "job: Measure choices", "view: Show jobs"} <= before
        assert "job: Cancel job of tuning" not in before
        await start_tuning(app, pilot)
        after = {command.title for command in app.get_system_commands(app.screen)}
        assert "job: Cancel job of tuning" in after


def patiently(terminal: Terminal, text: str) -> str:
    """Wait for this regular expression; compiling takes its time where other tests run beside."""
    end = time.monotonic() + 240
    while not re.search(text, screen := terminal.screen()):
        assert time.monotonic() < end, screen
        time.sleep(0.1)
    return screen


def workers(terminal: Terminal) -> list[psutil.Process]:
    """Those that run jobs; not what only looks whether a Python has torch."""
    found = psutil.Process(terminal.pid).children(recursive=True)
    return [process for process in found if "rocm_tui_worker" in command_line(process)]


@pytest.mark.torch
@pytest.mark.parametrize("_", [pytest.param(0, marks=needs_tmux)])
def test_a_real_tuning_in_a_real_terminal(tmp_path: Path, _: int) -> None:
    """Started, followed on its row, cancelled; a second one is killed; the screen goes on."""
    cache = tmp_path / "cache" / "cache" / ("4" * 64)
    cache.parent.mkdir(parents=True)
    times = {"bmm-aa": 0.01, "CppMicroGemmFP32Vec-bb": 0.02}
    entry = {"bmm": {BMM: {"highest": times}}}
    cache.write_text(json.dumps({"system": {}, "cache": entry}))
    command = [*WATCH, "--cache-dir", str(tmp_path / "cache"), "--python", sys.executable]
    with Terminal(command, (110, 30)) as terminal:
        terminal.wait_for("8×128×192×256")
        terminal.press("t")
        terminal.wait_for("Tune bmm 8×128×256")
        terminal.press("Tab", "Tab", "Tab", "Space")
        terminal.wait_for("[x] rocm-tui's templates")
        terminal.press("Enter")
        terminal.wait_for("1 job running")
        patiently(terminal, "[1-4]/5")
        ours = workers(terminal)
        assert ours
        terminal.press("x")
        terminal.wait_for("Cancelled: tune bmm")
        terminal.wait_until(lambda: not any(alive(p.pid) for p in ours), "no process is left")
        terminal.wait_for("cut")

        terminal.press("t")
        terminal.wait_for("Tune bmm 8×128×256")
        terminal.press("Enter")
        terminal.wait_until(lambda: workers(terminal), "a worker")
        os.kill(workers(terminal)[0].pid, signal.SIGKILL)
        terminal.wait_for("Failed: tune bmm")
        terminal.press("4")
        terminal.wait_for("cancelled ", "failed", "signal 9")
        terminal.press("Escape")
        terminal.wait_for("cancelled ", gone=True)
        terminal.press("?")
        terminal.wait_for("Keys: Watch")
        assert workers(terminal) == []
        pid = terminal.pid
        terminal.press("q")
        terminal.wait_for("Keys: Watch", gone=True)
        terminal.press("q")
        terminal.wait_until(lambda: not alive(pid), "the end")


@pytest.mark.torch
async def test_a_pin_is_verified_and_its_worker_waits_for_the_next(tmp_path: Path) -> None:
    """A pin that no compile can be seen to call is a failed job that says why."""
    cache = tmp_path / "cache"
    write_cache(cache, 8)
    layout = Layout(cache)
    (file,), _ = read_caches(layout)
    ((key, times),) = file.entries.items()
    PinStore(layout).pin(None, key, min(times, key=times.__getitem__))
    app = RocmTui((cache,), layout, python=sys.executable)
    async with app.run_test(size=(100, 30)) as pilot:
        try:
            await panes_of(app, pilot, 1)
            await pilot.press("3")
            await until(pilot, lambda: isinstance(app.screen, PinsScreen) and app.feed.pins)
            for count in (1, 2):
                await pilot.press("v")
                await until(
                    pilot,
                    lambda count=count: [job.over for job in app.jobs.jobs()] == [True] * count,
                )
            second, first = app.jobs.jobs()
            assert (first.kind, first.state) == ("verify", "failed") == (second.kind, second.state)
            assert first.reason.startswith("not verified: ") and first.reason == second.reason
            kept = app.jobs._workers.waiting
            assert 0 < len(kept) <= MOST, "those of the last modes that were tried"
        finally:
            app.stop_feed()
    assert not any(map(alive, kept))
