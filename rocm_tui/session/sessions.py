"""The sessions of a model: each process with what it does, however many logs have it; the names of
sessions, and which of them a person means.

A session's name is its host and pid, as its log's name begins; its start follows where the
same pid came twice. Any beginning of a name, of a log's name or of an id will do, as long as
it means one session, or several of one run.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

from backend.counted import counted
from backend.model.session import Activity, Session
from rocm_tui.errors import RocmTuiError
from rocm_tui.ingest.records import ActivitySeen
from rocm_tui.meant import did_you_mean

_UNKNOWN = Activity("unknown", "running")


@dataclass(frozen=True, slots=True)
class SessionProcess:
    """A session and what its process does; `logs` are the sources that have it, `run` names the
    `rocm-tui run` that it is part of, if any."""

    session: Session
    activity: Activity
    logs: tuple[str, ...] = ()

    @property
    def run(self) -> str:
        return run_of(self.session)

    @property
    def starter(self) -> bool:
        """Whether only `run` recorded it: it started programs, or has not loaded torch."""
        return not self.session.torch


_OF_A_PROCESS = re.compile(r"\.[0-9a-f]{8}$")
"""What the hooks add to the run's name in a process that the run did not start itself."""


def run_of(session: Session) -> str:
    """The run whose name the session's id begins with; empty for any other session."""
    run, _, pid = session.id.rpartition("-")
    return _OF_A_PROCESS.sub("", run) if pid == str(session.pid) else ""


def fuller(before: Session | None, new: Session) -> Session:
    """Return one session of two logs' versions: the one that has its torch, the earlier start."""
    if before is None:
        return new
    best = before if before.torch and not new.torch else new
    starts = [start for start in (before.started, new.started) if start]
    return replace(best, started=min(starts, default=0.0))


class Processes:
    """The activities of each session by log. `sessions` is the model's."""

    def __init__(self, sessions: Mapping[str, Session]) -> None:
        self._sessions = sessions
        self._activities: dict[str, dict[str, Activity]] = {}

    def add(self, record: ActivitySeen) -> None:
        """Take in what a log has of a session."""
        self._activities.setdefault(record.session, {})[record.source] = record.activity

    def forget(self, source: str) -> None:
        """The log is gone, and its sessions with it."""
        for session in [
            name for name, activities in self._activities.items() if source in activities
        ]:
            del self._activities[session][source]
            if not self._activities[session]:
                del self._activities[session]

    def all(self) -> tuple[SessionProcess, ...]:
        """Each session, the latest first."""
        processes = [self._process(name) for name in self._activities if name in self._sessions]
        working = {process.run for process in processes if process.run and not process.starter}
        shown = [
            _as_starter(process) if process.run in working else process for process in processes
        ]
        return tuple(sorted(shown, key=lambda p: (-p.session.started, p.session.id)))

    @property
    def live(self) -> list[SessionProcess]:
        """The processes that run torch now, as far as was seen."""
        return [
            self._process(name)
            for name, activities in self._activities.items()
            if any(activity.lives for activity in activities.values())
        ]

    @property
    def latest(self) -> SessionProcess | None:
        """The session that began last."""
        return next(iter(self.all()), None)

    def _process(self, name: str) -> SessionProcess:
        activities = self._activities[name]
        session = self._sessions.get(name) or Session(name)
        return SessionProcess(
            session, _joined(list(activities.values())), tuple(sorted(activities))
        )


def _joined(activities: list[Activity]) -> Activity:
    """Return what several logs say of one process: `run` knows its exit code, and how it began, its
    own log all that lies between."""
    if len(activities) == 1:
        return activities[0]
    own = max(activities, key=_knowledge, default=_UNKNOWN)
    ends = [activity for activity in activities if activity.status is not None]
    for end in ends:
        return replace(own, state=end.state, ended=own.ended or end.ended, status=end.status)
    return own


def _knowledge(activity: Activity) -> tuple[bool, bool, float]:
    early = activity.last_state in ("starting", "importing")
    return not early, not activity.lives, activity.since or 0.0


def _as_starter(process: SessionProcess) -> SessionProcess:
    """It has started what loads torch, and does not load torch itself."""
    activity = process.activity
    if process.starter and activity.state == "starting":
        return replace(process, activity=replace(activity, state="running", last_state="running"))
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
    file_name = next((PurePath(arg).name for arg in words if arg.endswith(".py")), "")
    return file_name or (PurePath(words[0]).name if words else "")


MOST_NAMED = 5
"""Candidates that an error names."""


class NoSuchSession(RocmTuiError):
    """No session is called so, or several are."""


def names(sessions: Iterable[Session]) -> dict[str, str]:
    """The shortest name of each session that no other one has, by its id."""
    return _shortest({s.id: (_short(s), _long(s), s.id) for s in sessions})


