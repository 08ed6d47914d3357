"""`rocm-tui watch -- CMD`: a program and the screen in one."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import time
from pathlib import Path

import pytest

from backend.disk.layout import Layout
from tests.support.hooked import BMM
from tests.support.terminal_lab import PATIENCE, WATCH, Terminal, alive, ended, needs_tmux
from tests.support.torch_models import child_env

pytestmark = needs_tmux

PROGRAM = """
import os, signal, sys, time
def caught(number, frame):
    print("caught", number)
    sys.exit(7)
signal.signal(signal.SIGINT, caught)
print("pid", os.getpid(), sys.stdout.isatty(), sys.stdin.read())
for n in range(300):
    print(f"\\rbar {n}", end="")
    print(f"\\rline {n} \\x1b[31mred\\x1b[0m \\x1b]0;OWNED\\x07[bold]x[/]")
print("\\x1b[2Jend of it", file=sys.stderr)
while len(sys.argv) > 1:
    time.sleep(0.05)
sys.exit(3)
"""


def watch(tmp_path: Path, *words: str) -> list[str]:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    start = [*WATCH, "--cache-dir", str(tmp_path / "cache"), "--", sys.executable, str(program)]
    return [*start, *words]


def logs(tmp_path: Path) -> list[Path]:
    return list(Layout(tmp_path / "cache").sessions.glob("*.output.log"))


def output(tmp_path: Path) -> bytes:
    return b"".join(log.read_bytes() for log in logs(tmp_path))


def child(tmp_path: Path, terminal: Terminal) -> int:
    terminal.wait_until(lambda: b"end of it" in output(tmp_path), "its output")
    return int(output(tmp_path).split()[1])


def test_output_search_exit_code(tmp_path: Path) -> None:
    with Terminal(watch(tmp_path), (80, 24)) as terminal:
        terminal.wait_for("program: exit code 3")
        terminal.press("0")  # below
        terminal.wait_for("0 full screen")
        terminal.wait_for("end of it", "No tuning yet.")
        assert "rocm-tui: " not in terminal.screen()
        terminal.press("0")
        terminal.wait_for("Complete output:")
        screen = terminal.wait_for("end of it", "line 299 red [bold]x[/]")
        assert "bar" not in screen
        assert terminal.title != "OWNED"
        terminal.press("/")
        terminal.wait_for("words in a line")
        terminal.press("1", "2", "Space", "r", "Enter")
        terminal.wait_for("▌line 212 red")
        terminal.wait_for("line 299", gone=True)
        terminal.press("G")
        terminal.wait_for("end of it")
        terminal.press("q")  # back to Watch
        terminal.wait_for("No tuning yet.")
        terminal.press("q")  # nothing runs any more, so nothing is asked
        terminal.wait_until(lambda: terminal.status == 3, "its exit code")
        told = "ended: exit code 3; its output: "
        terminal.wait_until(lambda: told in terminal.screen().replace("\n", ""), told)
    kept = output(tmp_path)
    assert kept.startswith(b"pid ") and b" True \n" in kept[:40]  # a terminal, and no input
    assert b"\rbar 299\rline 299 \x1b[31mred" in kept and b"\x1b[2Jend of it\n" in kept


@pytest.mark.parametrize(
    "writes", ["printf 'half a line'", "printf 'half a line' >&2", "printf '%80s' wide", "echo all"]
)
def test_closing_lines_begin_a_line_of_their_own(tmp_path: Path, writes: str) -> None:
    run = shlex.join([sys.executable, "-m", "rocm_tui", "run", "--cache-dir", str(tmp_path / "c")])
    words = f"{run} -- sh -c {shlex.quote(writes)}; sleep 600"
    with Terminal(["sh", "-c", words], (80, 24)) as terminal:
        terminal.wait_for("next: ")
        first, second, *_ = terminal.screen().splitlines()
    assert first.split()[0] in ("half", "wide", "all") and "rocm-tui" not in first
    assert second.startswith("rocm-tui: nothing was recorded")


def test_leaving_asks_what_becomes_of_the_program(tmp_path: Path) -> None:
    with Terminal(watch(tmp_path, "stay"), (100, 30)) as terminal:
        pid = child(tmp_path, terminal)
        terminal.press("C-c")
        terminal.wait_for("Quit? The program still runs.")
        terminal.press("Escape")
        terminal.wait_for("Quit?", gone=True)
        assert alive(pid) and b"caught" not in output(tmp_path)
        terminal.press("q")
        terminal.wait_for("Stop it  s")
        terminal.press("s")
        terminal.wait_until(lambda: terminal.status == 128 + signal.SIGTERM, "its end")
        assert ended(pid)


def test_the_program_gets_its_ctrl_c_by_x(tmp_path: Path) -> None:
    with Terminal(watch(tmp_path, "stay"), (100, 30)) as terminal:
        pid = child(tmp_path, terminal)
        terminal.press("0", "0")
        terminal.wait_for("Complete output:")
        terminal.press("x")
        terminal.wait_for("It gets a Ctrl-C")
        terminal.press("Enter")
        terminal.wait_for("caught 2")
        terminal.wait_for("exit code 7")
        assert ended(pid) and terminal.status is None
        terminal.press("Escape")
        terminal.wait_for("No tuning yet.")
        terminal.press("q")
        terminal.wait_until(lambda: terminal.status == 7, "the program's exit code")


LASTING = """
import pathlib, sys, time
for n in range(200):
    print(f"line {n}", "x" * 200, flush=True)
    while n == 100 and not pathlib.Path(sys.argv[1]).exists():
        time.sleep(0.02)
