"""Take the pictures of the README from the real demo: `python -m tests.pictures FOLDER [CACHE]`.

The demo's model is compiled here, with our templates among its choices; one of its tunings is
measured; all of it is shown by the real screen, and written as SVG. With CACHE that cache
dir is shown instead. The machine should have nothing else to do meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from textual.pilot import Pilot
from textual.widgets import Input

from backend.disk.layout import Layout
from backend.model.origin import template_of
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
    """A picture: `shows` stands on the screen when it is complete. Keys are pressed one after the
    other, in Watch with a measured tuning under the cursor, or with one that has choices of our
    templates (`ours`); a key `=text` waits for the text."""

    name: str
    size: tuple[int, int]
    keys: str = ""
    shows: str = "Measured:"
    ours: bool = False


SHOTS = (
    Shot("watch", (120, 30)),
    Shot("watch-80x24", (80, 24)),
    Shot("watch-200x60", (200, 60)),
    Shot("pin", (120, 30), "tab j p", "out of reach in"),
    Shot("tune", (120, 30), "t", "Start  enter"),
    Shot("compare", (120, 30), "c", "95 % interval"),
    Shot("compare-source", (120, 30), "tab j j space space c =vs d", "@@", ours=True),
    Shot("report", (120, 24), "C", "save"),
    Shot("roofline", (120, 36), "C 5 =FLOP/byte m", "measured here"),
    Shot("trials", (120, 24), "T", "THE GRAPH IS"),
    Shot("help", (120, 61), "question_mark", "Keys: Watch"),
)
PINNED = (
    Shot("pins", (120, 24), "P", "until the next release"),
    Shot("jobs", (120, 24), "t =Start enter J =━", "1 running", ours=True),
)
"""Taken after one pin was made."""
AS_PNG = ("watch", "pin", "compare", "roofline", "trials")
"""For README and docs."""
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
    """Two sequence lengths of the demo's model, a product with our templates among its choices,
    and every close race run again. One thread: a busy neighbour would disturb two much more."""
    os.environ["OMP_NUM_THREADS"] = "1"
    run = ("run", "--capture", "--quiet", "--cache-dir", str(cache), "--")
    command(cache, *run, sys.executable, "-m", "backend.demo", "128", "96")
    command(cache, "tune", "bmm", "8x64x32", "8x32x64", "--dtype", "f32", "--templates")
    for id_ in close_races(cache)[:4]:
        command(cache, "measure", id_, "#1", "#2")
        command(cache, "trial", id_, "#2", "--yes", "--budget", "10")


def close_races(cache: Path) -> list[str]:
    """The ids of the batched products, that whose best two choices are nearest first."""
    tunings = json.loads(command(cache, "ls", "--json"))["tunings"]
    leads = {}
    for tuning in (one for one in tunings if one["op"] == "bmm"):
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
            _go(app, ours=shot.ours)
            for key in shot.keys.split():
                await (_until(pilot, key[1:]) if key[0] == "=" else pilot.press(key))
                await pilot.pause(0.2)
            await _until(pilot, shot.shows)
            for field in app.screen.query(Input):
                field.cursor_blink = False
            if shot.name != "jobs":
                app.clear_notifications()
            await pilot.pause(0.5)
            drawn = drawing.svg(drawing.lines_of(app))
        finally:
            app.stop_feed()
    (folder / shot.name).with_suffix(".svg").write_text(drawn)
    if shot.name in AS_PNG:
        drawing.png(drawn, (folder / shot.name).with_suffix(".png"))


def _go(app: RocmTui, *, ours: bool) -> None:
    """To a tuning with choices of ours, or to a measured one: a surprise, if there is one."""

    def interest(row: Row) -> tuple[bool, bool]:
        if ours:
            return any(map(template_of, row.tuning.choices)), False
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
    command(cache, "pin", close_races(cache)[0], "#2", "--note", "until the next release")
    for shot in PINNED:
        await shoot(cache, folder, shot)


def take_samples(folder: Path) -> None:
    for name in SAMPLES:
        kept = ROOT / "tests" / "support" / "screens" / f"{name}-140x45.svg"
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
