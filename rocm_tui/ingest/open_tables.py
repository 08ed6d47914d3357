"""The tables of a log whose end has not come, by the stream that they stand in."""

from __future__ import annotations

from collections.abc import Iterator

from rocm_tui.ingest.block import Block
from rocm_tui.ingest.log_lines import Origin

PATIENCE = 256 << 10
"""Bytes after its last line that a table without a footer stays open."""


class OpenTables:
    """Each look costs the tables of one stream, however many streams there are."""

    def __init__(self) -> None:
        self._streams: dict[str, list[Block]] = {}
        self._expiry = 0

    def __bool__(self) -> bool:
        return bool(self._streams)

    def __iter__(self) -> Iterator[Block]:
        return (block for blocks in self._streams.values() for block in blocks)

    def __contains__(self, block: Block) -> bool:
        return block in self.of(block.origin.key)

    def of(self, key: str) -> list[Block]:
        """Those of one stream, oldest first."""
        return self._streams.get(key, [])

    def stream(self, who: Origin) -> str:
        """The stream that a line of `who` belongs to: its own, else the only one there is.

        Some loggers put their prefix on some lines alone.
        """
        if who.key not in self._streams and len(self._streams) == 1:
            (only,) = self._streams
            if not who.key or not only:
                return only
        return who.key

    def add(self, block: Block) -> None:
        self._streams.setdefault(block.origin.key, []).append(block)

    def remove(self, block: Block) -> None:
        """Take it out, if it is there."""
        blocks = self.of(block.origin.key)
        if block in blocks:
            blocks.remove(block)
            if not blocks:
                del self._streams[block.origin.key]

    def expired(self, offset: int) -> list[Block]:
        """Those of which nothing came for long, now that the log is at `offset`.

        Asked before every line; `touched` only grows, so most of the time nobody need be looked at.
        """
        if offset <= self._expiry:
            return []
        found = [block for block in self if offset - block.touched > PATIENCE]
        rest = [block.touched for block in self if offset - block.touched <= PATIENCE]
        self._expiry = min(rest, default=offset - PATIENCE) + PATIENCE
        return found
