"""Pinned Triton kernels in a trial of a person's own program.

Pins of Inductor's own kernels hold on each torch where our hooks are, and nowhere else on each: so
both sides of a trial run under them. A pin of `@triton.autotune` is a file of Triton's cache: the
side with the pins has a copy of it, the other has none and tunes the kernel itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from backend.disk import safe
from backend.disk.layout import Layout
from backend.disk.sessions import read_log
from backend.errors import CacheUnreadable
from backend.model.events import ChoiceSelected, TuningStarted
from backend.model.inductor_kernel import is_kernel
from backend.model.kernel import TRITON
from backend.pins.file import PinFile, Record
from backend.pins.kernels import path_of


def pinned_kernels(pins: PinFile) -> tuple[Record, ...]:
    return tuple(record for record in pins.pins if is_kernel(record.op))


def environment(kernels: Sequence[Record], private: Layout) -> dict[str, str]:
    """What a side needs beside its cache dir."""
    if not any(record.op == TRITON for record in kernels):
        return {}
    folder = str(private.root / "autotuned")
    return {"TRITON_CACHE_DIR": folder, "TRITON_CACHE_AUTOTUNING": "1"}


def copy_times(kernels: Sequence[Record], private: Layout) -> None:
    """Let the side with the pins have what Triton reads of them. One whose file is gone is left
    out: that it was not launched is told. Raises UnsafePath and NotWritable."""
    for record in kernels:
        if record.op != TRITON:
            continue
        try:
            path = path_of(record)
            content = safe.read_bytes(path)
        except CacheUnreadable:
            continue
        copy = private.root / "autotuned" / path.parent.name / path.name
        safe.make_folder(private.root, copy.parent)
        safe.write_atomic(copy, content)


def not_launched(kernels: Sequence[Record], private: Layout) -> list[Record]:
    """Of which no process of the side with the pins took the pinned config."""
    taken: set[tuple[str, str, str]] = set()
    for path in sorted(private.sessions.glob("*.jsonl")):
        events, _ = read_log(path)
        keys = {e.n: (e.op, e.inputs) for e in events if isinstance(e, TuningStarted)}
        taken |= {
            (*keys[event.n], event.hash)
            for event in events
            if isinstance(event, ChoiceSelected) and event.by != "timing" and event.n in keys
        }
    return [record for record in kernels if (record.op, record.inputs, record.hash) not in taken]
