"""A question that stands open while another screen, the command line or a program changes what it
says: enter does only what was read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from textual.app import ComposeResult
from textual.pilot import Pilot
from textual.widgets import Static

from backend.disk.layout import Layout
from backend.model.choice import Output
from backend.model.problem import TuningKey
from backend.pins.store import PinStore
from rocm_tui.tui.app import RocmTui
from rocm_tui.tui.screens.dialogs import ConfirmScreen
from rocm_tui.tui.screens.watch import WatchScreen
from tests.support.screen_lab import (
    SYSTEM,
    asked,
    inputs,
    measured,
    panes_of,
    running,
    until,
    write_cache,
)

EXACT = Output("A", 10, 10, 512)
KEY = TuningKey("mm", inputs(8), "highest")


def pinned(root: Path) -> list[str]:
    return [pin.hash for pin in PinStore(Layout(root)).pins()]


async def refused(app: RocmTui, pilot: Pilot[int], why: str) -> None:
    """Wait until the question is gone and one line says why nothing was done."""

    def said() -> bool:
        return any(why in n.message and n.severity == "error" for n in app._notifications)

    await until(pilot, lambda: said() or any("inned" in n.message for n in app._notifications))
    assert said(), [n.message for n in app._notifications]
    await until(pilot, lambda: isinstance(app.screen, WatchScreen))


def pin_other(root: Path) -> None:
    PinStore(Layout(root)).pin(SYSTEM, KEY, "mm-bb", label="mm", who="ann@box")


def take_back(root: Path) -> None:
    PinStore(Layout(root)).unpin(KEY, SYSTEM)


def tune_again(root: Path) -> None:
    path = root / "cache" / SYSTEM
    document = json.loads(path.read_text())
    document["cache"]["mm"][inputs(8)]["highest"]["triton_mm-aa"] = 0.05
    path.write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("meanwhile", "why"),
    [
        (pin_other, "mm was pinned meanwhile by ann@box; nothing was pinned"),
        (tune_again, "it was tuned again meanwhile, with other times; nothing was pinned"),
    ],
)
async def test_a_pin_that_was_asked_about_before(
    tmp_path: Path, meanwhile: Callable[[Path], None], why: str
) -> None:
    path = write_cache(tmp_path, 8)
    async with running(tmp_path) as (app, pilot):
        await panes_of(app, pilot, 1)
        await pilot.press("p")
        await asked(app, pilot)
        meanwhile(tmp_path)
        before, pins = path.read_bytes(), pinned(tmp_path)
        await pilot.press("enter")
        await refused(app, pilot, why)
        assert (path.read_bytes(), pinned(tmp_path)) == (before, pins)
        while pinned(tmp_path) != ["triton_mm-aa"]:  # the screen may learn of it a while later
            app.clear_notifications()
            await pilot.press("p")
            await asked(app, pilot)
            await pilot.press("enter")
            await until(pilot, lambda: app._notifications and not app.asking)


async def test_a_pin_over_one_that_was_taken_back(tmp_path: Path) -> None:
    write_cache(tmp_path, 8)
    pin_other(tmp_path)
    async with running(tmp_path) as (app, pilot):
        panes = await panes_of(app, pilot, 1)
        await until(pilot, lambda: panes.table.current and panes.table.current.pin)
        await pilot.press("tab", "home", "p")
        await asked(app, pilot)
        take_back(tmp_path)
        await pilot.press("enter")
        await refused(app, pilot, "it was unpinned meanwhile; nothing was pinned")
        assert not pinned(tmp_path)


async def test_a_choice_that_was_measured_meanwhile(tmp_path: Path) -> None:
    write_cache(tmp_path, 8)
    async with running(tmp_path) as (app, pilot):
        panes = await panes_of(app, pilot, 1)
        await pilot.press("tab", "home", "j", "p")
        await asked(app, pilot)
        measured(tmp_path, {"triton_mm-aa": EXACT, "mm-bb": EXACT})
        row = panes.table.current
        await until(pilot, lambda: panes.table.current is not row)
        await pilot.press("enter")
        await refused(app, pilot, "more is known of mm-bb by now; nothing was pinned")
        assert not pinned(tmp_path)


async def test_an_unpin_of_what_is_pinned_no_more(tmp_path: Path) -> None:
    write_cache(tmp_path, 8)
    PinStore(Layout(tmp_path)).pin(SYSTEM, KEY, "triton_mm-cc", label="triton_mm_3")
    async with running(tmp_path) as (app, pilot):
        panes = await panes_of(app, pilot, 1)
        await until(pilot, lambda: panes.table.current and panes.table.current.pin)
        await pilot.press("u")
        await asked(app, pilot)
        pin_other(tmp_path)
        await pilot.press("enter")
        await refused(app, pilot, "mm was pinned meanwhile; nothing was unpinned")
        assert pinned(tmp_path) == ["mm-bb"]


async def test_an_undo_of_what_is_in_force_no_more(tmp_path: Path) -> None:
    write_cache(tmp_path, 8)
    PinStore(Layout(tmp_path)).pin(SYSTEM, KEY, "triton_mm-cc", label="triton_mm_3")
    async with running(tmp_path) as (app, pilot):
        panes = await panes_of(app, pilot, 1)
        await until(pilot, lambda: panes.table.current and panes.table.current.pin)
        await pilot.press("z")
        await asked(app, pilot)
        pin_other(tmp_path)
        await pilot.press("enter")
        await refused(app, pilot, "the pins were changed since; nothing was undone")
        assert pinned(tmp_path) == ["mm-bb"]


async def test_another_problem_that_was_pinned_is_no_reason(tmp_path: Path) -> None:
    write_cache(tmp_path, 8, 16)
    async with running(tmp_path) as (app, pilot):
        panes = await panes_of(app, pilot, 2)
        await pilot.press("p")
        await asked(app, pilot)
        row = panes.table.current
        assert row is not None and row.tuning.key is not None
        other = inputs(16 if row.tuning.key.inputs == inputs(8) else 8)
        PinStore(Layout(tmp_path)).pin(SYSTEM, TuningKey("mm", other, "highest"), "mm-bb")
        await pilot.press("enter")
        await until(pilot, lambda: len(pinned(tmp_path)) == 2)


async def test_what_changes_is_shown_though_it_was_found_before_the_widgets_stood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compose = ConfirmScreen.compose

    def composed(question: ConfirmScreen) -> ComposeResult:
        yield from compose(question)
        question.show_lines(["It changes."])

    monkeypatch.setattr(ConfirmScreen, "compose", composed)
    async with running(tmp_path) as (app, pilot):
        question = ConfirmScreen("Really?", "Yes")
        await app.push_screen(question)
        await until(pilot, lambda: question.is_mounted)
        assert str(question.query_one("#lines", Static).render()) == "It changes."
