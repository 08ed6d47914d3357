"""Other hosts on this machine: namespaces with processes, a name and a network of their own. What
runs in one is not to be seen from another but by the file system, which they share."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

import psutil
import pytest

_UNSHARE = ("unshare", "--pid", "--fork", "--mount-proc", "--uts", "--kill-child")


def on_host(name: str, command: Sequence[str], connected: bool = False) -> list[str]:
    """The command line that runs `command` on a host of this name; only one that is `connected` has
    the network of this machine."""
    return [
        *_UNSHARE,
        *([] if connected else ["--net"]),
        "sh",
        "-c",
        f'hostname {name}; "$@"; exit $?',
        "sh",
        *command,
    ]


def process_with(text: str, starter: subprocess.Popen[str]) -> psutil.Process:
    """The lowest process below `starter` that has the text among its words, as seen from here."""
    below = psutil.Process(starter.pid).children(recursive=True)
    return [each for each in below if text in each.cmdline()][-1]


def _permitted() -> bool:
    try:
        return (
            subprocess.run(on_host("h", ["true"]), capture_output=True, timeout=10).returncode == 0
        )
    except (OSError, subprocess.TimeoutExpired):
        return False


needs_hosts = pytest.mark.skipif(not _permitted(), reason="namespaces are not permitted here")
