"""What a pin or an unpin would change, and the change itself in the content of `pins.json`.

Nothing here changes a cache file: the store does so afterwards, and takes the change back where it
cannot.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from backend.cache.variants import ChoiceVariants
from backend.counted import counted
from backend.errors import PinRefused, brief
from backend.model.problem import TuningKey, device_of
from backend.model.tuning import Pin
from backend.pins.file import HistoryEntry, PinFile, PinGroup, PinRecord, PinRequest, find, forget
from backend.pins.graphs.index import GraphEntry
from backend.pins.holders import PinHolders, devices_of
from backend.pins.numbers import is_held, is_time, learn
from backend.pins.state import GraphSweeper


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


def plan_of(
    file: PinFile, holders: PinHolders, sweeper: GraphSweeper, request: PinRequest
) -> PinPlan:
    """Return what a pin would change, by these pins and cache files. Raises PinRefused for a failed
    or unknown choice or tuning, and CacheUnreadable."""
    key, holder = request.key, holders.of(request.key.op)
    path = holders.locate(file, request)
    old = find(file.pins, holder.system_of(path), key)
    record = _new_record(file, holders, path, request)
    stored = holder.numbers(record) or {}
    record = holder.learned(record, stored)  # another process may have written since
    return PinPlan(
        key=key,
        hash=record.hash,
        system_hash=record.system_hash,
        path=path,
        numbers=holder.changes(record),
        precisions=tuple(p for p in stored if is_held(record, stored, p)),
        graphs=tuple(sweeper.stale(record, sweeper.live())),
        timings=record.timings,
        replaces=old.pin if old else None,
        waits=holder.waits(record, stored),
        devices=tuple(devices_of(holders.variants, stored)),
    )


def same_pin(one: Pin | None, other: Pin | None) -> bool:
    """Whether they are one decision, whatever was noted or had to be applied again since."""
    if one is None or other is None:
        return one is other
    return (one.hash, one.when, one.who) == (other.hash, other.when, other.who)


def difference(agreed: PinPlan, now: PinPlan) -> str:
    """Return in words what is no longer as a person `agreed` to it; nothing where all is."""
    if not same_pin(agreed.replaces, now.replaces):
        if now.replaces is None:
            return "its pin was taken back meanwhile"
        by = f" by {brief(now.replaces.who, 40)}" if now.replaces.who else ""
        return f"{brief(now.replaces.label, 60)} was pinned meanwhile{by}"
    if (agreed.path, agreed.waits) != (now.path, now.waits):
        return f"another cache file holds its times now, {brief(str(now.path), 200)}"
    if _times(agreed) != _times(now):
        return "it was tuned again meanwhile, with other times"
    if (agreed.numbers, agreed.precisions) != (now.numbers, now.precisions):
        numbers = counted(now.numbers, "number")
        return f"its cache file was written meanwhile: {numbers} would change"
    if {graph.relative for graph in agreed.graphs} != {graph.relative for graph in now.graphs}:
        graphs = counted(len(now.graphs), "compiled graph")
        return f"programs compiled meanwhile: {graphs} would be moved aside"
    return ""


def check_agreed(agreed: PinPlan, now: PinPlan) -> None:
    """Raise PinRefused where a person `agreed` to something else."""
    if why := difference(agreed, now):
        raise PinRefused(f"{why}; nothing was pinned, look at it again")


def _times(plan: PinPlan) -> set[tuple[str, str, str]]:
    """As text: a time that is no number is like itself."""
    return {(p, name, str(ms)) for p, times in plan.timings.items() for name, ms in times.items()}


def _new_record(file: PinFile, holders: PinHolders, path: Path, request: PinRequest) -> PinRecord:
    """Return the record of a new pin. A pin that it replaces lends it the measured times, and so
    does one whose numbers an old copy of the cache brought back after it was released. Its hash is
    that of another device where the kernel was tuned there alone. Raises PinRefused,
    CacheUnreadable."""
    key, hash, holder = request.key, request.hash, holders.of(request.key.op)
    now, system = time.time(), holder.system_of(path)
    lender = old = find(file.pins, system, key)
    released = find(file.released, system, key)
    if old is None and released and holder.came_back(released):
        lender = released
    record = PinRecord(
        op=key.op,
        inputs=key.inputs,
        precision=key.precision,
        hash=hash,
        label=hash,
        system_hash=system,
        folder=holder.folder_of(path),
        tokens=lender.tokens if lender else {},
        config=request.config,
        files=old.files if old else released.files if released and released.pending else {},
        row=old.row if old else released.row if released else None,
        device=device_of(key.inputs),
        when=now,
        applied=now,
        made=first.made if (first := old or released) else now,
        drifts=old.drifts if old and hash in old.hashes else 0,
        unknown=old.unknown if old else {},
        variants=_variants(
            holders.variants, hash, request.variants or _former_variants(hash, old, released)
        ),
    )
    holder.check_new(record)
    record = _as_tuned(holder.learned(record, holder.numbers(record) or {}))
    texts = record.tokens.get(key.precision, {})
    if record.hash in texts and not is_time(texts[record.hash]):
        raise PinRefused(f"{brief(record.hash, 80)} failed when it was tuned; pin one with a time")
    return record


def _former_variants(hash: str, *records: PinRecord | None) -> Mapping[str, str]:
    """What an earlier pin of the same kernel had: its modules may be gone since."""
    return next((r.variants for r in records if r is not None and hash in r.hashes), {})


def _variants(known: ChoiceVariants, hash: str, variants: Mapping[str, str]) -> dict[str, str]:
    """The `variants` of a choice that come from elsewhere. Where a module of the kernel is here
    they are computed from it instead, and dropped where they are not the same kernel."""
    names = (hash, *variants.values())
    base = next((name for name in names if known.device(name) is not None), None)
    if base is None:
        return dict(variants)
    computed = {index: known.on(base, int(index)) for index in variants}
    return computed if hash in (base, *computed.values()) else {}


def _as_tuned(record: PinRecord) -> PinRecord:
    """With the hash under which the kernel was tuned here, if it was not under the record's."""
    names = {name for texts in record.tokens.values() for name in texts}
    if record.hash in names:
        return record
    tuned = (name for name in record.variants.values() if name in names)
    return replace(record, hash=next(tuned, record.hash))


