"""What AOTInductor leaves below a cache dir: `<hash>/<hash>.wrapper.cpp`, with its kernels beside.

A package is never looked up in a cache: it keeps the kernels that it was compiled with, wherever it
is taken to. Its code below the cache dir tells which they are.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from pathlib import Path

from backend.store.graph_folders import GraphEntry
from backend.store.graphs import PACKAGE

_FOLDER = re.compile(r"c[a-z2-7]{51}")
MAX_PACKAGES = 1000
"""More folders than this are not looked into."""


def packages_below(root: Path) -> list[GraphEntry]:
    """The wrapper of each package that was compiled with the cache dir `root`."""
    found: list[GraphEntry] = []
    try:
        with os.scandir(root) as children:
            names = sorted(child.name for child in children if _FOLDER.fullmatch(child.name))
    except OSError:
        return []
    for name in names[:MAX_PACKAGES]:
        with contextlib.suppress(OSError):
            found += [
                GraphEntry(root / name / file, f"{name}/{file}", status.st_mtime, status.st_size)
                for file in sorted(path.name for path in (root / name).iterdir())
                if file.endswith(PACKAGE)
                and stat.S_ISREG((status := (root / name / file).lstat()).st_mode)
            ]
    return found
