"""Groups and folded rows on the screen, by keys."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from backend.disk.layout import Layout
from backend.model.choice import Choice
from backend.model.inductor_kernel import TRITON
from backend.model.tuning import TableEntry, Tuning
from rocm_tui.session.graphs import Share
from rocm_tui.session.grouping import is_other
from rocm_tui.session.model import Row
from tests.support import sample_tables
from tests.support.screen_lab import SYSTEM, inputs, panes_of, running, screen_text, typed, until


def write(cache: Path, alone: int) -> None:
    """Two ops of two choices each, and as many mm of a single choice."""
    two = {"triton_mm-aa": 0.01, "mm-bb": 0.02}
    ops = {
        "mm": {inputs(8): {"highest": two}},
        "bmm": {inputs(16): {"highest": two}},
    }
    ops["mm"] |= {inputs(100 + at): {"highest": {"mm-bb": 0.5}} for at in range(alone)}
    path = Layout(cache).autotune / SYSTEM
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"system": {}, "cache": ops}))


def shown(text: str) -> list[str]:
    """The first words of the lines."""
    return [" ".join(line.lstrip("▌▏ ").split()[:3]) for line in text.splitlines() if line.strip()]


async def test_single_choices_fold_away_and_a_search_finds_them(tmp_path: Path) -> None:
    write(tmp_path, 5)
    async with running(tmp_path, size=(140, 40)) as (app, pilot):
        panes = await panes_of(app, pilot, 7)
        table = panes.table
        await until(pilot, lambda: "5 with a single choice · f shows them" in screen_text(table))
        assert len(table.entries) == 3 and len(table.rows) == 7
        await pilot.press("f")
        assert len(table.entries) == 7 and "single choice" not in screen_text(table)
        await pilot.press("f", "end", "enter")
        assert len(table.entries) == 7, "enter on the line shows what it stands for"
        assert table.current is not None and not panes.inside
        await pilot.press("f", "slash")
        await typed(pilot, "102", "enter")
        await until(pilot, lambda: len(table.rows) == 1)
        assert "102×64" in screen_text(table) and len(table.entries) == 1
        await pilot.press("escape")
        await until(pilot, lambda: len(table.entries) == 3)
        hidden = next(row for row in table.rows if row.tuning.shapes[0][0] == 104)
        assert table.go_to(hidden) and table.current is hidden


async def test_groups_by_key(tmp_path: Path) -> None:
    write(tmp_path, 3)
    async with running(tmp_path, size=(140, 40)) as (app, pilot):
        panes = await panes_of(app, pilot, 5)
        table = panes.table
        await pilot.press("b", "b")
        assert "by op" in screen_text(app.screen)
        lines = shown(screen_text(table))
        assert {"▾ mm 4", "▾ bmm 1", "▸ 3 with"} <= set(lines)
        at = next(i for i, entry in enumerate(table.entries) if getattr(entry, "group", "") == "mm")
        table.move_cursor(at)
        await pilot.pause()
        assert table.current is None and panes.detail.row is None
        await pilot.press("enter")
        assert "▸ mm 4" in shown(screen_text(table)) and len(table.entries) == 3
        await pilot.press("p")
        assert app.screen is panes.screen, "there is no tuning to pin"
        await pilot.press("space")
        assert "▾ mm 4" in shown(screen_text(table)) and table.cursor == at
        panes.show(table.rows)
        assert table.cursor == at, "the cursor stays on a heading when rows come in"
        await pilot.press("b", "b")
        assert len(table.entries) == 3 and "by " not in screen_text(app.screen).splitlines()[0]
        assert app.workspace.recall("group", "none") == ""


async def test_entries_of_other_tuners_are_hidden_until_their_key(tmp_path: Path) -> None:
    paths = sample_tables.write(tmp_path / "tables")
    async with running(tmp_path / "cache", *paths, size=(80, 24)) as (app, pilot):
        panes = await panes_of(app, pilot, 17)
        table = panes.table
        await until(pilot, lambda: "1 tuning · +16 others: e" in screen_text(app.screen))
        await pilot.resize_terminal(120, 30)
        chip = "1 tuning · +16 entries of other tuners: e"
        await until(pilot, lambda: chip in screen_text(app.screen))
        assert [row.tuning.entry for row in table.rows] == [None]
        assert "TUNER" not in screen_text(table)
        await pilot.press("slash")
        await typed(pilot, "tuner:moe", "enter")
        await until(pilot, lambda: len(table.rows) == 2)  # what is searched for is shown
        assert "+" not in screen_text(app.screen).splitlines()[0]
        await pilot.press("escape")
        await until(pilot, lambda: len(table.rows) == 1)
        hidden = table.hidden[3]
        assert table.go_to(hidden) and table.current is hidden
        assert len(table.rows) == 17 and "TUNER" in screen_text(table)
        await until(pilot, lambda: "16 entries of tables" in screen_text(app.screen))
        await pilot.press("e")
        await until(pilot, lambda: len(table.rows) == 1 and chip in screen_text(app.screen))


async def test_a_source_of_entries_alone_shows_them(tmp_path: Path) -> None:
    *tables, _ = sample_tables.write(tmp_path / "tables")
    async with running(tmp_path / "cache", *tables) as (app, pilot):
        panes = await panes_of(app, pilot, 16)
        assert len(panes.table.rows) == 16 and not panes.table.hidden
        await pilot.press("e")
        await until(pilot, lambda: any("No row of" in n.message for n in app._notifications))


def test_a_row_that_somebody_decided_or_timed_is_never_hidden() -> None:
    timed = Choice("config", "triton_config-aa", 1.0)
    kernel = Row("k", "abc", 1, Tuning(TRITON, choices=(replace(timed, ms=None),), state="done"))
    entry = replace(kernel, tuning=Tuning("mm", choices=(timed,), entry=TableEntry("moe", 3)))
    assert is_other(kernel) and is_other(entry)
    assert not is_other(replace(kernel, tuning=replace(kernel.tuning, choices=(timed,))))
    assert not is_other(replace(kernel, tuning=replace(kernel.tuning, state="running")))
    assert not is_other(replace(kernel, tuning=replace(kernel.tuning, op="mm")))
    for row in (kernel, entry):
        assert not is_other(replace(row, awaits_pin=True))
        assert not is_other(replace(row, share=Share("llama.py", 3, 0.5, "once")))
