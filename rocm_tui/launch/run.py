"""`rocm-tui run`: the user's program, unchanged, with our hooks within its reach.

The child keeps our process group and terminal, so Ctrl-C and Ctrl-Z reach it as without us; what
is sent to us alone (SIGTERM, SIGHUP, SIGUSR1, ...) is passed on. We end as the child ends: with
its exit code, or by the same signal.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from backend.disk.layout import Layout
from backend.disk.layout import cache_dir as default_cache_dir
from backend.disk.safe import check_file, make_folder
from backend.disk.sessions import read_log
from backend.errors import StoreError
from backend.inductor.hooks.environment import CHECK, TEMPLATES
from backend.model.session import HooksOff, SessionStarted, TuningStarted
from backend.processes.ending import die_by
from rocm_tui import say
from rocm_tui.environment import hooked, hooks_forbidden
from rocm_tui.launch.child import Child
from rocm_tui.launch.stderr import StderrRelay, TableFilter

NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""Exit codes, as a shell's."""


def run(
    command: Sequence[str],
    *,
    quiet: bool = False,
    max_autotune: bool = False,
    templates: bool = False,
    check: bool = False,
    cache_dir: Path | None = None,
    env: Mapping[str, str] = os.environ,
) -> int:
    """Run `command` and return its exit code; 127 if it does not exist, 126 if it cannot run.

    A child that a signal killed takes us with it by the same signal, so that a shell sees what it
    would have seen; where that signal does not kill us, 128 + its number is returned.
    """
    child_env = dict(env)
    if cache_dir is not None:
        child_env["TORCHINDUCTOR_CACHE_DIR"] = str(cache_dir.absolute())
    if max_autotune:
        child_env["TORCHINDUCTOR_MAX_AUTOTUNE"] = "1"
    if templates:
        child_env[TEMPLATES] = "1"
    if check:
        child_env[CHECK] = "1"
    forbidden = hooks_forbidden(child_env)
    if forbidden:
        _say(forbidden)
    this = _Run(run_id(), Layout(default_cache_dir(child_env)), time.time())
    relay = StderrRelay(lambda: _open_log(this), TableFilter() if quiet else None)
    try:
        status = Child(relay).run(command, hooked(child_env, this.id))
    except OSError as error:
        relay.close()
        return _cannot_start(command[0], error)
    if quiet or relay.terminal:
        _say(_summary(this))
    if status >= 0:
        return status
    sys.stdout.flush()
    return die_by(-status)


def run_id() -> str:
    """Names a run; the ids of its sessions begin with it."""
    host = "".join(c if c.isalnum() or c in ".-" else "_" for c in socket.gethostname())[:64]
    return f"{host}-{os.getpid()}-{int(time.time())}-{secrets.token_hex(4)}"


@dataclass(frozen=True, slots=True)
class _Run:
    id: str
    layout: Layout
    started: float

    @property
    def log(self) -> Path:
        """What the program wrote to stderr, byte for byte, beside the event logs."""
        return self.layout.sessions / f"{self.id}.stderr.log"


def _open_log(this: _Run) -> BinaryIO | None:
    try:
        make_folder(this.layout.root, this.log.parent)
        check_file(this.layout.root, this.log)
        return this.log.open("xb", buffering=0)
    except (StoreError, OSError) as error:
        _say(f"stderr is not kept: {error}")
        return None


def _cannot_start(name: str, error: OSError) -> int:
    if isinstance(error, FileNotFoundError):
        _say(f"{name}: no such command")
        return NOT_FOUND
    _say(f"{name}: cannot be run: {error.strerror}")
    return NOT_EXECUTABLE


def _summary(this: _Run) -> str:
    tunings, unhooked = 0, None
    for path in sorted(this.layout.sessions.glob("*.jsonl")):
        try:
            if path.stat().st_mtime < this.started - 1:
                continue
        except OSError:
            continue  # removed meanwhile; the exit code that follows matters more
        events, _ = read_log(path)
        if not (events and isinstance(events[0], SessionStarted)):
            continue
        if events[0].session.id.startswith(this.id):
            tunings += sum(isinstance(event, TuningStarted) for event in events)
            unhooked = next((e.reason for e in events if isinstance(e, HooksOff)), unhooked)
    if unhooked and not tunings:
        return f"nothing was recorded: {unhooked}"
    plural = "" if tunings == 1 else "s"
    recorded = f"{tunings} tuning{plural} recorded in {this.layout.sessions}"
    return f"{recorded}, then no more: {unhooked}" if unhooked else recorded


def _say(line: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        say.err(line, flush=True)
