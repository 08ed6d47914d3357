"""Pictures of every screen, size and theme, to be looked at: `python -m tests.sheets FOLDER`.

A sheet holds all screens of one size in one theme, as `SIZE-THEME-COLOURS.png`; `--single` writes
each screen as a file of its own, too. What there is to show is listed in `tests/support/scenes.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
import tempfile
import time
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from rich.color import ColorSystem
from textual.theme import Theme

from rocm_tui.tui import themes
from tests.support import drawing, sample_job
from tests.support.scenes import SCENES, SIZES, complete, dress, visit

COLUMNS = {"80x24": 4, "140x45": 3, "220x60": 2}
"""Screens beside each other on a sheet."""
_GAP = 12


@dataclass(frozen=True)
class Look:
    """A theme as a terminal shows it."""

    name: str
    theme: Theme
    colors: drawing.Colors = None


LOOKS = (
    *(Look(f"{theme.name}-full", theme) for theme in themes.FULL if not theme.ansi),
    *(Look(f"{t.name}-256", t, ColorSystem.EIGHT_BIT) for t in themes.OF_256 if not t.ansi),
    Look("rocm-16", themes.ANSI, ColorSystem.STANDARD),
)


async def take(
    cache: Path, sizes: list[str], looks: list[Look], scenes: list[str]
) -> dict[tuple[str, str], dict[str, str]]:
    """The pictures by size and look, then by screen."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    async for scene, app, pilot in visit(cache):
        if scene.name not in scenes:
            continue
        for size in sizes:
            await pilot.resize_terminal(*SIZES[size])
            for look in looks:
                dress(app, look.theme)
                lines = await complete(pilot, scene.shows, look.colors)
                pictures = found.setdefault((size, look.name), {})
                prefix = f"p{len(pictures)}c"
                pictures[scene.name] = drawing.svg(lines, scene.name, prefix)
        app.theme = themes.DARK.name
    return found


def sheet(pictures: list[str], columns: int) -> str:
    """Pictures of one size below and beside each other."""
    boxes = [re.search(r'viewBox="0 0 (\d+) (\d+)"', picture) for picture in pictures]
    wide = max(int(box[1]) for box in boxes if box) + _GAP
    high = max(int(box[2]) for box in boxes if box) + _GAP
    rows = ceil(len(pictures) / columns)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {columns * wide} {rows * high}">',
        f'<rect width="{columns * wide}" height="{rows * high}" fill="#606060"/>',
    ]
    for at, picture in enumerate(pictures):
        x, y = at % columns * wide, at // columns * high
        inner = picture[picture.index(">") + 1 :]
        parts.append(f'<g transform="translate({x} {y})">{inner.replace("</svg>", "</g>")}')
    return "\n".join([*parts, "</svg>"])


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", action="append", choices=SIZES)
    parser.add_argument("--look", action="append", choices=[look.name for look in LOOKS])
    parser.add_argument("--scene", action="append", choices=[scene.name for scene in SCENES])
    parser.add_argument("--single", action="store_true", help="each screen as a file, too")
    parser.add_argument("--scale", type=float, default=0.8)
    args = parser.parse_args(words)
    folder: Path = args.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    looks = [look for look in LOOKS if not args.look or look.name in args.look]
    scenes = args.scene or [scene.name for scene in SCENES]
    os.environ["TZ"], time.time = "UTC", lambda: sample_job.NOW
    os.environ["XDG_STATE_HOME"] = os.environ["XDG_CONFIG_HOME"] = os.devnull
    time.tzset()
    with tempfile.TemporaryDirectory() as temporary:
        os.chdir(temporary)
        found = asyncio.run(take(Path("inductor"), args.size or list(SIZES), looks, scenes))
        os.chdir("/")
    for (size, look), pictures in found.items():
        if args.single:
            for name, picture in pictures.items():
                drawing.png(picture, folder / f"{name}-{size}-{look}.png", args.scale * 1.5)
        drawn = sheet(list(pictures.values()), min(COLUMNS[size], len(pictures)))
        drawing.png(drawn, folder / f"{size}-{look}.png", args.scale)


if __name__ == "__main__":
    main(sys.argv[1:])
