"""Tuning on a fleet: what is asked becomes units; a run is begun, or gone on with."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from backend.counted import counted
from backend.disk.layout import Layout
from backend.model.choice import sort_choices
from backend.model.problem import Problem
from backend.model.tuning import Tuning
from backend.pins.file import default_who
from backend.processes.tree import identity
from backend.wire.jobs import Gpu
from rocm_tui.errors import RocmTuiError
from rocm_tui.fleet import lines
from rocm_tui.fleet.ahead import Ahead, is_of_cpu
from rocm_tui.fleet.driver import TICK, Driver, Options
from rocm_tui.fleet.leases import shortest
from rocm_tui.fleet.merger import Merger
from rocm_tui.fleet.messages import Compiled, Gone, Hello, ToAgent, ToDriver, Unit
from rocm_tui.fleet.opening import open_fleet
from rocm_tui.fleet.places import new_run
from rocm_tui.fleet.protocol import Fleet, Site
from rocm_tui.fleet.record import NoRun, Reader, Record, pick_run
from rocm_tui.fleet.splitting import heats_for
from rocm_tui.fleet.splitting import split as split_unit
from rocm_tui.fleet.standing import Standing
from rocm_tui.jobs.tune import TuneOptions, tune_job
from rocm_tui.session.model import Row

A_CHOICE = 0.5
"""Seconds that a choice takes, compiled and timed, where nothing tells."""
A_PROBLEM = 10.0
"""Seconds, where not even the number of choices is told."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A problem to tune, whether our kernels are offered, and what is known of it. `calls` are how
    often files ask for it, beside what a program's shares tell."""

    problem: Problem
    ours: bool
    title: str
    row: Row | None = None
    calls: float = 0.0


def units_of(
    asked: Iterable[Asked], options: TuneOptions, split: float | None = None
) -> list[Unit]:
    """One unit a problem, however many ranks and hosts tell of it; calls are added up. With `split`
    problems that are expected to take more than so many seconds are several units, where enough of
    their choices are known."""
    found: dict[tuple[str, str, int | None], Unit] = {}
    choices: dict[str, tuple[str, ...]] = {}
    for one in asked:
        problem = one.problem
        key = (problem.id, problem.told, problem.threads)
        unit = _unit(one, replace(options, templates=one.ours))
        choices[problem.id] = max(choices.get(problem.id, ()), _hashes(one.row), key=len)
        before = found.get(key)
        if before is not None:
            unit = replace(
                unit if unit.known else before,
                weight=max(unit.weight, before.weight),
                calls=unit.calls + before.calls,
            )
        found[key] = unit
    told = {(id, options) for id, options, threads in found if threads is not None}
    units = [
        unit
        for (id, options, threads), unit in found.items()
        if threads is not None or (id, options) not in told  # the same, from who knows less
    ]
    names = [choices[unit.id] for unit in units]
    units = _named(units)
    if split is not None:
        pairs = zip(units, names, strict=True)
        units = [part for unit, known in pairs for part in _parts(unit, known, split)]
    return [replace(unit, weight=_bounded(unit.weight, options.budget)) for unit in units]


def _parts(unit: Unit, choices: Sequence[str], seconds: float) -> list[Unit]:
    heats = heats_for(unit, choices, seconds)
    return split_unit(unit, choices, heats) if heats > 1 else [unit]


def _hashes(row: Row | None) -> tuple[str, ...]:
    """Of all choices that are known, the fastest first."""
    choices = () if row is None else sort_choices(list(row.tuning.choices))
    return tuple(dict.fromkeys(choice.hash for choice in choices if choice.hash))


def _unit(one: Asked, options: TuneOptions) -> Unit:
    row = one.row
    tuning = None if row is None else row.tuning
    return Unit(
        id=one.problem.id,
        title=one.title,
        job=tune_job(one.problem, options),
        known={} if tuning is None else _known(tuning),
        weight=seconds_of(tuning),
        calls=one.calls + (row.share.calls if row is not None and row.share is not None else 0),
    )


def _known(tuning: Tuning) -> dict[str, float]:
    timed = ((choice.hash, choice.ms) for choice in tuning.choices)
    return {hash: ms for hash, ms in timed if hash and ms is not None}


def seconds_of(tuning: Tuning | None) -> float:
    """What it took the last time; else by the number of choices."""
    if tuning is None:
        return A_PROBLEM
    told = [tuning.seconds.benchmark, tuning.seconds.precompile]
    choices = max(len(tuning.choices), tuning.num_choices or 0)
    return sum(part for part in told if part) or A_CHOICE * choices or A_PROBLEM


def _bounded(seconds: float, budget: float | None) -> float:
    return min(seconds, budget) if budget else seconds


def _named(units: Sequence[Unit]) -> list[Unit]:
    """Each with an id of its own: one key may be tuned with several options."""
    seen: dict[str, int] = {}
    named = []
    for unit in units:
        seen[unit.id] = seen.get(unit.id, 0) + 1
        more = f"-{seen[unit.id]}" if seen[unit.id] > 1 else ""
        named.append(replace(unit, id=unit.id + more))
    return named


@dataclass(frozen=True, slots=True)
class Wanted:
    """How a run is to be: its fleets, and what `Options` says; `canary` None is as usual, for more
    than one device."""

    fleet: tuple[str, ...]
    repeat: int = 1
    canary: bool | None = None
    device_class: str | None = None
    python: str | None = None
    command: tuple[str, ...] = ()


