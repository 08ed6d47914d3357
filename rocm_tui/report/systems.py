"""The devices, hosts or logs that tunings are from, and what a person may want a report of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from backend.model.origin import device_kind
from backend.model.session import Session, systems_of
from backend.model.tuning import Tuning
from rocm_tui.compare.types import Part
from rocm_tui.session.model import Row
from rocm_tui.session.sessions import names


def rows_by_system(part: Part) -> dict[str, list[Row]]:
    """The rows of each system, under a name of it: device, and host unless ranks of one job share
    that device; else the cache file, else the log, of which nobody knows where it was written."""
    named: dict[str, set[str]] = {}
    for session in part.sessions.values():
        if session.system_hash:
            for kind in ("cpu", "gpu"):
                label = _system_label(session, kind)
                named.setdefault(f"{session.system_hash} {kind}", set()).add(label)
    rows: dict[str, list[Row]] = {}
    for row in part.rows:
        for label in sorted(_systems_of_row(row.tuning, row.asked, part.sessions, named)):
            rows.setdefault(label, []).append(row)
    return rows


def _systems_of_row(
    tuning: Tuning,
    asked: tuple[str, ...],
    sessions: Mapping[str, Session],
    named: Mapping[str, set[str]],
) -> set[str]:
    kind = device_kind(tuning) or ""
    known = [sessions[name] for name in dict.fromkeys(asked) if name in sessions]
    if known:
        return {_system_label(session, kind) for session in known}
    hashes = systems_of(tuning, sessions)
    if hashes:
        return {min(named.get(f"{hash_} {kind}", {f"cache {hash_[:12]}"})) for hash_ in hashes}
    return set(tuning.sources[:1])


def _system_label(session: Session, kind: str) -> str:
    if kind == "cpu":
        return f"CPU of {session.host or 'an unknown host'}"
    device = session.device or session.arch or "unknown device"
    return device if session.rank is not None or not session.host else f"{device} of {session.host}"


@dataclass(frozen=True, slots=True)
class Scope:
    """What a report is about: all that is watched, a system, or a session, by its name."""

    kind: str
    name: str
    part: Part


def scopes(part: Part) -> list[Scope]:
    """All; each system where there are several; each session that asked for a tuning, the latest
    first."""
    found = [Scope("all", "", part)]
    systems = rows_by_system(part)
    if len(systems) > 1:
        found += [Scope("system", name, _rows(part, rows)) for name, rows in systems.items()]
    by_session: dict[str, list[Row]] = {}
    for row in part.rows:
        for id_ in dict.fromkeys(row.asked):
            by_session.setdefault(id_, []).append(replace(row, asked=_only(row, id_)))
    known = [part.sessions[name] for name in by_session if name in part.sessions]
    if len(known) > 1:
        called = names(part.sessions.values())
        for session in sorted(known, key=lambda session: -session.started):
            own = _rows(part, by_session[session.id])
            found.append(Scope("session", called[session.id], own))
    return found


def _only(row: Row, session: str) -> tuple[str, ...]:
    return tuple(name for name in row.asked if name == session)


def _rows(part: Part, rows: list[Row]) -> Part:
    return replace(part, rows=tuple(rows))
