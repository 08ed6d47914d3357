"""Every screen is compared with its picture, at two sizes or three, in one run of the program.

After a wanted change: `ACCEPT_PICTURES=1 python -m pytest tests/unit/tui/test_pictures.py`, then
look at what became of `tests/support/screens/`, and of two copies in `screenshots/`. A picture that
differs is written beside the old one, as `.new`.
"""

from __future__ import annotations

import asyncio
import difflib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.color import ColorSystem

from rocm_tui.tui import themes
from tests.pictures import SAMPLES, take_samples
from tests.support import drawing, sample_job
from tests.support.places import ROOT
from tests.support.scenes import SCENES, SIZES, complete, dress, visit

FOLDER = ROOT / "tests" / "support" / "screens"
ACCEPT = bool(os.environ.get("ACCEPT_PICTURES"))
FEW = "80x24-256"
"""Small, in the colours of a terminal that has 256."""
CASES = [(scene.name, size) for scene in SCENES for size in scene.sizes]
CASES += [(scene.name, FEW) for scene in SCENES if scene.few]


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
    found = {}
    async for scene, app, pilot in visit(cache):
        for name in scene.sizes:
            await pilot.resize_terminal(*SIZES[name])
            found[scene.name, name] = drawing.svg(await complete(pilot, scene.shows))
        if scene.few:
            await pilot.resize_terminal(*SIZES["80x24"])
            dress(app, themes.DARK_256)
            lines = await complete(pilot, scene.shows, ColorSystem.EIGHT_BIT)
            found[scene.name, FEW] = drawing.svg(lines)
            app.theme = themes.DARK.name
    return found


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
        if size == "140x45" and name in SAMPLES:
            take_samples(ROOT / "screenshots")
    elif drawn != kept:
        new.write_text(drawn)
        lines = difflib.unified_diff(kept.splitlines(), drawn.splitlines(), lineterm="", n=0)
        told = "\n".join(list(lines)[:40])
        pytest.fail(f"{path.name} differs; the new one is {new}. Accept as above.\n{told}")


def test_there_is_no_picture_of_nothing() -> None:
    known = {f"{name}-{size}.svg" for name, size in CASES}
    assert {path.name for path in FOLDER.glob("*.svg") if ".new" not in path.name} == known
