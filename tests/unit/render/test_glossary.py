"""The page of words, columns and keys says what the program says."""

from __future__ import annotations

import os

from textual.binding import Binding

from rocm_tui.tui.screens.help import key_groups, markdown
from rocm_tui.tui.widgets.line_view import LineView
from tests.support.places import ROOT

PAGE = ROOT / "docs" / "glossary.md"


def test_the_page_is_what_the_code_says() -> None:
    """`ACCEPT_GLOSSARY=1` writes it."""
    if os.environ.get("ACCEPT_GLOSSARY"):
        PAGE.write_text(markdown())
    assert PAGE.read_text() == markdown()


def test_every_key_has_a_name_of_its_own_and_a_sentence() -> None:
    names = set()
    for binding in LineView.BINDINGS:
        assert isinstance(binding, Binding)
        names.add(binding.id)
    assert None not in names and len(names) == len(LineView.BINDINGS)
    for group in key_groups():
        assert group.entries
        assert all(entry.title and entry.about for entry in group.entries)
