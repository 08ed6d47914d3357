"""A pinned tuning measured anew, on files alone: what the pin learns, and that it never drifts."""

from __future__ import annotations

import json
import time
from math import inf
from pathlib import Path

from backend.cache.autotune import raise_ms as high
from backend.cache.journal import Tuned
from backend.cache.lookup import TunedCache
from backend.disk.layout import Layout
from backend.model.problem import TuningKey
from backend.pins.holders import pinned_choices
from backend.pins.store import PinStore
from tests.support.pin_lab import measured

SYSTEM = "4" * 64
KEY = TuningKey("mm", "[('cpu', 'torch.float32', 4, 4, 4, 1, 0)]", "highest")


def made(root: Path) -> tuple[Layout, TunedCache]:
    path = root / "cache" / SYSTEM
    path.parent.mkdir(parents=True)
    times = {"fast-a": 0.1, "slow-b": 0.2, "bad-c": inf}
    entry = {KEY.op: {KEY.inputs: {KEY.precision: times}}}
    path.write_text(json.dumps({"system": {}, "cache": entry}, indent=4))
    said: list[str] = []
    return Layout(root), TunedCache(path, {}, said.append, pinned_choices)


def times(layout: Layout) -> dict[str, float]:
    document = json.loads((layout.autotune / SYSTEM).read_text())
    found: dict[str, float] = document["cache"][KEY.op][KEY.inputs][KEY.precision]
    return found


def retune(layout: Layout, cache: TunedCache, timings: dict[str, float]) -> object:
    tuned = Tuned(KEY.op, KEY.inputs, KEY.precision, timings, time.time())
    PinStore(layout).learn_times(SYSTEM, tuned)
    cache.insert([tuned])
    cache.fold()
    # What a reconciling screen would find right now:
    assert [status.state for status in PinStore(layout).status()] in ([], ["active"])
    return PinStore(layout).hold_again(SYSTEM, tuned)


def test_the_pin_holds_and_unpinning_gives_the_new_times(tmp_path: Path) -> None:
    layout, cache = made(tmp_path)
    pins = PinStore(layout)
    pins.pin(SYSTEM, KEY, "slow-b")
    assert retune(layout, cache, {"fast-a": 0.11, "slow-b": 0.21, "bad-c": 0.3}) == "active"
    assert times(layout) == {"fast-a": high(0.11), "slow-b": 0.21, "bad-c": high(0.3)}
    assert measured(pins, KEY) == {"fast-a": 0.11, "slow-b": 0.21, "bad-c": 0.3}
    assert [pin.drifts for pin in pins.pins()] == [0]
    pins.unpin(KEY)
    assert times(layout) == {"fast-a": 0.11, "slow-b": 0.21, "bad-c": 0.3}


def test_choices_that_are_new_are_held_back_too(tmp_path: Path) -> None:
    layout, cache = made(tmp_path)
    pins = PinStore(layout)
    pins.pin(SYSTEM, KEY, "slow-b")
    assert retune(layout, cache, {"new-d": 0.05}) == "active"
    assert times(layout) == {
        "fast-a": high(0.1),
        "slow-b": 0.2,
        "bad-c": inf,
        "new-d": high(0.05),
    }
    assert [pin.drifts for pin in pins.pins()] == [0]
    assert [entry.what for entry in pins.history()] == ["pin", "retune"]
    pins.unpin(KEY)
    assert times(layout) == {"fast-a": 0.1, "slow-b": 0.2, "bad-c": inf, "new-d": 0.05}


def test_a_pinned_choice_that_fails_now_is_orphaned(tmp_path: Path) -> None:
    layout, cache = made(tmp_path)
    pins = PinStore(layout)
    pins.pin(SYSTEM, KEY, "slow-b")
    assert retune_failed(layout, cache) == "orphaned"
    assert times(layout) == {"fast-a": 0.11, "slow-b": inf, "bad-c": inf}


def retune_failed(layout: Layout, cache: TunedCache) -> object:
    timings = {"fast-a": 0.11, "slow-b": inf, "bad-c": inf}
    tuned = Tuned(KEY.op, KEY.inputs, KEY.precision, timings, time.time())
    PinStore(layout).learn_times(SYSTEM, tuned)
    cache.insert([tuned])
    cache.fold()
    return PinStore(layout).hold_again(SYSTEM, tuned)


def test_without_a_pin_nothing_is_touched(tmp_path: Path) -> None:
    layout, cache = made(tmp_path)
    assert retune(layout, cache, {"fast-a": 0.3}) is None
    assert times(layout)["fast-a"] == 0.3 and not layout.pins.exists()
    other = TuningKey("bmm", KEY.inputs, KEY.precision)
    PinStore(layout).pin(SYSTEM, KEY, "slow-b")
    tuned = Tuned(other.op, other.inputs, other.precision, {"x": 1.0}, 7.0)
    before = layout.pins.read_bytes()
    PinStore(layout).learn_times(SYSTEM, tuned)
    assert layout.pins.read_bytes() == before
    assert PinStore(layout).hold_again(SYSTEM, tuned) is None
