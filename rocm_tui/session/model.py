"""The model of a screen: records go in, rows come out, and which of them changed.

Pure state, without a screen, a thread or a file. A row is one tuning, joined from every source
that has it; only the problem that a record touches is joined again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from math import inf
from operator import attrgetter
from sys import intern
from time import monotonic
from typing import TYPE_CHECKING, TypeAlias

from backend.model.choice import Measurement
from backend.model.inductor_kernel import TRITON
from backend.model.problem import TuningKey
from backend.model.session import Fault, Session, systems_of
from backend.model.tuning import PinState, Tuning
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
from rocm_tui.session.attachments import Measurements, Pins, Tables, cached_choice
from rocm_tui.session.devices import device_of, machine_of, published, suspicion
from rocm_tui.session.graphs import Asked, Graphs, Share
from rocm_tui.session.sessions import Processes, fuller
from rocm_tui.session.stats import layout_of, winner
from rocm_tui.session.views import (
    Bucket,
    TuningView,
    bucket_of,
    foreign,
    group,
    is_cache,
    merge_views,
    without,
)

if TYPE_CHECKING:
    from backend.pins.state import PinStatus

_OF_DEVICE = "#@"
"""Prefix of a device's index in a row's key; no other key has it."""


@dataclass(frozen=True, slots=True)
class Row:
    """One tuning as it is shown.

    `key` is stable while the row lives; `seen` is Unix time; `seq` counts arrivals. `aliases` are
    the other ids under which single sources know it: a log, which has no precision, gives it
    another than the cache. `asked` holds the session of each time that a session log has it,
    reuses included. `suspect` says why its times are not to be believed, where they are not.
    `share` is what it is to the latest program that called it. `device` is what it was tuned on:
    `gfx942`, a name, or a kind as `cuda`; empty if unknown. `awaits_pin` while the
    state of its pin was not read yet: what is in use is not known. `layout` is its operands'.
    `beside` are entries of other tuners' tables for the same product. `taken` is the hash of the
    choice that the cache gives programs now, where a later tuning replaced the times of this one.
    `renamed` where other tunings of the same id call that kernel by another name.

    Where several devices of a box tuned the problem, `devices` has a row for each of them, by
    device index, and the rest says what the first of these does.
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
    layout: str = ""
    beside: tuple[Tuning, ...] = ()
    devices: tuple[Row, ...] = ()
    taken: str | None = None
    renamed: bool = False

    @property
    def ids(self) -> tuple[str, ...]:
        """All under which it is known."""
        return (self.id, *self.aliases)

    @property
    def when(self) -> float | None:
        """When it was tuned, else when it was first seen; on the last of its devices."""
        if self.devices:
            return max((row.when for row in self.devices if row.when is not None), default=None)
        return self.tuning.when if self.tuning.when is not None else self.seen

    @property
    def age(self) -> tuple[float, int]:
        """Older ones are less; of those whose time is not known, the ones that came first."""
        return self.when or 0.0, self.seq

    @property
    def is_device(self) -> bool:
        """Whether it is one device of a problem that several tuned."""
        return self.key.rpartition("#")[2].startswith("@")

    @property
    def pin_state(self) -> PinState | None:
        return self.pin.state if self.pin else None


Finished: TypeAlias = "tuple[Tuning, PinStatus | None, str | None, str, bool, tuple[Tuning, ...]]"
Finish = Callable[[Tuning], Finished]
"""Gives a joined tuning with its measurement, its pin, why it is suspicious, its device,
whether its pin is awaited, and the entries of tables beside it."""
AskShares = Callable[[Sequence[Asked]], list[Share | None]]


_Merged = Sequence[tuple[tuple[TuningView, ...], Tuning]]
"""Members that were found to be one tuning, and what they make."""


