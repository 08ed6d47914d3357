"""Graphs and trials in a session's log: what cannot be is one problem each, and no row."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan
from typing import Any

import pytest

from backend.model.events import Event, GraphCalled, GraphCompiled, GraphTried, SessionStarted
from backend.model.graph import Graph, Trial, TrialArm
from backend.model.session import Session
from rocm_tui.ingest.formats.event_log import EventLog
from rocm_tui.ingest.records import GraphSeen, Record, TrialSeen
from tests.support.format_lab import lines, problems
from tests.support.graph_log import use

GRAPH = Graph("aaaaaa1", "forward", "fkey1", "Llama.forward", "cpu", 12, (use(8, 4),))
ARM = TrialArm((), 10.0, 9.9, 10.1, 1.0, 1.0, 1.0, "tied", 30, kernels=7, error=0.0, allowed=0.0)
TRIAL = Trial("aaaaaa1", 300.0, (ARM,), rounds=30, seconds=2.0)


def read(*events: Event) -> list[Record]:
    reader = EventLog("s")
    return reader.feed(lines(SessionStarted(Session("s")), *events)) + reader.close()


def graphs(records: list[Record]) -> list[GraphSeen]:
    return [record for record in records if isinstance(record, GraphSeen)]


def trials(records: list[Record]) -> list[Trial]:
    return [record.trial for record in records if isinstance(record, TrialSeen)]


def test_a_graph_and_its_calls() -> None:
    records = read(GraphCompiled(1, 105.0, GRAPH), GraphCalled(1, 106.0, 10, 3, 9.0))
    (seen,) = graphs(records)
    assert seen.graph == GRAPH and seen.times is not None
    assert (seen.times.calls, seen.times.timed, seen.times.ms) == (10, 3, 9.0)
    assert problems(records) == []


@pytest.mark.parametrize(
    "change",
    [
        {"id": "../../x"},
        {"id": "aaaaaa"},
        {"id": "aaaaaa1/"},
        {"nodes": -1},
        {"nodes": 1 << 53},
        {"tunings": (use(8, 0),)},
        {"tunings": (use(8), use(16, 1 << 53))},
    ],
    ids=str,
)
def test_a_graph_that_cannot_be_is_a_problem(change: dict[str, Any]) -> None:
    records = read(GraphCompiled(1, 105.0, replace(GRAPH, **change)))
    assert graphs(records) == []
    assert problems(records) == ["graph 1, whose id or numbers cannot be"]


@pytest.mark.parametrize(
    "calls",
    [(-1, -1, 9.0), (10, 11, 9.0), (1 << 53, 3, 9.0), (10, -1, 9.0), (10, 3, -9.0), (10, 3, inf)],
)
def test_calls_that_cannot_be_are_a_problem_and_the_graph_stays(
    calls: tuple[int, int, float],
) -> None:
    records = read(GraphCompiled(1, 105.0, GRAPH), GraphCalled(1, 106.0, *calls))
    (seen,) = graphs(records)
    assert seen.times is None
    assert problems(records) == ["calls of graph 1 whose numbers cannot be"]


def test_calls_of_an_unknown_graph_are_a_problem() -> None:
    records = read(GraphCalled(3, 106.0, 10, 3, 9.0))
    assert graphs(records) == []
    assert problems(records) == ["calls of graph 3, of which nothing else is recorded"]


@pytest.mark.parametrize(
    "arm",
    [
        ARM,
        replace(ARM, high=inf, ratio_high=inf),
        replace(ARM, error=inf, allowed=nan),
        TrialArm((), failed="it crashed"),
    ],
    ids=["whole", "no upper end", "error is no number", "failed"],
)
def test_a_trial(arm: TrialArm) -> None:
    records = read(GraphTried(replace(TRIAL, arms=(ARM, arm))))
    (trial,) = trials(records)
    assert repr(trial.arms) == repr((ARM, arm))
    assert problems(records) == []


ODD_ARMS: list[dict[str, Any]] = [
    *({name: value} for name in ("ms", "low", "ratio", "ratio_low") for value in (-1.0, inf, nan)),
    *({name: value} for name in ("high", "ratio_high") for value in (-1.0, nan)),
    *({name: value} for name in ("passes", "kernels") for value in (-1, 1 << 53)),
    {"error": -1.0},
    {"allowed": -1.0},
]


@pytest.mark.parametrize(
    "change",
    [
        {"graph": "../../x"},
        {"arms": ()},
        {"when": -1.0},
        {"when": inf},
        {"seconds": nan},
        {"rounds": -1},
        {"rounds": 1 << 53},
        *({"arms": (ARM, replace(ARM, **change))} for change in ODD_ARMS),
    ],
    ids=[
        "graph", "arms", "when", "end of time", "seconds", "rounds", "too many",
        *(str(change) for change in ODD_ARMS),
    ],
)  # fmt: skip
def test_a_trial_that_cannot_be_is_a_problem(change: dict[str, Any]) -> None:
    records = read(GraphTried(replace(TRIAL, **change)))
    assert trials(records) == []
    assert problems(records) == ["a trial of a graph whose numbers cannot be"]
