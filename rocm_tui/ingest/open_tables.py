"""The tables of a log whose end has not come, by the stream that they stand in."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

from rocm_tui.ingest.block import Block
from rocm_tui.ingest.log_lines import Origin

PATIENCE = 256 << 10
"""Bytes after its last line that a table without a footer stays open."""


class OpenTables:
    """Each look costs the tables of one stream, however many streams there are."""

    def __init__(self) -> None:
        self._streams: dict[str, list[Block]] = {}
        self._by_age: dict[int, Block] = {}

    def __bool__(self) -> bool:
        return bool(self._by_age)

    def __iter__(self) -> Iterator[Block]:
        """The one that was touched last comes last."""
        return iter(self._by_age.values())

    def __contains__(self, block: Block) -> bool:
        return block.n in self._by_age

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
        self._by_age[block.n] = block

    def touch(self, block: Block, end: int) -> None:
        """The line that ends at `end` belonged to it; later lines end later."""
        block.touched = end
        if self._by_age.pop(block.n, None) is not None:
            self._by_age[block.n] = block

    def remove(self, block: Block) -> None:
        """Take it out, if it is there."""
        if self._by_age.pop(block.n, None) is not None:
            blocks = self._streams[block.origin.key]
            blocks.remove(block)
            if not blocks:
                del self._streams[block.origin.key]

    def expired(self, offset: int) -> list[Block]:
        """Those of which nothing came for long, now that the log is at `offset`."""
        return list(takewhile(lambda block: offset - block.touched > PATIENCE, self))
