"""Calls, shares and what could be gained, on the screen and in `ls`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backend.model.choice import Choice
from backend.model.events import GraphCompiled
from backend.model.graph import Graph
from backend.model.tuning import Tuning
from rocm_tui.cli.entry import main
from rocm_tui.render.shares import SIGNS, share_line, share_text
from rocm_tui.render.tunings import cells
from rocm_tui.session.graphs import Share, ShareBasis, SharePart
from rocm_tui.session.model import Row
from rocm_tui.session.query.fields import BY_NAME
from rocm_tui.tui.widgets.tunings import TuningLines
from tests.support.graph_log import tune, use, write_program, writer_of
from tests.support.profile_lab import FORWARD, training
from tests.support.screen_lab import panes_of, running, screen_text, until, write_cache


async def test_columns_and_orders(tmp_path: Path) -> None:
    write_program(tmp_path)
    async with running(tmp_path, size=(240, 50)) as (app, pilot):
        panes = await panes_of(app, pilot, 4)
        for word in ("CALLS", "SHARE", "TO GAIN", "370", "~34.0 %", "~16.0 %", "~3.2 %"):
            await until(pilot, lambda word=word: word in screen_text(app.screen))
        panes.sort_by(BY_NAME["share"])
        sizes = [row.tuning.shapes[0][0] for row in panes.table.rows]
        assert sizes == [8, 24, 16, 32]
        await pilot.press("home")
        said = "4× in aaaaaa1: 80 calls, ~40.0 % of its time"
        await until(pilot, lambda: said in screen_text(app.screen))
        panes.sort_by(BY_NAME["to_gain"])
        assert panes.table.rows[0].tuning.shapes[0][0] == 16


async def test_narrow_screens_leave_columns_out(tmp_path: Path) -> None:
    write_program(tmp_path)
    async with running(tmp_path, size=(60, 24)) as (app, pilot):
        panes = await panes_of(app, pilot, 4)
        await until(pilot, lambda: sum(bool(row.share) for row in panes.table.rows) == 3)
        await until(pilot, lambda: "VS ATEN" in screen_text(app.screen))
        assert "SHARE" not in screen_text(app.screen)
        panes.sort_by(BY_NAME["share"])
        await pilot.press("home")
        said = " ~34.0 % of the graphs' time"
        await until(pilot, lambda: said in screen_text(app.screen))
        text = screen_text(app.screen)
        assert all(len(line) <= 60 for line in text.splitlines())
    async with running(tmp_path, size=(100, 24)) as (app, pilot):
        await panes_of(app, pilot, 4)
        await until(pilot, lambda: "SHARE" in screen_text(app.screen))
        assert "CALLS" not in screen_text(app.screen)


async def test_no_columns_without_graphs(tmp_path: Path) -> None:
    write_cache(tmp_path, 1, 2, 3)
    async with running(tmp_path, size=(200, 50)) as (app, pilot):
        await panes_of(app, pilot, 3)
        assert "CALLS" not in screen_text(app.screen)


async def test_a_trace_of_a_profiler(tmp_path: Path) -> None:
    """Alone it has no tuning: those of the cache dir are shown, with the shares that it saw."""
    writer = writer_of(tmp_path)
    tune(writer, 1, 8, 2.0, 1.0)
    uses = (use(8, 1, "triton_mm-1"),)
    writer.write(GraphCompiled(1, 105.0, Graph("aaaaaa1", "forward", FORWARD, tunings=uses)))
    writer.close()
    trace = tmp_path / "trace.json"
    trace.write_bytes(training())
    async with running(tmp_path, trace, size=(240, 50)) as (app, pilot):
        panes = await panes_of(app, pilot, 1)
        await until(pilot, lambda: panes.table.rows[0].share is not None)
        await until(pilot, lambda: "3.8 %" in screen_text(app.screen))  # 10 of 60 + 200 us
        assert "graphs' time in trace.json" in screen_text(app.screen)


def test_ls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_program(tmp_path)
    assert main(["ls", "--cache-dir", str(tmp_path)]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split()[-4:] == ["calls", "share", "to", "gain"]
    assert any(line.split()[-4:] == ["370", "~34.0", "%", "–"] for line in lines)
    assert any(line.split()[-4:] == ["50", "~18.0", "%", "–"] for line in lines)
    assert main(["ls", "--json", "--cache-dir", str(tmp_path)]) == 0
    tunings = {
        tuning["shapes"][0][0]: tuning for tuning in json.loads(capsys.readouterr().out)["tunings"]
    }
    assert tunings[16]["share_by"] == "measured" and tunings[32]["share"] is None
    assert [graph["id"] for graph in tunings[8]["graphs"]] == ["aaaaaa1", "bbbbbb2"]


def test_no_width_of_a_screen_cuts_a_number() -> None:
    sizes = ((4096, 4096), (4096, 4096))
    tuning = Tuning("mm", shapes=sizes, choices=(Choice("triton_mm_" + "1" * 40, "t-b", 1.0),))
    share = Share("llama.py", 99_999, 0.999, "once", at_most=0.999)
    row = Row("a", "a", 1, tuning, seen=0.0, share=share)
    lines = TuningLines()
    lines.measure([row], "")
    checked = set()
    for width in range(80, 241):
        for slot in lines.slots(width):
            if slot.column.key in ("calls", "share", "to_gain"):
                [(text, _)] = cells(row, 0.0, keys=(slot.column.key,)).values()
                assert slot.cell(text).strip() == text, width
                checked.add(slot.column.key)
    assert checked == {"calls", "share", "to_gain"}


@pytest.mark.parametrize(("basis", "style"), [("seen", "strong"), ("measured", ""), ("once", "")])
def test_only_a_share_that_was_seen_stands_out(basis: ShareBasis, style: str) -> None:
    parts = (SharePart("aaaaaa1", "mlp", 4, 80, 0.4),)
    line = share_line(Share("llama.py", 80, 0.4, basis, parts=parts))
    assert line is not None
    assert line[1] == (f"{SIGNS[basis]}40.0 %", style)


@pytest.mark.parametrize(
    ("share", "text"), [(0.0, "~0.0 %"), (0.0004, "~<0.1 %"), (0.001, "~0.1 %")]
)
def test_a_small_share_is_not_none(share: float, text: str) -> None:
    assert share_text(Share("llama.py", 80, share, "once")) == text
