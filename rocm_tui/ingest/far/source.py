"""A source on another host, followed as long as the program runs: connected, lost, connected again.

What it told stays while it is away. When it is back it tells all again: what stands here already
changes nothing, and what is gone there is taken back.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from backend.model.session import Fault
from rocm_tui.ingest.far.link import Link, Lost
from rocm_tui.ingest.far.wire import Beat, Hello, Settled, Told, placed
from rocm_tui.ingest.far.words import away_text
from rocm_tui.ingest.records import (
    ActivitySeen,
    Dropped,
    Gone,
    LinkSeen,
    LinkState,
    Record,
    Seen,
    SourceStatus,
    Unread,
    source_of,
)
from rocm_tui.ssh.address import Address, address_of
from rocm_tui.ssh.child import pauses

_MOST = 1_000_000
"""Tunings, and other things told, of one far source: more is no cache dir of anybody's."""
_STEADY = 10.0
"""Seconds that a connection has to hold for the next loss to be the first again."""
_TICK = 1.0
_WAKE = 0.5
"""Seconds within which a stop is noticed, and a sign of life is due."""

Sink = Callable[[list[Record]], None]


class FarSource:
    """Follows `ssh://...` in a thread of its own, as `Watcher` does a path."""

    def __init__(self, text: str, sink: Sink, *, polling: bool = False) -> None:
        """Raises BadAddress."""
        self._address = address_of(text)
        self._text = text
        self._sink = sink
        self._place = partial(_place, self._address)
        self._words = [*(["--polling"] if polling else []), *_words(self._address)]
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._link: Link | None = None
        self._seen = LinkSeen(text, "connecting", time.time())
        self._since, self._due = time.monotonic(), 0.0
        """The `when` and `retry` of `_seen`, by a clock that nobody sets."""
        self._uids: set[str] = set()
        self._others = 0
        self._unread = False
        self._told = 0.0
        self._statuses: dict[str, SourceStatus] = {}

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="rocm-tui-ssh", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the connection; `sink` is not called any more."""
        self._stopping.set()
        link, thread, self._thread = self._link, self._thread, None
        if link is not None:
            link.kill()
        if thread is not None:
            thread.join(2 * _WAKE)

    def statuses(self) -> list[SourceStatus]:
        """That of the connection first, then those of the far side, as they were told last."""
        known = dict(self._statuses)
        seen, path = self._seen, self._place(self._address.path)
        root = known.pop(path, None) if self._address.path else None
        size, read, problems = (root.size, root.read, root.problems) if root else (0, 0, 0)
        away_for = away_text(self._by_the_clock(seen), time.time())
        words = " · ".join(filter(None, (away_for, seen.why, root.words if root else "")))
        format = root.format if root else "folder"
        own = SourceStatus(path, format, size, read, problems, "ssh", seen.state, words)
        away = None if seen.state == "following" else seen.state
        files = (
            replace(each, watched_by="ssh", state=away or each.state) for each in known.values()
        )
        return [own, *files]

    # In the thread.

    def _run(self) -> None:
        ahead = pauses()
        while not self._stopping.is_set():
            begun = time.monotonic()
            self._say("connecting", why=self._seen.why)
            try:
                why = self._follow()
            except Exception as error:  # the thread's outermost boundary: say that it ended
                self._put([Fault(self._text, f"following ended: {type(error).__name__}: {error}")])
                self._say("lost", why="a fault of rocm-tui itself")
                return
            if time.monotonic() - begun > _STEADY:
                ahead = pauses()
            seconds = next(ahead)
            self._say("lost", why=why, seconds=seconds)
            while (left := self._left()) > 0 and not self._stopping.wait(min(left, _TICK)):
                self._tick()

    def _follow(self) -> str:
        """One connection, and why it ended."""
        before, self._uids, self._others, settled = self._uids, set(), 0, False
        link: Link | None = None
        try:
            link = self._link = Link(self._address, self._words)
            while not self._stopping.is_set():
                records: list[Record] = []
                for told in link.told(_WAKE):
                    if isinstance(told, Settled) and not settled:
                        settled = True
                        records += [Dropped(uid) for uid in before - self._uids]
                    else:
                        self._take(told, records)
                self._put(records)
                self._tick()
        except Lost as lost:
            if not self._seen.reached:
                self._unread = True
                self._put([Unread(self._text, str(lost))])
            return str(lost)
        finally:
            self._link = None
            if link is not None:
                link.end()
            if not settled:  # what was not told again yet still stands
                self._uids |= before
        return ""

    def _take(self, told: Told, records: list[Record]) -> None:
        if isinstance(told, Hello):
            self._statuses.clear()
            if self._unread:  # no longer
                self._unread = False
                records.append(Gone(self._text))
            self._say("following")
        elif isinstance(told, Beat):
            for path in told.gone:
                self._statuses.pop(self._place(path), None)
            for status in told.sources:
                self._statuses[self._place(status.path)] = replace(
                    status, path=self._place(status.path)
                )
        elif not isinstance(told, Settled):
            record = placed(told, self._place)
            self._count(record)
            records.append(record)

    def _count(self, record: Record) -> None:
        """Note which tunings stand here. Raises Lost for more than anybody has."""
        if isinstance(record, Seen):
            self._uids.add(record.uid)
        elif isinstance(record, Dropped):
            self._uids.discard(record.uid)
        elif isinstance(record, Gone):
            self._uids = {uid for uid in self._uids if source_of(uid) != record.source}
        else:
            self._others += not isinstance(record, ActivitySeen)
        if max(len(self._uids), self._others, len(self._statuses)) > _MOST:
            raise Lost(f"tells of more than {_MOST:,} things")

    def _say(self, state: LinkState, *, why: str = "", seconds: float | None = None) -> None:
        """`seconds`: until it is tried again."""
        seen, now = self._seen, time.monotonic()
        if "following" in (state, seen.state):
            self._since = now
        self._due = now + (seconds or 0.0)
        retry = None if seconds is None else 0.0
        reached = seen.reached or state == "following"
        self._tell(LinkSeen(self._text, state, 0.0, retry, why, reached))

    def _tell(self, seen: LinkSeen) -> None:
        self._seen = self._by_the_clock(seen)
        self._told = time.monotonic()
        self._put([self._seen])

    def _by_the_clock(self, seen: LinkSeen) -> LinkSeen:
        """With the times that the machine's clock, which may be set, has for them now."""
        ahead = time.time() - time.monotonic()
        retry = None if seen.retry is None else self._due + ahead
        return replace(seen, when=self._since + ahead, retry=retry)

    def _left(self) -> float:
        """Seconds until the next try."""
        return self._due - time.monotonic()

    def _tick(self) -> None:
        """While it is away seconds are counted, where it is shown."""
        if self._seen.state != "following" and time.monotonic() - self._told >= _TICK:
            self._tell(self._seen)

    def _put(self, records: list[Record]) -> None:
        if records and not self._stopping.is_set():
            self._sink(records)


def read_far(text: str) -> list[Record]:
    """All that a far source holds now; an Unread where it cannot be had. Raises BadAddress."""
    address, records = address_of(text), list[Record]()
    at = partial(_place, address)
    try:
        link = Link(address, ["--once", *_words(address)])
        try:
            while True:
                for told in link.told(_WAKE):
                    if isinstance(told, Settled):
                        return records
                    if not isinstance(told, Hello | Beat):
                        record = placed(told, at)
                        if isinstance(record, Unread) and record.source == at(address.path):
                            record = replace(record, source=text)  # as it was named here
                        records.append(record)
        finally:
            link.end()
    except Lost as lost:
        return [*records, Unread(text, str(lost))]


def _place(address: Address, name: str) -> str:
    """A path of the far side as it is called here."""
    return f"{address.place}{'' if name.startswith('/') else '/'}{name}"


def _words(address: Address) -> Sequence[str]:
    return ["--", address.path] if address.path else []
