"""`rocm-tui watch [PATH...]`: the screen.

`rocm-tui demo`: the screen on a real session that tunes on this machine's CPU.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

from rocm_tui.cli import common
from rocm_tui.environment import find_python
from rocm_tui.tui.terminal import run_watch


def add_watch(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Watch logs, caches and folders live, and pin choices; with no PATH, the sessions and the "
        "cache of the cache dir."
    )
    common.add_arguments(parser, "paths")
    parser.add_argument(
        "--polling", action="store_true", help="poll the files (NFS; the default falls back to it)"
    )
    common.add_arguments(parser, "--python", "--cache-dir")


def do_watch(args: argparse.Namespace) -> int:
    layout = common.layout_of(args)
    paths = args.paths or [str(layout.root)]
    return run_watch(paths, cache_dir=layout.root, polling=args.polling, python=args.python)


LENGTHS = (128, 96, 64, 160, 192, 80, 112, 144, 176, 208)
"""Sequence lengths: each run takes one more, so that there is always something new to tune."""


def add_demo(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Compile a small model (attention and an MLP) with max_autotune in a child process and "
        "watch it. The cache dir is the demo's own and is kept: a pin made here holds in the next "
        "demo."
    )
    common.add_arguments(parser, "--python")
    parser.add_argument(
        "--cache-dir", type=Path, metavar="DIR", help="default: ~/.cache/rocm-tui/demo"
    )


def do_demo(args: argparse.Namespace) -> int:
    python = find_python(args.python)
    root = (args.cache_dir or _default_dir()).absolute()
    root.mkdir(parents=True, exist_ok=True)
    child = _start(python, root)
    try:
        return run_watch([str(root)], cache_dir=root, python=python)
    finally:
        _stop(child)


def _default_dir() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "rocm-tui" / "demo"


def _start(python: str, root: Path) -> subprocess.Popen[bytes]:
    """The demo's model under `rocm-tui run`, in a process group of its own."""
    done = len(list((root / "rocm_tui" / "sessions").glob("*.jsonl")))
    lengths = [str(LENGTHS[0]), str(LENGTHS[done % len(LENGTHS)])]
    command = [sys.executable, "-m", "rocm_tui", "run", "--capture", "--cache-dir", str(root), "--"]
    command += [python, "-m", "backend.demo", *dict.fromkeys(lengths)]
    with (root / "demo.out").open("wb") as out:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_end_with_us,
        )


def _end_with_us() -> None:
    """Ask Linux to end the child when we are killed; `rocm-tui run` passes it on to its own."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def _stop(child: subprocess.Popen[bytes], patience: float = 3.0) -> None:
    """End the whole group, politely first."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, sign)
        except ProcessLookupError:
            break
        try:
            child.wait(patience)
        except subprocess.TimeoutExpired:
            continue
    child.wait()
