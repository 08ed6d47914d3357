"""The campaign itself: its parts can be run, it counts, and its table goes where it belongs."""

from __future__ import annotations

import csv
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import campaign
from tests.campaign import Figure, __main__
from tests.support.places import ROOT

PARTS = [m.name for m in pkgutil.iter_modules(campaign.__path__) if not m.name.startswith("_")]


@pytest.mark.parametrize("part", PARTS)
def test_each_part_can_be_run(part: str) -> None:
    """As `tests.campaign` calls it; most parts take too long to run here."""
    run = importlib.import_module(f"tests.campaign.{part}").run
    assert inspect.isgeneratorfunction(run)
    assert list(inspect.signature(run).parameters) == ["folder", "seconds", "seed"]


def test_a_broken_promise_ends_with_1(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = tmp_path / "campaign.csv"
    document.write_text("old\n")
    monkeypatch.setattr(__main__, "DOCUMENT", document)
    for bad in (0, 3):

        def run(folder: Path, seconds: float, seed: int, bad: int = bad) -> Iterator[Figure]:
            assert not list(folder.iterdir()) and seed == 7
            yield Figure("kills", 12_000, bad, "0 lost")

        monkeypatch.setattr("tests.campaign.kills.run", run)
        words = ["--minutes", "0.1", "--only", "kills", "--seed", "7", "--write"]
        assert __main__.main(words) == (1 if bad else 0)
        head, row = csv.reader(document.read_text().splitlines())
        assert head == ["attack", "tries", "broken", "goal", "note", "run"]
        assert row[:5] == ["kills", "12000", str(bad), "0 lost", ""] and "seed 7" in row[5]
    assert "3 BAD" in capsys.readouterr().out


@pytest.mark.parametrize("part", ["kills", "inputs"])
def test_a_second_of_it_breaks_nothing(part: str) -> None:
    """In a process of its own: the parts fork, which one that has threads must not do."""
    words = [sys.executable, "-m", "tests.campaign", "--minutes", "0.02", "--only", part]
    done = subprocess.run(
        [*words, "--seed", "1"], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    tries = re.findall(r": ([\d,]+) tries, 0 bad", done.stdout)
    assert sum(int(count.replace(",", "")) for count in tries) > 0
