"""The history of one problem: every time it was tuned, taken from the cache, measured or pinned, as
the sources have it. Pure functions.

A problem is an op on inputs of these sizes, strides and types, in a precision. What a source does
not have stays unknown: a cache does not say when, a log not by which process.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from backend.counted import counted
from backend.disk.safe import open_regular
from backend.errors import StoreError
from backend.model.inductor_kernel import is_kernel, portable_part
from backend.model.origin import extern_name, kind_of
from backend.model.session import Session, systems_of
from backend.model.tuning import Tuning
from backend.pins.file import HistoryEntry
from rocm_tui.harmless import clean
from rocm_tui.session import stats
from rocm_tui.session.model import Model, Row
from rocm_tui.session.numbers import rounding
from rocm_tui.session.stats import Standing
from rocm_tui.session.views import is_reuse, is_selection


@dataclass(frozen=True, slots=True)
class Versions:
    """What a cache file says of its system; empty where it does not."""

    triton: str = ""
    hip: str = ""


What = Literal[
    "tuned", "one choice", "cut off", "running", "from cache", "from pin", "from rank", "measured",
    "pin", "unpin", "note", "drift", "restore", "verify", "refute", "migrate",
]  # fmt: skip
_OF_PINS: Mapping[str, What] = {
    name: name for name in ("unpin", "note", "drift", "restore", "verify", "refute", "migrate")
}
"""What happens to a pin besides pinning."""
_FROM: dict[str | None, What] = {"pin": "from pin", "rank": "from rank"}


@dataclass(frozen=True, slots=True)
class Setup:
    """The versions and the device it was done with; empty if unknown."""

    torch: str = ""
    triton: str = ""
    rocm: str = ""
    device: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened. `when` is Unix time; `label` and `hash` are of the choice that won,
    was taken or pinned, `ms` its time, with `low` and `high` where it was measured.

    `kernel` is the same on every device of a box and in every source: the hash on device 0, the
    hash of a call of ATen that a log names without one, else the hash or the name.
    `gain` is ATen's time over it, `error` its relative error by the digits of both times.
    `standing` is how the winner compares with its rivals. `changed` lists what differs from the
    last event that has it. `row` is the tuning to look at.
    """

    what: What
    when: float | None
    label: str = ""
    hash: str | None = None
    kernel: str = ""
    ms: float | None = None
    low: float | None = None
    high: float | None = None
    gain: float | None = None
    error: float = 0.0
    standing: Standing | None = None
    session: str = ""
    setup: Setup = field(default_factory=Setup)
    changed: tuple[str, ...] = ()
    note: str = ""
    row: Row | None = None


@dataclass(frozen=True, slots=True)
class History:
    """The events of the problem of `row`, oldest first; `undated` have no known time."""

    row: Row
    events: tuple[Event, ...]
    undated: tuple[Event, ...] = ()


def same_problem(left: Tuning, right: Tuning) -> bool:
    """Nothing that both know of the problem differs; who tuned it does not matter."""
    if left.key is not None and right.key is not None:
        return left.key == right.key
    if is_kernel(left.op) or is_kernel(right.op):
        same = portable_part(left.inputs_key or "") == portable_part(right.inputs_key or "")
        return left.op == right.op and same
    facts = (
        (left.op.lstrip("_"), right.op.lstrip("_")),
        (left.shapes, right.shapes),
        (left.strides, right.strides),
        (left.dtypes, right.dtypes),
        (left.precision, right.precision),
        ((left.device or "").partition(":")[0], (right.device or "").partition(":")[0]),
    )
    return not any(mine and theirs and mine != theirs for mine, theirs in facts)


def cache_files(model: Model, row: Row) -> dict[str, str]:
    """The systems that tuned it, by the hashes that name their cache files, and the path of such a
    file where it is among the sources."""
    files: dict[str, str] = {}
    for each in _rows(model, row):
        files |= dict.fromkeys(systems_of(each.tuning, model.sessions), "")
    for each in _rows(model, row):
        named = ((path.rpartition("/")[2], path) for path in each.tuning.sources)
        files |= {name: path for name, path in named if name in files}
    return files


