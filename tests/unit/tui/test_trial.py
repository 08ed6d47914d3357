"""Key `g`: the graph is shown, then tried; the result is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets import Static

from backend.disk.layout import Layout
from backend.model.events import GraphTried
from backend.model.graph import Swap, Trial, TrialArm
from rocm_tui.actions.trial import is_accepted, text_of
from rocm_tui.jobs.queue import Job
from rocm_tui.session.query.fields import BY_NAME
from rocm_tui.tui.app import RocmTui
from rocm_tui.tui.screens.dialogs import ConfirmScreen
from rocm_tui.tui.screens.watch import WatchScreen
from tests.support.graph_log import inputs, write_program, writer_of
from tests.support.screen_lab import SIZES, panes_of, running, screen_text, until

TEXT = """# rocm-tui graph: {}
import torch

class Repro(torch.nn.Module):
    def forward(self, arg0_1, arg1_1):
        mm = torch.ops.aten.mm.default(arg0_1, arg1_1);  arg0_1 = None
        return (mm,)
"""


def capture(cache: Path, text: str = TEXT) -> Layout:
    layout = Layout(cache)
    layout.graphs.mkdir(parents=True, exist_ok=True)
    (layout.graphs / "aaaaaa1.py").write_text(text)
    return layout


def told(app: RocmTui, words: str) -> bool:
    return any(words in note.message for note in app._notifications)


@pytest.mark.parametrize("size", SIZES)
async def test_the_graph_is_shown_before_anything_runs(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    write_program(tmp_path)
    layout = capture(tmp_path)
    async with running(tmp_path, size=size) as (app, pilot):
        panes = await panes_of(app, pilot, 4)
        panes.sort_by(BY_NAME["share"])
        await pilot.press("home")
        await pilot.pause()
        await pilot.press("w")
        await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.pause()
        text = "\n".join(str(static.render()) for static in app.screen.query(Static))
        for words in ("whole graph", "graph aaaaaa1 (forward, Llama.forward)", "aaaaaa1.py"):
            assert words in text, text
        code = [line for line in text.split("\n") if "def forward" in line or "mm = " in line]
        assert len(code) == 2
        def_at, mm_at = (len(line) - len(line.lstrip()) for line in code)
        assert mm_at == def_at + 4, "what is inside stands further right"
        assert "torch.ops.aten.mm.default" in text and "import torch" not in text
        assert not app.jobs.jobs()
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, WatchScreen))
        assert not app.jobs.jobs()
    assert not is_accepted(layout, text_of(layout, "aaaaaa1"))


async def test_yes_puts_a_job_into_the_queue(tmp_path: Path) -> None:
    write_program(tmp_path)
    layout = capture(tmp_path)
    async with running(tmp_path) as (app, pilot):
        panes = await panes_of(app, pilot, 4)
        panes.sort_by(BY_NAME["share"])
        await pilot.press("home", "w")
        await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.press("enter")
        await until(pilot, lambda: bool(app.jobs.jobs()))
        (job,) = app.jobs.jobs()
        assert isinstance(job, Job) and job.kind == "trial"
        assert "in graph aaaaaa1" in job.title
        app.jobs.cancel(job.id)
    assert is_accepted(layout, text_of(layout, "aaaaaa1"))


async def test_what_cannot_be_tried_is_said(tmp_path: Path) -> None:
    write_program(tmp_path)
    async with running(tmp_path) as (app, pilot):
        panes = await panes_of(app, pilot, 4)
        panes.sort_by(BY_NAME["share"])
        await pilot.press("home", "w")
        await until(pilot, lambda: told(app, "rocm-tui run --capture"))
        assert isinstance(app.screen, WatchScreen)


async def test_the_result_stands_in_the_pane(tmp_path: Path) -> None:
    write_program(tmp_path)
    async with running(tmp_path, size=(120, 40)) as (app, pilot):
        panes = await panes_of(app, pilot, 4)
        panes.sort_by(BY_NAME["share"])
        await pilot.press("home")
        await pilot.pause()
        assert "In graph" not in screen_text(app.screen)
        swap = Swap("mm", inputs(8), "highest", "mm-1", "mm")
        baseline = TrialArm((), 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, "tied", 64)
        arm = TrialArm((swap,), 0.956, 0.95, 0.96, 0.956, 0.951, 0.961, "faster", 64, error=0.0)
        writer = writer_of(tmp_path, "7a1a1000")
        writer.write(GraphTried(Trial("aaaaaa1", 400.0, (baseline, arm), rounds=64)))
        writer.close()
        words = "In graph aaaaaa1: the graph is 4.4 % faster (3.9 to 4.9 %) with mm"
        await until(pilot, lambda: words in screen_text(app.screen))
