"""The compiled graphs of the sources, by the program that called them, and the shares of tunings.

A program is one process, or all ranks of one job. Its graphs say which tunings they hold.

The share of a tuning is of the time of the program's compiled graphs, as far as it was seen: the
calls of each graph times the mean of those calls that were timed. What a program does outside of
compiled graphs, and graphs of which no call was timed, are not in it. A call of a choice takes the
part of its graph that a profiler saw its kernels take; else as long as was measured for the choice
that the graph calls; else the time that was taken once, and then the share is as doubtful as that
number. The tunings of a graph take no more than the graph: where times of kernels alone add up to
more than what a profiler's leave, all of them are scaled down to that.

A profiler knows a graph by the key of Inductor's cache alone. A session's log may
name the tunings of the same graph, the cache dir may have its text, which names the kernels too.
What neither has stays unknown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import merge
from pathlib import PurePath
from typing import Literal

from backend.model.graph import Graph, GraphTimes, Trial, TuningUse, swaps_of
from backend.model.origin import extern_name, kind_of
from backend.model.problem import TuningKey, device_of_inputs_key
from backend.model.session import Session, systems_of
from backend.model.tuning import Tuning
from rocm_tui.ingest.records import GraphSeen, GraphTold, KernelTime, TrialSeen
from rocm_tui.session import stats

ShareBasis = Literal["seen", "measured", "once"]
"""Where the time of a choice is from: a profiler saw it in the graph, it was measured again and
again, or timed once."""
DOUBT: tuple[ShareBasis, ...] = ("seen", "measured", "once")
"""From the best known to the worst."""


@dataclass(frozen=True, slots=True)
class TuningInGraph:
    """A graph with a tuning in it. `ms` is what a profiler saw that tuning's kernels take in one
    call of the graph."""

    seen: GraphSeen
    use: TuningUse
    ms: float | None = None

    @property
    def times(self) -> GraphTimes:
        return self.seen.times or GraphTimes(0)


@dataclass(frozen=True, slots=True)
class GraphScale:
    """By what to multiply times that were seen in a graph, and those of kernels alone, so that they
    are together no longer than the graph."""

    seen: float = 1.0
    alone: float = 1.0

    @classmethod
    def of(cls, ms: float | None, calls: Iterable[CallTime]) -> GraphScale:
        """Return that of a graph of `ms` milliseconds, by what its tunings take of a call."""
        sums = {"seen": 0.0, "alone": 0.0}
        for spent, how in calls:
            sums["seen" if how == "seen" else "alone"] += spent or 0.0
        seen, alone = sums["seen"], sums["alone"]
        left = max(0.0, (ms or 0.0) - seen)
        return cls(
            (ms or 0.0) / seen if seen > (ms or 0.0) else 1.0, left / alone if alone > left else 1.0
        )


CallTime = tuple[float | None, ShareBasis]
"""Milliseconds that a tuning takes of a call of a graph, and how that is known."""


@dataclass(frozen=True, slots=True)
class SharePart:
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
    as far as was measured, None where nothing was. `tried` is the latest trial of a graph with its
    choices.
    """

    program: str
    calls: int
    share: float | None = None
    basis: ShareBasis = "once"
    gain: float | None = None
    at_most: float | None = None
    parts: tuple[SharePart, ...] = ()
    tried: Trial | None = None

    @property
    def to_gain(self) -> float | None:
        """The gain where it is known, else what it is at most: what is worth looking at first."""
        return self.at_most if self.gain is None else self.gain


def total_ms(graphs: Iterable[GraphSeen]) -> float:
    """What all calls of these graphs took, as far as they were timed."""
    totals = (seen.times.total_ms for seen in graphs if seen.times is not None)
    return sum(total for total in totals if total is not None)


def share_of(
    tuning: Tuning,
    uses: Sequence[TuningInGraph],
    program: str,
    total: float,
    fits: Callable[[GraphSeen], GraphScale],
) -> Share:
    """The share of a tuning in a program whose graphs took `total` milliseconds."""
    parts: dict[int, list[SharePart]] = {}
    spent, doubt = 0.0, 0
    complete = total > 0
    for use in uses:
        part, ms, how = part_of(tuning, use, fits(use.seen))
        parts.setdefault(id(use.seen), []).append(part)
        if use.times.calls:
            complete = complete and ms is not None
            spent += ms or 0.0
            doubt = max(doubt, DOUBT.index(how))
    calls = sum(use.times.calls * use.use.count for use in uses)
    merged = tuple(_merged([_united(same) for same in parts.values()]))
    if not complete:
        return Share(program, calls, parts=merged)
    share = spent / total
    gain, most = _gains(tuning, {use.use.hash for use in uses})
    return Share(
        program,
        calls,
        share,
        DOUBT[doubt],
        None if gain is None else share * gain,
        None if most is None else share * most,
        merged,
    )


