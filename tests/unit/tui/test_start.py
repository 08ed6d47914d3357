"""What the first screen waits for: nothing that it does not show, and one paint.

Its time is a ratio to a bare app (benchmarks/bench_terminal.py). Here is counted what makes it.
"""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

FIRST = """
import json, os, sys
from textual.css.stylesheet import Stylesheet
from textual.drivers.linux_driver import LinuxDriver

words, told = sys.argv[1:3]
paints, reparsed = [], []
write, reparse = LinuxDriver.write, Stylesheet.reparse

def note(driver, data):
    write(driver, data)
    if len(data) > 1000:
        paints.append(data)
    if words in data:
        driver.stop_application_mode()
        with open(told, "w") as file:
            json.dump([sorted(sys.modules), paints, len(reparsed)], file)
        os._exit(0)

def count(sheet):
    reparsed.append(sheet)
    reparse(sheet)

LinuxDriver.write, Stylesheet.reparse = note, count
"""
BARE = """
from textual.app import App
from textual.widgets import Static
class Bare(App):
    def compose(self):
        yield Static("READY")
Bare().run()
"""
OURS = """
from rocm_tui.cli import main
main(["watch", "--cache-dir", sys.argv[3]])
"""
MOST = 52
"""Modules of ours that stand before the first paint; what is heavy brings more than a few."""
BESIDES = {"gc", "gettext", "pwd"}
"""What they need that a bare app does not, besides click."""


@dataclass(frozen=True, slots=True)
class Start:
    """What was loaded, painted and made anew up to the first paint."""

    modules: frozenset[str]
    paints: tuple[str, ...]
    reparsed: int

    @property
    def ours(self) -> list[str]:
        return sorted(
            name for name in self.modules if name.split(".")[0] in ("rocm_tui", "backend")
        )


def start(code: str, words: str, tmp_path: Path) -> Start:
    """Run it in a terminal until these words are painted."""
    told, nobody = tmp_path / "told.json", {"XDG_CONFIG_HOME": "/none", "XDG_STATE_HOME": "/none"}
    env = {**os.environ, **nobody, "TERM": "xterm-256color", "LINES": "40", "COLUMNS": "120"}
    env.pop("ROCM_TUI_CONFIG", None)
    ours, theirs = pty.openpty()
    try:
        command = [sys.executable, "-c", FIRST + code, words, str(told), str(tmp_path)]
        subprocess.run(command, env=env, stdin=theirs, stdout=theirs, stderr=theirs, timeout=60)
    finally:
        os.close(ours)
        os.close(theirs)
    modules, paints, reparsed = json.loads(told.read_text())
    return Start(frozenset(modules), tuple(paints), reparsed)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Start:
    return start(OURS, "A row appears here", tmp_path_factory.mktemp("watch"))


def test_the_first_screen_is_painted_once_and_whole(first: Start) -> None:
    assert len(first.paints) == 1
    for words in (
        "rocm-tui",
        "Loading existing tunings",
        "python train.py",
        "Watching",
        "more",
        "quit",
    ):
        assert words in first.paints[0]


def test_style_sheets_are_parsed_once(first: Start) -> None:
    assert not first.reparsed


def test_only_what_it_shows_is_loaded(first: Start, tmp_path: Path) -> None:
    bare = start(BARE, "READY", tmp_path)
    others = first.modules - bare.modules - set(first.ours)
    others = {name for name in others if name.split(".")[0] != "click"}
    assert others <= BESIDES
    assert len(first.ours) <= MOST, " ".join(first.ours)
