"""The sessions of a model: each process with what it does, however many logs tell of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import PurePath

from backend.model.activity import Activity
from backend.model.session import Session
from rocm_tui.ingest.records import ActivitySeen

_UNTOLD = Activity("unknown", "running")


@dataclass(frozen=True, slots=True)
class Process:
    """A session and what its process does; `logs` are the sources that tell of it, `run` names the
    `rocm-tui run` that it is part of, if any."""

    session: Session
    activity: Activity
    logs: tuple[str, ...] = ()

    @property
    def run(self) -> str:
        return run_of(self.session)

    @property
    def starter(self) -> bool:
        """Whether only `run` tells of it: it started programs, or has not loaded torch."""
        return not self.session.torch


def run_of(session: Session) -> str:
    """The run whose name the session's id begins with; empty for any other session."""
    run, _, pid = session.id.rpartition("-")
    return run if pid == str(session.pid) else ""


def fuller(known: Session | None, told: Session) -> Session:
    """What two logs tell of one process: the one that knows its torch, and the earlier start."""
    if known is None:
        return told
    best = known if known.torch and not told.torch else told
    starts = [start for start in (known.started, told.started) if start]
    return replace(best, started=min(starts, default=0.0))


class Processes:
    """What the logs tell of each session. `sessions` is the model's."""

    def __init__(self, sessions: Mapping[str, Session]) -> None:
        self._sessions = sessions
        self._told: dict[str, dict[str, Activity]] = {}

    def add(self, record: ActivitySeen) -> None:
        """Take in what a log tells of a session."""
        self._told.setdefault(record.session, {})[record.source] = record.activity

    def forget(self, source: str) -> None:
        """The log is gone, and its sessions with it."""
        for session in [name for name, told in self._told.items() if source in told]:
            del self._told[session][source]
            if not self._told[session]:
                del self._told[session]

    def all(self) -> tuple[Process, ...]:
        """Each session, the latest first."""
        found = [self._process(name) for name in self._told if name in self._sessions]
        working = {process.run for process in found if process.run and not process.starter}
        shown = [_as_starter(process) if process.run in working else process for process in found]
        return tuple(sorted(shown, key=lambda p: (-p.session.started, p.session.id)))

    @property
    def live(self) -> list[Process]:
        """Those that do something of torch now, as far as was seen."""
        return [
            self._process(name)
            for name, told in self._told.items()
            if any(activity.lives for activity in told.values())
        ]

    @property
    def latest(self) -> Process | None:
        """The session that began last."""
        return next(iter(self.all()), None)

    def of(self, session: str) -> Process | None:
        """That of this id."""
        return self._process(session) if session in self._told else None

    def _process(self, name: str) -> Process:
        told = self._told[name]
        session = self._sessions.get(name) or Session(name)
        return Process(session, _joined(list(told.values())), tuple(sorted(told)))


def _joined(told: list[Activity]) -> Activity:
    """Of what several logs tell of one process: `run` knows its exit code, and how it began, its
    own log all that lies between."""
    if len(told) == 1:
        return told[0]
    own = max(told, key=_knowledge, default=_UNTOLD)
    ends = [activity for activity in told if activity.status is not None]
    for end in ends:
        return replace(own, state=end.state, ended=own.ended or end.ended, status=end.status)
    return own


def _knowledge(activity: Activity) -> tuple[bool, bool, float]:
    early = activity.told in ("starting", "importing")
    return not early, not activity.lives, activity.since or 0.0


def _as_starter(process: Process) -> Process:
    """It has started what loads torch, and does not load torch itself."""
    activity = process.activity
    if process.starter and activity.state == "starting":
        return replace(process, activity=replace(activity, state="running", told="running"))
    return process


_WORKERS = ("rocm_tui_worker.py", "backend.worker")
"""Words of workers of ours, which tune for others and are no rank of a job."""
WORKER = "a worker of rocm-tui"


def is_worker(session: Session) -> bool:
    """Whether it tunes or measures for a command of ours."""
    return any(word.endswith(_WORKERS) for word in session.argv)


def script(session: Session) -> str:
    """`train.py`, or the module behind `-m`: what a person calls the program."""
    if is_worker(session):
        return WORKER
    words = session.argv
    if "-m" in words[1:-1]:
        return words[words.index("-m", 1) + 1]
    found = next((PurePath(arg).name for arg in words if arg.endswith(".py")), "")
    return found or (PurePath(words[0]).name if words else "")