def _united(same: Sequence[SharePart]) -> SharePart:
    """What one process's graph has of a tuning, of which its nodes may call several choices."""
    shares = [part.share for part in same if part.share is not None]
    share = sum(shares) if len(shares) == len(same) else None
    return replace(same[0], count=sum(part.count for part in same), share=share)


def _merged(parts: Sequence[SharePart]) -> list[SharePart]:
    """Each graph once, whichever rank called it; the most called first."""
    by_graph: dict[str, list[SharePart]] = {}
    for part in parts:
        by_graph.setdefault(part.graph, []).append(part)
    merged = []
    for same in by_graph.values():
        calls = sum(part.calls for part in same)
        shares = [(part.share or 0.0) * part.calls for part in same]
        complete = calls > 0 and all(part.share is not None for part in same if part.calls)
        share = sum(shares) / calls if complete else None
        merged.append(replace(same[0], calls=calls, share=share))
    return sorted(merged, key=lambda part: -part.calls)


def part_of(
    tuning: Tuning | None, use: TuningInGraph, fit: GraphScale
) -> tuple[SharePart, float | None, ShareBasis]:
    """What a graph has of the tuning, the milliseconds that all calls there took, and how that is
    known. Only a profiler knows that of a tuning without a source, None."""
    times, seen = use.times, use.seen
    ms, how = call_ms(tuning, use)
    share = None
    if ms is not None and times.ms:
        share = min(1.0, ms * (fit.seen if how == "seen" else fit.alone) / times.ms)
    graph = seen.graph
    part = SharePart(graph.id, graph.title, use.use.count, times.calls, share)
    spent = None if share is None or times.total_ms is None else share * times.total_ms
    return part, spent, how


def call_ms(tuning: Tuning | None, use: TuningInGraph) -> CallTime:
    """Milliseconds that one call of the graph spends in the tuning's choice."""
    if use.ms is not None:
        return use.ms, "seen"
    if tuning is None:
        return None, "once"
    choice = next((c for c in tuning.choices if c.hash and c.hash == use.use.hash), None)
    ms = stats.time_ms(tuning, choice)
    how: ShareBasis = "once" if stats.measured(tuning, choice) is None else "measured"
    return None if ms is None else ms * use.use.count, how


def _gains(tuning: Tuning, used: set[str | None]) -> tuple[float | None, float | None]:
    """Of the time of the choice that is used: what the best measured one saves, what it saves at
    most; None where that was not measured or, of the first, is unclear."""
    only = next(iter(used)) if len(used) == 1 else None
    measured = tuning.measured.of(only) if tuning.measured is not None and only else None
    if measured is None or tuning.measured is None or len(tuning.measured.choices) < 2:
        return None, None
    best, *rivals = tuning.measured.choices
    if measured.verdict in ("tied", "faster"):
        return 0.0, 0.0
    if measured.hash == best.hash:
        return None, max(0.0, 1 - min(rival.ratio_low for rival in rivals))
    most = 1 - 1 / measured.ratio_high if measured.ratio_high >= 1 else 0.0
    if measured.verdict == "slower" and measured.ratio >= 1:
        return 1 - 1 / measured.ratio, most
    return None, most


_TEMPLATES = "triton_tem_"
"""How Inductor names the kernels of Triton templates."""


def named(
    seen: GraphSeen, logged: Mapping[str, Graph], texts: Mapping[str, GraphTold]
) -> GraphSeen:
    """The graph as a log knows it, else with the tunings that its text has."""
    key = seen.graph.key
    if seen.session is not None or not key:
        return seen
    if key in logged:
        return replace(seen, graph=logged[key])
    if key in texts:
        return replace(seen, graph=replace(seen.graph, tunings=texts[key].tunings))
    return seen


