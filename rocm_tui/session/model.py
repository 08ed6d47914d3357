"""The model of a screen: records go in, rows come out, and which of them changed.

Pure state, without a screen, a thread or a file. A row is one tuning, joined from every source
that tells of it; only the problem that a record touches is joined again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace
from math import isinf
from typing import TYPE_CHECKING

from backend.records import (
    Choice,
    Measurement,
    PinState,
    Problem,
    Session,
    Tuning,
    sort_choices,
)
from rocm_tui.ingest.records import (
    Dropped,
    Gone,
    MeasurementSeen,
    Record,
    Seen,
    SessionSeen,
    source_of,
)
from rocm_tui.session import join
from rocm_tui.session.join import Member
from rocm_tui.session.measurements import Measurements

if TYPE_CHECKING:
    from backend.store.pins import PinStatus


_CACHE_FILES = "cache"
"""The folder of Inductor's persistent cache, whose files are named by their system's hash."""


@dataclass(frozen=True, slots=True)
class Row:
    """One tuning as it is shown.

    `key` is stable while the row lives; `seen` is Unix time. `aliases` are the ids under which
    the single sources know it: a log, which tells no precision, gives it another than the cache.
    `asked` holds the session of each time that a session log tells of it, reuses included.
    """

    key: str
    id: str
    occurrence: int
    tuning: Tuning
    pin: PinStatus | None = None
    seen: float | None = None
    aliases: frozenset[str] = frozenset()
    asked: tuple[str, ...] = ()

    @property
    def when(self) -> float | None:
        """When it was tuned, else when it was first seen, if either is known."""
        return self.tuning.when if self.tuning.when is not None else self.seen

    @property
    def pin_state(self) -> PinState | None:
        return self.pin.state if self.pin else None


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
        self._problems: dict[Problem, None] = {}
        self._members: dict[str, Member] = {}
        self._buckets: dict[join.Problem, set[str]] = {}
        self._bucket_rows: dict[join.Problem, list[str]] = {}
        self._rows: dict[str, Row] = {}
        self._arrival: dict[str, tuple[int, float | None]] = {}
        self._ids: dict[str, set[str]] = {}
        self._pins: dict[tuple[str, str], list[PinStatus]] = {}
        self._measurements = Measurements()
        self._order: list[str] | None = None
        self._arrivals = 0

    @property
    def problems(self) -> list[Problem]:
        """Everything that could not be used, oldest first, each once."""
        return list(self._problems)

    def row(self, key: str) -> Row | None:
        return self._rows.get(key)

    def rows(self) -> list[Row]:
        """Newest first; tunings of unknown age are as old as their place in their source says."""
        if self._order is None:
            rows = sorted(self._rows.values(), key=self._age, reverse=True)
            self._order = [row.key for row in rows]
        return [self._rows[key] for key in self._order]

    def measurements(self, tuning: Tuning) -> tuple[Measurement, ...]:
        """All repeated measurements that tell of a tuning, latest first."""
        return self._measurements.of(tuning, self.sessions)

    def apply(self, records: Iterable[Record], now: float | None = None) -> Changes:
        """Take records in. `now` dates tunings whose source does not; none for old files."""
        touched: set[join.Problem] = set()
        for record in records:
            if isinstance(record, Seen):
                touched |= self._put(record, now)
            elif isinstance(record, Dropped):
                touched |= self._remove(record.uid)
            elif isinstance(record, Gone):
                for uid in [u for u, m in self._members.items() if m.source == record.source]:
                    touched |= self._remove(uid)
                for problem in [p for p in self._problems if p.source == record.source]:
                    del self._problems[problem]
                touched |= self._with_keys(self._measurements.forget(record.source))
            elif isinstance(record, SessionSeen):
                self.sessions[record.session.id] = record.session
            elif isinstance(record, MeasurementSeen):
                touched |= self._with_keys(self._measurements.add(record))
            else:
                self._problems[record] = None
        return self._join(touched)

    def set_pins(self, statuses: Iterable[PinStatus]) -> Changes:
        """Show these pins. A pinned tuning keeps its measured times."""
        pins: dict[tuple[str, str], list[PinStatus]] = {}
        for status in statuses:
            pins.setdefault((status.pin.op, status.pin.inputs), []).append(status)
        if pins == self._pins:
            return Changes()
        keys = {
            key for key in pins.keys() | self._pins.keys() if pins.get(key) != self._pins.get(key)
        }
        self._pins = pins
        return self._join(self._with_keys(keys))

    def _with_keys(self, keys: Set[tuple[str, str]]) -> set[join.Problem]:
        """The problems of members with one of these ops and inputs keys."""
        if not keys:
            return set()
        return {
            join.problem_of(member.tuning)
            for member in self._members.values()
            if (member.tuning.op, member.tuning.inputs_key) in keys
        }

    def _put(self, record: Seen, now: float | None) -> set[join.Problem]:
        old = self._members.get(record.uid)
        if old is not None and old.tuning == record.tuning:
            return set()
        touched = self._remove(record.uid) if old else set()
        if record.uid not in self._arrival:
            self._arrivals += 1
            self._arrival[record.uid] = (self._arrivals, now)
        source = source_of(record.uid)
        member = Member(record.uid, source, record.tuning, self._arrival[record.uid][0])
        self._members[record.uid] = member
        bucket = join.problem_of(record.tuning)
        self._buckets.setdefault(bucket, set()).add(record.uid)
        return touched | {bucket}

    def _remove(self, uid: str) -> set[join.Problem]:
        member = self._members.pop(uid, None)
        if member is None:
            return set()
        bucket = join.problem_of(member.tuning)
        self._buckets[bucket].discard(uid)
        return {bucket}

    def _join(self, buckets: set[join.Problem]) -> Changes:
        before: dict[str, Row] = {}
        ids: set[str] = set()
        for bucket in buckets:
            for key in self._bucket_rows.pop(bucket, ()):
                row = before[key] = self._rows.pop(key)
                self._ids[row.id].discard(key)
                ids.add(row.id)
            ids |= self._fill_bucket(bucket)
        self._number(ids)
        after = {key for bucket in buckets for key in self._bucket_rows.get(bucket, ())}
        changed = {key for key in after | before.keys() if before.get(key) != self._rows.get(key)}
        order = any(
            (old is None) != (new is None) or (old and new and old.when != new.when)
            for key in changed
            for old, new in [(before.get(key), self._rows.get(key))]
        )
        self._order = None if order else self._order
        return Changes(frozenset(changed), order)

    def _fill_bucket(self, bucket: join.Problem) -> set[str]:
        """Make the rows of one problem; return their ids."""
        uids = self._buckets.get(bucket)
        if not uids:
            self._buckets.pop(bucket, None)
            return set()
        members = [self._unmasked(self._members[uid]) for uid in uids]
        members.sort(key=lambda member: member.seq)
        ids: set[str] = set()
        keys: list[str] = []
        for views in join.group(members):
            tuning = self._measurements.attach(join.merge(views), self.sessions)
            key = min(views, key=lambda view: view.seq).uid
            pin = self._pin_of(tuning)
            seen = self._arrival[key][1]
            aliases = frozenset(view.tuning.id for view in views)
            asked = tuple(view.tuning.session for view in views if view.tuning.session)
            row = Row(key, tuning.id, 1, tuning, pin, seen, aliases, asked)
            self._rows[key] = row
            self._ids.setdefault(row.id, set()).add(key)
            ids.add(row.id)
            keys.append(key)
        self._bucket_rows[bucket] = keys
        return ids

    def _number(self, ids: set[str]) -> None:
        """Count the occurrences of each id, oldest first."""
        for id_ in ids:
            rows = sorted((self._rows[key] for key in self._ids.get(id_, ())), key=self._age)
            for occurrence, row in enumerate(rows, start=1):
                if row.occurrence != occurrence:
                    self._rows[row.key] = replace(row, occurrence=occurrence)
            if not rows:
                self._ids.pop(id_, None)

    def _age(self, row: Row) -> tuple[float, int]:
        return row.when or 0.0, self._arrival[row.key][0]

    def _pin_of(self, tuning: Tuning) -> PinStatus | None:
        """The pin of the system that tuned this: another device or Triton has another cache file.

        Where no source tells the system, the pin of any.
        """
        pins = self._pins.get((tuning.op, tuning.inputs_key or ""), [])
        places = [source.rsplit("/", 2) for source in tuning.sources] if pins else []
        systems = {place[-1] for place in places if place[-2:-1] == [_CACHE_FILES]}
        session = self.sessions.get(tuning.session or "")
        if session is not None and session.system_hash:
            systems.add(session.system_hash)
        fits = (status for status in pins if not systems or status.pin.system_hash in systems)
        return next(fits, None)

    def _unmasked(self, member: Member) -> Member:
        """Put a pinned tuning's measured times in place of the `Infinity` by which an older version
        held the pin; raised numbers are read as what was measured."""
        tuning = member.tuning
        status = self._pin_of(tuning)
        if status is None or tuning.session is not None or tuning.precision is None:
            return member
        measured = status.pin.timings.get(tuning.precision, {})
        return replace(member, tuning=replace(tuning, choices=_with_times(tuning, measured)))


def _with_times(tuning: Tuning, measured: Mapping[str, float]) -> tuple[Choice, ...]:
    def restored(choice: Choice) -> Choice:
        ms = measured.get(choice.hash or "")
        if ms is None or isinf(ms) or not choice.failed:
            return choice
        return replace(choice, ms=ms, failed=False, reason=None)

    return sort_choices([restored(choice) for choice in tuning.choices])
