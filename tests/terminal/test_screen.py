"""The screen in a real terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import shlex
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from backend.disk.layout import Layout
from backend.model.problem import TuningKey
from backend.pins.store import PinStore
from tests.support.terminal_lab import (
    PATIENCE,
    WATCH,
    Terminal,
    alive,
    ended,
    needs_tmux,
    raised_numbers,
    table,
)

pytestmark = needs_tmux


def watch(tmp_path: Path, *words: str) -> list[str]:
    return [*WATCH, "--cache-dir", str(tmp_path / "cache"), *words]


def test_rows_appear_as_the_log_grows_and_q_quits(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    with Terminal(watch(tmp_path, str(log))) as terminal:
        terminal.wait_for("No tuning yet.")
        log.write_text("step 1\n" + table(16))
        terminal.wait_for("16×64×64", "triton_mm_1", "10.0 µs", "2.00×")
        with log.open("a") as file:
            file.write(table(32))
        screen = terminal.wait_for("2 tunings", "32×64×64", "16×64×64")
        assert screen.index("32×64×64") < screen.index("16×64×64")
        assert all(len(line) <= 80 for line in screen.splitlines())
        pid = terminal.pid
        terminal.press("q")
        assert ended(pid)
        terminal.wait_until(lambda: terminal.status == 0, "exit status 0")


def test_hostile_text_is_shown_and_does_nothing(tmp_path: Path) -> None:
    evil = "\x1b]52;c;ZXZpbA==\x07\x1b]0;OWNED\x07\x1b[2J"
    markup = "[bold]x[/][@click=app.quit]k[/]"
    cache = tmp_path / "cache" / "cache" / ("4" * 64)
    cache.parent.mkdir(parents=True)
    choices = {f"triton{markup}-abc": 0.01, "mm": 0.02}
    inputs = "[('cpu', 'torch.float32', 16, 64, 64, 1, 0)]"
    content = {"m[red]m": {inputs: {"highest": choices}}}
    cache.write_text(json.dumps({"system": {}, "cache": content}))
    content = {f"m[red]m{evil}": {inputs: {"highest": choices}}}
    cache.with_name("5" * 64).write_text(json.dumps({"system": {}, "cache": content}))
    log = tmp_path / f"evil[red]{evil.replace('/', '')}.log"
    log.write_text(table(16).replace("BLOCK_M=16", f"BLOCK_M='{markup}{evil}'"))
    with Terminal(watch(tmp_path, str(tmp_path / "cache"), str(log)), (150, 40)) as terminal:
        terminal.allow_clipboard()
        screen = terminal.wait_for("16×64×64", "m[red]m")
        assert "No tuning yet" not in screen
        for keys in (("j",), ("k",), ("Tab", "y"), ("7",), ("Escape",), ("?",)):
            terminal.press(*keys)
            if keys in (("7",), ("Escape",)):  # help goes back to the screen it is asked on
                terminal.wait_for("PROBLEMS", gone=keys == ("Escape",))
            terminal.wait_until(lambda: terminal.status is None, "it goes on")
        terminal.wait_for("Keys: Watch")
        assert terminal.title != "OWNED"
        assert "evil" not in terminal.buffers()
        terminal.press("Escape")
        terminal.wait_for("Keys: Watch", gone=True)
        terminal.press("h")
        terminal.press("j")
        terminal.wait_for("[bold]x[/][@click=app.quit]k[/]")
        terminal.press("q")
        terminal.wait_until(lambda: terminal.status == 0, "the end")


def test_copy_says_what_and_reaches_the_clipboard(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(table(16))
    with Terminal(watch(tmp_path, str(log))) as terminal:
        terminal.allow_clipboard()
        terminal.wait_for("16×64×64")
        terminal.press("Tab", "y")
        terminal.wait_for("Copied the choice triton_mm_1")
        terminal.wait_until(lambda: "triton_mm_1" in terminal.buffers(), "tmux has the text")


def test_every_size_and_back(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("".join(table(16 * n) for n in range(1, 30)))
    with Terminal(watch(tmp_path, str(log))) as terminal:
        terminal.wait_for("464×64×64")
        terminal.resize(40, 10)
        terminal.wait_for("Terminal too small")
        with log.open("a") as file:
            file.write(table(1024))
        terminal.resize(200, 60)
        terminal.wait_for("1024×64×64")

        def beside() -> bool:
            return any("FLOP/s" in line and "mm" in line for line in terminal.screen().splitlines())

        terminal.wait_until(beside, "the details stand beside the table")
        terminal.resize(80, 24)
        terminal.wait_until(lambda: "FLOP/s" not in terminal.screen().splitlines()[1], "80x24")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1])
def test_signals_leave_in_order(tmp_path: Path, number: signal.Signals) -> None:
    with Terminal(watch(tmp_path)) as terminal:
        terminal.wait_for("No tuning yet.")
        pid = terminal.pid
        os.kill(pid, number)
        assert ended(pid)
        terminal.wait_until(lambda: terminal.status == 128 + number, "the signal's exit status")
        terminal.wait_for("No tuning yet", gone=True)  # the screen from before is back


@pytest.mark.parametrize("ignoring", [False, True])
def test_lost_terminal_ends_the_process(tmp_path: Path, ignoring: bool) -> None:
    command = watch(tmp_path)
    if ignoring:
        code = (
            "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); "
            "os.execvp(sys.argv[1], sys.argv[1:])"
        )
        command = [sys.executable, "-c", code, *command]
    with Terminal(command) as terminal:
        terminal.wait_for("No tuning yet.")
        pid = terminal.pid
        assert alive(pid)
        terminal.kill_terminal()
        assert ended(pid)


def test_a_dumb_terminal_gets_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        watch(tmp_path), env={**os.environ, "TERM": "dumb"}, capture_output=True, text=True
    )
    assert done.returncode == 1 and done.stdout == ""
    assert len(done.stderr.splitlines()) == 1 and "TERM is dumb" in done.stderr


@pytest.mark.parametrize(
    "env", [{"NO_COLOR": "1"}, {"TEXTUAL_COLOR_SYSTEM": "standard"}, {"TERM": "xterm-256color"}]
)
def test_few_colours_or_none(tmp_path: Path, env: dict[str, str]) -> None:
    log = tmp_path / "train.log"
    log.write_text(table(16) + table(32))
    with Terminal(watch(tmp_path, str(log)), env=env) as terminal:
        lines = terminal.wait_for("32×64×64", " 16×64×64").splitlines()
        assert [line[0] for line in lines if "×64×64" in line] == ["▌", " "], "cursor by shape"
        if "TEXTUAL_COLOR_SYSTEM" in env:
            assert "38;2;" not in terminal.screen(colours=True)
            assert "38;5;" not in terminal.screen(colours=True)


def test_pin_with_confirmation(tmp_path: Path) -> None:
    cache = tmp_path / "cache" / "cache" / ("4" * 64)
    cache.parent.mkdir(parents=True)
    inputs = (
        "[('cpu', 'torch.float32', 16, 64, 64, 1, 0), ('cpu', 'torch.float32', 64, 64, 64, 1, 0)]"
    )
    entry = {inputs: {"highest": {"triton_mm-aa": 0.01, "mm-bb": 0.02}}}
    cache.write_text(json.dumps({"system": {}, "cache": {"mm": entry}}))
    before = cache.read_bytes()
    with Terminal(watch(tmp_path)) as terminal:
        terminal.wait_for("16×64×64")
        terminal.press("Tab", "j", "p")
        terminal.wait_for("1 rival's time is raised out of reach")
        terminal.press(*"hot", "Enter")
        terminal.wait_for("● #2")
        assert raised_numbers(cache)
        terminal.press("3")
        terminal.wait_for("● active")
        terminal.press("q")
        terminal.wait_for("● active", gone=True)
        terminal.press("q")
        terminal.wait_until(lambda: terminal.status == 0, "the end")
    with Terminal(watch(tmp_path)) as terminal:
        terminal.wait_for("● #2")
        terminal.press("u")
        terminal.wait_for("Unpin mm-bb")
        terminal.press("Enter")
        terminal.wait_for("● #2", gone=True)
        assert cache.read_bytes() == before


def test_a_pipe_is_a_source_and_the_keys_still_work(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(table(16))
    command = shlex.join(watch(tmp_path, "-"))
    with Terminal(["bash", "-c", f"(cat {log}; sleep 600) | {command}"]) as terminal:
        terminal.wait_for("16×64×64")
        terminal.press("?")
        terminal.wait_for("Keys: Watch")
        terminal.press("q")
        terminal.wait_for("Keys: Watch", gone=True)


def test_a_stalled_terminal_stops_no_thread_and_no_signal(tmp_path: Path) -> None:
    root = tmp_path / "cache"
    path = root / "cache" / ("4" * 64)
    path.parent.mkdir(parents=True)
    inputs = "[('cpu', 'torch.float32', 16, 64, 64, 1, 0)]"
    entry = {inputs: {"highest": {"triton_mm-aa": 0.01, "mm-bb": 0.02}}}
    path.write_text(json.dumps({"system": {}, "cache": {"mm": entry}}))
    before = path.read_bytes()
    PinStore(Layout(root)).pin(None, TuningKey("mm", inputs, "highest"), "mm-bb")
    log = tmp_path / "train.log"
    log.write_text("")
    fd, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
    program = subprocess.Popen(
        watch(tmp_path, str(root), str(log)),
        env=env,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    pid, end = program.pid, time.monotonic() + PATIENCE
    try:
        seen = b""
        while "● #2".encode() not in seen:
            assert time.monotonic() < end, seen[-2000:]
            if select.select([fd], [], [], 1.0)[0]:
                seen += os.read(fd, 65536)
        # From here on nobody reads: the terminal takes a few kB and then blocks.
        path.write_bytes(before)
        held = [0, 1]
        for m in range(1, 41):
            with log.open("a") as file:
                file.write(table(m))
            time.sleep(0.1)
            held.append(struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, b"\0" * 4))[0])
            if held[-1] > 3000 and len(set(held[-5:])) == 1:
                break
        end = time.monotonic() + PATIENCE
        while not raised_numbers(path):
            assert time.monotonic() < end, "the pin was not applied again"
            time.sleep(0.1)
        path.write_bytes(before)
        while not raised_numbers(path):
            assert time.monotonic() < end, "the pin was not applied again, later"
            time.sleep(0.1)
        os.kill(pid, signal.SIGTERM)
        assert ended(pid)
    finally:
        if alive(pid):
            os.kill(pid, signal.SIGKILL)
        os.close(fd)
        program.wait()


def test_letters_that_come_with_the_slash_are_a_filter(tmp_path: Path) -> None:
    """Over a slow line keys arrive together: `p` would ask to pin, `q` would quit."""
    log = tmp_path / "train.log"
    log.write_text(table(16))
    with Terminal(watch(tmp_path, str(log))) as terminal:
        terminal.wait_for("16×64×64")
        terminal.press(*"/pq")
        terminal.wait_for(" pq ")
        terminal.wait_for("No tuning matches")


def test_tab_and_enter_that_come_with_the_slash_are_the_filters(tmp_path: Path) -> None:
    """Tab would go to the choices; enter, too, and before the letters that stand ahead of it."""
    log = tmp_path / "train.log"
    log.write_text(table(16) + table(32, "addmm"))
    with Terminal(watch(tmp_path, str(log))) as terminal:
        terminal.wait_for("16×64×64")
        terminal.press("/", "o", "p", ":", "a", "d", "Tab", "Enter")
        terminal.wait_for("filter active: op:addmm", "1 of 2", "tab choices")  # of the table
