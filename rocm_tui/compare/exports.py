"""Exported pins as tunings: each holds the times of its tuning, as they were before the pin."""

from __future__ import annotations

from math import isfinite
from pathlib import Path

from backend.cache.inputs_key import InputsKey, parse_inputs_key
from backend.errors import InputsKeyInvalid
from backend.model.choice import Choice, sort_choices
from backend.model.tuning import Tuning
from backend.sharing.share import FORMAT, Share, SharedPin
from rocm_tui.harmless import clean
from rocm_tui.ingest.records import Seen, uid_of

_HEAD = 4096


def is_export(path: Path) -> bool:
    """Whether a file says that it is an export of pins."""
    try:
        with path.open("rb") as stream:
            head = stream.read(_HEAD)
    except OSError:
        return False
    return head.lstrip()[:1] == b"{" and f'"{FORMAT}"'.encode() in head


def tunings(share: Share, source: str) -> list[Seen]:
    """One tuning for each precision of each pin, with the pinned choice in use."""
    made = [
        _tuning(pin, precision, source)
        for pin in share.pins
        for precision in pin.timings or {pin.precision: {}}
    ]
    return [Seen(uid_of(source, n), tuning) for n, tuning in enumerate(made)]


def _tuning(pin: SharedPin, precision: str, source: str) -> Tuning:
    try:
        inputs = parse_inputs_key(pin.inputs)
    except InputsKeyInvalid:
        inputs = InputsKey(())
    times = pin.timings.get(precision, {})
    return Tuning(
        op=clean(pin.op),
        shapes=tuple(spec.sizes for spec in inputs.specs),
        strides=tuple(spec.strides for spec in inputs.specs),
        dtypes=tuple(spec.dtype for spec in inputs.specs),
        device=inputs.specs[0].device if inputs.specs else None,
        precision=clean(precision),
        inputs_key=clean(pin.inputs),
        choices=sort_choices([_choice(pin, name, ms) for name, ms in times.items()]),
        num_choices=len(times) or None,
        selected=clean(pin.hash),
        when=pin.when or None,
        sources=(source,),
    )


def _choice(pin: SharedPin, hash_: str, ms: float) -> Choice:
    failed = not isfinite(ms)
    name = clean(pin.label) if hash_ == pin.hash else None
    return Choice(name=name, hash=clean(hash_), ms=None if failed else ms, failed=failed)
