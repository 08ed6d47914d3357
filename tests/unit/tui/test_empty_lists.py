"""A key of a list that is empty says why it does nothing; no sentence is about a thing that is not
there."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.binding import Binding

from rocm_tui.tui.base import BaseScreen
from rocm_tui.tui.screens.watch import Welcome
from rocm_tui.tui.widgets.one_line import OneLine
from tests.support.screen_lab import all_text, running, until

SCREENS = {
    "3": "Pins",
    "5": "Report",
    "8": "Trials",
    "6": "Sessions",
    "4": "Jobs",
    "9": "Entries",
}
NOTHING_TO_SAY = {"report.saved", "trials.text", "entries.whole"}
"""The page that the key opens is open; enter is about a line, and there is none."""


@pytest.mark.parametrize("opens", SCREENS)
async def test_a_key_on_nothing_says_so(opens: str, tmp_path: Path) -> None:
    async with running(tmp_path, size=(140, 45)) as (app, pilot):
        watch = app.screen
        await pilot.press(opens)
        await until(pilot, lambda: SCREENS[opens] == app.screen.PLACE)
        screen = app.screen
        assert isinstance(screen, BaseScreen) and screen is not watch
        keys = [one for one in type(screen).BINDINGS if isinstance(one, Binding)]
        acts = {one.id or "": one.key.partition(",")[0] for one in keys}
        silent = []
        for id_, key in acts.items():
            if id_ in NOTHING_TO_SAY or key == "escape":
                continue
            app.clear_notifications()
            before = all_text(app), app.focused, len(app.screen_stack)

            def answered(before: object = before) -> bool:
                now = all_text(app), app.focused, len(app.screen_stack)
                return bool(app._notifications) or now != before

            await pilot.press(key)
            try:
                await until(pilot, answered, 20.0)
            except AssertionError:
                silent.append(id_)
            while app.screen is not screen and app.screen is not watch:
                await pilot.press("escape")
            if app.screen is watch:  # one screen took the place of the other
                await pilot.press(opens)
                await until(pilot, lambda: SCREENS[opens] == app.screen.PLACE)
                screen = app.screen
        assert not silent


async def test_of_no_graph_it_is_not_said_that_nothing_was_tried_in_it(tmp_path: Path) -> None:
    async with running(tmp_path, size=(140, 45)) as (app, pilot):
        await pilot.press("8")
        await until(pilot, lambda: "No compiled graph yet" in all_text(app))
        assert "this graph" not in all_text(app)


async def test_a_line_that_is_cut_ends_with_a_sign(tmp_path: Path) -> None:
    async with running(tmp_path, size=(80, 24)) as (app, pilot):
        await pilot.press("7")
        await until(pilot, lambda: "rocm-tui  Sources" in all_text(app))
        line = app.screen.query_one("#about", OneLine)
        line.put((("$ rocm-tui measure 3fa91c2 ", "head"), ("x" * 100, "title")))
        await until(pilot, lambda: line.render_line(0).text.endswith("x…"))


async def test_until_all_is_read_it_is_said_to_be_read(tmp_path: Path) -> None:
    async with running(tmp_path, size=(140, 45)) as (app, pilot):
        await until(pilot, lambda: "No tuning yet." in all_text(app))
        welcome = app.screen.query_one(Welcome)
        welcome.put((), (), (), read=False)
        await until(pilot, lambda: "Loading existing tunings." in all_text(app))
        assert "rocm-tui demo" in all_text(app)


async def test_a_file_of_which_nothing_can_be_read_is_no_quiet_one(tmp_path: Path) -> None:
    core = tmp_path / "train.log"
    core.write_bytes(bytes(range(256)) * 40)
    async with running(tmp_path / "cache", core, size=(140, 45)) as (app, pilot):
        await until(pilot, lambda: "train.log is not read (7 says why)" in all_text(app))


async def test_a_file_that_is_not_read_is_not_followed(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "core").write_bytes(bytes(range(256)) * 40)
    (logs / "core.log").write_bytes(bytes(range(256)) * 40)
    async with running(tmp_path / "cache", logs, size=(140, 45)) as (app, pilot):
        await pilot.press("7")
        await until(pilot, lambda: "not read" in all_text(app))
        lines = [line for line in all_text(app).splitlines() if "core.log" in line]
        assert lines and all("not read" in one and one.count("KiB") == 1 for one in lines)
