"""The line of a command that works: on a terminal it lives, elsewhere there is none."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from rocm_tui.cli.work import live_line
from tests.support.terminal_lab import Terminal, needs_tmux

pytestmark = needs_tmux

PROGRAM = """
import sys, time
from pathlib import Path
from backend.wire.jobs import Progress
from rocm_tui.cli.work import LiveLine
def seen(what):
    while not Path(sys.argv[1], what).exists():
        time.sleep(0.05)
line = LiveLine()
with line.during("mm 8x8"):
    seen("start")
    line.part(0, 3)
    line.progressed(Progress("timing", timed=3, total=6))
    seen("timing")
    line.part(1, 3)
    line.show("the next")
    seen("next")
print("done")
time.sleep(600)
"""


def test_one_line_that_is_rewritten_and_counts_on(tmp_path: Path) -> None:
    with Terminal([sys.executable, "-c", PROGRAM, str(tmp_path)], (80, 10)) as terminal:
        terminal.wait_for("mm 8x8: starting a worker · ")
        counted = re.compile(r"mm 8x8: starting a worker · (?!0|1 )\d+ s")
        terminal.wait_until(lambda: counted.search(terminal.screen()), "it counts")
        (tmp_path / "start").touch()
        terminal.wait_for("mm 8x8: ━━━━━      3/6 timed · ")
        assert "starting" not in terminal.screen()
        (tmp_path / "timing").touch()
        terminal.wait_for("the next · ", " s to go")
        (tmp_path / "next").touch()
        terminal.wait_until(lambda: terminal.screen().strip() == "done", "nothing else stands")


def test_the_times_are_never_cut() -> None:
    line = live_line("a graph", "x" * 200, "12 s, about 3 s to go", 60)
    assert len(line) <= 60 and line.endswith("… · 12 s, about 3 s to go".replace("…", "x"))
    assert live_line("a", "", "12 s", 60) == ""
