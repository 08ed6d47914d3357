"""The effect of a pin or an unpin, and the change in the content of `pins.json`.

This module changes no cache file: the store does so afterwards, and reverts the change if it
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
from backend.model.problem import TuningKey, device_of_inputs_key
from backend.model.tuning import Pin
from backend.pins.file import (
    HistoryEntry,
    PinFile,
    PinGroup,
    PinRecord,
    PinRequest,
    find_record,
    remove_record,
)
from backend.pins.graphs.index import GraphEntry
from backend.pins.holders import PinHolders, devices_of
from backend.pins.numbers import is_held, is_time, learn
from backend.pins.state import GraphSweeper


@dataclass(frozen=True, slots=True)
class PinPlan:
    """The effect of a pin. `numbers` of `path` are raised in these precisions; `graphs` are moved
    aside. `timings` are the measured times by precision and choice hash. `waits`: the cache file
    does not have the choice, so nothing changes until it is tuned. `devices` are the indices of
    devices that tuned it with their own choices."""

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
    """Return what a pin would change, given these pins and cache files. Raises PinRefused for a
    failed or unknown choice or tuning, and CacheUnreadable."""
    key, holder = request.key, holders.of(request.key.op)
    path = holders.locate(file, request)
    old = find_record(file.pins, holder.system_of(path), key)
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


def same_pin(first: Pin | None, second: Pin | None) -> bool:
    """Return whether both are one decision, even if noted or applied again since."""
    if first is None or second is None:
        return first is second
    return (first.hash, first.when, first.who) == (second.hash, second.when, second.who)


def plan_difference(agreed: PinPlan, now: PinPlan) -> str:
    """Return in words how the plan differs from the one `agreed` to; empty if it does not."""
    if not same_pin(agreed.replaces, now.replaces):
        if now.replaces is None:
            return "it was unpinned meanwhile"
        by = f" by {brief(now.replaces.who, 40)}" if now.replaces.who else ""
        return f"{brief(now.replaces.label, 60)} was pinned meanwhile{by}"
    if agreed.path != now.path:
        return f"another cache file holds its times now, {brief(str(now.path), 200)}"
    if agreed.waits != now.waits:
        return "its choice was tuned meanwhile" if agreed.waits else "its choice is no longer tuned"
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
    """Raise PinRefused if a person `agreed` to something else."""
    if why := plan_difference(agreed, now):
        raise PinRefused(f"{why}; nothing was pinned, look at it again")


def _times(plan: PinPlan) -> set[tuple[str, str, str]]:
    """Return the times as text, so that NaN equals itself."""
    return {(p, name, str(ms)) for p, times in plan.timings.items() for name, ms in times.items()}


def _new_record(file: PinFile, holders: PinHolders, path: Path, request: PinRequest) -> PinRecord:
    """Return the record of a new pin. It takes the measured times from a pin that it replaces, or
    from a released one whose numbers an old copy of the cache brought back. Its hash is another
    device's if the kernel was tuned only there. Raises PinRefused, CacheUnreadable."""
    key, hash, holder = request.key, request.hash, holders.of(request.key.op)
    now, system = time.time(), holder.system_of(path)
    lender = old = find_record(file.pins, system, key)
    released = find_record(file.released, system, key)
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
        device=device_of_inputs_key(key.inputs),
        when=now,
        applied=now,
        made=first.made if (first := old or released) else now,
        drifts=old.drifts if old and hash in old.hashes else 0,
        raised=lender is None or lender.raised,
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
    """Return the variants of an earlier pin of the same kernel, whose modules may be gone."""
    return next((r.variants for r in records if r is not None and hash in r.hashes), {})


def _variants(local: ChoiceVariants, hash: str, variants: Mapping[str, str]) -> dict[str, str]:
    """Return the valid ones of a choice's `variants` from elsewhere. If a module of the kernel is
    here, they are computed from it, and dropped if they are not the same kernel."""
    names = (hash, *variants.values())
    base = next((name for name in names if local.device(name) is not None), None)
    if base is None:
        return dict(variants)
    computed = {index: local.on(base, int(index)) for index in variants}
    return computed if hash in (base, *computed.values()) else {}


def _as_tuned(record: PinRecord) -> PinRecord:
    """Return the record with the hash under which the kernel was tuned here."""
    names = {name for texts in record.tokens.values() for name in texts}
    if record.hash in names:
        return record
    tuned = (name for name in record.variants.values() if name in names)
    return replace(record, hash=next(tuned, record.hash))


@dataclass(frozen=True, slots=True)
class Attribution:
    """Who changes pins, by which command, and when the action was that they undo, else 0."""

    who: str
    group: PinGroup | None = None
    undoes: float = 0.0


@dataclass(frozen=True, slots=True)
class PinChange:
    """A change of `pins.json`: `record` is new, or was released; `old` was in its place. Without
    `entry` an earlier release continues."""

    record: PinRecord
    new: bool
    old: PinRecord | None
    entry: HistoryEntry | None

    def revert(self, file: PinFile) -> None:
        """Undo the change in the content of the file. The files that it held until now keep their
        original text."""
        if self.entry is None:
            return
        file.remove_entry(self.entry)
        if not self.new:
            remove_record(file.released, self.record)
        held = find_record(file.pins, self.record.system_hash, self.record.pin.key) or self.record
        if self.old is None:
            remove_record(file.pins, held)
            file.released.append(replace(held, pending=True, released=time.time()))
        else:
            file.put(replace(self.old, files=held.files, row=held.row))


def pin_in_file(
    file: PinFile, holders: PinHolders, request: PinRequest, by: Attribution
) -> PinChange:
    """Add a pin to the content of `pins.json`. Raises PinRefused, CacheUnreadable."""
    path = holders.locate(file, request)
    old = find_record(file.pins, holders.of(request.key.op).system_of(path), request.key)
    record = _new_record(file, holders, path, request)
    label = request.label or request.hash
    record = replace(record, label=label, note=request.note, who=by.who)
    remove_record(file.released, record)
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
    remove_record(file.pins, record)
    remove_record(file.released, record)
    file.released.append(record)
    entry = file.note("unpin", record, by.who, now, "", by.undoes, by.group)
    return PinChange(record, False, old, entry)
