"""How a run stands, by its record: units, agents, what is left. Pure state, from lines.

The driver goes on from it, and who shows a run reads it while the record grows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

from backend.wire.jobs import Progress, TuneResult
from rocm_tui.fleet import lines
from rocm_tui.fleet.lines import Line
from rocm_tui.fleet.messages import Done, Facts, Unit

State = Literal["waiting", "running", "done", "merged", "failed", "cancelled", "single"]
AgentState = Literal["works", "waits", "ahead", "refused", "quarantined", "gone", "ended"]
RECENT = 600.0
"""Seconds whose results tell the rate."""


@dataclass(slots=True)
class UnitStanding:
    """`running` is what an agent was lent; `workers` are those that are at work on it, and to the
    others it is the next one. `results` by agent; `merged` is whose times the cache has, and
    `holds` `of` so many devices found the same winner; `tried` are failures that were not the last
    word."""

    unit: Unit
    state: State = "waiting"
    leases: dict[str, str] = field(default_factory=dict)
    workers: set[str] = field(default_factory=set)
    results: dict[str, Done] = field(default_factory=dict)
    tried: dict[str, str] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()
    merged: lines.Merged | None = None
    unmerged: str = ""
    ended: float | None = None

    @property
    def agents(self) -> list[str]:
        """Those that have it now."""
        return list(self.leases.values())


@dataclass(slots=True)
class AgentStanding:
    """`unit` is at work since `since` (Unix seconds); `leases` has all units that are lent to it.
    `refused`, `gone` and `quarantined` say why it gets no work; `slow` is its ratio at the canary.
    """

    facts: Facts
    refused: str = ""
    gone: str = ""
    returns: bool = False
    quarantined: str = ""
    slow: float | None = None
    unit: str | None = None
    since: float | None = None
    leases: dict[str, str] = field(default_factory=dict)
    progress: Progress = field(default_factory=Progress)
    clock: float | None = None
    power: float | None = None
    temperature: float | None = None
    heard: float = 0.0
    done: int = 0
    failed: int = 0
    busy: float = 0.0
    """Seconds at work on what it has done."""
    ahead: lines.Compiled | None = None
    """What it has compiled ahead, if that is what it does."""
    ended: bool = False
    """With its driver."""

    @property
    def state(self) -> AgentState:
        if self.refused:
            return "refused"
        if self.quarantined:
            return "quarantined"
        if self.gone:
            return "gone"
        if self.ended:
            return "ended"
        if self.ahead is not None:
            return "ahead"
        return "works" if self.unit else "waits"


@dataclass(frozen=True, slots=True)
class Counts:
    """Of problems; heats are none."""

    units: int = 0
    merged: int = 0
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    single: int = 0
    running: int = 0

    @property
    def left(self) -> int:
        """Neither merged nor failed nor cancelled, nor without a choice to make."""
        return self.units - self.merged - self.failed - self.cancelled - self.single

    @property
    def ok(self) -> bool:
        """Whether all that there was to tune is in the cache."""
        return self.merged + self.single == self.units


class Standing:
    """Begins empty; `apply` what the record says, in its order."""

    def __init__(self) -> None:
        self.begun: lines.Begun | None = None
        self.started: float | None = None
        self.last: float | None = None
        self.over: lines.Over | None = None
        self.process = ""
        self.chosen: lines.Chosen | None = None
        self.units: dict[str, UnitStanding] = {}
        self.agents: dict[str, AgentStanding] = {}
        self._ends: list[tuple[float, float]] = []
        self._lent: dict[str, tuple[str, str]] = {}
        """Unit and agent of each lease."""

    def apply(self, news: Iterable[tuple[float, Line]]) -> None:
        for at, line in news:
            self._apply(at, line)
            self.last = at

    def counts(self) -> Counts:
        states = Counter(unit.state for unit in self.units.values() if not unit.unit.part_of)
        return Counts(
            sum(states.values()),
            states["merged"],
            states["done"],
            states["failed"],
            states["cancelled"],
            states["single"],
            states["running"],
        )

    def has_lent(self, lease: str) -> bool:
        """Whether an agent has it now."""
        return lease in self._lent

    def rate(self, now: float) -> float | None:
        """Units a minute, lately; None before the first."""
        if self.started is None or not self._ends:
            return None
        since = max(self.started, now - RECENT)
        if now < since:  # the clock was set back
            return None
        recent = sum(at >= since for at, _ in self._ends)
        return 60.0 * recent / max(1.0, now - since) if recent else None

    def seconds_left(self, now: float) -> float | None:
        """By what the units are expected to take, at the pace so far."""
        paces = [pace for _, pace in self._ends if pace > 0]
        working = sum(a.state in ("works", "waits") for a in self.agents.values())
        if not paces or not working:
            return None
        open_ = [u for u in self.units.values() if u.state in ("waiting", "running")]
        repeat = self.begun.repeat if self.begun is not None else 1
        wanted = ((u.unit.weight or 1.0) * max(1, repeat - len(u.results)) for u in open_)
        seconds = median(paces) * sum(wanted)
        running = (now - a.since for a in self.agents.values() if a.unit and a.since is not None)
        return max(0.0, (seconds - sum(running)) / working)

    def disagreements(self) -> list[tuple[UnitStanding, str, int, int]]:
        """Units that several devices tuned with unlike winners: the winner that most have, how many
        those are, and of how many."""
        found = []
        for unit in self.units.values():
            winner, many, of = holding(unit.results)
            if many < of:
                found.append((unit, winner, many, of))
        return found

    def _apply(self, at: float, line: Line) -> None:
        if isinstance(line, lines.Begun):
            self.begun, self.started, self.process = line, at, line.process
            self.units = {unit.id: UnitStanding(unit) for unit in line.units}
        elif isinstance(line, lines.Resumed):
            self._resume(at, line)
        elif isinstance(line, lines.Chosen):
            self.chosen = line
        elif isinstance(line, lines.LeftOut):
            for id in line.units:
                self.units.pop(id, None)
        elif isinstance(line, lines.Over):
            self.over = line
            self.left_alone()
        elif isinstance(line, lines.Lent | lines.Ended | lines.Done):
            self._lease(at, line)
        elif isinstance(
            line,
            lines.Tried
            | lines.Failed
            | lines.Single
            | lines.Cancelled
            | lines.Merged
            | lines.Unmerged,
        ):
            self._unit(at, line)
        else:
            self._agent(at, line)

    def _resume(self, at: float, line: lines.Resumed) -> None:
        self.over, self.process, self.started = None, line.process, at
        self.left_alone()
        self.agents = {}
        for unit in self.units.values():
            if unit.state in ("failed", "cancelled"):
                unit.state, unit.reasons, unit.ended = "waiting", (), None

    def left_alone(self) -> None:
        """No driver is at it, so no agent is there: who reads the record of a driver that was
        killed says so."""
        for lease in list(self._lent):
            self._unlease(lease, self.last or 0.0)
        for agent in self.agents.values():
            agent.ended = True

    def _unlease(self, lease: str, at: float) -> None:
        id, agent = self._lent.pop(lease, ("", ""))
        unit = self.units.get(id)
        if unit is not None:
            unit.leases.pop(lease, None)
            if unit.state == "running" and not unit.leases:
                unit.state = "done" if unit.results else "waiting"
        if agent in self.agents:
            self.agents[agent].leases.pop(lease, None)
            self._refresh(agent, at)

    def _refresh(self, name: str, at: float) -> None:
        """The first lease of an agent is at work."""
        agent = self.agents[name]
        first = next(iter(agent.leases.values()), None)
        if first != agent.unit:
            if agent.unit in self.units:
                self.units[agent.unit].workers.discard(name)
            if first in self.units:
                self.units[first].workers.add(name)
            agent.unit, agent.since = first, at if first else None
            agent.progress = Progress()

    def _lease(self, at: float, line: lines.Lent | lines.Ended | lines.Done) -> None:
        if isinstance(line, lines.Lent):
            self._lend(at, line)
            return
        self._unlease(line.lease if isinstance(line, lines.Ended) else line.done.lease, at)
        if isinstance(line, lines.Ended):
            return
        done, unit = line.done, self.units.get(line.done.unit)
        if unit is not None:
            unit.results[done.agent] = done
            if unit.state in ("waiting", "running"):
                unit.state, unit.ended = "done", at
            self._ends.append((at, done.seconds / (unit.unit.weight or 1.0)))
        agent = self.agents.get(done.agent)
        if agent is not None:
            agent.done += 1
            agent.busy += done.seconds

    def _lend(self, at: float, line: lines.Lent) -> None:
        unit, agent = self.units.get(line.unit), self.agents.get(line.agent)
        if unit is None or agent is None:
            return
        self._lent[line.lease] = line.unit, line.agent
        unit.leases[line.lease] = line.agent
        agent.leases[line.lease] = line.unit
        self._refresh(line.agent, at)
        if unit.state == "waiting":
            unit.state = "running"

    def _unit(
        self,
        at: float,
        line: lines.Tried
        | lines.Failed
        | lines.Single
        | lines.Cancelled
        | lines.Merged
        | lines.Unmerged,
    ) -> None:
        unit = self.units.get(line.unit)
        if unit is None:
            return
        if isinstance(line, lines.Tried):
            unit.tried[line.agent] = line.reason
            if line.agent in self.agents:
                self.agents[line.agent].failed += 1
            for lease in [lease for lease, name in unit.leases.items() if name == line.agent]:
                self._unlease(lease, at)
        elif isinstance(line, lines.Failed | lines.Single | lines.Cancelled):
            for lease in list(unit.leases):
                self._unlease(lease, at)
            unit.state, unit.reasons, unit.ended = *_settled(line), at
        elif isinstance(line, lines.Merged):
            unit.state, unit.merged, unit.unmerged = "merged", line, ""
        else:
            unit.unmerged = line.reason

    def _agent(
        self,
        at: float,
        line: lines.Came
        | lines.Lost
        | lines.Pulse
        | lines.Quarantined
        | lines.Slow
        | lines.Compiled,
    ) -> None:
        if isinstance(line, lines.Came):
            before = self.agents.get(line.agent)
            agent = self.agents[line.agent] = before or AgentStanding(line.facts)
            agent.facts, agent.refused, agent.gone = line.facts, line.refused, ""
            agent.heard = at
            agent.ahead = lines.Compiled(line.agent) if line.ahead else None
            return
        agent_ = self.agents.get(line.agent)
        if agent_ is None:
            if not isinstance(line, lines.Lost):
                return
            agent_ = self.agents[line.agent] = AgentStanding(Facts(host=line.agent))
        if isinstance(line, lines.Lost):
            agent_.gone, agent_.returns = line.reason or "it is gone", line.returns
            for lease in list(agent_.leases):
                self._unlease(lease, at)
        elif isinstance(line, lines.Quarantined):
            agent_.quarantined = line.reason
        elif isinstance(line, lines.Slow):
            agent_.slow = line.ratio
        elif isinstance(line, lines.Compiled):
            agent_.ahead = line
        else:
            if agent_.unit == line.unit:
                agent_.progress = line.progress
            agent_.heard = at
            agent_.clock, agent_.power = line.clock, line.power
            agent_.temperature, agent_.gone = line.temperature, ""


def _settled(line: lines.Failed | lines.Single | lines.Cancelled) -> tuple[State, tuple[str, ...]]:
    """The state of a unit that gets no result, and the reasons."""
    if isinstance(line, lines.Failed):
        return "failed", line.reasons
    return ("single", (line.reason,)) if isinstance(line, lines.Single) else ("cancelled", ())


def winner_of(result: TuneResult | None) -> str:
    """The hash of the fastest choice; empty where nothing has a time."""
    best = next((c for c in result.choices if c.ms is not None), None) if result else None
    return best.hash or "" if best is not None else ""


def holding(results: Mapping[str, Done]) -> tuple[str, int, int]:
    """The winner that most devices found, how many did, of how many."""
    winners = Counter(winner for done in results.values() if (winner := winner_of(done.result)))
    if not winners:
        return "", 0, 0
    winner, many = winners.most_common(1)[0]
    return winner, many, sum(winners.values())