class ProblemViews:
    """The members of one problem and the rows that they make. There are tens of thousands."""

    __slots__ = ("_merged", "members", "rows")

    def __init__(self) -> None:
        self.members: tuple[TuningView, ...] = ()
        self.rows: Sequence[Row] = ()
        self._merged: _Merged = ()

    def add(self, member: TuningView) -> None:
        self.members = (*self.members, member)

    def has(self, uid: str, tuning: Tuning) -> bool:
        """Whether a member says just this already."""
        return any(member.uid == uid and member.tuning == tuning for member in self.members)

    def remove(self, uids: Collection[str]) -> list[TuningView]:
        """Drop these members, and give them back."""
        gone = [member for member in self.members if member.uid in uids]
        self.members = tuple([member for member in self.members if member.uid not in uids])
        return gone

    def join(
        self,
        shown: Callable[[TuningView], TuningView],
        finish: Finish,
        sessions: Mapping[str, Session],
        shares: AskShares | None = None,
    ) -> Sequence[Row]:
        """Make the rows; one whose members are the same stays the same. Return those before.

        `shown` is a member as it is to be joined; `finish` adds to a joined tuning what is known
        besides; `shares` gives the parts of tunings in programs, by the sessions that asked.
        """
        before, own = self.rows, self.members
        if len(own) == 1 and not before and shares is None:  # most of them
            view = shown(own[0])
            self.rows, self._merged = (_row((view,), view.tuning, finish, {}),), ()
            return before
        merged_before = {views[0].uid: (views, tuning) for views, tuning in self._merged}
        old = {row.key: row for row in before if not row.devices}
        members = sorted(map(shown, own), key=lambda member: member.seq)
        merged, rows = [], []
        for views in group(members):
            entry = merged_before.get(views[0].uid)
            if entry is None or not _same(entry[0], views):
                entry = tuple(views), merge_views([view.tuning for view in views])
            merged.append(entry)
        away = foreign([tuning for _, tuning in merged])
        for (views_of, tuning), others in zip(merged, away, strict=True):
            joined = without(tuning, others) if others else tuning
            rows.append(_row(views_of, joined, finish, old))
        caches = [member.tuning for member in members if is_cache(member.tuning)]
        if len(rows) > 1 or any(map(_has_untimed, caches)):
            rows = _as_used(rows, caches, sessions)
        if shares is not None:
            known_shares = shares([(row.tuning, row.asked) for row in rows])
            rows = [
                row if row.share == share else replace(row, share=share)
                for row, share in zip(rows, known_shares, strict=True)
            ]
        self.rows, self._merged = _numbered(by_problem(rows)), merged
        return before


def _as_used(
    rows: list[Row], caches: Sequence[Tuning], sessions: Mapping[str, Session]
) -> list[Row]:
    """Return the rows with what programs take now: one key has one answer, and one name for it."""
    names: dict[tuple[TuningKey | None, str | None], set[str | None]] = {}
    used = []
    for row in rows:
        taken = cached_choice(row.tuning, caches, sessions) if caches else None
        best = winner(row.tuning)
        hash = row.pin.pin.hash if row.pin else taken or (best.hash if best else None)
        used.append((row, taken, hash))
        called = (choice.name for choice in row.tuning.choices if hash and choice.hash == hash)
        names.setdefault((row.tuning.key, hash), set()).update(called)
    return [
        row if (row.taken, row.renamed) == shown else replace(row, taken=shown[0], renamed=shown[1])
        for row, taken, hash in used
        for shown in [(taken, len(names[row.tuning.key, hash] - {None}) > 1)]
    ]


def _has_untimed(cache: Tuning) -> bool:
    """Whether programs take another choice from a cache than one whose number is no time."""
    return any(choice.ms is None and not choice.failed for choice in cache.choices)


def _same(left: Sequence[TuningView], right: Sequence[TuningView]) -> bool:
    return len(left) == len(right) and all(a is b for a, b in zip(left, right, strict=True))


def _row(
    views: tuple[TuningView, ...], joined: Tuning, finish: Finish, old: Mapping[str, Row]
) -> Row:
    tuning, pin, suspect, device, awaits, beside = finish(joined)
    if len(views) == 1:
        (first,) = views
        id_ = first.id or first.tuning.id
        ids: Iterable[str] = ()
        asked: tuple[str, ...] = (first.tuning.session,) if first.tuning.session else ()
    else:
        first = min(views, key=lambda view: view.seq)
        id_, ids = joined.id, dict.fromkeys([view.tuning.id for view in views])
        asked = tuple([view.tuning.session for view in views if view.tuning.session])
    before = old.get(first.uid)
    if before is not None and before.tuning is tuning:
        state_before = before.pin, before.suspect, before.device, before.awaits_pin, before.beside
        if state_before == (pin, suspect, device, awaits, beside):
            return before
    aliases = tuple([alias for alias in ids if alias != id_]) if ids else ()
    layout = layout_of(tuning) if tuning.strides else ""
    facts = first.seen, aliases, asked, first.seq, suspect, None, device, awaits, layout, beside
    return Row(first.uid, id_, 1, tuning, pin, *facts)


