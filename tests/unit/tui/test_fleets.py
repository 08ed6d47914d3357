"""Fleets on the screen: what the record of a run tells, and who cancels."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from backend.disk.layout import Layout
from rocm_tui.actions.fleet import Run, Wanted
from rocm_tui.cli.entry import main
from rocm_tui.fleet.messages import Unit
from rocm_tui.fleet.pipe import Pipes
from rocm_tui.fleet.places import record_path
from rocm_tui.fleet.record import Reader, ask_to_cancel, runs
from rocm_tui.fleet.standing import Standing
from rocm_tui.tui.app import RocmTui
from rocm_tui.tui.screens.fleets import FleetsScreen
from tests.support.screen_lab import all_text, running, until
from tests.support.waiting_agent import waiting_starts, waiting_unit

WANTED = Wanted(fleet=("test",), canary=False)


@contextmanager
def at_work(root: Path, units: list[Unit], *names: str) -> Iterator[Run]:
    """A run with a driver of its own, which ends with the block."""
    starts = waiting_starts(list(names)) | waiting_starts(["mi250/0"], "6" * 64)
    with Run.begin(Layout(root), WANTED, units) as run:
        driver = threading.Thread(target=run.work, args=(Pipes(starts),))
        driver.start()
        try:
            yield run
        finally:
            if driver.is_alive() and run.standing.counts().left:
                ask_to_cancel(Layout(root), run.name, None)
            driver.join(180)
            assert not driver.is_alive()


def told(app: RocmTui, words: str) -> bool:
    return any(words in note.message for note in app._notifications)


def standing_of(run: Run) -> Standing:
    standing = Standing()
    standing.apply(Reader(record_path(Layout(run.path.parents[2]), run.name)).news())
    return standing


async def test_hosts_and_problems_are_shown_and_one_is_cancelled(tmp_path: Path) -> None:
    units = [waiting_unit(1, 600, "mm long"), waiting_unit(2, 0.2, "mm short")]
    units.append(waiting_unit(3, 0.1, "own conv"))
    with at_work(tmp_path, units, "mi300/0", "mi300/1") as run:
        async with running(tmp_path, size=(140, 40)) as (app, pilot):
            await pilot.press("F")
            for words in ("merged", "failed", run.name, "at work: 1 of 3 tuned", "1 failure",
                          "mm long", "gfx942, 304 CUs", "hash 666666666666"):  # fmt: skip
                await until(pilot, lambda words=words: words in all_text(app))
            shown = all_text(app)
            lines = [line for line in shown.splitlines() if "mi250/0" in line]
            assert "refused" in lines[0] and "hash 666666666666" in lines[-1]
            await pilot.press("tab", "home")  # what runs stands first
            await pilot.press("x")
            await until(pilot, lambda: "Cancel the problem mm long" in all_text(app))
            assert f"rocm-tui fleet cancel {run.name} {units[0].id}" in all_text(app)
            await pilot.press("enter")
            await until(pilot, lambda: standing_of(run).over is not None)
            await until(pilot, lambda: "over: 1 problem of 3" in all_text(app))
            await pilot.press("X")
            await until(pilot, lambda: told(app, "No driver is at this run"))
    found = standing_of(run)
    states = {unit.unit.title: unit.state for unit in found.units.values()}
    assert states == {"mm long": "cancelled", "mm short": "merged", "own conv": "failed"}


async def test_runs_are_turned_over_and_read_only_cancels_none(tmp_path: Path) -> None:
    with at_work(tmp_path, [waiting_unit(1, 0.1, "mm first")], "a/0") as first:
        while first.standing.counts().left:
            time.sleep(0.05)
    with at_work(tmp_path, [waiting_unit(2, 600, "mm second")], "a/0") as second:
        async with running(tmp_path) as (app, pilot):
            app.read_only = True
            await pilot.press("F")
            await until(
                pilot, lambda: "mm second" in all_text(app) and second.name in all_text(app)
            )
            await pilot.press("X")
            await until(pilot, lambda: told(app, "Read-only"))
            await pilot.press("left_square_bracket")
            await until(pilot, lambda: "mm first" in all_text(app) and first.name in all_text(app))
            assert "over: 1 problem of 1 tuned and in the cache" in all_text(app)
            assert isinstance(app.screen, FleetsScreen)
    assert standing_of(second).counts().cancelled == 1


async def test_a_driver_that_is_killed_leaves_nobody_at_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its record says no more than that a problem was lent to an agent, which is gone with it."""
    program = (
        "import sys, time; from tests.unit.tui import test_fleets as t\n"
        "from pathlib import Path\n"
        "with t.at_work(Path(sys.argv[1]), [t.waiting_unit(1, 600, 'mm long')], 'a/0'):\n"
        "    time.sleep(600)"
    )
    driver = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)])
    try:
        async with running(tmp_path, size=(140, 40)) as (app, pilot):
            await until(pilot, lambda: bool(runs(Layout(tmp_path))))
            await pilot.press("F")
            await until(pilot, lambda: " works " in all_text(app) and "running" in all_text(app))
            driver.kill()
            driver.wait()
            await until(pilot, lambda: "its driver is gone" in all_text(app))
            await until(pilot, lambda: " works " not in all_text(app))
            assert " ended " in all_text(app) and "waiting" in all_text(app)
            assert "running" not in all_text(app)
    finally:
        driver.kill()
        driver.wait()
    assert main(["fleet", "show", "--cache-dir", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "go on with: rocm-tui tune --resume " in shown
    assert "works" not in shown and "running" not in shown


async def test_without_a_run_it_says_how_to_begin_one(tmp_path: Path) -> None:
    async with running(tmp_path, size=(100, 30)) as (app, pilot):
        await pilot.press("F")
        await until(pilot, lambda: "tune --fleet local --all" in all_text(app))


def test_the_command_shows_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with at_work(tmp_path, [waiting_unit(1, 0.1), waiting_unit(2, 0.1, "own conv")], "a/0") as run:
        while run.standing.counts().left:
            time.sleep(0.05)
    assert main(["fleet", "show", "--cache-dir", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "state" in shown and "merged" in shown and "mi250/0" in shown
    assert "mm-1 ~1.000 ms" in shown and "it cannot" in shown
