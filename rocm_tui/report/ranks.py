"""Which ranks of one job use different choices for a problem.

Processes that have nothing to do with each other may choose what they like: `compare` is for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from backend.model.choice import Choice
from backend.model.session import Session
from backend.model.tuning import Tuning
from rocm_tui.compare.choices import (
    by_kernel,
    comparable,
    identified,
    identity_of,
    same_choice,
    timed,
    used,
)
from rocm_tui.compare.problems import ProblemRows
from rocm_tui.compare.types import TuningSet
from rocm_tui.session import stats
from rocm_tui.session.graphs import runs_of
from rocm_tui.session.model import Row
from rocm_tui.session.sessions import run_of
from rocm_tui.session.stats import versus


@dataclass(frozen=True, slots=True)
class Party:
    """One rank, host or log of a job and the choice that it uses for a problem.

    `ms` is its own time of its choice; `rivals_ms` its own times of the others' choices, by label,
    where it timed them.
    """

    who: str
    row: Row
    choice: Choice
    ms: float | None
    rivals_ms: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Ranks or hosts that use different choices for the same problem, the slowest first.

    `matters` means that one of them found its choice and another's to differ by more than a tie,
    `tied` that they are known to be as fast.
    """

    id: str
    row: Row
    parties: tuple[Party, ...]
    matters: bool
    tied: bool = False


@dataclass(frozen=True, slots=True)
class RankChoice:
    """The choice that one party of a job uses for a problem, by which of its tunings."""

    who: str
    row: Row
    choice: Choice


@dataclass(frozen=True, slots=True)
class Shared:
    """A problem that two parties of one job, at least, chose for, in ways that can be compared.
    `row` is the latest of their tunings."""

    row: Row
    uses: tuple[RankChoice, ...]


@dataclass(frozen=True, slots=True)
class SharedProblems:
    """The problems of jobs with several parties: those that are compared, and how many are not."""

    compared: tuple[Shared, ...]
    not_compared: int


def shared(all_problems: Iterable[ProblemRows], part: TuningSet) -> SharedProblems:
    """Return the problems for which two parties of one job selected choices."""
    labels = party_names(part)
    jobs = jobs_of((session for row in part.rows for session in row.asked), part.sessions)
    parties: dict[object, set[str]] = {}
    problems: list[tuple[object, Shared]] = []
    for problem in all_problems:
        for job, rows in _by_job(problem.rows, jobs):
            uses = _uses(rows, labels, part)
            parties.setdefault(job, set()).update(use.who for use in uses)
            if uses:
                problems.append((job, Shared(rows[0], _comparable(uses))))
    several = [problem for job, problem in problems if len(parties[job]) > 1]
    compared = tuple(problem for problem in several if len(problem.uses) > 1)
    return SharedProblems(compared, len(several) - len(compared))


def _comparable(uses: Sequence[RankChoice]) -> tuple[RankChoice, ...]:
    """Return the uses that can be compared, with identities where hashes differ."""
    if len({identity_of(use.choice) for use in uses}) > 1:
        tunings = identified([use.row.tuning for use in uses])
        uses = [_identified(*pair) for pair in zip(uses, tunings, strict=True)]
    return tuple(comparable(uses, _choice))


def _identified(use: RankChoice, tuning: Tuning) -> RankChoice:
    at = next((n for n, own in enumerate(use.row.tuning.choices) if own is use.choice), None)
    choice = use.choice if at is None else tuning.choices[at]
    return RankChoice(use.who, replace(use.row, tuning=tuning), choice)


def _choice(use: RankChoice) -> Choice:
    return use.choice


def disagreements(problems: Iterable[Shared]) -> tuple[Disagreement, ...]:
    """Return the disagreements, those that matter first."""
    found = (differing for problem in problems if (differing := _disagreement(problem)))
    return tuple(sorted(found, key=lambda differing: not differing.matters))


def jobs_of(ids: Iterable[str], sessions: Mapping[str, Session]) -> dict[str, object]:
    """Return a key of each session's job, by session id.

    A job is ranks with the same arguments that started together, on whatever hosts, or the
    processes of one run.
    """
    jobs: dict[str, object] = {}
    for job in runs_of(dict.fromkeys(ids), sessions):
        for session in job:
            known = sessions.get(session)
            run = run_of(known) if known is not None else ""
            jobs[session] = job if len(job) > 1 or not run else run
    return jobs


