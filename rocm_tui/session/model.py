"""The model of a screen: records go in, rows come out, and which of them changed.

Pure state, without a screen, a thread or a file. A row is one tuning, joined from every source
that tells of it; only the problem that a record touches is joined again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from math import inf, isinf
from time import monotonic
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
from rocm_tui.session.join import Member, group, problem_of
from rocm_tui.session.join import Problem as Bucket
from rocm_tui.session.measurements import Measurements
from rocm_tui.session.merge import merge

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
    aliases: tuple[str, ...] = ()
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


@dataclass(frozen=True, slots=True)
class _Joined:
    """One tuning out of its views, which are kept to see whether it has to be made again."""

    views: tuple[Member, ...]
    tuning: Tuning
    aliases: tuple[str, ...]
    asked: tuple[str, ...]

    @classmethod
    def of(cls, views: Sequence[Member]) -> _Joined:
        told = [view.tuning for view in views]
        return cls(
            tuple(views),
            merge(told),
            tuple({tuning.id: None for tuning in told}),
            tuple(tuning.session for tuning in told if tuning.session),
        )


def _same(one: Sequence[Member], two: Sequence[Member]) -> bool:
    return len(one) == len(two) and all(a is b for a, b in zip(one, two, strict=True))


class Model:
    """All tunings, sessions and problems of the sources read so far."""

    def __init__(self) -> None:
        self.sessions: dict[str, Session] = {}
        self._problems: dict[Problem, None] = {}
        self._members: dict[str, Member] = {}
        self._of_source: dict[str, dict[str, None]] = {}
        self._of_keys: dict[tuple[str, str | None], set[Bucket]] = {}
        self._buckets: dict[Bucket, set[str]] = {}
        self._touched: dict[Bucket, None] = {}
        self._joined: dict[str, _Joined] = {}
        self._bucket_rows: dict[Bucket, list[str]] = {}
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
                for uid in list(self._of_source.get(record.source, ())):
                    self._remove(uid)
                for problem in [p for p in self._problems if p.source == record.source]:
                    del self._problems[problem]
                self._touch(self._measurements.forget(record.source))
            elif isinstance(record, SessionSeen):
                self.sessions[record.session.id] = record.session
            elif isinstance(record, MeasurementSeen):
                self._touch(self._measurements.add(record))
            else:
                self._problems[record] = None

    @property
    def held(self) -> int:
        """How many tunings the sources tell of, before they are joined."""
        return len(self._members)

    @property
    def unjoined(self) -> bool:
        """Whether records were taken in that no row shows yet."""
        return bool(self._touched)

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
        self._touch(keys)
        return self.join()

    def _touch(self, keys: Set[tuple[str, str]]) -> None:
        """Join the problems of these ops and inputs keys again."""
        for key in keys:
            self._touched.update(dict.fromkeys(self._of_keys.get(key, ())))

    def _put(self, record: Seen, now: float | None) -> None:
        old = self._members.get(record.uid)
        if old is not None:
            if old.tuning == record.tuning:
                return
            self._remove(record.uid)
        if record.uid not in self._arrival:
            self._arrivals += 1
            self._arrival[record.uid] = (self._arrivals, now)
        tuning, source = record.tuning, source_of(record.uid)
        self._members[record.uid] = Member(record.uid, source, tuning, self._arrival[record.uid][0])
        self._of_source.setdefault(source, {})[record.uid] = None
        bucket = problem_of(tuning)
        self._of_keys.setdefault((tuning.op, tuning.inputs_key), set()).add(bucket)
        self._buckets.setdefault(bucket, set()).add(record.uid)
        self._touched[bucket] = None

    def _remove(self, uid: str) -> None:
        member = self._members.pop(uid, None)
        if member is None:
            return
        del self._of_source[member.source][uid]
        bucket = problem_of(member.tuning)
        self._buckets[bucket].discard(uid)
        self._touched[bucket] = None

    def join(self, seconds: float = inf) -> Changes:
        """Make rows of what was taken in, problem by problem, until so many seconds are over."""
        end = monotonic() + seconds
        before: dict[str, Row] = {}
        after: list[str] = []
        ids: set[str] = set()
        while self._touched and (not after or monotonic() < end):
            bucket = next(iter(self._touched))
            del self._touched[bucket]
            old = {key: self._rows.pop(key) for key in self._bucket_rows.pop(bucket, ())}
            for row in old.values():
                self._ids[row.id].discard(row.key)
            ids.update(row.id for row in old.values())
            rows = self._rows_of(bucket, old)
            for row in rows:
                self._rows[row.key] = row
                self._ids.setdefault(row.id, set()).add(row.key)
                ids.add(row.id)
                after.append(row.key)
            before |= old
        self._number(ids)
        changed = {
            key
            for key in {*before, *after}
            if before.get(key) is not self._rows.get(key) and before.get(key) != self._rows.get(key)
        }
        order = any(
            (old is None) != (new is None) or (old and new and old.when != new.when)
            for key in changed
            for old, new in [(before.get(key), self._rows.get(key))]
        )
        self._order = None if order else self._order
        return Changes(frozenset(changed), order)

    def _rows_of(self, bucket: Bucket, old: Mapping[str, Row]) -> list[Row]:
        """The rows of one problem, as before where nothing about them changed."""
        uids = self._buckets.get(bucket)
        known = {key: self._joined.pop(key) for key in old}
        if not uids:
            self._buckets.pop(bucket, None)
            return []
        members = [self._unmasked(self._members[uid]) for uid in uids]
        rows: list[Row] = []
        for views in group(members):
            key = min(views, key=lambda view: view.seq).uid
            one = known.get(key)
            if one is None or not _same(one.views, views):
                one = _Joined.of(views)
            self._joined[key] = one
            rows.append(self._row_of(key, one, old.get(key)))
        self._bucket_rows[bucket] = [row.key for row in rows]
        return rows

    def _row_of(self, key: str, one: _Joined, old: Row | None) -> Row:
        tuning = self._measurements.attach(one.tuning, self.sessions)
        pin = self._pin_of(tuning)
        if old is not None and old.tuning is tuning and old.pin == pin:
            return old
        seen = self._arrival[key][1]
        return Row(key, one.tuning.id, 1, tuning, pin, seen, one.aliases, one.asked)

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
        pins = self._pins.get((tuning.op, tuning.inputs_key or ""))
        if not pins:
            return None
        places = [source.rsplit("/", 2) for source in tuning.sources]
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
