"""The line of a command that works: on a terminal it lives, elsewhere there is none."""

from __future__ import annotations

import sys

from rocm_tui.cli.work import live_line
from tests.support.terminal_lab import Terminal, needs_tmux

pytestmark = needs_tmux

PROGRAM = """
import sys, time
from backend.wire.jobs import Progress
from rocm_tui.cli.work import LiveLine
line = LiveLine()
with line.during("mm 8x8"):
    time.sleep(2.5)
    line.part(0, 3)
    line.progressed(Progress("timing", timed=3, total=6))
    time.sleep(1.2)
    line.part(1, 3)
    line.show("the next")
    time.sleep(1.5)
print("done")
time.sleep(60)
"""


def test_one_line_that_is_rewritten_and_counts_on() -> None:
    with Terminal([sys.executable, "-c", PROGRAM], (80, 10)) as terminal:
        terminal.wait_for("mm 8x8: starting a worker · 2 s")
        terminal.wait_for("mm 8x8: ━━━━━      3/6 timed · ")
        assert "starting" not in terminal.screen()
        terminal.wait_for("the next · ")
        assert " s to go" in terminal.screen()
        screen = terminal.wait_for("done")
        assert screen.strip() == "done"


def test_the_times_are_never_cut() -> None:
    line = live_line("a graph", "x" * 200, "12 s, about 3 s to go", 60)
    assert len(line) <= 60 and line.endswith("… · 12 s, about 3 s to go".replace("…", "x"))
    assert live_line("a", "", "12 s", 60) == ""
