"""What can go wrong with files below the cache dir.

Each message is one line: what happened, where, what to do.

StoreError
  CacheUnreadable     a file cannot be parsed or read; it is kept as it is
  UnsafePath          writing there could write for, or as, another user
  NotWritable         read-only, no permission, or the disk is full; the old file is intact
    Busy                another process holds the lock
  PinRefused          the pin makes no sense: failed, unknown, not pinned at all, not what was asked
  InputsKeyInvalid    a text that is not an inputs key (also a ValueError)
  EventInvalid        a line that is not an event (also a ValueError)
  ShareInvalid        a file that is not an export of pins
  MegaCacheInvalid    a file that is not a mega-cache
"""

from __future__ import annotations


class StoreError(Exception):
    """The root of this package's errors."""


class CacheUnreadable(StoreError):
    """A file cannot be parsed or read. It is never overwritten."""


class UnsafePath(StoreError):
    """Refused to write through a symlink or into a folder that others can change."""


class NotWritable(StoreError):
    """The file could not be written; what it held before is still there."""


class Busy(NotWritable):
    """Another process holds the lock, and did not let it go while we waited."""


class PinRefused(StoreError):
    """What was asked of a pin cannot be done."""


class InputsKeyInvalid(StoreError, ValueError):
    """A text is not an inputs key."""


class EventInvalid(StoreError, ValueError):
    """A line of an event log is not an event."""


class ShareInvalid(StoreError):
    """A file is not an export of pins. Nothing of it is used."""


class MegaCacheInvalid(StoreError):
    """A file is not what `save_cache_artifacts` gives, or only a part of it."""


def brief(text: str, limit: int = 120) -> str:
    """`text` as one printable line of at most `limit` characters, for use in a message."""
    line = text[: limit + 1]
    if not line.isprintable():
        line = "".join(c if c.isprintable() else "?" for c in line)
    return line if len(line) <= limit else line[: limit - 1] + "…"
