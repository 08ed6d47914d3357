"""Numbers as a person reads them, on the screen and in what commands print."""

from __future__ import annotations

from math import isfinite

NONE = "–"
"""Stands where a number is not known."""
AWAITED = "…"
"""Stands where it will be known in a moment."""
ONCE = "~"
"""Stands before a number that is made of a time that was taken once."""
SUSPECT = "?"
"""Stands there instead where that time is suspicious."""


def once(text: str, mark: str = ONCE) -> str:
    """A number, marked as one that is made of a time that was taken once."""
    return text if text in ("", NONE) else mark + text


def shorten(text: str, width: int) -> str:
    """At most `width` characters, cut in the middle: names of choices differ at both ends."""
    if len(text) <= width:
        return text
    if width < 2:
        return "…"[:width]
    tail = (width - 1) // 2
    return f"{text[: width - 1 - tail]}…{text[len(text) - tail :]}"


def significant(value: float) -> str:
    """Four digits: `0.570`, `12.34`, `569.6`, `1450`."""
    if not isfinite(value):
        return NONE
    for limit, places in ((9.9995, 3), (99.995, 2), (999.95, 1)):
        if value < limit:
            return f"{value:.{places}f}"
    return f"{value:.0f}"


def time_unit(ms: float | None) -> tuple[str, float]:
    """The unit that shows `ms` best, and how many of it make a millisecond."""
    if ms is None or ms >= 1000:
        return ("ms", 1.0) if ms is None else ("s", 1e-3)
    return ("ms", 1.0) if ms >= 1 else ("µs", 1e3)


def count(number: int | None) -> str:
    """Of things: `14,376`; a dash where it is not known."""
    return NONE if number is None else f"{number:,}"


def narrow_count(number: int | None) -> str:
    """The same in six cells: `99,999`, `123k`, `1.20M`."""
    if number is None or number < 100_000:
        return count(number)
    scaled, unit = number / 1e3, "k"
    for larger in "MGT":
        if scaled < 999.5:
            break
        scaled, unit = scaled / 1e3, larger
    return f"{_three_digits(scaled)}{unit}"


def duration(ms: float | None) -> str:
    """Milliseconds with the unit that fits: `569.6 µs`, `12.34 ms`, `1.200 s`."""
    if ms is None or not isfinite(ms):
        return NONE
    unit, scale = time_unit(abs(ms))
    return f"{significant(abs(ms) * scale)} {unit}"


def seconds(value: float | None) -> str:
    """Wall-clock seconds: `0.4 s`, `12 s`, `3 min 20 s`, `2 h 5 min`."""
    if value is None or not isfinite(value):
        return NONE
    if value < 10:
        return f"{value:.1f} s"
    whole = round(value)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def running(value: float) -> str:
    """The same for what still runs, without parts of a second: `2 s`, `3 min 20 s`."""
    return f"{round(value)} s" if value < 10 else seconds(value)


def factor(value: float | None) -> str:
    """A ratio: `1.13×`."""
    if value is None or not isfinite(value):
        return NONE
    places = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{places}f}×"


def percent(value: float | None) -> str:
    """A relative difference: 0.131 is `13.1 %`; large ones lose the decimal, 12 is `12×`."""
    if value is None or not isfinite(value):
        return NONE
    if value >= 10:
        return f"{value:.0f}×"
    return f"{value * 100:.1f} %" if value < 1 else f"{value * 100:.0f} %"


def signed(value: float | None) -> str:
    """How much longer than the best: `+3.1 %`, `−0.4 %`."""
    if value is None or not isfinite(value):
        return NONE
    return f"{'−' if value < 0 else '+'}{percent(abs(value))}"


def flops(value: float | None) -> str:
    """10^12 operations a second with three digits and the letter of the unit that fits: `1.23 T`,
    `2.05 G`, `812 M`."""
    if value is None or not isfinite(value):
        return NONE
    scaled, unit = value * 1e3, "G"
    for larger in "TP":
        if scaled < 999.5:
            break
        scaled, unit = scaled / 1e3, larger
    for smaller in "Mk":
        if scaled >= 0.9995 or not scaled:
            break
        scaled, unit = scaled * 1e3, smaller
    return f"{_three_digits(scaled)} {unit}"


def _three_digits(value: float) -> str:
    places = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{places}f}"


def throughput(value: float | None) -> str:
    """10^12 operations a second: `1.23 TFLOP/s`, `2.05 GFLOP/s`."""
    text = flops(value)
    return text if text == NONE else f"{text}FLOP/s"


def size(count: int) -> str:
    """Bytes in powers of 1024: `512 B`, `3.4 KiB`."""
    value = float(count)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


def age(when: float | None, now: float) -> str:
    """How long ago, coarse on purpose: a text that changes seldom is repainted seldom."""
    if when is None:
        return NONE
    passed = max(0.0, now - when)
    if passed < 60:
        return "now"
    for limit, unit, size in ((3600, "min", 60), (86400, "h", 3600), (1e12, "d", 86400)):
        if passed < limit:
            return f"{int(passed // size)} {unit}"
    return NONE
