"""CONTRIBUTING.md says where to add what: the files and the tables that it names are there."""

from __future__ import annotations

import re

import pytest

from tests.support.import_graph import FLOORS
from tests.support.places import ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text()
NAMED = sorted(set(re.findall(r"`((?:rocm_tui|backend|tests|docs)/[\w./]*)`", TEXT)))
TABLES = sorted(set(re.findall(r"`([A-Z]\w+)` (?:in|of) `([\w/]+\.py)`", TEXT)))


@pytest.mark.parametrize("path", NAMED)
def test_what_is_named_is_there(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize(("name", "path"), TABLES)
def test_the_table_that_is_named_stands_there(name: str, path: str) -> None:
    assert re.search(rf"^(class |\w+, )?{name}\b", (ROOT / path).read_text(), re.MULTILINE)


def test_the_arrows_are_the_floors_of_the_import_graph() -> None:
    (drawn,) = re.findall(r"```\n(cli, tui -> .*?)```", TEXT, re.DOTALL)
    program, backend = (line.split(" -> ") for line in drawn.strip().splitlines())
    assert program.pop() == "backend"
    floors = [", ".join(sorted(room.partition(".")[2] for room in rooms)) for rooms in FLOORS]
    assert [*program, *backend] == floors[::-1]


def test_ten_places_are_listed() -> None:
    rows = TEXT.partition("## Where would I add")[2].partition("\n## ")[0]
    assert len(NAMED) > 20 and len(TABLES) > 4
    assert len([line for line in rows.splitlines() if line.startswith("| a")]) >= 10
