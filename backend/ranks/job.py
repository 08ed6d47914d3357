"""The job that this process is a rank of, where its ranks meet, and the notes that they leave
there.

Launchers describe the job in the environment: torchrun and those that follow it set RANK and
WORLD_SIZE. Ranks of one host share the cache dir. Their folder there is named after the process
that started them all, the nearest one above that is no rank itself: so a job never meets what an
earlier one left, and finds its own after a restart of its ranks.

A note is created whole or not at all, by whoever is first, also on NFS, where only one process can
create a hard link. Beside each note is a heartbeat of its writer.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

from backend.disk.layout import Layout
from backend.disk.safe import check_folder, make_folder, not_writable, open_regular
from backend.errors import StoreError, brief
from backend.processes import tree
from backend.processes.tree import identity
from backend.wire.codec import WireError, dumps, loads, read, to_json

AGREE = "ROCM_TUI_AGREE"
"""The variable: how many seconds a rank waits for another's choice; not set: ranks do not wait."""

FOLDER = "ROCM_TUI_AGREE_DIR"
"""The variable: the folder where the ranks of one job meet, on all of its hosts."""

SECONDS = 180.0
"""A product with many choices takes a minute or two to be tuned on a GPU."""

MOST_SECONDS = 1e6

_LOCAL = ("localhost", "127.0.0.1", "::1", "[::1]")
_RANKS = ("RANK", "LOCAL_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID")
_DEPTH = 32


@dataclass(frozen=True, slots=True)
class JobMember:
    """This process in its job."""

    rank: int
    size: int


def limit(env: Mapping[str, str] = os.environ) -> float:
    """Seconds to wait at most; 0 where ranks shall not agree."""
    try:
        seconds = float(env.get(AGREE, "") or 0)
    except ValueError:
        return 0.0
    return min(max(0.0, seconds), MOST_SECONDS)


def job_member(env: Mapping[str, str] = os.environ) -> JobMember | None:
    """What the environment says; None for a process that is alone."""
    rank, size = env.get("RANK", ""), env.get("WORLD_SIZE", "")
    if not (rank.isdecimal() and size.isdecimal()) or int(size) < 2:
        return None
    return JobMember(int(rank), int(size))


@dataclass(frozen=True, slots=True)
class Meeting:
    """The folder `path` below `root`, which others must not be able to change."""

    root: Path
    path: Path


def meeting(size: int, layout: Layout, env: Mapping[str, str] = os.environ) -> Meeting | str:
    """The folder where ranks meet, or why there is none; empty where they are on several hosts."""
    given = env.get(FOLDER, "")
    if given:
        folder = Path(os.path.realpath(given))
        return Meeting(folder, folder)
    if not one_host(size, env):
        return ""
    above = launcher()
    if not above:
        return "who started its ranks cannot be seen; name a folder for this job with --agree-dir"
    name = hashlib.sha256(above.encode()).hexdigest()[:16]
    return Meeting(layout.root, layout.ranks / name)


def one_host(size: int, env: Mapping[str, str]) -> bool:
    """Whether all ranks are here, as far as launchers tell."""
    for name in ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"):
        if env.get(name, "").isdecimal():
            return int(env[name]) == size
    for name in ("SLURM_STEP_NUM_NODES", "SLURM_NNODES"):
        if env.get(name, "").isdecimal():
            return int(env[name]) == 1
    return env.get("MASTER_ADDR", "") in _LOCAL


def launcher() -> str:
    """The identity of the process that started the ranks of this host; empty if unknown."""
    pid = os.getppid()
    for _ in range(_DEPTH):
        process = tree.read(pid)
        if process is None:
            return ""
        if not _is_rank(pid):
            return identity(pid)
        pid = process.parent
    return ""


def _is_rank(pid: int) -> bool:
    """Whether it was told a rank when it was started; of others' processes that is not to be
    seen, and a rank's are its own."""
    try:
        told = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(one.partition(b"=")[0].decode("ascii", "replace") in _RANKS for one in told)


