"""New timings that are not in the autotune cache file yet: `rocm_tui/tuned/<system hash>.jsonl`.

Rewriting a cache file of 29 MB takes half a second, so a new entry is appended here, where all our
processes read it, and is folded into the cache file later. Once `append` has returned, the entry
survives the process; once it is folded, it is on disk. It is a line:

    {"op": ..., "inputs": ..., "precision": ..., "timings": {choice hash: ms}, "when": ...}

`ms` is a number, or a text where strict JSON has no number: "Infinity" (failed) or "NaN". The first
line names the journal, and describes the fold before it:

    {"journal": id, "fold": null | {"journal": id, "length": n, "before": [...], "after": [...]}}

Bytes up to `length` of the previous journal turned the cache file with the signature `before` into
the one with the signature `after`; `before` is null if the file has more than that. They stay in
`<system hash>.folded.jsonl` until the next fold, so that a reader of the previous file need not
parse all of the new one. `<system hash>.kept.jsonl` has the folds of a day; see `fold.RecentFolds`.

PyTorch's `lookup` gets a parsed cache file, reads it, writes into it, and hands it back. Our view
in its place is free to create, and records what was written into it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import math
import os
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from backend.cache.autotune import walk
from backend.disk import safe
from backend.disk.exchange import Signature, signature_of
from backend.disk.safe import MAX_BYTES, open_regular, read_bytes
from backend.errors import NotWritable
from backend.model.choice import CacheTime
from backend.model.problem import TuningKey
from backend.wire.codec import WireError, dumps, loads, read, to_json


@dataclass(frozen=True, slots=True)
class Tuned:
    """The timings of one tuning. The first three are keys of the cache file, verbatim, suffixes
    included; `timings` are milliseconds, `when` is Unix seconds."""

    op: str
    inputs: str
    precision: str
    timings: Mapping[str, CacheTime]
    when: float

    @property
    def key(self) -> TuningKey:
        return TuningKey(self.op, self.inputs, self.precision)


def line_of(tuned: Tuned) -> bytes:
    """Return the line, with its newline."""
    timings = {name: _strict(ms) for name, ms in tuned.timings.items()}
    return dumps({**to_json(tuned), "timings": timings}).encode() + b"\n"


def _strict(ms: Any) -> int | float | str:
    value = ms if isinstance(ms, (int, float)) else float(ms)
    return value if math.isfinite(value) else json.dumps(value)


def tuned_of(line: bytes) -> Tuned | None:
    """Parse a line; None if it is torn by a full disk or a power cut, foreign, or has a time that
    no kernel takes: 0 ms would win forever."""
    try:
        return read(Tuned, loads(line))
    except WireError:
        return None


def tuned_in(data: bytes) -> list[Tuned]:
    """Return the valid lines of `data`."""
    return [tuned for line in data.splitlines() if (tuned := tuned_of(line)) is not None]


ByInputs = dict[str, Any]
"""By inputs, precision and choice hash: milliseconds, in JSON that is not validated."""
Index = dict[str, ByInputs]
"""By op. The values of `ByInputs` are replaced, never changed."""


def view(index: Mapping[str, ByInputs]) -> dict[str, Any]:
    """Return a lazy copy of `index`."""
    return {op: _Inputs(by_inputs) for op, by_inputs in index.items()}


def written(looked_up: Mapping[str, Any]) -> list[Tuned]:
    """Return what was written into a view, or all of a plain dict of that shape."""
    now = time.time()
    return [
        Tuned(op, inputs, precision, timings, now)
        for op, inputs, precision, leaf in walk(looked_up)
        if (timings := leaf.news if isinstance(leaf, _Timings) else leaf)
    ]


def apply(index: Index, tuned: Tuned) -> None:
    """Add `tuned` to `index`; other choices of the tuning stay."""
    by_inputs = index.setdefault(tuned.op, {})
    by_precision = _object(by_inputs.get(tuned.inputs))
    timings = {**_object(by_precision.get(tuned.precision)), **tuned.timings}
    by_inputs[tuned.inputs] = {**by_precision, tuned.precision: timings}


def missing_timings(index: Mapping[str, Any], tuned: Tuned) -> Tuned | None:
    """Return the part of `tuned` that is missing from `index`, or None."""
    by_precision = _object(_object(index.get(tuned.op)).get(tuned.inputs))
    there = _object(by_precision.get(tuned.precision))
    if tuned.timings.keys() <= there.keys():
        return None
    lacking = {name: ms for name, ms in tuned.timings.items() if name not in there}
    return replace(tuned, timings=lacking)


class _Timings(dict[str, Any]):
    """The times of one tuning. `news` are the ones that were set."""

    def __init__(self, stored: Mapping[str, Any]) -> None:
        super().__init__(stored)
        self.news: dict[str, float] = {}

    def __setitem__(self, name: str, ms: Any) -> None:
        super().__setitem__(name, ms)
        self.news[name] = ms


class _Inputs(dict[str, Any]):
    """The accessed inputs of one op; others are copied from the index on access."""

    def __init__(self, stored: Mapping[str, Any]) -> None:
        super().__init__()
        self._stored = stored

    def get(self, inputs: str, default: Any = None) -> Any:
        there = super().get(inputs)
        if there is None:
            there = _copied(self._stored.get(inputs))
            if there is None:
                return default
            self[inputs] = there
        return there

    def __missing__(self, inputs: str) -> Any:
        there = self.get(inputs)
        if there is None:
            raise KeyError(inputs)
        return there

    def __contains__(self, inputs: object) -> bool:
        return isinstance(inputs, str) and self.get(inputs) is not None

    def setdefault(self, inputs: str, default: Any = None) -> Any:
        there = self.get(inputs)
        if there is None:
            there = self[inputs] = default
        return there


def _copied(by_precision: object) -> dict[str, Any] | None:
    if not isinstance(by_precision, dict):
        return None
    return {name: _Timings(_numbers(times)) for name, times in by_precision.items()}


def _numbers(times: object) -> Mapping[str, Any]:
    stored = _object(times)
    if set(map(type, stored.values())) <= {float, int}:
        return stored
    return {name: ms for name, ms in stored.items() if type(ms) in (float, int)}


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


POLL_SECONDS = 0.0005
"""Seconds between two attempts at a lock that is held for microseconds."""

mutex = threading.RLock()
"""Held with the lock of any journal: POSIX locks do not exclude threads of the same process."""


@dataclass(frozen=True, slots=True)
class JournalFold:
    """A fold; `before` is None if the file has more than the journal's timings."""

    journal: str
    length: int
    before: Signature | None
    after: Signature


