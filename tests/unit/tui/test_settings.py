"""The screen with a person's settings: keys, theme, what is wrong told; and what it remembers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rocm_tui.config.memory import Memory
from rocm_tui.session.grouping import Arrangement
from rocm_tui.tui import themes
from rocm_tui.tui.screens.jobs import JobsScreen
from rocm_tui.tui.widgets.one_line import KeyBar, TitleBar
from tests.support.screen_lab import panes_of, running, screen_text, until, write_cache


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the settings lie, and below it the memory."""
    folder = tmp_path / "rocm-tui"
    folder.mkdir()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return folder


def write(home: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """As a file of another name each time: one is read once a process."""
    path = home / f"{abs(hash(text))}.toml"
    path.write_text(text)
    monkeypatch.setenv("ROCM_TUI_CONFIG", str(path))


async def test_keys_of_ones_own(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(home, monkeypatch, '[keys]\napp.jobs = "f6,f8"\nwatch.sort = "f7"\n')
    write_cache(tmp_path, 8, 16)
    async with running(tmp_path, size=(140, 45)) as (app, pilot):
        panes = await panes_of(app, pilot, 2)
        await until(pilot, lambda: app.own_keys)
        await pilot.press("s", "4")
        assert panes.table.sort.name == "age" and not isinstance(app.screen, JobsScreen)
        await pilot.press("f7")
        assert panes.table.sort.name == "gain"
        line = screen_text(app.screen.query_one(KeyBar))
        assert "f7 sort" in line
        assert "f6 Jobs" in screen_text(app.screen.query_one(TitleBar))
        assert not app._notifications
        await pilot.press("f8")
        assert isinstance(app.screen, JobsScreen)
        await pilot.press("f6", "question_mark")
        await until(pilot, lambda: "Keys: Watch" in screen_text(app.screen))
        await pilot.press(*"jobs:")
        await until(pilot, lambda: "  f6 f8 " in screen_text(app.screen))


async def test_a_bad_file_is_told_and_the_rest_holds(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = '[theme]\nname = "rocm-light"\n[keys]\nwatch.pin = "u"\nwatch.sort = "f7"\n[limit]\n'
    write(home, monkeypatch, text)
    write_cache(tmp_path, 8)
    async with running(tmp_path) as (app, pilot):
        await panes_of(app, pilot, 1)
        assert app.theme == "rocm-light"
        await until(pilot, lambda: len(app._notifications) == 2)
        told = [one.message for one in app._notifications]
        assert ":6: no section 'limit': did you mean 'limits'?" in told[0]
        assert ":4: watch.pin and watch.unpin would both be 'u'" in told[1]
        assert app.own_keys == {"watch.sort": "f7"}


async def test_what_is_no_settings_at_all_does_not_stop_it(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(home, monkeypatch, "\0 what")
    async with running(tmp_path) as (app, pilot):
        await until(pilot, lambda: app._notifications)
        (one,) = app._notifications
        assert ":1: not valid TOML" in one.message


async def test_a_memory_that_is_broken_is_told_and_left_alone(tmp_path: Path, home: Path) -> None:
    (home / "state.json").write_text("{broken")
    write_cache(tmp_path, 8)
    async with running(tmp_path) as (app, pilot):
        await until(pilot, lambda: app._notifications)
        (one,) = app._notifications
        assert "nothing is remembered" in one.message and "state.json is not JSON" in one.message
    assert (home / "state.json").read_text() == "{broken"


async def test_theme_and_order_are_kept(tmp_path: Path, home: Path) -> None:
    write_cache(tmp_path, 8, 16)
    async with running(tmp_path) as (app, pilot):
        await panes_of(app, pilot, 2)
        started = app.theme
        await pilot.press("s", "s")
        app.theme = "rocm-light"
        await pilot.pause()
    assert started != "rocm-light"
    async with running(tmp_path) as (app, pilot):
        panes = await panes_of(app, pilot, 2)
        assert app.theme == "rocm-light" and panes.table.sort.name == "lead"


async def test_order_and_groups_of_one_source_do_not_reappear_on_another(
    tmp_path: Path, home: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for cache in (first, second):
        write_cache(cache, 8, 16)
    async with running(first) as (app, pilot):
        await panes_of(app, pilot, 2)
        await pilot.press("s", "r", "b", "b", "f", "d")
        await until(pilot, lambda: app.screen.query("#devices"))
    async with running(second) as (app, pilot):
        panes = await panes_of(app, pilot, 2)
        assert (panes.table.sort.name, panes.table.reverse) == ("age", False)
        assert panes.table.arrangement == Arrangement()
        assert app.workspace.recall("devices", "") == ""
    async with running(first) as (app, pilot):
        panes = await panes_of(app, pilot, 2)
        assert (panes.table.sort.name, panes.table.reverse) == ("gain", True)
        assert panes.table.arrangement == Arrangement("op", fold=False)
        await until(pilot, lambda: app.screen.query("#devices"))


async def test_a_remembered_theme_that_is_gone_is_no_theme(tmp_path: Path, home: Path) -> None:
    names = ("truecolor", "256", "standard", "windows", "")
    state = {f"theme {name}": "of-yesterday" for name in names}
    here = Memory(home / "state.json").workspace([str(tmp_path)]).name
    spaces = {here: {"sort": "of-yesterday", "group": "of-yesterday"}}
    (home / "state.json").write_text(json.dumps({**state, "workspaces": spaces}))
    write_cache(tmp_path, 8)
    async with running(tmp_path) as (app, pilot):
        panes = await panes_of(app, pilot, 1)
        assert app.theme.startswith("rocm-") and panes.table.sort.name == "age"
        assert panes.table.arrangement.by == ""


async def test_colours_and_columns_of_ones_own(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(
        home,
        monkeypatch,
        '[theme]\nname = "rocm-dark"\n[colours]\naccent = 208\ncursor = "#404040"\nbad = "ruby"\n'
        '[columns]\nhide = ["AGE", "in use", "colour"]\n',
    )
    write_cache(tmp_path, 8)
    async with running(tmp_path, size=(140, 45)) as (app, pilot):
        panes = await panes_of(app, pilot, 1)
        styles = themes.styles(app)
        assert styles["accent"].color.get_truecolor()[:2] in [(255, 135), (254, 135)]
        assert "404040" in str(styles["cursor"].bgcolor) and styles["bad"].color.triplet.red in (
            223,
            224,
        )
        await until(pilot, lambda: "OP" in screen_text(panes.table).splitlines()[0])
        head = screen_text(panes.table).splitlines()[0]
        assert "AGE" not in head and "IN USE" not in head
        await until(pilot, lambda: len(app._notifications) == 2)
        told = [one.message for one in app._notifications]
        assert ":6: colours.bad: 'ruby' is no colour: #rrggbb, a name" in told[0]
        assert ":8: columns.hide: no column 'colour'" in told[1]