def history(
    model: Model,
    row: Row,
    pins: Iterable[HistoryEntry] = (),
    versions: Mapping[str, Versions] | None = None,
) -> History:
    """The history of the problem of `row`. `pins` is what happened to pins, `versions` what cache
    files say of their systems, by hash."""
    rows = _rows(model, row)
    writer = _EventWriter(model.sessions, versions or {})
    members = [member.tuning for member in model.members(row.tuning)]
    taken = (t for t in members if is_reuse(t) and not is_selection(t))
    reuses = [t for t in taken if any(same_problem(t, r.tuning) for r in rows)]
    events = [event for each in rows for event in writer.of_row(each, reuses)]
    events += [writer.reuse(tuning, rows) for tuning in reuses]
    events += writer.measurements(model, rows)
    key = next((each.tuning.key for each in rows if each.tuning.key is not None), None)
    if key is not None:
        fits = (pin for pin in pins if (pin.op, pin.inputs) == (key.op, key.inputs))
        events += [_of_pin(pin) for pin in fits if pin.precision == key.precision]
    events = _with_kernels(events, rows)
    dated = sorted((e for e in events if e.when is not None), key=lambda e: e.when or 0.0)
    return History(row, _with_changes(dated), tuple(e for e in events if e.when is None))


def _with_kernels(events: Sequence[Event], rows: Iterable[Row]) -> list[Event]:
    """Return the events with the one name that their choice has in all of them."""
    choices = [choice for row in rows for choice in row.tuning.choices]
    identities = {choice.hash: choice.identity for choice in choices if choice.identity}
    hashes = [*(choice.hash for choice in choices), *(event.hash for event in events)]
    calls = {extern_name(hash): hash for hash in hashes if hash and not kind_of(hash)}
    return [
        replace(e, kernel=identities.get(e.hash) or e.hash or calls.get(e.label, e.label))
        for e in events
    ]


def _rows(model: Model, row: Row) -> list[Row]:
    return [other for other in model.rows()[::-1] if same_problem(other.tuning, row.tuning)]


class _EventWriter:
    """Makes events of tunings, with the session and the versions of each."""

    def __init__(self, sessions: Mapping[str, Session], versions: Mapping[str, Versions]) -> None:
        self._sessions = sessions
        self._versions = versions

    def of_row(self, row: Row, reuses: Sequence[Tuning]) -> list[Event]:
        """Return the tuning itself; nothing if only its reuses are known. If a cache has it, its
        time is unknown."""
        tuning = row.tuning
        best = stats.winner(tuning) or stats.chosen(tuning)
        if any((t.session, t.when) == (tuning.session, tuning.when) for t in reuses):
            if best is None:
                return []
            tuning = replace(tuning, when=None, session=None)
        event = Event(
            _what(tuning),
            tuning.when,
            label=best.label if best else "",
            hash=best.hash if best else None,
            ms=stats.single_ms(tuning, best),
            gain=_gain(tuning),
            error=rounding(*(c.ms for c in (stats.winner(tuning), stats.aten(tuning)) if c)),
            standing=stats.standing(replace(tuning, measured=None))
            if tuning.state == "done"
            else None,
            session=tuning.session or "",
            setup=self._setup(tuning, row),
            row=row,
        )
        return [event]

    def reuse(self, tuning: Tuning, rows: Sequence[Row]) -> Event:
        """A session took what was known; it timed nothing."""
        home = next((r for r in rows if tuning.session in r.asked), rows[0])
        same = (c for c in (*tuning.choices, *home.tuning.choices) if c.hash == tuning.selected)
        choice = next(same, None)
        return Event(
            _FROM.get(tuning.selected_by, "from cache"),
            tuning.when,
            label=choice.label if choice else tuning.selected or "",
            hash=tuning.selected,
            session=tuning.session or "",
            setup=self._setup(tuning, None),
            row=home,
        )

    def measurements(self, model: Model, rows: Sequence[Row]) -> list[Event]:
        """All of them, each once."""
        rows_by_measurement = {m: row for row in rows for m in model.measurements(row.tuning)}
        return [
            Event(
                "measured",
                measured.when or None,
                label=first.name or _label_in(row, first.hash),
                hash=first.hash,
                ms=first.ms,
                low=first.low,
                high=first.high,
                standing=stats.AGAINST_BEST[first.verdict] if len(measured.choices) > 1 else None,
                session=measured.session or "",
                setup=self._of(measured.session, measured.system_hash, measured.device or ""),
                note=f"{measured.caches}, {counted(measured.rounds, 'round')}",
                row=row,
            )
            for measured, row in rows_by_measurement.items()
            for first in measured.choices[:1]
        ]

    def _setup(self, tuning: Tuning, row: Row | None) -> Setup:
        systems = systems_of(tuning, self._sessions)
        only = next(iter(systems)) if len(systems) == 1 else None
        return self._of(tuning.session, only, row.device if row else "")

    def _of(self, session_id: str | None, system: str | None, device: str) -> Setup:
        session = self._sessions.get(session_id or "")
        system = (session.system_hash if session else None) or system
        versions = self._versions.get(system or "", Versions())
        torch = session.torch if session else ""
        rocm = versions.hip or torch.partition("+rocm")[2]
        if session is not None:
            device = session.arch or session.device or device
        return Setup(torch, versions.triton, rocm, device)


