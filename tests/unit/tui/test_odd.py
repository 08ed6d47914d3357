"""Keys at odd moments: bursts, questions above questions, sources that vanish, a tiny terminal."""

from __future__ import annotations

import json
from asyncio import sleep
from dataclasses import replace
from pathlib import Path

import pytest
from textual import events
from textual.pilot import Pilot

from backend.disk.layout import Layout
from backend.model.problem import TuningKey
from backend.model.session import Fault
from backend.pins.store import PinStore
from rocm_tui.render.table import whole
from rocm_tui.session.model import Row
from rocm_tui.session.query import match
from rocm_tui.session.query.fields import SEARCHED, Known, Value
from rocm_tui.tui.app import RocmTui
from rocm_tui.tui.screens.dialogs import ConfirmScreen, TuneScreen
from rocm_tui.tui.screens.help import HelpScreen
from rocm_tui.tui.screens.jobs import JobLog, JobsScreen
from rocm_tui.tui.screens.pins import PinsScreen
from rocm_tui.tui.screens.report import ReportScreen
from rocm_tui.tui.screens.sources import SourcesScreen
from rocm_tui.tui.screens.watch import WatchScreen
from rocm_tui.tui.widgets.grid import Grid
from rocm_tui.tui.widgets.line_view import LineView
from rocm_tui.tui.widgets.one_line import KeyBar, TitleBar
from tests.support.screen_lab import (
    SYSTEM,
    asked,
    inputs,
    panes_of,
    running,
    screen_text,
    typed,
    until,
    wheel,
    write_cache,
)
from tests.support.terminal_lab import raised_numbers, table


def burst(app: RocmTui, *keys: str) -> None:
    """Keys that arrive in one piece, as they do over a slow line."""
    for key in keys:
        app.post_message(events.Key(key, key if len(key) == 1 else None))


async def idle(pilot: Pilot[int]) -> None:
    await pilot.pause(0.3)


async def test_a_question_is_answered_once(tmp_path: Path) -> None:
    path = write_cache(tmp_path, 8)
    async with running(tmp_path) as (app, pilot):
        panes = await panes_of(app, pilot, 1)
        await pilot.press("p")
        await asked(app, pilot)
        burst(app, "enter", "enter")
        await until(pilot, lambda: panes.table.current and panes.table.current.pin)
        assert isinstance(app.screen, WatchScreen)
        assert raised_numbers(path)


@pytest.mark.parametrize(("key", "question"), [("p", ConfirmScreen), ("t", TuneScreen)])
async def test_a_key_pressed_twice_asks_once(
    tmp_path: Path, key: str, question: type[object]
) -> None:
    write_cache(tmp_path, 8)
    async with running(tmp_path) as (app, pilot):
        await panes_of(app, pilot, 1)
        burst(app, key, key, key)
        await until(pilot, lambda: isinstance(app.screen, question))
        await idle(pilot)
        assert [type(screen) for screen in app.screen_stack] == [WatchScreen, question]
        await pilot.press("ctrl+p")  # no command may close the question behind its back
        await idle(pilot)
        assert isinstance(app.screen, question)


async def test_a_burst_closes_no_more_than_is_open(tmp_path: Path) -> None:
    write_cache(tmp_path, 8)
    async with running(tmp_path) as (app, pilot):
        panes = await panes_of(app, pilot, 1)
        await pilot.press("5")
        await until(pilot, lambda: isinstance(app.screen, ReportScreen))
        screen = app.screen
        assert isinstance(screen, ReportScreen)
        await until(pilot, lambda: screen.page("saved").current)
        burst(app, "enter", "enter")  # to the tuning in Watch, and there to its choices
        await until(pilot, lambda: panes.inside)
        assert app.is_running and [type(one) for one in app.screen_stack] == [WatchScreen]


async def test_keys_of_one_burst_do_what_they_do_one_by_one(tmp_path: Path) -> None:
    """What is bound to a key, as backspace and enter, climbs to the app: letters came first."""
    write_cache(tmp_path, 8, 16, 32)
    async with running(tmp_path) as (app, pilot):
        panes = await panes_of(app, pilot, 3)
        burst(app, "slash", *"6x6y", "backspace", "4", "home", "1", "enter", "y")
        await until(pilot, lambda: app.clipboard)
        assert panes.filter.text == "16x64"
        (row,) = panes.table.rows
        assert row.tuning.shapes[0][0] == 16 and app.clipboard == row.id
        burst(app, "escape", "home", "tab", "j", "p", "escape", "k", "p", "escape", "h", "j")
        await until(pilot, lambda: panes.table.cursor == 1)
        assert app.is_running and [type(one) for one in app.screen_stack] == [WatchScreen]


