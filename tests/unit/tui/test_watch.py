"""Every key of the screens, at both sizes, on real files and the real pin store."""

from __future__ import annotations

import sys
import time
from asyncio import sleep
from dataclasses import replace
from itertools import count
from pathlib import Path
from threading import Event

import pytest
from textual import _time
from textual.screen import Screen
from textual.widgets import Input, Static

from backend.disk.layout import Layout
from backend.model.choice import Choice, Output
from backend.model.tuning import Tuning
from backend.pins.store import PinStore
from rocm_tui import environment
from rocm_tui.environment import NoTorchPython
from rocm_tui.session.feed import Feed, FeedState
from rocm_tui.session.grouping import is_other
from rocm_tui.session.model import Row
from rocm_tui.tui.base import after
from rocm_tui.tui.screens.help import HelpScreen
from rocm_tui.tui.screens.pins import PinsScreen
from rocm_tui.tui.screens.sources import SourcesScreen
from rocm_tui.tui.screens.watch import WatchScreen, _row_counts
from rocm_tui.tui.widgets.grid import Grid
from rocm_tui.tui.widgets.line_view import LineView
from tests.support.screen_lab import (
    SIZES,
    asked,
    measured,
    panes_of,
    running,
    screen_text,
    typed,
    until,
    wheel,
    write_cache,
)
from tests.support.terminal_lab import raised_numbers, table


def test_a_hidden_kernel_from_a_cache_is_counted_once() -> None:
    config = (Choice("XBLOCK=64", "triton_config-1"),)
    kernel = Tuning("pointwise", choices=config, state="done", session="s", selected_by="cache")
    timed = Tuning("mm", choices=(Choice("mm", ms=1.0), Choice("t", ms=2.0)), state="done")
    tunings = timed, kernel, kernel, replace(timed, choices=config, session="s", selected_by="pin")
    rows = [Row(("k", n), f"abc123{n}", 1, tuning) for n, tuning in enumerate(tunings)]
    hidden = [row for row in rows if is_other(row)]
    assert len(hidden) == 2
    assert _row_counts(rows, hidden) == ["1 tuning", "1 from a cache"]


@pytest.fixture
def lost_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """A timer of Textual that runs once finds a second gone at its next look at the clock."""
    real, looks = _time.get_time, count()

    def look() -> float:
        once = sys._getframe(1).f_locals.get("_repeat") == 0
        return real() + (next(looks) if once else 0)

    monkeypatch.setattr(_time, "get_time", look)


@pytest.mark.usefixtures("lost_core")
async def test_files_are_read_though_the_start_lost_the_core(tmp_path: Path) -> None:
    write_cache(tmp_path, 8)
    async with running(tmp_path) as (app, pilot):
        await panes_of(app, pilot, 1)


@pytest.mark.usefixtures("lost_core")
async def test_the_app_s_own_timers_run_though_they_lost_the_core(tmp_path: Path) -> None:
    async with running(tmp_path) as (app, pilot):
        app.delay_update(0.001)
        await until(pilot, lambda: not app._batch_count)
        for width in (100, 90):
            await pilot.resize_terminal(width, 30)
            await until(pilot, lambda: app.screen.size.width == width)  # noqa: B023


class _Lingering(Static):
    """Goes slowly."""

    async def on_unmount(self) -> None:
        await sleep(0.3)


async def test_a_screen_that_has_lost_its_widgets_is_called_no_more(tmp_path: Path) -> None:
    called: list[str] = []
    async with running(tmp_path) as (app, pilot):
        screen: Screen[None] = Screen()
        await app.push_screen(screen)
        await screen.mount(_Lingering())
        after(screen, 0.0, lambda: called.append("before"))
        await until(pilot, lambda: called)
        after(screen, 0.1, lambda: called.append("after"))
        await screen.dismiss()
        await until(pilot, lambda: not screen.is_running and not screen.is_attached)
        await pilot.pause(0.2)
    assert called == ["before"]


