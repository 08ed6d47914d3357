"""What can go wrong while a source is read.

IngestError
  NotReadable   the content is no complete document of its format; why, in one line
"""

from __future__ import annotations


class IngestError(Exception):
    """The root of this package's errors."""


class NotReadable(IngestError):
    """A whole-file format cannot be parsed: half written, or damaged."""
