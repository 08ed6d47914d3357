"""Every screen of the program, once: what leads there and what stands on it when it is complete.

The golden pictures, the sheets of `python -m tests.sheets` and the test of contrast show what is
listed here. A new screen is a line in `SCENES`: its keys are pressed after those of the line above.
"""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

from textual.pilot import Pilot
from textual.theme import Theme
from textual.widgets import Input

from backend.disk.layout import Layout
from backend.model.problem import TuningKey
from backend.pins.store import PinStore
from backend.tables.model import TableDevice
from rocm_tui.actions import lint
from rocm_tui.errors import RocmTuiError
from rocm_tui.jobs.queue import Order
from rocm_tui.tui.app import RocmTui
from tests.support import drawing, sample_job, sample_tables

SMALL = (80, 24)
SIZES = {"80x24": SMALL, "140x45": (140, 45), "220x60": (220, 60)}


@dataclass(frozen=True)
class Scene:
    """A screen: what stands on it once it is complete, the keys that lead there and back.

    Its golden pictures are at the `sizes`, in the colours of 256 with `few`.
    """

    name: str
    shows: str
    keys: str
    back: str = ""
    sizes: tuple[str, ...] = ("80x24", "140x45")
    few: bool = False


ALL_SIZES = tuple(SIZES)
_OF_SESSION = (
    Scene("watch", "3 of 6 timed", "home", sizes=ALL_SIZES, few=True),
    Scene("tie", "Tie: the best two are 1.2 % apart", "j j j j j j j j"),
    Scene("beaten", "bmm is 3.1 % faster", "k k k k k"),
    Scene("choices", "✓2", "G tab space space"),
    Scene("compare", "3 choices", "j space c", "escape escape escape", sizes=ALL_SIZES),
    Scene("pin", "out of reach in", "k k k k p", "escape", few=True),
    Scene("tune", "Start  enter", "t", "escape"),
    Scene("pins", "2026-09-21 14:13  pin", "3", "3"),
    Scene("jobs", "out of memory", "4 j j", "4"),
    Scene("sources", "following", "7", "7"),
    Scene("help", "Keys: Watch", "question_mark", "escape"),
    Scene("sessions", "rocm-tui  Sessions", "6", "6"),
    Scene("trials", "rocm-tui  Trials", "8", "8"),
    Scene("history", "rocm-tui  History", "i", "escape"),
    Scene("source", "names no source", "o", "escape"),
    Scene("saved", "saves 207.9", "5"),
    Scene("ranks", "agree --propose", "tab tab", "escape"),
)
_OF_TABLES = (
    Scene("tables", "tunableop_results0.csv:11", "e home" + 9 * " j", sizes=ALL_SIZES, few=True),
    Scene("entries", "3 warnings, 3 notes", "9", sizes=ALL_SIZES, few=True),
    Scene("entry", "rounded to", "G k k k enter"),
)
SCENES = _OF_SESSION + _OF_TABLES


Stop = tuple[Scene, RocmTui, Pilot[int]]


async def visit(cache: Path) -> AsyncIterator[Stop]:
    """Go from scene to scene: in one run of the program on a session of its own below `cache`, in
    another on tables beside that."""
    async for scene in _visit_session(cache):
        yield scene
    async for scene in _visit_tables(cache.with_name("tables")):
        yield scene


async def _visit_tables(folder: Path) -> AsyncIterator[Stop]:
    paths = sample_tables.write(folder)
    app = RocmTui(list(map(str, paths)), Layout(folder / "none"), polling=True)
    here, lint.device_here = lint.device_here, lambda: TableDevice("gfx942", 304)
    async with app.run_test(size=SMALL) as pilot:
        app.theme = "rocm-dark"
        try:
            await complete(pilot, "+16 others: e")  # before that its key shows nothing
            for scene in _OF_TABLES:
                await pilot.press(*scene.keys.split())
                yield scene, app, pilot
                await pilot.resize_terminal(*SMALL)
        finally:
            lint.device_here = here
            app.stop_feed()


async def _visit_session(cache: Path) -> AsyncIterator[Stop]:
    sample_job.write(cache)
    _pin(cache)
    app = RocmTui([str(cache)], Layout(cache), polling=True)
    blocked = threading.Event()
    async with app.run_test(size=SMALL) as pilot:
        app.theme = "rocm-dark"
        try:
            await complete(pilot, "10 tunings")
            await complete(pilot, "● #2")  # whether the pin holds is read after the rows
            _submit(app, blocked)
            for scene in _OF_SESSION:
                await pilot.press(*scene.keys.split())
                for field in app.screen.query(Input):
                    field.cursor_blink = False
                yield scene, app, pilot
                await pilot.resize_terminal(*SMALL)
                await pilot.press(*scene.back.split())
        finally:
            blocked.set()
            app.stop_feed()


def dress(app: RocmTui, theme: Theme) -> None:
    """Show this theme, whatever the terminal; the twins of one name are told apart here."""
    own = replace(theme, name=f"{theme.name}-{theme.foreground}-{theme.background}")
    app.register_theme(own)
    app.theme = own.name


def _pin(cache: Path) -> None:
    shapes = ((32, 64, 56, 56), (128, 64, 3, 3))
    inputs = sample_job.inputs_of(shapes)
    PinStore(Layout(cache)).pin(
        sample_job.SYSTEM,
        TuningKey("convolution", inputs, "highest"),
        sample_job.hash_of("convolution", shapes, "triton_convolution2d_0"),
        label="triton_convolution2d_0",
        note="steadier under load",
        who="ada@node7",
    )


def _submit(app: RocmTui, blocked: threading.Event) -> None:
    """A job of each state, done by no worker."""

    def fail(_: object) -> str:
        raise RocmTuiError("the worker ran out of memory: it took 41 GiB of 32 GiB")

    def wait(_: object) -> str:
        blocked.wait()
        return ""

    def tune(title: str, lane: str, work: object) -> None:
        app.jobs.submit(Order("tune", title, lane, work))  # type: ignore[arg-type]

    tune("mm 8192×8192×8192 bf16", "0", lambda _: "triton_mm_4 1.879 ms, 7 choices in 9.4 s")
    tune("mm 4096×32000×5120 bf16", "1", fail)
    end = time.monotonic() + 90
    while any(not job.over for job in app.jobs.jobs()):
        assert time.monotonic() < end
        time.sleep(0.01)
    tune("bmm 64×2048×2048×128 bf16", "0", wait)
    tune("addmm 4096×5120×5120 bf16", "0", wait)


async def complete(
    pilot: Pilot[int], text: str, colors: drawing.Colors = None
) -> list[list[drawing.Run]]:
    """The screen once `text` stands on it and nothing moves any more."""
    end, before = time.monotonic() + 90, None
    while True:
        pilot.app.clear_notifications()
        await pilot.pause(0.05)
        lines = drawing.lines_of(pilot.app, colors)
        if lines == before and text in drawing.text_of(lines):
            return lines
        assert time.monotonic() < end, f"no {text!r} on\n{drawing.text_of(lines)}"
        before = lines