@pytest.mark.parametrize("gap", range(6))
async def test_keys_that_come_before_a_screen_stands_are_not_lost(tmp_path: Path, gap: int) -> None:
    write_cache(tmp_path, 8)
    async with running(tmp_path) as (app, pilot):
        await panes_of(app, pilot, 1)
        app.action_open("report")
        for key in ("4", "7"):  # the first of them closes it
            burst(app, key)
            for _ in range(gap):
                await sleep(0)
        await until(pilot, lambda: isinstance(app.screen, SourcesScreen))


async def test_help_goes_back_to_where_it_was_asked(tmp_path: Path) -> None:
    write_cache(tmp_path, 8)
    async with running(tmp_path) as (app, pilot):
        await panes_of(app, pilot, 1)
        await pilot.press("4", "question_mark")
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, JobsScreen))
        await pilot.press("escape", "7")
        await until(pilot, lambda: isinstance(app.screen, SourcesScreen))
        assert len(app.screen_stack) == 2


async def test_the_focus_comes_back_with_the_space(tmp_path: Path) -> None:
    write_cache(tmp_path, *range(1, 30))
    async with running(tmp_path) as (app, pilot):
        panes = await panes_of(app, pilot, 29)
        await pilot.press("j", "tab")
        await pilot.resize_terminal(20, 5)
        await until(pilot, lambda: app.screen.query("#too-small"))
        await pilot.press("j", "p", "escape")
        await idle(pilot)
        await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: not app.screen.query("#too-small"))
        await idle(pilot)
        assert panes.inside and panes.table.cursor == 1
        await pilot.press("j")
        assert panes.detail.cursor == 1


