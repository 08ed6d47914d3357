"""What lies in the code cache, whichever compiler made it, also where none is installed.

Reads only: for a program that tells of kernels that another process compiled.
"""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from backend.toolchain.code_cache import Compiled, code_folder
from backend.toolchain.target import Target, parse_target

_MOST_TEXT = 8 << 20
_MOST_CODE = 256 << 20


def entries(cache_root: Path) -> Iterator[Path]:
    """The `.json` of each kernel that was compiled to the end; none where there is no cache."""
    try:
        yield from sorted(code_folder(cache_root).glob("[0-9a-f][0-9a-f]/*.json"))
    except OSError:
        return


def source_of(entry: Path) -> tuple[Target, str] | None:
    """What was compiled, and for what; None if the entry is damaged or gone."""
    try:
        target = parse_target(_meta(entry)["target"])
        return target, _read(entry.with_suffix(".hip"), _MOST_TEXT).decode()
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def compiled(entry: Path) -> Compiled | None:
    """What was made of it; None if it is not whole."""
    try:
        meta = _meta(entry)
        for suffix in (".so", ".co"):
            path = entry.with_suffix(suffix)
            if path.is_file() and _sha256(_read(path, _MOST_CODE)) == meta["sha256"]:
                return Compiled(
                    key=entry.stem,
                    target=parse_target(meta["target"]),
                    path=path,
                    source_path=entry.with_suffix(".hip"),
                    command=str(meta["command"]),
                    seconds=float(meta["seconds"]),
                    from_cache=True,
                    loadable=suffix == ".so",
                    log=str(meta["log"]),
                )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return None


def _meta(entry: Path) -> Any:
    try:
        return json.loads(_read(entry, _MOST_TEXT))
    except RecursionError:
        raise ValueError(f"{entry} is nested too deeply") from None


def _read(path: Path, most: int) -> bytes:
    """A file of at most `most` bytes. Raises OSError for what is none: a pipe would wait."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode) or status.st_size > most:
        raise OSError(f"{path} is not a file of at most {most} bytes")
    return path.read_bytes()


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
