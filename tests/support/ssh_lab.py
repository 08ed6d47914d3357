"""An OpenSSH server of our own on this machine, and hosts that are not what they should be."""

from __future__ import annotations

import getpass
import os
import shlex
import shutil
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import psutil

from tests.support.places import ROOT
from tests.support.tools import needs_tool

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
needs_sshd = needs_tool("sshd", "ssh", "ssh-keygen")


def wait_for(test: Callable[[], bool], seconds: float = 90.0) -> None:
    end = time.monotonic() + seconds
    while not test():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


@dataclass
class Server:
    """It listens on `port`, trusts the key that was made for it, and is called `loop` in a config
    of ssh that is the test's own."""

    port: int
    folder: Path
    daemon: subprocess.Popen[bytes] | None = None

    def command(self, remote: str) -> list[str]:
        """A login with a terminal."""
        return [*self.ssh, "-tt", f"{getpass.getuser()}@loop", remote]

    @property
    def ssh(self) -> list[str]:
        return ["ssh", "-F", str(self.folder / "client")]

    @property
    def env(self) -> str:
        """Of `ROCM_TUI_SSH`."""
        return shlex.join(self.ssh)

    def address(self, path: object = "", command: object = None, **options: str) -> str:
        """Of a path there, where rocm-tui is `command`, else that of this checkout."""
        told = {"command": str(command or self.folder / "rocm-tui"), **options}
        asked = "&".join(f"{name}={quote(value)}" for name, value in told.items())
        return f"ssh://loop{path}?{asked}"

    def start(self) -> None:
        self.daemon = subprocess.Popen(
            [SSHD, "-D", "-e", "-f", self.folder / "config"],
            stderr=(self.folder / "log").open("ab"),
        )
        wait_for(lambda: self._listens() or self._poll() is not None)
        assert self._poll() is None, (self.folder / "log").read_text()

    def stop(self) -> None:
        """The server and all of its sessions, as where a machine goes down."""
        if self.daemon is not None and self.daemon.poll() is None:
            for child in [*psutil.Process(self.daemon.pid).children(), self.daemon]:
                with suppress(psutil.NoSuchProcess):  # its client has just left
                    child.kill()
            self.daemon.wait(60)

    def sessions(self) -> list[psutil.Process]:
        """What the server started for each connection."""
        return psutil.Process(self.daemon.pid).children() if self.daemon else []

    def _poll(self) -> int | None:
        return self.daemon.poll() if self.daemon else None

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


@contextmanager
def serving(folder: Path) -> Iterator[Server]:
    """A server whose files lie in a new `folder`."""
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
    (folder / "client").write_text(
        f"Host loop\n  HostName 127.0.0.1\n  Port {port}\n  IdentityFile {folder}/key\n"
        "  IdentitiesOnly yes\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n"
        "  LogLevel ERROR\n"
    )
    script(folder / "rocm-tui", f'PYTHONPATH={ROOT} exec {sys.executable} -m rocm_tui "$@"')
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    server = Server(port, folder)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def script(path: Path, text: str) -> Path:
    """A program in a shell's words."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def far_processes(path: Path) -> list[psutil.Process]:
    """Those of rocm-tui's `tail` and `agent`, and of ssh, with that path among their words."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if str(path) in " ".join(words) and {"tail", "agent", "ssh"}.intersection(words):
            found.append(process)
    return found