@pytest.mark.parametrize("turns", range(0, 12, 2))
async def test_a_screen_that_closes_while_programs_and_a_python_are_sought(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    """Its widgets go one by one, in several turns of the event loop."""
    closing = Event()

    def find(python: str | None) -> str:
        assert closing.wait(20)
        raise NoTorchPython("no torch")

    async with running(tmp_path) as (app, pilot):
        monkeypatch.setattr(environment, "find_python", find)
        screen = WatchScreen()
        await app.push_screen(screen)
        await pilot.pause()
        screen._look_for_torch()
        await pilot.pause()
        app.pop_screen()
        for _ in range(turns):
            await sleep(0)
        closing.set()
        screen._dock._program_found()
        time.sleep(0.05)  # the thread ends before the next turn
        await pilot.pause(0.1)
        assert app.screen is not screen


async def test_an_error_in_an_update_ends_the_program_with_that_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: Feed) -> FeedState:
        raise ValueError("of an update")

    with pytest.raises(ValueError, match="of an update"):
        async with running(tmp_path) as (app, pilot):
            monkeypatch.setattr(Feed, "take", broken)
            app.wake()
            await until(pilot, lambda: not app.is_running)


@pytest.mark.parametrize("size", SIZES)
async def test_moving(tmp_path: Path, size: tuple[int, int]) -> None:
    write_cache(tmp_path, *range(1, 101))
    async with running(tmp_path, size=size) as (app, pilot):
        panes = await panes_of(app, pilot, 100)
        found = []
        for key in (
            "j",
            "down",
            "k",
            "up",
            "j",
            "ctrl+d",
            "ctrl+u",
            "G",
            "k",
            "home",
            "end",
            "home",
        ):
            await pilot.press(key)
            found.append(panes.table.cursor)
        half = panes.table.room // 2
        assert found == [1, 2, 1, 0, 1, 1 + half, 1, 99, 98, 0, 99, 0]
        assert panes.detail.row == panes.table.current
        for key, inside in (("tab", True), ("shift+tab", False), ("enter", True), ("h", False)):
            await pilot.press(key)
            assert panes.inside is inside, key
        for key, inside in (("l", True), ("left", False), ("right", True), ("escape", False)):
            await pilot.press(key)
            assert panes.inside is inside, key
        assert all(len(line) <= size[0] for line in screen_text(app.screen).splitlines())


@pytest.mark.parametrize("size", SIZES)
async def test_mouse(tmp_path: Path, size: tuple[int, int]) -> None:
    write_cache(tmp_path, *range(1, 101))
    async with running(tmp_path, size=size) as (app, pilot):
        panes = await panes_of(app, pilot, 100)
        await pilot.click("#tunings", offset=(10, 4))
        assert panes.table.cursor == 3
        await pilot._post_mouse_events([wheel()], "#tunings", offset=(10, 4))
        assert panes.table.top == 3 and panes.table.cursor == 3
        await pilot.click("#tunings", offset=(10, 4), times=2)
        await until(pilot, lambda: panes.inside)
        keys = app.screen.query_one("#keys", LineView).render_line(0).text
        await pilot.click("#keys", offset=(keys.index("more"), 0))
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))


async def test_filter(tmp_path: Path) -> None:
    write_cache(tmp_path, *range(1, 31))
    async with running(tmp_path) as (app, pilot):
        panes = await panes_of(app, pilot, 30)
        await pilot.press("slash")
        await typed(pilot, "7x64 f32")
        await until(pilot, lambda: len(panes.table.rows) == 3)  # 7, 17, 27
        assert "3 of 30" in screen_text(app.screen)
        await pilot.press("enter")
        await until(pilot, lambda: app.screen.focused is panes.table)
        assert "filter active: 7x64 f32" in screen_text(app.screen)
        assert "3 of 30" in screen_text(app.screen)
        await pilot.press("slash")
        await typed(pilot, "nothing", "enter")
        await until(pilot, lambda: not panes.table.rows)
        assert "No tuning matches" in screen_text(app.screen)
        await pilot.press("p", "u", "y", "enter", "tab", "j")
        await pilot.press("escape")
        await until(pilot, lambda: len(panes.table.rows) == 30)
        assert "filter" not in screen_text(app.screen).splitlines()[1]
        await pilot.press("slash", "x", "escape")
        await until(pilot, lambda: len(panes.table.rows) == 30)