print("told", file=sys.stderr)
"""


@pytest.mark.parametrize("how", ["detach", "terminate", "hang-up", "kill", "kill all"])
def test_it_goes_on_without_the_screen_and_its_output_is_whole(tmp_path: Path, how: str) -> None:
    program, go_on = tmp_path / "program.py", tmp_path / "go-on"
    program.write_text(LASTING)
    words = ["--cache-dir", str(tmp_path / "cache"), "--", sys.executable, str(program)]
    with Terminal([*WATCH, *words, str(go_on)], (100, 30)) as terminal:
        terminal.wait_until(lambda: b"line 100 " in output(tmp_path), "its output")
        screen = terminal.pid
        if how == "detach":
            terminal.press("q")
            terminal.wait_for("Leave it running  d")
            terminal.press("d")
            terminal.wait_until(lambda: terminal.status == 0, "the end of the screen")

            def told() -> bool:
                said = terminal.screen().replace("\n", "")
                return "goes on (pid " in said and str(logs(tmp_path)[0]) in said

            terminal.wait_until(told, "that it goes on")
        elif how == "terminate":
            os.kill(screen, signal.SIGTERM)
        elif how == "hang-up":
            terminal.kill_terminal()
        elif how == "kill":
            os.kill(screen, signal.SIGKILL)
        else:  # as a closed connection may: all of the screen's session, and nobody can listen
            os.killpg(os.getpgid(screen), signal.SIGHUP)
            os.killpg(os.getpgid(screen), signal.SIGKILL)
        assert ended(screen)
    go_on.touch()  # only now does it write the rest: nobody has its terminal but the copier
    end = time.monotonic() + PATIENCE
    while b"told\n" not in output(tmp_path):
        assert time.monotonic() < end, output(tmp_path)[-300:]
        time.sleep(0.05)
    whole = "".join(f"line {n} {'x' * 200}\n" for n in range(200))
    assert output(tmp_path).decode().startswith(f"{whole}told\n")
    (record,) = Layout(tmp_path / "cache").sessions.glob("*.run.jsonl")
    while b'"status":0' not in record.read_bytes():
        assert time.monotonic() < end, record.read_text()
        time.sleep(0.05)


def test_a_real_compile_and_its_rows(tmp_path: Path) -> None:
    program = tmp_path / "model.py"
    program.write_text(BMM.replace("config.max_autotune = True", ""))
    cache = tmp_path / "cache"
    words = ["--max-autotune", "--cache-dir", str(cache), "--", sys.executable, str(program)]
    with Terminal([*WATCH, *words], (100, 30), child_env(cache)) as terminal:
        terminal.wait_for("program running (0)")
        terminal.wait_for("4×32×96×64")
        terminal.wait_for("exit code 0")
        terminal.press("0", "0")
        terminal.wait_for("AUTOTUNE bmm")