def _what(tuning: Tuning) -> What:
    if tuning.state == "done":
        return "one choice" if stats.single(tuning) else "tuned"
    return "running" if tuning.state == "running" else "cut off"


def _gain(tuning: Tuning) -> float | None:
    """By the tuning's own times: what was measured later is another event."""
    best, rival = stats.winner(tuning), stats.aten(tuning)
    if tuning.state != "done" or best is None or rival is None or rival is best:
        return None
    return rival.ms / best.ms if rival.ms and best.ms else None


def _label_in(row: Row, hash: str) -> str:
    return next((c.label for c in row.tuning.choices if c.hash == hash), hash)


def _of_pin(pin: HistoryEntry) -> Event:
    note = ": ".join(filter(None, (f"{pin.what} by {pin.who}", pin.note)))
    return Event(_OF_PINS.get(pin.what, "pin"), pin.when, label=pin.label, hash=pin.hash, note=note)


def _with_changes(events: Sequence[Event]) -> tuple[Event, ...]:
    """Return each event with what differs from the last one that has it."""
    before: dict[str, str] = {}
    changed_events = []
    for event in events:
        changed = []
        for name in ("torch", "triton", "rocm", "device"):
            now = getattr(event.setup, name)
            if now and before.setdefault(name, now) != now:
                changed.append(f"{name} {before[name]} → {now}")
            before[name] = now or before.get(name, "")
        changed_events.append(replace(event, changed=tuple(changed)))
    return tuple(changed_events)


_MARK = '"system":'
_HEAD = 8192


def system_versions(path: Path) -> Versions:
    """Reads the beginning of a cache file: call it off the event loop."""
    version = _system(path).get("version")
    if not isinstance(version, dict):
        return Versions()
    triton, hip = version.get("triton"), version.get("hip")
    return Versions(_triton(triton), clean(hip)[:40] if isinstance(hip, str) else "")


def _triton(key: object) -> str:
    """`3.9.0` of `3.9.0<64 hex digits>-...`, Triton's version and what its own files hash to."""
    first = str(key).partition("-")[0] if isinstance(key, str) else ""
    return clean(first[:-_DIGEST] if len(first) > _DIGEST else first)[:40]


_DIGEST = 64


def _system(path: Path) -> dict[str, Any]:
    """Return the `system` of a cache file; empty for another file."""
    try:
        with open_regular(path, follow=True) as file:
            text = file.read(_HEAD).decode(errors="replace")
        at = text.index(_MARK) + len(_MARK)
        system, _ = json.JSONDecoder().raw_decode(text[at:].lstrip())
    except (OSError, StoreError, ValueError, RecursionError):
        return {}
    return system if isinstance(system, dict) else {}
