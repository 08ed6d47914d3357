"""What new times of a pinned tuning change: its pin learns them and goes on holding."""

from __future__ import annotations

import json
import time
from dataclasses import replace

from backend.cache.journal import Tuned
from backend.disk import safe
from backend.disk.layout import Layout
from backend.model.pin import PinState
from backend.pins.drift import default_who
from backend.pins.file import Record, read_pin_file
from backend.pins.held import HeldCache
from backend.pins.store import PinStore


def learn(layout: Layout, system_hash: str, tuned: Tuned) -> None:
    """Store the times of `tuned` as the measured ones of its pin.

    Without a pin nothing happens. Raises CacheUnreadable, UnsafePath and NotWritable.
    """
    if not layout.pins.exists():
        return
    safe.check_file(layout.root, layout.pins)
    with safe.locked(layout.root, layout.pins):
        file = read_pin_file(layout.pins)
        pin = next((r for r in file.pins if _is_of(r, system_hash, tuned)), None)
        if pin is None:
            return
        texts = {name: json.dumps(ms) for name, ms in tuned.timings.items()}
        known = pin.tokens.get(tuned.precision, {})
        pin = replace(pin, tokens={**pin.tokens, tuned.precision: {**known, **texts}})
        file.put(pin)
        file.note("retune", pin, default_who(), time.time())
        file.save()


def hold_again(layout: Layout, system_hash: str, tuned: Tuned) -> PinState | None:
    """Hold back what the cache file has now beside the pinned choice; the state of the pin.

    None if it is not pinned. Raises CacheUnreadable, UnsafePath and NotWritable.
    """
    if not layout.pins.exists():
        return None
    with safe.locked(layout.root, layout.pins):
        file = read_pin_file(layout.pins)
        if not any(_is_of(record, system_hash, tuned) for record in file.pins):
            return None
        HeldCache(layout).agree(file, system_hash, count_drifts=False)
    for status in PinStore(layout).reconcile():
        pin = status.pin
        if (pin.system_hash, pin.op, pin.inputs) == (system_hash, tuned.op, tuned.inputs):
            return status.state
    return None


def _is_of(record: Record, system_hash: str, tuned: Tuned) -> bool:
    return record.identity == (system_hash, tuned.op, tuned.inputs)
