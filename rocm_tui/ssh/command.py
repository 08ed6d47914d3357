"""The command line of ssh: the person's own program and config; nothing asked or forwarded."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence

from rocm_tui.errors import UsageError
from rocm_tui.ssh.address import Address

PROGRAM = "ROCM_TUI_SSH"
"""The environment variable that names another ssh, with options: `ssh -F other_config`."""

_OPTIONS = (
    "BatchMode=yes",  # no question: it would be asked on the screen
    "ConnectTimeout=10",
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
    "ControlMaster=no",  # a master that is there is used; ours would end others with it
    "RemoteCommand=none",
    "ClearAllForwardings=yes",
    "LogLevel=ERROR",
)


def ssh_line(
    address: Address, words: Sequence[str], env: Mapping[str, str] = os.environ
) -> list[str]:
    """What starts rocm-tui with these words on that host. Its output is compressed: it is text.

    Raises UsageError for a program or a far command that a shell could not read either.
    """
    program = _split(env.get(PROGRAM) or "ssh", PROGRAM)
    options = [word for option in _OPTIONS for word in ("-o", option)]
    port = [] if address.port is None else ["-p", str(address.port)]
    user = ["-l", address.user] if address.user else []
    line = [*program, "-T", "-a", "-x", "-C", *options, *port, *user, "--", address.host]
    return [*line, far_line(address.command, words)]


def far_line(command: str, words: Sequence[str]) -> str:
    """The words as the far shell reads them. Raises UsageError."""
    return " ".join(map(quoted, [*_split(command, "command"), *words]))


def quoted(word: str) -> str:
    """`shlex.quote`, but that the home of a command in `~/` is still found there."""
    return (
        f"~/{shlex.quote(word[2:])}"
        if word.startswith("~/") and len(word) > 2
        else (shlex.quote(word))
    )


def typed(address: Address, command: Sequence[str]) -> str:
    """What a person types here to run rocm-tui with these words there."""
    port = [] if address.port is None else ["-p", str(address.port)]
    user = f"{address.user}@" if address.user else ""
    there = far_line(address.command, command)
    return shlex.join(["ssh", *port, f"{user}{address.host}"]) + f" {shlex.quote(there)}"


def _split(text: str, what: str) -> list[str]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{what}: {error}") from None
    if not words:
        raise UsageError(f"{what} is empty")
    return words
