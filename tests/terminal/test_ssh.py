"""The screen over a real ssh to a loopback sshd: hang-up and reconnect leave nothing behind."""

from __future__ import annotations

import fcntl
import getpass
import os
import pty
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from backend.disk.layout import Layout

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
pytestmark = [
    pytest.mark.terminal,
    pytest.mark.skipif(
        not (Path(SSHD).exists() and shutil.which("ssh") and shutil.which("ssh-keygen")),
        reason="no OpenSSH server here; install openssh-server",
    ),
]

LOG = """AUTOTUNE mm(64x64, 64x64)
strides: [64, 1], [64, 1]
dtypes: torch.float32, torch.float32
  triton_mm_1 0.0100 ms 100.0% BLOCK_M=16
  mm 0.0200 ms 50.0% \nSingleProcess AUTOTUNE benchmarking takes 1.0 seconds and 1.0 seconds precompiling for 2 choices
"""  # noqa: E501


@dataclass(frozen=True)
class Server:
    port: int
    folder: Path

    def command(self, remote: str) -> list[str]:
        """`ssh -tt` to this server, which trusts the key that was made for it."""
        options = ["StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR"]
        flags = [word for option in options for word in ("-o", option)]
        key = ["-i", str(self.folder / "key"), "-o", "IdentitiesOnly=yes", "-F", "/dev/null"]
        login = f"{getpass.getuser()}@127.0.0.1"
        return ["ssh", "-tt", *flags, *key, "-p", str(self.port), login, remote]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    folder = tmp_path / "ssh"
    folder.mkdir(mode=0o700)
    for name in ("host", "key"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True
        )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (folder / "config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nPidFile none\n"
        f"AuthorizedKeysFile {folder}/key.pub\nStrictModes no\nUsePAM no\n"
        "PasswordAuthentication no\nPermitRootLogin prohibit-password\n"
    )
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    daemon = subprocess.Popen(
        [SSHD, "-D", "-e", "-f", folder / "config"], stderr=(folder / "log").open("wb")
    )
    try:
        wait_for(lambda: _listens(port) or daemon.poll() is not None)
        assert daemon.poll() is None, (folder / "log").read_text()
        yield Server(port, folder)
    finally:
        daemon.terminate()
        daemon.wait(10)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_for(test: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not test():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.05)


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
        if "rocm_tui" in words and str(cache) in words and "ssh" not in words[0]:
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
    wait_for(lambda: not watchers(cache))
    second.read()
    second.end()
    assert free(Layout(cache))


def free(layout: Layout) -> bool:
    """Whether every lock of ours can be taken at once."""
    from filelock import FileLock

    for lock in layout.home.rglob("*.lock"):
        with FileLock(lock, timeout=0):
            pass
    return True
