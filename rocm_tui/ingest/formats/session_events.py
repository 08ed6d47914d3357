"""What a log tells of its process: what it does, whether it lives, how it ended."""

from __future__ import annotations

import os
import typing
from dataclasses import dataclass, replace

from backend.model.events import ActivityChanged, ProcessExited, SessionEnded
from backend.model.session import LATEST, Activity, ActivityState, Session
from backend.model.tuning import is_word
from rocm_tui.ingest.records import ActivitySeen

_WORDS: dict[str, ActivityState] = {
    "importing": "importing",
    "running": "running",
    "compiling": "compiling",
}
MOST_STATUS = 255


@dataclass(frozen=True, slots=True)
class Progress:
    """Of a tuning that goes on."""

    state: ActivityState
    op: str
    since: float | None
    done: int
    total: int
    rank: int | None = None


def _doing(word: str) -> str | None:
    """What it does: a state, or the word of a later version, as it stands there. None for what is
    no such word, and for one that is not its own to say, such as that it died."""
    if word in typing.get_args(ActivityState):
        return _WORDS.get(word)
    return None if is_word(word) else word


class ActivityFold:
    """The process of one log."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._session: Session | None = None
        self._told: Activity | None = None
        self._ended = self._seen_from_here = False
        self._gone: bool | None = None
        self._sent: Activity | None = None

    def begin(self, session: Session) -> None:
        """The log is of this process."""
        self._session = session
        self._seen_from_here = self._lives() is not None
        if self._told is None:
            state: ActivityState = "running" if session.torch else "starting"
            self._told = Activity(state, state, session.started or None)

    def take(self, event: ActivityChanged | SessionEnded | ProcessExited) -> None:
        """Take an event in."""
        told = self._told
        if told is None:
            return
        when = event.when if 0 <= event.when <= LATEST else None
        if isinstance(event, ActivityChanged):
            word = _doing(event.activity)
            if word is not None:
                self._told = replace(told, state=word, told=word, since=when)
            return
        self._ended = True
        state = "done"
        status = event.status if isinstance(event, ProcessExited) else None
        if status is not None and not -MOST_STATUS <= status <= MOST_STATUS:
            status = None
        if status is not None and status < 0:
            state = "died"
        self._told = replace(told, state=state, ended=when, status=status)

    @property
    def waits(self) -> bool:
        """Whether it can be seen from here when the process dies, and it has not."""
        return self._seen_from_here and not self._ended

    def settle(self) -> bool:
        """Look whether the process is gone without saying so."""
        if self.waits and self._lives() is False:
            self._gone = self._ended = True
        return bool(self._gone)

    def _lives(self) -> bool | None:
        """Older logs tell no more than that their writer holds a lock, which a helper that it left
        behind holds too. A pid would not do: that of a container is the one of some other process
        outside of it, under the same host name."""
        session = self._session
        if session is None or session.host != os.uname().nodename:
            return None
        from backend.disk.sessions import is_released  # few logs are of this machine's processes
        from backend.processes.tree import lives

        known = lives(session.process)
        if known is not None or not session.locked:
            return known
        return not is_released(self._source)

    def changed(self, running: Progress | None) -> list[ActivitySeen]:
        """What the process does now, if that is news; `running` is what it tunes."""
        now = self._now(running)
        if now is None or now == self._sent or self._session is None:
            return []
        self._sent = now
        return [ActivitySeen(self._source, self._session.id, now)]

    def _now(self, running: Progress | None) -> Activity | None:
        told = self._told
        if told is None:
            return None
        if running is not None:
            told = replace(
                told,
                told=running.state,
                since=running.since,
                op=running.op,
                done=running.done,
                total=running.total,
                rank=running.rank,
            )
            if not self._ended:
                told = replace(told, state=running.state)
        if self._gone:
            return replace(told, state="died")
        if not self._ended and not self._seen_from_here:
            return replace(told, state="unknown")
        return told