class Run:
    """One driver's part in a run. Use it in a `with` statement."""

    def __init__(self, layout: Layout, wanted: Wanted, name: str, record: Record) -> None:
        self.name = name
        self.standing = Standing()
        self.path = record.path
        self._layout = layout
        self._wanted = wanted
        self._record = record
        self._new = False

    @classmethod
    def begin(cls, layout: Layout, wanted: Wanted, units: Sequence[Unit]) -> Run:
        """Raises NoRun, RecordFull and StoreErrors."""
        name = new_run()
        run = cls(layout, wanted, name, Record(layout, name))
        run._new = True
        run._write(
            lines.Begun(
                run=name,
                command=wanted.command,
                who=default_who(),
                pid=os.getpid(),
                process=identity(os.getpid()),
                fleet=wanted.fleet,
                repeat=wanted.repeat,
                canary=shortest(units),
                units=tuple(units),
            )
        )
        return run

    @classmethod
    def resume(cls, layout: Layout, wanted: Wanted, name: str | None) -> Run:
        """What is not merged is gone on with; what failed or was cancelled is tried again. Without
        a fleet, on the run's own. Raises NoRun, RecordFull and StoreErrors."""
        name = pick_run(layout, name)
        record = Record(layout, name)
        run = cls(layout, wanted, name, record)
        run.standing.apply(Reader(record.path).news())
        begun = run.standing.begun
        if begun is None:
            record.close()
            raise NoRun(f"the record {record.path} has no beginning; begin a new run")
        run._wanted = replace(
            wanted, fleet=wanted.fleet or begun.fleet, repeat=max(wanted.repeat, begun.repeat)
        )
        fleet, who = run._wanted.fleet, default_who()
        run._write(lines.Resumed(who, os.getpid(), identity(os.getpid()), wanted.command, fleet))
        return run

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *error: object) -> None:
        self._record.close()

    @property
    def fleet(self) -> Sequence[str]:
        """The words for it."""
        return self._wanted.fleet

    @property
    def summary(self) -> str:
        """`12 problems, 3 of them done already`."""
        counts = self.standing.counts()
        ready = counts.merged + counts.done
        return counted(counts.units, "problem") + (
            f", {ready} of them tuned already" if ready else ""
        )

    def _opened(self) -> Fleet:
        """A new run that gets none leaves no record. Raises NoFleet, UsageError, NoTorchPython."""
        wanted = self._wanted
        try:
            return open_fleet(wanted.fleet, Site(self._layout.root, self.name, wanted.python))
        except RocmTuiError:
            if self._new:
                self._record.discard()
            raise

    def work(
        self,
        fleet: Fleet | None = None,
        tell: Callable[[str], None] = lambda text: None,
        look: Callable[[], None] = lambda: None,
        opened: Callable[[], None] = lambda: None,
    ) -> None:
        """Until all is settled or nobody is left; `opened` is called where there is a fleet for it.
        Raises NoFleet, RecordFull."""
        open_ = [u for u in self.standing.units.values() if u.state in ("waiting", "running")]
        if fleet is None and open_:
            fleet = self._opened()
        opened()
        there = fleet or _Nobody()
        many = len(there.agents) > 1
        canary = many if self._wanted.canary is None else self._wanted.canary
        options = Options(
            self._wanted.repeat,
            _canary([unit.unit for unit in open_]) if canary else None,
            self._wanted.device_class,
        )
        driver = Driver(
            there,
            self._record,
            self.standing,
            lambda chosen: Merger(self._layout, chosen),
            options,
            tell,
            look,
        )
        driver.run()

    def _write(self, line: lines.Line) -> None:
        self._record.add(line, sync=True)
        self.standing.apply([(time.time(), line)])


def compile_only(
    root: Path, wanted: Wanted, units: Sequence[Unit], gpu: Gpu, tell: Callable[[str], None]
) -> Ahead:
    """Compile what workers on such a GPU will want, into the cache dir `root`, on a fleet's agents;
    nothing is tuned, nothing recorded. Raises NoFleet, UsageError, NoTorchPython."""
    ahead = Ahead(units)
    fleet = open_fleet(wanted.fleet, Site(root, new_run(), wanted.python))
    try:
        while not ahead.over or (ahead.wanted and fleet.agents and not ahead.agents):
            for message in fleet.results(TICK):
                if isinstance(message, Hello):
                    ahead.help(message.agent, gpu=gpu)
                elif isinstance(message, Compiled):
                    for text in ahead.compiled(message):
                        tell(text)
                elif isinstance(message, Gone):
                    tell(f"{message.agent}: {message.reason}")
                    ahead.gone(message.agent)
            for step in ahead.steps():
                fleet.offer(step.agent, step.message)
    finally:
        fleet.stop()
    return ahead


def _canary(units: Sequence[Unit]) -> str | None:
    """A GPU's where there is one: a CPU's are left out then."""
    return shortest([unit for unit in units if not is_of_cpu(unit)] or units)


class _Nobody:
    """A fleet without agents, for a run that has nothing left to tune."""

    agents: Sequence[str] = ()

    def offer(self, agent: str, message: ToAgent) -> None:
        """There is nobody to hear it."""

    def results(self, timeout: float) -> Sequence[ToDriver]:
        return ()

    def stop(self) -> None:
        """There is nobody to stop."""
