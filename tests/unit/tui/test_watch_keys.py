"""The keys of Watch: their line holds what can be done now; a key that can do nothing says why."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.disk.layout import Layout
from backend.disk.sessions import EventWriter
from backend.model.choice import Choice, Measurement
from backend.model.events import TuningMeasured
from backend.model.problem import TuningKey
from backend.model.session import Session
from backend.model.tuning import Tuning
from backend.pins.store import PinStore
from rocm_tui.render.choices import name_of
from rocm_tui.session.model import Row
from rocm_tui.tui.screens.watch import WatchScreen
from rocm_tui.tui.watch_keys import KEYS, Spot, by_id
from rocm_tui.tui.widgets.one_line import KeyBar
from tests.support.measured_rows import told
from tests.support.screen_lab import (
    SYSTEM,
    asked,
    inputs,
    keys_of,
    panes_of,
    running,
    screen_text,
    until,
    write_cache,
)
from tests.support.terminal_lab import table

ABOUT = {"pin", "unpin", "verify", "cancel", "mark", "tune", "measure", "compare", "read"}
"""Keys that depend on the tuning under the cursor."""


def offered(app: object) -> set[str]:
    """The ids of those of them that the line of keys has."""
    actions = keys_of(app)  # type: ignore[arg-type]
    return {entry.id for entry in KEYS if entry.action in actions} & ABOUT


def line_of(app: object) -> str:
    return screen_text(app.screen.query_one("#keys", KeyBar)).strip()  # type: ignore[attr-defined]


def test_each_entry_has_its_action_and_its_own_id() -> None:
    assert len({entry.id for entry in KEYS}) == len(KEYS)
    for entry in KEYS:
        assert callable(getattr(WatchScreen, f"action_{entry.id}")), entry.id


async def test_the_line_of_keys_has_what_can_be_done_and_the_other_keys_say_why(
    tmp_path: Path,
) -> None:
    write_cache(tmp_path, 8)
    log = tmp_path / "train.log"
    log.write_text(table(16))
    async with running(tmp_path, tmp_path, log, size=(200, 30)) as (app, pilot):
        panes = await panes_of(app, pilot, 2)
        logged = [row.tuning.key is None for row in panes.table.rows]
        panes.table.move_cursor(logged.index(True))
        await until(pilot, lambda: offered(app) == {"tune", "compare"})
        for key in "pmw":
            app.clear_notifications()
            await pilot.press(key)
            await until(pilot, lambda: any("log only" in n.message for n in app._notifications))
        assert isinstance(app.screen, WatchScreen)

        panes.table.move_cursor(logged.index(False))
        await until(pilot, lambda: offered(app) == ABOUT - {"unpin", "verify", "cancel", "mark"})
        await pilot.press("tab")
        await until(pilot, lambda: offered(app) == ABOUT - {"unpin", "verify", "cancel"})
        await pilot.press("G")  # the choice that failed
        await until(pilot, lambda: offered(app) == ABOUT - {"pin", "unpin", "verify", "cancel"})
        commands = {command.title for command in app.get_system_commands(app.screen)}
        assert "job: Measure choices" in commands and "pin: Pin choice" not in commands


def test_measure_is_refused_by_the_marked_choices_alone() -> None:
    logged = Choice("triton_mm_9", ms=9.0)  # without a hash, of a log
    timed = [Choice(f"triton_mm_{n}", f"triton_mm-{n}", 1.0 + n) for n in range(2)]
    tuning = Tuning("mm", inputs_key=inputs(8), precision="highest", choices=(*timed, logged))
    row = Row(("k",), "abc1234", 1, tuning)

    def refusal(*marked: Choice) -> str | None:
        names = frozenset(name_of(choice) for choice in marked)
        return by_id("measure").why_not(Spot(row, logged, names, True, False), False)

    assert refusal(*timed) is None
    assert "triton_mm_9 is not known" in (refusal(logged, timed[0]) or "")


@pytest.mark.parametrize("size", [(60, 15), (80, 24), (140, 45), (220, 60)])
async def test_the_next_step_is_in_the_line_of_keys(
    tmp_path: Path, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCM_TUI_CONFIG", str(tmp_path / "config.toml"))
    (tmp_path / "config.toml").write_text('[keys]\nwatch.measure = "f6"\n')
    write_cache(tmp_path, 8)
    async with running(tmp_path, size=size) as (app, pilot):
        panes = await panes_of(app, pilot, 1)
        step = "→ single timings: press {} to measure"
        await until(pilot, lambda: step.format("f6") in screen_text(panes.detail))
        assert "measure" in offered(app)
        await pilot.press("ctrl+r")
        locked = "→ single timings, read-only: turn it off (ctrl+r) to measure"
        await until(pilot, lambda: locked[: size[0] - 3] in screen_text(panes.detail))
        assert "measure" not in offered(app)


@pytest.mark.parametrize("size", [(80, 24), (140, 45), (220, 60)])
async def test_the_next_steps_lead_from_single_timings_to_a_pin(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    write_cache(tmp_path, 8)
    async with running(tmp_path, size=size) as (app, pilot):
        panes = await panes_of(app, pilot, 1)

        def step(text: str) -> bool:
            return f" → {text} " in screen_text(panes.detail)

        await until(pilot, lambda: step("single timings: press m to measure"))
        choices = (
            told("triton_mm-aa", 1.0, "faster"),
            told("mm-bb", 1.12, "slower"),
            told("triton_mm-cc", 4.0, "slower"),
        )
        measurement = Measurement("mm", inputs(8), "highest", 1.8e9, choices, system_hash=SYSTEM)
        writer = EventWriter(Layout(tmp_path), Session("m", "node", 9, started=1.8e9))
        writer.write(TuningMeasured(measurement))
        writer.close()
        await until(pilot, lambda: step("measured, fastest by 12.0 %: press p to pin"))
        await pilot.press("p")
        await asked(app, pilot)
        await pilot.press("enter")
        await until(pilot, lambda: step("pinned: press v to verify"))
        assert "verify" in offered(app)


async def test_without_a_torch_no_key_is_advised_that_needs_it(tmp_path: Path) -> None:
    write_cache(tmp_path, 8)
    async with running(tmp_path) as (app, pilot):
        app.python = str(tmp_path / "no-python")
        panes = await panes_of(app, pilot, 1)
        step = "→ single timings, no torch found: restart with --python PYTHON to measure"
        await until(pilot, lambda: step in screen_text(panes.detail))


async def test_the_next_step_is_first_and_no_word_is_cut_at_80_columns(tmp_path: Path) -> None:
    write_cache(tmp_path, 8)
    async with running(tmp_path, size=(80, 24)) as (app, pilot):
        await panes_of(app, pilot, 1)
        await until(pilot, lambda: "m measure" in line_of(app))
        assert line_of(app).startswith("m measure  p pin  c compare  tab choices")
        assert line_of(app).endswith("q quit  ? more")
        PinStore(Layout(tmp_path)).pin(None, TuningKey("mm", inputs(8), "highest"), "mm-bb")
        await until(pilot, lambda: line_of(app).startswith("v verify  m measure"))
