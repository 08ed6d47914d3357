"""What the queue of a fleet knows: units, devices, and which unit is lent to which device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from rocm_tui.fleet.messages import Unit

UnitState = Literal["open", "done", "failed", "cancelled", "single"]


@dataclass(slots=True, eq=False)
class Lease:
    id: str
    agent: str
    unit: str
    since: float
    """When it became the first of its agent."""
    missed: int = 0


@dataclass(slots=True, eq=False)
class Entry:
    unit: Unit
    order: tuple[float, int]
    state: UnitState = "open"
    results: list[str] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    suspects: set[str] = field(default_factory=set)
    lost: list[str] = field(default_factory=list)
    leases: list[Lease] = field(default_factory=list)
    after: set[str] = field(default_factory=set)
    """Units that are to be done before."""

    @property
    def weight(self) -> float:
        return self.unit.weight if self.unit.weight > 0 else 1.0


@dataclass(slots=True, eq=False)
class Device:
    heard: float
    alive: bool = True
    gone: bool = False
    quarantined: bool = False
    in_a_row: int = 0
    leases: list[Lease] = field(default_factory=list)

    def hear(self, now: float) -> None:
        """One that is gone says `Hello` before anything else counts as a sign of life."""
        self.heard, self.alive = now, not self.gone

    @property
    def working(self) -> bool:
        return self.alive and not self.quarantined


def can_do(agent: str, entry: Entry) -> bool:
    """Whether this device has not had it, and what comes before it is done."""
    return (
        not entry.after
        and agent not in entry.results
        and agent not in entry.failures
        and all(lease.agent != agent for lease in entry.leases)
    )


def worth(unit: Unit) -> float:
    """What goes first: what takes long, and what programs call often."""
    return (unit.weight or 1.0) * max(1.0, unit.calls)


def shortest(units: Sequence[Unit]) -> str | None:
    """The whole problem that takes the least time, for a canary: one with choices to time, as far
    as that is known."""
    whole = [unit for unit in units if not unit.after and not unit.part_of]
    timed = [unit for unit in whole if len(unit.known) > 1] or whole
    return min(timed, key=lambda unit: (unit.weight or 1.0, unit.id)).id if timed else None
