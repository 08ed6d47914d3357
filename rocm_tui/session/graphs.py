"""The compiled graphs that the sources tell of, by the program that called them.

A program is one process, or all ranks of one job. Its graphs say which tunings they hold.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import merge
from pathlib import PurePath
from typing import TYPE_CHECKING

from backend.model.problem import TuningKey
from backend.model.session import Session, systems_of
from backend.model.tuning import Tuning
from rocm_tui.ingest.records import GraphSeen, GraphTold, TrialSeen
from rocm_tui.session.profiled import named, tuning_ms
from rocm_tui.session.shares import Share, Use, share_of, total_ms

if TYPE_CHECKING:  # types only: the first rows are shown before what needs them is loaded
    from backend.model.graph import Graph
    from backend.model.trial import Trial

Process = str
"""The id of a session, or the path of a source that tells of one process."""
TOGETHER = 120.0
"""Seconds within which the ranks of a job start."""


Run = frozenset[Process]
Asked = tuple[Tuning, Collection[Process]]
"""A tuning, and who is known to have asked for it."""


@dataclass(frozen=True, slots=True)
class Program:
    """The graphs of one run, longest first; `total` is the milliseconds that they took, `latest`
    when it was heard of last."""

    name: str
    run: Run
    graphs: tuple[GraphSeen, ...]
    total: float
    latest: float
    uses: Mapping[TuningKey, tuple[Use, ...]]

    def uses_of(self, seen: GraphSeen) -> list[Use]:
        """The tunings that one of its graphs holds."""
        return [use for uses in self.uses.values() for use in uses if use.seen is seen]

    def share(self, seen: GraphSeen) -> float | None:
        """The part of the program's time in graphs that is this one's."""
        spent = seen.times.total_ms if seen.times else None
        return None if spent is None or not self.total else spent / self.total


class Graphs:
    """All graphs and trials of all sources. A program is made anew only when it told something."""

    def __init__(self, sessions: Mapping[str, Session]) -> None:
        self._sessions = sessions
        self._graphs: dict[Process, dict[tuple[str, int], GraphSeen]] = {}
        self._holders: dict[TuningKey, dict[Process, None]] = {}
        self._trials: dict[TrialSeen, None] = {}
        self._tried: dict[TuningKey, Trial] = {}
        self._runs: dict[Process, Run] | None = None
        self._programs: dict[Run, Program] = {}
        self._dirty: set[Process] = set()
        self._lost: set[tuple[str, str]] = set()
        self._named: dict[str, Graph] = {}
        self._told: dict[str, GraphTold] = {}
        self._profiled: dict[str, GraphSeen] = {}
        self._callers: dict[str, dict[Process, None]] = {}

    def add(self, seen: GraphSeen) -> None:
        process = process_of(seen)
        if process not in self._graphs:
            self._runs = None
        self._graphs.setdefault(process, {})[seen.source, seen.g] = seen
        for use in seen.graph.tunings:
            self._holders.setdefault(use.key, {})[process] = None
        self._dirty.add(process)
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

    def tell(self, told: GraphTold) -> None:
        """What the text of a graph says."""
        if self._told.get(told.key) != told:
            self._told[told.key] = told
            self._name(told.key)

    @property
    def profiled(self) -> tuple[str, ...]:
        """The keys of the graphs of which a profiler told."""
        return tuple(self._profiled)

    def _name(self, key: str) -> None:
        """Something new is known of the graph of this key, whoever called it."""
        callers = self._callers.get(key, ())
        self._dirty.update(callers)
        graph = self._named.get(key)
        told = self._told.get(key)
        for use in graph.tunings if graph else told.tunings if told else ():
            self._holders.setdefault(use.key, {}).update(dict.fromkeys(callers))

    def add_trial(self, seen: TrialSeen) -> None:
        self._trials[seen] = None
        self._index_trials()
        self._lost |= {(key.op, key.inputs) for key in keys_of(seen.trial)}

    def forget(self, source: str) -> None:
        """Drop what a source said."""
        if any(seen.source == source for seen in self._trials):
            self._trials = {seen: None for seen in self._trials if seen.source != source}
            self._index_trials()
        for process, graphs in list(self._graphs.items()):
            gone = [place for place in graphs if place[0] == source]
            for place in gone:
                self._lost |= {(use.op, use.inputs) for use in graphs.pop(place).graph.tunings}
                self._dirty.add(process)
            if not graphs:
                del self._graphs[process]
                self._runs = None
        for key, seen in list(self._profiled.items()):
            if seen.source == source:
                del self._profiled[key]
                self._name(key)

    def trials(self, graph: str) -> tuple[Trial, ...]:
        """Those of a graph, latest first."""
        trials = (seen.trial for seen in self._trials if seen.trial.graph == graph)
        return tuple(dict.fromkeys(sorted(trials, key=lambda trial: trial.when, reverse=True)))

    def _index_trials(self) -> None:
        """The latest trial of each tuning's choices."""
        trials = sorted((seen.trial for seen in self._trials), key=lambda trial: trial.when)
        self._tried = {key: trial for trial in trials for key in keys_of(trial)}

    @property
    def held(self) -> bool:
        """Whether there is any graph, or was one that rows may still tell of."""
        return bool(self._holders)

    @property
    def unjoined(self) -> bool:
        """Whether something was told since `touched` was asked."""
        return bool(self._dirty or self._lost)

    def touched(self) -> set[tuple[str, str]]:
        """The op and the inputs key of each tuning whose shares may have changed since the last
        call: a program's total is in all of them."""
        dirty, self._dirty = self._dirty, set()
        keys, self._lost = self._lost, set()
        runs = self._allruns_of()
        gone = [run for run in self._programs if not run.isdisjoint(dirty)]
        for run in gone:
            keys |= {(key.op, key.inputs) for key in self._programs.pop(run).uses}
        for run in {runs[process] for process in dirty if process in runs}:
            keys |= {(key.op, key.inputs) for key in self._program(run).uses}
        return keys

    def programs(self) -> tuple[Program, ...]:
        """One a run, the latest first."""
        runs = dict.fromkeys(self._allruns_of().values())
        return tuple(sorted(map(self._program, runs), key=lambda p: p.latest, reverse=True))

    def shares(self, tunings: Sequence[Asked]) -> list[Share | None]:
        """What each tuning of one problem is to the latest program that called it, with the
        sessions that are known to have asked for it; None if no graph holds it.

        A program that asked for one of them called that one; of any other it may be each.
        """
        runs = self._allruns_of()
        known = {session for _, asked in tunings for session in asked}
        loose: dict[TuningKey, list[Program]] = {}
        shares: list[Share | None] = []
        for tuning, asked in tunings:
            key = tuning.key
            holders = self._holders.get(key, {}) if key is not None else {}
            if key is None or not holders:
                shares.append(None)
                continue
            if key not in loose:
                loose[key] = self._latest(process for process in holders if process not in known)
            own = self._latest(process for process in asked if process in runs)
            latest = merge(own, loose[key], key=lambda program: -program.latest)
            made = (self._share(tuning, key, known, asked, program) for program in latest)
            shares.append(next((share for share in made if share is not None), None))
        return shares

    def _latest(self, processes: Iterable[Process]) -> list[Program]:
        """The programs of these processes, the latest first."""
        runs = self._allruns_of()
        programs = dict.fromkeys(runs[process] for process in processes if process in runs)
        return sorted(map(self._program, programs), key=lambda p: p.latest, reverse=True)

    def _share(
        self,
        tuning: Tuning,
        key: TuningKey,
        known: Collection[Process],
        asked: Collection[Process],
        program: Program,
    ) -> Share | None:
        """None if the program did not call it. Of its ranks, some may have asked for another."""
        systems = systems_of(tuning, self._sessions)
        uses = tuple(
            use
            for use in program.uses.get(key, ())
            if ((process := process_of(use.seen)) not in known or process in asked)
            and self._fits(process, systems)
        )
        if not any(use.times.calls for use in uses):
            return None
        share = share_of(tuning, uses, program.name, program.total)
        tried = self._tried.get(key)
        return share if tried is None else replace(share, tried=tried)

    def _fits(self, process: Process, systems: Collection[str]) -> bool:
        session = self._sessions.get(process)
        system = session.system_hash if session else None
        return not systems or not system or system in systems

    def _allruns_of(self) -> dict[Process, Run]:
        if self._runs is None:
            runs = runs_of(self._graphs, self._sessions)
            self._runs = {process: run for run in runs for process in run}
            present = set(runs)
            self._programs = {run: p for run, p in self._programs.items() if run in present}
        return self._runs

    def _program(self, run: Run) -> Program:
        program = self._programs.get(run)
        if program is None:
            program = self._programs[run] = self._made(run)
        return program

    def _made(self, run: Run) -> Program:
        graphs = [
            named(seen, self._named, self._told)
            for process in run
            for seen in self._graphs[process].values()
        ]
        graphs.sort(key=lambda seen: -((seen.times.total_ms if seen.times else None) or 0.0))
        uses: dict[TuningKey, list[Use]] = {}
        for seen in graphs:
            times = self._tuning_ms(seen)
            for use in seen.graph.tunings:
                uses.setdefault(use.key, []).append(Use(seen, use, times.get(use.key)))
        heard = [seen.when or 0.0 for seen in graphs]
        heard += [self._sessions[process].started for process in run if process in self._sessions]
        return Program(
            program_name(sorted(run)[0], self._sessions, len(run)),
            run,
            tuple(graphs),
            total_ms(graphs),
            max(heard, default=0.0),
            {key: tuple(places) for key, places in uses.items()},
        )

    def _tuning_ms(self, seen: GraphSeen) -> dict[TuningKey, float]:
        """What kernels of each tuning take of a call, where a profiler saw this graph: the same
        part of it in each program, whoever ran it under a profiler."""
        key = seen.graph.key or ""
        profiled = self._profiled.get(key) if seen.session is not None else seen
        if profiled is None or not (profiled.times and profiled.times.ms and seen.times):
            return {}
        times = tuning_ms(replace(profiled, graph=seen.graph), self._told.get(key))
        part = (seen.times.ms or 0.0) / profiled.times.ms
        return {tuning: ms * part for tuning, ms in times.items()}


def keys_of(trial: Trial) -> set[TuningKey]:
    """The tunings of which it tried choices."""
    return {swap.key for arm in trial.arms for swap in arm.swaps}


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
