"""What stock processes say of the pins of a graph, and how the figure gets into their notes."""

from __future__ import annotations

import re
from dataclasses import dataclass

from backend.model.choice import Verdict
from backend.pins.state import PinStatus


@dataclass(frozen=True, slots=True)
class Proof:
    """What the processes of `pairs` say: the time of a pass with the pins over that without,
    `low` to `high` its 95 % interval; medians in milliseconds.

    `pins` are those that the graph has, with their states after all of them ran: the compiled
    graphs that the stock processes left were looked at. `contradicted` are those that one does not
    call.
    """

    graph: str
    pins: tuple[PinStatus, ...]
    ratio: float
    low: float
    high: float
    verdict: Verdict
    before: float
    after: float
    pairs: int
    kernels_before: int | None = None
    kernels_after: int | None = None

    @property
    def contradicted(self) -> tuple[PinStatus, ...]:
        return tuple(status for status in self.pins if status.state != "active")


_OURS = re.compile(r"(improve|prove): graph (\w+) ")


def note_with(note: str, graph: str, figure: str, clear: bool = True) -> str:
    """The note with this figure in the place of an older one of the same graph. What a person wrote
    stays, and, unless it is `clear`, the figure of the search."""
    parts = [part for part in note.split("; ") if part]
    old = [(kind, graph) for kind in (("improve", "prove") if clear else ("prove",))]
    others = [part for part in parts if not ((m := _OURS.match(part)) and m.groups() in old)]
    return "; ".join([*others, figure])
