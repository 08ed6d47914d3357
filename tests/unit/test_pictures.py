"""The pictures of the pages: each is shown, and shows only columns that the program still has."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

from rocm_tui.render import glossary
from rocm_tui.tui.keys import PLACES
from rocm_tui.tui.screens.help import screen_groups
from tests.pictures import SAMPLES
from tests.support.places import ROOT

FOLDER = ROOT / "screenshots"
NO_TEXT = {"serve"}
"""A picture of a browser, which has no SVG."""
TABLES = [
    {entry.title for entry in group.entries} for group in (*glossary.groups(), *screen_groups())
]


def headings(drawn: str) -> list[list[str]]:
    """Return the titles of each table in a picture: capital words, and several of them in a line.

    Behind FROM the table of choices has the keys of configurations, which Inductor names.
    """
    rows: dict[float, list[str]] = {}
    for y, text in re.findall(r'<text[^>]* y="([\d.]+)"[^>]*>(.*?)</text>', drawn):
        rows.setdefault(float(y), []).append(re.sub("[▲▼│▌▏]", "", html.unescape(text)).strip())
    ours = (row[: row.index("FROM") + 1] if "FROM" in row else row for row in rows.values())
    capital = ([text for text in row if re.fullmatch("[A-Z][A-Z /]*s?", text)] for row in ours)
    return [row for row in capital if len(row) > 3]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.svg")), ids=lambda path: path.name)
def test_a_picture_shows_columns_of_today(path: Path) -> None:
    read = headings(path.read_text())
    wrong = [row for row in read if not any(titles.issuperset(row) for titles in TABLES)]
    assert wrong == [], "make pictures"


def test_the_tables_of_the_pictures_are_read() -> None:
    read = [row for path in FOLDER.glob("*.svg") for row in headings(path.read_text())]
    titles = {title for row in read for title in row}
    assert len(read) >= 7
    assert titles >= {"LEAD", "VS BEST", "THE GRAPH IS", "LINT", "CAPTURED"}


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.svg")), ids=lambda path: path.name)
def test_a_picture_shows_the_places_with_their_keys(path: Path) -> None:
    title = " ".join(re.findall(r'<text[^>]* y="41"[^>]*>(.*?)</text>', path.read_text()))
    assert title.startswith("rocm-tui")
    for letter, name, _ in PLACES:
        assert name not in title or f"{letter} {name}" in title, "make pictures"


@pytest.mark.parametrize("name", SAMPLES)
def test_a_picture_of_a_scene_is_the_one_of_today(name: str) -> None:
    now = ROOT / "tests" / "support" / "screens" / f"{name}-140x45.svg"
    assert (FOLDER / f"{name}.svg").read_text() == now.read_text(), "make pictures"


def test_every_picture_is_on_a_page_and_has_its_text() -> None:
    shown = {
        name
        for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))
        for name in re.findall(r"screenshots/([\w-]+)\.png", page.read_text())
    }
    names = {path.stem for path in FOLDER.iterdir()}
    assert shown == names
    assert {path.stem for path in FOLDER.glob("*.svg")} == names - NO_TEXT
