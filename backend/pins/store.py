"""Pins: recorded in `pins.json`, held by the autotune cache, never contradicted by old graphs.

A transaction records first what is wanted, then makes the cache file agree, then the compiled
graphs. Each step can be repeated, so a process that was killed between any two of them leaves
what `reconcile` (or the next `pin` or `unpin`) finishes.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from backend.cache.journal import Tuned
from backend.disk import exchange, safe
from backend.disk.layout import Layout
from backend.disk.safe import exists
from backend.errors import CacheUnreadable, PinRefused, StoreError, brief
from backend.model.inductor_kernel import is_inductors
from backend.model.pin import Pin, PinState
from backend.model.problem import TuningKey
from backend.pins.file import (
    MAX_BYTES,
    MAX_PIN_BYTES,
    Group,
    HistoryEntry,
    PinFile,
    Record,
    default_who,
    drifted,
    find,
    put_back,
    read_pin_file,
)
from backend.pins.graphs import index as graphs
from backend.pins.graphs.index import GraphEntry
from backend.pins.held import HeldCache
from backend.pins.numbers import came_back, holding, learn, releasing
from backend.pins.plan import (
    Change,
    Making,
    PinPlan,
    Want,
    check_agreed,
    pinned,
    plan_of,
    released,
    same_pin,
)
from backend.pins.state import (
    GRAPHS_APPEARED,
    GraphSweeper,
    PinReport,
    PinStatus,
    state_of,
    state_of_kernel,
)
from backend.tables.model import is_table_op

if TYPE_CHECKING:
    from backend.tables.model import Table


class PinStore:
    """The pins of one cache dir. Methods raise StoreErrors; reading needs no lock."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._cache = HeldCache(layout)
        self._graphs = GraphSweeper(layout, self._cache.variants)
        self._settled: tuple[object, list[PinStatus]] | None = None

    def remember(self, table: Table) -> None:
        """A tuned table as it was just read, which is compared before it is parsed again."""
        self._cache.tables.remember(table)

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
        table: Path | None = None,
        variants: Mapping[str, str] | None = None,
    ) -> PinPlan:
        """What `pin` would change. Raises PinRefused for a failed or unknown choice or tuning.

        Without `system_hash` it is the cache file written last of those that have the choice.
        With it, and `wait`, a choice that is not there yet is no reason to refuse. `table` is the
        file of an entry of a tuned table, whose values `config` has. `variants` are the hashes of
        the same kernel by device index, as another host has them.
        """
        want = Want(
            system_hash,
            key,
            hash,
            config=dict(config or {}),
            wait=wait,
            table=table,
            variants=variants or {},
        )
        return plan_of(read_pin_file(self.layout.pins), self._cache, self._graphs, want)

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
        table: Path | None = None,
        group: Group | None = None,
        agreed: PinPlan | None = None,
        variants: Mapping[str, str] | None = None,
    ) -> PinReport:
        """Let `hash` be the choice of (op, inputs) in every precision, for every later reader.

        `config` (`BLOCK_M`, ...) tells Triton templates apart in compiled graphs, where known.
        `wait` is as in `plan`: such a pin counts once the choice was tuned; `table` and `variants`
        too. `undoes`:
        see `undo`; `group`: the command that pins this among others. `agreed` is what a person was
        told that it would change: PinRefused where that is so no more.
        Raises StoreErrors; then nothing was changed, or `reconcile` finishes what was recorded.
        """
        want = Want(
            system_hash, key, hash, label, note, dict(config or {}), wait, table, variants or {}
        )
        made = Making(who or default_who(), group, undoes)

        def make(file: PinFile, cache: HeldCache) -> list[Change]:
            if agreed is not None:
                check_agreed(agreed, plan_of(file, cache, self._graphs, want))
            return [pinned(file, cache, want, made)]

        return self.change(make)[0]

    def unpin(
        self,
        key: TuningKey,
        system_hash: str | None = None,
        who: str | None = None,
        undoes: float = 0.0,
        group: Group | None = None,
        held: Pin | None = None,
    ) -> PinReport:
        """Take a pin back: its numbers and graphs. Raises PinRefused if there is none, or if it is
        not the one that was `held` when a person was asked."""
        made = Making(who or default_who(), group, undoes)

        def release(file: PinFile, cache: HeldCache) -> list[Change]:
            chosen = [
                record
                for record in _to_release(file)
                if (record.op, record.inputs) == (key.op, key.inputs)
                and system_hash in (None, record.system_hash)
            ]
            if not chosen:
                raise PinRefused(
                    f"{brief(key.op, 40)} {brief(key.inputs, 80)} is not pinned; see the pins"
                )
            for other in (r.pin for r in chosen if held and not same_pin(r.pin, held)):
                raise PinRefused(
                    f"{brief(other.label, 60)} was pinned meanwhile; nothing was unpinned"
                )
            return [released(file, cache, record, made) for record in chosen]

        return self.change(release)[0]

    def unpin_all(self, who: str | None = None, group: Group | None = None) -> list[PinReport]:
        """Take every pin back, those too of which that was cut short; of these the ones that still
        had changed something are told."""
        if not _to_release(read_pin_file(self.layout.pins)):
            return []
        made, held = Making(who or default_who(), group), 0

        def release(file: PinFile, cache: HeldCache) -> list[Change]:
            nonlocal held
            held = len(file.pins)
            return [released(file, cache, each, made) for each in _to_release(file)]

        reports = self.change(release)
        return [report for at, report in enumerate(reports) if at < held or report.numbers]

    def change(self, make: Callable[[PinFile, HeldCache], Sequence[Change]]) -> list[PinReport]:
        """Pin and release what `make` says, in one transaction: all of it or, where a cache file
        cannot be changed, nothing. Raises StoreErrors."""
        with self._transaction() as file:
            changes = make(file, self._cache)
            for change in changes:
                path = self._cache.path(change.record)
                if change.new or path.exists():
                    self._cache.check(path)
            graphs.check_writable(self.layout)
            file.save(MAX_PIN_BYTES if any(change.new for change in changes) else MAX_BYTES)
            counts: dict[tuple[str, str, str], int] = {}
            done: list[str] = []
            try:
                for system in dict.fromkeys(change.record.system_hash for change in changes):
                    counts |= self._cache.agree(file, system, count_drifts=False)
                    done.append(system)
            except StoreError:
                for change in reversed(changes):
                    change.take_back(file)
                with contextlib.suppress(StoreError):
                    file.save()
                for system in done:  # a later file could not be changed
                    with contextlib.suppress(StoreError):
                        self._cache.agree(file, system, count_drifts=False)
                raise
            reports = [self._finish(file, each, counts) for each in changes]
            if not all(change.new for change in changes):
                file.save()
                for other in file.pins:  # what came back may be stale for another pin
                    self._graphs.sweep(other)
            return reports

    def _finish(
        self, file: PinFile, change: Change, counts: Mapping[tuple[str, str, str], int]
    ) -> PinReport:
        """The compiled graphs, once the cache file agrees."""
        record = change.record
        if change.new:
            record = next((r for r in file.pins if r.identity == record.identity), record)
        moved, restored = self._graphs.sweep(record)
        path, numbers = self._cache.path(record), counts.get(record.identity, 0)
        if change.new:
            return PinReport(record.pin, path, numbers, moved, restored, self._status(record))
        unfinished = bool(releasing(record, self._cache.stored(record) or {}))
        put_back(file.released, replace(record, pending=unfinished))
        return PinReport(record.pin, path, numbers, moved, restored)

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
                if is_table_op(record.op) and self._cache.tables.came_back(record):
                    return True
        live = self._graphs.live()
        for record in file.pins:
            with contextlib.suppress(CacheUnreadable):
                if is_inductors(record.op) and self._cache.configs.differing(record):
                    return True
                if is_table_op(record.op) and self._cache.tables.differs(record):
                    return True
                stored = self._cache.stored(record) or {}
                learned = self._cache.learned(record, stored)
                if learned is not record or holding(learned, stored):
                    return True
            if self._graphs.stale(record, live):
                return True
        return False

    def _status(self, record: Record, live: list[GraphEntry] | None = None) -> PinStatus:
        judged = self._graphs.judged(record, self._graphs.live() if live is None else live)
        try:
            if is_inductors(record.op):
                held = self._cache.configs
                many, differing = len(held.paths(record)), len(held.differing(record))
                return state_of_kernel(record, many, differing, judged)
            if is_table_op(record.op):
                return PinStatus(record.pin, *self._cache.tables.state(record))
            stored = self._cache.stored(record)
            if stored:
                record = self._cache.learned(record, stored)
            return state_of(record, stored, judged, self._cache.devices_of(stored or {}))
        except CacheUnreadable as error:
            return PinStatus(record.pin, "drifted", str(error))

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


