"""No screen opens or asks for a file of a person on the event loop: a slow disk would hold keys."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rocm_tui.session.kernel_source import source_diff
from rocm_tui.tui.screens.compare import CompareScreen
from rocm_tui.tui.screens.report import ReportScreen
from tests.support import sample_job
from tests.support.screen_lab import panes_of, running, screen_text, until
from tests.support.session_files import write_session

EVENTS = {"open", "os.listdir", "os.scandir"}


class Ear:
    """Hears of each file that the thread of the event loop opens or asks for, if its path begins
    as one of `below`."""

    def __init__(self) -> None:
        self.below: tuple[str, ...] = ()
        self.heard: list[str] = []
        sys.addaudithook(self._hook)

    def _hook(self, event: str, args: tuple[object, ...]) -> None:
        if self.below and event in EVENTS:
            self.hear(args[0])

    def hear(self, path: object) -> None:
        if not self.below or threading.current_thread() is not threading.main_thread():
            return
        name = os.fsdecode(path) if isinstance(path, (str, bytes, os.PathLike)) else ""
        if name.startswith(self.below):
            self.heard.append(name)


EAR = Ear()
"""A hook of the interpreter stays for ever: there is one."""


@contextmanager
def no_files(monkeypatch: pytest.MonkeyPatch, *below: str) -> Iterator[None]:
    stat = os.stat

    def heard_stat(path: object, **how: object) -> os.stat_result:
        EAR.hear(path)
        return stat(path, **how)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", heard_stat)
        EAR.below, EAR.heard = below, []
        try:
            yield
        finally:
            EAR.below = ()
    assert not EAR.heard


def test_what_is_read_on_the_event_loop_is_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(AssertionError, match="asked"), no_files(monkeypatch, str(tmp_path)):
        (tmp_path / "asked").exists()
    with pytest.raises(AssertionError, match="read"), no_files(monkeypatch, str(tmp_path)):
        (tmp_path / "read").write_bytes(b"")


async def test_the_report_reads_caches_off_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample_job.write(tmp_path)
    async with running(tmp_path, size=(140, 45)) as (app, pilot):
        await panes_of(app, pilot, 10)
        with no_files(monkeypatch, str(tmp_path)):
            await pilot.press("5")
            await until(pilot, lambda: isinstance(app.screen, ReportScreen))
            await until(pilot, lambda: "Tuning saves" in screen_text(app.screen))
            await pilot.press("tab", "tab", "tab")
            await until(pilot, lambda: "ck4inductor is not" in screen_text(app.screen))


async def test_compare_reads_kernels_off_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_session(tmp_path)
    module = sys.modules[source_diff.__module__]
    monkeypatch.delitem(sys.modules, module.__name__)  # as before it was first needed
    assert module.__spec__ and module.__spec__.cached
    async with running(tmp_path, size=(120, 40)) as (app, pilot):
        await panes_of(app, pilot, 1)
        with no_files(monkeypatch, str(tmp_path), module.__spec__.cached):
            await pilot.press("c")
            await until(pilot, lambda: isinstance(app.screen, CompareScreen))
            await until(pilot, lambda: "#1 rocm_gemm_0" in screen_text(app.screen))
            await pilot.press("d")
            await until(pilot, lambda: "@@" in screen_text(app.screen))
