"""A session's event log: `rocm_tui/sessions/<host>-<pid>-<start>-<random>.jsonl`.

Append-only with one writer per file, so no lock is needed: each event is one `write` of one line.
Whoever ends a writer ends its log, so that the screen does not wait for more.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import threading
import time
from dataclasses import replace
from pathlib import Path

from backend.disk import safe
from backend.disk.layout import Layout
from backend.errors import EventInvalid, StoreError
from backend.model.events import Event, SessionEnded, SessionStarted
from backend.model.session import Fault, Session
from backend.processes.tree import from_a_handler, identity
from backend.wire.events import decode, encode

MAX_LINE = 16 << 20
MAX_PROBLEMS = 20
"""The number of bad lines reported individually; the rest is counted."""


_TAIL = 1 << 16


class EventWriter:
    """The writer of this process's events. Never raises: `error` is why it stopped.

    The file is created with the first event and begins with the session. It is locked until the
    process ends or closes it, so that a reader can see whether more may follow. A forked child that
    continues to write gets its own file and session. Safe to use from several threads and from
    signal handlers.
    """

    def __init__(self, layout: Layout, session: Session, path: Path | None = None) -> None:
        self._layout = layout
        self._start(session, path)

    def _start(self, session: Session, path: Path | None = None) -> None:
        self.session = session
        self.path = path or self._layout.sessions / _file_name(session)
        self.error: str | None = None
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._descriptor = -1
        self._closed = self._writing = False
        self._late: list[Event] = []

    def write(self, event: Event) -> bool:
        """Append `event`; False if this write, or an earlier one, failed."""
        if os.getpid() != self._pid:
            # The lock may be held by a thread that does not exist in this forked process.
            pid = os.getpid()
            session = replace(self.session, id=secrets.token_hex(8), pid=pid, process=identity(pid))
            self._start(session)
        with self._lock:
            if self._writing:  # a signal handler interrupted a write in this thread
                self._late.append(event)
                return True
            self._writing = True
            try:
                written = self._write(event)
                while self._late:
                    self._write(self._late.pop(0))
                return written
            finally:
                self._writing = False

    def _write(self, event: Event) -> bool:
        if self.error is not None or self._closed:
            return False
        try:
            if self._descriptor < 0:
                self._descriptor = self._open()
                if not isinstance(event, SessionStarted):
                    self._append(SessionStarted(self.session))
            self._append(event)
        except (OSError, StoreError, ValueError) as error:
            theirs = from_a_handler(error)
            if theirs is not None:
                raise theirs from None
            self.error = str(error)
            self._close_descriptor()
            return False
        return True

    def close(self) -> None:
        """End the log; later events are dropped."""
        with self._lock:
            self._closed = True
            self._close_descriptor()

    def _open(self) -> int:
        safe.make_folder(self._layout.root, self.path.parent)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(self.path, flags, 0o666)
        except OSError as error:
            raise safe.not_writable(self.path, error) from error
        # On file systems without locks, readers cannot take the lock either.
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return descriptor

    def _append(self, event: Event) -> None:
        line = encode(event).encode() + b"\n"
        try:
            written = os.write(self._descriptor, line)
        except OSError as error:
            raise safe.not_writable(self.path, error) from error
        if written != len(line):  # the part that fit on a full disk
            raise OSError(f"cannot write {self.path}: the disk is full")

    def _close_descriptor(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def read_log(path: Path) -> tuple[list[Event], list[Fault]]:
    """Return the events of a log, and faults for unreadable lines. Never raises. A last line
    without a newline is still being written, or was cut by a kill: it is left out."""
    events: list[Event] = []
    problems: list[Fault] = []
    bad = 0
    try:
        with safe.open_regular(path, follow=True) as stream:
            number = 0
            while line := stream.readline(MAX_LINE):
                number += 1
                if not line.endswith(b"\n"):
                    if len(line) < MAX_LINE:
                        break
                    problems.append(Fault(str(path), "a line of more than 16 MiB", number))
                    break
                if line.isspace():
                    continue
                try:
                    event = decode(line.decode())
                except (EventInvalid, UnicodeDecodeError) as error:
                    bad += 1
                    if bad <= MAX_PROBLEMS:
                        what = str(error) if isinstance(error, EventInvalid) else "not UTF-8"
                        problems.append(Fault(str(path), what, number))
                    continue
                if event is not None:
                    events.append(event)
    except OSError as error:
        problems.append(Fault(str(path), f"cannot read it: {error.strerror or error}"))
    if bad > MAX_PROBLEMS:
        problems.append(Fault(str(path), f"{bad - MAX_PROBLEMS} more lines are not events"))
    return events, problems


def _file_name(session: Session) -> str:
    host = re.sub(r"[^A-Za-z0-9.-]", "_", session.host)[:64].lstrip(".") or "host"
    started = int(session.started or time.time())
    return f"{host}-{session.pid or os.getpid()}-{started}-{secrets.token_hex(4)}.jsonl"


def is_released(path: Path | str) -> bool:
    """Return whether no process holds the log's lock: a writer holds it until it ends in any way.
    False if locks are not visible."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:  # held, or this file system has no locks
        return False
    finally:
        os.close(descriptor)
    return True


def end_log(layout: Layout, path: Path) -> bool:
    """Write `SessionEnded` for a dead writer; False if it did so itself, or left no log. Raises
    UnsafePath and NotWritable."""
    if path.parent != layout.sessions or not path.is_file():
        return False
    safe.check_file(layout.root, path)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            size = os.fstat(descriptor).st_size
            tail = os.pread(descriptor, _TAIL, max(0, size - _TAIL))
            whole, _, torn = tail.rpartition(b"\n")
            if not torn and _is_end(whole.rpartition(b"\n")[2]):
                return False
            line = encode(SessionEnded(time.time())).encode() + b"\n"
            os.write(descriptor, (b"\n" if torn else b"") + line)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise safe.not_writable(path, error) from error
    return True


def _is_end(line: bytes) -> bool:
    try:
        return isinstance(decode(line.decode()), SessionEnded)
    except (EventInvalid, UnicodeDecodeError):
        return False
