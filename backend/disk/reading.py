"""Reading what anybody may have put into a file's place: regular files only, not without end."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

from backend.errors import CacheUnreadable, brief

MAX_BYTES = 512 << 20
"""10,000 keys of 30 choices are 29 MB; a file above this is no autotune cache."""


class NotRegular(OSError):
    """A folder, a pipe or a device stands in the place of a file."""


def open_regular(path: Path, follow: bool = False) -> BinaryIO:
    """The file at `path`, behind a symlink only with `follow`. Raises OSError."""
    # A FIFO in the file's place must not block us.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    descriptor = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotRegular(f"{path} is not a regular file; move it away")
    return os.fdopen(descriptor, "rb")


def read_bytes(path: Path, limit: int = MAX_BYTES) -> bytes:
    """The content of a regular file of at most `limit` bytes. Raises CacheUnreadable."""
    try:
        with open_regular(path, follow=True) as stream:
            size = os.fstat(stream.fileno()).st_size
            if size > limit:
                raise CacheUnreadable(
                    f"{path} has {size >> 20} MiB, more than {limit >> 20}; move it away"
                )
            return stream.read()
    except NotRegular as error:
        raise CacheUnreadable(str(error)) from error
    except OSError as error:
        raise CacheUnreadable(f"cannot read {path}: {error.strerror}") from error


def load_json(path: Path, data: bytes) -> dict[str, Any]:
    """The JSON object that `data` holds. Raises CacheUnreadable with the place of the fault."""
    try:
        document = json.loads(data)
    except RecursionError as error:
        raise CacheUnreadable(f"{path} is nested too deep; move the file away") from error
    except ValueError as error:
        why = brief(str(error), 80)
        raise CacheUnreadable(f"{path} is not JSON ({why}); move the file away") from error
    if not isinstance(document, dict):
        raise CacheUnreadable(f"{path} holds no JSON object; move the file away")
    return document


def exists(path: Path) -> bool:
    """Whether there is such a file. Raises CacheUnreadable where we may not look."""
    try:
        return path.exists()
    except OSError as error:
        raise CacheUnreadable(f"cannot read {path}: {error.strerror}") from error
