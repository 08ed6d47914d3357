"""Help explains every key and every column, wherever it is made."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from textual.binding import Binding

import rocm_tui.render
import rocm_tui.tui.screens
import rocm_tui.tui.widgets
from rocm_tui.render import glossary
from rocm_tui.render.table import Column
from rocm_tui.tui.base import SCREENS, BaseScreen, load_screen
from rocm_tui.tui.keys import PLACES
from rocm_tui.tui.screens.help import KEYBOARDS, HelpScreen, HelpText, key_groups, screen_groups
from tests.support.screen_lab import running, screen_text, until

PACKAGES = (rocm_tui.render, rocm_tui.tui.screens, rocm_tui.tui.widgets)


def columns() -> Iterator[Column]:
    """All that a module keeps under a name, alone or with others."""
    for package in PACKAGES:
        for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            for value in vars(importlib.import_module(found.name)).values():
                several = value if isinstance(value, tuple) else (value,)
                yield from (one for one in several if isinstance(one, Column))


def test_every_column_that_has_a_title_and_a_sentence_is_explained() -> None:
    groups = (*glossary.groups(), *screen_groups())
    told = {(entry.title, entry.about) for group in groups for entry in group.entries}
    headed = {(column.title, column.about) for column in columns() if column.title and column.about}
    assert len(headed) > 100
    assert headed - told == set()


def test_every_key_is_explained() -> None:
    entries = [entry for group in key_groups() for entry in group.entries]
    assert len(entries) > 40 and all(entry.about for entry in entries)


def test_every_screen_of_the_table_can_be_loaded_and_its_keys_are_explained() -> None:
    explained = [binding for _, bindings in KEYBOARDS for binding in bindings]
    for name in SCREENS:
        screen = load_screen(name)
        assert issubclass(screen, BaseScreen), name
        assert screen is HelpScreen or set(screen.BINDINGS) <= set(explained), name


VIM = {("g", "G"), ("n", "N")}
"""First and last line, next and previous match: as in less and vim."""


def test_no_two_keys_of_a_screen_differ_by_case_alone() -> None:
    everywhere = {"Lists", "Everywhere"}
    for place, _ in KEYBOARDS:
        keys = {
            key
            for title, bindings in KEYBOARDS
            if title == place or title in everywhere
            for binding in bindings
            if isinstance(binding, Binding)
            for key in binding.key.split(",")
            if len(key) == 1
        }
        pairs = {(key, key.upper()) for key in keys if key.islower() and key.upper() in keys}
        assert pairs <= VIM, place


@pytest.mark.parametrize("width", [80, 140])
async def test_the_first_level_is_in_the_title_line_of_each_of_its_screens(
    tmp_path: Path, width: int
) -> None:
    async with running(tmp_path, size=(width, 24)) as (app, pilot):
        for key, name, _ in PLACES:
            if name == "Compare":  # of which choices?
                continue
            await pilot.press(key)
            await until(pilot, lambda name=name: name == app.screen.PLACE)
            line = screen_text(app.screen.query_one("#title"))
            for other, title, _ in PLACES:
                mark = "▌" if title == name else " "
                assert f"{mark}{other} {title}" in line
        await pilot.press("2")
        await until(pilot, lambda: app._notifications)
        (notice,) = app._notifications
        assert "Nothing to compare: Watch lists no tuning yet." in notice.message


async def test_help_begins_with_the_keys_of_the_place_and_is_filtered_by_typing(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, size=(80, 24)) as (app, pilot):
        await pilot.press("3", "question_mark")
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))
        text = app.screen.query_one(HelpText)
        assert "Keys: Pins" in screen_text(text).splitlines()[2]
        await pilot.press(*"unpin")
        await until(pilot, lambda: text.words == "unpin")
        shown = screen_text(text)
        assert "unpin the choice; asks first" in shown and "one line down" not in shown
        await pilot.press(*" q", *"zz")
        await until(pilot, lambda: "No key, column or word here has that" in screen_text(text))
        await pilot.press("escape")
        assert text.words == "" and isinstance(app.screen, HelpScreen)
        await pilot.press("q")
        await until(pilot, lambda: app.screen.PLACE == "Pins")
