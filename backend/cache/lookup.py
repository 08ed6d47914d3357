"""Inductor's autotune cache file for a process that looks up and tunes.

The file is parsed once, and again only when somebody else replaced it. A new entry goes into the
journal, where every other process of ours sees it immediately, and is folded into the file:
immediately while the file is small, else soon in the background (once for many entries, and not
during a measurement), else at exit, else by the next process.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import filelock  # noqa: F401 - now, since a fork while the thread that folds imports it blocks the child

from backend.cache import journal as tuned_journal
from backend.cache.autotune import cache_of
from backend.cache.fold import Pinned, RecentFolds, fold
from backend.cache.journal import (
    NOTHING,
    Index,
    Journal,
    JournalRead,
    Tuned,
    apply,
    line_of,
    tuned_in,
    view,
)
from backend.disk.exchange import Signature, signature_of
from backend.disk.safe import load_json, read_bytes
from backend.errors import Busy, CacheUnreadable, StoreError, UnsafePath

SMALL = 1 << 20
"""Bytes of a cache file that is rewritten for each new entry, which takes some 10 ms."""

TRIES = 5

PATIENCE_SECONDS = 2.0
"""Seconds that another process may hold a lock, once: a program does not wait for a stopped one, as
by Ctrl-Z. Folding a file of 29 MB takes half a second."""

QUIET_SECONDS = 3.0
LATEST_SECONDS = 30.0
"""Seconds until an action begins after the last request, and after the first."""

HELD_POLL_SECONDS = 0.05
WAIT_SECONDS = 2.0
"""Seconds that a measurement waits for a running action."""

_index_lock = threading.RLock()
_fold_lock = threading.RLock()
_LOCKS = (_index_lock, tuned_journal.mutex)
"""Locks that a fork waits for."""


class TunedCache:
    """A cache file and its journal. Safe to use from several threads and across forks.

    `system` is the file's header; `say` reports one line to the user; `pinned` returns the pins
    held by raised numbers.
    """

    def __init__(
        self, path: Path, system: Mapping[str, Any], say: Callable[[str], None], pinned: Pinned
    ) -> None:
        self.path = path
        self._pinned = pinned
        self._root = path.parent.parent
        self._system = system
        self._say = say
        self._journal = Journal(self._root, path)
        self._journal.patience = PATIENCE_SECONDS
        self._index: Index = {}
        self._file: Signature | None = None
        self._read: JournalRead = NOTHING
        self._stamp: object = ()
        self._unwritten: list[Tuned] = []
        self._kept = RecentFolds(self._root, path)
        self._checked: Signature | None = None
        self._later = DelayedAction(self.fold)
        self._exit_pid: int | None = None
        self._is_held = self._is_stuck = False
        """Whether another process did not release the file's lock: not waited for again, except at
        exit if it was not stuck."""

    def view(self) -> dict[str, Any]:
        """Return all current timings, in the shape of the file's "cache"; see `view`."""
        with _index_lock:
            first = self._stamp == ()
            self._refresh()
            to_fold = self._recall() or (first and bool(self._read.lines))
            timings = view(self._index)
        if to_fold:
            self._fold_soon()
        return timings

    def insert(self, news: Sequence[Tuned]) -> None:
        """Keep new timings. Raises UnsafePath; then no other process gets them. Any other failure
        is reported; this process at least has the timings."""
        if not news:
            return
        self._act_at_exit()
        with _index_lock:
            self._unwritten += news
            if not self._write():
                return
        self._fold_soon()

    def measuring(self) -> contextlib.AbstractContextManager[None]:
        """Return a context without folding in the background, which would disturb a benchmark."""
        return self._later.held()

    def _write(self, *, last: bool = False) -> bool:
        """Append unwritten timings to the journal, and report a failure. Raises UnsafePath."""
        try:
            self._journal.append(b"".join(map(line_of, self._unwritten)))
        except StoreError as error:
            for tuned in self._unwritten:
                apply(self._index, tuned)
            if isinstance(error, UnsafePath):
                raise
            busy = isinstance(error, Busy)
            self._say(f"new timings are not kept{' yet' if busy and not last else ''}: {error}")
            if busy:
                self._journal.patience = 0.0
            return False
        self._journal.patience = PATIENCE_SECONDS
        self._unwritten = []
        return True

    def _recall(self) -> bool:
        """Restore what stock PyTorch removed from the file by writing an old copy. True if there
        was something: a fold will restore it in the file."""
        if self._checked == self._file:
            return False
        lost: list[Tuned] = []
        if not self._read.is_all_of(self._file):
            try:
                lost = self._kept.lost(self._index)
            except CacheUnreadable:
                return False  # perhaps only this once
        self._checked = self._file
        for tuned in lost:
            apply(self._index, tuned)
        return bool(lost)

    def fold(self, patience: float | None = None) -> None:
        """Fold the journal into the file now; report failures. Others may hold the lock for
        `patience` seconds, by default as long as a program should wait."""
        if patience is None:
            patience = 0.0 if self._is_held else PATIENCE_SECONDS
        before = signature_of(self.path)
        try:
            with _fold_lock:
                fold(self._root, self.path, self._system, self._pinned, patience)
        except Busy as error:
            # Others that write meanwhile will fold the journal.
            if not self._is_held and before == signature_of(self.path):
                self._is_stuck = True
                self._tell(error)
            self._is_held = True
        except StoreError as error:
            self._tell(error)
        else:
            self._is_held = self._is_stuck = False

    def _tell(self, error: StoreError) -> None:
        self._say(f"new timings stay in {self._journal.path} for now: {error}")

    def _act_at_exit(self) -> None:
        if self._exit_pid != os.getpid():
            self._exit_pid = os.getpid()
            atexit.register(self._at_exit, os.getpid())

    def _fold_soon(self) -> None:
        self._act_at_exit()
        signature = signature_of(self.path)
        if signature is None or signature[2] < SMALL:
            self.fold()
        else:
            self._later.call()

    def _at_exit(self, pid: int) -> None:
        if pid == os.getpid() and self._root.is_dir():
            with _index_lock, contextlib.suppress(UnsafePath):
                if self._unwritten:
                    self._journal.patience = PATIENCE_SECONDS
                    self._write(last=True)
            self._is_held = self._is_stuck
            self.fold()

    # The index

    def _refresh(self) -> None:
        stamp = signature_of(self.path), self._journal.signature()
        if stamp == self._stamp:
            return
        for _ in range(TRIES):
            # A fold changes the file first, then the journal. So if the file was the same before
            # and after the journal was read, they belong together.
            before = signature_of(self.path)
            read = self._journal.read(self._read)
            if signature_of(self.path) != before:
                continue
            readable = True
            if not self._follow(before, read):
                readable = self._load(before)
                read = self._journal.read()
                self._apply(read.lines)
            if readable and signature_of(self.path) == before:
                # A journal that could not be read is read again next time.
                file_stamp, journal_stamp = stamp
                stamp = file_stamp, None if read is NOTHING else journal_stamp
                self._read, self._file, self._stamp = read, before, stamp
                break
            self._read, self._file, self._stamp = NOTHING, None, ()
            if not readable:
                break
        for tuned in self._unwritten:
            apply(self._index, tuned)

    def _follow(self, file: Signature | None, read: JournalRead) -> bool:
        """Update the index without parsing the file, if possible; return whether it was."""
        if self._stamp == ():
            return False
        if file == self._file:  # so the index already has what a fold took from the journal
            self._apply(read.lines)
            return True
        folded = read.fold
        if folded is None or folded.before is None:
            return False
        if (folded.before, folded.after) != (self._file, file):
            return False
        missed = self._journal.rest(self._read, folded)
        if missed is None:
            return False
        self._apply(missed + read.lines)
        return True

    def _load(self, signature: Signature | None) -> bool:
        """Parse the file; return False if the system could not read it, perhaps only this once."""
        self._index = {}
        if signature is None:
            return True
        try:
            cache = cache_of(self.path, load_json(self.path, read_bytes(self.path)))
        except CacheUnreadable as error:
            if not self.path.exists():
                return True
            self._tell(error)
            return not isinstance(error.__cause__, OSError)
        self._index = {
            op: by_inputs for op, by_inputs in cache.items() if isinstance(by_inputs, dict)
        }
        return True

    def _apply(self, lines: bytes) -> None:
        for tuned in tuned_in(lines):
            apply(self._index, tuned)


