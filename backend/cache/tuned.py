"""One tuning's new timings as a line of strict JSON, for the journal.

    {"op": ..., "inputs": ..., "precision": ..., "when": ..., "timings": {choice hash: ms}}

`ms` is a number; what strict JSON has no number for is a text: "Infinity" (failed) or "NaN".

What PyTorch's `lookup` gets for a parsed cache file: it reads it, writes into it, and hands it
back. This one costs nothing to hand out, and knows what was written into it.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
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


ByInputs = dict[str, Any]
"""By inputs, then precision, then choice hash: milliseconds. As JSON gave it, so other things may
stand there."""
Index = dict[str, ByInputs]
"""By op. What lies below `ByInputs` is replaced, never changed."""


def view(index: Mapping[str, ByInputs]) -> dict[str, Any]:
    """A copy of `index` in what it shows, made as it is looked at."""
    return {op: _Inputs(by_inputs) for op, by_inputs in index.items()}


def written(looked_up: Mapping[str, Any]) -> list[Tuned]:
    """What was written into a view, or all of a plain dict of that shape."""
    now = time.time()
    return [
        Tuned(op, inputs, precision, timings, now)
        for op, inputs, precision, leaf in _leaves(looked_up)
        if (timings := leaf.news if isinstance(leaf, _Timings) else leaf)
    ]


def apply(index: Index, tuned: Tuned) -> None:
    """Let `index` say what `tuned` says; other choices of the tuning stay."""
    by_inputs = index.setdefault(tuned.op, {})
    by_precision = _object(by_inputs.get(tuned.inputs))
    timings = {**_object(by_precision.get(tuned.precision)), **tuned.timings}
    by_inputs[tuned.inputs] = {**by_precision, tuned.precision: timings}


def missing(index: Mapping[str, Any], tuned: Tuned) -> Tuned | None:
    """What `index` has no time of, not even another; None if it has one of each choice."""
    by_precision = _object(_object(index.get(tuned.op)).get(tuned.inputs))
    there = _object(by_precision.get(tuned.precision))
    if tuned.timings.keys() <= there.keys():
        return None
    lacking = {name: ms for name, ms in tuned.timings.items() if name not in there}
    return replace(tuned, timings=lacking)


class _Timings(dict[str, Any]):
    """One tuning's times. `news` are those that were set."""

    def __init__(self, found: Mapping[str, Any]) -> None:
        super().__init__(found)
        self.news: dict[str, float] = {}

    def __setitem__(self, name: str, ms: Any) -> None:
        super().__setitem__(name, ms)
        self.news[name] = ms


class _Inputs(dict[str, Any]):
    """What was asked for of one op; the rest is looked up in the index when it is asked for."""

    def __init__(self, found: Mapping[str, Any]) -> None:
        super().__init__()
        self._found = found

    def get(self, inputs: str, default: Any = None) -> Any:
        there = super().get(inputs)
        if there is None:
            there = _copied(self._found.get(inputs))
            if there is None:
                return default
            self[inputs] = there
        return there

    def __missing__(self, inputs: str) -> Any:
        there = self.get(inputs)
        if there is None:
            raise KeyError(inputs)
        return there

    def __contains__(self, inputs: object) -> bool:
        return isinstance(inputs, str) and self.get(inputs) is not None

    def setdefault(self, inputs: str, default: Any = None) -> Any:
        there = self.get(inputs)
        if there is None:
            there = self[inputs] = default
        return there


def _copied(by_precision: object) -> dict[str, Any] | None:
    if not isinstance(by_precision, dict):
        return None
    return {name: _Timings(_numbers(times)) for name, times in by_precision.items()}


def _numbers(times: object) -> Mapping[str, Any]:
    found = _object(times)
    if set(map(type, found.values())) <= {float, int}:
        return found
    return {name: ms for name, ms in found.items() if type(ms) in (float, int)}


def _leaves(looked_up: Mapping[str, Any]) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    for op, by_inputs in looked_up.items():
        for inputs, by_precision in by_inputs.items():
            for precision, timings in by_precision.items():
                yield op, inputs, precision, timings


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
