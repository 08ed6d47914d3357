"""Take the pictures of the pages from the real demo: `python -m tests.pictures FOLDER [CACHE]`.

The demo's model is compiled here, some of its tunings are measured and tried, and the real screen
shows them, written as SVG and PNG. With CACHE, that cache dir is shown instead. The machine should
be idle. `tests/unit/test_pictures.py` reads the SVG files.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from textual.pilot import Pilot
from textual.widgets import Input

from backend.disk.layout import Layout
from rocm_tui.session import stats
from rocm_tui.session.model import Row
from rocm_tui.tui.app import RocmTui
from rocm_tui.tui.screens.watch import WatchScreen
from tests.support import browser_lab, drawing
from tests.support.places import ROOT

TUI = (sys.executable, "-m", "rocm_tui")
_PATIENCE = 120.0
_READ = 2.0
"""Seconds in which all sources have been read."""


@dataclass(frozen=True)
class Shot:
    """A picture, complete when the screen shows the text `shows`.

    `keys` are pressed one after the other in Watch, with a measured tuning under the cursor; a key
    `=text` waits for the text.
    """

    name: str
    size: tuple[int, int]
    keys: str = ""
    shows: str = "Measured:"


SHOTS = (
    Shot("watch", (120, 30)),
    Shot("pin", (120, 30), "tab j p", "out of reach in"),
    Shot("compare", (120, 30), "c", "95 % interval"),
    Shot("trials", (120, 24), "8", "THE GRAPH IS"),
)
SAMPLES = ("entries", "tables")
"""Scenes of the tests that docs show as PNG: their devices and tables are not at hand."""


def command(cache: Path, *words: str) -> str:
    """What a command of ours prints."""
    env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(cache)}
    done = subprocess.run(
        [*TUI, *words], env=env, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )
    return done.stdout.decode()


def prepare(cache: Path) -> None:
    """Tune two sequence lengths of the demo's model, then measure and try the closest races.

    One thread is enough, and a busy neighbour disturbs it less than two.
    """
    run = ("run", "--capture", "--quiet", "--cache-dir", str(cache), "--")
    command(cache, *run, sys.executable, "-m", "backend.demo", "128", "96")
    for id_ in close_races(cache)[:2]:
        command(cache, "measure", id_, "#1", "#2")
        command(cache, "trial", id_, "#2", "--yes", "--budget", "10")


def close_races(cache: Path) -> list[str]:
    """Return the ids of the batched products, the smallest lead first."""
    tunings = json.loads(command(cache, "ls", "--json"))["tunings"]
    leads = {}
    for tuning in (tuning for tuning in tunings if tuning["op"] == "bmm"):
        times = [choice["ms"] for choice in tuning["choices"] if choice["ms"] is not None]
        leads[str(tuning["id"])] = times[1] / times[0] if len(times) > 1 else float("inf")
    return sorted(leads, key=lambda id_: leads[id_])


async def shoot(cache: Path, folder: Path, shot: Shot) -> None:
    app = RocmTui([str(cache)], Layout(cache))
    async with app.run_test(size=shot.size) as pilot:
        try:
            app.theme = "rocm-dark"
            await _until(pilot, "tunings ·")
            await pilot.pause(_READ)
            _go(app)
            for key in shot.keys.split():
                await (_until(pilot, key[1:]) if key[0] == "=" else pilot.press(key))
                await pilot.pause(0.2)
            await _until(pilot, shot.shows)
            for field in app.screen.query(Input):
                field.cursor_blink = False
            app.clear_notifications()
            await pilot.pause(0.5)
            drawn = drawing.svg(drawing.lines_of(app))
        finally:
            app.stop_feed()
    (folder / shot.name).with_suffix(".svg").write_text(drawn)
    drawing.png(drawn, (folder / shot.name).with_suffix(".png"))


def _go(app: RocmTui) -> None:
    """Go to a measured tuning, if possible to one with a surprising result."""

    def interest(row: Row) -> tuple[bool, bool]:
        return row.tuning.measured is not None, stats.standing(row.tuning) == "slower"

    if isinstance(app.screen, WatchScreen):
        app.screen.go_to(max(app.feed.model.rows(), key=interest))


async def _until(pilot: Pilot[int], text: str) -> None:
    end = time.monotonic() + _PATIENCE
    while text not in (shown := drawing.text_of(drawing.lines_of(pilot.app))):
        if time.monotonic() > end:
            raise SystemExit(f"no {text!r} on\n{shown}")
        await pilot.pause(0.1)


async def take(cache: Path, folder: Path) -> None:
    for shot in SHOTS:
        await shoot(cache, folder, shot)


def take_samples(folder: Path) -> None:
    for name in SAMPLES:
        kept = ROOT / "tests" / "support" / "screens" / f"{name}-140x45.svg"
        shutil.copy(kept, (folder / name).with_suffix(".svg"))
        drawing.png(kept.read_text(), (folder / name).with_suffix(".png"), 1.0)


def take_browser(cache: Path, folder: Path) -> None:
    """`rocm-tui serve` in Chromium, where that is installed."""
    if browser_lab.CHROMIUM is None:
        return
    with browser_lab.serving("--cache-dir", cache) as served, browser_lab.chromium() as browser:
        page = browser.new_page()
        page.goto(served.url)
        page.wait_for_selector("body.-first-byte .textual-terminal.-connected")
        page.wait_for_timeout(_READ * 1000)
        page.screenshot(path=folder / "serve.png")


def main(arguments: list[str]) -> None:
    folder = Path(arguments[0]).absolute()
    folder.mkdir(exist_ok=True)
    take_samples(folder)
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["PYTHONWARNINGS"] = "ignore"  # they name paths of this machine
    if len(arguments) > 1:
        asyncio.run(take(Path(arguments[1]), folder))
        take_browser(Path(arguments[1]), folder)
        return
    with tempfile.TemporaryDirectory() as temporary:
        os.chdir(temporary)
        prepare(Path("inductor"))
        asyncio.run(take(Path("inductor"), folder))
        take_browser(Path("inductor"), folder)


if __name__ == "__main__":
    main(sys.argv[1:])