@dataclass(frozen=True, slots=True)
class _Header:
    """The first line of a journal."""

    journal: str
    fold: JournalFold | None


@dataclass(frozen=True, slots=True)
class JournalRead:
    """Whole lines of the journal `id` from one offset up to `end`, in bytes. An empty `id` is
    unknown. `fold` is the last one before this journal."""

    id: str
    lines: bytes
    end: int
    fold: JournalFold | None = None

    def is_all_of(self, file: Signature | None) -> bool:
        """Return whether the file still has its signature after the last fold: nobody else wrote to
        it, or it does not exist."""
        return file is None or (self.fold is not None and self.fold.after == file)


NOTHING = JournalRead("", b"", 0)


class Journal:
    """The journal of the cache file `cache_path`, whose cache dir is `root`."""

    patience = safe.LOCK_SECONDS
    """Seconds that others may hold the journal."""

    def __init__(self, root: Path, cache_path: Path) -> None:
        self._root = root
        self.path = root / "rocm_tui" / "tuned" / f"{cache_path.name}.jsonl"
        self.folded_path = self.path.with_name(f"{cache_path.name}.folded.jsonl")

    def append(self, lines: bytes) -> None:
        """Add whole lines. Raises UnsafePath or NotWritable; a part of them may be written then."""
        safe.make_folder(self._root, self.path.parent)
        safe.check_file(self._root, self.path)
        with self._locked():
            try:
                append_lines(self.path, lines, _header(None))
            except OSError as error:
                raise safe.not_writable(self.path, error) from error

    def read(self, previous: JournalRead = NOTHING) -> JournalRead:
        """Return the lines behind `previous`, or all if that was another journal."""
        return self._read(self.path, previous)

    def choices(self, key: TuningKey) -> set[str]:
        """Return the hashes of the choices that have a time of `key` here, not folded yet."""
        lines = tuned_in(self.read().lines)
        return {name for tuned in lines if tuned.key == key for name in tuned.timings}

    def rest(self, previous: JournalRead, fold: JournalFold) -> bytes | None:
        """Return the folded lines behind `previous`; None if they are no longer kept."""
        if previous != NOTHING and previous.id != fold.journal:
            return None
        if previous.end >= fold.length:
            return b""
        folded = self._read(self.folded_path, previous)
        return folded.lines if (folded.id, folded.end) == (fold.journal, fold.length) else None

    def signature(self) -> Signature | None:
        return signature_of(self.path)

    def rotate(
        self, folded: JournalRead, before: Signature | None, after: Signature | None
    ) -> None:
        """Begin a new journal with the lines behind `folded`, which is in the cache file. The
        caller holds the lock of the cache file. Raises NotWritable; nothing is lost then."""
        fold = (
            JournalFold(folded.id, folded.end, before if folded.id else None, after)
            if after
            else None
        )
        safe.check_file(self._root, self.path)
        with self._locked():
            data = read_bytes(self.path)
            self._keep_folded(data[: folded.end])
            temporary = safe.temporary_path(self.path)
            content = _header(fold) + data[folded.end :]
            safe.write_temporary(temporary, content, like=self.path, sync=False)
            safe.put_in_place(temporary, self.path)

    def _keep_folded(self, data: bytes) -> None:
        """Keep the folded lines, if possible: without them readers parse the cache file."""
        temporary = safe.temporary_path(self.folded_path)
        with contextlib.suppress(OSError, NotWritable):
            safe.write_temporary(temporary, data, like=self.path, sync=False)
            safe.put_in_place(temporary, self.folded_path)

    def _read(self, path: Path, previous: JournalRead) -> JournalRead:
        try:
            with open_regular(path) as stream:
                first = stream.readline(4096)
                header = _parse_header(first)
                name = header.journal
                begin = len(first) if name else 0
                if name and name == previous.id and previous.end >= begin:
                    begin = previous.end
                stream.seek(begin)
                data = stream.read(MAX_BYTES)
        except OSError:
            return NOTHING
        lines = data[: data.rfind(b"\n") + 1]
        return JournalRead(name, lines, begin + len(lines), header.fold)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the journal, for microseconds. POSIX locks, since forks do not inherit them. Raises
        UnsafePath, or Busy when patience ends."""
        lock = self._root / "rocm_tui" / "locks" / f"tuned-{self.path.stem}.lock"
        safe.make_folder(self._root, lock.parent)
        safe.check_file(self._root, lock)
        with mutex:
            try:
                descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC)
            except OSError as error:
                raise safe.not_writable(lock, error) from error
            try:
                _acquire(descriptor, lock, self.patience)
                for path in (self.path, self.folded_path):
                    safe.remove(safe.temporary_path(path))  # of a holder that was killed
                yield
            finally:
                os.close(descriptor)


def append_lines(path: Path, lines: bytes, first: bytes = b"") -> int:
    """Add whole lines to a file that nobody else writes now; `first` begins an empty file. Returns
    its size. Raises OSError.

    A torn line stays: nothing is cut off, so offsets remain valid.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o666)
    try:
        size = os.fstat(descriptor).st_size
        if size == 0:
            lines = first + lines
        elif os.pread(descriptor, 1, size - 1) != b"\n":
            lines = b"\n" + lines  # ends what a kill, a power cut or a full disk tore
        if os.write(descriptor, lines) != len(lines):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return size + len(lines)
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, lock: Path, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise safe.not_writable(lock, error) from error
            if time.monotonic() > deadline:
                raise safe.busy(lock) from error
        time.sleep(POLL_SECONDS)


def _header(fold: JournalFold | None) -> bytes:
    return dumps(to_json(_Header(secrets.token_hex(8), fold))).encode() + b"\n"


def _parse_header(line: bytes) -> _Header:
    """Parse the first line; its name is empty if it is invalid."""
    try:
        return read(_Header, loads(line) if line.endswith(b"\n") else None)
    except WireError:
        return _Header("", None)