def by_problem(rows: list[Row]) -> list[Row]:
    """Rows of which those of several devices are one where their problem is the same: the latest
    of each device, then the one before. The others stay as they are."""
    if len({row.tuning.device_index for row in rows} - {None}) < 2:
        return rows  # most of them
    alone: list[Row] = []
    problems: dict[TuningKey, dict[int, list[Row]]] = {}
    for row in rows:
        key, index = row.tuning.key, row.tuning.device_index
        if key is None or index is None or key.op == TRITON:  # a pin of that is of one device
            alone.append(row)
        else:
            problems.setdefault(key, {}).setdefault(index, []).append(row)
    for devices in problems.values():
        latest = [sorted(its, key=attrgetter("age"), reverse=True) for its in devices.values()]
        for turn in zip_longest(*latest):
            its = sorted(filter(None, turn), key=lambda row: row.tuning.device_index or 0)
            alone.append(its[0] if len(its) == 1 else _of_devices(its))
    return alone


def _of_devices(rows: Sequence[Row]) -> Row:
    first = rows[0]
    ids = dict.fromkeys(id_ for row in rows for id_ in row.ids)
    return replace(
        first,
        aliases=tuple(id_ for id_ in ids if id_ != first.id),
        asked=tuple(session for row in rows for session in row.asked),
        seq=max(row.seq for row in rows),
        awaits_pin=any(row.awaits_pin for row in rows),
        devices=tuple(replace(r, key=f"{r.key}{_OF_DEVICE}{r.tuning.device_index}") for r in rows),
    )


def _numbered(rows: list[Row]) -> list[Row]:
    """Return the rows with the occurrences of each id counted, oldest first."""
    if len(rows) == 1 and rows[0].occurrence == 1:
        return rows
    counts: dict[str, int] = {}
    place: dict[str, int] = {}
    for row in sorted(rows, key=lambda row: row.age):
        place[row.key] = counts[row.id] = counts.get(row.id, 0) + 1
    return [
        row if row.occurrence == place[row.key] else _with_occurrence(row, place[row.key])
        for row in rows
    ]


def _with_occurrence(row: Row, occurrence: int) -> Row:
    devices = tuple([replace(device, occurrence=occurrence) for device in row.devices])
    return replace(row, occurrence=occurrence, devices=devices)


def device_row(key: str, find: Callable[[str], Row | None]) -> Row | None:
    """The row of one device by its key; `find` gives that of the problem by a tuning's uid."""
    uid, mark, _ = key.rpartition(_OF_DEVICE)
    row = find(uid) if mark else None
    return next((device for device in row.devices if device.key == key), None) if row else None


@dataclass(frozen=True, slots=True)
class Changes:
    """What a screen has to paint: rows by key; whether rows came, went or moved."""

    changed: frozenset[str] = frozenset()
    order_changed: bool = False

    def __bool__(self) -> bool:
        return bool(self.changed) or self.order_changed


_machine = attrgetter("system_hash", "device", "arch", "compute_units")
"""What a session says of the machine of a system's tunings."""


