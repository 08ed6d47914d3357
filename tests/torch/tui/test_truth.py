"""What stands on the screen before anything was measured, and after: real tunings of this CPU.

The times of a tuning are what they are; those of the second half are planted: Inductor's own keys
and choices, with times that a busy CPU gives (a whole scheduler tick), by which ATen loses.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.segment import Segment
from textual.pilot import Pilot

from backend.disk.layout import Layout
from backend.model.choice import Choice
from backend.model.origin import provider
from rocm_tui.actions.sources import load_model
from rocm_tui.render import tunings as tuning_cells
from rocm_tui.session import stats
from rocm_tui.session.model import Row
from rocm_tui.tui import themes
from rocm_tui.tui.app import RocmTui
from rocm_tui.tui.widgets.panes import Panes
from tests.support.screen_lab import panes_of, screen_text, until
from tests.support.torch_models import child_env

pytestmark = pytest.mark.torch

TRANSFORMER = """
import torch
from torch._inductor import config
layer = torch.nn.TransformerEncoderLayer(64, 4, 128, 0.0, batch_first=True).eval()
model = torch.nn.Sequential(layer, torch.nn.Linear(64, 96)).eval()
with torch.no_grad(), config.patch(freezing=True, max_autotune=True, max_autotune_gemm=True,
                                   max_autotune_gemm_backends="ATEN,CPP"):
    torch.compile(model)(torch.randn(2, 24, 64))
"""
ONCE = ("time", "gain", "lead", "tflops")
"""The columns that are made of times."""


def rocm_tui(cache: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rocm_tui", *words],
        env=child_env(cache),
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache dir of the demo and of a frozen transformer, both real and tuned now."""
    cache = tmp_path_factory.mktemp("tuned")
    for program in (["-m", "backend.demo", "64"], ["-c", TRANSFORMER]):
        words = ("run", "--cache-dir", str(cache), "--", sys.executable, *program)
        done = rocm_tui(cache, *words)
        assert done.returncode == 0, done.stderr[-4000:]
    return cache


def rows_of(cache: Path) -> list[Row]:
    return load_model(Layout(cache)).rows()


async def shown(
    app: RocmTui, pilot: Pilot[int], panes: Panes
) -> list[tuple[Row, list[list[Segment]]]]:
    """Each row with the lines that the screen really draws while the cursor stands on it."""
    drawn = []
    for at, row in enumerate(panes.table.rows):
        panes.table.move_cursor(at)
        await until(pilot, lambda row=row: panes.detail.row is row)  # type: ignore[misc]
        line = list(panes.table.render_line(at + 1 - panes.table.top))
        below = [list(panes.detail.render_line(y)) for y in range(panes.detail.size.height)]
        drawn.append((row, [line, *below]))
    return drawn


async def test_no_time_that_was_taken_once_is_drawn_as_a_win(tuned: Path) -> None:
    rows = rows_of(tuned)
    assert {"bmm", "packed_linear"} <= {row.tuning.op for row in rows}
    app = RocmTui((tuned,), Layout(tuned), python=sys.executable)
    async with app.run_test(size=(180, 50)) as pilot:
        panes = await panes_of(app, pilot, len(rows))
        good = themes.styles(app)["good"]
        timed = 0
        for row, lines in await shown(app, pilot, panes):
            cells = tuning_cells.cells(row, 0.0)
            if stats.winner(row.tuning) is not None:
                timed += 1
                assert cells["time"][0][0] in "~?"
            for key in ONCE:
                text, style = cells[key]
                assert style not in ("good", "strong"), (key, text)
                assert text[:1] in "~?" or not re.search(r"\d", text), (key, text)
            for line in lines:
                for segment in line:
                    assert segment.style is not None
                    if re.search(r"[~?]\+?\d", segment.text):
                        assert not segment.style.bold, segment
                    own = segment.style.bold and segment.style.color == good.color
                    title = f" {row.tuning.op} " in segment.text or segment.text[:1] in "▌●"
                    assert not own or title, segment
            said = screen_text(panes.detail)
            assert "saves" not in said and "is fastest by" not in said
        assert timed >= 4
        app.stop_feed()
    listed = rocm_tui(tuned, "ls", "--cache-dir", str(tuned)).stdout
    assert re.findall(r"[~?]\d[\d.]* (?:µs|ms)", listed) and not re.search(r" \d[\d.]*×\s", listed)
    report = rocm_tui(tuned, "compare", str(tuned), "--cache-dir", str(tuned)).stdout
    assert "Savings vs ATen: not measured" in report and "paid for" not in report


