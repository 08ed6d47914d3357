"""The end of a failed job's log, kept below the cache dir: the worker's own file dies with it."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

from backend.disk import safe
from backend.disk.layout import Layout
from backend.errors import StoreError

KEPT = 20
"""Logs that are kept, the newest."""


def keep_log(layout: Layout, name: str, lines: Sequence[str]) -> Path | None:
    """Write the lines as a file of the job `name`; None if there are none, or they cannot be kept.

    They are what libraries and compilers printed: a file to look at, not yet fit for a terminal.
    """
    if not any(line.strip() for line in lines):
        return None
    folder = layout.home / "failed"
    now = time.time_ns()
    when = time.strftime("%Y%m%d-%H%M%S", time.localtime(now // 10**9))
    path = folder / f"{when}-{now % 10**9:09d}-{name}.log"
    try:
        safe.make_folder(layout.root, folder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags, 0o666), "w", encoding="utf-8") as stream:
            stream.writelines(f"{line}\n" for line in lines)
    except (OSError, StoreError):
        return None
    for old in sorted(folder.glob("*.log"))[:-KEPT]:
        with contextlib.suppress(OSError):
            old.unlink()
    return path
