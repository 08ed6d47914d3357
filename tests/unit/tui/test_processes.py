"""What programs do, on the screen before the first tuning and in its title."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

from backend.disk.layout import Layout
from backend.disk.sessions import EventWriter
from backend.model.choice import Choice
from backend.model.events import (
    ActivityChanged,
    ChoiceCompiled,
    Event,
    ProcessExited,
    SessionStarted,
    TuningStarted,
)
from backend.model.session import Session
from rocm_tui.tui.screens.watch import WatchScreen
from tests.support.screen_lab import running, screen_text, until

ARGV = ("python", "train.py")


def session(pid: int) -> Session:
    host, started = socket.gethostname(), time.time()
    return Session(f"run-{pid}", host, pid, None, ARGV, torch="2.13", started=started, locked=True)


def write(cache: Path, *events: Event, pid: int = 0) -> EventWriter:
    mine = session(pid or os.getpid())
    writer = EventWriter(Layout(cache), mine)
    for event in (SessionStarted(mine), *events):
        assert writer.write(event)
    return writer


async def test_each_phase_is_said(tmp_path: Path) -> None:
    async with running(tmp_path, size=(100, 30)) as (app, pilot):
        await until(pilot, lambda: "rocm-tui watch -- python train.py" in screen_text(app.screen))
        writer = write(tmp_path, ActivityChanged(1.0, "importing"))

        async def shows(*words: str) -> None:
            await until(pilot, lambda: all(word in screen_text(app.screen) for word in words))

        await shows("train.py", "importing torch", f"pid {os.getpid()}")
        await shows("train.py: importing torch")
        assert "rocm-tui demo" not in screen_text(app.screen)
        writer.write(ActivityChanged(2.0, "running"))
        await shows("torch is loaded, not compiling")
        writer.write(ActivityChanged(3.0, "compiling"))
        await shows("train.py: compiling")
        writer.write(ProcessExited(4.0, 3))
        writer.close()
        await shows("done, exit code 3")


async def test_ranks_are_counted_in_the_title(tmp_path: Path) -> None:
    writers = [write(tmp_path, ActivityChanged(1.0, "compiling"), pid=n) for n in (1, 2)]
    choices = (Choice("mm", "mm-1"), Choice("c", "c-2"))
    start = TuningStarted(
        1,
        1.0,
        "mm",
        "[]",
        "highest",
        ((2, 2), (2, 2)),
        ((2, 1), (2, 1)),
        ("f", "f"),
        "cpu",
        choices,
    )
    writers[0].write(start)
    writers[0].write(ChoiceCompiled(1, "mm-1", 0.5))
    async with running(tmp_path, size=(120, 30)) as (app, pilot):
        assert isinstance(app.screen, WatchScreen)
        await until(pilot, lambda: "2 processes: " in screen_text(app.screen))
        assert "1 compiling" in screen_text(app.screen)
    for writer in writers:
        writer.close()
