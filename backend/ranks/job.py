"""The job that this process is a rank of, where its ranks meet, and the notes that they leave
there.

Launchers describe the job in the environment: torchrun and its followers set RANK and WORLD_SIZE.
Ranks of one host share the cache dir. Their folder there is named after the process that started
them all, the nearest ancestor that is not a rank itself: so a job never reads an earlier one's
notes, but reads its own after a restart of its ranks.

A note is created whole or not at all, by whoever is first, also on NFS, where only one process can
create a hard link. Beside each note is a heartbeat of its writer.

The first decision on a problem holds for all ranks, whoever wrote it and however late: a rank that
has timed its choices writes its fastest, and adopts an earlier decision if there is one. So ranks
differ in nothing but time, whatever happens to one of them.

To avoid timing everything on every rank, one rank claims a problem, and the others wait for its
decision. Rank 0 has priority: the others leave a problem to it for a moment, which gets shorter
each time that it does not come, since ranks may compile other graphs. A claim ends with the process
that wrote it, if that is visible, else after a long time without a heartbeat. No rank waits while
it holds a claim, and none waits longer than `limit` seconds.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

from backend.disk.layout import Layout
from backend.disk.safe import check_folder, make_folder, not_writable, open_regular
from backend.errors import StoreError, brief
from backend.processes import tree
from backend.processes.tree import identity, lives
from backend.wire.codec import WireError, dumps, loads, read, to_json

AGREE = "ROCM_TUI_AGREE"
"""The environment variable with the seconds that a rank waits for another's choice."""

FOLDER = "ROCM_TUI_AGREE_DIR"
"""The environment variable with the folder where the ranks of one job meet, on all of its hosts."""

SECONDS = 180.0
"""The default wait: tuning a product with many choices on a GPU takes a minute or two."""

MOST_SECONDS = 1e6

_LOCAL = ("localhost", "127.0.0.1", "::1", "[::1]")
_TORCHRUN = "TORCHELASTIC_RUN_ID"
"""torchrun sets it for its ranks alone, where it may itself be what SLURM started as a rank."""
_RANKS = ("RANK", "LOCAL_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID")
_DEPTH = 32


@dataclass(frozen=True, slots=True)
class JobMember:
    """This process in its job."""

    rank: int
    size: int


def limit(env: Mapping[str, str] = os.environ) -> float:
    """Return the seconds to wait at most; 0 if ranks do not agree."""
    try:
        seconds = float(env.get(AGREE, "") or 0)
    except ValueError:
        return 0.0
    return min(max(0.0, seconds), MOST_SECONDS)


def job_member(env: Mapping[str, str] = os.environ) -> JobMember | None:
    """Return this process's membership from the environment; None for a single process."""
    rank, size = env.get("RANK", ""), env.get("WORLD_SIZE", "")
    if not (rank.isdecimal() and size.isdecimal()) or int(size) < 2:
        return None
    return JobMember(int(rank), int(size))


@dataclass(frozen=True, slots=True)
class MeetingFolder:
    """The folder `path` in `root`, which others must not be able to change."""

    root: Path
    path: Path


def meeting(size: int, layout: Layout, env: Mapping[str, str] = os.environ) -> MeetingFolder | str:
    """Return the folder where ranks meet, or why there is none; empty for several hosts."""
    given = env.get(FOLDER, "")
    if given:
        folder = Path(os.path.realpath(given))
        return MeetingFolder(folder, folder)
    if not one_host(size, env):
        return ""
    above = launcher(env)
    if not above:
        return "who started its ranks cannot be seen; name a folder for this job with --agree-dir"
    name = hashlib.sha256(above.encode()).hexdigest()[:16]
    return MeetingFolder(layout.root, layout.ranks / name)


def one_host(size: int, env: Mapping[str, str]) -> bool:
    """Return whether all ranks are on this host, according to the launcher's variables."""
    for name in ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"):
        if env.get(name, "").isdecimal():
            return int(env[name]) == size
    for name in ("SLURM_STEP_NUM_NODES", "SLURM_NNODES"):
        if env.get(name, "").isdecimal():
            return int(env[name]) == 1
    return env.get("MASTER_ADDR", "") in _LOCAL


