"""Numbers as a person reads them, on the screen and in what commands print, and read back."""

from __future__ import annotations

import re
from math import floor, isfinite, log10

from rich.cells import cell_len, set_cell_size

NONE = "–"
"""In place of an unknown number."""
AWAITED = "…"
"""In place of a number that is being read."""
ONCE = "~"
"""Before a number that is made of a time that was taken once."""
SUSPECT = "?"
"""Before it instead if that time is suspicious."""


def once(text: str, mark: str = ONCE) -> str:
    """A number, marked as one that is made of a time that was taken once."""
    return text if text in ("", NONE) else mark + text


def shorten(text: str, width: int) -> str:
    """At most `width` cells, cut in the middle: names of choices differ at both ends. Configs
    of Triton kernels lose names, then their last words: `BLOCK_M=128 w8 s3` is `M128 w8 s3`."""
    if len(text) <= width // 2:  # no letter takes more than two cells
        return text
    if not text.isascii():
        return _shorter_wide(text, width)
    if len(text) <= width:
        return text
    if "=" in text and _CONFIG.match(text):
        return _shorter_config(text, width)
    if width < 2:
        return "…"[:width]
    tail = (width - 1) // 2
    return f"{text[: width - 1 - tail]}…{text[len(text) - tail :]}"


def _shorter_wide(text: str, width: int) -> str:
    """Shorten text whose letters may take two cells each, or none."""
    if cell_len(text) <= width:
        return text
    if width < 2:
        return "…"[:width]
    tail = (width - 1) // 2
    head = set_cell_size(text, width - 1 - tail)
    if not text.startswith(head):
        head = head[:-1]  # a blank in place of half a letter
    at = len(text)
    while at and cell_len(text[at - 1 :]) <= tail:
        at -= 1
    return f"{head}…{text[at:]}"


_CONFIG = re.compile(r"(?:[A-Za-z_]\w*=\S+ )+w\d+(?: \S+)*\Z")
_OF_BLOCKS = frozenset(("", "BLOCK", "SIZE"))


def _shorter_config(text: str, width: int) -> str:
    words = text.split(" ")
    names = [_initials(word.partition("=")[0]) for word in words]
    if len(set(names)) == len(names):  # else two would have one name
        words = [_joined(name, word) for name, word in zip(names, words, strict=True)]
    if len(" ".join(words)) <= width:
        return " ".join(words)
    while len(words) > 1 and len(" ".join(words)) >= width:
        words.pop()
    return f"{' '.join(words)[: width - 1]}…"


def _joined(name: str, word: str) -> str:
    """`M128` of `BLOCK_M=128`, `R0=64` of `R0_BLOCK=64`; `w8` stays."""
    value = word.partition("=")[2]
    if not value:
        return word
    return f"{name}{value}" if value.isdigit() and not name[-1:].isdigit() else f"{name}={value}"


def _initials(name: str) -> str:
    """`M` of `BLOCK_SIZE_M`, `X` of `XBLOCK`, `R0` of `R0_BLOCK`, `GM` of `GROUP_SIZE_M`."""
    parts = [part for part in name.split("_") if part.upper() not in _OF_BLOCKS]
    if not parts:
        return "B"
    if len(parts) > 1:
        return "".join(part[0] for part in parts)
    (only,) = parts
    return only.removesuffix("BLOCK") or only


def significant(value: float) -> str:
    """Four digits: `0.570`, `12.34`, `569.6`, `1450`."""
    if value < 9.9995:
        return f"{value:.3f}" if isfinite(value) else NONE
    if value < 99.995:
        return f"{value:.2f}"
    if value < 999.95:
        return f"{value:.1f}"
    return f"{value:.0f}" if isfinite(value) else NONE


def time_unit(ms: float | None) -> tuple[str, float]:
    """Return the unit that shows `ms` best, and how many such units make a millisecond."""
    if ms is None or ms >= 1000:
        return ("ms", 1.0) if ms is None else ("s", 1e-3)
    return ("ms", 1.0) if ms >= 1 else ("µs", 1e3)


PLACES = 4
"""Decimals of a time, in milliseconds, in an AUTOTUNE row."""
_EXACT = 1e-9
"""Milliseconds by which differences of such times miss the last decimal."""


def rounding(*times: float | None) -> float:
    """Return the relative error of a quotient of times by the decimals that AUTOTUNE rows give; 0
    for times in full. A number made of such times has no more digits than they have."""
    rounded = [ms for ms in times if ms and round(ms, PLACES) == ms]
    return sum(10.0**-PLACES / 2 / ms for ms in rounded)


def _digits(value: float, places: int, error: float) -> str:
    """Write a number with at most `places` decimals, of which the last may be off by two by its
    absolute error; always one digit."""
    if error > 0 and value and isfinite(error):
        certain = max(floor(-log10(error / 2)), -floor(log10(abs(value))))
        places = min(places, certain)
    return f"{value:.{places}f}" if places >= 0 else f"{round(value, places):.0f}"


def in_unit(ms: float, scale: float) -> str:
    """Four digits of a time in a unit of which `scale` make a millisecond: `12.34`. One that was
    rounded to the decimals of a row has no digit more than the row: 0.0041 ms are `4.1` µs."""
    value = ms * scale
    if scale == 1e3 and value < 99.95 and abs(round(ms, PLACES) - ms) < _EXACT:
        return f"{value:.{PLACES - 3}f}"
    return significant(value)


def count(number: int | None) -> str:
    """A number of things: `14,376`; a dash where it is not known."""
    return NONE if number is None else f"{number:,}"


