"""Pins: recorded in `pins.json`, held by the autotune cache, never contradicted by old graphs.

A transaction records first what is wanted, then makes the cache file agree, then the compiled
graphs. Each step can be repeated, so a process that was killed between any two of them leaves
what `reconcile` (or the next `pin` or `unpin`) finishes.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from backend.cache.autotune import INFINITY, is_raised
from backend.disk import exchange, safe
from backend.disk.layout import Layout
from backend.disk.safe import exists
from backend.errors import CacheUnreadable, PinRefused, StoreError, brief
from backend.model.kernel import TRITON
from backend.model.pin import Pin
from backend.model.problem import TuningKey, device_of
from backend.pins.file import (
    MAX_PIN_BYTES,
    HistoryEntry,
    PinFile,
    Record,
    find,
    forget,
    put_back,
    read_pin_file,
)
from backend.pins.graphs import index as graphs
from backend.pins.graphs.index import GraphEntry
from backend.pins.held import (
    HeldCache,
    came_back,
    default_who,
    drifted,
    holding,
    is_time,
    learn,
    releasing,
)
from backend.pins.kernels import system_of
from backend.pins.state import (
    GRAPHS_APPEARED,
    GraphSweeper,
    PinPlan,
    PinReport,
    PinStatus,
    state_of,
)


class PinStore:
    """The pins of one cache dir. Methods raise StoreErrors; reading needs no lock."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._cache = HeldCache(layout)
        self._graphs = GraphSweeper(layout)
        self._settled: tuple[object, list[PinStatus]] | None = None

    def pins(self) -> tuple[Pin, ...]:
        """The pins, oldest first."""
        return tuple(record.pin for record in read_pin_file(self.layout.pins).pins)

    def history(self) -> tuple[HistoryEntry, ...]:
        """What happened to pins, oldest first."""
        return tuple(read_pin_file(self.layout.pins).history)

    def measured(self, key: TuningKey, system_hash: str | None = None) -> dict[str, float] | None:
        """The measured milliseconds of a pinned tuning by choice hash, never the number that
        holds the pin; `inf` is a choice that failed. None if it is not pinned."""
        for record in read_pin_file(self.layout.pins).pins:
            same = (record.op, record.inputs) == (key.op, key.inputs)
            if same and system_hash in (None, record.system_hash):
                with contextlib.suppress(CacheUnreadable):
                    record = learn(record, self._cache.stored(record) or {})
                return record.timings.get(key.precision, {})
        return None

    def plan(
        self,
        system_hash: str | None,
        key: TuningKey,
        hash: str,
        config: Mapping[str, str] | None = None,
        wait: bool = False,
    ) -> PinPlan:
        """What `pin` would change. Raises PinRefused for a failed or unknown choice or tuning.

        Without `system_hash` it is the cache file written last of those that have the choice.
        With it, and `wait`, a choice that is not there yet is no reason to refuse.
        """
        path = self._cache.locate(system_hash, key, hash, wait)
        file = read_pin_file(self.layout.pins)
        old = find(file.pins, system_of(path), key)
        record = self._record(path, key, hash, file, config=dict(config or {}))
        stored = self._cache.stored(record) or {}
        changes = holding(record, stored)
        return PinPlan(
            key=key,
            hash=hash,
            system_hash=record.system_hash,
            path=path,
            numbers=sum(is_raised(float(text)) for text in changes.values()),
            precisions=tuple(p for p in stored if is_time(record.tokens[p].get(hash, INFINITY))),
            graphs=tuple(self._graphs.stale(record, self._graphs.live())),
            timings=record.timings,
            replaces=old.pin if old else None,
            waits=not any(hash in numbers for numbers in stored.values()),
        )

    def pin(
        self,
        system_hash: str | None,
        key: TuningKey,
        hash: str,
        label: str = "",
        note: str = "",
        who: str | None = None,
        config: Mapping[str, str] | None = None,
        wait: bool = False,
        undoes: float = 0.0,
    ) -> PinReport:
        """Let `hash` be the choice of (op, inputs) in every precision, for every later reader.

        `config` (`BLOCK_M`, ...) tells Triton templates apart in compiled graphs, where known.
        `wait` is as in `plan`: such a pin counts once the choice was tuned. `undoes`: see `undo`.
        Raises StoreErrors; then nothing was changed, or `reconcile` finishes what was recorded.
        """
        path = self._cache.locate(system_hash, key, hash, wait)
        self._cache.check(path)
        graphs.check_writable(self.layout)
        system = system_of(path)
        with self._transaction() as file:
            old = find(file.pins, system, key)
            record = self._record(path, key, hash, file, dict(config or {}))
            record = replace(record, label=label or hash, note=note, who=who or default_who())
            forget(file.released, record)
            file.put(record)
            what = "repin" if old else "pin"
            entry = file.note(what, record, record.who, record.when, note, undoes)
            file.save(MAX_PIN_BYTES)
            try:
                numbers = self._cache.agree(file, system, count_drifts=False)
            except StoreError:
                file.take_back(entry)
                self._give_up(file, record, old)
                raise
            record = find(file.pins, system, key) or record
            moved, restored = self._graphs.sweep(record)
            status = self._status(record)
            return PinReport(
                record.pin, path, numbers.get(record.identity, 0), moved, restored, status
            )

    def unpin(
        self,
        key: TuningKey,
        system_hash: str | None = None,
        who: str | None = None,
        undoes: float = 0.0,
    ) -> PinReport:
        """Take a pin back: its numbers and graphs. Raises PinRefused if there is none."""
        with self._transaction() as file:
            records = [*file.pins, *(record for record in file.released if record.pending)]
            chosen = [
                record
                for record in records
                if (record.op, record.inputs) == (key.op, key.inputs)
                and system_hash in (None, record.system_hash)
            ]
            if not chosen:
                raise PinRefused(
                    f"{brief(key.op, 40)} {brief(key.inputs, 80)} is not pinned; see the pins"
                )
            who = who or default_who()
            reports = [self._release(file, record, who, undoes) for record in chosen]
            return reports[0]

    def unpin_all(self, who: str | None = None) -> list[PinReport]:
        """Take every pin back."""
        with self._transaction() as file:
            return [self._release(file, r, who or default_who()) for r in list(file.pins)]

    def annotate(self, key: TuningKey, system_hash: str, note: str, who: str | None = None) -> Pin:
        """Give a pin another note, and no more. Raises PinRefused if there is none."""
        with self._transaction() as file:
            record = find(file.pins, system_hash, key)
            if record is None:
                raise PinRefused(f"{brief(key.op, 40)} {brief(key.inputs, 80)} is not pinned")
            if record.note != note:
                record = replace(record, note=note)
                file.put(record)
                file.note("note", record, who or default_who(), time.time(), note)
                file.save(MAX_PIN_BYTES)
            return record.pin

    def status(self) -> list[PinStatus]:
        """Each pin with its state. Reads only."""
        file = read_pin_file(self.layout.pins)
        live = self._graphs.live() if file.pins else []
        return [self._status(record, live) for record in file.pins]

    def reconcile(self, thorough: bool = False) -> list[PinStatus]:
        """Make the cache agree with the pins again, and say how each is doing.

        Nothing is read where nothing changed since the last call, nor without a pins file unless
        it shall be `thorough`: numbers that a lost one had raised are then found and put back.
        What cannot be repaired is the detail of its pin; only `pins.json` itself or its lock raise.
        """
        if not exists(self.layout.pins) and not thorough:
            return []
        fingerprint = self._fingerprint()
        if self._settled is not None and self._settled[0] == fingerprint:
            return self._settled[1]
        before = read_pin_file(self.layout.pins)
        if self._needs_work(before):
            with self._transaction() as file:
                statuses = self._repair(file)
        else:
            statuses = self.status()
        # Taken before the files were read: what changed since then is seen by the next call.
        settled = all(status.state != "drifted" for status in statuses)
        self._settled = (fingerprint, statuses) if settled else None
        return statuses

    def migrate(self) -> None:
        """Hold pins of an older version as pins are held now; see `file.Record`."""
        if not all(record.raised for record in read_pin_file(self.layout.pins).pins):
            self.reconcile()

    def _repair(self, file: PinFile) -> list[PinStatus]:
        failed: dict[str, str] = {}
        repaired: set[tuple[str, str, str]] = set()
        known = {r.system_hash for r in (*file.pins, *self._cache.watched(file))}
        for system in sorted(known | self._cache.astray(file) | self._cache.unfinished()):
            try:
                repaired |= {
                    i for i, n in self._cache.agree(file, system, count_drifts=True).items() if n
                }
                for record in [r for r in self._cache.watched(file) if r.system_hash == system]:
                    if record.pending:
                        self._graphs.sweep(record)
                        put_back(file.released, replace(record, pending=False))
                        file.save()
            except StoreError as error:
                failed[system] = str(error)
        statuses = []
        for record in list(file.pins):
            moved = late = 0
            if record.system_hash not in failed:
                try:
                    late = self._graphs.late(record)
                    moved, _ = self._graphs.sweep(record)
                    if moved and late and record.identity not in repaired:
                        record = drifted(file, record)
                        file.save()
                except StoreError as error:
                    failed[record.system_hash] = str(error)
            status = self._status(record)
            why = failed.get(record.system_hash)
            if why:
                status = PinStatus(status.pin, "drifted", why)
            elif moved and late:
                status = replace(status, detail=f"applied again just now: {GRAPHS_APPEARED}")
            elif status.state == "active" and (moved or record.identity in repaired):
                status = replace(status, detail="applied again just now")
            statuses.append(status)
        return statuses

    def _needs_work(self, file: PinFile) -> bool:
        if any(record.pending for record in file.released):
            return True
        if os.path.lexists(safe.temporary_path(self.layout.pins)) or self._cache.unfinished():
            return True
        if self._cache.astray(file):
            return True
        for record in self._cache.watched(file):
            with contextlib.suppress(CacheUnreadable):
                if came_back(record, self._cache.stored(record) or {}):
                    return True
        live = self._graphs.live()
        for record in file.pins:
            with contextlib.suppress(CacheUnreadable):
                stored = self._cache.stored(record) or {}
                learned = learn(record, stored)
                if learned is not record or holding(learned, stored):
                    return True
            if self._graphs.stale(record, live):
                return True
        return False

    def _give_up(self, file: PinFile, record: Record, old: Record | None) -> None:
        """The cache file could not be changed: what was wanted before is wanted again."""
        forget(file.pins, record)
        if old is not None:
            file.put(old)
        else:
            file.released.append(replace(record, pending=True, released=time.time()))
        with contextlib.suppress(StoreError):
            file.save()

    def _release(self, file: PinFile, record: Record, who: str, undoes: float = 0.0) -> PinReport:
        path = self._cache.path(record)
        if path.exists():
            self._cache.check(path)
        graphs.check_writable(self.layout)
        now = time.time()
        entry = None
        if not record.pending:
            record = learn(record, self._cache.stored(record) or {})
            record = replace(record, pending=True, released=now)
            forget(file.pins, record)
            forget(file.released, record)
            file.released.append(record)
            entry = file.note("unpin", record, who, now, undoes=undoes)
            file.save()
        try:
            numbers = self._cache.agree(file, record.system_hash, count_drifts=False)
        except StoreError:
            if entry is None:  # still half done, as it was
                raise
            forget(file.released, record)
            file.put(replace(record, pending=False, released=0.0))
            file.take_back(entry)
            with contextlib.suppress(StoreError):
                file.save()
            raise
        moved, restored = self._graphs.sweep(record)
        unfinished = bool(releasing(record, self._cache.stored(record) or {}))
        put_back(file.released, replace(record, pending=unfinished))
        file.save()
        for other in file.pins:  # what came back may be stale for another pin
            self._graphs.sweep(other)
        return PinReport(record.pin, path, numbers.get(record.identity, 0), moved, restored)

    def _status(self, record: Record, live: list[GraphEntry] | None = None) -> PinStatus:
        try:
            stored = self._cache.stored(record)
        except CacheUnreadable as error:
            return PinStatus(record.pin, "drifted", str(error))
        judged = self._graphs.judged(record, self._graphs.live() if live is None else live)
        return state_of(record, stored, judged)

    def _record(
        self, path: Path, key: TuningKey, hash: str, file: PinFile, config: dict[str, str]
    ) -> Record:
        """The record of a new pin; one that it replaces lends it the measured times, and so does
        one whose numbers an old copy of the cache brought back after it was taken back."""
        now, system = time.time(), system_of(path)
        lender = old = find(file.pins, system, key)
        released = find(file.released, system, key)
        if old is None and released and came_back(released, self._cache.stored(released) or {}):
            lender = released
        record = Record(
            op=key.op,
            inputs=key.inputs,
            precision=key.precision,
            hash=hash,
            label=hash,
            system_hash=system,
            folder=str(path.parent.parent) if key.op == TRITON else "",
            tokens=lender.tokens if lender else {},
            config=config,
            device=device_of(key.inputs),
            when=now,
            applied=now,
            made=first.made if (first := old or released) else now,
            drifts=old.drifts if old and old.hash == hash else 0,
            unknown=old.unknown if old else {},
        )
        record = learn(record, self._cache.stored(record) or {})
        texts = record.tokens.get(key.precision, {})
        if hash in texts and not is_time(texts[hash]):
            raise PinRefused(f"{brief(hash, 80)} failed when it was tuned; pin one with a time")
        return record

    def _fingerprint(self) -> object:
        """Changes when anything that a pin depends on changes."""
        return (
            exchange.signature_of(self.layout.pins),
            self._cache.signatures(),
            self._cache.unfinished(),
            os.path.lexists(safe.temporary_path(self.layout.pins)),
            [(entry.relative, entry.mtime, entry.size) for entry in self._graphs.live()],
        )

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[PinFile]:
        safe.check_file(self.layout.root, self.layout.pins)
        with safe.locked(self.layout.root, self.layout.pins):
            yield read_pin_file(self.layout.pins)
        self._settled = None