def _before_fork() -> None:
    """Let no other thread be changing an index or a journal. A fold is not waited for: syncing to a
    slow disk takes seconds. What it changes is on disk, under a file lock that the child sees as
    any other process does."""
    for lock in _LOCKS:
        lock.acquire()


def _after_fork() -> None:
    for lock in reversed(_LOCKS):
        lock.release()


def _after_fork_in_child() -> None:
    global _fold_lock
    _fold_lock = threading.RLock()  # the thread that may hold it stayed in the parent
    _after_fork()


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child
)


class DelayedAction:
    """Calls `action` some time after `call`. Its thread does not outlive the process or a fork: the
    caller repeats the action at exit if necessary."""

    def __init__(self, action: Callable[[], None]) -> None:
        self._action = action
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._acting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._due = self._latest = 0.0
        self._holders = 0

    def call(self) -> None:
        """Request the action."""
        self._check_fork()
        with self._lock:
            self._due = time.monotonic() + QUIET_SECONDS
            if self._thread is None:
                self._latest = time.monotonic() + LATEST_SECONDS
                thread = threading.Thread(target=self._run, name="rocm-tui fold", daemon=True)
                with contextlib.suppress(RuntimeError):  # no thread can be started at exit
                    thread.start()
                    self._thread = thread

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold back the start of the action; wait a moment for one that is running."""
        self._check_fork()
        lock, acting = self._lock, self._acting
        with lock:
            self._holders += 1
        try:
            if acting.acquire(timeout=WAIT_SECONDS):
                acting.release()
            yield
        finally:
            with lock:
                self._holders -= 1

    def _check_fork(self) -> None:
        if self._pid != os.getpid():  # the thread stayed in the parent
            self._reset()

    def _run(self) -> None:
        while (seconds := self._seconds_left()) > 0:
            time.sleep(seconds)
        try:
            self._action()
        finally:
            self._acting.release()

    def _seconds_left(self) -> float:
        """Return the seconds until the action; 0 if it is due."""
        with self._lock:
            seconds = min(self._due, self._latest) - time.monotonic()
            if seconds > 0:
                return seconds
            if self._holders or not self._acting.acquire(blocking=False):
                return HELD_POLL_SECONDS
            self._thread = None
            return 0.0
