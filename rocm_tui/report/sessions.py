"""The sessions of a model as a list: the name of each, what it does and has tuned; ranks of one run
are listed together.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from backend.model.session import Activity, Session
from rocm_tui.compare.comparison import tuning_seconds
from rocm_tui.session.model import Model, Row
from rocm_tui.session.sessions import SessionProcess, names

_UNTUNED = ("only", "deterministic")
"""Why a choice was taken where there was nothing to time."""


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session as it is listed.

    It timed the choices of `tuned` tunings, which took `seconds` as far as that is known, and took
    the choice of `cached` others from a cache or a pin. A `member` is listed below the session that
    started its run.
    """

    name: str
    process: SessionProcess
    tuned: int = 0
    cached: int = 0
    seconds: float = 0.0
    member: bool = False

    @property
    def session(self) -> Session:
        return self.process.session

    @property
    def activity(self) -> Activity:
        return self.process.activity


def session_rows(model: Model) -> list[SessionRow]:
    """List the latest first, processes of a run together."""
    processes = model.processes.all()
    called = names(process.session for process in processes)
    tuned, cached, seconds = _counts(model.rows())
    return [
        SessionRow(called[id], process, tuned[id], cached[id], seconds[id], member=at > 0)
        for run in _runs(processes)
        for at, process in enumerate(run)
        for id in [process.session.id]
    ]


def _counts(rows: Iterable[Row]) -> tuple[Counter[str], Counter[str], defaultdict[str, float]]:
    tuned: Counter[str] = Counter()
    cached: Counter[str] = Counter()
    seconds: defaultdict[str, float] = defaultdict(float)
    for row in rows:
        tuning = row.tuning
        if tuning.state != "done" or tuning.selected_by in _UNTUNED:
            continue
        # The session that timed it is the first requester, and alone records the duration.
        timed = tuning.session if tuning.seconds.benchmark is not None else None
        if timed is not None:
            tuned[timed] += 1
            seconds[timed] += tuning_seconds(row) or 0.0
        for asked in {*row.asked} - {timed}:
            cached[asked] += 1
    return tuned, cached, seconds


def _runs(processes: Sequence[SessionProcess]) -> list[list[SessionProcess]]:
    """Group processes by run, in each run by rank; the run with the latest start comes first."""
    runs: dict[str, list[SessionProcess]] = {}
    for process in processes:
        runs.setdefault(process.run or process.session.id, []).append(process)
    return [sorted(run, key=_place) for run in runs.values()]


def _place(process: SessionProcess) -> tuple[bool, int, float]:
    session = process.session
    rank = -1 if session.rank is None else session.rank
    return session.rank is not None, rank, session.started