async def test_sorting_shows_the_top_and_what_is_known(tmp_path: Path) -> None:
    write_cache(tmp_path, 8, 2, 32)
    async with running(tmp_path) as (app, pilot):
        panes = await panes_of(app, pilot, 3)
        seen = []
        for _ in range(5):
            await pilot.press("j", "s")
            await pilot.pause()
            seen.append(panes.table.sort.called)
            assert panes.table.cursor == panes.table.top == 0
            assert f"sort: {seen[-1]}" in screen_text(app.screen)
            if seen[-1] == "time":
                slowest = [row.tuning.choices[0].ms for row in panes.table.rows]
                assert slowest == sorted(slowest, reverse=True)  # type: ignore[type-var]
                await pilot.press("r")
                assert [row.tuning.choices[0].ms for row in panes.table.rows] == slowest[::-1]
                assert "TIME▲" in screen_text(panes.table)
        assert seen == ["vs ATen", "lead", "time", "op", "newest"], "nothing has a share"


async def test_a_click_on_a_heading_sorts_and_the_next_one_reverses(tmp_path: Path) -> None:
    write_cache(tmp_path, 8, 2, 32)
    async with running(tmp_path) as (app, pilot):
        panes = await panes_of(app, pilot, 3)
        await until(pilot, lambda: "SHAPE" in screen_text(panes.table))
        heading = panes.table.render_line(0).text
        for sizes, sign in (([32, 8, 2], "▼"), ([2, 8, 32], "▲")):
            await pilot.click("#tunings", offset=(heading.index("SHAPE"), 0))
            await until(pilot, lambda: f"SHAPE{sign}" in screen_text(panes.table))  # noqa: B023
            assert [row.tuning.shapes[0][0] for row in panes.table.rows] == sizes
        assert len(panes.table.render_line(0).text) == panes.table.size.width
        assert panes.table.render_line(0).text.replace("▲", " ") == heading


async def test_newest_stays_under_the_cursor_until_the_person_moves(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(table(16) + table(32))
    async with running(tmp_path, log) as (app, pilot):
        panes = await panes_of(app, pilot, 2)

        def grow(m: int) -> None:
            with log.open("a") as file:
                file.write(table(m))

        grow(64)
        await until(pilot, lambda: panes.table.total == 3)
        assert panes.table.cursor == 0 and "64×64×64" in screen_text(panes.table).splitlines()[1]
        await pilot.press("j")
        grow(128)
        await until(pilot, lambda: panes.table.total == 4)
        assert panes.table.cursor == 2
        await until(pilot, lambda: "1 new" in screen_text(app.screen))
        await pilot.press("home")
        await until(pilot, lambda: "1 new" not in screen_text(app.screen))
        await pilot.press("tab")  # reading the details: they must not change below the person
        shown = panes.detail.row
        grow(256)
        await until(pilot, lambda: panes.table.total == 5)
        assert panes.detail.row is not None and shown is not None
        assert panes.detail.row.key == shown.key


async def test_only_what_changed_is_painted(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("".join(table(16 * n) for n in range(1, 10)))
    async with running(tmp_path, log) as (app, pilot):
        panes = await panes_of(app, pilot, 9)
        (source,) = app.feed.watcher.sources()
        assert source.read == source.size
        await until(pilot, lambda: "9 tunings" in screen_text(app.screen))
        await pilot.pause()
        panes.show(app.feed.model.rows())
        before = panes.table.painted
        panes.table.tick()
        panes.show(panes.table.rows)
        assert panes.table.painted == before
        panes.table.now += 86400 * 2  # every age reads differently
        panes.table.sync()
        assert panes.table.painted == before, "no age column at 80 columns"
        await pilot.press("j")
        assert panes.table.painted - before <= 2 * 80


async def test_copy(tmp_path: Path) -> None:
    write_cache(tmp_path, 8)
    async with running(tmp_path) as (app, pilot):
        panes = await panes_of(app, pilot, 1)
        await pilot.press("y")
        assert panes.table.current is not None and app.clipboard == panes.table.current.id
        await pilot.press("tab", "j", "y")
        assert app.clipboard == "mm-bb"
        await until(pilot, lambda: any("mm-bb" in n.message for n in app._notifications))


@pytest.mark.parametrize("size", SIZES)
async def test_pin_and_unpin(tmp_path: Path, size: tuple[int, int]) -> None:
    path = write_cache(tmp_path, 8)
    original = path.read_bytes()
    store = PinStore(Layout(tmp_path))
    async with running(tmp_path, size=size) as (app, pilot):
        panes = await panes_of(app, pilot, 1)
        await pilot.press("tab", "j", "p")
        await asked(app, pilot)
        told = " ".join(str(widget.render()) for widget in app.screen.query("Static"))
        assert "Pin mm-bb" in told and f"cache/{path.name[:16]}" in told
        assert (
            "2 rivals' times are raised out of reach" in told
            and "compiled graphs are moved aside" in told
        )
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, WatchScreen))
        assert path.read_bytes() == original and not store.pins()

        await pilot.press("p")
        await asked(app, pilot)
        await pilot.press("n")
        await typed(pilot, "too hot", "enter")
        await until(pilot, lambda: store.pins())
        (pin,) = store.pins()
        assert (pin.hash, pin.note) == ("mm-bb", "too hot")
        await until(pilot, lambda: panes.table.current and panes.table.current.pin)
        await until(pilot, lambda: "● #2" in screen_text(panes.table))
        assert "too hot" in screen_text(panes.detail) and "active" in screen_text(panes.detail)
        assert "160.0 µs" in screen_text(panes.table), "the time of what is in use"
        assert panes.detail.cursor == 1 and panes.table.unseen == 0

        await pilot.press("u")
        await asked(app, pilot)
        await pilot.press("enter")
        await until(pilot, lambda: not store.pins() and path.read_bytes() == original)
        await until(pilot, lambda: panes.table.current and panes.table.current.pin is None)