def tuning_ms(seen: GraphSeen, text: GraphTold | None) -> dict[TuningKey, float]:
    """Milliseconds of a call of the graph that kernels of each tuning take, for the tunings
    of which it is known. The host's spans of a GPU kernel only show its launch."""
    if not seen.kernels or not seen.graph.tunings or seen.times is None:
        return {}
    text = text if text is not None and text.tunings else None
    by_name = dict(text.kernels) if text else {}
    by_call = _calls(seen, text) if text else {}
    on_device = seen.times.by == "device"
    keys = {
        use.key
        for use in seen.graph.tunings
        if on_device or device_of_inputs_key(use.inputs) == "cpu"
    }
    sums: dict[TuningKey, float] = defaultdict(float)
    for kernel in seen.kernels:
        key = by_name.get(kernel.name) or by_call.get((kernel.op, kernel.nth))
        if key is None and text is None:
            key = _only(kernel, seen.graph.tunings)
        if key in keys:
            sums[key] += kernel.ms
    return dict(sums)


def aten_name(extern: str) -> str:
    """`addmm` of `bias_addmm`: what a wrapper calls, as ATen calls it."""
    return extern.partition(".")[0].removeprefix("bias_")


def _calls(seen: GraphSeen, text: GraphTold) -> dict[tuple[str, int], TuningKey | None]:
    """Return the tuning of each call of an op. If the number of calls differs from the text's, only
    ops whose calls are all of one tuning count."""
    order: dict[str, list[TuningKey | None]] = defaultdict(list)
    for extern, key in text.externs:
        order[aten_name(extern)].append(key)
    most: dict[str, int] = defaultdict(int)
    for kernel in seen.kernels:
        most[kernel.op] = max(most[kernel.op], kernel.nth)
    calls: dict[tuple[str, int], TuningKey | None] = {}
    for op, keys in order.items():
        same = len(set(keys)) == 1
        for nth in range(1, most[op] + 1):
            if same:
                calls[op, nth] = keys[0]
            elif most[op] == len(keys):
                calls[op, nth] = keys[nth - 1]
    return calls


def _only(kernel: KernelTime, uses: tuple[TuningUse, ...]) -> TuningKey | None:
    """Without a text: the one tuning of the graph whose choice may be called so."""
    hashes = [(use, use.hash) for use in uses if use.hash is not None]
    if len(hashes) < len(uses):
        return None
    if kernel.name.startswith(_TEMPLATES):
        fits = [use for use, hash in hashes if kind_of(hash) == "triton"]
    else:
        fits = [
            use
            for use, hash in hashes
            if not kind_of(hash) and aten_name(extern_name(hash)) == kernel.op
        ]
    return fits[0].key if len(fits) == 1 else None


_MOST_REFITS = 1000
"""Times that a graph's tunings share it anew before its next call is seen."""
Process = str
"""The id of a session, or the path of a source of one process."""
TOGETHER = 120.0
"""Seconds within which the ranks of a job start."""


Run = frozenset[Process]
Asked = tuple[Tuning, Collection[Process]]
"""A tuning, and the processes that are known to have requested it."""


@dataclass(frozen=True, slots=True)
class ProgramGraphs:
    """The graphs of one run, longest first; `total` is the milliseconds that they took, `latest`
    when it was heard of last."""

    name: str
    graphs: tuple[GraphSeen, ...]
    total: float
    latest: float
    uses: Mapping[TuningKey, tuple[TuningInGraph, ...]]

    def uses_of(self, seen: GraphSeen) -> list[TuningInGraph]:
        """The tunings that one of its graphs holds."""
        return [use for uses in self.uses.values() for use in uses if use.seen is seen]

    def share(self, seen: GraphSeen) -> float | None:
        """The part of the program's time in graphs that is this one's."""
        spent = seen.times.total_ms if seen.times else None
        return None if spent is None or not self.total else spent / self.total


