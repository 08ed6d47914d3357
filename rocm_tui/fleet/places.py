"""Where things of a fleet lie below a cache dir: `rocm_tui/fleet/<run>.jsonl`, the record of a run,
and `rocm_tui/fleet/<run>/`, the private cache dirs of its agents."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Mapping
from pathlib import Path

from backend.disk.layout import SHARED_CODE, Layout

_ODD = re.compile(r"[^\w.-]+", re.ASCII)


def fleet_folder(layout: Layout) -> Path:
    """Of all runs."""
    return layout.home / "fleet"


def record_path(layout: Layout, run: str) -> Path:
    return fleet_folder(layout) / f"{file_name(run)}.jsonl"


def control_path(layout: Layout, run: str) -> Path:
    """What others ask of the run's driver, a line each."""
    return fleet_folder(layout) / f"{file_name(run)}.control"


def lock_path(layout: Layout, run: str) -> Path:
    """Held by the run's driver."""
    return layout.home / "locks" / f"fleet-{file_name(run)}.lock"


def scratch_folder(layout: Layout, run: str, name: str) -> Path:
    """The cache dir of an agent."""
    return fleet_folder(layout) / file_name(run) / file_name(name)


def sharing_code(env: Mapping[str, str], root: Path) -> dict[str, str]:
    """`env` for a worker whose cache dir is its own, and which shares compiled kernels with those
    of the cache dir `root`: in HIP, and in Triton where nobody named a cache."""
    triton = {"TRITON_CACHE_DIR": str(root / "triton" / "0")}  # as Inductor has it for GPU 0
    return {**triton, **env, SHARED_CODE: str(root)}


def new_run() -> str:
    """The name of a run that begins now; names sort by time, to the millisecond."""
    now = time.time_ns()
    when = time.strftime("%Y%m%d-%H%M%S", time.localtime(now // 10**9))
    return f"{when}-{now // 10**6 % 1000:03d}-{secrets.token_hex(2)}"


def file_name(text: str) -> str:
    """A file's name that no other folder is meant by."""
    return _ODD.sub("_", text).strip(".")[:80] or "_"