def narrow_count(number: int | None) -> str:
    """A number of things in six cells: `99,999`, `123k`, `1.20M`."""
    if number is None or number < 100_000:
        return count(number)
    scaled, unit = _in_larger(number / 1e3, "kMGT")
    return f"{_three_digits(scaled)}{unit}"


def _in_larger(value: float, units: str) -> tuple[float, str]:
    """Return a value of the first unit in the one, each a thousand of the last, that fits it."""
    at = 0
    while value >= 999.5 and at + 1 < len(units):
        value, at = value / 1e3, at + 1
    return value, units[at]


def duration(ms: float | None) -> str:
    """Milliseconds with the unit that fits: `569.6 µs`, `12.34 ms`, `1.200 s`."""
    if ms is None or not isfinite(ms):
        return NONE
    unit, scale = time_unit(size := abs(ms))
    return f"{in_unit(size, scale)} {unit}"


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
    """Seconds of what still runs, without parts of a second: `2 s`, `3 min 20 s`."""
    return f"{round(value)} s" if value < 10 else seconds(value)


def factor(value: float | None, error: float = 0.0) -> str:
    """Return a ratio of this relative error: `1.13×`, of coarse times `3.7×`."""
    if value is None or not isfinite(value):
        return NONE
    return f"{_three_digits(value, error)}×"


_AS_RATIO = 10.0
"""The relative difference from which it is shown as a ratio."""


def percent(value: float | None, error: float = 0.0) -> str:
    """Return a relative difference, of a ratio of this relative error: 0.131 is `13.1 %`; large
    ones are shown as the ratio: 12 is `13×`."""
    if value is None or not isfinite(value):
        return NONE
    error *= 1 + abs(value)
    if value >= _AS_RATIO:
        return f"{_digits(value + 1, 0, error)}×"
    return f"{_digits(value * 100, 1 if value < 1 else 0, error * 100)} %"


def signed(value: float | None, error: float = 0.0) -> str:
    """How much longer than the best: `+3.1 %`, `−0.4 %`."""
    if value is None or not isfinite(value):
        return NONE
    if value >= _AS_RATIO:
        return percent(value, error)
    return f"{'−' if value < 0 else '+'}{percent(abs(value), error)}"


def change(ratio: float, verdict: str) -> str:
    """Return how a time changed by a ratio: `4.4 % faster`, `1.0 % slower`."""
    return f"{percent(abs(ratio - 1))} {verdict}"


def signed_range(low: float, high: float) -> str:
    """`−4.9 % to −3.9 %`, of the interval of a ratio."""
    return f"{signed(low - 1)} to {signed(high - 1)}" if isfinite(high) else "not known"


def between(low: float, high: float) -> str:
    """`3.9 to 4.9 %`, of a ratio's interval on one side of 1; with signs where it holds 1."""
    if not isfinite(high) or low <= 1 <= high:
        return signed_range(low, high)
    ends = sorted((abs(low - 1), abs(high - 1)))
    return f"{percent(ends[0]).removesuffix(' %')} to {percent(ends[1])}"


def flops(value: float | None, error: float = 0.0) -> str:
    """Return 10^12 operations a second of this relative error with at most three digits and the
    letter of the unit that fits: `1.23 T`, `2.05 G`, `812 M`."""
    if value is None or not isfinite(value):
        return NONE
    scaled, unit = _in_larger(value * 1e3, "GTP")
    for smaller in "Mk":
        if scaled >= 0.9995 or not scaled:
            break
        scaled, unit = scaled * 1e3, smaller
    return f"{_three_digits(scaled, error)} {unit}"


def _three_digits(value: float, error: float = 0.0) -> str:
    """At most three digits of a number of this relative error."""
    places = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return _digits(value, places, value * error)


def throughput(value: float | None, error: float = 0.0) -> str:
    """Return 10^12 operations a second: `1.23 TFLOP/s`, `2.05 GFLOP/s`."""
    text = flops(value, error)
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
    """How long ago, coarse on purpose: a text that changes seldom is repainted seldom. `future`
    by this clock: it was set back, or another host's is wrong by more than a minute."""
    if when is None:
        return NONE
    passed = now - when
    if passed < 60:
        return "now" if passed > -60 else "future"
    for limit, unit, size in ((3600, "min", 60), (86400, "h", 3600), (1e12, "d", 86400)):
        if passed < limit:
            return f"{int(passed // size)} {unit}"
    return NONE


_UNITS = {
    "ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0,
    "": 1.0, "%": 1e-2, "×": 1.0, "B": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30,
    "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "left": 1.0,
    "GB/s": 1e9, "MB/s": 1e6, "GFLOP/s": 1e9, "TFLOP/s": 1e12,
}  # fmt: skip
_QUANTITY = re.compile(
    r"[~?≤+<#]*([−-]?(?:\d{1,3}(?:,\d{3}){1,4}|\d{1,15})(?:\.\d{1,9})?)"
    r"(?: ?([^\d\s.,−-][^\d\s]*))?(?:\s+|\Z)"
)


def quantity(text: str) -> float | None:
    """What a text of `numbers` says: `~1.2 ms` is 0.0012, `3 min 20 s` is 200, `12 %` is 0.12;
    None of what is no number with a unit. What a person reads is compared as it is read."""
    if text == "now":
        return 0.0
    total, at = 0.0, 0
    text = text.strip()
    while at < len(text):
        match = _QUANTITY.match(text, at)
        factor = _UNITS.get(match[2] or "") if match else None
        if match is None or factor is None:
            return None
        total += float(match[1].replace("−", "-").replace(",", "")) * factor
        at = match.end()
    return total if text else None