def launcher(env: Mapping[str, str] = os.environ) -> str:
    """Return the identity of the process that started the ranks of this host; empty if unknown."""
    pid, signs = os.getppid(), (_TORCHRUN,) if _TORCHRUN in env else _RANKS
    for _ in range(_DEPTH):
        process = tree.read(pid)
        if process is None:
            return ""
        if not _is_rank(pid, signs):
            return identity(pid)
        pid = process.parent
    return ""


def _is_rank(pid: int, signs: tuple[str, ...]) -> bool:
    """Return whether the process was started with one of these variables in its environment; False
    for unreadable processes of others, since a rank's processes are its own."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(
        variable.partition(b"=")[0].decode("ascii", "replace") in signs for variable in variables
    )


MOST = 1 << 20
"""The maximum bytes of a note."""


class BoardUnavailable(StoreError):
    """Ranks cannot meet; the message is one line."""


class BoardBusy(BoardUnavailable):
    """One access failed in a way that may pass; the ranks can still meet."""


_PASSING = frozenset(
    (
        errno.EAGAIN,
        errno.EBUSY,
        errno.EINTR,
        errno.EIO,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.ESTALE,
        errno.ETIMEDOUT,
    )
)


def _unavailable(why: str, error: Exception) -> BoardUnavailable:
    """Return the error of a board for an OSError, or for a StoreError that one caused."""
    cause = error if isinstance(error, OSError) else error.__cause__
    passing = isinstance(cause, OSError) and cause.errno in _PASSING
    return BoardBusy(why) if passing else BoardUnavailable(why)


class Board(Protocol):
    """A place for notes. Each method raises BoardUnavailable if the ranks can no longer meet, and
    BoardBusy if they can, and one access failed."""

    def read(self, name: str) -> bytes | None:
        """Return the note; None if there is none."""

    def put(self, name: str, note: bytes) -> bool:
        """Write a note; return whether there was none with that name yet."""

    def take_down(self, name: str) -> None:
        """Remove one of our notes."""

    def beat(self, name: str) -> None:
        """Report that the note's writer is at work."""

    def last_beat(self, name: str) -> object:
        """Return a value that changes with each `beat`."""


class FolderBoard:
    """Notes as files in one folder."""

    def __init__(self, meeting: MeetingFolder) -> None:
        self._folder = meeting.path
        self._root = meeting.root
        try:
            make_folder(meeting.root, meeting.path)
        except StoreError as error:
            raise _unavailable(str(error), error) from error

    def __str__(self) -> str:
        return str(self._folder)

    def read(self, name: str) -> bytes | None:
        try:
            with open_regular(self._folder / name) as stream:
                return stream.read(MOST)
        except FileNotFoundError:
            return None
        except OSError as error:
            why = f"cannot read {self._folder / name}: {_reason(error)}"
            raise _unavailable(why, error) from error

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
            raise _unavailable(str(error), error) from error
        except OSError as error:
            if error.errno in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
                why = f"{self._folder} has no hard links; name another one with --agree-dir"
                raise BoardUnavailable(why) from error
            raise _unavailable(str(not_writable(path, error)), error) from error
        return True

    def take_down(self, name: str) -> None:
        with contextlib.suppress(OSError):
            (self._folder / name).unlink()

    def beat(self, name: str) -> None:
        with contextlib.suppress(OSError):  # waiting ranks notice a missing heartbeat
            os.utime(self._folder / name)

    def last_beat(self, name: str) -> object:
        try:
            return (self._folder / name).stat().st_mtime_ns
        except OSError:
            return None


def _writer() -> str:
    """Return a name for this thread that is unique among all hosts."""
    return f"{os.uname().nodename[:64]}.{os.getpid()}.{threading.get_ident()}"


def _reason(error: OSError) -> str:
    return brief(error.strerror or str(error), 80)


@dataclass(frozen=True, slots=True)
class Rank:
    """A process of the job: `process` is its identity (backend/processes/tree.py), `device` the
    properties that its choices depend on: only ranks with the same adopt choices from each
    other."""

    rank: int
    host: str
    process: str
    device: str


@dataclass(frozen=True, slots=True)
class Claim:
    """A rank's intention to choose."""

    by: Rank


