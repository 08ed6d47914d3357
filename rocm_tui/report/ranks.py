"""Which ranks of one job use different choices for a problem.

Processes that have nothing to do with each other may choose what they like: `compare` is for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from backend.model.choice import Choice
from backend.model.session import Session
from rocm_tui.compare.problems import ProblemRows
from rocm_tui.compare.types import Part, same_choice, timed, used
from rocm_tui.report.types import Disagreement, Party
from rocm_tui.session import stats
from rocm_tui.session.graphs import runs_of
from rocm_tui.session.model import Row
from rocm_tui.session.processes import run_of
from rocm_tui.session.stats import versus


def disagreements(all_problems: Iterable[ProblemRows], part: Part) -> tuple[Disagreement, ...]:
    """Of each job alone; those that matter first."""
    labels, jobs = party_names(part), _jobs(part)
    found = [
        differing
        for problem in all_problems
        for rows in _by_job(problem.rows, jobs)
        if (differing := _disagreement(rows, labels))
    ]
    return tuple(sorted(found, key=lambda differing: not differing.matters))


def _jobs(part: Part) -> dict[str, object]:
    """What is the same for the sessions of one job: ranks with the same words that started
    together, on whatever hosts, and the processes of one run."""
    asked = dict.fromkeys(session for row in part.rows for session in row.asked)
    jobs: dict[str, object] = {}
    for job in runs_of(asked, part.sessions):
        for session in job:
            known = part.sessions.get(session)
            run = run_of(known) if known is not None else ""
            jobs[session] = job if len(job) > 1 or not run else run
    return jobs


def _by_job(rows: Sequence[Row], jobs: Mapping[str, object]) -> Iterator[list[Row]]:
    """The rows of each job. A log that tells a rank and no session is of the job whose logs lie
    beside it."""
    of_job: dict[object, list[Row]] = {}
    for row in rows:
        for job in dict.fromkeys(jobs[session] for session in row.asked):
            own = tuple(session for session in row.asked if jobs[session] == job)
            of_job.setdefault(job, []).append(replace(row, asked=own))
        if not row.asked and row.tuning.rank is not None:
            folder = Path(next(iter(row.tuning.sources), "")).parent
            of_job.setdefault(folder, []).append(row)
    yield from of_job.values()


def party_names(part: Part) -> dict[str, str]:
    """What the sessions that a part's tunings are of are called, by their ids."""
    names = {name for row in part.rows for name in row.asked}
    return session_labels([part.sessions[name] for name in names if name in part.sessions])


def _disagreement(rows: Sequence[Row], labels: Mapping[str, str]) -> Disagreement | None:
    """The parties of one problem, given by its tunings, latest first; None if they agree."""
    uses = [(who, row, choice) for who, row in _latest(rows, labels) if (choice := _use(row))]
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
    )


def _use(row: Row) -> Choice | None:
    """The choice that the model calls, with or without a time."""
    selected = (c for c in row.tuning.choices if c.hash and c.hash == row.tuning.selected)
    use = used(row.tuning)
    return next(selected, None) or (use[0] if use else None)


def _party(who: str, row: Row, choice: Choice, different: Iterable[Choice]) -> Party:
    own = timed(row.tuning)
    measured = stats.measured(row.tuning, choice)
    single = next((ms for known, ms in own if known is choice), None)
    rivals = []
    for other in different:
        if not same_choice(choice, other):
            rivals += [(other.label, ms) for known, ms in own if same_choice(known, other)][:1]
    return Party(who, row, choice, measured.ms if measured else single, tuple(rivals))


def _tells_apart(row: Row, choice: Choice, different: Iterable[Choice]) -> bool:
    rivals = [
        known
        for known, _ in timed(row.tuning)
        if any(same_choice(known, other) for other in different) and known is not choice
    ]
    apart = ("clear", "ahead", "behind", "slower")
    return any(versus(row.tuning, choice, rival) in apart for rival in rivals)


def _latest(rows: Sequence[Row], labels: Mapping[str, str]) -> list[tuple[str, Row]]:
    """Each party's latest tuning: sessions, else ranks."""
    latest: dict[str, Row] = {}
    for row in rows:
        for session in row.asked:
            latest.setdefault(labels.get(session, session), row)
        if not row.asked and row.tuning.rank is not None:
            latest.setdefault(f"rank {row.tuning.rank}", row)
    return list(latest.items())


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
