"""Which job this process is a rank of, and where its ranks meet.

Launchers say it in the environment: torchrun and those who do as it does set RANK and WORLD_SIZE.
Ranks of one host share the cache dir. Their folder there is named after the process that started
them all, the nearest one above that is no rank itself: so a job never meets what an earlier one
left, and finds its own after a restart of its ranks.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from backend.disk.layout import Layout
from backend.processes import tree
from backend.processes.identity import identity

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
class Place:
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


def place(env: Mapping[str, str] = os.environ) -> Place | None:
    """What the environment says; None for a process that is alone."""
    rank, size = env.get("RANK", ""), env.get("WORLD_SIZE", "")
    if not (rank.isdecimal() and size.isdecimal()) or int(size) < 2:
        return None
    return Place(int(rank), int(size))


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