@dataclass(frozen=True, slots=True)
class Decision:
    """The choice of a problem: its hash and name, and the milliseconds of each choice when it was
    chosen, by hash. Hashes are those on device 0, whichever device a rank has: so they name the
    same kernels on all devices of a kind."""

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
    """Parse a note; None if there is none, or it is invalid."""
    if note is None:
        return None
    try:
        return read(kind, loads(note))
    except WireError:
        return None


GRACE = 2.0
"""Seconds that a problem is left to rank 0, at first."""
LEAST_GRACE = 0.1
STAGGER = 0.02
"""Seconds per rank, so that the lowest waiting rank goes first."""
BEAT = 10.0
"""Seconds between two heartbeats of a process that holds a claim."""
SILENCE = 60.0
"""Seconds without a heartbeat after which an invisible process is given up: a busy machine or file
server delays some."""
AGAIN = 1.0
"""Seconds to wait for a rank that timed out before, until it decides something."""
FIRST_REST, LONGEST_REST = 0.005, 0.1
"""Seconds between two reads of the board, in a small job."""
REST_EACH = 0.001
"""Seconds added to the longest pause per rank of a job, whose requests go to one server."""
MANY = 64
"""The number of ranks checked to find whether this rank meets any."""


@dataclass(frozen=True, slots=True)
class FoundDecision:
    """A decision by another rank, or by this one earlier."""

    decision: Decision
    waited: float


@dataclass(frozen=True, slots=True)
class WonClaim:
    """This rank will decide. `claim` is its note; empty if it chooses within another problem of its
    own. `after` is an earlier claimant that is gone."""

    problem: str
    claim: str
    waited: float
    after: Rank | None = None


@dataclass(frozen=True, slots=True)
class WaitTimedOut:
    """No decision in time: the awaited rank, and the seconds."""

    by: Rank
    waited: float


AgreementAnswer = FoundDecision | WonClaim | WaitTimedOut


def ignore_awaited(rank: int | None) -> None:
    """Ignore which rank is awaited."""


