"""What somebody may put in the place of a file of ours."""

from __future__ import annotations

import os
from pathlib import Path

KINDS = ("fifo", "folder", "zero", "loop", "link", "nothing", "empty", "garbage", "missing link")


def put_odd(path: Path, kind: str) -> None:
    """Put a thing of that kind at `path`, where nothing is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "zero":
        path.symlink_to("/dev/zero")
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "link":
        path.symlink_to("/etc/shadow")
    elif kind == "missing link":
        path.symlink_to("/nowhere/at/all")
    elif kind == "empty":
        path.touch()
    elif kind == "garbage":
        path.write_bytes(bytes(range(256)))
