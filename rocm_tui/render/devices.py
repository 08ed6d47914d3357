"""The strip of devices: one cell a device, as wide as the screen allows.

A bar is the share of the time that a device is busy, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

from rocm_tui.harmless import plain
from rocm_tui.render.table import Line, Span
from rocm_tui.session.device_readings import DeviceReading, memory
from rocm_tui.session.numbers import shorten

NONE = "–"
LEAST = 38
"""Cells that a device needs."""
LINES = 4
"""That the strip takes at most."""
_GAP = 2


def lines(devices: Sequence[DeviceReading], width: int, height: int) -> list[Line]:
    """The strip on a screen of this size: few lines, several devices in one where they are many."""
    rows = max(1, min(LINES, height // 6))
    most = max(1, (width + _GAP) // (LEAST + _GAP))
    across = min(most, max(1, -(-len(devices) // rows)))
    each = (width - 1 - _GAP * (across - 1)) // across
    hidden = max(0, len(devices) - rows * across)
    seen = devices[: rows * across - (hidden > 0)]
    cells = [cell(reading, each) for reading in seen]
    if hidden:
        cells.append((_more(devices[len(seen) :], each),))
    down = -(-len(cells) // across)
    return [_row(cells[at::down], each, width) for at in range(down)]


def _row(cells: Sequence[Line], each: int, width: int) -> Line:
    """Filled to the end: of lines as wide as each other only what differs is painted."""
    spans: list[Span] = [(" ", "")]
    for cell_ in cells:
        spans += [*cell_, (" " * (each - _cells(cell_) + _GAP), "")]
    last = spans.pop()[0]
    return (*spans, (last[: width - _cells(spans)].ljust(width - _cells(spans)), ""))


def _cells(spans: Sequence[Span]) -> int:
    return sum(len(text) for text, _ in spans)


def _more(rest: Sequence[DeviceReading], each: int) -> Span:
    busy = [other.busy for other in rest if other.busy is not None]
    most = f", up to {max(busy):.0f} % busy" if busy else ""
    return shorten(f"… {len(rest)} more{most}", each), "dim"


def cell(reading: DeviceReading, width: int) -> Line:
    """A device, in exactly or less than `width` cells."""
    label = f"{plain(reading.label, 4):>2}"
    head: Span = (f"{label}  ", "dim")
    if reading.why:
        return head, (f"{NONE} ", ""), (shorten(plain(reading.why), width - 6), "warn")
    narrow = width < 50
    bar = 6 if narrow else 10
    hot, capped = "too hot" in reading.throttled, bool(reading.throttled)
    spans: list[Span] = [
        (f"{label}! ", "warn") if capped else head,
        *_bar(reading.busy, bar),
        (f"{_number(reading.busy, 4)}%", ""),
        (_memory(reading, narrow), ""),
        (f"{_number(reading.power, 5)} W", "warn" if capped and not hot else ""),
        (f"{_number(reading.temperature, 4)}{'°' if narrow else ' °C'}", "warn" if hot else ""),
    ]
    left = width - _cells(spans)
    said = ", ".join(reading.throttled)
    more: tuple[Span, ...] = (
        (f"{_number(reading.clock, 6)} MHz", ""),
        (f"  {plain(said, 40)}" if said else "", "warn"),
        (f"  {plain(reading.name, 40)}" if reading.name else "", "dim"),
    )
    for span in more:
        if len(span[0]) <= left:
            spans.append(span)
            left -= len(span[0])
    return tuple(span for span in spans if span[0])


def _bar(busy: float | None, width: int) -> tuple[Span, Span]:
    halves = 0 if busy is None else round(max(0.0, min(100.0, busy)) / 100 * width * 2)
    full = "━" * (halves // 2) + "╸" * (halves % 2)
    return (full, "accent"), ("─" * (width - len(full)), "rail")


def _number(value: float | None, width: int) -> str:
    return (NONE if value is None else f"{value:.0f}").rjust(width)


def _memory(reading: DeviceReading, narrow: bool) -> str:
    """`142/192G`, or with its unit written out."""
    text = memory(reading)
    if text is None:
        return NONE.rjust(10 if narrow else 14)
    return f"{text}G".rjust(10) if narrow else f"{text} GiB".rjust(14)
