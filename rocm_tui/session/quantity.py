"""What a number that was written for a person is worth."""

from __future__ import annotations

import re

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
        found = _QUANTITY.match(text, at)
        factor = _UNITS.get(found[2] or "") if found else None
        if found is None or factor is None:
            return None
        total += float(found[1].replace("−", "-").replace(",", "")) * factor
        at = found.end()
    return total if text else None
