"""Take the pictures of the README from the real demo: `python -m tests.pictures FOLDER [CACHE]`.

The demo's model is compiled here, its tunings are shown by the real screen, and what Textual would
have drawn is written as SVG and PNG. With CACHE that cache dir is shown instead.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from backend.store.paths import Layout
from rocm_tui.screens.program import RocmTui

SHOTS: tuple[tuple[str, tuple[int, int], tuple[str, ...]], ...] = (
    ("watch", (120, 30), ("j", "j", "j")),
    ("watch-80x24", (80, 24), ()),
    ("watch-200x60", (200, 60), ()),
    ("pin", (120, 30), ("j", "j", "tab", "j", "p")),
    ("help", (120, 44), ("question_mark",)),
)
"""Name, size, keys pressed before the picture is taken."""

ADVANCE = 0.61 / 0.602
"""Rich lays out for a font whose characters are 0.61 em wide; DejaVu Sans Mono's are 0.602."""

PINNED = (("pins", (120, 24), ("P",)),)
"""Taken after one pin was made."""


def tune(cache: Path) -> None:
    """Two sequence lengths of the demo's model, recorded."""
    words = ["-m", "rocm_tui", "run", "--cache-dir", str(cache), "--", sys.executable]
    subprocess.run(
        [sys.executable, *words, "-m", "backend.demo", "128", "96"],
        check=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )


async def shoot(
    cache: Path, folder: Path, name: str, size: tuple[int, int], keys: tuple[str, ...]
) -> None:
    app = RocmTui([str(cache)], Layout(cache))
    async with app.run_test(size=size) as pilot:
        for _ in range(100):
            await pilot.pause(0.05)
            if app.feed.model.rows():
                break
        app.theme = "rocm-dark"
        await pilot.pause(0.5)
        for key in keys:
            await pilot.press(key)
            await pilot.pause(0.3)
        svg = app.export_screenshot(title="rocm-tui")
    app.stop_feed()
    write(folder / name, svg)


def write(path: Path, svg: str) -> None:
    """SVG without addresses of web fonts, and a PNG of it in a font that is here."""
    import cairosvg

    svg = re.sub(r"@font-face\s*{.*?}", "", svg, flags=re.DOTALL)
    path.with_suffix(".svg").write_text(svg)
    here = re.sub(r"font-family:[^;]*", "font-family: DejaVu Sans Mono, monospace", svg)
    here = here.replace("font-size: 20px", f"font-size: {20 * ADVANCE:.2f}px")
    cairosvg.svg2png(here.encode(), write_to=str(path.with_suffix(".png")), scale=1.0)


def pin_second(cache: Path) -> None:
    """Pin the second best choice of the newest tuning, by the command a person would use."""
    import json

    env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(cache)}
    words = [sys.executable, "-m", "rocm_tui"]
    listed = subprocess.run([*words, "ls", "--json"], env=env, check=True, capture_output=True)
    id_ = json.loads(listed.stdout)["tunings"][0]["id"]
    subprocess.run([*words, "pin", id_, "#2", "--note", "steadier under load"], env=env, check=True)


async def take(cache: Path, folder: Path) -> None:
    for name, size, keys in SHOTS:
        await shoot(cache, folder, name, size, keys)
    pin_second(cache)
    for name, size, keys in PINNED:
        await shoot(cache, folder, name, size, keys)


def main(arguments: list[str]) -> None:
    folder = Path(arguments[0])
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        cache = Path(arguments[1]) if len(arguments) > 1 else Path(temporary, "demo")
        if len(arguments) == 1:
            tune(cache)
        asyncio.run(take(cache, folder))


if __name__ == "__main__":
    main(sys.argv[1:])
