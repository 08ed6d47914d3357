"""Why a program on another host ended, in one line that says what to do."""

from __future__ import annotations

from backend.errors import brief
from rocm_tui.ssh.address import Address

NOT_FOUND, USAGE, SSH = 127, 2, 255
"""Exit codes: of a shell, of an older rocm-tui, of ssh itself."""


def why_ended(address: Address, code: int, said: str, command: str = "") -> str:
    """`said` is the last line of its stderr, harmless; `command` one that an older rocm-tui does
    not know, where nothing was heard of it yet."""
    if code == NOT_FOUND:
        return (
            f"no {brief(address.command, 60)} there: install it (pip install rocm-tui), or say "
            f"where it is: {address.place}{address.path}?command=PATH"
        )
    if command and code == USAGE and f"'{command}'" in said:
        return f"rocm-tui there is too old (it has no `{command}`): upgrade it"
    if code == SSH and "Permission denied" in said:
        return f"{said} (nothing is asked here: `ssh {address.login} true` must work alone)"
    return said or ("the connection ended" if code in (0, -9, -15) else f"exit code {code}")
