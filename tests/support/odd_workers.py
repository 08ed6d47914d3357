"""Workers that misbehave, as real processes that speak the protocol.

`odd_python(folder)` makes an interpreter to give as `--python`: what it runs is this file, which
does what the job's `act` says (or, for a job of another program, what the file `act` in that
folder says).
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
import termios
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

sys.path.insert(0, str(Path(__file__).parents[2]))

from backend.disk.layout import Layout, cache_dir
from backend.disk.sessions import EventWriter
from backend.model.choice import Choice
from backend.model.events import TuningStarted
from backend.model.session import Session
from backend.processes.supervisor import supervised
from backend.wire.jobs import WorkerJob
from backend.worker.protocol import EventSender, await_relay, mark_argument
from tests.support.rogue_acts import ACTS


@dataclass(frozen=True)
class Came:
    """What comes of an odd job."""

    kind: str


@dataclass(frozen=True)
class Odd(WorkerJob[Came]):
    """A job for one of these."""

    name: ClassVar[str] = "odd"
    answer: ClassVar[type[Any]] = Came
    act: str = "ok"
    until: str = ""
    mode: int = 0


def odd_python(folder: Path) -> str:
    return python_that_runs(__file__, folder)


def python_that_runs(program: str, folder: Path) -> str:
    """An interpreter that seems to have torch and runs `program FOLDER`, whatever it is given."""
    path = folder / "python"
    path.write_text(
        '#!/bin/sh\n[ "$1" = -c ] && exit 0\n'  # "does it have torch?"
        f"exec {sys.executable} {program} {folder}\n"
    )
    path.chmod(0o755)
    return str(path)


def say(job: dict[str, Any], **event: Any) -> None:
    EventSender(1, job["id"], job["token"])._write(event)


def record() -> Path:
    """The log of a session whose one tuning has begun."""
    session = Session("odd", host="here", pid=os.getpid(), started=time.time())
    writer = EventWriter(Layout(cache_dir()), session)
    choices = tuple(Choice(name=name, hash=f"{name}-x") for name in ("mm", "triton_mm_0"))
    inputs = (
        "[('cpu', 'torch.float32', 8, 64, 64, 1, 0), ('cpu', 'torch.float32', 64, 64, 64, 1, 0)]"
    )
    sizes, strides, types = ((8, 64), (64, 64)), ((64, 1), (64, 1)), ("torch.float32",) * 2
    started = TuningStarted(
        1, time.time(), "mm", inputs, "highest", sizes, strides, types, "cpu", choices
    )
    writer.write(started)
    return writer.path


def await_reader() -> None:
    """Until what was said is taken out of the pipe."""
    while struct.unpack("i", fcntl.ioctl(1, termios.FIONREAD, bytes(4)))[0]:
        time.sleep(0.01)


def act(job: dict[str, Any], folder: Path) -> None:
    kind = job.get("act") or (folder / "act").read_text()
    print(f"acting: {kind}", file=sys.stderr, flush=True)
    (folder / f"{kind}.pid").write_text(str(os.getpid()))
    with (folder / "pids").open("a") as stream:
        print(os.getpid(), file=stream)
    say(job, event="progress", what=f"begins {kind}", timed=1, total=4, best="x", best_ms=0.5)
    if kind == "wait":
        while not (folder / str(job["until"])).exists():
            time.sleep(0.01)
    elif kind == "hang":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen(["sleep", "600"], start_new_session=True)
        (folder / "child.pid").write_text(str(child.pid))
        time.sleep(600)
    elif kind == "record":
        log = str(record())
        say(job, event="progress", what="recording", log=log)
        await_reader()
        say(job, event="progress", what="recorded", log=log)
        await_reader()  # who takes the second has dealt with the first
        (folder / "heard").write_text("both")
        time.sleep(600)
    elif kind == "hog":
        held = []
        while True:  # touched, so that it is really taken
            held.append(bytearray(os.urandom(1 << 20) * 8))
            say(job, event="progress", what=f"{len(held) * 8} MiB")
    elif kind == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    elif kind == "mute":
        os.close(1)
        time.sleep(600)
    elif kind == "babble":
        while True:
            os.write(1, b"x" * (1 << 20))
    elif kind == "stale" and not (folder / "told").exists():
        (folder / "told").touch()
        say(job, event="stale")
        return
    elif kind in ACTS:
        with mark_argument(job).at("running", kind):
            ACTS[kind]()
    await_relay()
    say(job, event="result", result={"ok": True, "kind": kind}, spent=kind == "spent")


def main() -> int:
    for line in sys.stdin:
        act(json.loads(line), Path(sys.argv[1]))
    return 0


if __name__ == "__main__":
    sys.exit(supervised(main))
