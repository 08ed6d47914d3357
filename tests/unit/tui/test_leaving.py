"""`q` and `escape` close the upper screen; in Watch `q` leaves the program. Footers agree."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical

from rocm_tui.jobs.queue import Order
from rocm_tui.tui.base import BaseApp, Dialog
from rocm_tui.tui.screens.compare import CompareScreen
from rocm_tui.tui.screens.dialogs import ConfirmScreen, LeaveScreen
from rocm_tui.tui.screens.help import KEYBOARDS, HelpScreen
from rocm_tui.tui.screens.watch import WatchScreen
from rocm_tui.tui.widgets.one_line import KeyBar
from tests.support.screen_lab import panes_of, running, screen_text, until, write_cache

UPPER = ("3", "4", "7", "5", "8", "question_mark", "c")


@pytest.mark.parametrize("leave", ["q", "escape"])
async def test_the_upper_screen_is_closed_and_nothing_else(tmp_path: Path, leave: str) -> None:
    write_cache(tmp_path, 8)
    async with running(tmp_path, size=(140, 45)) as (app, pilot):
        await panes_of(app, pilot, 1)
        line = screen_text(app.screen.query_one(KeyBar))
        assert " q quit " in line
        for key in UPPER:
            await pilot.press(key)
            await until(pilot, lambda: not isinstance(app.screen, WatchScreen))
            line = screen_text(app.screen.query_one(KeyBar))
            assert " esc q back " in line and "quit" not in line
            await pilot.press(leave)
            await until(pilot, lambda: isinstance(app.screen, WatchScreen))
            assert app.is_running
        await pilot.press("3", "question_mark")
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))
        await pilot.press(leave)
        assert len(app.screen_stack) == 2 and app.is_running


async def test_one_step_at_a_time_and_at_last_out(tmp_path: Path) -> None:
    write_cache(tmp_path, 8)
    async with running(tmp_path) as (app, pilot):
        await panes_of(app, pilot, 1)
        await pilot.press("c")
        await until(pilot, lambda: isinstance(app.screen, CompareScreen))
        app.screen.diff.display = True
        await pilot.press("q")
        assert isinstance(app.screen, CompareScreen), "the difference was closed"
        await pilot.press("q")
        app.push_screen(ConfirmScreen("Really?", "Yes", ["It does something."]))
        await until(pilot, lambda: isinstance(app.screen, Dialog))
        await pilot.press("q")
        await until(pilot, lambda: isinstance(app.screen, WatchScreen))
        await pilot.press("q")
        await until(pilot, lambda: not app.is_running)


class _Closer(Vertical):
    """Closes its screen before its own children are mounted."""

    def compose(self) -> ComposeResult:
        self.screen.dismiss()
        return []


class _ClosedHalfway(Dialog[str]):
    def compose(self) -> ComposeResult:
        with _Closer():
            yield from self.compose_answers("Yes")

    def on_mount(self) -> None:
        self.query_one("#yes").focus()


async def test_a_question_may_be_closed_while_its_widgets_are_made(tmp_path: Path) -> None:
    async with running(tmp_path) as (app, pilot):
        question = _ClosedHalfway()
        await app.push_screen(question)
        await until(pilot, lambda: question.is_mounted and not question.is_running)
        assert isinstance(app.screen, WatchScreen)


async def test_ctrl_c_leaves_from_anywhere(tmp_path: Path) -> None:
    async with running(tmp_path) as (app, pilot):
        await pilot.press("question_mark", "ctrl+c")
        await until(pilot, lambda: not app.is_running)


@pytest.mark.parametrize("above", ["question", "palette"])
async def test_leaving_is_asked_above_another_question_too(tmp_path: Path, above: str) -> None:
    end = threading.Event()
    async with running(tmp_path) as (app, pilot):
        try:
            app.jobs.submit(Order("measure", "mm", "0", lambda run: str(end.wait(90.0))))
            if above == "question":
                app.push_screen(ConfirmScreen("Really?", "Yes", ["It does something."]))
            else:
                app.action_command_palette()
            await until(pilot, lambda: app.asking)
            await pilot.press("ctrl+q")
            await until(pilot, lambda: isinstance(app.screen, LeaveScreen))
            await pilot.press("escape")
            await until(pilot, lambda: not isinstance(app.screen, LeaveScreen))
            assert app.asking and app.is_running
            await pilot.press("ctrl+q")
            await until(pilot, lambda: isinstance(app.screen, LeaveScreen))
            await pilot.press("ctrl+q")
            await until(pilot, lambda: not app.is_running)
        finally:
            end.set()
            await asyncio.to_thread(app.jobs.stop)


LEAVES = """
import os, signal, sys, time
from rocm_tui.tui import terminal
terminal._GRACE = 0.2
with terminal.leaving(lambda code: None) as closed:
    if "closed" in sys.argv:
        closed.set()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(1.0 if "closed" in sys.argv else 60.0)
print("all was done")
"""


@pytest.mark.parametrize(("word", "code"), [("closed", 0), ("blocked", 128 + signal.SIGTERM)])
def test_a_signal_does_not_cut_what_is_done_after_the_screen(word: str, code: int) -> None:
    """Choices are written, and a program that shall end is killed after 10 s."""
    words = [sys.executable, "-c", LEAVES, word]
    left = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=50)
    assert left.returncode == code
    assert (b"all was done" in left.stdout) == (word == "closed")


def test_no_screen_takes_q_for_itself() -> None:
    for title, bindings in KEYBOARDS:
        keys = {key for one in bindings if isinstance(one, Binding) for key in one.key.split(",")}
        assert ("q" in keys) == (title in ("Everywhere", "A question")), title
    assert BaseApp.BINDINGS
