"""Which machines the tunings of a report are of: what is added up over several is no run's."""

from __future__ import annotations

from collections.abc import Mapping

from backend.records import Session, Tuning
from rocm_tui.compare.types import Part
from rocm_tui.session.measurements import systems_of
from rocm_tui.session.providers import device_kind


def systems(part: Part) -> tuple[str, ...]:
    """A name of each: device, and host unless ranks of one job share that device; else the cache
    file, else the log, of which nobody knows where it was written."""
    named: dict[str, set[str]] = {}
    for session in part.sessions.values():
        if session.system_hash:
            for kind in ("cpu", "gpu"):
                label = _label(session, kind)
                named.setdefault(f"{session.system_hash} {kind}", set()).add(label)
    found: dict[str, None] = {}
    for row in part.rows:
        for label in sorted(_of(row.tuning, row.asked, part.sessions, named)):
            found[label] = None
    return tuple(found)


def _of(
    tuning: Tuning,
    asked: tuple[str, ...],
    sessions: Mapping[str, Session],
    named: Mapping[str, set[str]],
) -> set[str]:
    kind = device_kind(tuning) or ""
    known = [sessions[name] for name in dict.fromkeys(asked) if name in sessions]
    if known:
        return {_label(session, kind) for session in known}
    hashes = systems_of(tuning, sessions)
    if hashes:
        return {min(named.get(f"{each} {kind}", {f"cache {each[:12]}"})) for each in hashes}
    return set(tuning.sources[:1])


def _label(session: Session, kind: str) -> str:
    if kind == "cpu":
        return f"CPU of {session.host or 'an unknown host'}"
    device = session.device or session.arch or "unknown device"
    return device if session.rank is not None or not session.host else f"{device} of {session.host}"
