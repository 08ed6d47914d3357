"""The model of a screen: records go in, rows come out, and which of them changed.

Pure state, without a screen, a thread or a file. A row is one tuning, joined from every source
that tells of it; only the problem that a record touches is joined again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from math import inf
from operator import attrgetter
from sys import intern
from time import monotonic
from typing import TYPE_CHECKING

from backend.model.choice import Measurement
from backend.model.session import Fault, Session
from backend.model.tuning import Tuning
from rocm_tui.ingest.records import (
    ActivitySeen,
    Dropped,
    Gone,
    GraphSeen,
    GraphTold,
    MeasurementSeen,
    Record,
    Seen,
    SessionSeen,
    TrialSeen,
    source_of,
)
from rocm_tui.session.graphs import Graphs, Program
from rocm_tui.session.join import Bucket, Member, bucket_of
from rocm_tui.session.peaks import device_of, machine_of, published
from rocm_tui.session.pinned import Pins
from rocm_tui.session.processes import Processes, fuller
from rocm_tui.session.row import Finished, Place, Row, device_row, in_order, reordered
from rocm_tui.session.suspects import suspicion
from rocm_tui.session.systems import Measurements
from rocm_tui.session.tables import Tables

if TYPE_CHECKING:
    from backend.model.trial import Trial
    from backend.pins.state import PinStatus

__all__ = ["Changes", "Model", "Row"]


_DEVICES = attrgetter("devices")


@dataclass(frozen=True, slots=True)
class Changes:
    """What a screen has to paint: rows by key; whether rows came, went or moved."""

    changed: frozenset[str] = frozenset()
    order_changed: bool = False

    def __bool__(self) -> bool:
        return bool(self.changed) or self.order_changed


class Model:
    """All tunings, sessions and problems of the sources read so far."""

    def __init__(self) -> None:
        self.sessions: dict[str, Session] = {}
        self._problems: dict[Fault, None] = {}
        self._places: dict[Bucket, Place] = {}
        self._of_uid: dict[str, Bucket] = {}
        self._of_source: dict[str, list[str]] = {}
        self._left: dict[str, tuple[int, float | None]] = {}
        self._arrivals = 0
        self._touched: dict[Bucket, None] = {}
        self._touched_keys: set[tuple[str, str]] = set()
        self._rows: dict[str, Row] = {}
        self._pins = Pins(self.sessions)
        self._measurements = Measurements()
        self._tables = Tables()
        self._graphs = Graphs(self.sessions)
        self.processes = Processes(self.sessions)
        self._order: list[Row] | None = None

    @property
    def problems(self) -> list[Fault]:
        """Everything that could not be used, oldest first, each once."""
        return list(self._problems)

    def row(self, key: str) -> Row | None:
        """The row of this key, which may be one device's of a problem that several tuned."""
        return self._rows.get(key) or device_row(key, self._holder)

    def _holder(self, uid: str) -> Row | None:
        """The row that has this tuning among its devices."""
        place = self._places.get(self._of_uid.get(uid, ()))
        rows = place.rows if place else ()
        return next((r for r in rows if any(source_of(d.key) == uid for d in r.devices)), None)

    def listed(self) -> list[Row]:
        """A row for each problem, also where several devices tuned it; newest first. Tunings of
        unknown age are as old as their place in their source says."""
        if self._order is None:
            self._order = in_order(self._rows.values())
        return self._order.copy()

    def rows(self) -> list[Row]:
        """A row for each tuning, which is of one device; in the same order."""
        listed = self.listed()
        if not any(map(_DEVICES, listed)):  # most of the time
            return listed
        return [device for row in listed for device in row.devices or (row,)]

    def measurements(self, tuning: Tuning) -> tuple[Measurement, ...]:
        """All repeated measurements that tell of a tuning, latest first."""
        return self._measurements.of(tuning, self.sessions)

    def members(self, tuning: Tuning) -> tuple[Member, ...]:
        """What the single sources tell of problems like that of a tuning, before it is joined."""
        place = self._places.get(bucket_of(tuning))
        return tuple(place.members) if place else ()

    def programs(self) -> tuple[Program, ...]:
        """The compiled graphs that the sources tell of, by program, the latest first."""
        return self._graphs.programs()

    @property
    def profiled_graphs(self) -> tuple[str, ...]:
        """The keys of the graphs that a profiler saw, of which `graph_texts` may tell more."""
        return self._graphs.profiled

    def trials(self, graph: str) -> tuple[Trial, ...]:
        """All trials of the graph of this id, latest first."""
        return self._graphs.trials(graph)

    def apply(self, records: Iterable[Record], now: float | None = None) -> Changes:
        """Take records in. `now` dates tunings whose source does not; none for old files."""
        self.put(records, now)
        return self.join()

    def put(self, records: Iterable[Record], now: float | None = None) -> None:
        """Take records in without making rows of them: that is `join`."""
        for record in records:
            if isinstance(record, Seen):
                self._put(record, now)
            elif isinstance(record, Dropped):
                self._remove(record.uid)
            elif isinstance(record, Gone):
                self._forget(record.source)
                for problem in [p for p in self._problems if p.source == record.source]:
                    del self._problems[problem]
                self._touched_keys |= self._measurements.forget(record.source)
                self._graphs.forget(record.source)
                self.processes.forget(record.source)
            elif isinstance(record, SessionSeen):
                known = self.sessions.get(record.session.id)
                self.sessions[record.session.id] = fuller(known, record.session)
            elif isinstance(record, ActivitySeen):
                self.processes.add(record)
            elif isinstance(record, MeasurementSeen):
                self._touched_keys |= self._measurements.add(record)
            elif isinstance(record, GraphSeen):
                self._graphs.add(record)
            elif isinstance(record, GraphTold):
                self._graphs.tell(record)
            elif isinstance(record, TrialSeen):
                self._graphs.add_trial(record)
            else:
                self._problems[record] = None

    @property
    def held(self) -> int:
        """How many tunings the sources tell of, before they are joined."""
        return len(self._of_uid)

    @property
    def unjoined(self) -> bool:
        """Whether records were taken in that no row shows yet."""
        return bool(self._touched or self._touched_keys or self._graphs.unjoined)

    def set_pins(self, statuses: Iterable[PinStatus]) -> Changes:
        """Show these pins. A pinned tuning keeps its measured times."""
        touched = self._pins.put(statuses)
        self._touched_keys |= touched
        return self.join() if touched else Changes()

    def await_pins(self, keys: frozenset[tuple[str, str]]) -> None:
        """Before any row is made: these ops and inputs keys have pins, `set_pins` follows."""
        self._pins.await_(keys)

    def _put(self, record: Seen, now: float | None) -> None:
        uid, tuning = record.uid, record.tuning
        bucket, before = bucket_of(tuning), self._of_uid.get(uid)
        if before is not None and before != bucket:
            self._remove(uid)
        place = self._places.get(bucket)
        if place is None:
            place = self._places[bucket] = Place()
        source = intern(source_of(uid))
        if before != bucket:
            self._of_source.setdefault(source, []).append(uid)
            self._of_uid[uid] = bucket
            arrival = self._left.pop(uid, None)
        elif place.tells(uid, tuning):
            return
        else:
            (old,) = place.remove({uid})
            arrival = old.seq, old.seen
        if arrival is None:
            self._arrivals += 1
            arrival = self._arrivals, now
        place.add(Member(uid, source, tuning, arrival[0], record.id, arrival[1]))
        self._touched[bucket] = None

    def _remove(self, uid: str) -> None:
        bucket = self._of_uid.pop(uid, None)
        if bucket is not None:
            self._take_out({uid}, bucket)

    def _forget(self, source: str) -> None:
        gone = {uid for uid in self._of_source.pop(source, ()) if uid in self._of_uid}
        for bucket in {self._of_uid.pop(uid) for uid in gone}:
            self._take_out(gone, bucket)

    def _take_out(self, uids: Collection[str], bucket: Bucket) -> None:
        """A tuning that comes again is as old as it was."""
        for member in self._places[bucket].remove(uids):
            self._left[member.uid] = member.seq, member.seen
        self._touched[bucket] = None

    def join(self, seconds: float = inf) -> Changes:
        """Make rows of what was taken in, problem by problem, until so many seconds are over."""
        end = monotonic() + seconds
        self._find_touched()
        shares = self._graphs.shares if self._graphs.held else None
        before: dict[str, Row] = {}
        after: dict[str, Row] = {}
        while self._touched:
            bucket, _ = self._touched.popitem()
            place = self._places[bucket]
            were = place.join(self._pins.unmasked, self._finished, shares)
            for row in were:
                if self._rows.get(row.key) is row:  # else it has become one of another problem
                    del self._rows[row.key]
                if after.get(row.key) is row:  # it was joined already
                    del after[row.key]
                else:
                    before[row.key] = row
            for row in place.rows:
                after[row.key] = self._rows[row.key] = row
            if any(rows and rows[0].tuning.entry for rows in (were, place.rows)):
                self._stand_beside(were, place.rows)
            if not place.members:
                del self._places[bucket]
            if monotonic() >= end:
                break
        changed = before.keys() ^ after.keys()
        order = bool(changed)
        for key in before.keys() & after.keys():
            old, new = before[key], after[key]
            if old is not new and old != new:
                changed.add(key)
                order = order or old.when != new.when
        if self._order is not None:
            self._order = reordered(self._order, before.values(), after.values())
        return Changes(frozenset(changed), order)

    def _stand_beside(self, old: Sequence[Row], new: Sequence[Row]) -> None:
        """Entries of a table went and came: tunings of their product show them no more, or now."""
        gone = [self._tables.remove(row.tuning) for row in old]
        came = [self._tables.add(row.tuning) for row in new]
        for bucket in chain(*gone, *came):
            if bucket in self._places:
                self._touched[bucket] = None

    def _find_touched(self) -> None:
        """The problems of the ops and inputs keys of which something else became known."""
        keys, self._touched_keys = self._touched_keys | self._graphs.touched(), set()
        if keys:
            for bucket, place in self._places.items():
                if any((tuning.op, tuning.inputs_key) in keys for tuning in place.tunings):
                    self._touched[bucket] = None

    def _finished(self, tuning: Tuning) -> Finished:
        measured = self._measurements.attach(tuning, self.sessions)
        pin, device, peak = self._pins.of(measured), measured.device or "", None
        if measured.entry is not None:
            return measured, None, None, measured.entry.device, False, ()
        if device != "cpu" and self.sessions:
            machine = machine_of(measured, self.sessions, {})
            device, peak = device_of(machine) or device, published(machine)
        awaits = self._pins.awaits(measured)
        beside = self._tables.of(measured) if self._tables else ()
        return measured, pin, suspicion(measured, peak), device, awaits, beside
