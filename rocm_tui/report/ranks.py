"""Which ranks of one job use different choices for a problem.

Processes that have nothing to do with each other may choose what they like: `compare` is for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from backend.model.choice import Choice
from backend.model.inductor_kernel import is_inductors
from backend.model.session import Session
from backend.model.tuning import Tuning
from rocm_tui.compare.choices import by_kernel, same_choice, timed, used
from rocm_tui.compare.problems import ProblemRows
from rocm_tui.compare.types import TuningSet
from rocm_tui.report.agreement import Chooser, Selection, comparable_selections
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
class Shared:
    """A problem that two parties of one job, at least, chose for, in ways that can be compared.
    `row` is the latest of their tunings."""

    row: Row
    uses: tuple[Selection, ...]


@dataclass(frozen=True, slots=True)
class SharedProblems:
    """The compared problems of jobs with several parties, and how many are not compared."""

    compared: tuple[Shared, ...]
    not_compared: int


def shared(all_problems: Iterable[ProblemRows], part: TuningSet) -> SharedProblems:
    """Return the problems for which two parties of one job selected choices."""
    labels = party_names(part)
    jobs = jobs_of((session for row in part.rows for session in row.asked), part.sessions)
    named = LogProcesses(part.rows)
    parties: dict[object, set[str]] = {}
    problems: list[tuple[object, Shared]] = []
    for problem in all_problems:
        for job, rows in _by_job(problem.rows, jobs, named):
            uses = _uses(rows, labels, part, named)
            parties.setdefault(job, set()).update(use.by.name for use in uses)
            if uses:
                problems.append((job, Shared(rows[0], tuple(comparable_selections(uses)))))
    several = [problem for job, problem in problems if len(parties[job]) > 1]
    compared = tuple(problem for problem in several if len(problem.uses) > 1)
    return SharedProblems(compared, len(several) - len(compared))


def disagreements(problems: Iterable[Shared]) -> tuple[Disagreement, ...]:
    """Return the disagreements, the ones that matter first."""
    every = (differing for problem in problems if (differing := _disagreement(problem)))
    return tuple(sorted(every, key=lambda differing: not differing.matters))


def jobs_of(ids: Iterable[str], sessions: Mapping[str, Session]) -> dict[str, object]:
    """Return a key of each session's job, by session id.

    A job is ranks with the same arguments that started together, on whatever hosts, or the
    processes of one run.
    """
    jobs: dict[str, object] = {}
    for job in runs_of(dict.fromkeys(ids), sessions):
        for session in job:
            session_of = sessions.get(session)
            run = run_of(session_of) if session_of is not None else ""
            jobs[session] = job if len(job) > 1 or not run else run
    return jobs


def _by_job(
    rows: Sequence[Row], jobs: Mapping[str, object], named: LogProcesses
) -> Iterable[tuple[object, list[Row]]]:
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
        if not row.asked and named.rank(row.tuning) is not None:
            of_job.setdefault(source.parent, []).append(row)
        elif not row.asked and row.tuning.process:
            of_job.setdefault(source, []).append(row)
    return of_job.items()


def party_names(part: TuningSet) -> dict[str, str]:
    """Return the names of the sessions of a tuning set, by their ids."""
    names = {name for row in part.rows for name in row.asked}
    return session_labels([part.sessions[name] for name in names if name in part.sessions])


def _uses(
    rows: Sequence[Row], labels: Mapping[str, str], part: TuningSet, named: LogProcesses
) -> list[Selection]:
    """Return the choice that each party uses for one problem, by its latest tuning."""
    latest = _latest(rows, labels, named)
    took = [(who, row, part.took.get((session, row.tuning.key))) for who, session, row in latest]
    return [
        Selection(Chooser(who, ""), row, choice)
        for who, row, hash_ in took
        if (choice := _use(row, hash_))
    ]


def _disagreement(problem: Shared) -> Disagreement | None:
    """The parties of one problem; None if they agree."""
    groups = by_kernel(problem.uses)
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
    """Return the choice that the model calls, with or without a time. `took` is the hash that one
    session selected, if several requested the tuning."""
    hash_ = took or row.tuning.selected
    selected = (c for c in row.tuning.choices if c.hash and c.hash == hash_)
    use = used(row.tuning)
    return next(selected, None) or (use[0] if use else None)


def _party(use: Selection, different: Iterable[Choice]) -> Party:
    row, choice = use.row, use.choice
    own = [] if is_inductors(row.tuning.op) else timed(row.tuning)
    measured = stats.measured(row.tuning, choice)
    single = next((ms for other_choice, ms in own if other_choice == choice), None)
    rivals = []
    for other in different:
        if not same_choice(choice, other):
            rivals += [
                (other.label, ms) for other_choice, ms in own if same_choice(other_choice, other)
            ][:1]
    return Party(use.by.name, row, choice, measured.ms if measured else single, tuple(rivals))


def _standings(
    row: Row, choice: Choice, different: Iterable[Choice]
) -> Iterator[stats.Standing | None]:
    """How its choice compares with each of the others that it timed."""
    rivals = [
        timed_choice
        for timed_choice, _ in timed(row.tuning)
        if any(same_choice(timed_choice, other) for other in different) and timed_choice != choice
    ]
    return (versus(row.tuning, choice, rival) for rival in rivals)


def _latest(
    rows: Sequence[Row], labels: Mapping[str, str], named: LogProcesses
) -> list[tuple[str, str, Row]]:
    """Return each party's latest tuning, with its session: sessions, else processes of logs."""
    latest: dict[str, tuple[str, Row]] = {}
    for row in rows:
        for session in row.asked:
            latest.setdefault(labels.get(session, session), (session, row))
        if not row.asked and (name := named.name(row.tuning)):
            latest.setdefault(name, ("", row))
    return [(who, session, row) for who, (session, row) in latest.items()]


class LogProcesses:
    """Names the processes of logs: by rank, where each process of a log has one, else by prefix.

    Of `DP0 TP0` and `DP1 TP0` only the first has a rank that is known.
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        nameless = [row.tuning for row in rows if row.tuning.process and row.tuning.rank is None]
        self._by_prefix = {source for tuning in nameless for source in tuning.sources}

    def rank(self, tuning: Tuning) -> int | None:
        """Return the rank of a tuning's process, if that identifies the process."""
        by_prefix = tuning.process and not self._by_prefix.isdisjoint(tuning.sources)
        return None if by_prefix else tuning.rank

    def name(self, tuning: Tuning) -> str:
        """Return the name of a tuning's process; nothing if the log has none."""
        rank = self.rank(tuning)
        return tuning.process if rank is None else f"rank {rank}"


def session_labels(sessions: Iterable[Session]) -> dict[str, str]:
    """A short name of each session by its id: rank and host, with the pid where that is needed."""
    listed = list(sessions)
    short = {session.id: _label(session) for session in listed}
    names = Counter(short.values())
    return {
        session.id: f"{short[session.id]} pid {session.pid}"
        if names[short[session.id]] > 1
        else short[session.id]
        for session in listed
    }


def _label(session: Session) -> str:
    rank = f"rank {session.rank}" if session.rank is not None else ""
    program = next((Path(arg).name for arg in session.argv if arg.endswith(".py")), "")
    return " ".join(part for part in (rank or program, session.host) if part) or session.id
