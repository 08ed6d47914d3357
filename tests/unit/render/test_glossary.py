"""docs/data/glossary.csv has the words, columns and keys of the program."""

from __future__ import annotations

from textual.binding import Binding

from rocm_tui.render import glossary
from rocm_tui.tui.screens.help import KEYBOARDS, key_groups, screen_groups
from tests.support.docs_data import assert_written


def test_the_table_has_every_word_column_and_key() -> None:
    """`ACCEPT_GLOSSARY=1` writes it."""
    groups = (*glossary.groups(), *screen_groups(), *key_groups())
    rows = [(group.title, entry.name, entry.about) for group in groups for entry in group.entries]
    assert_written("glossary.csv", [("where", "word", "meaning"), *rows], "ACCEPT_GLOSSARY")


def test_every_key_has_a_name_of_its_own_and_a_sentence() -> None:
    names = []
    for _, bindings in KEYBOARDS:
        for binding in bindings:
            assert isinstance(binding, Binding)
            assert binding.id and binding.tooltip and binding.action
            names.append(binding.id)
    assert len(names) == len(set(names)) > 50
    keys = {key for group in key_groups() for entry in group.entries for key in entry.title.split()}
    assert {"j", "↓", "/", "?", "F1", "esc", "space", "ctrl+p"} <= keys
