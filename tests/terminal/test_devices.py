"""The strip of devices in a real terminal: what it costs while eight GPUs flicker."""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

import psutil

from tests.support import gpus_program
from tests.support.fake_gpus import Card, cards
from tests.support.places import ROOT
from tests.support.screen_lab import write_cache
from tests.support.terminal_lab import PATIENCE, Terminal, needs_tmux

pytestmark = needs_tmux

SECONDS = 6.0
IDLE = 200
"""Bytes a second that the program may write while nothing happens."""


def flicker(found: list[Card], dice: random.Random) -> None:
    """As idle GPUs do."""
    for card in found:
        card.tell(hwmon0__power1_average=140_000_000 + dice.randint(-2, 2) * 1_000_000)
        card.tell(hwmon0__temp2_input=38_000 + dice.randint(0, 1) * 1000)
        card.tell(hwmon0__freq1_input=(132 + dice.randint(0, 30)) * 1_000_000)


def still(program: psutil.Process) -> None:
    """Until all is painted: nothing is written for a second."""
    end, written = time.monotonic() + PATIENCE, -1
    while written != (written := program.io_counters().write_chars):
        assert time.monotonic() < end
        time.sleep(1.0)


def test_eight_idle_gpus_cost_next_to_nothing(tmp_path: Path) -> None:
    found, dice = cards(tmp_path / "sys", 8), random.Random(3)
    write_cache(tmp_path, 8)
    command = (sys.executable, gpus_program.__file__, str(tmp_path / "sys"), "watch")
    with Terminal(
        (*command, "--cache-dir", str(tmp_path)), env={"PYTHONPATH": str(ROOT)}
    ) as terminal:
        terminal.wait_for("mm")
        terminal.press("d")
        terminal.wait_for("2.0/192G")
        program = psutil.Process(terminal.pid)
        still(program)
        before = program.io_counters().write_chars
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            flicker(found, dice)
            time.sleep(0.3)
        assert program.io_counters().write_chars - before < IDLE * SECONDS
        assert "7  ──────   0%  2.0/192G" in terminal.screen()
        found[7].work(100)
        terminal.wait_for("7  ━━━━━━ 100%  102/192G")
        terminal.press("d")
        terminal.wait_until(lambda: "192G" not in terminal.screen(), "the strip goes")
