"""Records as bytes for another process of ours."""

from __future__ import annotations

import pickle

from rocm_tui.ingest.records import Record, SourceStatus

Message = tuple[list[Record], tuple[SourceStatus, ...] | None]
"""The first without records tells that all that was there at the start has come."""


def packed(message: Message) -> bytes:
    """The message as bytes, of which `unpacked` makes it again."""
    return pickle.dumps(message, pickle.HIGHEST_PROTOCOL)


def unpacked(data: bytes) -> Message:
    """The message that was `packed`."""
    message: Message = pickle.loads(data)
    return message
