"""Proofs of pins: what was seen in generated code, kept with the pin; until when it counts."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import replace

from backend.counted import counted
from backend.disk import safe
from backend.disk.layout import Layout
from backend.model.pin import Pin, Proof
from backend.pins.drift import default_who
from backend.pins.file import MAX_PIN_BYTES, Record, find, read_pin_file
from backend.pins.held import HeldCache
from backend.pins.numbers import learn


def keep_proof(
    layout: Layout, pin: Pin, *, ok: bool, by: str, torch: str = "", what: str = ""
) -> bool:
    """Keep with the pin what was seen just now, and in the history, where `what` is its note; False
    if it is pinned no more. Raises StoreErrors."""
    safe.check_file(layout.root, layout.pins)
    with safe.locked(layout.root, layout.pins):
        file = read_pin_file(layout.pins)
        record = find(file.pins, pin.system_hash, pin.key)
        if record is None or record.hash != pin.hash:
            return False
        record = learn(record, HeldCache(layout).stored(record) or {})
        now = time.time()
        proof = Proof(now, ok, by, torch, numbers_of(record), record.drifts)
        record = replace(record, proof=proof)
        file.put(record)
        file.note("verify" if ok else "refute", record, default_who(), now, what)
        file.save(MAX_PIN_BYTES)
        return True


def numbers_of(record: Record) -> str:
    """A digest of the times of a pinned tuning."""
    return hashlib.sha256(json.dumps(record.tokens, sort_keys=True).encode()).hexdigest()[:16]


def why_stale(record: Record, since: int) -> str:
    """Why what was proved may not hold any more; empty where nothing of that was seen. `record` has
    learned its numbers; `since` graphs with the op have appeared after the proof."""
    proof = record.proof
    if proof is None:
        return ""
    if record.drifts > proof.drifts:
        return "it drifted since"
    if numbers_of(record) != proof.numbers:
        return "it was tuned again since"
    graphs = counted(since, "graph was", "graphs were")
    return f"{graphs} compiled since" if since else ""
