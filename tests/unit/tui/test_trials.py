"""The screen of graphs and trials: what it holds, asks and does."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from textual.pilot import Pilot

from backend.disk.layout import Layout
from backend.model.events import GraphTried
from backend.model.graph import Swap, Trial, TrialArm
from backend.pins.store import PinStore
from rocm_tui.actions.improve import GraphSearch, read_search
from rocm_tui.jobs.queue import QueueRun
from rocm_tui.search.types import Search
from rocm_tui.tui.app import RocmTui
from rocm_tui.tui.graph_actions import improve_order, prove_order
from rocm_tui.tui.screens import trials
from rocm_tui.tui.screens.dialogs import ConfirmScreen
from rocm_tui.tui.screens.trials import TrialsScreen
from rocm_tui.tui.widgets.grid import Grid
from rocm_tui.tui.widgets.one_line import OneLine
from tests.support.graph_log import writer_of
from tests.support.improve_lab import (
    FIVE_PERCENT,
    GRAPH,
    Workers,
    gains,
    graph_of,
    write_graph,
)
from tests.support.screen_lab import SIZES, asked, inputs, running, screen_text, until
from tests.support.search_lab import additive

OPTION = "epilogue_fusion=False"


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return write_graph(tmp_path / "cache")


def searched(layout: Layout) -> None:
    """As if a search had been made, and its trials recorded as a worker does."""
    workers = Workers(gains({8: FIVE_PERCENT}))
    GraphSearch(workers, layout, graph_of(layout)).go()
    search = read_search(layout, GRAPH)
    assert search is not None
    writer = writer_of(layout.root, "5e551012")
    for attempt in search.tries:
        assert attempt.trial is not None
        writer.write(GraphTried(attempt.trial))
    writer.close()


async def trials_of(app: RocmTui, pilot: Pilot[int]) -> TrialsScreen:
    await until(pilot, lambda: app.feed.model.rows())
    await pilot.press("8")
    await until(pilot, lambda: isinstance(app.screen, TrialsScreen))
    screen = app.screen
    assert isinstance(screen, TrialsScreen)
    await until(pilot, lambda: screen.current is not None)
    return screen


def about(screen: TrialsScreen) -> str:
    return "".join(line.text for line in [screen.query_one("#about", OneLine).render_line(0)])


@pytest.mark.parametrize("size", SIZES)
async def test_graphs_and_what_was_tried(layout: Layout, size: tuple[int, int]) -> None:
    searched(layout)
    async with running(layout.root, size=size) as (app, pilot):
        screen = await trials_of(app, pilot)
        await until(pilot, lambda: "proposed (p)" in about(screen))
        text = screen_text(screen)
        assert GRAPH in text
        assert "Net.forward" in text
        assert "faster" in text
        assert "−" in text  # the interval
        assert "% faster (" in about(screen)


async def test_updates_do_not_restart_a_slow_read(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched(layout)
    reads, go = [], threading.Event()

    def slowly(layout: Layout, graph: str) -> Search | None:
        reads.append(graph)
        assert go.wait(60)
        return read_search(layout, graph)

    monkeypatch.setattr(trials, "read_search", slowly)
    async with running(layout.root) as (app, pilot):
        screen = await trials_of(app, pilot)
        await until(pilot, lambda: reads)
        for _ in range(3):
            screen.update()
            await pilot.pause()
        assert len(reads) == 1 and "proposed" not in about(screen)
        go.set()
        await until(pilot, lambda: "proposed (p)" in about(screen))
        await until(pilot, lambda: not screen._reading)
        assert len(reads) >= 2, "the last update came after the first read had begun"


async def test_a_faster_arm_with_another_output_is_not_good(layout: Layout) -> None:
    swap = Swap("mm", inputs(8), "highest", "triton_mm-1", "triton_mm_1")
    right = TrialArm((swap,), 0.8, verdict="faster", error=1e-3, allowed=0.01)
    arms = (right, replace(right, error=0.3), replace(right, error=None), replace(right, same=True))
    writer = writer_of(layout.root, "5e551012")
    writer.write(GraphTried(Trial(GRAPH, 1.8e9, (TrialArm((), 1.0), *arms))))
    writer.close()
    async with running(layout.root, size=(140, 45)) as (app, pilot):
        screen = await trials_of(app, pilot)
        grid = screen.query_one("#trials", Grid)
        await until(pilot, lambda: "differs: 3e-01" in screen_text(grid))
        verdicts = [row["verdict"] for row in grid._rows]
        assert verdicts[:3] == [("faster", "good"), ("faster", "bad"), ("faster", "")]
        assert verdicts[3][0] == "same code"


async def test_without_graphs_it_says_where_they_come_from(tmp_path: Path) -> None:
    async with running(tmp_path) as (app, pilot):
        await pilot.press("8")
        await until(pilot, lambda: isinstance(app.screen, TrialsScreen))
        assert "--capture" in screen_text(app.screen)
        for name in ("i", "v", "p", "x", "y", "enter"):
            await pilot.press(name)


async def test_improve_shows_the_text_first(layout: Layout) -> None:
    async with running(layout.root) as (app, pilot):
        await trials_of(app, pilot)
        await pilot.press("i")
        await asked(app, pilot)
        lines = str(app.screen.query_one("#lines").render())
        assert f"{GRAPH}.py" in lines
        assert "Nothing is pinned" in lines
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, TrialsScreen))
        assert app.jobs.jobs() == []


async def test_what_was_found_is_pinned_after_a_yes(layout: Layout) -> None:
    searched(layout)
    async with running(layout.root) as (app, pilot):
        screen = await trials_of(app, pilot)
        await until(pilot, lambda: "proposed" in about(screen))
        await pilot.press("p")
        await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
        assert "triton_mm_1 → mm" in str(app.screen.query_one("#lines").render())
        assert PinStore(layout).pins() == ()
        await pilot.press("enter")
        await until(pilot, lambda: PinStore(layout).pins())
        (pin,) = PinStore(layout).pins()
        assert pin.note.startswith(f"improve: graph {GRAPH} ")


async def test_an_option_that_a_gain_needs_is_named_beside_its_pin(layout: Layout) -> None:
    effects = {OPTION: 2 * FIVE_PERCENT, "mm-1": FIVE_PERCENT}
    GraphSearch(Workers(additive(effects)), layout, graph_of(layout), options=True).go()
    async with running(layout.root, size=(200, 60)) as (app, pilot):
        screen = await trials_of(app, pilot)
        await until(pilot, lambda: f", 1 pin, {OPTION} proposed (p)" in about(screen))
        await pilot.press("p")
        await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
        assert f"together with {OPTION}:" in str(app.screen.query_one("#lines").render())
        await pilot.press("enter")
        await until(pilot, lambda: PinStore(layout).pins())
        (pin,) = PinStore(layout).pins()
        assert pin.note.endswith(f") together with {OPTION}")


async def test_a_gain_by_options_alone_is_no_pin(layout: Layout) -> None:
    workers, graph = Workers(additive({OPTION: FIVE_PERCENT})), graph_of(layout)
    GraphSearch(workers, layout, graph, options=True).go()
    entry: Any = None  # the search is finished, so no worker is asked
    queue = SimpleNamespace(told=lambda *step: None)
    text = improve_order(graph, layout).work(QueueRun(queue, entry))  # type: ignore[arg-type]
    assert text.endswith(f") with {OPTION}, which Trials (8) proposes")
    async with running(layout.root, size=(200, 60)) as (app, pilot):
        screen = await trials_of(app, pilot)
        await until(pilot, lambda: f", {OPTION} proposed" in about(screen))
        assert "(p)" not in about(screen) and "pin" not in about(screen)
        await pilot.press("p")
        await until(pilot, lambda: any(OPTION in n.message for n in app._notifications))


async def test_a_file_that_is_no_search_is_said(layout: Layout) -> None:
    (layout.graphs / f"{GRAPH}.improve.json").write_text("{")
    async with running(layout.root, size=(200, 60)) as (app, pilot):
        screen = await trials_of(app, pilot)
        await until(pilot, lambda: "does not hold a search" in about(screen))


def test_the_orders_are_of_the_graphs_device(layout: Layout) -> None:
    graph = graph_of(layout)
    improve, prove = improve_order(graph, layout), prove_order(graph, layout)
    assert (improve.kind, prove.kind) == ("improve", "prove")
    assert improve.lane == prove.lane == "cpu"
    assert improve.title.startswith(GRAPH)


async def test_enter_copies_the_path_of_the_text(layout: Layout) -> None:
    async with running(layout.root, size=(200, 60)) as (app, pilot):
        await trials_of(app, pilot)
        await pilot.press("enter")
        await until(pilot, lambda: any("the path of its" in n.message for n in app._notifications))
