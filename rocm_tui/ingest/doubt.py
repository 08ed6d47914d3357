"""A header came while a table of its stream had no end yet.

Either that table is over and its end is missing, or two processes write into one stream without a
prefix. The first is taken to be so: whatever follows belongs to the newest table. A line that the
newest table cannot have said, but an older one can, tells that it is not so; then what came since
is dealt out again, each line to the one table that it fits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rocm_tui.ingest.block import Block
from rocm_tui.ingest.log_lines import Dtypes, Footer, Origin, Strides
from rocm_tui.ingest.log_row import Row

Part = Row | Strides | Dtypes | Footer


@dataclass(slots=True)
class Held:
    """A line since the doubt began: a header's table, or what belongs to some table."""

    what: Block | Part
    who: Origin
    end: int
    place: int


@dataclass(slots=True)
class Doubt:
    """`older` tables were open when the first of the `newer` ones began; neither is empty."""

    older: list[Block]
    newer: list[Block] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)

    @property
    def newest(self) -> Block:
        return self.newer[-1]

    @property
    def rest(self) -> list[Block]:
        """All but the newest."""
        return self.older + self.newer[:-1]

    def refuted_by(self, part: Part) -> bool:
        """Whether the older tables cannot all be over, now that a line says this."""
        newest = self.newest
        if newest.takes(part) and (newest.rows or not isinstance(part, Footer)):
            return False
        return any(block.takes(part) for block in self.rest)

    def begin(self, block: Block) -> None:
        self.newer.append(block)
        self.held.append(Held(block, block.origin, block.touched, block.place))

    def hold(self, part: Part, who: Origin, end: int, place: int) -> None:
        self.held.append(Held(part, who, end, place))

    @property
    def places(self) -> list[int]:
        return [held.place for held in self.held]

    def replace_places(self, numbers: Mapping[int, int]) -> None:
        """Call the places of its lines by other numbers; those of its tables are not its own."""
        for held in self.held:
            held.place = numbers[held.place]
