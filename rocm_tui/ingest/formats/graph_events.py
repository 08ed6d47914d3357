"""What a session's log tells of compiled graphs: their calls, and trials of them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import fields, is_dataclass, replace
from typing import Any

from backend.model.events import GraphCalled, GraphCompiled, GraphTried
from backend.model.graph import Graph, GraphTimes, Trial, TrialArm
from backend.model.session import LATEST, Session
from rocm_tui.harmless import clean
from rocm_tui.ingest.formats.reader import clean_hash
from rocm_tui.ingest.records import GraphSeen, Record, TrialSeen

GRAPH_ID = re.compile(r"[0-9a-f]{7}")
"""What an id must be: files are named by it."""
MOST = 1 << 53
"""More calls, nodes or kernels than this nobody has."""


class GraphFolds:
    """The graphs of one log as they are known by now."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._graphs: dict[int, GraphSeen] = {}
        self._changed: dict[int, None] = {}
        self._trials: list[TrialSeen] = []

    def take(self, event: GraphCompiled | GraphCalled | GraphTried, session: Session | None) -> str:
        """Take an event in; why it cannot be used, or nothing."""
        if isinstance(event, GraphTried):
            trial = cleaned(event.trial)
            if not trial_can_be(trial):
                return "a trial of a graph whose numbers cannot be"
            self._trials.append(TrialSeen(self._source, trial))
            return ""
        if isinstance(event, GraphCompiled):
            graph = cleaned(event.graph)
            if not graph_can_be(graph):
                return f"graph {event.g}, whose id or numbers cannot be"
            known = self._graphs.get(event.g)
            times = known.times if known else None
            seen = GraphSeen(self._source, event.g, graph, session.id if session else None, times)
        else:
            known = self._graphs.get(event.g)
            if known is None:
                return f"calls of graph {event.g}, of which nothing else is told"
            if not _calls_can_be(event):
                return f"calls of graph {event.g} whose numbers cannot be"
            seen = replace(known, times=GraphTimes(event.calls, event.timed, event.ms, event.by))
        when = event.when if 0 <= event.when <= LATEST else None
        self._graphs[event.g] = replace(seen, when=when)
        self._changed[event.g] = None
        return ""

    def changed(self) -> list[Record]:
        """What became known since the last call."""
        records: list[Record] = [self._graphs[g] for g in self._changed]
        records += self._trials
        self._changed, self._trials = {}, []
        return records


def graph_can_be(graph: Graph) -> bool:
    """Whether the id is one, and the numbers are some that a graph can have."""
    return (
        GRAPH_ID.fullmatch(graph.id) is not None
        and 0 <= graph.nodes < MOST
        and all(0 < use.count < MOST for use in graph.tunings)
    )


def _calls_can_be(event: GraphCalled) -> bool:
    return 0 <= event.timed <= event.calls < MOST and _amount(event.ms)


def trial_can_be(trial: Trial) -> bool:
    """Whether its numbers are some that can be measured; an interval may have no end above."""
    return (
        GRAPH_ID.fullmatch(trial.graph) is not None
        and bool(trial.arms)
        and all(0 <= time <= LATEST for time in (trial.when, trial.seconds))
        and 0 <= trial.rounds < MOST
        and all(map(_arm_can_be, trial.arms))
    )


def _arm_can_be(arm: TrialArm) -> bool:
    ends = (end for end in (arm.high, arm.ratio_high) if end is not None)
    amounts = arm.ms, arm.low, arm.ratio, arm.ratio_low
    return (
        all(map(_amount, amounts))
        and all(end >= 0 for end in ends)
        and 0 <= arm.passes < MOST
        and 0 <= (arm.kernels or 0) < MOST
        and not _any_below_zero((arm.error, arm.allowed))
    )


def _any_below_zero(numbers: Iterable[float | None]) -> bool:
    """An error may be infinite, or no number: what was computed may be."""
    return any(number is not None and number < 0 for number in numbers)


def _amount(number: float | None) -> bool:
    return number is None or 0 <= number < math.inf


def cleaned(value: Any) -> Any:
    """The same with every text in it clean; the hash of a choice is in a field of that name."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, tuple):
        return tuple(map(cleaned, value))
    if is_dataclass(value) and not isinstance(value, type):
        return replace(
            value, **{f.name: _cleaned(f.name, getattr(value, f.name)) for f in fields(value)}
        )
    return value


def _cleaned(name: str, value: Any) -> Any:
    return clean_hash(value) if name == "hash" and isinstance(value, str) else cleaned(value)