class Graphs:
    """All graphs and trials of all sources. A program is rebuilt only after a new record."""

    def __init__(self, sessions: Mapping[str, Session]) -> None:
        self._sessions = sessions
        self._graphs: dict[Process, dict[tuple[str, int], GraphSeen]] = {}
        self._holders: dict[TuningKey, dict[Process, None]] = {}
        self._trials: dict[TrialSeen, None] = {}
        self._tried: dict[TuningKey, Trial] = {}
        self._runs: dict[Process, Run] | None = None
        self._programs: dict[Run, ProgramGraphs] = {}
        self._dirty: set[Process] = set()
        self._lost: set[tuple[str, str]] = set()
        self._named: dict[str, Graph] = {}
        self._texts: dict[str, GraphTold] = {}
        self._profiled: dict[str, GraphSeen] = {}
        self._callers: dict[str, dict[Process, None]] = {}
        self._spent: dict[tuple[str, int], dict[TuningKey, list[CallTime]]] = {}
        self._refits: dict[tuple[str, int], int] = {}

    def add(self, seen: GraphSeen) -> None:
        process = process_of(seen)
        if process not in self._graphs:
            self._runs = None
        self._graphs.setdefault(process, {})[seen.source, seen.g] = seen
        for use in seen.graph.tunings:
            self._holders.setdefault(use.key, {})[process] = None
        self._dirty.add(process)
        self._refits.pop((seen.source, seen.g), None)
        key = seen.graph.key
        if key is None:
            return
        self._callers.setdefault(key, {})[process] = None
        if seen.session is None:
            self._profiled[key] = seen
            self._name(key)
        elif self._named.get(key) != seen.graph:
            self._named[key] = seen.graph
            self._name(key)

    def add_text(self, text: GraphTold) -> None:
        if self._texts.get(text.key) != text:
            self._texts[text.key] = text
            self._name(text.key)

    @property
    def profiled(self) -> tuple[str, ...]:
        """The keys of the graphs that a profiler saw."""
        return tuple(self._profiled)

    def _name(self, key: str) -> None:
        """Something new is known of the graph of this key, whoever called it."""
        callers = self._callers.get(key, ())
        self._dirty.update(callers)
        graph = self._named.get(key)
        text = self._texts.get(key)
        for use in graph.tunings if graph else text.tunings if text else ():
            self._holders.setdefault(use.key, {}).update(dict.fromkeys(callers))

    def add_trial(self, seen: TrialSeen) -> None:
        self._trials[seen] = None
        keys = keys_of(seen.trial)
        self._index_trial(seen.trial, keys)
        self._lost |= {(key.op, key.inputs) for key in keys}

    def forget(self, source: str) -> None:
        """Drop what a source said."""
        if any(seen.source == source for seen in self._trials):
            self._trials = {seen: None for seen in self._trials if seen.source != source}
            self._tried.clear()
            for trial in (left.trial for left in self._trials):
                self._index_trial(trial, keys_of(trial))
        for process, graphs in list(self._graphs.items()):
            gone = [place for place in graphs if place[0] == source]
            for place in gone:
                self._lost |= {(use.op, use.inputs) for use in graphs.pop(place).graph.tunings}
                self._spent.pop(place, None)
                self._dirty.add(process)
            if not graphs:
                del self._graphs[process]
                self._runs = None
        for key, seen in list(self._profiled.items()):
            if seen.source == source:
                del self._profiled[key]
                self._name(key)

    def trials(self, graph: str) -> tuple[Trial, ...]:
        """Return the trials of a graph, latest first."""
        trials = (seen.trial for seen in self._trials if seen.trial.graph == graph)
        return tuple(dict.fromkeys(sorted(trials, key=lambda trial: trial.when, reverse=True)))

    def _index_trial(self, trial: Trial, keys: Iterable[TuningKey]) -> None:
        """It is the latest trial of the choices of these tunings, unless a later one is there."""
        for key in keys:
            latest = self._tried.get(key)
            if latest is None or trial.when >= latest.when:
                self._tried[key] = trial

    @property
    def held(self) -> bool:
        """Whether there is any graph, or was one that rows may still show."""
        return bool(self._holders)

    @property
    def unjoined(self) -> bool:
        """Whether something came since the last `touched`."""
        return bool(self._dirty or self._lost)

    def touched(self) -> set[tuple[str, str]]:
        """The op and the inputs key of each tuning whose shares may have changed since the last
        call: a program's total is in all of them."""
        dirty, self._dirty = self._dirty, set()
        keys, self._lost = self._lost, set()
        runs = self._runs_by_process()
        gone = [run for run in self._programs if not run.isdisjoint(dirty)]
        for run in gone:
            keys |= {(key.op, key.inputs) for key in self._programs.pop(run).uses}
        for run in {runs[process] for process in dirty if process in runs}:
            keys |= {(key.op, key.inputs) for key in self._program(run).uses}
        return keys

    def programs(self) -> tuple[ProgramGraphs, ...]:
        """One a run, the latest first."""
        runs = dict.fromkeys(self._runs_by_process().values())
        return tuple(sorted(map(self._program, runs), key=lambda p: p.latest, reverse=True))

    def shares(self, tunings: Sequence[Asked]) -> list[Share | None]:
        """Return the share of each tuning of one problem in the latest program that called it, by
        the sessions that are known to have requested it; None if no graph holds it.

        A program that requested one of them called that one; any other, the latest possible one.
        """
        runs = self._runs_by_process()
        requesters = {session for _, asked in tunings for session in asked}
        loose: dict[TuningKey, list[ProgramGraphs]] = {}
        called: list[tuple[Tuning, ProgramGraphs, tuple[TuningInGraph, ...]] | None] = []
        claimed: set[int] = set()
        for tuning, asked in reversed(tunings):
            key = tuning.key
            holders = self._holders.get(key, {}) if key is not None else {}
            if key is None or not holders:
                called.append(None)
                continue
            if key not in loose:
                loose[key] = self._latest(
                    process for process in holders if process not in requesters
                )
            own = self._latest(process for process in asked if process in runs)
            latest = merge(own, loose[key], key=lambda program: -program.latest)
            places = ((p, self._uses(tuning, key, requesters, asked, p)) for p in latest)
            own_uses = (
                (tuning, program, left)
                for program, uses in places
                if (left := tuple(use for use in uses if id(use) not in claimed))
            )
            called.append(next(own_uses, None))
            claimed.update(id(use) for *_, uses in filter(None, called[-1:]) for use in uses)
        called.reverse()
        self._note(called)
        return [self._share(*each) if each is not None else None for each in called]

    def _latest(self, processes: Iterable[Process]) -> list[ProgramGraphs]:
        """The programs of these processes, the latest first."""
        runs = self._runs_by_process()
        programs = dict.fromkeys(runs[process] for process in processes if process in runs)
        return sorted(map(self._program, programs), key=lambda p: p.latest, reverse=True)

    def _uses(
        self,
        tuning: Tuning,
        key: TuningKey,
        known: Collection[Process],
        asked: Collection[Process],
        program: ProgramGraphs,
    ) -> tuple[TuningInGraph, ...]:
        """Return where a program uses it; nothing if no such graph was called. Some of its ranks
        may have requested another one."""
        systems = systems_of(tuning, self._sessions)
        uses = tuple(
            use
            for use in program.uses.get(key, ())
            if ((process := process_of(use.seen)) not in known or process in asked)
            and self._fits(process, systems)
        )
        return uses if any(use.times.calls for use in uses) else ()

    def _share(
        self, tuning: Tuning, program: ProgramGraphs, uses: Sequence[TuningInGraph]
    ) -> Share:
        share = share_of(tuning, uses, program.name, program.total, self._fit)
        tried = self._tried.get(uses[0].use.key)
        return share if tried is None else replace(share, tried=tried)

    def _note(
        self, called: Iterable[tuple[Tuning, ProgramGraphs, tuple[TuningInGraph, ...]] | None]
    ) -> None:
        """Keep what these tunings of one problem take of their graphs, which bounds what is left
        for others there."""
        spent: dict[tuple[str, int], dict[TuningKey, list[CallTime]]] = {}
        seen: dict[tuple[str, int], GraphSeen] = {}
        for tuning, _, uses in filter(None, called):
            for use in uses:
                place = use.seen.source, use.seen.g
                seen[place] = use.seen
                times = spent.setdefault(place, {}).setdefault(use.use.key, [])
                times.append(call_ms(tuning, use))
        for place, by_key in spent.items():
            before = self._fit(seen[place])
            self._spent.setdefault(place, {}).update(by_key)
            refits = self._refits.get(place, 0)
            # A log in which two problems have one key would be fitted for ever.
            if self._fit(seen[place]) != before and refits < _MOST_REFITS + len(by_key):
                self._refits[place] = refits + 1
                self._dirty.add(process_of(seen[place]))

    def _fit(self, seen: GraphSeen) -> GraphScale:
        """How the times of a graph's tunings fit into it."""
        by_key = self._spent.get((seen.source, seen.g), {})
        held = {use.key for use in seen.graph.tunings}
        calls = (call for key in held for call in by_key.get(key, ()))
        return GraphScale.of(seen.times.ms if seen.times else None, calls)

    def _fits(self, process: Process, systems: Collection[str]) -> bool:
        session = self._sessions.get(process)
        system = session.system_hash if session else None
        return not systems or not system or system in systems

    def _runs_by_process(self) -> dict[Process, Run]:
        if self._runs is None:
            runs = runs_of(self._graphs, self._sessions)
            self._runs = {process: run for run in runs for process in run}
            present = set(runs)
            self._programs = {run: p for run, p in self._programs.items() if run in present}
        return self._runs

    def _program(self, run: Run) -> ProgramGraphs:
        program = self._programs.get(run)
        if program is None:
            program = self._programs[run] = self._program_of(run)
        return program

    def _program_of(self, run: Run) -> ProgramGraphs:
        graphs = [
            named(seen, self._named, self._texts)
            for process in run
            for seen in _each_once(self._graphs[process].values())
        ]
        graphs.sort(key=lambda seen: -((seen.times.total_ms if seen.times else None) or 0.0))
        uses: dict[TuningKey, list[TuningInGraph]] = {}
        for seen in graphs:
            times = self._tuning_ms(seen)
            for use in seen.graph.tunings:
                uses.setdefault(use.key, []).append(TuningInGraph(seen, use, times.get(use.key)))
        heard = [seen.when or 0.0 for seen in graphs]
        heard += [self._sessions[process].started for process in run if process in self._sessions]
        return ProgramGraphs(
            program_name(sorted(run)[0], self._sessions, len(run)),
            tuple(graphs),
            total_ms(graphs),
            max(heard, default=0.0),
            {key: tuple(places) for key, places in uses.items()},
        )

    def _tuning_ms(self, seen: GraphSeen) -> dict[TuningKey, float]:
        """Return what kernels of each tuning take of a call, where a profiler saw this graph: the
        same part in each program, whoever ran it under a profiler."""
        key = seen.graph.key or ""
        profiled = self._profiled.get(key) if seen.session is not None else seen
        if profiled is None or not (profiled.times and profiled.times.ms and seen.times):
            return {}
        times = tuning_ms(replace(profiled, graph=seen.graph), self._texts.get(key))
        part = (seen.times.ms or 0.0) / profiled.times.ms
        return {tuning: ms * part for tuning, ms in times.items()}