@dataclass
class RankAgreement:
    """How the rank `me` of a job of `size` agrees with the others; for one thread at a time,
    except `beat`."""

    board: Board
    me: Rank
    limit: float
    now: Callable[[], float] = time.monotonic
    rest: Callable[[float], None] = time.sleep
    alive: Callable[[str], bool | None] = lives
    size: int = 2
    silence: float = SILENCE
    _grace: float = GRACE
    _held: set[str] = field(default_factory=set)
    _beats: dict[str, tuple[object, float]] = field(default_factory=dict)
    _in_vain: set[str] = field(default_factory=set)

    def ask(
        self, problem: str, awaits: Callable[[int | None], None] = ignore_awaited
    ) -> AgreementAnswer:
        """Return the decision on a problem, or whether this rank is to decide. May wait: then
        `awaits` is called with the awaited rank, and in the end with None. Raises
        BoardUnavailable."""
        awaited = _AwaitedRank(awaits)
        try:
            return self._ask(problem, awaited)
        finally:
            awaited.put(None)

    def _ask(self, problem: str, awaited: _AwaitedRank) -> AgreementAnswer:
        longest = max(LONGEST_REST, REST_EACH * self.size)
        began, rest = self.now(), FIRST_REST * longest / LONGEST_REST
        first = self._left_to_first()
        grace = min(self.limit, first + STAGGER * self.me.rank)
        while True:
            decision, waited = self.decision(problem), self.now() - began
            if decision is not None:
                return self._adopted(decision, waited)
            if self._held:  # others may be waiting for us, so we must not wait
                return WonClaim(problem, "", waited)
            number, holder = self._claim(problem)
            if holder is not None:
                if waited >= self._patience(holder):
                    self._in_vain.add(holder.process)
                    return WaitTimedOut(holder, waited)
            elif number or waited >= grace:
                name, before = _claim_name(problem, number), self._before(problem, number)
                if self.board.put(name, to_note(Claim(self.me))):  # nothing may fail after it
                    self._held.add(name)
                    self._missed(number, grace)
                    return WonClaim(problem, name, waited, before)
                continue
            if holder is not None or waited < first:
                awaited.put(0 if holder is None else holder.rank)
            self.rest(min(rest, max(FIRST_REST, self.limit - waited)))
            rest = min(2 * rest, longest)

    def decision(self, problem: str) -> Decision | None:
        """Return the decision on the board; None where there is none. Raises BoardUnavailable."""
        note = self.board.read(problem)
        decision = of_note(Decision, note)
        if note is not None and decision is None:
            raise BoardUnavailable(f"the note {problem} is damaged")
        return decision

    def decide(self, problem: str, decision: Decision) -> Decision:
        """Write the decision and return the valid one, maybe another's. Raises BoardUnavailable."""
        if self.board.put(problem, to_note(decision)):
            return decision
        return self.decision(problem) or decision

    def end(self, lead: WonClaim) -> None:
        """Release a claim, decided or not."""
        if lead.claim:
            self._held.discard(lead.claim)
            if self.decision(lead.problem) is None:
                self.board.take_down(lead.claim)

    def beat(self, lead: WonClaim) -> None:
        """Write a heartbeat beside a claim."""
        if lead.claim:
            self.board.beat(lead.claim)

    def _adopted(self, decision: Decision, waited: float) -> FoundDecision:
        self._in_vain.discard(decision.by.process)
        if decision.by.rank == 0:
            self._grace = GRACE
        return FoundDecision(decision, waited)

    # Priority of rank 0

    def _left_to_first(self) -> float:
        """Return the seconds that a problem is left to rank 0."""
        first = self.me if self.me.rank == 0 else self.rank(0)
        gone = first is not None and self.alive(first.process) is False
        return 0.0 if gone or first is self.me else self._grace

    def _missed(self, number: int, grace: float) -> None:
        """Shorten the grace of rank 0 if we claim a problem that was left to it."""
        if not number and grace >= self._grace > 0:
            self._grace = self._grace / 2 if self._grace > 2 * LEAST_GRACE else 0.0

    # Claims

    def _claim(self, problem: str) -> tuple[int, Rank | None]:
        """Return number and holder of the last claim; without a holder, the next number."""
        number, holder = 0, None
        while True:
            name = _claim_name(problem, number)
            note = self.board.read(name)
            if note is None:
                return number, None
            claim = of_note(Claim, note)
            holder = None if claim is None else claim.by
            if holder is not None and self._holds(name, holder):
                return number, holder
            number += 1

    def _before(self, problem: str, number: int) -> Rank | None:
        if not number:
            return None
        claim = of_note(Claim, self.board.read(_claim_name(problem, number - 1)))
        return None if claim is None or claim.by.process == self.me.process else claim.by

    def _holds(self, name: str, holder: Rank) -> bool:
        if holder.process == self.me.process:
            return False  # we never wait for our own claims, so this is a leftover
        alive = self.alive(holder.process)
        if alive is not None:
            return alive
        beat, now = self.board.last_beat(name), self.now()
        last, since = self._beats.get(name, (None, now))
        if beat != last:
            self._beats[name] = beat, now
            return True
        return now - since < self.silence

    def _patience(self, holder: Rank) -> float:
        return min(self.limit, AGAIN) if holder.process in self._in_vain else self.limit

    # Presence

    def register(self) -> None:
        """Register with the other ranks. Raises BoardUnavailable."""
        name = _rank_name(self.me.rank)
        if not self.board.put(name, to_note(self.me)) and self.rank(self.me.rank) != self.me:
            self.board.take_down(name)  # from this rank's process before a restart
            self.board.put(name, to_note(self.me))

    def rank(self, number: int) -> Rank | None:
        """Return the process of this rank, if it has registered. Raises BoardUnavailable."""
        return of_note(Rank, self.board.read(_rank_name(number)))

    def met(self, size: int) -> list[Rank]:
        """Return the other ranks of the first `size` that registered. Raises BoardUnavailable."""
        others = (self.rank(n) for n in range(min(size, MANY)) if n != self.me.rank)
        return [rank for rank in others if rank is not None]


@dataclass
class _AwaitedRank:
    """The awaited rank; `awaits` is called when it changes."""

    awaits: Callable[[int | None], None]
    rank: int | None = None

    def put(self, rank: int | None) -> None:
        if rank != self.rank:
            self.rank = rank
            self.awaits(rank)


def problem_name(*parts: str) -> str:
    """Return the name of the notes on the problem that these texts describe."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _claim_name(problem: str, number: int) -> str:
    return f"{problem}.claim-{number}"


def _rank_name(number: int) -> str:
    return f"rank-{number}"