def _by_job(rows: Sequence[Row], jobs: Mapping[str, object]) -> Iterable[tuple[object, list[Row]]]:
    """Yield each job with its rows.

    A log that has a rank and no session belongs to the job whose logs are in the same folder. The
    processes of a log without ranks are a job.
    """
    of_job: dict[object, list[Row]] = {}
    for row in rows:
        for job in dict.fromkeys(jobs[session] for session in row.asked):
            own = tuple(session for session in row.asked if jobs[session] == job)
            of_job.setdefault(job, []).append(replace(row, asked=own))
        source = Path(next(iter(row.tuning.sources), ""))
        if not row.asked and row.tuning.rank is not None:
            of_job.setdefault(source.parent, []).append(row)
        elif not row.asked and row.tuning.process:
            of_job.setdefault(source, []).append(row)
    return of_job.items()


def party_names(part: TuningSet) -> dict[str, str]:
    """Return the names of the sessions of a tuning set, by their ids."""
    names = {name for row in part.rows for name in row.asked}
    return session_labels([part.sessions[name] for name in names if name in part.sessions])


def _uses(rows: Sequence[Row], labels: Mapping[str, str], part: TuningSet) -> list[RankChoice]:
    """Return the choice that each party uses for one problem, by its latest tuning."""
    latest = _latest(rows, labels)
    took = [(who, row, part.took.get((session, row.tuning.key))) for who, session, row in latest]
    return [
        RankChoice(who, row, choice) for who, row, hash_ in took if (choice := _use(row, hash_))
    ]


def _disagreement(problem: Shared) -> Disagreement | None:
    """The parties of one problem; None if they agree."""
    groups = by_kernel(problem.uses, _choice)
    if len(groups) < 2:
        return None
    different = [group[0].choice for group in groups]
    parties = [_party(use, different) for use in problem.uses]
    parties.sort(key=lambda party: -(party.ms or 0.0))
    standings = {s for use in problem.uses for s in _standings(use.row, use.choice, different)}
    return Disagreement(
        problem.row.id,
        problem.row,
        tuple(parties),
        matters=not standings.isdisjoint(("clear", "ahead", "behind", "slower")),
        tied=standings == {"tied"},
    )


def _use(row: Row, took: str | None) -> Choice | None:
    """The choice that the model calls, with or without a time; `took` is what one session selected
    of a tuning that several asked for."""
    hash_ = took or row.tuning.selected
    selected = (c for c in row.tuning.choices if c.hash and c.hash == hash_)
    use = used(row.tuning)
    return next(selected, None) or (use[0] if use else None)


def _party(use: RankChoice, different: Iterable[Choice]) -> Party:
    who, row, choice = use.who, use.row, use.choice
    own = timed(row.tuning)
    measured = stats.measured(row.tuning, choice)
    single = next((ms for known, ms in own if known is choice), None)
    rivals = []
    for other in different:
        if not same_choice(choice, other):
            rivals += [(other.label, ms) for known, ms in own if same_choice(known, other)][:1]
    return Party(who, row, choice, measured.ms if measured else single, tuple(rivals))


def _standings(
    row: Row, choice: Choice, different: Iterable[Choice]
) -> Iterator[stats.Standing | None]:
    """How its choice compares with each of the others that it timed."""
    rivals = [
        known
        for known, _ in timed(row.tuning)
        if any(same_choice(known, other) for other in different) and known is not choice
    ]
    return (versus(row.tuning, choice, rival) for rival in rivals)


def _latest(rows: Sequence[Row], labels: Mapping[str, str]) -> list[tuple[str, str, Row]]:
    """Each party's latest tuning, with its session: sessions, else ranks."""
    latest: dict[str, tuple[str, Row]] = {}
    for row in rows:
        for session in row.asked:
            latest.setdefault(labels.get(session, session), (session, row))
        if not row.asked and (name := process_name(row.tuning)):
            latest.setdefault(name, ("", row))
    return [(who, session, row) for who, (session, row) in latest.items()]


def process_name(tuning: Tuning) -> str:
    """Return the process as a log names it: by its rank, else by its prefix."""
    return tuning.process if tuning.rank is None else f"rank {tuning.rank}"


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
