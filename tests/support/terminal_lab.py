"""A program in a real terminal: one private tmux server for each `Terminal`."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

import psutil
import pytest

from tests.support.tools import needs_tool

needs_tmux = [
    pytest.mark.terminal,
    needs_tool("tmux"),
]
WATCH = (sys.executable, "-m", "rocm_tui", "watch")
PATIENCE = 90.0
"""Seconds; a busy machine is slow, a test that waits for the wrong thing is slower."""

TABLE = """\
AUTOTUNE {op}({m}x64, 64x64)
strides: [64, 1], [64, 1]
dtypes: torch.float32, torch.float32
  {first} 0.0100 ms 100.0% BLOCK_M=16, num_warps=4
  {op} 0.0200 ms 50.0%
SingleProcess AUTOTUNE benchmarking takes 1.0 seconds and 0.5 seconds precompiling for 2 choices
"""


def table(m: int, op: str = "mm", first: str = "triton_mm_1") -> str:
    """An AUTOTUNE table as PyTorch prints it, of an `m`x64x64 product."""
    return TABLE.format(m=m, op=op, first=first)


class Terminal:
    """`with Terminal(command) as terminal:` runs it in a tmux pane of that size."""

    def __init__(
        self,
        command: Sequence[str],
        size: tuple[int, int] = (80, 24),
        env: dict[str, str] | None = None,
    ) -> None:
        self._command = list(command)
        self._size = size
        self._env = {"LANG": "C.UTF-8", **(env or {})}
        self._socket = f"rocm-tui-{uuid.uuid4().hex[:12]}"
        self._folder = Path(tempfile.mkdtemp(prefix="terminal_lab_"))
        self._pid, self._status = self._folder / "pid", self._folder / "status"

    def __enter__(self) -> Terminal:
        width, height = (str(number) for number in self._size)
        words = " ".join(f"{name}={shlex.quote(value)}" for name, value in self._env.items())
        # A shell around it keeps pid and status: tmux forgets the status now and then.
        inner = f"echo $$ > {self._pid}; exec env -u COLUMNS -u LINES {words} "
        inner += shlex.join(self._command)
        run = f"sh -c {shlex.quote(inner)}; echo $? > {self._status}"
        config = ["-f", os.devnull]
        self._tmux(*config, "new-session", "-d", "-s", "lab", "-x", width, "-y", height, "cat")
        self._tmux("set-option", "-g", "remain-on-exit", "on")
        self._tmux("set-option", "-g", "status", "off")
        self._tmux("set-option", "-g", "default-terminal", "tmux-256color")
        self._tmux("resize-window", "-t", "lab", "-x", width, "-y", height)
        self._tmux("respawn-pane", "-k", "-t", "lab", run)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._tmux("kill-server", check=False)
        shutil.rmtree(self._folder)

    def _tmux(self, *words: str, check: bool = True) -> str:
        done = subprocess.run(
            ["tmux", "-L", self._socket, *words], capture_output=True, text=True, check=False
        )
        if check and done.returncode:
            raise RuntimeError(f"tmux {words}: {done.stderr}")
        return done.stdout

    @property
    def pid(self) -> int:
        """The process in the pane."""
        self.wait_until(lambda: self._pid.exists() and self._pid.read_text().strip(), "a pid")
        return int(self._pid.read_text())

    @property
    def status(self) -> int | None:
        """The exit status of the program; None while it runs."""
        text = self._status.read_text().strip() if self._status.exists() else ""
        return int(text) if text else None

    @property
    def title(self) -> str:
        """The pane's title, which a program can set by an escape sequence."""
        return self._tmux("display-message", "-p", "-t", "lab", "#{pane_title}").strip()

    def screen(self, *, colours: bool = False) -> str:
        """The text on the screen; with `colours` also the sequences that paint it."""
        return self._tmux("capture-pane", "-p", *(["-e"] if colours else []), "-t", "lab")

    def buffers(self) -> str:
        """What programs wrote to the clipboard through tmux."""
        return self._tmux("list-buffers", check=False)

    def allow_clipboard(self) -> None:
        """Let OSC 52 reach tmux's own buffers."""
        self._tmux("set-option", "-s", "set-clipboard", "on")

    def press(self, *keys: str) -> None:
        """Send keys by tmux's names: `j`, `Enter`, `Escape`, `C-d`, `Tab`."""
        self._tmux("send-keys", "-t", "lab", *keys)

    def resize(self, width: int, height: int) -> None:
        self._tmux("resize-window", "-t", "lab", "-x", str(width), "-y", str(height))

    def wait_for(self, *texts: str, gone: bool = False) -> str:
        """Wait until all of these are (or with `gone` none is any more) on the screen, which may be
        painted in several pieces; return that screen."""
        seen = ""

        def stands() -> bool:
            nonlocal seen
            seen = self.screen()
            return all((text in seen) != gone for text in texts)

        self.wait_until(stands, f"{texts}, gone={gone}")
        return seen

    def wait_until(self, true: Callable[[], object], what: str) -> None:
        end = time.monotonic() + PATIENCE
        while not true():
            if time.monotonic() > end:
                raise AssertionError(f"not in {PATIENCE:.0f} s: {what}\n{self.screen()}")
            time.sleep(0.05)

    def kill_terminal(self) -> None:
        """Take the terminal away from the program, as a lost connection does."""
        self._tmux("kill-server", check=False)


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def command_line(process: psutil.Process) -> str:
    """Empty for one that has ended."""
    try:
        return " ".join(process.cmdline())
    except (psutil.ZombieProcess, psutil.NoSuchProcess):
        return ""


def ended(pid: int) -> bool:
    """Wait for the end of a process; False if it lives on."""
    end = time.monotonic() + PATIENCE
    while alive(pid):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def raised_numbers(cache: Path) -> list[float]:
    """The numbers of a cache file that a pin has raised out of reach."""
    numbers = re.findall(rb'": ([0-9.e+]+)', cache.read_bytes())
    return [float(number) for number in numbers if float(number) >= 1e7]
