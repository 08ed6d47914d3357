"""This process's event log: opened when torch is imported in the program of a run, else at its
first tuning or graph, and ended at the process's exit. It also records when torch compiles: an
event for each change, a few per compile."""

from __future__ import annotations

import atexit
import functools
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from backend.disk.layout import Layout
from backend.disk.sessions import EventWriter
from backend.inductor import guard
from backend.inductor.guard import say_once, shielded
from backend.inductor.hooks.environment import home, rank, run_info
from backend.inductor.torch import versions
from backend.model.events import ActivityChanged, Event, HooksOff, SessionEnded, SessionStarted
from backend.model.session import Session
from backend.processes.tree import identity


class Recorder:
    """Writes events, and numbers tunings and graphs. Never raises, even if the disk fails."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler may compile, too
        self._writer: EventWriter | None = None
        self._early: EventWriter | None = None
        """The log in the cache dir in which the program began, if it has set another one."""
        self._described = False
        self._registered = False
        self._count = 0
        self._graphs = 0
        self._last_words: list[Callable[[], None]] = []
        os.register_at_fork(after_in_child=self._forked)
        guard.when_aside(self._stepped_aside)

    def next_number(self) -> int:
        """Return the number of a new tuning, from 1; the first opens the session."""
        with self._lock:
            self._describe()
            self._count += 1
            return self._count

    def next_of_triton(self) -> int:
        """Return the number of a tuning outside of Inductor, without loading Inductor."""
        with self._lock:
            if self._writer is None:
                self._open(_session())
            self._count += 1
            return self._count

    def next_graph(self) -> int:
        """Return the number of a new graph, from 1."""
        with self._lock:
            self._describe()
            self._graphs += 1
            return self._graphs

    def before_end(self, action: Callable[[], None]) -> None:
        """Call `action` before the session ends."""
        self._last_words.append(action)

    @property
    def session(self) -> Session | None:
        """The session as recorded so far; None before it is opened."""
        return self._writer.session if self._writer is not None else None

    def busy(self) -> bool:
        """Return whether another thread is writing at the moment."""
        if not self._lock.acquire(blocking=False):
            return True
        self._lock.release()
        return False

    def begin(self, event: Event) -> None:
        """Write `event`; the first opens the session with what is known without Inductor."""
        with self._lock:
            if self._writer is None:
                self._open(_session())
            self._put(event)

    def _describe(self) -> None:
        """Open the session, or complete its record now that Inductor is loaded."""
        if self._described:
            return
        try:
            session = _hooked_session()
        except RuntimeError:  # CUDA, which answers nothing in a fork of a process that used it
            session = _session()
        self._described = True
        early = self._writer
        if early is not None:
            session = replace(session, id=early.session.id, started=early.session.started)
            if session.cache_dir == early.session.cache_dir:
                early.session = session
                self._put(SessionStarted(session))
                return
            # The program has set another cache dir since: this log says which.
            early.write(SessionStarted(session))
            self._early = early
        self._open(session)

    def _open(self, session: Session) -> None:
        self._writer = EventWriter(Layout(Path(session.cache_dir)), session)
        self._put(SessionStarted(session))
        if not self._registered:
            self._registered = True
            atexit.register(self.end_in, os.getpid())

    def write(self, event: Event) -> None:
        with self._lock:
            self._put(event)

    def _put(self, event: Event) -> None:
        writer = self._writer
        if writer is not None and not writer.write(event) and writer.error is not None:
            say_once(f"no more is recorded: {writer.error}")

    def end_in(self, pid: int) -> None:
        """End the session if this is the process `pid`. Calling it again does nothing."""
        with guard.quietly("the end of the session is not recorded"):
            if pid != os.getpid():
                return
            for action in self._last_words:
                with guard.quietly("the last results before the end are not recorded"):
                    action()
            with self._lock:
                for writer in filter(None, (self._early, self._writer)):
                    writer.write(SessionEnded(time.time()))
                    writer.close()

    def _stepped_aside(self, reason: str) -> None:
        if self._writer is None:
            record_unhooked(reason)
        else:
            self.write(HooksOff(time.time(), reason))

    def _forked(self) -> None:
        # A thread of the parent may have held the lock; the child has its own session, or none.
        self._lock = threading.RLock()
        self._writer = self._early = None
        self._described = self._registered = False
        self._count = self._graphs = 0


@functools.cache
def recorder() -> Recorder:
    """Return the recorder of this process."""
    return Recorder()


def record_unhooked(reason: str) -> None:
    """Write a session with the reason why the hooks could not record this process."""
    session = _session()
    writer = EventWriter(Layout(Path(session.cache_dir)), session)
    writer.write(SessionStarted(session))
    writer.write(HooksOff(time.time(), reason))
    writer.close()


def session_without_tunings(root: Path | None = None) -> EventWriter:
    """Return the log of a session without tunings, in the cache dir `root`, or the current one."""
    if root is None:
        return EventWriter(Layout(home.current()), _session_on_device())
    return EventWriter(Layout(root), replace(_session_on_device(), cache_dir=str(root)))


def write_alone(log: EventWriter, event: Event) -> str:
    """Write the only event of a session, and end it. Return why it was not kept, in one line."""
    for each in (event, SessionEnded(time.time())):
        log.write(each)
    log.close()
    return f"this is kept nowhere: {log.error}" if log.error else ""


def session_id(run: str) -> str:
    """Return an id for this process's session, which begins with the id of its run and ends with
    the pid."""
    if not run:
        return secrets.token_hex(8)
    if run_info().get("pid") != str(os.getppid()):  # maybe on another host, where pids recur
        run = f"{run}.{secrets.token_hex(4)}"
    return f"{run}-{os.getpid()}"


def _session() -> Session:
    torch = sys.modules.get("torch")
    return Session(
        id=session_id(run_info().get("run", "")),
        host=socket.gethostname(),
        pid=os.getpid(),
        rank=rank(),
        argv=tuple(getattr(sys, "orig_argv", sys.argv)),
        python=".".join(map(str, sys.version_info[:3])),
        torch=str(getattr(torch, "__version__", "")),
        cache_dir=str(home.current()),
        started=time.time(),
        locked=True,  # by its EventWriter
        process=identity(os.getpid()),
    )


def _hooked_session() -> Session:
    from backend.inductor.hooks import backends  # heavy, and only for a torch that is known
    from backend.inductor.torch import tuning

    names = backends.requested()
    absent = backends.absent(names, backends.this_machine())
    modes = tuning.modes()
    return replace(_session_on_device(), backends=names, absent=absent, modes=modes)


def _session_on_device() -> Session:
    from backend.inductor.torch import tuning  # heavy, and only for a torch that is known

    device = tuning.device_facts()
    return replace(
        _session(),
        device=device.name,
        arch=device.arch,
        compute_units=device.compute_units,
        system_hash=tuning.system_hash(),
        threads=tuning.threads(),
    )


UNRECORDED = "what the process does is not recorded"


def record_import() -> None:
    """Record that torch was imported."""
    recorder().begin(ActivityChanged(time.time(), "running"))


def watch_compiles() -> None:
    """Record from now on when torch compiles."""
    versions.watch_compiles(
        shielded(UNRECORDED, lambda: recorder().begin(ActivityChanged(time.time(), "compiling"))),
        shielded(UNRECORDED, lambda: recorder().write(ActivityChanged(time.time(), "running"))),
    )
