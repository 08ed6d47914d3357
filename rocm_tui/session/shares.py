"""What a tuning is to a program: how often its choice is called, and its share of the time.

The time is that of the program's compiled graphs, as far as it was seen: the calls of each graph
times the mean of those calls that were timed. What a program does outside of compiled graphs, and
graphs of which no call was timed, are not in it.

A call of a choice takes the part of its graph that a profiler saw its kernels take; else as long as
was measured for the choice that the graph calls; else what was timed once, and then the share
is as doubtful as that number. No tuning takes more than the graphs that hold it: where such a time
says so, it is wrong, and the graphs' share is all that is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from backend.model.tuning import Tuning
from rocm_tui.ingest.records import GraphSeen
from rocm_tui.session import stats

if TYPE_CHECKING:  # types only: the first rows are shown before what needs them is loaded
    from backend.model.graph import GraphTimes, TuningUse
    from backend.model.trial import Trial

Told = Literal["seen", "measured", "once", "at most"]
"""Where the time of a choice is from: a profiler saw it in the graph, it was measured again and
again, or timed once; or it cannot be that long, and the graphs that hold it bound it."""
DOUBT: tuple[Told, ...] = ("seen", "measured", "once", "at most")
"""From the best known to the worst."""


@dataclass(frozen=True, slots=True)
class Use:
    """A graph with a tuning in it. `ms` is what a profiler saw that tuning's kernels take in one
    call of the graph."""

    seen: GraphSeen
    use: TuningUse
    ms: float | None = None

    @property
    def times(self) -> GraphTimes:
        from backend.model.graph import GraphTimes  # with the first graph

        return self.seen.times or GraphTimes(0)


@dataclass(frozen=True, slots=True)
class Part:
    """What one graph has of a tuning: `count` nodes, in each of its `calls`. `share` is of the
    time of that graph, None where it is not known."""

    graph: str
    title: str
    count: int
    calls: int
    share: float | None


@dataclass(frozen=True, slots=True)
class Share:
    """What a tuning is to the program that is named: calls of its choice, and their part of the
    program's time in compiled graphs.

    `gain` is the part of the program's time that the fastest measured choice would save: 0 if none
    is known to be faster, None if that is not measured or unclear. `at_most` is what can be saved
    as far as is known: all of the share where nothing was measured. `tried` is the latest trial of
    a graph with its choices.
    """

    program: str
    calls: int
    share: float | None = None
    told: Told = "once"
    gain: float | None = None
    at_most: float | None = None
    parts: tuple[Part, ...] = ()
    tried: Trial | None = None

    @property
    def to_gain(self) -> float | None:
        """The gain where it is known, else what it is at most: what is worth looking at first."""
        return self.at_most if self.gain is None else self.gain


def total_ms(graphs: Iterable[GraphSeen]) -> float:
    """What all calls of these graphs took, as far as they were timed."""
    totals = (seen.times.total_ms for seen in graphs if seen.times is not None)
    return sum(total for total in totals if total is not None)


def share_of(tuning: Tuning, uses: Sequence[Use], program: str, total: float) -> Share:
    """The share of a tuning in a program whose graphs took `total` milliseconds."""
    parts: dict[int, list[Part]] = {}
    spent, told = 0.0, 0
    known = total > 0
    for use in uses:
        part, ms, how = part_of(tuning, use)
        parts.setdefault(id(use.seen), []).append(part)
        if use.times.calls:
            known = known and ms is not None
            spent += ms or 0.0
            told = max(told, DOUBT.index(how))
    calls = sum(use.times.calls * use.use.count for use in uses)
    merged = tuple(_merged([_united(same) for same in parts.values()]))
    if not known:
        return Share(program, calls, parts=merged)
    share = spent / total
    gain, most = _gains(tuning, {use.use.hash for use in uses})
    return Share(
        program,
        calls,
        share,
        DOUBT[told],
        None if gain is None else share * gain,
        share * most,
        merged,
    )


def _united(same: Sequence[Part]) -> Part:
    """What one process's graph has of a tuning, of which its nodes may call several choices."""
    shares = [part.share for part in same if part.share is not None]
    share = sum(shares) if len(shares) == len(same) else None
    return replace(same[0], count=sum(part.count for part in same), share=share)


def _merged(parts: Sequence[Part]) -> list[Part]:
    """Each graph once, whichever rank called it; the most called first."""
    by_graph: dict[str, list[Part]] = {}
    for part in parts:
        by_graph.setdefault(part.graph, []).append(part)
    merged = []
    for same in by_graph.values():
        calls = sum(part.calls for part in same)
        shares = [(part.share or 0.0) * part.calls for part in same]
        known = calls > 0 and all(part.share is not None for part in same if part.calls)
        share = sum(shares) / calls if known else None
        merged.append(replace(same[0], calls=calls, share=share))
    return sorted(merged, key=lambda part: -part.calls)


def part_of(tuning: Tuning | None, use: Use) -> tuple[Part, float | None, Told]:
    """What a graph has of the tuning, the milliseconds that all calls there took, and how that is
    told. Of a tuning that no source tells of, None, a profiler may."""
    times, seen = use.times, use.seen
    ms, how = _call_ms(tuning, use)
    share = None
    if ms is not None and times.ms:
        share = ms / times.ms
        if share > 1:
            share, how = 1.0, "at most"
    graph = seen.graph
    part = Part(graph.id, graph.title, use.use.count, times.calls, share)
    spent = None if share is None or times.total_ms is None else share * times.total_ms
    return part, spent, how


def _call_ms(tuning: Tuning | None, use: Use) -> tuple[float | None, Told]:
    """Milliseconds that one call of the graph spends in the tuning's choice."""
    if use.ms is not None:
        return use.ms, "seen"
    if tuning is None:
        return None, "once"
    choice = next((c for c in tuning.choices if c.hash and c.hash == use.use.hash), None)
    ms = stats.time_ms(tuning, choice)
    how: Told = "once" if stats.measured(tuning, choice) is None else "measured"
    return None if ms is None else ms * use.use.count, how


def _gains(tuning: Tuning, used: set[str | None]) -> tuple[float | None, float]:
    """Of the time of the choice that is used: what the best measured one saves, what it saves at
    most."""
    only = next(iter(used)) if len(used) == 1 else None
    measured = tuning.measured.of(only) if tuning.measured is not None and only else None
    if measured is None or tuning.measured is None or len(tuning.measured.choices) < 2:
        return None, 1.0
    if measured.hash == tuning.measured.choices[0].hash or measured.verdict == "tied":
        return 0.0, 0.0
    most = 1 - 1 / measured.ratio_high if measured.ratio_high >= 1 else 0.0
    if measured.verdict == "slower" and measured.ratio >= 1:
        return 1 - 1 / measured.ratio, most
    return None, most
