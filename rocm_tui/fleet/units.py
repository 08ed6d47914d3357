"""The problems of `tune --fleet`: each once, what it may take, how often it is called."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from backend.cache.autotune import read_cache
from backend.errors import CacheUnreadable, InputsKeyInvalid
from backend.model.problem import Problem, TuningKey, parse_inputs_key
from backend.model.tuning import Tuning
from backend.wire.jobs import TuneJob
from rocm_tui.environment import CPU
from rocm_tui.jobs.tune import TuneOptions, tune_job
from rocm_tui.session.model import Row

CHOICE_SECONDS = 0.5
"""How long one choice takes, compiled and timed, where no tuning shows it."""
PROBLEM_SECONDS = 10.0
"""How long a problem takes whose number of choices is unknown."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A problem to tune, and whether our kernels are offered.

    `calls` is how often files request it, beside the calls of its row.
    """

    problem: Problem
    ours: bool
    title: str
    row: Row | None = None
    calls: float = 0.0


@dataclass(frozen=True, slots=True)
class Unit:
    """One problem with all its choices, to be tuned on one device in one worker.

    `id` is the same wherever the same problem is found. `cached_ms` are times by choice hash in
    the cache: they show in which mode of torch the problem was tuned. `weight` is how long
    it may take, in seconds; `calls` how often programs call it (0: not known).
    """

    id: str
    title: str
    job: TuneJob
    cached_ms: Mapping[str, float] = field(default_factory=dict)
    weight: float = 0.0
    calls: float = 0.0

    @property
    def on_cpu(self) -> bool:
        """Whether it is tuned on a CPU, whatever other devices there are."""
        if self.job.inputs is None:
            return self.job.device == CPU
        try:
            specs = parse_inputs_key(self.job.inputs).specs
        except InputsKeyInvalid:
            return False
        return bool(specs) and specs[0].device == CPU


def units_of(asked: Iterable[Asked], options: TuneOptions) -> list[Unit]:
    """Return one unit for each problem, however many ranks and hosts request it.

    Long and often called problems come first, in the order in which they start.
    """
    units: dict[tuple[str, str, int | None], Unit] = {}
    for each in asked:
        problem = each.problem
        key = (problem.id, problem.options_text, problem.threads)
        unit, before = _unit(each, options), units.get(key)
        if before is not None:
            unit = _joined(unit, before) if unit.cached_ms else _joined(before, unit)
        units[key] = unit
    for id, operands, threads in [key for key in units if key[2] is not None]:
        vague = units.pop((id, operands, None), None)  # the same, with fewer details
        if vague is not None:
            key = (id, operands, threads)
            units[key] = _joined(units[key], vague)
    return sorted(_with_own_ids(list(units.values())), key=_rank, reverse=True)


def _joined(unit: Unit, other: Unit) -> Unit:
    """Return the unit with the calls of the other too, and the longer of their times."""
    weight, calls = max(unit.weight, other.weight), unit.calls + other.calls
    return replace(unit, weight=weight, calls=calls)


def _rank(unit: Unit) -> float:
    return (unit.weight or 1.0) * max(1.0, unit.calls)


def _unit(asked: Asked, options: TuneOptions) -> Unit:
    row = asked.row
    tuning = None if row is None else row.tuning
    calls = row.share.calls if row is not None and row.share is not None else 0
    seconds = seconds_of(tuning)
    return Unit(
        id=asked.problem.id,
        title=asked.title,
        job=tune_job(asked.problem, replace(options, templates=asked.ours)),
        cached_ms={} if tuning is None else _times(tuning),
        weight=min(seconds, options.budget) if options.budget else seconds,
        calls=asked.calls + calls,
    )


def _times(tuning: Tuning) -> dict[str, float]:
    timed = ((choice.hash, choice.ms) for choice in tuning.choices)
    return {hash: ms for hash, ms in timed if hash and ms is not None}


def seconds_of(tuning: Tuning | None) -> float:
    """Return the seconds that the last tuning took; else a guess by the number of choices."""
    if tuning is None:
        return PROBLEM_SECONDS
    spent = [tuning.seconds.benchmark, tuning.seconds.precompile]
    choices = max(len(tuning.choices), tuning.num_choices or 0)
    return sum(part for part in spent if part) or CHOICE_SECONDS * choices or PROBLEM_SECONDS


def _with_own_ids(units: Sequence[Unit]) -> list[Unit]:
    """Give each an id of its own: one key may be tuned with several options."""
    seen: dict[str, int] = {}
    named = []
    for unit in units:
        seen[unit.id] = seen.get(unit.id, 0) + 1
        more = f"-{seen[unit.id]}" if seen[unit.id] > 1 else ""
        named.append(replace(unit, id=unit.id + more))
    return named


def in_cache(units: Iterable[Unit], path: Path, gpus: bool) -> Collection[str]:
    """Return the ids of the units with times in the cache file `path`; `gpus` tune those without a
    device."""
    try:
        entries = read_cache(path).entries
    except CacheUnreadable:
        return set()
    by_sizes = {_sizes(key) for key in entries}
    return {
        unit.id for unit in units if _key(unit) in entries or _asked_sizes(unit, gpus) in by_sizes
    }


def _key(unit: Unit) -> TuningKey | None:
    job = unit.job
    if job.inputs is None or job.precision is None:
        return None
    return TuningKey(job.op, job.inputs, job.precision)


def _sizes(key: TuningKey) -> tuple[object, ...]:
    try:
        specs = parse_inputs_key(key.inputs).specs
    except InputsKeyInvalid:
        return ()
    sizes, dtypes = tuple(spec.sizes for spec in specs), tuple(spec.dtype for spec in specs)
    on_cpu = bool(specs) and specs[0].device == CPU
    return key.op, on_cpu, sizes, tuple(spec.strides for spec in specs), dtypes, key.precision


def _asked_sizes(unit: Unit, gpus: bool) -> tuple[object, ...] | None:
    """The same of a problem whose key is not known; None where it is."""
    job = unit.job
    if job.inputs is not None or not job.strides:
        return None
    dtypes = job.dtypes * len(job.shapes) if len(job.dtypes) == 1 else job.dtypes
    on_cpu = unit.on_cpu or not gpus
    return job.op, on_cpu, job.shapes, job.strides, dtypes, job.precision or "highest"
