"""Pins as one document that another machine can check and take in: strict JSON.

    {"format": "rocm-tui pins", "version": 1, "by": ..., "when": ...,
     "machines": [{"arch": ..., "torch": ..., ...}], "pins": [{..., "machine": 0}]}

What is not known is null. A failed choice's time is null as well, since JSON has no infinity. A
stranger wrote it: each member is of its type and in its bounds, or nothing of the file is used.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from backend.disk.safe import read_bytes
from backend.errors import CacheUnreadable, ShareInvalid, brief
from backend.model.problem import Problem, TuningKey, tuning_id
from backend.sharing.machine import Machine
from backend.wire.bounds import Moment, Name, Text, Whole, is_named
from backend.wire.codec import WireError, loads, read, to_json

FORMAT = "rocm-tui pins"
VERSION = 1
MAX_BYTES = 64 << 20
MAX_CONFIG = 100
MAX_VALUE = 1_000
"""Members of a choice's configuration, and characters of one; Triton's have some 30."""


@dataclass(frozen=True, slots=True)
class SharedPin:
    """A pin on its way. `timings` are milliseconds by precision and choice hash, `inf` where a
    choice failed, as they were on `machine` before the pin. `config` is the choice's (`BLOCK_M`,
    ...), as text, where it is known."""

    op: str
    inputs: str
    precision: str
    hash: str
    label: str
    machine: Machine
    config: Mapping[str, str] = field(default_factory=dict)
    timings: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    device: str | None = None
    who: str = ""
    when: float = 0.0
    note: str = ""

    @property
    def key(self) -> TuningKey:
        return TuningKey(self.op, self.inputs, self.precision)

    @property
    def id(self) -> str:
        """The id of the tuning that it pins."""
        return tuning_id(Problem(op=self.op, inputs_key=self.inputs, precision=self.precision))


@dataclass(frozen=True, slots=True)
class Share:
    """The content of one file: the pins, who exported them and when, Unix seconds."""

    pins: tuple[SharedPin, ...]
    by: str = ""
    when: float = 0.0


def _is_format(text: str) -> str:
    return "" if text == FORMAT else f"is not {FORMAT!r}; `rocm-tui export` writes such files"


def _is_version(number: int) -> str:
    return "" if number == VERSION else f"is not {VERSION}; update rocm-tui"


def _is_config(config: Mapping[str, str]) -> str:
    fits = len(config) <= MAX_CONFIG and all(len(text) <= MAX_VALUE for text in config.values())
    return "" if fits else "is too big for a choice's"


def _are_times(times: Mapping[str, object]) -> str:
    """Milliseconds by choice hash; null is a failed choice."""
    return next(
        (
            f"has no time for {brief(name, 60)}"
            for name, ms in times.items()
            if not name.isprintable() or not (ms is None or _is_time(ms))
        ),
        "",
    )


def _is_time(ms: object) -> bool:
    try:
        return type(ms) in (int, float) and 0 <= float(ms) < math.inf  # type: ignore[arg-type]
    except OverflowError:
        return False


@dataclass(frozen=True, slots=True)
class _Row:
    """A pin as the file has it: `machine` is a place in the list of machines."""

    op: Name
    inputs: Name
    precision: Name
    hash: Name
    label: Text
    device: Name | None
    who: Text
    when: Moment
    note: Text
    config: Annotated[dict[str, Text], is_named, _is_config]
    timings: Annotated[dict[str, Annotated[dict[str, Any], _are_times]], is_named]
    machine: Whole


@dataclass(frozen=True, slots=True)
class _Document:
    format: Annotated[str, _is_format]
    version: Annotated[Whole, _is_version]
    machines: tuple[Machine, ...]
    pins: tuple[_Row, ...]
    by: Text
    when: Moment


_SAME = ("op", "inputs", "precision", "hash", "label", "device", "who", "when", "note", "config")
"""Fields of a pin that its row has as they are."""


def share_text(share: Share) -> str:
    """The text of the file, with its last line end."""
    machines = list(dict.fromkeys(pin.machine for pin in share.pins))
    document = {
        "format": FORMAT,
        "version": VERSION,
        "by": share.by,
        "when": share.when,
        "machines": [to_json(machine) for machine in machines],
        "pins": [to_json(_row(pin, machines.index(pin.machine))) for pin in share.pins],
    }
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def read_share(path: Path) -> Share:
    """What the file `path` says. Raises ShareInvalid for anything but a whole, good export."""
    try:
        data = read_bytes(path, MAX_BYTES)
    except CacheUnreadable as error:
        raise ShareInvalid(str(error)) from error
    return parse_share(data, brief(str(path), 200))


def parse_share(data: bytes, source: str) -> Share:
    """The content of the file `source`. Raises ShareInvalid."""
    try:
        document = read(_Document, loads(data))
        pins = tuple(_pin(row, number, document) for number, row in enumerate(document.pins))
    except WireError as error:
        raise ShareInvalid(f"{source}: {error}") from error
    return Share(pins, document.by, document.when)


def _row(pin: SharedPin, machine: int) -> _Row:
    timings = {
        precision: {name: ms if math.isfinite(ms) else None for name, ms in times.items()}
        for precision, times in pin.timings.items()
    }
    same = {name: getattr(pin, name) for name in _SAME}
    return _Row(**same, timings=timings, machine=machine)


def _pin(row: _Row, number: int, document: _Document) -> SharedPin:
    if row.machine >= len(document.machines):
        what = f"is none of the {len(document.machines)} in the file"
        raise WireError(what, "pins", number, "machine")
    timings = {
        precision: {name: math.inf if ms is None else float(ms) for name, ms in times.items()}
        for precision, times in row.timings.items()
    }
    same = {name: getattr(row, name) for name in _SAME}
    return SharedPin(**same, timings=timings, machine=document.machines[row.machine])
