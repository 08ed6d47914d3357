"""Running small programs under `rocm-tui run`, and reading what they recorded."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from backend.disk.layout import Layout
from backend.disk.sessions import read_log
from backend.model.events import Event, TuningStarted
from rocm_tui.launch.run import RUN_LOG
from tests.support.torch_models import child_env
from tests.support.warm_python import warm_python

LAUNCHER = [sys.executable, "-m", "rocm_tui", "run"]

BMM = """
import torch, torch._inductor.config as config
config.max_autotune = True
a, b = torch.randn(4, 32, 64), torch.randn(4, 64, 96)
torch.compile(lambda a, b: torch.bmm(a, b) + 1)(a, b)
"""


def launch(
    command: Sequence[str],
    cache: Path,
    *flags: str,
    env: Mapping[str, str] | None = None,
    **options: Any,
) -> subprocess.CompletedProcess[str]:
    """`rocm-tui run FLAGS -- COMMAND` with stderr as a pipe."""
    return subprocess.run(
        [*LAUNCHER, *flags, "--", *command],
        env=child_env(cache, env),
        capture_output=True,
        text=True,
        timeout=300,
        **options,
    )


def launch_program(
    source: str,
    cache: Path,
    *flags: str,
    env: Mapping[str, str] | None = None,
    expect: int = 0,
    python: str = sys.executable,
    warm: bool = False,
) -> subprocess.CompletedProcess[str]:
    """The same for the Python program `source`, which lies in a folder of its own; if `warm`, in a
    fork that has imported torch before its hooks come."""
    folder = cache.parent / f"{cache.name}-program"
    folder.mkdir(exist_ok=True)
    program = folder / "program.py"
    program.write_text(textwrap.dedent(source))
    interpreter = warm_python() if warm else [python, "-W", "ignore"]
    done = launch([*interpreter, str(program)], cache, *flags, env=env)
    assert done.returncode == expect, done.stderr[-4000:]
    return done


def logs_of(cache: Path) -> list[Path]:
    """Those of the programs, oldest first, without what `run` itself saw."""
    logs = Layout(cache).sessions.glob("*.jsonl")
    return sorted(
        (path for path in logs if not path.name.endswith(RUN_LOG)),
        key=lambda path: path.stat().st_mtime_ns,
    )


def sessions(cache: Path) -> list[list[Event]]:
    """The events of each session, oldest first; every line must be good."""
    found = []
    for path in logs_of(cache):
        events, problems = read_log(path)
        assert problems == []
        found.append(events)
    return found


def by_tuning(events: Sequence[Event]) -> list[tuple[TuningStarted, list[Event]]]:
    """Each tuning's start with its further events, in order."""
    return [
        (start, [e for e in events if e is not start and getattr(e, "n", None) == start.n])
        for start in events
        if isinstance(start, TuningStarted)
    ]
