"""Improve asked for on the screen: a real search in the queue, its steps, its end by `x`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from backend.disk.layout import Layout
from rocm_tui.actions.improve import only_search, read_search
from rocm_tui.tui.screens.dialogs import ConfirmScreen
from rocm_tui.tui.screens.trials import TrialsScreen
from tests.support.places import ROOT
from tests.support.screen_lab import running, until
from tests.support.torch_models import child_env

PROGRAM = [sys.executable, str(ROOT / "tests" / "support" / "captured_program.py"), "1"]


async def test_a_search_runs_in_the_queue_and_ends_at_once(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    words = [sys.executable, "-m", "rocm_tui", "run", "--capture", "--", *PROGRAM]
    subprocess.run(words, env=child_env(cache), check=True, capture_output=True, timeout=600)
    (path,) = Layout(cache).graphs.glob("*.py")
    graph = path.stem
    async with running(cache, size=(200, 60)) as (app, pilot):
        await until(pilot, lambda: app.feed.model.rows())
        await pilot.press("8")
        await until(pilot, lambda: isinstance(app.screen, TrialsScreen))
        await until(pilot, lambda: app.screen.current is not None)  # type: ignore[attr-defined]
        await pilot.press("i")
        await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.press("enter")
        await until(pilot, lambda: app.jobs.jobs())
        steps: list[str] = []

        def in_the_graph() -> bool:
            steps.append(app.jobs.jobs()[0].step)
            return "in the graph" in steps[-1]

        await until(pilot, in_the_graph, 240)
        assert "tuning 1 of 2, bmm" in steps[-1]
        search = read_search(Layout(cache), graph)
        assert search is not None
        assert search.subjects[0].ready
        await pilot.press("x")
        await until(pilot, lambda: app.jobs.jobs()[0].state == "cancelled")
        await until(pilot, lambda: _is_free(Layout(cache), graph))
        search = read_search(Layout(cache), graph)
        assert search is not None
        assert not any(attempt.failed for attempt in search.tries)
        assert all(not subject.unfit for subject in search.subjects)


def _is_free(layout: Layout, graph: str) -> bool:
    try:
        with only_search(layout, graph):
            return True
    except Exception:
        return False
