"""Pins as one document that another machine can check and take in: strict JSON.

    {"format": "rocm-tui pins", "version": 1, "by": ..., "when": ...,
     "machines": [{"arch": ..., "torch": ..., ...}], "pins": [{..., "machine": 0}]}

What is not known is null. A failed choice's time is null as well, since JSON has no infinity.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backend.cache.autotune import read_bytes
from backend.errors import CacheUnreadable, ShareInvalid, brief
from backend.records import LATEST, Tuning, TuningKey, tuning_id
from backend.sharing.fields import Fields, times_of

FORMAT = "rocm-tui pins"
VERSION = 1
MAX_BYTES = 64 << 20
MAX_CONFIG = 100
MAX_VALUE = 1_000
"""Members of a choice's configuration, and characters of one; Triton's have some 30."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What a tuning was made with, as far as it is known.

    `arch` is gcnArchName on ROCm, `sm_NN` on CUDA, the vector extension of a CPU; `device` the
    product's name; `hip` or `cuda` the version that torch was built for. `system_hash` is the name
    of Inductor's cache file.
    """

    arch: str | None = None
    compute_units: int | None = None
    device: str | None = None
    torch: str | None = None
    triton: str | None = None
    hip: str | None = None
    cuda: str | None = None
    system_hash: str | None = None
    host: str | None = None


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
        return tuning_id(Tuning(op=self.op, inputs_key=self.inputs, precision=self.precision))


@dataclass(frozen=True, slots=True)
class Share:
    """The content of one file: the pins, who exported them and when, Unix seconds."""

    pins: tuple[SharedPin, ...]
    by: str = ""
    when: float = 0.0


def encode(share: Share) -> str:
    """The text of the file, with its last line end."""
    machines: list[Machine] = []
    for pin in share.pins:
        if pin.machine not in machines:
            machines.append(pin.machine)
    document = {
        "format": FORMAT,
        "version": VERSION,
        "by": share.by,
        "when": share.when,
        "machines": [dataclasses.asdict(machine) for machine in machines],
        "pins": [_encode_pin(pin, machines.index(pin.machine)) for pin in share.pins],
    }
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def read_share(path: Path) -> Share:
    """What the file `path` says. Raises ShareInvalid for anything but a whole, good export."""
    try:
        data = read_bytes(path, MAX_BYTES)
    except CacheUnreadable as error:
        raise ShareInvalid(str(error)) from error
    return decode(data, brief(str(path), 200))


def decode(data: bytes, source: str) -> Share:
    """The content of the file `source`. Raises ShareInvalid; unknown fields are left out."""
    try:
        document = json.loads(data, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ShareInvalid(f"{source} is not strict JSON ({brief(str(error), 80)})") from error
    fields = Fields(document, source)
    if document.get("format") != FORMAT:
        raise fields.wrong("`format`", f"is not {FORMAT!r}; `rocm-tui export` writes such files")
    if fields.whole("version") != VERSION:
        raise fields.wrong("`version`", f"is not {VERSION}; update rocm-tui")
    machines = [
        _decode_machine(Fields(item, f"{source}: machine {number}"))
        for number, item in enumerate(fields.items("machines"), 1)
    ]
    pins = tuple(
        _decode_pin(Fields(item, f"{source}: pin {number}"), machines)
        for number, item in enumerate(fields.items("pins"), 1)
    )
    return Share(pins, fields.text("by"), fields.number("when", LATEST))


def _encode_pin(pin: SharedPin, machine: int) -> dict[str, Any]:
    names = ("op", "inputs", "precision", "hash", "label", "device", "who", "when", "note")
    return {
        **{name: getattr(pin, name) for name in names},
        "config": dict(pin.config),
        "timings": {
            precision: {name: ms if math.isfinite(ms) else None for name, ms in times.items()}
            for precision, times in pin.timings.items()
        },
        "machine": machine,
    }


def _decode_machine(fields: Fields) -> Machine:
    texts = ("arch", "device", "torch", "triton", "hip", "cuda", "system_hash", "host")
    return Machine(
        compute_units=fields.optional_whole("compute_units"),
        **{name: fields.optional_name(name) for name in texts},
    )


def _decode_pin(fields: Fields, machines: Sequence[Machine]) -> SharedPin:
    at = fields.whole("machine")
    if not 0 <= at < len(machines):
        raise fields.wrong("`machine`", f"is none of the {len(machines)} in the file")
    return SharedPin(
        op=fields.name("op"),
        inputs=fields.name("inputs"),
        precision=fields.name("precision"),
        hash=fields.name("hash"),
        label=fields.text("label"),
        machine=machines[at],
        config=_config(fields),
        timings={
            precision: times_of(fields, precision, item)
            for precision, item in fields.objects("timings").items()
        },
        device=fields.optional_name("device"),
        who=fields.text("who"),
        when=fields.number("when", LATEST),
        note=fields.text("note"),
    )


def _config(fields: Fields) -> dict[str, str]:
    config = fields.texts("config")
    if len(config) > MAX_CONFIG or any(len(text) > MAX_VALUE for text in config.values()):
        raise fields.wrong("`config`", "is too big for a choice's")
    return config


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