async def test_every_key_lives_on_when_all_tunings_vanish(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("".join(table(16 * n) for n in range(1, 6)))
    async with running(tmp_path, log) as (app, pilot):
        panes = await panes_of(app, pilot, 5)
        await pilot.press("j", "j", "tab")
        with log.open("a") as file:
            file.write(table(999))
        await until(pilot, lambda: "1 new ↑ home" in screen_text(app.screen))
        log.unlink()
        await until(pilot, lambda: not panes.table.total)
        await until(pilot, lambda: "No tuning any more" in screen_text(app.screen))
        await until(pilot, lambda: "new ↑" not in screen_text(app.screen))
        assert "matches" not in screen_text(app.screen)
        keys = "j k home G enter p u t m x c y s tab space l h slash a escape P escape C escape"
        await pilot.press(*keys.split())
        log.write_text(table(16))
        await until(pilot, lambda: panes.table.total == 1)
        await until(pilot, lambda: "16×64×64" in screen_text(panes.table))


async def test_what_was_scrolled_away_stays_away(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("".join(table(16 * n) for n in range(1, 60)))
    async with running(tmp_path, log) as (app, pilot):
        panes = await panes_of(app, pilot, 59)
        await pilot._post_mouse_events([wheel()], "#tunings", offset=(10, 4))
        shown = screen_text(panes.table).splitlines()[2]
        with log.open("a") as file:
            file.write(table(9999))
        await until(pilot, lambda: panes.table.total == 60)
        assert panes.table.top == 4 and screen_text(panes.table).splitlines()[2] == shown
        await until(pilot, lambda: "1 new ↑ home" in screen_text(app.screen))
        await pilot.press("home")
        await until(pilot, lambda: "9999×64×64" in screen_text(panes.table))


async def test_the_log_of_a_job_stays_where_it_was_scrolled(tmp_path: Path) -> None:
    async with running(tmp_path) as (app, pilot):
        await pilot.press("4")
        await until(pilot, lambda: isinstance(app.screen, JobsScreen))
        assert "wrote nothing" not in screen_text(app.screen), "there is no worker"
        log = app.screen.query_one(JobLog)
        lines = [f"line {n}" for n in range(100)]
        log.put(("failed", "bad"), lines)
        assert "line 99" in screen_text(log)
        log.on_mouse_scroll_up(events.MouseScrollUp(log, 0, 0, 0, 0, 0, False, False, False))
        top = log.top
        log.put(("failed", "bad"), lines)
        log.put(("failed", "bad"), [*lines, "more"])
        assert log.top == top
        log.action_move_to(-1)
        log.put(("failed", "bad"), [*lines, "more", "and more"])
        assert "and more" in screen_text(log)


async def test_the_filter_makes_the_text_of_an_unchanged_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_cache(tmp_path, *range(1, 101))
    made: list[str] = []
    real = SEARCHED.read

    def counted(row: Row, known: Known) -> Value:
        made.append(row.key)
        return real(row, known)

    monkeypatch.setattr(match, "SEARCHED", replace(SEARCHED, read=counted))
    async with running(tmp_path) as (app, pilot):
        panes = await panes_of(app, pilot, 100)
        await pilot.press("slash")
        await typed(pilot, "f32", "enter")
        await until(pilot, lambda: app.screen.focused is panes.table)
        panes.show(app.feed.model.rows())
        assert len(made) == 100


async def test_problems_are_told_in_full_and_not_without_end(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    async with running(tmp_path) as (app, pilot):
        await pilot.press("7")
        await until(pilot, lambda: isinstance(app.screen, SourcesScreen))
        long = "a word that the list cuts in its middle and that a person wants to read"
        problems = app.feed.model._problems
        problems.update(dict.fromkeys(Fault("/a.log", f"{n} {long}", n) for n in range(3000)))
        screen = app.screen
        assert isinstance(screen, SourcesScreen)
        screen.update()
        about = screen.query_one("#about", LineView)
        assert "3,000 problems, newest first, 1000 shown" in screen_text(about)
        await pilot.press("tab", "j")
        await until(pilot, lambda: "▌a.log:2998" in screen_text(screen))
        shown = screen_text(screen.query_one("#problems", LineView)).splitlines()
        first = next(at for at, line in enumerate(shown) if line.startswith("▌"))
        assert "wants to read" in shown[first + 1], "it goes on in the next line"
        await pilot.press("y")
        assert app.clipboard == f"2998 {long}"
        await pilot.press("tab")
        await until(pilot, lambda: "3,000 problems" in screen_text(about))


async def test_the_same_problem_thirty_times_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    log = tmp_path / "train.log"
    log.write_text("Exception out of resource: shared memory\n" * 30)
    async with running(tmp_path, log) as (app, pilot):
        await until(pilot, lambda: "1 problem (7)" in screen_text(app.screen))
        await pilot.press("7")
        await until(pilot, lambda: isinstance(app.screen, SourcesScreen))
        assert "1 problem, newest first" in screen_text(app.screen.query_one("#about"))
        assert "shared memory (30 times)" in screen_text(app.screen.query_one("#problems"))


async def test_the_cursor_stays_on_its_pin_and_the_history_grows(tmp_path: Path) -> None:
    path = write_cache(tmp_path, 8, 16)
    store = PinStore(Layout(tmp_path))
    inputs = list(json.loads(path.read_text())["cache"]["mm"])
    store.pin("4" * 64, TuningKey("mm", inputs[1], "highest"), "mm-bb", label="one")
    async with running(tmp_path) as (app, pilot):
        await panes_of(app, pilot, 2)
        await until(pilot, lambda: app.feed.pins)
        await pilot.press("3")
        await until(pilot, lambda: isinstance(app.screen, PinsScreen))
        screen = app.screen
        assert isinstance(screen, PinsScreen)
        history = screen.query_one("#history", Grid)
        await until(pilot, lambda: history.count() == 1)
        assert "1 pin, 1 active" in screen_text(screen)
        store.pin("4" * 64, TuningKey("mm", inputs[0], "highest"), "mm-bb", label="two")
        await until(pilot, lambda: len(app.feed.pins) == 2)
        await until(pilot, lambda: history.count() == 2)
        places = [status.pin.label for status in app.feed.pins]
        screen.query_one("#pins", Grid).move_cursor(1)
        status = screen.current
        assert status is not None and status.pin.label == places[1]
        app.feed.pins = app.feed.pins[::-1]
        screen.update()
        assert screen.current is not None and screen.current.pin.label == places[1]


async def test_facts_give_way_one_by_one(tmp_path: Path) -> None:
    async with running(tmp_path) as (app, _):
        title = app.screen.query_one(TitleBar)
        title.show("Done", [], ["one fact", "another " * 3, "the last " * 3, "short"], "a notice")
        assert "one fact · another" in screen_text(title) and "last" not in screen_text(title)
        assert screen_text(title).rstrip().endswith("short")
        title.show("Done", [], ["one fact", "x" * 80], "")
        assert screen_text(title).rstrip().endswith("one fact")


async def test_a_pin_that_the_disk_refuses_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_cache(tmp_path, 8)

    def refused(*_: object) -> None:
        raise PermissionError(13, "Permission denied", "/cache/rocm_tui/pins.json")

    async with running(tmp_path) as (app, pilot):
        await panes_of(app, pilot, 1)
        monkeypatch.setattr(PinStore, "plan", refused)
        monkeypatch.setattr(PinStore, "history", refused)
        for key in ("p", "3"):
            app.clear_notifications()
            await pilot.press(key)
            await until(pilot, lambda: any("denied" in n.message for n in app._notifications))
            assert not app.asking and app.is_running


async def test_a_cut_tuning_has_no_winner(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(table(16) + "".join(table(32).splitlines(keepends=True)[:5]))
    async with running(tmp_path, log) as (app, pilot):
        panes = await panes_of(app, pilot, 2)
        await until(pilot, lambda: "cut" in screen_text(panes.table))
        await until(pilot, lambda: "Cut off: 2 choices were seen" in screen_text(panes.detail))
        assert "fastest" not in screen_text(panes.detail)
        assert "best of them triton_mm_1, ~10.0 µs" in screen_text(panes.detail)


def test_facts_that_do_not_fit_are_left_out_whole() -> None:
    line = ((" Tie", "strong"), (": 1 % apart", ""), (" · 2.1× ATen", ""), (" · 8.36 TFLOP/s", ""))
    for width, told in ((80, 4), (len(" Tie: 1 % apart · 2.1× ATen"), 3), (17, 2), (5, 2)):
        assert whole(line, width) == line[:told]


async def test_the_palette_offers_what_the_keys_of_a_screen_do(tmp_path: Path) -> None:
    write_cache(tmp_path, 8)
    async with running(tmp_path) as (app, pilot):
        await panes_of(app, pilot, 1)
        for key, title in (("3", "here: Undo"), ("7", "here: Copy"), ("5", "here: Next page")):
            await pilot.press(key)
            await until(pilot, lambda: not isinstance(app.screen, WatchScreen))
            await until(pilot, lambda: app.screen.query_one("#keys", KeyBar).keys)
            found = {command.title: command for command in app.get_system_commands(app.screen)}
            assert title in found and "here: Back" not in found
            await pilot.press("escape")
        await pilot.press("5")
        await until(pilot, lambda: isinstance(app.screen, ReportScreen))
        await until(pilot, lambda: app.screen.query_one("#keys", KeyBar).keys)
        found = {command.title: command for command in app.get_system_commands(app.screen)}
        await found["here: Next page"].callback()
        await until(pilot, lambda: app.screen.focused and app.screen.focused.id == "repeated")


async def test_what_kernels_take_is_asked_again_after_a_filter_hid_them(tmp_path: Path) -> None:
    write_cache(tmp_path, 8)
    async with running(tmp_path) as (app, pilot):
        panes = await panes_of(app, pilot, 1)
        screen = app.screen
        assert isinstance(screen, WatchScreen)
        await until(pilot, lambda: panes._requested is not None)
        await pilot.press("slash")
        await typed(pilot, "zzz", "enter")
        await until(pilot, lambda: panes.table.current is None and panes._requested is None)
        await pilot.press("escape")
        await until(pilot, lambda: panes._requested is not None)


async def test_a_source_that_is_not_there_is_told_before_the_first_tuning(tmp_path: Path) -> None:
    log = tmp_path / "typo.log"
    async with running(tmp_path, log) as (app, pilot):
        screen = app.screen
        assert isinstance(screen, WatchScreen)

        def told() -> bool:
            screen.tick()
            return f"{log.name} is not there yet" in screen_text(screen)

        await until(pilot, told)
        log.write_text("nothing that tells of a tuning\n")
        await until(pilot, lambda: not told())
        log.write_text(table(16))
        await panes_of(app, pilot, 1)


async def test_time_passes_while_a_screen_is_being_made(tmp_path: Path) -> None:
    """On a busy machine the clock ticks between a screen's push and its first message."""
    write_cache(tmp_path, 8)
    async with running(tmp_path) as (app, pilot):
        await panes_of(app, pilot, 1)
        app.push_screen(PinsScreen())
        app._tick()
        await until(pilot, lambda: "Nothing is pinned" in screen_text(app.screen))
        app._tick()


async def test_a_pin_that_is_made_again_takes_the_place_of_nothing(tmp_path: Path) -> None:
    write_cache(tmp_path, 8)
    key = TuningKey("mm", inputs(8), "highest")
    PinStore(Layout(tmp_path)).pin(SYSTEM, key, "triton_mm-aa", label="triton_mm_1")
    async with running(tmp_path, size=(140, 45)) as (app, pilot):
        panes = await panes_of(app, pilot, 1)
        await until(pilot, lambda: panes.table.current and panes.table.current.pin)
        await pilot.press("p")
        await asked(app, pilot)
        told = str(app.screen.query_one("#lines").render())
        assert "It is pinned already: a new note takes the place of the old one." in told
        assert (
            "The times of its rivals are out of reach already in cache/" in told
            and "0 rivals" not in told
        )