class Model:
    """All tunings, sessions and problems of the sources read so far."""

    def __init__(self) -> None:
        self.sessions: dict[str, Session] = {}
        self._problems: dict[Fault, None] = {}
        self._places: dict[Bucket, ProblemViews] = {}
        self._of_uid: dict[str, Bucket] = {}
        self._of_source: dict[str, list[str]] = {}
        self._left: dict[str, dict[str, tuple[int, float | None]]] = {}
        self._arrivals = 0
        self._touched: dict[Bucket, None] = {}
        self._touched_keys: set[tuple[str, str]] = set()
        self._touched_sessions: set[str] = set()
        self._machines: set[tuple[object, ...]] = set()
        self._rows: dict[str, Row] = {}
        self._pins = Pins(self.sessions)
        self._measurements = Measurements()
        self._tables = Tables()
        self.graphs = Graphs(self.sessions)
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
            self._order = sorted(self._rows.values(), key=attrgetter("age"), reverse=True)
        return self._order.copy()

    def rows(self) -> list[Row]:
        """A row for each tuning, which is of one device; in the same order."""
        listed = self.listed()
        return [device for row in listed for device in row.devices or (row,)]

    def measurements(self, tuning: Tuning) -> tuple[Measurement, ...]:
        """Return all repeated measurements of a tuning, latest first."""
        return self._measurements.of(tuning, self.sessions)

    def members(self, tuning: Tuning) -> tuple[TuningView, ...]:
        """Return the views of single sources on the problem of a tuning, before they are joined."""
        place = self._places.get(bucket_of(tuning))
        return place.members if place else ()

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
                if record.anew:
                    self._left.pop(record.source, None)
                for problem in [p for p in self._problems if p.source == record.source]:
                    del self._problems[problem]
                self._touched_keys |= self._measurements.forget(record.source)
                self.graphs.forget(record.source)
                self.processes.forget(record.source)
            elif isinstance(record, SessionSeen):
                self._put_session(record.session)
            elif isinstance(record, ActivitySeen):
                self.processes.add(record)
            elif isinstance(record, MeasurementSeen):
                self._touched_keys |= self._measurements.add(record)
            elif isinstance(record, GraphSeen):
                self.graphs.add(record)
            elif isinstance(record, GraphTold):
                self.graphs.add_text(record)
            elif isinstance(record, TrialSeen):
                self.graphs.add_trial(record)
            else:
                self._problems[record] = None

    @property
    def held(self) -> int:
        """How many tunings the sources have, before they are joined."""
        return len(self._of_uid)

    @property
    def unjoined(self) -> bool:
        """Whether records were taken in that no row shows yet."""
        touched = self._touched or self._touched_keys or self._touched_sessions
        return bool(touched or self.graphs.unjoined)

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
            place = self._places[bucket] = ProblemViews()
        source = intern(source_of(uid))
        if before != bucket:
            self._of_source.setdefault(source, []).append(uid)
            self._of_uid[uid] = bucket
            arrival = self._left.get(source, {}).pop(uid, None)
        elif place.has(uid, tuning):
            return
        else:
            (old,) = place.remove({uid})
            arrival = old.seq, old.seen
        if arrival is None:
            self._arrivals += 1
            arrival = self._arrivals, now
        place.add(TuningView(uid, source, tuning, arrival[0], record.id, arrival[1]))
        self._touched[bucket] = None

    def _put_session(self, session: Session) -> None:
        """Take in a session. It touches its own tunings and those of its system, also what a cache
        has of them, but only where it is the first to say what machine that is."""
        latest = fuller(self.sessions.get(session.id), session)
        self.sessions[session.id] = latest
        machine = _machine(latest)
        if machine not in self._machines:
            self._machines.add(machine)
            self._touched_sessions.add(session.id)

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
            self._left.setdefault(member.source, {})[member.uid] = member.seq, member.seen
        self._touched[bucket] = None

    def join(self, seconds: float = inf) -> Changes:
        """Make rows of what was taken in, problem by problem, for at most this many seconds."""
        end = monotonic() + seconds
        self._find_touched()
        shares = self.graphs.shares if self.graphs.held else None
        before: dict[str, Row] = {}
        after: dict[str, Row] = {}
        while self._touched or (self.graphs.unjoined and self._find_touched()):
            bucket, _ = self._touched.popitem()
            place = self._places[bucket]
            were = place.join(self._pins.unmasked, self._finished, self.sessions, shares)
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
                self._join_beside(were, place.rows)
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
        if before or after:
            self._order = None
        return Changes(frozenset(changed), order)

    def _join_beside(self, old: Sequence[Row], new: Sequence[Row]) -> None:
        """Entries of a table went and came: tunings of their product show them no more, or now."""
        gone = [self._tables.remove(row.tuning) for row in old]
        came = [self._tables.add(row.tuning) for row in new]
        for bucket in chain(*gone, *came):
            if bucket in self._places:
                self._touched[bucket] = None

    def _find_touched(self) -> bool:
        """Mark the problems of the ops and inputs keys, and of the sessions, of which something
        else became known; return whether there are any."""
        keys, self._touched_keys = self._touched_keys | self.graphs.touched(), set()
        sessions, self._touched_sessions = self._touched_sessions, set()
        if keys or sessions:
            for bucket, place in self._places.items():
                tunings = [member.tuning for member in place.members]
                by_key = any((tuning.op, tuning.inputs_key) in keys for tuning in tunings)
                if by_key or (sessions and self._are_of(sessions, tunings)):
                    self._touched[bucket] = None
        return bool(self._touched)

    def _are_of(self, sessions: Collection[str], tunings: Iterable[Tuning]) -> bool:
        """Whether any of these tunings is of one of the sessions, or of its system."""
        systems = {self.sessions[session].system_hash for session in sessions}
        return any(
            tuning.session in sessions or not systems.isdisjoint(systems_of(tuning, self.sessions))
            for tuning in tunings
        )

    def _finished(self, tuning: Tuning) -> Finished:
        measured = self._measurements.attach(tuning, self.sessions)
        pin, device, peak = self._pins.of(measured), measured.device or "", None
        if measured.entry is not None:
            return measured, None, None, measured.entry.device, False, ()
        if device != "cpu" and self.sessions:
            machine = machine_of(measured, self.sessions)
            device, peak = device_of(machine) or device, published(machine)
        awaits = self._pins.awaits(measured)
        beside = self._tables.of(measured) if self._tables else ()
        return measured, pin, suspicion(measured, peak), device, awaits, beside