async def test_what_cannot_be_pinned_is_refused_with_a_reason(tmp_path: Path) -> None:
    write_cache(tmp_path, 8)
    log = tmp_path / "train.log"
    log.write_text(table(16))
    async with running(tmp_path, tmp_path, log) as (app, pilot):
        panes = await panes_of(app, pilot, 2)

        async def refused(words: str) -> None:
            await until(pilot, lambda: any(words in n.message for n in app._notifications))
            assert isinstance(app.screen, WatchScreen)

        panes.table.move_cursor([r.tuning.key is None for r in panes.table.rows].index(True))
        await pilot.press("p")
        await refused("known from a log only")
        panes.table.move_cursor([r.tuning.key is None for r in panes.table.rows].index(False))
        await pilot.press("tab", "G", "p")
        await refused("failed")
        wrong = Choice(None, "triton_mm-aa", reason="wrong result: off by 420")
        measured(tmp_path, {"mm-bb": Output("A", 10, 10, 512)}, wrong)
        await until(pilot, lambda: panes.table.current and panes.table.current.tuning.measured)
        await pilot.press("home", "p")
        await refused("--wrong")
        assert not PinStore(Layout(tmp_path)).pins()
        await pilot.press("u")
        await refused("not pinned")


async def test_drift_is_repaired_and_told(tmp_path: Path) -> None:
    path = write_cache(tmp_path, 8)
    old = path.read_bytes()
    store = PinStore(Layout(tmp_path))
    async with running(tmp_path) as (app, pilot):
        panes = await panes_of(app, pilot, 1)
        await pilot.press("p")
        await asked(app, pilot)
        await pilot.press("enter")
        await until(pilot, lambda: panes.table.current and panes.table.current.pin)
        path.write_bytes(old)
        await until(pilot, lambda: any("had drifted" in n.message for n in app._notifications))
        assert [status.state for status in store.status()] == ["active"]
        assert app.feed.drifts == 1


async def test_pins_screen(tmp_path: Path) -> None:
    path = write_cache(tmp_path, 8, 16)
    original = path.read_bytes()
    async with running(tmp_path) as (app, pilot):
        panes = await panes_of(app, pilot, 2)
        await pilot.press("3")
        await until(pilot, lambda: isinstance(app.screen, PinsScreen))
        assert "Nothing is pinned" in screen_text(app.screen)
        await pilot.press("3")
        await until(pilot, lambda: isinstance(app.screen, WatchScreen))
        await pilot.press("p")
        await asked(app, pilot)
        await pilot.press("n")
        await typed(pilot, "why not", "enter")
        await until(pilot, lambda: panes.table.current and panes.table.current.pin)
        await pilot.press("3")
        await until(pilot, lambda: isinstance(app.screen, PinsScreen))
        await until(pilot, lambda: "● active" in screen_text(app.screen))
        history = app.screen.query_one("#history", Grid)
        await until(pilot, lambda: history.count() == 1)
        assert "why not" in screen_text(history)
        await pilot.press("y")
        assert app.clipboard == app.feed.pins[0].pin.id
        path.write_bytes(original)
        await pilot.press("r")
        await until(pilot, lambda: any("1 of 1 active" in n.message for n in app._notifications))
        assert raised_numbers(path)
        await pilot.press("u")
        await asked(app, pilot)
        await pilot.press("enter")
        await until(pilot, lambda: "Nothing is pinned" in screen_text(app.screen))
        assert path.read_bytes() == original
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, WatchScreen))


