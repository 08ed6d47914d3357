"""`rocm-tui run` on a terminal says what the program does, and never within what that writes."""

from __future__ import annotations

import os
import pty
import select
import sys
from pathlib import Path

from rocm_tui.cli.run import LEAST, LONG, Calm
from tests.support.torch_models import child_env

PROGRAM = """
import sys, time
import torch
print("to stdout")
sys.stderr.write("half a line ")
sys.stderr.flush()
time.sleep(2)
print("and its end", file=sys.stderr)
"""


def on_terminal(words: str, cache: Path) -> str:
    """What a terminal is sent."""
    pid, terminal = pty.fork()
    if pid == 0:
        env = {**child_env(cache), "TERM": "xterm-256color"}
        os.execvpe("sh", ["sh", "-c", words], env)
    shown = b""
    while select.select([terminal], [], [], 60)[0]:
        try:
            data = os.read(terminal, 4096)
        except OSError:
            break
        if not data:
            break
        shown += data
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    os.close(terminal)
    return shown.decode()


def test_the_line_goes_before_the_program_writes(tmp_path: Path) -> None:
    program, out = tmp_path / "program.py", tmp_path / "out"
    program.write_text(PROGRAM)
    run = f"{sys.executable} -m rocm_tui run"
    rest = f"--cache-dir {tmp_path / 'c'} -- {sys.executable} -W ignore {program} > {out}"
    shown = on_terminal(f"{run} {rest}", tmp_path)
    assert "\r\x1b[Krocm-tui: importing torch · " in shown
    before, _, after = shown.rpartition("half a line ")
    assert before.endswith(("\r\x1b[K", "\n"))
    assert after.startswith("and its end\r\n")  # nothing of ours within a line of the program
    assert out.read_text() == "to stdout\n"
    quiet = on_terminal(f"{run} --quiet {rest}", tmp_path)
    assert "importing" not in quiet


def test_whole_lines_are_seldom() -> None:
    calm = Calm()
    said = [now for now in range(600) if calm.due("tuning", float(now))]
    assert said[:4] == [LONG, LONG + LEAST, LONG + 3 * LEAST, LONG + 7 * LEAST]
    assert len(said) < 10 and not calm.due(None, 1e6)
    assert not any(Calm().due(str(now), float(now)) for now in range(100))  # each took a second