def short_names(sources: Iterable[str]) -> dict[str, str]:
    """The same of sources, of which no more is known than the id of a session or the path of a
    file: `node7-4711`, `rank0/train.log`."""
    return _shortest({source: _ways(source) for source in dict.fromkeys(sources)})


def _shortest(ways: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the first name of each that no other has, else its last. All that share a name go on
    to the next one together."""
    at = dict.fromkeys(ways, 0)
    while True:
        shortest = {key: ways[key][place] for key, place in at.items()}
        counts = Counter(shortest.values())
        shared = [key for key, name in shortest.items() if counts[name] > 1]
        longer = [key for key in shared if at[key] + 1 < len(ways[key])]
        if not longer:
            return shortest
        for key in longer:
            at[key] += 1


_MOST_PARTS = 11
"""Parts of a path that a name may have."""


def _ways(source: str) -> Sequence[str]:
    process = _process_in(source)
    if process is not None:
        return process, source
    parts = source.split("/")
    longer = ("/".join(parts[-depth:]) for depth in range(2, min(_MOST_PARTS, len(parts)) + 1))
    return parts[-1] or source, *longer


def _process_in(session: str) -> str | None:
    """`node7-4711` of `node7-4711-1795370265-9cec4875`: host, pid, when it began, what makes it the
    only one, and the pid of a process that was forked from it; None if it is no session's id."""
    if "/" in session:
        return None
    parts = session.split("-")
    for at in range(len(parts) - 2, 1, -1):
        if parts[at].isdecimal() and len(parts[at]) > 8 and parts[at - 1].isdecimal():
            pid = parts[at + 2] if len(parts) == at + 3 else parts[at - 1]
            return "-".join((*parts[: at - 1], pid))
    return None


def session_names(session: Session) -> tuple[str, ...]:
    """All that may be its name, and that of its run."""
    return _short(session), _long(session), run_of(session)


def find_sessions(sessions: Iterable[Session], text: str) -> list[str]:
    """The ids of the sessions that `text` names: one, all of a run, or none. Whole parts of a name
    go before beginnings: `vm-51` is not `vm-5163` where there is a `vm-51`.

    Raises NoSuchSession, which names the candidates, where it means several that have nothing to do
    with each other.
    """
    candidates = list(sessions)
    wanted = text.removesuffix(".jsonl")
    if not wanted:
        return []
    ways = (
        [s for s in candidates if run_of(s) == wanted],
        [s for s in candidates if s.id == wanted or _is_log_of(s, wanted)],
        [s for s in candidates if s.id.startswith(wanted) or f"{_long(s)}-".startswith(wanted)],
    )
    matching = next(filter(None, ways), [])
    if len(matching) > 1 and (len({run_of(s) for s in matching}) > 1 or not run_of(matching[0])):
        raise NoSuchSession(
            f"{text!r} begins {counted(len(matching), 'session')}: {_listed(matching, candidates)}"
        )
    return [session.id for session in matching]


def required_sessions(sessions: Iterable[Session], text: str, where: str) -> list[str]:
    """Find sessions where there must be one. Raises NoSuchSession."""
    candidates = list(sessions)
    matching = find_sessions(candidates, text)
    if not matching:
        raise NoSuchSession(
            f"{text!r} is no file, and no session of {where} begins so"
            f"{hint(candidates, text)}; `rocm-tui sessions` lists them"
        )
    return matching


def hint(sessions: Iterable[Session], text: str) -> str:
    """` (did you mean 'vm-5163'?)`, where a name is near."""
    return did_you_mean(text, names(sessions).values())


def _listed(candidates: list[Session], known: list[Session]) -> str:
    shortest = names(known)
    latest = sorted(candidates, key=lambda session: -session.started)
    more = f", {len(latest) - MOST_NAMED} more" if len(latest) > MOST_NAMED else ""
    return ", ".join(shortest[session.id] for session in latest[:MOST_NAMED]) + more


def _host(session: Session) -> str:
    """As the name of its log has it."""
    return re.sub(r"[^A-Za-z0-9.-]", "_", session.host)[:64].lstrip(".") or "host"


def _short(session: Session) -> str:
    return f"{_host(session)}-{session.pid}"


def _long(session: Session) -> str:
    return f"{_short(session)}-{int(session.started)}"


def _is_log_of(session: Session, text: str) -> bool:
    """Whether these are whole parts of the name of its log, from the first on."""
    name = f"{_long(session)}-"
    if text.startswith(name):  # the rest is drawn by chance, and stands in the name alone
        return True
    return name.startswith(f"{text}-") and len(text) > len(_host(session))