async def test_sources_and_problems(tmp_path: Path) -> None:
    write_cache(tmp_path, 8)
    (tmp_path / "cache" / ("5" * 64)).write_text("{broken")
    log = tmp_path / "later.log"
    async with running(tmp_path, tmp_path, log) as (app, pilot):
        await panes_of(app, pilot, 1)
        await until(pilot, lambda: "1 problem (7)" in screen_text(app.screen))
        await pilot.press("7")
        await until(pilot, lambda: isinstance(app.screen, SourcesScreen))
        await until(pilot, lambda: "waiting" in screen_text(app.screen))
        assert "autotune cache" in screen_text(app.screen)
        assert "5" * 10 in screen_text(app.screen.query_one("#problems"))
        log.write_text(table(16))
        await until(pilot, lambda: "stderr log" in screen_text(app.screen))
        await pilot.press("y")
        assert app.clipboard == app.feed.watcher.sources()[0].path
        await pilot.press("tab", "7")
        await until(pilot, lambda: isinstance(app.screen, WatchScreen))


@pytest.mark.parametrize("key", ["question_mark", "f1"])
async def test_help_names_every_key_and_column(tmp_path: Path, key: str) -> None:
    from rocm_tui.render.tunings import COLUMNS

    async with running(tmp_path, size=(80, 120)) as (app, pilot):
        await pilot.press(key)
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))
        text = screen_text(app.screen)
        for column in COLUMNS:
            assert column.title in text
        words = {word for line in text.splitlines() for word in line[:18].split()}
        assert {"j", "k", "g", "G", "ctrl+d", "ctrl+u", "tab", "enter", "/", "s", "p", "u"} <= words
        assert {"y", "t", "m", "x", "4", "3", "7", "?", "q", "ctrl+p"} <= words
        await pilot.press("down", "pagedown", "escape")
        await until(pilot, lambda: isinstance(app.screen, WatchScreen))


async def test_command_palette_offers_what_applies(tmp_path: Path) -> None:
    write_cache(tmp_path, 8)
    async with running(tmp_path) as (app, pilot):
        empty = {command.title for command in app.get_system_commands(app.screen)}
        assert "view: Show pins" in empty and "app: Quit" in empty
        await panes_of(app, pilot, 1)
        full = {command.title for command in app.get_system_commands(app.screen)}
        assert {"pin: Pin choice", "tunings: Filter", "tunings: Sort by vs ATen"} <= full
        assert "pin: Unpin choice" not in full and "tunings: Sort by newest" not in full
        await pilot.press("ctrl+p")
        await until(pilot, lambda: type(app.screen).__name__ == "CommandPalette")
        await typed(pilot, "show help", "down")
        await until(pilot, lambda: isinstance(app.screen.query_one(Input).value, str))
        await pilot.press("escape")


async def test_empty_state_says_what_would_appear(tmp_path: Path) -> None:
    async with running(tmp_path) as (app, pilot):
        await pilot.press("slash", "s", "p", "u", "y", "tab", "enter", "escape", "j", "h", "l")
        text = screen_text(app.screen)
        assert "rocm-tui run -- python train.py" in text and "rocm-tui demo" in text
        assert str(tmp_path)[:40] in text


@pytest.mark.parametrize("size", [(59, 24), (80, 14), (10, 3)])
async def test_too_small_lives_on(tmp_path: Path, size: tuple[int, int]) -> None:
    write_cache(tmp_path, 8)
    async with running(tmp_path, size=size) as (app, pilot):
        await until(pilot, lambda: app.screen.query("#too-small"))
        await pilot.resize_terminal(80, 24)
        panes = await panes_of(app, pilot, 1)
        assert not app.screen.query("#too-small")
        await pilot.resize_terminal(*size)
        await until(pilot, lambda: app.screen.query("#too-small"))
        assert panes.table.total == 1


async def test_quit(tmp_path: Path) -> None:
    async with running(tmp_path) as (app, pilot):
        await pilot.press("q")
        await until(pilot, lambda: not app.is_running)
