"""What a pin would change, as a person is told before it is made; what of that is so no more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from backend.cache.autotune import is_raised
from backend.counted import counted
from backend.errors import PinRefused, brief
from backend.model.inductor_kernel import is_inductors
from backend.model.pin import Pin
from backend.model.problem import TuningKey
from backend.pins.file import PinFile, find
from backend.pins.graphs.index import GraphEntry
from backend.pins.held import HeldCache
from backend.pins.kernels import system_of
from backend.pins.making import Want, record_of
from backend.pins.numbers import holding, is_held
from backend.pins.state import GraphSweeper
from backend.tables.keys import is_table


@dataclass(frozen=True, slots=True)
class PinPlan:
    """What a pin would change. `numbers` of `path` are raised out of reach, in these precisions;
    `graphs` are moved aside. `timings` are the measured times by precision and choice hash.
    `waits`: the cache file does not have the choice, so nothing changes until it is tuned.
    `devices` are the indices of those that tuned it with choices of their own."""

    key: TuningKey
    hash: str
    system_hash: str
    path: Path
    numbers: int
    precisions: tuple[str, ...]
    graphs: tuple[GraphEntry, ...]
    timings: Mapping[str, Mapping[str, float]]
    replaces: Pin | None = None
    waits: bool = False
    devices: tuple[int, ...] = ()


def plan_of(file: PinFile, cache: HeldCache, sweeper: GraphSweeper, want: Want) -> PinPlan:
    """The plan for what is wanted, by these pins and cache files. Raises PinRefused for a failed
    or unknown choice or tuning, and CacheUnreadable."""
    key = want.key
    path = cache.locate(want.system_hash, key, want.hash, want.wait, want.table)
    old = find(file.pins, system_of(path, key.op), key)
    record = record_of(cache, path, want, file)
    stored = cache.stored(record) or {}
    record = cache.learned(record, stored)  # another process may have written since
    raised = sum(is_raised(float(text)) for text in holding(record, stored).values())
    ours = is_inductors(key.op) or is_table(key.op)
    if is_table(key.op):
        raised = cache.tables.changes(record)
    return PinPlan(
        key=key,
        hash=record.hash,
        system_hash=record.system_hash,
        path=path,
        numbers=len(cache.configs.differing(record)) if is_inductors(key.op) else raised,
        precisions=tuple(p for p in stored if is_held(record, stored, p)),
        graphs=tuple(sweeper.stale(record, sweeper.live())),
        timings=record.timings,
        replaces=old.pin if old else None,
        waits=not (ours or any(record.hashes & numbers.keys() for numbers in stored.values())),
        devices=tuple(cache.devices_of(stored)),
    )


def same_pin(one: Pin | None, other: Pin | None) -> bool:
    """Whether they are one decision, whatever was noted or had to be applied again since."""
    if one is None or other is None:
        return one is other
    return (one.hash, one.when, one.who) == (other.hash, other.when, other.who)


def difference(told: PinPlan, now: PinPlan) -> str:
    """What became other than a person was `told`, in words; nothing where all is as it was."""
    if not same_pin(told.replaces, now.replaces):
        if now.replaces is None:
            return "its pin was taken back meanwhile"
        by = f" by {brief(now.replaces.who, 40)}" if now.replaces.who else ""
        return f"{brief(now.replaces.label, 60)} was pinned meanwhile{by}"
    if (told.path, told.waits) != (now.path, now.waits):
        return f"another cache file holds its times now, {brief(str(now.path), 200)}"
    if _times(told) != _times(now):
        return "it was tuned again meanwhile, with other times"
    if (told.numbers, told.precisions) != (now.numbers, now.precisions):
        numbers = counted(now.numbers, "number")
        return f"its cache file was written meanwhile: {numbers} would change"
    if {graph.relative for graph in told.graphs} != {graph.relative for graph in now.graphs}:
        graphs = counted(len(now.graphs), "compiled graph")
        return f"programs compiled meanwhile: {graphs} would be moved aside"
    return ""


def check_agreed(told: PinPlan, now: PinPlan) -> None:
    """Raise PinRefused where a person who was `told` that agreed to something else."""
    if why := difference(told, now):
        raise PinRefused(f"{why}; nothing was pinned, look at it again")


def _times(plan: PinPlan) -> set[tuple[str, str, str]]:
    """As text: a time that is no number is like itself."""
    return {(p, name, str(ms)) for p, times in plan.timings.items() for name, ms in times.items()}
