"""Pins: recorded in `pins.json`, held by the autotune cache, never contradicted by old graphs.

A transaction first records the desired state, then makes the cache file agree, then the compiled
graphs. Each step can be repeated, so after a kill between any two of them `reconcile` (or the next
`pin` or `unpin`) finishes the rest.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from backend.cache.journal import Tuned
from backend.disk import exchange, safe
from backend.disk.layout import Layout
from backend.disk.safe import exists
from backend.errors import CacheUnreadable, PinRefused, StoreError, brief
from backend.model.problem import TuningKey
from backend.model.tuning import Pin, PinState, Proof
from backend.pins.file import (
    MAX_BYTES,
    MAX_PIN_BYTES,
    Counts,
    HistoryEntry,
    PinFile,
    PinGroup,
    PinRecord,
    PinRequest,
    default_who,
    drifted,
    find_record,
    put_back,
    read_pin_file,
)
from backend.pins.graphs import index as graphs
from backend.pins.graphs.index import GraphEntry
from backend.pins.holders import PinHolders
from backend.pins.numbers import changes_to_release, learn
from backend.pins.plan import (
    Attribution,
    PinChange,
    PinPlan,
    check_agreed,
    pin_in_file,
    plan_of,
    release_in_file,
    same_pin,
)
from backend.pins.state import (
    GRAPHS_APPEARED,
    GraphSweeper,
    PinReport,
    PinStatus,
    numbers_of,
)
from backend.tables.model import Table


class PinStore:
    """The pins of one cache dir. Methods raise StoreErrors; reading needs no lock."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._holders = PinHolders(layout)
        self._graphs = GraphSweeper(layout, self._holders.variants)
        self._settled: tuple[object, list[PinStatus]] | None = None

    def remember(self, table: Table) -> None:
        """Keep a tuned table that was just read, so that it is parsed again only if it changed."""
        self._holders.tables.remember(table)

    def pins(self) -> tuple[Pin, ...]:
        """Return the pins, oldest first."""
        return tuple(record.pin for record in read_pin_file(self.layout.pins).pins)

    def unfinished(self) -> tuple[Pin, ...]:
        """Return the pins whose release was interrupted: `unpin` and `reconcile` finish it."""
        released = read_pin_file(self.layout.pins).released
        return tuple(record.pin for record in released if record.pending)

    def history(self) -> tuple[HistoryEntry, ...]:
        """Return the history of pins, oldest first."""
        return tuple(read_pin_file(self.layout.pins).history)

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
        """Return what `pin` would change; see `PinRequest` for the arguments. Raises PinRefused for
        a failed or unknown choice or tuning."""
        request = PinRequest(
            system_hash,
            key,
            hash,
            config=dict(config or {}),
            wait=wait,
            table=table,
            variants=variants or {},
        )
        return plan_of(read_pin_file(self.layout.pins), self._holders, self._graphs, request)

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
        table: Path | None = None,
        group: PinGroup | None = None,
        agreed: PinPlan | None = None,
        variants: Mapping[str, str] | None = None,
    ) -> PinReport:
        """Make `hash` the choice of (op, inputs) in every precision, for every later reader.

        See `PinRequest`; `config` (`BLOCK_M`, ...) distinguishes Triton templates in compiled
        graphs. `group` is the command that pins several choices. `agreed` is the plan that a person
        agreed to: PinRefused if it has changed. Raises StoreErrors; then nothing was changed, or
        `reconcile` finishes what was recorded.
        """
        request = PinRequest(
            system_hash, key, hash, label, note, dict(config or {}), wait, table, variants or {}
        )
        by = Attribution(who or default_who(), group)

        def make(file: PinFile, holders: PinHolders) -> list[PinChange]:
            if agreed is not None:
                check_agreed(agreed, plan_of(file, holders, self._graphs, request))
            return [pin_in_file(file, holders, request, by)]

        return self.change(make)[0]

    def unpin(
        self,
        key: TuningKey,
        system_hash: str | None = None,
        who: str | None = None,
        undoes: float = 0.0,
        group: PinGroup | None = None,
        held: Pin | None = None,
    ) -> PinReport:
        """Release a pin and restore its numbers and graphs. Raises PinRefused if there is none, or
        if it is not the pin `held` when a person was asked."""
        by = Attribution(who or default_who(), group, undoes)

        def release(file: PinFile, holders: PinHolders) -> list[PinChange]:
            chosen = _pinned(file, key, system_hash, held)
            return [release_in_file(file, holders, record, by) for record in chosen]

        return self.change(release)[0]

    def unpin_each(self, pins: Sequence[Pin], group: PinGroup | None = None) -> list[PinReport]:
        """Release all of these `pins`, or none. Raises PinRefused if another pin replaced one."""
        by = Attribution(default_who(), group)

        def release(file: PinFile, holders: PinHolders) -> list[PinChange]:
            chosen = [r for pin in pins for r in _pinned(file, pin.key, pin.system_hash, pin)]
            return [release_in_file(file, holders, record, by) for record in chosen]

        return self.change(release)

    def unpin_all(self, group: PinGroup | None = None) -> list[PinReport]:
        """Release every pin, also interrupted ones; report the pins that still had an effect."""
        if not _to_release(read_pin_file(self.layout.pins)):
            return []
        by, pinned = Attribution(default_who(), group), 0

        def release(file: PinFile, holders: PinHolders) -> list[PinChange]:
            nonlocal pinned
            pinned = len(file.pins)
            return [release_in_file(file, holders, each, by) for each in _to_release(file)]

        reports = self.change(release)
        return [report for at, report in enumerate(reports) if at < pinned or report.numbers]

    def change(self, make: Callable[[PinFile, PinHolders], Sequence[PinChange]]) -> list[PinReport]:
        """Pin and release what `make` returns, in one transaction: every change or, if a cache file
        cannot be changed, none. Raises StoreErrors."""
        with self._transaction() as file:
            changes = make(file, self._holders)
            for change in changes:
                holder = self._holders.of(change.record.op)
                path = holder.path(change.record)
                if change.new or path.exists():
                    holder.check_writable(path)
            graphs.check_writable(self.layout)
            file.save(MAX_PIN_BYTES if any(change.new for change in changes) else MAX_BYTES)
            counts: Counts = {}
            systems = dict.fromkeys(change.record.system_hash for change in changes)
            try:
                for system in systems:
                    counts |= self._holders.agree(file, system, count_drifts=False)
            except StoreError:
                for change in reversed(changes):
                    change.revert(file)
                with contextlib.suppress(StoreError):
                    file.save()
                for system in systems:  # one of them may have some of its files changed
                    with contextlib.suppress(StoreError):
                        self._holders.agree(file, system, count_drifts=False)
                raise
            reports = [self._finish(file, each, counts) for each in changes]
            if not all(change.new for change in changes):
                file.save()
                for other in file.pins:  # a restored graph may be stale for another pin
                    self._graphs.sweep(other)
            return reports

    def _finish(self, file: PinFile, change: PinChange, counts: Counts) -> PinReport:
        """Update the compiled graphs, once the cache file agrees."""
        record, holder = change.record, self._holders.of(change.record.op)
        if change.new:
            record = next((r for r in file.pins if r.identity == record.identity), record)
        moved, restored = self._graphs.sweep(record)
        path, numbers = holder.path(record), counts.get(record.identity, 0)
        if change.new:
            status = self._status(record, self._graphs.live())
            return PinReport(record.pin, path, numbers, moved, restored, status)
        unfinished = bool(changes_to_release(record, holder.numbers(record) or {}))
        put_back(file.released, replace(record, pending=unfinished))
        return PinReport(record.pin, path, numbers, moved, restored)

    def annotate(self, pin: Pin, note: str, who: str | None = None) -> bool:
        """Change only the note of a pin. Return False if it is no longer pinned."""
        with self._transaction() as file:
            record = find_record(file.pins, pin.system_hash, pin.key)
            if record is None or record.hash != pin.hash:
                return False
            if record.note != note:
                record = replace(record, note=note)
                file.put(record)
                file.note("note", record, who or default_who(), time.time(), note)
                file.save(MAX_PIN_BYTES)
            return True

    def keep_proof(self, pin: Pin, *, ok: bool, by: str, torch: str = "", what: str = "") -> bool:
        """Store evidence from generated code with the pin, and add it to the history with the note
        `what`. Return False if it is no longer pinned."""
        with self._transaction() as file:
            record = find_record(file.pins, pin.system_hash, pin.key)
            if record is None or record.hash != pin.hash:
                return False
            record = self._with_numbers(record)
            now = time.time()
            proof = Proof(now, ok, by, torch, numbers_of(record), record.drifts)
            record = replace(record, proof=proof)
            file.put(record)
            file.note("verify" if ok else "refute", record, default_who(), now, what)
            file.save(MAX_PIN_BYTES)
            return True

    def learn_times(self, system_hash: str, tuned: Tuned) -> None:
        """Store the times of `tuned` as the measured ones of its pin, if it is pinned."""
        if not self.layout.pins.exists():
            return
        with self._transaction() as file:
            record = find_record(file.pins, system_hash, tuned.key)
            if record is None:
                return
            texts = {name: json.dumps(ms) for name, ms in tuned.timings.items()}
            before = record.tokens.get(tuned.precision, {})
            tokens = {**record.tokens, tuned.precision: {**before, **texts}}
            record = replace(record, tokens=tokens)
            file.put(record)
            file.note("retune", record, default_who(), time.time())
            file.save()

    def hold_again(self, system_hash: str, tuned: Tuned) -> PinState | None:
        """Raise the cache file's new numbers beside the pinned choice, and return the state of the
        pin; None if it is not pinned."""
        if not self.layout.pins.exists():
            return None
        key = tuned.key
        with self._transaction() as file:
            if find_record(file.pins, system_hash, key) is None:
                return None
            self._holders.agree(file, system_hash, count_drifts=False)
        for status in self.reconcile():
            pin = status.pin
            if (pin.system_hash, pin.op, pin.inputs) == (system_hash, key.op, key.inputs):
                return status.state
        return None

    def status(self) -> list[PinStatus]:
        """Return each pin with its state. Reads only."""
        file = read_pin_file(self.layout.pins)
        live = self._graphs.live() if file.pins else []
        return [self._status(record, live) for record in file.pins]

    def reconcile(self, thorough: bool = False) -> list[PinStatus]:
        """Make the cache agree with the pins again, and return the state of each.

        Nothing is read if nothing changed since the last call, nor without a pins file unless
        `thorough`, which also lowers raised numbers without a record. A failed repair is the detail
        of its pin; only errors of `pins.json` itself or its lock are raised.
        """
        if not exists(self.layout.pins) and not thorough:
            return []
        fingerprint = self._fingerprint()
        if self._settled is not None and self._settled[0] == fingerprint:
            return self._settled[1]
        before = read_pin_file(self.layout.pins)
        before.lost = thorough
        if self._needs_work(before):
            with self._transaction() as file:
                file.lost = thorough
                statuses = self._repair(file)
        else:
            statuses = self.status()
        # Taken before the files are read, so that the next call sees any change since.
        settled = all(status.state != "drifted" for status in statuses)
        self._settled = (fingerprint, statuses) if settled else None
        return statuses

    def migrate(self) -> None:
        """Convert pins of an older version to how pins are held now; see `file.PinRecord`."""
        if not all(record.raised for record in read_pin_file(self.layout.pins).pins):
            self.reconcile()

    def _repair(self, file: PinFile) -> list[PinStatus]:
        failed: dict[str, str] = {}
        repaired: set[tuple[str, str, str]] = set()
        systems = {r.system_hash for r in (*file.pins, *file.watched())}
        for system in sorted(systems | self._holders.astray(file) | self._holders.unfinished()):
            try:
                repaired |= {
                    i for i, n in self._holders.agree(file, system, count_drifts=True).items() if n
                }
                for record in [r for r in file.watched() if r.system_hash == system]:
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
            status = self._status(record, self._graphs.live())
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
        if os.path.lexists(safe.temporary_path(self.layout.pins)) or self._holders.unfinished():
            return True
        if self._holders.astray(file):
            return True
        for record in file.watched():
            with contextlib.suppress(CacheUnreadable):
                if self._holders.of(record.op).came_back(record):
                    return True
        live = self._graphs.live()
        for record in file.pins:
            with contextlib.suppress(CacheUnreadable):
                if self._holders.of(record.op).differs(record):
                    return True
            if self._graphs.stale(record, live):
                return True
        return False

    def _status(self, record: PinRecord, live: list[GraphEntry]) -> PinStatus:
        judged = self._graphs.judged(record, live)
        try:
            return self._holders.of(record.op).status(record, judged)
        except CacheUnreadable as error:
            return PinStatus(record.pin, "drifted", str(error))

    def _with_numbers(self, record: PinRecord) -> PinRecord:
        """Return the pin with the current numbers of its tuning. Raises CacheUnreadable."""
        return learn(record, self._holders.of(record.op).numbers(record) or {})

    def _fingerprint(self) -> object:
        """Return a value that changes when anything that a pin depends on changes."""
        return (
            exchange.signature_of(self.layout.pins),
            self._holders.signatures(),
            self._holders.unfinished(),
            os.path.lexists(safe.temporary_path(self.layout.pins)),
            [(entry.relative, entry.mtime, entry.size) for entry in self._graphs.live()],
        )

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[PinFile]:
        safe.check_file(self.layout.root, self.layout.pins)
        with safe.locked(self.layout.root, self.layout.pins):
            yield read_pin_file(self.layout.pins)
        self._settled = None


def _to_release(file: PinFile) -> list[PinRecord]:
    """Return the pins, and those whose release is not finished."""
    return [*file.pins, *(record for record in file.released if record.pending)]


def _pinned(
    file: PinFile, key: TuningKey, system_hash: str | None, held: Pin | None
) -> list[PinRecord]:
    """Return the pins to release of one tuning. Raises PinRefused; see `PinStore.unpin`."""
    chosen = [
        record
        for record in _to_release(file)
        if (record.op, record.inputs) == (key.op, key.inputs)
        and system_hash in (None, record.system_hash)
    ]
    if not chosen:
        raise PinRefused(f"{brief(key.op, 40)} {brief(key.inputs, 80)} is not pinned; see the pins")
    for other in (r.pin for r in chosen if held and not same_pin(r.pin, held)):
        raise PinRefused(f"{brief(other.label, 60)} was pinned meanwhile; nothing was unpinned")
    return chosen
