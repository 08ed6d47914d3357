"""The strip of devices: one cell a device, as wide as there is room for; and what `doctor` says.

A bar is the share of the time that a device is busy, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from backend.measure.machine.devices import NOTHING, Seen
from rocm_tui.harmless import plain
from rocm_tui.render.table import Line, Span
from rocm_tui.session.numbers import shorten

NONE = "–"
LEAST = 38
"""Cells that a device needs."""
LINES = 4
"""That the strip takes at most."""
_GAP = 2
_GIB = float(1 << 30)


@dataclass(frozen=True, slots=True)
class Shown:
    """What stands in the cell of a device: numbers that change by less than is worth a repaint
    stay. None is not known; `why` says so of all of it."""

    label: str
    name: str
    busy: float | None = None
    used: float | None = None
    total: float | None = None
    power: float | None = None
    temperature: float | None = None
    clock: float | None = None
    throttled: tuple[str, ...] = ()
    why: str = ""


def shown(seen: Seen, before: Shown | None = None) -> Shown:
    """The cell of a device that now tells this, where `before` stands there."""
    device, reading = seen.device, seen.reading or NOTHING
    old = before or Shown(device.label, device.name)
    usage, state = reading.usage, reading.state
    total = usage.memory_total
    return Shown(
        device.label,
        device.name,
        _settled(old.busy, usage.busy, 3, whole=(0, 100)),
        _settled(old.used, usage.memory_used, max(0.05 * _GIB, (total or 0) / 256)),
        total,
        _settled(old.power, state.power_w, max(4, (state.power_w or 0) * 0.03)),
        _settled(old.temperature, state.temperature_c, 2),
        _settled(old.clock, state.clock_mhz, 50),
        state.throttled,
        seen.why,
    )


def _settled(
    before: float | None, now: float | None, least: float, whole: tuple[float, ...] = ()
) -> float | None:
    """What stood there, where `now` differs by less than `least` and is none of `whole`."""
    if before is None or now is None or now in whole:
        return now
    return before if abs(now - before) < least else now


def lines(devices: Sequence[Shown], width: int, height: int) -> list[Line]:
    """The strip on a screen of this size: few lines, several devices in one where they are many."""
    rows = max(1, min(LINES, height // 6))
    most = max(1, (width + _GAP) // (LEAST + _GAP))
    across = min(most, max(1, -(-len(devices) // rows)))
    each = (width - 1 - _GAP * (across - 1)) // across
    hidden = max(0, len(devices) - rows * across)
    seen = devices[: rows * across - (hidden > 0)]
    cells = [cell(one, each) for one in seen]
    if hidden:
        cells.append((_more(devices[len(seen) :], each),))
    down = -(-len(cells) // across)
    return [_row(cells[at::down], each, width) for at in range(down)]


def _row(cells: Sequence[Line], each: int, width: int) -> Line:
    """Filled to the end: of lines as wide as each other only what differs is painted."""
    spans: list[Span] = [(" ", "")]
    for one in cells:
        spans += [*one, (" " * (each - _cells(one) + _GAP), "")]
    last = spans.pop()[0]
    return (*spans, (last[: width - _cells(spans)].ljust(width - _cells(spans)), ""))


def _cells(spans: Sequence[Span]) -> int:
    return sum(len(text) for text, _ in spans)


def _more(rest: Sequence[Shown], each: int) -> Span:
    busy = [one.busy for one in rest if one.busy is not None]
    most = f", up to {max(busy):.0f} % busy" if busy else ""
    return shorten(f"… {len(rest)} more{most}", each), "dim"


def cell(one: Shown, width: int) -> Line:
    """A device, in exactly or less than `width` cells."""
    head: Span = (f"{plain(one.label, 4):>2} ", "dim")
    if one.why:
        return head, (f"{NONE} ", ""), (shorten(plain(one.why), width - 5), "warn")
    narrow = width < 50
    bar = 6 if narrow else 10
    hot, capped = "too hot" in one.throttled, bool(one.throttled)
    spans: list[Span] = [
        head if not capped else (f"{plain(one.label, 4):>2}!", "warn"),
        *_bar(one.busy, bar),
        (f"{_number(one.busy, 4)}%", ""),
        (_memory(one, narrow), ""),
        (f"{_number(one.power, 5)} W", "warn" if capped and not hot else ""),
        (f"{_number(one.temperature, 4)}{'°' if narrow else ' °C'}", "warn" if hot else ""),
    ]
    left = width - _cells(spans)
    said = ", ".join(one.throttled)
    more: tuple[Span, ...] = (
        (f"{_number(one.clock, 6)} MHz", ""),
        (f"  {plain(said, 40)}" if said else "", "warn"),
        (f"  {plain(one.name, 40)}" if one.name else "", "dim"),
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


def _memory(one: Shown, narrow: bool) -> str:
    """`142/192G`, or with its unit written out."""
    if one.used is None or one.total is None:
        return NONE.rjust(10 if narrow else 14)
    text = f"{_gib(one.used)}/{_gib(one.total)}"
    return f"{text}G".rjust(10) if narrow else f"{text} GiB".rjust(14)


def _gib(count: float) -> str:
    value = count / _GIB
    return f"{value:.1f}" if value < 9.95 else f"{value:.0f}"


def told(seen: Seen) -> tuple[str, str]:
    """For `doctor`: what a device tells, and why it tells not all of it."""
    one = shown(seen)
    place = f" at {seen.device.place}" if seen.device.place else ""
    facts = [
        f"{one.busy:.0f} % busy" if one.busy is not None else "",
        f"{_memory(one, False).strip()} in use" if one.used is not None else "",
        f"{one.power:.0f} W" if one.power is not None else "",
        f"{one.temperature:.0f} °C" if one.temperature is not None else "",
        f"{one.clock:.0f} MHz" if one.clock is not None else "",
        *(f"throttled: {reason}" for reason in one.throttled),
    ]
    text = ", ".join(filter(None, facts)) or "tells nothing"
    missing = seen.why or "; ".join((seen.reading or NOTHING).unread)
    return plain(f"{one.name or 'GPU'}{place}: {text}"), plain(missing)
