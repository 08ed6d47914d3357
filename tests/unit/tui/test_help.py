"""Help explains every key and every column, wherever it is made."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import rocm_tui.render
import rocm_tui.tui.screens
import rocm_tui.tui.widgets
from rocm_tui.render import glossary
from rocm_tui.render.table import Column
from rocm_tui.tui.base import SCREENS, BaseScreen, load_screen
from rocm_tui.tui.screens.help import KEYBOARDS, HelpScreen, key_groups, screen_groups

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
