"""One tuning's new timings: as a line of the journal, in what is known, and as they are written.

    {"op": ..., "inputs": ..., "precision": ..., "timings": {choice hash: ms}, "when": ...}

`ms` is a number; what strict JSON has no number for is a text: "Infinity" (failed) or "NaN".

PyTorch's `lookup` gets a parsed cache file, reads it, writes into it, and hands it back. The view
that stands for it here costs nothing to hand out, and knows what was written into it.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from backend.cache.autotune import walk
from backend.wire.codec import WireError, dumps, loads, read, to_json


@dataclass(frozen=True, slots=True)
class Tuned:
    """What was measured of one tuning. The first three are keys of the cache file as they stand
    there, suffixes included; `timings` are milliseconds, `when` is in Unix seconds."""

    op: str
    inputs: str
    precision: str
    timings: Mapping[str, int | float]
    when: float


def line_of(tuned: Tuned) -> bytes:
    """The line, with its end."""
    timings = {name: _strict(ms) for name, ms in tuned.timings.items()}
    return dumps({**to_json(tuned), "timings": timings}).encode() + b"\n"


def _strict(ms: Any) -> int | float | str:
    value = ms if isinstance(ms, (int, float)) else float(ms)
    return value if math.isfinite(value) else json.dumps(value)


def tuned_of(line: bytes) -> Tuned | None:
    """None for a line that is none of ours: torn by a full disk or a power cut, or foreign."""
    try:
        return read(Tuned, loads(line))
    except WireError:
        return None


def tuned_in(data: bytes) -> list[Tuned]:
    """Those of the lines in `data` that are ours."""
    lines = (line for line in data.splitlines() if line.startswith(b"{"))
    return [tuned for line in lines if (tuned := tuned_of(line)) is not None]


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
        for op, inputs, precision, leaf in walk(looked_up)
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

    def __init__(self, stored: Mapping[str, Any]) -> None:
        super().__init__(stored)
        self.news: dict[str, float] = {}

    def __setitem__(self, name: str, ms: Any) -> None:
        super().__setitem__(name, ms)
        self.news[name] = ms


class _Inputs(dict[str, Any]):
    """What was asked for of one op; the rest is looked up in the index when it is asked for."""

    def __init__(self, stored: Mapping[str, Any]) -> None:
        super().__init__()
        self._stored = stored

    def get(self, inputs: str, default: Any = None) -> Any:
        there = super().get(inputs)
        if there is None:
            there = _copied(self._stored.get(inputs))
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
    stored = _object(times)
    if set(map(type, stored.values())) <= {float, int}:
        return stored
    return {name: ms for name, ms in stored.items() if type(ms) in (float, int)}


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
