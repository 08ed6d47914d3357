"""What sessions are called, and which of them a person means.

A session's name is its host and pid, as its log's name begins; its start stands behind them where
the same pid came twice. Any beginning of a name, of a log's name or of an id will do, as long as
it means one session, or several of one run.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from backend.counted import counted
from backend.model.session import Session
from rocm_tui.errors import RocmTuiError
from rocm_tui.meant import did_you_mean
from rocm_tui.session.processes import run_of

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
    """Of each its first name that no other one has, else its last. Those that share a name go on to
    the next together."""
    at = dict.fromkeys(ways, 0)
    while True:
        called = {key: ways[key][place] for key, place in at.items()}
        counts = Counter(called.values())
        shared = [key for key, name in called.items() if counts[name] > 1]
        longer = [key for key in shared if at[key] + 1 < len(ways[key])]
        if not longer:
            return called
        for key in longer:
            at[key] += 1


_MOST_PARTS = 11
"""Of a path, in a name."""


def _ways(source: str) -> Sequence[str]:
    process = _process(source)
    if process is not None:
        return process, source
    parts = source.split("/")
    longer = ("/".join(parts[-depth:]) for depth in range(2, min(_MOST_PARTS, len(parts)) + 1))
    return parts[-1] or source, *longer


def _process(session: str) -> str | None:
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


def called(session: Session) -> tuple[str, ...]:
    """All that may be its name, and that of its run."""
    return _short(session), _long(session), run_of(session)


def find_sessions(sessions: Iterable[Session], text: str) -> list[str]:
    """The ids of the sessions that `text` names: one, all of a run, or none. Whole parts of a name
    go before beginnings: `vm-51` is not `vm-5163` where there is a `vm-51`.

    Raises NoSuchSession, which names the candidates, where it means several that have nothing to do
    with each other.
    """
    known = list(sessions)
    wanted = text.removesuffix(".jsonl")
    if not wanted:
        return []
    ways = (
        [s for s in known if s.id == wanted or _is_log_of(s, wanted)],
        [s for s in known if s.id.startswith(wanted) or f"{_long(s)}-".startswith(wanted)],
    )
    meant = next(filter(None, ways), [])
    if len(meant) > 1 and (len({run_of(s) for s in meant}) > 1 or not run_of(meant[0])):
        raise NoSuchSession(
            f"{text!r} begins {counted(len(meant), 'session')}: {_listed(meant, known)}"
        )
    return [session.id for session in meant]


def meant(sessions: Iterable[Session], text: str, where: str) -> list[str]:
    """The same where there must be one. Raises NoSuchSession."""
    known = list(sessions)
    found = find_sessions(known, text)
    if not found:
        raise NoSuchSession(
            f"{text!r} is no file, and no session of {where} begins so"
            f"{hint(known, text)}; `rocm-tui sessions` lists them"
        )
    return found


def hint(sessions: Iterable[Session], text: str) -> str:
    """` (did you mean 'vm-5163'?)`, where a name is near."""
    return did_you_mean(text, names(sessions).values())


def _listed(meant: list[Session], known: list[Session]) -> str:
    called = names(known)
    latest = sorted(meant, key=lambda session: -session.started)
    more = f", {len(latest) - MOST_NAMED} more" if len(latest) > MOST_NAMED else ""
    return ", ".join(called[session.id] for session in latest[:MOST_NAMED]) + more


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
