"""The page of words, columns and keys says what the program says."""

from __future__ import annotations

import os

from textual.binding import Binding

from rocm_tui.tui.screens.help import KEYBOARDS, key_groups, markdown
from tests.support.places import ROOT

PAGE = ROOT / "docs" / "glossary.md"


def test_the_page_is_what_the_code_says() -> None:
    """`ACCEPT_GLOSSARY=1` writes it."""
    if os.environ.get("ACCEPT_GLOSSARY"):
        PAGE.write_text(markdown())
    assert PAGE.read_text() == markdown()


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
