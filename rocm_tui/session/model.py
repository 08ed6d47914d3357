"""The model of a screen: records go in, rows come out, and which of them changed.

Pure state, without a screen, a thread or a file. A row is one tuning, joined from every source
that tells of it; only the problem that a record touches is joined again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
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
from rocm_tui.session.graphs import Asked, Graphs, Program
from rocm_tui.session.join import Bucket, Member, group, problem_of
from rocm_tui.session.merge import merge
from rocm_tui.session.peaks import device_of, machine_of, published
from rocm_tui.session.pinned import Pins
from rocm_tui.session.processes import Processes, fuller
from rocm_tui.session.shares import Share
from rocm_tui.session.suspects import suspicion
from rocm_tui.session.systems import Measurements

if TYPE_CHECKING:
    from backend.model.pin import PinState
    from backend.model.trial import Trial
    from backend.pins.state import PinStatus


@dataclass(frozen=True, slots=True)
class Row:
    """One tuning as it is shown.

    `key` is stable while the row lives; `seen` is Unix time; `seq` counts arrivals. `aliases` are
    the ids under which the single sources know it: a log, which tells no precision, gives it
    another than the cache. `asked` holds the session of each time that a session log tells of it,
    reuses included. `suspect` says why its times are not to be believed, where they are not.
    `share` is what it is to the latest program that called it. `device` is what it was tuned on:
    `gfx942`, a name, or a kind as `cuda`; empty where nothing tells. `awaits_pin` while the
    state of its pin was not read yet: what is in use is not known.
    """

    key: str
    id: str
    occurrence: int
    tuning: Tuning
    pin: PinStatus | None = None
    seen: float | None = None
    aliases: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    seq: int = 0
    suspect: str | None = None
    share: Share | None = None
    device: str = ""
    awaits_pin: bool = False

    @property
    def when(self) -> float | None:
        """When it was tuned, else when it was first seen, if either is known."""
        return self.tuning.when if self.tuning.when is not None else self.seen

    @property
    def age(self) -> tuple[float, int]:
        """Older ones are less; of those whose time is not known, the ones that came first."""
        return self.when or 0.0, self.seq

    @property
    def pin_state(self) -> PinState | None:
        return self.pin.state if self.pin else None


Finish = Callable[[Tuning], "tuple[Tuning, PinStatus | None, str | None, str, bool]"]
"""Gives a joined tuning with what was measured of it, its pin, why it is suspicious, its device,
and whether its pin is awaited."""
AskShares = Callable[[Sequence[Asked]], list[Share | None]]


class Place:
    """The members of one problem and the rows that they make. There are tens of thousands."""

    __slots__ = ("_merged", "members", "rows")

    def __init__(self) -> None:
        self.members: list[Member] = []
        self.rows: list[Row] = []
        self._merged: list[tuple[tuple[Member, ...], Tuning]] = []

    def tells(self, uid: str, tuning: Tuning) -> bool:
        """Whether a member says just this already."""
        return any(member.uid == uid and member.tuning == tuning for member in self.members)

    def remove(self, uids: Collection[str]) -> None:
        """Drop these members."""
        self.members = [member for member in self.members if member.uid not in uids]

    def join(
        self,
        shown: Callable[[Member], Member],
        finish: Finish,
        seen: Mapping[str, float | None],
        shares: AskShares | None = None,
    ) -> list[Row]:
        """Make the rows; one whose members are the same stays the same. Returns those before.

        `shown` is a member as it is to be joined; `finish` adds to a joined tuning what is known
        besides; `seen` is when members arrived; `shares` tells what tunings are to
        programs, given who asked for each.
        """
        before = self.rows
        if len(self.members) == 1 and not before and shares is None:  # most of them
            view = shown(self.members[0])
            self._merged = [((view,), view.tuning)]
            self.rows = [_row((view,), view.tuning, finish, seen, {})]
            return before
        known = {views[0].uid: (views, tuning) for views, tuning in self._merged}
        old = {row.key: row for row in before}
        members = sorted(map(shown, self.members), key=lambda member: member.seq)
        merged, rows = [], []
        for views in group(members):
            entry = known.get(views[0].uid)
            if entry is None or not _same(entry[0], views):
                entry = tuple(views), merge([view.tuning for view in views])
            merged.append(entry)
            rows.append(_row(*entry, finish, seen, old))
        if shares is not None:
            known_shares = shares([(row.tuning, row.asked) for row in rows])
            rows = [_shared(row, share) for row, share in zip(rows, known_shares, strict=True)]
        self._merged, self.rows = merged, _numbered(rows)
        return before


def _shared(row: Row, share: Share | None) -> Row:
    return row if row.share == share else replace(row, share=share)


def _same(left: Sequence[Member], right: Sequence[Member]) -> bool:
    return len(left) == len(right) and all(a is b for a, b in zip(left, right, strict=True))


def _row(
    views: tuple[Member, ...],
    joined: Tuning,
    finish: Finish,
    seen: Mapping[str, float | None],
    old: Mapping[str, Row],
) -> Row:
    tuning, pin, suspect, device, awaits = finish(joined)
    if len(views) == 1:
        (first,) = views
        id_ = first.id or first.tuning.id
        ids: tuple[str, ...] = (id_,)
        asked: tuple[str, ...] = (first.tuning.session,) if first.tuning.session else ()
    else:
        first = min(views, key=lambda view: view.seq)
        id_, ids = joined.id, tuple(dict.fromkeys([view.tuning.id for view in views]))
        asked = tuple([view.tuning.session for view in views if view.tuning.session])
    before = old.get(first.uid)
    if before is not None and before.tuning is tuning:
        known = before.pin, before.suspect, before.device, before.awaits_pin
        if known == (pin, suspect, device, awaits):
            return before
    told = seen[first.uid], ids, asked, first.seq, suspect, None, device, awaits
    return Row(first.uid, id_, 1, tuning, pin, *told)


def _numbered(rows: list[Row]) -> list[Row]:
    """With the occurrences of each id counted, oldest first."""
    if len(rows) == 1 and rows[0].occurrence == 1:
        return rows
    counts: dict[str, int] = {}
    place: dict[str, int] = {}
    for row in sorted(rows, key=lambda row: row.age):
        place[row.key] = counts[row.id] = counts.get(row.id, 0) + 1
    return [
        row if row.occurrence == place[row.key] else replace(row, occurrence=place[row.key])
        for row in rows
    ]


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
        self._seen: dict[str, float | None] = {}
        self._seq: dict[str, int] = {}
        self._touched: dict[Bucket, None] = {}
        self._touched_keys: set[tuple[str, str]] = set()
        self._rows: dict[str, Row] = {}
        self._pins = Pins(self.sessions)
        self._measurements = Measurements()
        self._graphs = Graphs(self.sessions)
        self.processes = Processes(self.sessions)
        self._order: list[str] | None = None

    @property
    def problems(self) -> list[Fault]:
        """Everything that could not be used, oldest first, each once."""
        return list(self._problems)

    def row(self, key: str) -> Row | None:
        return self._rows.get(key)

    def rows(self) -> list[Row]:
        """Newest first; tunings of unknown age are as old as their place in their source says."""
        if self._order is None:
            rows = sorted(self._rows.values(), key=lambda row: row.age, reverse=True)
            self._order = [row.key for row in rows]
        return [self._rows[key] for key in self._order]

    def measurements(self, tuning: Tuning) -> tuple[Measurement, ...]:
        """All repeated measurements that tell of a tuning, latest first."""
        return self._measurements.of(tuning, self.sessions)

    def members(self, tuning: Tuning) -> tuple[Member, ...]:
        """What the single sources tell of problems like that of a tuning, before it is joined."""
        place = self._places.get(problem_of(tuning))
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
        bucket, before = problem_of(tuning), self._of_uid.get(uid)
        if before is not None and before != bucket:
            self._remove(uid)
        if uid not in self._seq:
            self._seq[uid], self._seen[uid] = len(self._seq) + 1, now
        place = self._places.get(bucket)
        if place is None:
            place = self._places[bucket] = Place()
        source = intern(source_of(uid))
        if before != bucket:
            self._of_source.setdefault(source, []).append(uid)
            self._of_uid[uid] = bucket
        elif place.tells(uid, tuning):
            return
        else:
            place.remove({uid})
        place.members.append(Member(uid, source, tuning, self._seq[uid], record.id))
        self._touched[bucket] = None

    def _remove(self, uid: str) -> None:
        bucket = self._of_uid.pop(uid, None)
        if bucket is not None:
            self._places[bucket].remove({uid})
            self._touched[bucket] = None

    def _forget(self, source: str) -> None:
        gone = {uid for uid in self._of_source.pop(source, ()) if uid in self._of_uid}
        for bucket in {self._of_uid.pop(uid) for uid in gone}:
            self._places[bucket].remove(gone)
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
            for row in place.join(self._pins.unmasked, self._finished, self._seen, shares):
                before[row.key] = self._rows.pop(row.key)
            for row in place.rows:
                after[row.key] = self._rows[row.key] = row
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
        self._order = None if order else self._order
        return Changes(frozenset(changed), order)

    def _find_touched(self) -> None:
        """The problems of the ops and inputs keys of which something else became known."""
        keys, self._touched_keys = self._touched_keys | self._graphs.touched(), set()
        if keys:
            for bucket, place in self._places.items():
                if any((m.tuning.op, m.tuning.inputs_key) in keys for m in place.members):
                    self._touched[bucket] = None

    def _finished(self, tuning: Tuning) -> tuple[Tuning, PinStatus | None, str | None, str, bool]:
        measured = self._measurements.attach(tuning, self.sessions)
        pin, device, peak = self._pins.of(measured), measured.device or "", None
        if device != "cpu" and self.sessions:
            machine = machine_of(measured, self.sessions, {})
            device, peak = device_of(machine) or device, published(machine)
        awaits = self._pins.awaits(measured)
        return measured, pin, suspicion(measured, peak), device, awaits
