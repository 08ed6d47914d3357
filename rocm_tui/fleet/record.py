"""The record of a run, `rocm_tui/fleet/<run>.jsonl` below the cache dir: append-only, one driver at
a time, readable by anybody while it grows.

What a result says is in the record before it is in the cache. So a run goes on from its record,
whatever ended before; a line that a kill or a full disk tore is left out.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from backend.cache.journal import append_lines
from backend.disk import safe
from backend.disk.layout import Layout
from backend.wire.codec import WireError, dumps, loads
from rocm_tui.errors import RocmTuiError
from rocm_tui.fleet.lines import Line, line_in, text_of
from rocm_tui.fleet.places import control_path, fleet_folder, lock_path, record_path

MOST = 1 << 30
"""Bytes of a record that are read."""
_LOOKS, _LOOK = 4, 0.05
_CHUNK = 16 << 20


class NoRun(RocmTuiError):
    """There is no such run, or another driver is at it."""


class RecordFull(RocmTuiError):
    """The record cannot be written: nothing that comes from now on would be kept."""


class Record:
    """For writing, by the one driver of the run."""

    def __init__(self, layout: Layout, run: str) -> None:
        """Raises NoRun where another driver is at it, and StoreErrors."""
        self.path = record_path(layout, run)
        self.run = run
        safe.make_folder(layout.root, self.path.parent)
        safe.make_folder(layout.root, lock_path(layout, run).parent)
        safe.check_file(layout.root, self.path)
        self._lock_path = lock_path(layout, run)
        self._lock = _taken(self._lock_path)
        for _ in range(_LOOKS):  # who only asks whether there is a driver holds it for a moment
            if self._lock is None:
                time.sleep(_LOOK)
                self._lock = _taken(self._lock_path)
        if self._lock is None:
            raise NoRun(f"another driver is at the run {run}; end that one first")
        self._control = control_path(layout, run)
        self._control_end = _size(self._control)

    def add(self, *lines: Line, sync: bool = False) -> None:
        """Raises RecordFull."""
        now = time.time()
        try:
            append_lines(self.path, b"".join(text_of(line, now) for line in lines))
        except OSError as error:
            told = safe.not_writable(self.path, error)
            raise RecordFull(
                f"{told}. What is in the record is safe; go on with --resume {self.run}"
            ) from error
        if sync:
            safe.sync(self.path)

    def asked(self) -> list[str | None]:
        """What others asked to cancel since the last call: units, or None for all of it."""
        size = _size(self._control)
        if size <= self._control_end:
            return []
        with contextlib.suppress(OSError), safe.open_regular(self._control) as stream:
            stream.seek(self._control_end)
            data = stream.read(1 << 20)
            data = data[: data.rfind(b"\n") + 1]
            self._control_end += len(data)
            return list(_units(data))
        return []

    def discard(self) -> None:
        """Of a run that never began."""
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        if self._lock is not None:
            with contextlib.suppress(OSError):
                self._lock_path.unlink()  # a run would leave one for ever
            os.close(self._lock)
            self._lock = None


def _units(data: bytes) -> Iterator[str | None]:
    for line in data.splitlines():
        with contextlib.suppress(WireError):
            words = loads(line)
            if isinstance(words, dict) and "cancel" in words:
                unit = words["cancel"]
                yield unit if isinstance(unit, str) else None


def ask_to_cancel(layout: Layout, run: str, unit: str | None) -> None:
    """Leave word for the driver of a run, which looks each second. Raises StoreErrors and NoRun."""
    if not driver_lives(layout, run):
        raise NoRun(f"no driver is at the run {run}: there is nothing to cancel")
    path = control_path(layout, run)
    safe.check_file(layout.root, path)
    try:
        append_lines(path, dumps({"cancel": unit}).encode() + b"\n")
    except OSError as error:
        raise safe.not_writable(path, error) from error


def driver_lives(layout: Layout, run: str) -> bool:
    """Whether a driver holds the run now, on any host that shares the file system's locks."""
    try:
        lock = _taken(lock_path(layout, run), asks=True)
    except OSError:
        return False
    if lock is not None:
        os.close(lock)
    return lock is None


def _taken(path: Path, *, asks: bool = False) -> int | None:
    """The descriptor that holds the lock; None where a driver does. Who only `asks` takes it with
    others who ask, and may be another user, who cannot write there. Raises OSError."""
    how = os.O_RDONLY | os.O_NONBLOCK if asks else os.O_RDWR | os.O_CREAT
    kind = fcntl.LOCK_SH if asks else fcntl.LOCK_EX
    while True:
        descriptor = os.open(path, how | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            if _is_at(descriptor, path):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # its holder removed it: the next one is another file


def _is_at(descriptor: int, path: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    return False


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


class Reader:
    """Follows a record that may grow."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._end = 0

    def news(self) -> list[tuple[float, Line]]:
        """The lines since the last call with their times; none where there is no such file."""
        found: list[tuple[float, Line]] = []
        with contextlib.suppress(OSError), safe.open_regular(self.path) as stream:
            while self._end < MOST:
                stream.seek(self._end)
                data = stream.read(_CHUNK)
                while b"\n" not in data and len(data) < MOST and (more := stream.read(_CHUNK)):
                    data += more  # the first line of a run has all its problems
                whole = data[: data.rfind(b"\n") + 1]
                if not whole:
                    break
                self._end += len(whole)
                found += [line for text in whole.splitlines() if (line := line_in(text))]
        return found


def runs(layout: Layout) -> list[str]:
    """All that have a record, the newest last."""
    with contextlib.suppress(OSError):
        return sorted(path.stem for path in fleet_folder(layout).glob("*.jsonl"))
    return []


def pick_run(layout: Layout, text: str | None) -> str:
    """The run that is meant, by its first letters; the newest without any. Raises NoRun."""
    there = runs(layout)
    fitting = [run for run in there if run.startswith(text or "")]
    if text in there:
        return str(text)
    if not there:
        raise NoRun(no_runs(layout))
    if not fitting or (text and len(fitting) > 1):
        what = f"{text} is not one run" if fitting else f"no run {text}"
        raise NoRun(f"{what} in {fleet_folder(layout)}; there are: {_few(there)}")
    return fitting[-1]


def no_runs(layout: Layout) -> str:
    """What is said where there is no record at all."""
    return f"no run of a fleet in {layout.root}: `rocm-tui tune --fleet local --all` begins one"


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[-5:])