@dataclass(frozen=True, slots=True)
class Attribution:
    """Who changes pins, by which command, and what that undoes (when it was done, else 0)."""

    who: str
    group: PinGroup | None = None
    undoes: float = 0.0


@dataclass(frozen=True, slots=True)
class PinChange:
    """A change of the content of `pins.json`: `record` is `new`, or was released; `old` was in its
    place. Without `entry` a release that had begun before goes on."""

    record: PinRecord
    new: bool
    old: PinRecord | None
    entry: HistoryEntry | None

    def take_back(self, file: PinFile) -> None:
        """Undo the change in the content of the file."""
        if self.entry is None:
            return
        file.take_back(self.entry)
        if self.old is not None:
            forget(file.released, self.record)
            file.put(self.old)
        else:
            forget(file.pins, self.record)
            file.released.append(replace(self.record, pending=True, released=time.time()))


def pin_in_file(
    file: PinFile, holders: PinHolders, request: PinRequest, by: Attribution
) -> PinChange:
    """Add a pin to the content of `pins.json`. Raises PinRefused, CacheUnreadable."""
    path = holders.locate(file, request)
    old = find(file.pins, holders.of(request.key.op).system_of(path), request.key)
    record = _new_record(file, holders, path, request)
    label = request.label or request.hash
    record = replace(record, label=label, note=request.note, who=by.who)
    forget(file.released, record)
    file.put(record)
    what = "repin" if old else "pin"
    entry = file.note(what, record, record.who, record.when, request.note, by.undoes, by.group)
    return PinChange(record, True, old, entry)


def release_in_file(
    file: PinFile, holders: PinHolders, record: PinRecord, by: Attribution
) -> PinChange:
    """Release a pin in the content of `pins.json`. Raises CacheUnreadable."""
    if record.pending:
        return PinChange(record, False, None, None)
    now = time.time()
    old = learn(record, holders.of(record.op).numbers(record) or {})
    record = replace(old, pending=True, released=now)
    forget(file.pins, record)
    forget(file.released, record)
    file.released.append(record)
    entry = file.note("unpin", record, by.who, now, "", by.undoes, by.group)
    return PinChange(record, False, old, entry)