def _each_once(graphs: Iterable[GraphSeen]) -> Iterable[GraphSeen]:
    """Return each graph of a process once: of copies of its log, as the one that goes furthest."""
    by_number: dict[int, GraphSeen] = {}
    for seen in graphs:
        other = by_number.get(seen.g)
        if other is None or _called(seen) > _called(other):
            by_number[seen.g] = seen
    return by_number.values()


def _called(seen: GraphSeen) -> int:
    return seen.times.calls if seen.times else 0


def keys_of(trial: Trial) -> set[TuningKey]:
    """The tunings of which it tried choices."""
    return {swap.key for arm in trial.arms for swap in swaps_of(arm.swaps)}


def process_of(seen: GraphSeen) -> Process:
    """Which process called a graph."""
    return seen.session or seen.source


def program_name(process: Process, sessions: Mapping[str, Session], ranks: int = 1) -> str:
    """`llama.py pid 4242`; of a profiler's trace its file's name."""
    session = sessions.get(process)
    if session is None:
        return PurePath(process).name
    script = next((PurePath(arg).name for arg in session.argv if arg.endswith(".py")), "")
    name = script or (PurePath(session.argv[0]).name if session.argv else "") or "program"
    return f"{name} ({ranks} ranks)" if ranks > 1 else f"{name} pid {session.pid}"


def runs_of(processes: Iterable[Process], sessions: Mapping[str, Session]) -> list[Run]:
    """Ranks of one job are together: the same words, each rank once, started at about one time."""
    jobs: dict[tuple[str, ...], list[Session]] = {}
    runs: list[Run] = []
    for process in processes:
        session = sessions.get(process)
        if session is None or session.rank is None:
            runs.append(frozenset([process]))
        else:
            jobs.setdefault(session.argv, []).append(session)
    for members in jobs.values():
        run: dict[int, Session] = {}
        for session in sorted(members, key=lambda member: member.started):
            assert session.rank is not None
            first = next(iter(run.values()), session)
            if session.rank in run or session.started - first.started > TOGETHER:
                runs.append(frozenset(member.id for member in run.values()))
                run = {}
            run[session.rank] = session
        runs.append(frozenset(member.id for member in run.values()))
    return runs
