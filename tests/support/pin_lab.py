"""A small hand-made cache to pin in."""

from __future__ import annotations

import contextlib
import json
import math
from pathlib import Path

from backend.disk.layout import Layout
from backend.errors import CacheUnreadable
from backend.model.problem import TuningKey
from backend.pins.file import read_pin_file
from backend.pins.holders import PinHolders
from backend.pins.numbers import learn
from backend.pins.store import PinStore
from backend.sharing.share import Machine

KEY = TuningKey("mm", "[('cpu', 'torch.float32', 4, 8, 8, 1, 0)]", "highest")

TIMES = {"mm-c1": 1.5, "Cpp-c2": 2.25, "Cpp-c3": math.inf}


def make_layout(root: Path, cache: object = None) -> Layout:
    layout = Layout(root)
    layout.autotune.mkdir(parents=True)
    entries = {KEY.inputs: {"highest": TIMES, "high": {"mm-c1": 3.0, "Cpp-c2": 1.0}}}
    write(layout, {"mm": entries} if cache is None else cache)
    return layout


def cache_file(layout: Layout) -> Path:
    return layout.autotune / "hash"


def write(layout: Layout, cache: object) -> None:
    text = json.dumps({"system": {"hash": "hash"}, "cache": cache}, indent=4)
    cache_file(layout).write_text(text)


def read(layout: Layout) -> dict[str, dict[str, dict[str, dict[str, float]]]]:
    cache: dict[str, dict[str, dict[str, dict[str, float]]]]
    cache = json.loads(cache_file(layout).read_bytes())["cache"]
    return cache


def times(layout: Layout, precision: str = "highest") -> dict[str, float]:
    return read(layout)["mm"][KEY.inputs][precision]


def states(store: PinStore) -> list[str]:
    return [status.state for status in store.status()]


def nothing_left_behind(layout: Layout) -> None:
    names = [path.name for path in layout.root.rglob("*") if path.is_file()]
    assert not [name for name in names if name.endswith((".tmp", ".displaced"))], names


GPU = Machine(
    arch="gfx942:sramecc+:xnack-",
    compute_units=304,
    device="AMD Instinct MI300X",
    torch="2.13.0+rocm7.1",
    triton="3.6.0",
    hip="7.1.25424",
    system_hash="cafe",
    host="gpu7",
)


def measured(
    store: PinStore, key: TuningKey, system_hash: str | None = None
) -> dict[str, float] | None:
    """The measured milliseconds of a pinned tuning by choice hash, never the raised numbers."""
    holders = PinHolders(store.layout)
    for record in read_pin_file(store.layout.pins).pins:
        same = (record.op, record.inputs) == (key.op, key.inputs)
        if same and system_hash in (None, record.system_hash):
            with contextlib.suppress(CacheUnreadable):
                record = learn(record, holders.of(record.op).numbers(record) or {})
            return record.timings.get(key.precision, {})
    return None
