"""Ranks, hosts or logs of one job that use different choices for the same problem."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from backend.records import Choice, Session
from rocm_tui.compare.types import Part, same_choice, timed, used
from rocm_tui.report.types import Disagreement, Party
from rocm_tui.session import stats
from rocm_tui.session.model import Row
from rocm_tui.session.stats import versus


def party_names(part: Part) -> dict[str, str]:
    """What the sessions that a part's tunings are of are called, by their ids."""
    names = {name for row in part.rows for name in row.asked}
    return session_labels([part.sessions[name] for name in names if name in part.sessions])


def disagreement(rows: Sequence[Row], labels: Mapping[str, str]) -> Disagreement | None:
    """The parties of one problem, given by its tunings, latest first; None if they agree."""
    latest, told = _latest(rows, labels)
    uses = [(who, row, choice) for who, row in latest if (choice := _use(row))]
    if len(uses) < 2:
        return None
    different: list[Choice] = []
    for _, _, choice in uses:
        if not any(same_choice(choice, other) for other in different):
            different.append(choice)
    if len(different) < 2:
        return None
    parties = [_party(who, row, choice, different) for who, row, choice in uses]
    parties.sort(key=lambda party: -(party.ms or 0.0))
    return Disagreement(
        rows[0].id,
        rows[0],
        tuple(parties),
        matters=any(_tells_apart(row, choice, different) for _, row, choice in uses),
        told=told,
    )


def _use(row: Row) -> Choice | None:
    """The choice that the model calls, with or without a time."""
    selected = (c for c in row.tuning.choices if c.hash and c.hash == row.tuning.selected)
    found = used(row.tuning)
    return next(selected, None) or (found[0] if found else None)


def _party(who: str, row: Row, choice: Choice, different: Iterable[Choice]) -> Party:
    own = timed(row.tuning)
    told = stats.measured(row.tuning, choice)
    single = next((ms for known, ms in own if known is choice), None)
    rivals = []
    for other in different:
        if not same_choice(choice, other):
            rivals += [(other.label, ms) for known, ms in own if same_choice(known, other)][:1]
    return Party(who, row, choice, told.ms if told else single, tuple(rivals))


def _tells_apart(row: Row, choice: Choice, different: Iterable[Choice]) -> bool:
    rivals = [
        known
        for known, _ in timed(row.tuning)
        if any(same_choice(known, other) for other in different) and known is not choice
    ]
    return any(versus(row.tuning, choice, rival) in ("clear", "slower") for rival in rivals)


def _latest(rows: Sequence[Row], labels: Mapping[str, str]) -> tuple[list[tuple[str, Row]], bool]:
    """Each party's latest tuning: sessions, else ranks, else the files that tell of them; and
    whether they are known to be ranks or processes."""
    found: dict[str, Row] = {}
    for row in rows:
        for session in row.asked:
            found.setdefault(labels.get(session, session), row)
        if not row.asked and row.tuning.rank is not None:
            found.setdefault(f"rank {row.tuning.rank}", row)
    if found:
        return list(found.items()), True
    for row in rows:
        for source in row.tuning.sources:
            found.setdefault(source, row)
    return list(found.items()), False


def session_labels(sessions: Iterable[Session]) -> dict[str, str]:
    """A short name of each session by its id: rank and host, with the pid where that is needed."""
    known = list(sessions)
    short = {session.id: _label(session) for session in known}
    names = Counter(short.values())
    return {
        session.id: f"{short[session.id]} pid {session.pid}"
        if names[short[session.id]] > 1
        else short[session.id]
        for session in known
    }


def _label(session: Session) -> str:
    rank = f"rank {session.rank}" if session.rank is not None else ""
    program = next((Path(arg).name for arg in session.argv if arg.endswith(".py")), "")
    return " ".join(part for part in (rank or program, session.host) if part) or session.id
