"""The screen over a real ssh to a loopback sshd: hang-up and reconnect leave nothing behind."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from backend.disk.layout import Layout
from tests.support.ssh_lab import Server, far_processes, needs_sshd, serving, wait_for
from tests.support.terminal_lab import WATCH, Terminal, table

pytestmark = [pytest.mark.terminal, needs_sshd]

LOG = """AUTOTUNE mm(64x64, 64x64)
strides: [64, 1], [64, 1]
dtypes: torch.float32, torch.float32
  triton_mm_1 0.0100 ms 100.0% BLOCK_M=16
  mm 0.0200 ms 50.0% \nSingleProcess AUTOTUNE benchmarking takes 1.0 seconds and 1.0 seconds precompiling for 2 choices
"""  # noqa: E501


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(tmp_path / "ssh") as running:
        yield running


class Login:
    """One ssh login in a terminal of our own."""

    def __init__(self, server: Server, remote: str) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            command = server.command(remote)
            os.execvpe(command[0], command, {**os.environ, "TERM": "xterm-256color"})
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.output = b""

    def read(self) -> bytes:
        while select.select([self.fd], [], [], 0)[0]:
            try:
                data = os.read(self.fd, 65536)
            except OSError:
                break
            if not data:
                break
            self.output += data
        return self.output

    def shows(self, text: bytes) -> None:
        wait_for(lambda: text in self.read())

    def end(self) -> None:
        os.waitpid(self.pid, 0)
        os.close(self.fd)


def watchers(cache: Path) -> list[psutil.Process]:
    """The processes that watch `cache`: the screens, and their readers."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "rocm_tui" in words and str(cache) in words and Path(words[0]).name != "ssh":
            found.append(process)
    return found


def screens(cache: Path) -> list[psutil.Process]:
    """Those of them that no other one started."""
    found = watchers(cache)
    pids = {process.pid for process in found}
    return [process for process in found if process.ppid() not in pids]


def test_hang_up_and_reconnect(server: Server, tmp_path: Path) -> None:
    cache = tmp_path / "cache dir"
    cache.mkdir()
    log = tmp_path / "train.log"
    log.write_text(LOG)
    remote = f"{sys.executable} -m rocm_tui watch --cache-dir '{cache}' '{log}'"

    first = Login(server, remote)
    first.shows(b"triton_mm_1")
    assert watchers(cache)
    os.kill(first.pid, signal.SIGKILL)
    first.end()
    wait_for(lambda: not watchers(cache))

    second = Login(server, remote)
    second.shows(b"triton_mm_1")
    assert len(screens(cache)) == 1
    os.write(second.fd, b"q")
    wait_for(lambda: second.read() and not watchers(cache))  # who reads nothing holds it up
    second.end()
    assert free(Layout(cache))


def free(layout: Layout) -> bool:
    """Whether every lock of ours can be taken at once."""
    from filelock import FileLock

    for lock in layout.home.rglob("*.lock"):
        with FileLock(lock, timeout=0):
            pass
    return True


def test_watch_of_a_far_cache_dir(server: Server, tmp_path: Path) -> None:
    """Side by side with a log of this machine, at 80x24; the network goes and comes back, and
    nothing is left of it when the screen is killed."""
    far, here = tmp_path / "far", tmp_path / "here.log"
    far.mkdir()
    (far / "train.log").write_text(table(16))
    here.write_text(table(8))
    words = [str(here), server.address(far)]
    env = {"ROCM_TUI_SSH": server.env, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    with Terminal([*WATCH, *words], env=env) as terminal:
        terminal.wait_for("16×64×64")
        terminal.wait_for("8×64×64")
        server.stop()
        terminal.wait_for("loop: lost ")
        (far / "train.log").write_text(table(16) + table(32))
        terminal.wait_for("retrying in")
        assert "16×64×64" in terminal.screen()
        server.start()
        terminal.wait_for("32×64×64")
        terminal.wait_for("loop: ", gone=True)
        screen = terminal.wait_for("3 tunings", "16×64×64")
        assert screen.count("16×64×64") == 1
        os.kill(terminal.pid, signal.SIGKILL)
        wait_for(lambda: not far_processes(far))
