"""What sessions are called, and which of them a person means.

A session's name is its host and pid, as its log's name begins; its start stands behind them where
the same pid came twice. Any beginning of a name, of a log's name or of an id will do, as long as
it means one session, or several of one run.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from difflib import get_close_matches

from backend.counted import counted
from backend.model.session import Session
from rocm_tui.errors import RocmTuiError
from rocm_tui.session.processes import run_of

MOST_NAMED = 5
"""Candidates that an error names."""


class NoSuchSession(RocmTuiError):
    """No session is called so, or several are."""


def names(sessions: Iterable[Session]) -> dict[str, str]:
    """The shortest name of each session that no other one has, by its id."""
    known = list(sessions)
    counts = Counter(map(_short, known))
    longer = Counter(map(_long, known))
    called: dict[str, str] = {}
    for session in known:
        short, long = _short(session), _long(session)
        unique = short if counts[short] == 1 else long if longer[long] == 1 else session.id
        called[session.id] = unique
    return called


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
    """`: did you mean vm-5163?`, where a name is near."""
    called = names(sessions)
    near = get_close_matches(text, called.values(), MOST_NAMED, 0.75)
    return f": did you mean {' or '.join(near)}?" if near else ""


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
