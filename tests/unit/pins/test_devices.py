"""Pins on a box with several devices: one choice has a hash for each of them."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from backend.cache.autotune import is_raised
from backend.disk.layout import Layout
from backend.model.problem import TuningKey
from backend.pins.file import read_pin_file
from backend.pins.holders import PinHolders, pinned_choices
from backend.pins.state import DeviceStatus, device_ranges
from backend.pins.store import PinStore
from tests.support.device_modules import compiled_on, write_choice
from tests.support.pin_lab import cache_file, make_layout, read, write

KEY = TuningKey("mm", "[('cuda', 'torch.float16', 4, 8, 8, 1, 0)]", "highest")
ATEN = "mm-" + "c" * 52
CONFIGS = ({"BLOCK_M": 64}, {"BLOCK_M": 128})


def box(root: Path, *devices: int) -> tuple[PinStore, dict[int, list[str]]]:
    """A store whose cache has the same two Triton choices on each of `devices`, and ATen's one; the
    hashes of the Triton choices."""
    hashes = {index: [write_choice(root, index, **each) for each in CONFIGS] for index in devices}
    timings = {ATEN: 0.004}
    for index, (fast, slow) in hashes.items():
        timings |= {fast: 0.001 + index / 1e5, slow: 0.002 + index / 1e5}
    layout = make_layout(root, {"mm": {KEY.inputs: {"highest": timings}}})
    compiled_on(root, *devices)
    return PinStore(layout), hashes


def wins(layout: Layout, offered: list[str]) -> str:
    """What stock PyTorch takes among what a program is offered."""
    times = read(layout)["mm"][KEY.inputs]["highest"]
    return min(offered, key=times.__getitem__)


def test_a_pin_wins_on_every_device_whichever_hash_it_was_made_by(tmp_path: Path) -> None:
    for at, by in enumerate((0, 2)):
        store, hashes = box(tmp_path / str(at), 0, 1, 2)
        before = cache_file(store.layout).read_bytes()
        report = store.pin(None, KEY, hashes[by][1])
        assert report.status is not None and report.status.state == "active"
        assert [device.holds for device in report.status.devices] == [True] * 3
        for fast, slow in hashes.values():
            assert wins(store.layout, [fast, slow, ATEN]) == slow
        store.unpin(KEY)
        assert cache_file(store.layout).read_bytes() == before


def test_a_device_that_tunes_later_is_held_too(tmp_path: Path) -> None:
    store, hashes = box(tmp_path, 0)
    store.pin(None, KEY, hashes[0][1])
    fast, slow = (write_choice(tmp_path, 9, **each) for each in CONFIGS)
    cache = read(store.layout)
    cache["mm"][KEY.inputs]["highest"] |= {fast: 0.0011, slow: 0.0021, ATEN: 0.0041}
    write(store.layout, cache)
    assert wins(store.layout, [fast, slow, ATEN]) == fast
    (status,) = PinStore(store.layout).reconcile()
    assert status.state == "active"
    assert status.devices == (DeviceStatus(0, True), DeviceStatus(9, True))
    assert wins(store.layout, [fast, slow, ATEN]) == slow
    assert wins(store.layout, [*hashes[0], ATEN]) == hashes[0][1]


def test_a_device_where_the_choice_failed_keeps_its_own_order(tmp_path: Path) -> None:
    store, hashes = box(tmp_path, 0, 3)
    cache = read(store.layout)
    cache["mm"][KEY.inputs]["highest"][hashes[3][1]] = math.inf
    write(store.layout, cache)
    status = store.pin(None, KEY, hashes[0][1]).status
    assert status is not None and status.state == "unproven"
    assert "on 3 it was tuned without a time" in status.detail
    assert status.devices == (DeviceStatus(0, True), DeviceStatus(3, False))
    assert wins(store.layout, [*hashes[0], ATEN]) == hashes[0][1]
    assert wins(store.layout, [*hashes[3], ATEN]) == hashes[3][0]


def test_a_choice_of_aten_is_pinned_on_all_devices(tmp_path: Path) -> None:
    store, hashes = box(tmp_path, 0, 1)
    status = store.pin(None, KEY, ATEN).status
    assert status is not None and [device.holds for device in status.devices] == [True, True]
    for offered in hashes.values():
        assert wins(store.layout, [*offered, ATEN]) == ATEN


def test_a_pin_of_an_older_version_gets_the_other_devices(tmp_path: Path) -> None:
    store, hashes = box(tmp_path, 0, 1)
    store.pin(None, KEY, hashes[0][1])
    _forget_variants(store.layout)
    before = json.loads(store.layout.pins.read_text())["pins"][0]
    assert "variants" not in before or before["variants"] == {}
    store = PinStore(store.layout)
    (status,) = store.reconcile()
    assert status.state == "active"
    (record,) = read_pin_file(store.layout.pins).pins
    assert record.variants["1"] == hashes[1][1]
    holder = PinHolders(store.layout).of(KEY.op)
    assert holder.learned(record, holder.numbers(record) or {}) is record
    for fast, slow in hashes.values():
        assert wins(store.layout, [fast, slow, ATEN]) == slow


def test_modules_that_are_gone_leave_what_the_pin_knows(tmp_path: Path) -> None:
    store, hashes = box(tmp_path, 0, 1)
    store.pin(None, KEY, hashes[0][1])
    for path in tmp_path.rglob("c*.py"):
        path.unlink()
    (status,) = PinStore(store.layout).reconcile()
    assert status.state == "active"
    assert wins(store.layout, [*hashes[1], ATEN]) == hashes[1][1]


def test_new_times_are_folded_under_a_pin_on_each_device(tmp_path: Path) -> None:
    store, hashes = box(tmp_path, 0, 1)
    store.pin(None, KEY, hashes[1][1])
    pins = pinned_choices(cache_file(store.layout))
    assert {hashes[0][1], hashes[1][1]} <= pins[KEY.op, KEY.inputs]
    assert not {hashes[0][0], hashes[1][0], ATEN} & pins[KEY.op, KEY.inputs]


def test_the_plan_names_the_devices(tmp_path: Path) -> None:
    store, hashes = box(tmp_path, 0, 1)
    plan = store.plan(None, KEY, hashes[0][0])
    assert plan.devices == (0, 1)
    assert plan.numbers == 3
    store.pin(None, KEY, hashes[0][0])
    times = read(store.layout)["mm"][KEY.inputs]["highest"]
    assert sum(map(is_raised, times.values())) == 3


@pytest.mark.parametrize("variants", [{"x": "mm-c1"}, {"-1": "mm-c1"}, {"0": "mm\x1b[31m"}])
def test_hostile_variants_make_no_pin(tmp_path: Path, variants: dict[str, str]) -> None:
    store, hashes = box(tmp_path, 0)
    store.pin(None, KEY, hashes[0][1])
    document = json.loads(store.layout.pins.read_text())
    document["pins"][0]["variants"] = variants
    store.layout.pins.write_text(json.dumps(document))
    with pytest.raises(Exception, match="does not hold pins as it should"):
        read_pin_file(store.layout.pins)


@pytest.mark.parametrize(
    ("indices", "text"),
    [([], ""), ([0], "0"), ([3, 0, 1, 2], "0-3"), ([0, 2, 3, 5], "0, 2-3, 5"), ([7, 6], "6-7")],
)
def test_ranges_of_devices(indices: list[int], text: str) -> None:
    assert device_ranges(indices) == text


def _forget_variants(layout: Layout) -> None:
    """As a version that knew one device wrote it: rivals on the other were raised alike."""
    file = read_pin_file(layout.pins)
    (record,) = file.pins
    file.pins = [replace(record, variants={})]
    file.save()
    cache = read(layout)
    times = cache["mm"][KEY.inputs]["highest"]
    for name, ms in times.items():
        if name != record.hash and not is_raised(ms):
            times[name] = ms * 2**40
    write(layout, cache)
