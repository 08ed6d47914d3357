"""What a pin or an unpin would change, and the change itself in the content of `pins.json`.

Nothing here changes a cache file: the store does so afterwards, and takes the change back where it
cannot.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from backend.cache.autotune import is_raised
from backend.counted import counted
from backend.errors import PinRefused, brief
from backend.model.inductor_kernel import TRITON, is_inductors
from backend.model.pin import Pin
from backend.model.problem import TuningKey, device_of
from backend.pins.best_configs import check_config
from backend.pins.file import Group, HistoryEntry, PinFile, Record, find, forget
from backend.pins.graphs.index import GraphEntry
from backend.pins.held import HeldCache, table_system
from backend.pins.numbers import came_back, holding, is_held, is_time, learn
from backend.pins.state import GraphSweeper
from backend.tables.model import is_table_op


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
    old = find(file.pins, table_system(path, key.op), key)
    record = record_of(cache, path, want, file)
    stored = cache.stored(record) or {}
    record = cache.learned(record, stored)  # another process may have written since
    raised = sum(is_raised(float(text)) for text in holding(record, stored).values())
    ours = is_inductors(key.op) or is_table_op(key.op)
    if is_table_op(key.op):
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


def record_of(cache: HeldCache, path: Path, want: Want, file: PinFile) -> Record:
    """The record of a new pin; one that it replaces lends it the measured times, and so does
    one whose numbers an old copy of the cache brought back after it was taken back. Its hash is
    that of another device where the kernel was tuned there alone. Raises PinRefused,
    CacheUnreadable."""
    key, hash = want.key, want.hash
    now, system = time.time(), table_system(path, key.op)
    lender = old = find(file.pins, system, key)
    released = find(file.released, system, key)
    if old is None and released and came_back(released, cache.stored(released) or {}):
        lender = released
    record = Record(
        op=key.op,
        inputs=key.inputs,
        precision=key.precision,
        hash=hash,
        label=hash,
        system_hash=system,
        folder=_folder(path, key.op),
        tokens=lender.tokens if lender else {},
        config=want.config,
        files=old.files if old else released.files if released and released.pending else {},
        row=old.row if old else released.row if released else None,
        device=device_of(key.inputs),
        when=now,
        applied=now,
        made=first.made if (first := old or released) else now,
        drifts=old.drifts if old and hash in old.hashes else 0,
        unknown=old.unknown if old else {},
        variants=_variants(cache, hash, want.variants or _former_variants(hash, old, released)),
    )
    if is_inductors(key.op):
        check_config(record)
    record = _as_tuned(cache.learned(record, cache.stored(record) or {}))
    texts = record.tokens.get(key.precision, {})
    if record.hash in texts and not is_time(texts[record.hash]):
        raise PinRefused(f"{brief(record.hash, 80)} failed when it was tuned; pin one with a time")
    return record


def _former_variants(hash: str, *records: Record | None) -> Mapping[str, str]:
    """What an earlier pin of the same kernel had: its modules may be gone since."""
    return next((r.variants for r in records if r is not None and hash in r.hashes), {})


def _variants(cache: HeldCache, hash: str, variants: Mapping[str, str]) -> dict[str, str]:
    """The `variants` of a choice that come from elsewhere. Where a module of the kernel is here
    they are computed from it instead, and dropped where they are not the same kernel."""
    names = (hash, *variants.values())
    base = next((name for name in names if cache.variants.device(name) is not None), None)
    if base is None:
        return dict(variants)
    computed = {index: cache.variants.on(base, int(index)) for index in variants}
    return computed if hash in (base, *computed.values()) else {}


def _as_tuned(record: Record) -> Record:
    """With the hash under which the kernel was tuned here, if it was not under the record's."""
    names = {name for texts in record.tokens.values() for name in texts}
    if record.hash in names:
        return record
    tuned = (name for name in record.variants.values() if name in names)
    return replace(record, hash=next(tuned, record.hash))


def _folder(path: Path, op: str) -> str:
    """Where it is found again, of what may lie outside of the cache dir."""
    if is_table_op(op):
        return str(path)
    return str(path.parent.parent) if op == TRITON else ""


@dataclass(frozen=True, slots=True)
class Want:
    """What `PinStore.pin` is asked for. `variants` are the hashes of the same kernel by device
    index, as another host has them."""

    system_hash: str | None
    key: TuningKey
    hash: str
    label: str = ""
    note: str = ""
    config: dict[str, str] = field(default_factory=dict)
    wait: bool = False
    table: Path | None = None
    variants: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Making:
    """By whom, by which command, and what is undone by it (when that was done, else 0)."""

    who: str
    group: Group | None = None
    undoes: float = 0.0


@dataclass(frozen=True, slots=True)
class Change:
    """What was done to the file of pins: `record` is `new`, or was released; `old` is what stood
    in its place. Without `entry` a release that had begun before goes on."""

    record: Record
    new: bool
    old: Record | None
    entry: HistoryEntry | None

    def take_back(self, file: PinFile) -> None:
        """What was wanted before is wanted again."""
        if self.entry is None:
            return
        file.take_back(self.entry)
        if self.old is not None:
            forget(file.released, self.record)
            file.put(self.old)
        else:
            forget(file.pins, self.record)
            file.released.append(replace(self.record, pending=True, released=time.time()))


def pinned(file: PinFile, cache: HeldCache, want: Want, made: Making) -> Change:
    """Pin it in the file of pins. Raises PinRefused, CacheUnreadable."""
    path = cache.locate(want.system_hash, want.key, want.hash, want.wait, want.table)
    old = find(file.pins, table_system(path, want.key.op), want.key)
    record = record_of(cache, path, want, file)
    if is_table_op(want.key.op):
        cache.tables.changes(record)  # it may refuse
    record = replace(record, label=want.label or want.hash, note=want.note, who=made.who)
    forget(file.released, record)
    file.put(record)
    what = "repin" if old else "pin"
    entry = file.note(what, record, record.who, record.when, want.note, made.undoes, made.group)
    return Change(record, True, old, entry)


def released(file: PinFile, cache: HeldCache, record: Record, made: Making) -> Change:
    """Release it in the file of pins. Raises CacheUnreadable."""
    if record.pending:
        return Change(record, False, None, None)
    now = time.time()
    old = learn(record, cache.stored(record) or {})
    record = replace(old, pending=True, released=now)
    forget(file.pins, record)
    forget(file.released, record)
    file.released.append(record)
    entry = file.note("unpin", record, made.who, now, "", made.undoes, made.group)
    return Change(record, False, old, entry)
