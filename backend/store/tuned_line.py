"""One tuning's new timings as a line of strict JSON, for the journal.

    {"op": ..., "inputs": ..., "precision": ..., "when": ..., "timings": {choice hash: ms}}

`ms` is a number; what strict JSON has no number for is a text: "Infinity" (failed) or "NaN".
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast


@dataclass(frozen=True, slots=True)
class Tuned:
    """What was measured of one tuning. The first three are keys of the cache file as they stand
    there, suffixes included; `timings` are milliseconds, `when` is in Unix seconds."""

    op: str
    inputs: str
    precision: str
    timings: Mapping[str, float]
    when: float


def encode(tuned: Tuned) -> bytes:
    """The line, with its end."""
    document = {
        "op": tuned.op,
        "inputs": tuned.inputs,
        "precision": tuned.precision,
        "when": tuned.when,
        "timings": {name: _strict(ms) for name, ms in tuned.timings.items()},
    }
    return json.dumps(document, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> Tuned | None:
    """None for a line that is none of ours: torn by a full disk or a power cut, or foreign."""
    try:
        document = json.loads(line)
        timings = {name: _number(ms) for name, ms in document["timings"].items()}
        op, inputs, precision = (document[name] for name in ("op", "inputs", "precision"))
        when = float(document["when"])
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None
    if not all(isinstance(name, str) for name in (op, inputs, precision)):
        return None
    return Tuned(op, inputs, precision, timings, when)


def decode_all(data: bytes) -> list[Tuned]:
    """Those of the lines in `data` that are ours."""
    lines = (line for line in data.splitlines() if line.startswith(b"{"))
    return [found for line in lines if (found := decode(line)) is not None]


def _strict(ms: Any) -> float | str:
    value = ms if isinstance(ms, (int, float)) else float(ms)
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _number(value: Any) -> float:
    if isinstance(value, str):
        return {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}[value]
    if type(value) not in (int, float):
        raise TypeError("a time is a number")
    float(value)  # raises OverflowError for one that no cache file holds
    return cast("float", value)