def _to_release(file: PinFile) -> list[Record]:
    """The pins, and those whose release is not finished."""
    return [*file.pins, *(record for record in file.released if record.pending)]


def learn_times(layout: Layout, system_hash: str, tuned: Tuned) -> None:
    """Store the times of `tuned` as the measured ones of its pin.

    Without a pin nothing happens. Raises CacheUnreadable, UnsafePath and NotWritable.
    """
    if not layout.pins.exists():
        return
    safe.check_file(layout.root, layout.pins)
    with safe.locked(layout.root, layout.pins):
        file = read_pin_file(layout.pins)
        pin = next((r for r in file.pins if _is_of(r, system_hash, tuned)), None)
        if pin is None:
            return
        texts = {name: json.dumps(ms) for name, ms in tuned.timings.items()}
        known = pin.tokens.get(tuned.precision, {})
        pin = replace(pin, tokens={**pin.tokens, tuned.precision: {**known, **texts}})
        file.put(pin)
        file.note("retune", pin, default_who(), time.time())
        file.save()


def hold_again(layout: Layout, system_hash: str, tuned: Tuned) -> PinState | None:
    """Hold back what the cache file has now beside the pinned choice; the state of the pin.

    None if it is not pinned. Raises CacheUnreadable, UnsafePath and NotWritable.
    """
    if not layout.pins.exists():
        return None
    with safe.locked(layout.root, layout.pins):
        file = read_pin_file(layout.pins)
        if not any(_is_of(record, system_hash, tuned) for record in file.pins):
            return None
        HeldCache(layout).agree(file, system_hash, count_drifts=False)
    for status in PinStore(layout).reconcile():
        pin = status.pin
        if (pin.system_hash, pin.op, pin.inputs) == (system_hash, tuned.op, tuned.inputs):
            return status.state
    return None


def _is_of(record: Record, system_hash: str, tuned: Tuned) -> bool:
    return record.identity == (system_hash, tuned.op, tuned.inputs)
