"""Choices side by side: which are compared, what is said of them, and the keys of the screen."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from backend.model.choice import Choice, MeasuredChoice, Measurement
from backend.model.tuning import Tuning
from rocm_tui.render.side_by_side import chosen, default_choices, facts
from rocm_tui.tui.screens.compare import CompareScreen, CompareView, DiffView
from rocm_tui.tui.screens.dialogs import ConfirmScreen
from rocm_tui.tui.screens.watch import WatchScreen
from tests.support import sample_job
from tests.support.screen_lab import panes_of, running, screen_text, until
from tests.support.session_files import write_session
from tests.support.terminal_lab import WATCH, Terminal, needs_tmux

BLOCKS = ("BLOCK_M=64, num_warps=4", "BLOCK_M=32, num_warps=4", "", "BLOCK_M=16, num_warps=4")
TIMES = (1.0, 1.05, 1.09, 1.4)
TUNING = Tuning(
    "mm",
    ((64, 64), (64, 64)),
    choices=tuple(
        Choice(f"c{at}", f"c{at}-aa", ms, text)
        for at, (ms, text) in enumerate(zip(TIMES, BLOCKS, strict=True))
    ),
)


def texts(tuning: Tuning, choices: tuple[Choice, ...], **how: bool) -> dict[str, tuple[str, ...]]:
    return {fact.title: fact.texts for fact in facts(tuning, choices, {}, **how)}


def test_unasked_those_near_the_best_are_compared_and_never_one_alone() -> None:
    assert [choice.name for choice in default_choices(TUNING)] == ["c0", "c1", "c2"]
    far = replace(TUNING, choices=(TUNING.choices[0], TUNING.choices[3]))
    assert [choice.name for choice in default_choices(far)] == ["c0", "c3"]
    assert [choice.name for choice in chosen(TUNING, {"c3-aa"})] == ["c0", "c3"]
    assert [choice.name for choice in chosen(TUNING, {"c3-aa", "c1-aa"})] == ["c1", "c3"]
    assert chosen(TUNING, {"gone"}) == default_choices(TUNING)


def test_differing_keys_are_lines_and_equal_ones_are_counted() -> None:
    found = facts(TUNING, TUNING.choices, {})
    told = {fact.title: fact for fact in found}
    assert told["BLOCK_M"].texts == ("64", "32", "", "16")
    assert told["BLOCK_M"].differs == {1, 3}
    assert "Configuration: 1 key differs, 1 are equal" in told and "num_warps" not in told
    assert texts(TUNING, TUNING.choices, all_keys=True)["num_warps"] == ("4", "4", "", "4")
    assert told["verdict"].texts == ("~fastest", "~slower", "~slower", "~slower")
    assert told["time"].texts[:2] == ("~1.000 ms", "~1.050 ms")
    assert told["vs best"].texts == ("~best", "~+5.0 %", "~+9.0 %", "~+40.0 %")


def test_the_measured_best_comes_first_and_says_what_was_measured() -> None:
    again = (
        MeasuredChoice("c1-aa", 1.01, 1.0, 1.02, 0.03, 50, 1.0, 1.0, 1.0, "faster"),
        MeasuredChoice("c0-aa", 1.04, 1.03, 1.05, 0.02, 50, 1.03, 1.02, 1.04, "slower"),
    )
    tuning = replace(TUNING, measured=Measurement("mm", "key", "highest", 1.0, again))
    choices = default_choices(tuning)
    assert [choice.name for choice in choices] == ["c1", "c0", "c2"]
    told = texts(tuning, choices)
    assert told["verdict"][:2] == ("fastest", "slower")
    assert told["measured"] == ("50 rounds, hot", "50 rounds, hot", "one timing")
    assert told["time"] == (" 1.010 ms", " 1.040 ms", "~1.090 ms")
    assert told["vs best"] == ("best", "+3.0 %", "~+3.8 %")
    assert told["when tuned"] == ("~1.050 ms", "~1.000 ms", "~1.090 ms")


def test_nothing_is_said_of_no_choices() -> None:
    assert facts(TUNING, (), {}) == []
    failed = Choice("bad", "bad-1", failed=True, reason="out of resources")
    told = texts(replace(TUNING, choices=(*TUNING.choices, failed)), (TUNING.choices[0], failed))
    assert told["verdict"] == ("~fastest", "failed") and told["time"][1] == ""
    assert told["failed"] == ("", "out of resources") and told["vs best"][1] == "–"


async def test_the_difference_of_two_sources_is_a_unified_diff(tmp_path: Path) -> None:
    first, second, _ = write_session(tmp_path)
    async with running(tmp_path, size=(120, 40)) as (app, pilot):
        await panes_of(app, pilot, 1)
        await pilot.press("c")
        await until(pilot, lambda: isinstance(app.screen, CompareScreen))
        assert "in no cache" not in screen_text(app.screen)
        await pilot.press("d")
        diff = app.screen.query_one(DiffView)
        await until(pilot, lambda: diff.count())
        text = screen_text(diff)
        assert f"--- {first.label}" in text and f"+++ {second.label}" in text and "@@" in text
        await pilot.press("l", "l")  # mm, of which there is no source
        await until(pilot, lambda: "mm is a kernel of ATen" in screen_text(diff))
        await pilot.press("escape")
        assert isinstance(app.screen, CompareScreen) and not diff.display
        await pilot.press("escape")
        assert isinstance(app.screen, WatchScreen)


@pytest.mark.parametrize("size", [(80, 24), (140, 45)])
async def test_marks_and_columns(tmp_path: Path, size: tuple[int, int]) -> None:
    sample_job.write(tmp_path)
    async with running(tmp_path, size=size) as (app, pilot):
        panes = await panes_of(app, pilot, 10)
        await pilot.press("G", "tab", "space", "j", "space", "space")
        assert len(panes.detail.marked) == 3
        await until(pilot, lambda: re.search("✓[123]", screen_text(panes.detail)) is not None)
        await pilot.press("c")
        await until(pilot, lambda: isinstance(app.screen, CompareScreen))
        view = app.screen.query_one(CompareView)
        await until(pilot, lambda: "#1 triton_mm_4" in screen_text(view))
        assert "#3 mm" in screen_text(view) and "3 choices" in screen_text(app.screen)
        names = [view.chosen.name if view.chosen else None]
        for key in ("l", "right", "l", "h"):
            await pilot.press(key)
            names.append(view.chosen.name if view.chosen else None)
        assert names == ["triton_mm_4", "mm", "triton_mm_11", "triton_mm_11", "mm"]
        assert "3 keys differ, 9 are equal" in screen_text(view)
        await pilot.press("e", "G")
        await until(pilot, lambda: "waves_per_eu" in screen_text(view))
        assert all(len(line) <= size[0] for line in screen_text(app.screen).splitlines())
        await pilot.press("p")
        await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.press("escape", "escape")
        await until(pilot, lambda: isinstance(app.screen, WatchScreen))
        await pilot.press("escape")
        assert not panes.detail.marked and panes.inside
        await pilot.press("escape")
        assert not panes.inside


class TestInATerminal:
    pytestmark = needs_tmux

    @pytest.mark.parametrize("env", [{"TERM": "screen"}, {"NO_COLOR": "1"}], ids=["16", "none"])
    def test_keys_that_come_in_one_burst_mean_what_stands_there(
        self, tmp_path: Path, env: dict[str, str]
    ) -> None:
        sample_job.write(tmp_path)
        command = [*WATCH, "--cache-dir", str(tmp_path), str(tmp_path)]
        with Terminal(command, (80, 24), env) as terminal:
            terminal.wait_for("3 of 6 timed")
            terminal.press("G", "Tab", "Space", "Space", "c")
            shown = terminal.wait_for("6.0 % … +6.8 %")
            assert "#1 triton_mm_4" in shown and "#2 triton_mm_7" in shown
            terminal.press("Escape")
            terminal.wait_for("✓2")
            terminal.press("5", "BTab")
            terminal.wait_for("ck4inductor is not installed")
