"""The border between the table and the choices, and the output below both."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import pytest
from textual.pilot import Pilot

from backend.disk.layout import Layout
from backend.model.tuning import Tuning
from backend.processes.tree import identity, lives
from rocm_tui.ingest.records import Seen
from rocm_tui.launch.program import Detached, Launched, Program, kept_programs
from rocm_tui.tui.app import RocmTui
from rocm_tui.tui.base import after
from rocm_tui.tui.screens.output import OutputScreen
from rocm_tui.tui.screens.watch import WatchScreen
from rocm_tui.tui.widgets.line_view import LineView
from rocm_tui.tui.widgets.output import OutputPane, OutputView
from rocm_tui.tui.widgets.panes import WIDE, columns_of_table, moved, size_of
from tests.support.screen_lab import keys_of, panes_of, running, screen_text, until, write_cache


def test_the_table_gets_what_it_wants_and_the_choices_the_rest() -> None:
    assert columns_of_table(220, 100) == 100
    assert columns_of_table(220, 400) == 220 - 1 - 72
    assert columns_of_table(150, 400) == 150 - 1 - 60
    assert columns_of_table(220, 0) == 36
    assert moved(100, 500, 200, beside=True) == 164
    assert moved(10, -50, 40, beside=False) == 5
    assert size_of(0.25, 200, beside=True) == 50


async def test_no_column_is_missing_while_the_choices_have_room(tmp_path: Path) -> None:
    write_cache(tmp_path, 8, 16)
    async with running(tmp_path, size=(220, 60)) as (app, pilot):
        panes = await panes_of(app, pilot, 2)
        wanted = panes.table.wanted
        await until(pilot, lambda: panes.table.size.width == wanted)
        assert "FLOP/s" in screen_text(panes.table) and "LEAD" in screen_text(panes.table)
        assert panes.detail.size.width == 220 - 1 - wanted


async def test_what_comes_before_the_panes_are_mounted_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as (app, pilot):
        assert isinstance(app.screen, WatchScreen)
        monkeypatch.setattr(app, "_update", lambda: None)  # nothing else comes
        for m in (16, 32):  # in one turn of the event loop
            app.feed.model.apply([Seen(f"x#{m}", Tuning("mm", ((m, 8), (8, 8))))])
            app.screen.update()
        assert app.screen.panes is not None and not app.screen.panes.is_mounted
        panes = await panes_of(app, pilot, 2)
        assert "32×8×8" in screen_text(panes.table)


@pytest.mark.parametrize(("size", "by"), [((220, 60), 4), ((140, 45), 1)])
async def test_keys_and_the_mouse_move_the_border(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int], by: int
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    write_cache(tmp_path, 8)
    wide = size[0] >= WIDE
    async with running(tmp_path, size=size) as (app, pilot):
        panes = await panes_of(app, pilot, 1)

        def part() -> int:
            return panes.table.size.width if wide else panes.table.size.height

        await pilot.pause()
        await until(pilot, lambda: not wide or part() == panes.table.wanted)
        before = part()
        await pilot.press("greater_than_sign", "greater_than_sign", "less_than_sign")
        await until(pilot, lambda: part() == before + by)
        where = panes.detail.region
        at = (where.x - 1, 10) if wide else (20, where.y)
        to = (at[0] - 30, 10) if wide else (20, at[1] - 6)
        await pilot.mouse_down(offset=at)
        await pilot.hover(offset=to)
        await pilot.mouse_up(offset=to)
        moved = before + by - (30 if wide else 6)
        await until(pilot, lambda: part() == moved)
        assert app.mouse_captured is None
    async with running(tmp_path, size=size) as (app, pilot):
        panes = await panes_of(app, pilot, 1)
        await until(pilot, lambda: part() == moved)
        await pilot.press("equals_sign")
        await until(pilot, lambda: part() == before)


PROGRAM = """
import pathlib, sys, time
for n in range(40):
    print(f"line {n} \\x1b]52;c;ZXZpbA==\\x07[bold]x[/]", flush=True)
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.02)
print("the last")
sys.exit(3)
"""


def launched(tmp_path: Path) -> Launched:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    made = Launched([sys.executable, str(program), str(tmp_path / "go")], Layout(tmp_path))
    made.start()
    return made


def painted(app: RocmTui) -> int:
    return sum(view.painted for view in app.screen.query(LineView))


async def shown(pilot: Pilot[int], text: str) -> OutputPane:
    app = pilot.app
    await until(pilot, lambda: app.screen.query(OutputPane) and text in screen_text(app.screen))
    return app.screen.query_one(OutputPane)


async def test_the_output_below_all_of_it_and_away(tmp_path: Path) -> None:
    write_cache(tmp_path, 8)
    program = launched(tmp_path)
    app = RocmTui([], Layout(tmp_path), launched=program)
    try:
        async with app.run_test(size=(140, 45)) as pilot:
            panes = await panes_of(app, pilot, 1)
            pane = await shown(pilot, "line 39 [bold]x[/]")
            assert panes.region.bottom == pane.region.y and pane.size.height == 8
            assert not pane.view.has_focus, "what nobody asked for takes no keys"
            await pilot.press("tab", "tab")
            assert pane.view.has_focus
            await pilot.press("less_than_sign", "less_than_sign")
            await until(pilot, lambda: pane.size.height == 10)
            await pilot.press("k", "home")
            assert "line 0 " in screen_text(pane) and not pane.view.follows
            await pilot.press("G")
            before = painted(app)
            await pilot.pause(0.5)
            assert painted(app) - before <= 40, "nothing but the seconds above it"
            await pilot.press("enter")
            await until(pilot, lambda: isinstance(app.screen, OutputScreen))
            await until(pilot, lambda: "line 39" in screen_text(app.screen))
            await pilot.press("escape")
            await until(pilot, lambda: isinstance(app.screen, WatchScreen) and app.screen.docked)
            await pilot.press("0", "0")
            await until(pilot, lambda: isinstance(app.screen, WatchScreen))
            await until(pilot, lambda: not app.screen.query(OutputPane))
            assert app.focused is panes.table
            (tmp_path / "go").touch()
            await pilot.press("0")
            await shown(pilot, "exit code 3")
    finally:
        (tmp_path / "go").touch()
        app.stop_feed()


def find(cache: Path) -> Detached | None:
    """The first of the programs that a later screen finds."""
    return next((Detached(one.log, one.session) for one in kept_programs(Layout(cache))), None)


async def test_a_later_screen_shows_what_an_earlier_one_left(tmp_path: Path) -> None:
    program = launched(tmp_path)
    end = time.monotonic() + 60
    while not find(tmp_path):
        assert time.monotonic() < end
        time.sleep(0.05)
    try:
        async with running(tmp_path, size=(100, 30)) as (app, pilot):
            await until(pilot, lambda: " 0 output " in screen_text(app.screen))
            await pilot.press("0")
            await shown(pilot, "line 39 [bold]x[/]")
            (tmp_path / "go").touch()
            await shown(pilot, "exit code 3")  # `run` ends below the last line of the program
    finally:
        (tmp_path / "go").touch()
        program.end()
    left = find(tmp_path)
    assert left is not None and (left.running, left.code) == (False, 3)
    assert left.log == program.log and "line 39 [bold]x[/]" in left.lines.since(0)[1]


async def test_of_several_programs_one_is_chosen(tmp_path: Path) -> None:
    end, programs = time.monotonic() + 60, []
    for count in (1, 2):
        programs.append(launched(tmp_path))
        while len(kept_programs(Layout(tmp_path))) < count:
            assert time.monotonic() < end
            time.sleep(0.05)
    first, second = programs
    try:
        async with running(tmp_path, size=(100, 30)) as (app, pilot):
            await until(pilot, lambda: " 0 output " in screen_text(app.screen))
            await pilot.press("0")
            pane = await shown(pilot, "program 1 of 2")
            await until(pilot, lambda: app.programs.shown is not None)
            newest = app.programs.shown
            assert newest is not None and newest.log == second.log
            await pilot.press("right_square_bracket")
            await shown(pilot, "program 2 of 2")
            await pilot.press("0")
            await until(pilot, lambda: isinstance(app.screen, OutputScreen))
            await until(pilot, lambda: str(first.log)[-20:] in screen_text(app.screen))
            assert "[ ] other program" in screen_text(app.screen)
            assert not keys_of(app) & {"find(1)", "follow"}, (
                "nothing is searched for, and it follows"
            )
            await pilot.press("g")
            await until(pilot, lambda: "follow" in keys_of(app))
            await pilot.press("G")
            await pilot.press("left_square_bracket")
            await until(pilot, lambda: str(second.log)[-20:] in screen_text(app.screen))
            await until(pilot, lambda: "line 39" in screen_text(app.screen))
            await pilot.press("escape")
            await until(pilot, lambda: "program 1 of 2" in screen_text(app.screen))
            await until(pilot, lambda: pane.view.follows and "line 39" in screen_text(pane))
            await pilot.press("6")
            await until(pilot, lambda: "2 sessions" in screen_text(app.screen))
            await pilot.press("end", "o")  # the first to begin stands last
            await until(pilot, lambda: str(first.log)[-20:] in screen_text(app.screen))
    finally:
        (tmp_path / "go").touch()
        first.end()
        second.end()


async def test_output_mounted_below_a_screen_that_closes_is_shown(tmp_path: Path) -> None:
    program = Program("x", tmp_path / "x", 0.0)
    program.lines.feed(b"of the program\n")
    async with running(tmp_path) as (app, pilot):
        watch = app.screen
        assert isinstance(watch, WatchScreen)
        await pilot.press("7")
        await until(pilot, lambda: app.screen is not watch)
        top, pane = app.screen, watch._dock._mount(program)
        while not (top._callbacks or pane.view._program):
            top.refresh()
            await asyncio.sleep(0)
        app.pop_screen()
        await until(pilot, lambda: "of the program" in screen_text(pane), 20)


async def test_output_that_came_before_a_turn_is_not_painted_after_it(tmp_path: Path) -> None:
    running_one, ended = (Program(name, tmp_path / name, 0.0) for name in ("a", "b"))
    running_one.lines.feed(b"of the running one\n")
    ended.lines.feed(b"of the ended one\n")
    async with running(tmp_path) as (app, pilot):
        view = OutputView(0.05, id="lines")
        await app.screen.query_one("#body").mount(view)
        await until(pilot, lambda: view.size.width)
        view.follow(running_one)
        running_one.ring()
        await asyncio.sleep(0)
        assert view._due, "a paint is due"
        view.follow(ended)
        painted_after = asyncio.Event()
        after(view, 0.1, painted_after.set)  # after the paint that is due
        await painted_after.wait()
        assert "of the ended one" in screen_text(view)


def test_a_later_screen_interrupts_what_an_earlier_one_left(tmp_path: Path) -> None:
    program = launched(tmp_path)
    end = time.monotonic() + 60
    while not program.lines.end >= 40:
        assert time.monotonic() < end
        time.sleep(0.05)
    left = find(tmp_path)
    assert left is not None and left.running and left.pid != program.pid
    left.press()
    while program.running or left.running:
        assert time.monotonic() < end
        left.look()
        time.sleep(0.05)
    assert (program.code, left.code) == (-signal.SIGINT, -signal.SIGINT)


def test_an_end_that_run_has_not_recorded_yet_is_not_given_up(tmp_path: Path) -> None:
    program = launched(tmp_path)
    end = time.monotonic() + 60
    while not program.lines.end >= 40:
        assert time.monotonic() < end
        time.sleep(0.05)
    left = find(tmp_path)
    assert left is not None and left.pid is not None and program.pid is not None
    who = identity(left.pid)
    os.kill(program.pid, signal.SIGSTOP)  # `run`, which sees the end of the program later
    (tmp_path / "go").touch()
    while lives(who) is not False:
        assert time.monotonic() < end
        time.sleep(0.05)
    left.look()
    again = find(tmp_path)
    assert (left.running, again and again.running) == (True, True)
    os.kill(program.pid, signal.SIGCONT)
    while program.running or left.running:
        assert time.monotonic() < end
        left.look()
        time.sleep(0.05)
    assert (program.code, left.code) == (3, 3)


async def test_another_size_hides_no_cursor(tmp_path: Path) -> None:
    write_cache(tmp_path, *range(1, 41))
    async with running(tmp_path, size=(140, 45)) as (app, pilot):
        panes = await panes_of(app, pilot, 40)
        table = panes.table
        await pilot.press(*["j"] * 12)
        for size in ((80, 18), (40, 10), (80, 18), (140, 45)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
            if size != (40, 10):
                assert table.top <= table.cursor == 12 < table.top + table.room, size
        await pilot.resize_terminal(80, 24)
        await pilot.press("home")
        table.top = 20  # as the wheel leaves it
        table.sync()
        await pilot.resize_terminal(80, 20)
        await pilot.pause()
        assert table.top == 20, "who looks elsewhere stays there"
