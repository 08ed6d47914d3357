"""Run a compiler: in its own process group, with a time-out that also ends its children."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from backend.toolchain.target import Command


@dataclass(frozen=True, slots=True)
class Finished:
    """`text` is stdout and stderr as they came."""

    code: int
    text: str
    timed_out: bool = False


def run(command: Command, timeout_seconds: float, workdir: Path) -> Finished:
    """Run to the end or the time-out, temporary files in `workdir`; no such program: code 127."""
    environment = {**os.environ, "TMPDIR": str(workdir), "LC_ALL": "C"}
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=workdir,
            # nvcc and hipcc are drivers: a signal must reach the programs that they run.
            start_new_session=True,
        )
    except OSError as error:
        return Finished(127, f"{command[0]}: error: {error.strerror}")
    try:
        output, _ = process.communicate(timeout=max(timeout_seconds, 0))
        return Finished(process.returncode, output.decode(errors="replace"))
    except subprocess.TimeoutExpired:
        _end(process)
        output, _ = process.communicate()
        return Finished(-signal.SIGKILL, output.decode(errors="replace"), timed_out=True)
    except BaseException:
        _end(process)
        process.wait()
        raise


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