MOST = 1 << 20
"""Bytes of a note. More is none."""


class NoBoard(StoreError):
    """Ranks cannot meet: why, in a line."""


class Board(Protocol):
    """Each method raises NoBoard where the ranks cannot meet any more."""

    def read(self, name: str) -> bytes | None:
        """The note; None where there is none."""

    def put(self, name: str, note: bytes) -> bool:
        """Whether there was none of that name yet."""

    def take_down(self, name: str) -> None:
        """Remove a note of ours."""

    def beat(self, name: str) -> None:
        """Say that who wrote the note is at work."""

    def last_beat(self, name: str) -> object:
        """Something that changes with each `beat`."""


class FolderBoard:
    """Notes as files of one folder."""

    def __init__(self, meeting: Meeting) -> None:
        self._folder = meeting.path
        self._root = meeting.root
        try:
            make_folder(meeting.root, meeting.path)
        except StoreError as error:
            raise NoBoard(str(error)) from error

    def __str__(self) -> str:
        return str(self._folder)

    def read(self, name: str) -> bytes | None:
        try:
            with open_regular(self._folder / name) as stream:
                return stream.read(MOST)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise NoBoard(f"cannot read {self._folder / name}: {_reason(error)}") from error

    def put(self, name: str, note: bytes) -> bool:
        path = self._folder / name
        whole = self._folder / f".{name}.{_writer()}"
        try:
            check_folder(self._root, self._folder)
            with contextlib.suppress(FileNotFoundError):
                whole.unlink()
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(whole, flags, 0o644), "wb") as stream:
                stream.write(note)
            try:
                os.link(whole, path)
            finally:
                whole.unlink()
        except FileExistsError:
            return False
        except StoreError as error:
            raise NoBoard(str(error)) from error
        except OSError as error:
            if error.errno in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
                why = f"{self._folder} has no hard links; name another one with --agree-dir"
                raise NoBoard(why) from error
            raise NoBoard(str(not_writable(path, error))) from error
        return True

    def take_down(self, name: str) -> None:
        with contextlib.suppress(OSError):
            (self._folder / name).unlink()

    def beat(self, name: str) -> None:
        with contextlib.suppress(OSError):  # a sign that is missing is seen by those who wait
            os.utime(self._folder / name)

    def last_beat(self, name: str) -> object:
        try:
            return (self._folder / name).stat().st_mtime_ns
        except OSError:
            return None


def _writer() -> str:
    """Names this thread among those of all hosts."""
    return f"{os.uname().nodename[:64]}.{os.getpid()}.{threading.get_ident()}"


def _reason(error: OSError) -> str:
    return brief(error.strerror or str(error), 80)


@dataclass(frozen=True, slots=True)
class Rank:
    """A process of the job: `process` is its identity (backend/processes/tree.py), `device`
    what its choices depend on: only ranks that agree in it take choices from each other."""

    rank: int
    host: str
    process: str
    device: str


@dataclass(frozen=True, slots=True)
class Claim:
    """This rank is about to choose."""

    by: Rank


@dataclass(frozen=True, slots=True)
class Decision:
    """The choice of a problem: its hash and name, and the milliseconds of each choice that the
    rank knew when it chose, by hash. The hashes are those on device 0, whichever device a rank has:
    so they name the same kernels on all devices of a kind."""

    by: Rank
    op: str
    hash: str
    name: str
    when: float
    timings: Mapping[str, float] = field(default_factory=dict)


T = TypeVar("T", Rank, Claim, Decision)


def to_note(value: Rank | Claim | Decision) -> bytes:
    return dumps(to_json(value)).encode()


def of_note(kind: type[T], note: bytes | None) -> T | None:
    """None where there is none, or it is not what it should be."""
    if note is None:
        return None
    try:
        return read(kind, loads(note))
    except WireError:
        return None