def planted(tuned: Path, cache: Path, most: int) -> list[str]:
    """A cache file with real keys and choices and the times of a busy CPU; the keys."""
    (source,) = (tuned / "cache").iterdir()
    content = json.loads(source.read_text())
    entries: dict[str, dict[str, dict[str, dict[str, float]]]] = {}
    for op, inputs in content["cache"].items():
        for key, precisions in inputs.items():
            for precision, times in precisions.items():
                ours = [name for name in times if provider(Choice(hash=name)) == "cpp"]
                theirs = [name for name in times if provider(Choice(hash=name)) == "aten"]
                if ours and theirs and sum(map(len, entries.values())) < most:
                    busy = {ours[0]: 8.0021, theirs[0]: 13.7134}
                    entries.setdefault(op, {}).setdefault(key, {})[precision] = busy
    target = cache / "cache" / source.name
    target.parent.mkdir(parents=True)
    target.write_text(json.dumps({**content, "cache": entries}))
    return [key for inputs in entries.values() for key in inputs]


def signs(rows: list[Row]) -> Iterator[tuple[str, str]]:
    """VS ATEN as it is drawn, and as the measurement has it."""
    for row in rows:
        measurement = row.tuning.measured
        best, library = stats.winner(row.tuning), stats.aten(row.tuning)
        assert measurement is not None and best is not None and library is not None
        ours, theirs = measurement.of(best.hash), measurement.of(library.hash)
        assert ours is not None and theirs is not None
        text, style = tuning_cells.cells(row, 0.0)["gain"]
        by_verdict = {"tied": "tie", "unclear": "unclear"}.get(
            ours.verdict if ours.ratio > theirs.ratio else theirs.verdict,
            "faster" if ours.ratio < theirs.ratio else "slower",
        )
        drawn = text if "×" not in text else "faster" if float(text[:-1]) > 1 else "slower"
        assert (style == "good") == (by_verdict == "faster")
        yield drawn, by_verdict


async def test_after_m_all_suspects_say_what_measuring_says(tuned: Path, tmp_path: Path) -> None:
    keys = planted(tuned, tmp_path, 2)
    rows = rows_of(tmp_path)
    assert len(rows) == len(keys) >= 2
    assert all(row.suspect and "multiple of 4 ms" in row.suspect for row in rows)
    app = RocmTui((tmp_path,), Layout(tmp_path), python=sys.executable)
    async with app.run_test(size=(180, 50)) as pilot:
        panes = await panes_of(app, pilot, len(rows))
        title = f"{len(rows)} suspects (a)"
        for words in ("?8.002 ms", "?1.71×", title, "Suspect: 8.002 ms is a multiple of 4 ms"):
            await until(pilot, lambda: words in screen_text(app.screen))  # noqa: B023
        await pilot.press("a")
        await until(pilot, lambda: len(app.jobs.jobs()) == len(rows))
        await pilot.press("a")  # those that have a job are not measured twice
        await until(pilot, lambda: not app.unfinished, 600)
        assert len(app.jobs.jobs()) == len(rows)
        assert [job.state for job in app.jobs.jobs()] == ["done"] * len(rows)
        await until(pilot, lambda: not any(row.suspect for row in panes.table.rows))
        for drawn, by_verdict in signs(panes.table.rows):
            assert drawn == by_verdict
        await until(pilot, lambda: "suspect" not in screen_text(app.screen).splitlines()[0])
        app.stop_feed()
    for row in rows_of(tmp_path):
        assert not tuning_cells.cells(row, 0.0)["time"][0].startswith(("~", "?"))


def test_the_command_measures_them_one_after_another(tuned: Path, tmp_path: Path) -> None:
    planted(tuned, tmp_path, 1)
    words = ("measure", "--suspects", "--budget", "5", "--cache-dir", str(tmp_path))
    done = rocm_tui(tmp_path, *words, "--json")
    (told,) = json.loads(done.stdout)["suspects"]
    assert "multiple of 4 ms" in told["suspect"] and len(told["measurement"]["choices"]) == 2
    (row,) = rows_of(tmp_path)
    assert row.suspect is None and row.tuning.measured is not None
    again = rocm_tui(tmp_path, *words)
    assert again.returncode == 0 and again.stdout.startswith("No tuning is suspect")
