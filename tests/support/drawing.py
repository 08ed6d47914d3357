"""A screen of the program as a small SVG: every run of text at its place, each colour once.

Textual's own export is five times as large and names its parts anew in each picture, so that two
pictures of one screen differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.color import Color as RichColor
from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style
from textual._context import visible_screen_stack
from textual.app import App

CELL, LINE, SIZE = 8, 18, 13.2
"""Width and height of a cell, and the size of letters; monospaced ones are 0.6 em wide or so."""
MARGIN, BAR = 8, 28
FONT = "Menlo, Consolas, 'DejaVu Sans Mono', monospace"

Colors = ColorSystem | None
"""What the terminal can show; None is everything."""
Run = tuple[int, str, str, str, bool]
"""Column, text, foreground, background, bold."""


def lines_of(app: App[Any], colors: Colors = None) -> list[list[Run]]:
    """What the app's screen shows now, with the screens behind a dialog."""
    visible_screen_stack.set(app._background_screens)
    strips = app.screen._compositor.render_strips()
    return [list(_runs(list(strip), app, colors)) for strip in strips]


def _runs(segments: list[Segment], app: App[Any], colors: Colors) -> Iterator[Run]:
    """Neighbours of one look are one run."""
    looks = [(segment.text, _look(segment.style or Style(), app, colors)) for segment in segments]
    at = 0
    for look, run in groupby((one for one in looks if one[0]), key=lambda one: one[1]):
        text = "".join(part for part, _ in run)
        yield at, text, *look
        at += cell_len(text)


def _look(style: Style, app: App[Any], colors: Colors) -> tuple[str, str, bool]:
    theme = app.ansi_theme

    def code(color: RichColor | None, *, front: bool) -> str:
        if color is None:
            color = RichColor.default()
        if colors is not None:
            color = color.downgrade(colors)
        return "#{:02x}{:02x}{:02x}".format(*color.get_truecolor(theme, foreground=front))

    front, back = code(style.color, front=True), code(style.bgcolor, front=False)
    if style.reverse:
        front, back = back, front
    return front, back, bool(style.bold)


def text_of(lines: list[list[Run]]) -> str:
    """The characters alone, without blanks at the ends of lines."""
    return "\n".join("".join(run[1] for run in line).rstrip() for line in lines)


def svg(lines: list[list[Run]], title: str = "rocm-tui", prefix: str = "c") -> str:
    """The lines in a window. The text can be read in the file, a line of the screen a line.

    `prefix` begins the names of its colours: those of pictures in one file must differ.
    """
    width = max(sum(cell_len(run[1]) for run in line) for line in lines)
    wide, high = width * CELL + 2 * MARGIN, len(lines) * LINE + BAR + MARGIN
    ground = _ground(lines)
    names: dict[tuple[str, bool], str] = {}
    for line in lines:
        for _, text, front, _, bold in line:
            if text.strip():
                names.setdefault((front, bold), f"{prefix}{len(names)}")
    weight = {True: ";font-weight:bold", False: ""}
    css = "".join(f".{name}{{fill:{c}{weight[bold]}}}" for (c, bold), name in names.items())
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}">',
        f"<style>text{{font:{SIZE}px {FONT};white-space:pre}}{css}</style>",
        f'<rect width="{wide}" height="{high}" rx="7" fill="{ground}"/>',
        f'<text x="{MARGIN + 4}" y="19" fill="#808896">{escape(title)}</text>',
    ]
    for row, line in enumerate(lines):
        parts.append("".join(_line(line, row, ground, names)))
    return "\n".join([*(part for part in parts if part), "</svg>", ""])


def _ground(lines: list[list[Run]]) -> str:
    """The colour behind most cells."""
    cells: dict[str, int] = {}
    for line in lines:
        for _, text, _, back, _ in line:
            cells[back] = cells.get(back, 0) + cell_len(text)
    return max(cells, key=lambda back: cells[back])


def _line(
    line: list[Run], row: int, ground: str, names: dict[tuple[str, bool], str]
) -> Iterator[str]:
    top = BAR + row * LINE
    for back, run in groupby(line, key=lambda one: one[3]):
        cells = list(run)
        if back != ground:
            x, width = cells[0][0], sum(cell_len(one[1]) for one in cells)
            yield f'<rect x="{MARGIN + x * CELL}" y="{top}" width="{width * CELL}" '
            yield f'height="{LINE}" fill="{back}"/>'
    for at, text, front, _, bold in line:
        dots = "".join(_dots(at, text, top))
        if dots:
            yield f'<path stroke="{front}" stroke-width="1.9" stroke-linecap="round" d="{dots}"/>'
        text = re.sub("[\u2800-\u28ff]", " ", text)
        for found in re.finditer(r"\S+(?: \S+)*", text):
            x = MARGIN + (at + cell_len(text[: found.start()])) * CELL
            word = found.group()
            yield f'<text class="{names[front, bold]}" x="{x}" y="{top + 13}" '
            yield f'textLength="{cell_len(word) * CELL}">{escape(word, quote=False)}</text>'


def _dots(at: int, text: str, top: int) -> Iterator[str]:
    """Braille as dots: many fonts lack it."""
    for column, letter in enumerate(text, start=at):
        bits = ord(letter) - 0x2800
        for bit in range(8) if 0 < bits < 256 else ():
            if bits >> bit & 1:
                row, right = (3, bit - 6) if bit > 5 else (bit % 3, bit // 3)
                x = MARGIN + column * CELL + 2 + 4 * right
                yield f"M{x} {top + 2.25 + 4.5 * row:g}h0"


def png(drawn: str, path: Path, scale: float = 1.5) -> None:
    """The picture as PNG, with each letter at its place: Cairo rounds the widths of letters."""
    import cairosvg

    def placed(found: re.Match[str]) -> str:
        x, text = int(found["x"]), found["text"]
        letters = re.findall(r"&\w+;|.", text)
        places = " ".join(str(x + CELL * at) for at in range(len(letters)))
        return f'<text class="{found["name"]}" x="{places}" y="{found["y"]}">{text}</text>'

    pattern = r'<text class="(?P<name>\w+)" x="(?P<x>\d+)" y="(?P<y>\d+)" textLength="\d+">'
    exact = re.sub(pattern + r"(?P<text>[^<]*)</text>", placed, drawn)
    exact = exact.replace(FONT, "'DejaVu Sans Mono'")
    cairosvg.svg2png(exact.encode(), write_to=str(path), scale=scale)
