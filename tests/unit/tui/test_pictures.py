"""Every screen is compared with its picture, at two sizes, in one run of the program.

After a wanted change: `ACCEPT_PICTURES=1 python -m pytest tests/unit/tui/test_pictures.py`, then
look at what became of `tests/support/screens/`. A picture that differs is written beside the old
one, as `.new`.
"""

from __future__ import annotations

import asyncio
import difflib
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from backend.disk.layout import Layout
from backend.model.problem import TuningKey
from backend.pins.store import PinStore
from rocm_tui.errors import RocmTuiError
from rocm_tui.jobs.queue import Order
from rocm_tui.tui.app import RocmTui
from tests.support import drawing, sample_job
from tests.support.places import ROOT

FOLDER = ROOT / "tests" / "support" / "screens"
SIZES = {"80x24": (80, 24), "140x45": (140, 45)}
ACCEPT = bool(os.environ.get("ACCEPT_PICTURES"))


@dataclass(frozen=True)
class Scene:
    """A screen: what stands on it once it is complete, the keys that lead there and back."""

    name: str
    shows: str
    keys: str
    back: str = ""


SCENES = (
    Scene("watch", "3 of 6 timed", "home"),
    Scene("tie", "Tie: the best two are 1.2 % apart", "j j j j j j j j"),
    Scene("beaten", "bmm is really 3.1 % faster", "k k k k k"),
    Scene("choices", "✓2", "G tab space space"),
    Scene("compare", "3 choices", "j space c", "escape escape escape"),
    Scene("pin", "out of reach in", "k k k k p", "escape"),
    Scene("tune", "Start  enter", "t", "escape"),
    Scene("pins", "2026-09-21 14:13  pin", "P", "P"),
    Scene("jobs", "out of memory", "J j j", "J"),
    Scene("sources", "following", "S", "S"),
    Scene("help", "Keys: Watch", "question_mark", "escape"),
    Scene("saved", "Tuning saves", "C"),
    Scene("ranks", "Ranks or hosts use", "3"),
    Scene("roofline", "FLOP/byte", "5 j j", "escape"),
)
CASES = [(scene.name, size) for scene in SCENES for size in SIZES]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, str], str]]:
    """All pictures of one run. Clock, zone and paths are the same on every machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("pictures"))
        patch.setattr(time, "time", lambda: sample_job.NOW)
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield asyncio.run(_take(Path("inductor")))
    time.tzset()


async def _take(cache: Path) -> dict[tuple[str, str], str]:
    sample_job.write(cache)
    _pin(cache)
    found = {}
    app = RocmTui([str(cache)], Layout(cache), polling=True)
    blocked = threading.Event()
    async with app.run_test(size=SIZES["80x24"]) as pilot:
        app.theme = "rocm-dark"
        try:
            await _shows(pilot, "10 tunings")
            _submit(app, blocked)
            for scene in SCENES:
                await pilot.press(*scene.keys.split())
                for field in app.screen.query(Input):
                    field.cursor_blink = False
                for name, size in SIZES.items():
                    await pilot.resize_terminal(*size)
                    lines = await _shows(pilot, scene.shows)
                    found[scene.name, name] = drawing.svg(lines)
                await pilot.resize_terminal(*SIZES["80x24"])
                await pilot.press(*scene.back.split())
        finally:
            blocked.set()
            app.stop_feed()
    return found


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
        blocked.wait(60)
        return ""

    def tune(title: str, lane: str, work: object) -> None:
        app.jobs.submit(Order("tune", title, lane, work))  # type: ignore[arg-type]

    tune("mm 8192×8192×8192 bf16", "0", lambda _: "triton_mm_4 1.879 ms, 7 choices in 9.4 s")
    tune("mm 4096×32000×5120 bf16", "1", fail)
    end = time.monotonic() + 20
    while any(not job.over for job in app.jobs.jobs()):
        assert time.monotonic() < end
        time.sleep(0.01)
    tune("bmm 64×2048×2048×128 bf16", "0", wait)
    tune("addmm 4096×5120×5120 bf16", "0", wait)


async def _shows(pilot: Pilot[int], text: str) -> list[list[drawing.Run]]:
    """The screen once `text` stands on it and nothing moves any more."""
    end, before = time.monotonic() + 30, None
    while True:
        pilot.app.clear_notifications()
        await pilot.pause(0.05)
        lines = drawing.lines_of(pilot.app)
        if lines == before and text in drawing.text_of(lines):
            return lines
        assert time.monotonic() < end, f"no {text!r} on\n{drawing.text_of(lines)}"
        before = lines


@pytest.mark.parametrize(("name", "size"), CASES, ids=["-".join(case) for case in CASES])
def test_a_screen_looks_as_in_its_picture(
    name: str, size: str, pictures: dict[tuple[str, str], str]
) -> None:
    path = FOLDER / f"{name}-{size}.svg"
    new = path.with_suffix(".new.svg")
    drawn, kept = pictures[name, size], path.read_text() if path.exists() else ""
    if ACCEPT:
        FOLDER.mkdir(exist_ok=True)
        path.write_text(drawn)
        new.unlink(missing_ok=True)
    elif drawn != kept:
        new.write_text(drawn)
        lines = difflib.unified_diff(kept.splitlines(), drawn.splitlines(), lineterm="", n=0)
        told = "\n".join(list(lines)[:40])
        pytest.fail(f"{path.name} differs; the new one is {new}. Accept as above.\n{told}")


def test_there_is_no_picture_of_nothing() -> None:
    known = {f"{name}-{size}.svg" for name, size in CASES}
    assert {path.name for path in FOLDER.glob("*.svg") if ".new" not in path.name} == known
