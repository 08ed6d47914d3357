"""Whether the ranks of each job use the same choices.

Processes that have nothing to do with each other may choose what they like: `compare` is for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from backend.model.choice import Choice
from backend.model.session import Session, systems_of
from backend.model.tuning import Tuning
from rocm_tui.compare.choices import used
from rocm_tui.compare.types import TuningSet
from rocm_tui.report.agreement import (
    Agreement,
    Chooser,
    Selection,
    System,
    agreement,
    chooser_order,
)
from rocm_tui.session.graphs import runs_of
from rocm_tui.session.model import Row
from rocm_tui.session.sessions import run_of


def job_agreements(part: TuningSet) -> tuple[Agreement, ...]:
    """Compare the choosers of each job that has several; the jobs where they differ come first."""
    agreements = []
    for selections in _selections_by_job(part).values():
        choosers = sorted({each.by for each in selections}, key=chooser_order)
        if len(choosers) > 1:
            agreements.append(agreement(choosers, selections))
    return tuple(sorted(agreements, key=lambda job: not job.differing))


def _selections_by_job(part: TuningSet) -> dict[object, list[Selection]]:
    jobs = jobs_of((id_ for row in part.rows for id_ in row.asked), part.sessions)
    choosers = choosers_of(part.sessions[id_] for id_ in jobs if id_ in part.sessions)
    logs = LogProcesses(part.rows)
    by_job: dict[object, list[Selection]] = {}
    for row in part.rows:
        if row.asked:
            for id_ in choosers.keys() & {*row.asked}:
                choice = _use(row, part.took.get((id_, row.tuning.key)))
                if choice is not None:
                    system = system_of(part.sessions[id_], row.tuning, part.sessions)
                    selection = Selection(choosers[id_], row, choice, system)
                    by_job.setdefault(jobs[id_], []).append(selection)
        elif (job := logs.job(row.tuning)) is not None and (choice := _use(row)) is not None:
            by_job.setdefault(job, []).append(Selection(logs.chooser(row.tuning), row, choice))
    return by_job


def _use(row: Row, took: str | None = None) -> Choice | None:
    """Return the choice that the model calls, with or without a time. `took` is the hash that one
    session selected, if several requested the tuning."""
    hash_ = took or row.tuning.selected
    selected = (c for c in row.tuning.choices if c.hash and c.hash == hash_)
    use = used(row.tuning)
    return next(selected, None) or (use[0] if use else None)


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

    def job(self, tuning: Tuning) -> Path | None:
        """Return the folder of the log if the rank is known, or the log if it has processes
        without ranks: their tunings are of one job."""
        source = Path(next(iter(tuning.sources), ""))
        if self.rank(tuning) is not None:
            return source.parent
        return source if tuning.process else None

    def chooser(self, tuning: Tuning) -> Chooser:
        """Return the process of a tuning."""
        return Chooser(self.name(tuning), "", self.rank(tuning))


def choosers_of(sessions: Iterable[Session], source: str = "") -> dict[str, Chooser]:
    """Return the choosers that sessions are, by session id."""
    listed = list(sessions)
    labels = session_labels(listed)
    return {
        each.id: Chooser(labels[each.id], source, each.rank, each.host, each.id, each.started)
        for each in listed
    }


def system_of(session: Session, tuning: Tuning, sessions: Mapping[str, Session]) -> System:
    """Return the system that a session tuned on, as far as it is known."""
    hashes = systems_of(tuning, sessions)
    hash_ = session.system_hash or (min(hashes) if len(hashes) == 1 else "")
    return System(hash_, session.arch or "", session.compute_units or 0)


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
