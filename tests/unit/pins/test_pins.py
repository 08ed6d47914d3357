"""Pins on small hand-made cache files: what is changed, refused, repaired and taken back."""

from __future__ import annotations

import json
import math
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from backend.cache.autotune import raise_ms as high
from backend.disk.layout import Layout
from backend.errors import CacheUnreadable, NotWritable, PinRefused, StoreError, UnsafePath
from backend.model.problem import TuningKey
from backend.pins.graphs.index import GraphEntry
from backend.pins.plan import check_agreed
from backend.pins.store import PinStore
from tests.support.pin_lab import (
    KEY,
    TIMES,
    cache_file,
    make_layout,
    nothing_left_behind,
    read,
    states,
    times,
    write,
)

OTHER = TuningKey("mm", "[('cpu', 'torch.float32', 9, 8, 8, 1, 0)]", "highest")


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return make_layout(tmp_path / "inductor")


def test_pin_and_unpin_give_the_file_back(layout: Layout) -> None:
    before = cache_file(layout).read_bytes()
    cache_file(layout).chmod(0o640)
    store = PinStore(layout)
    plan = store.plan(None, KEY, "Cpp-c2")
    assert (plan.system_hash, plan.numbers, plan.precisions) == ("hash", 2, ("highest", "high"))
    assert plan.replaces is None and cache_file(layout).read_bytes() == before

    report = store.pin(None, KEY, "Cpp-c2", "cpp_0", note="faster\nin the model", who="ann@box")
    assert report.status is not None and report.status.state == "active"
    assert report.numbers == 2
    assert times(layout) == {"mm-c1": 1.5 * 2**40, "Cpp-c2": 2.25, "Cpp-c3": math.inf}
    assert times(layout, "high") == {"mm-c1": high(3.0), "Cpp-c2": 1.0}
    assert cache_file(layout).stat().st_mode & 0o777 == 0o640

    (pin,) = PinStore(layout).pins()
    assert (pin.key, pin.hash, pin.label, pin.who) == (KEY, "Cpp-c2", "cpp_0", "ann@box")
    assert pin.timings["highest"] == TIMES and pin.device == "cpu"
    assert store.measured(KEY) == TIMES
    assert store.measured(OTHER) is None

    assert store.unpin(KEY).numbers == 2
    assert cache_file(layout).read_bytes() == before
    assert cache_file(layout).stat().st_mode & 0o777 == 0o640
    assert store.pins() == () and store.measured(KEY) is None
    assert [entry.what for entry in store.history()] == ["pin", "unpin"]
    nothing_left_behind(layout)


def test_another_choice_pinned_over_a_pin_keeps_the_measured_times(layout: Layout) -> None:
    before = cache_file(layout).read_bytes()
    store = PinStore(layout)
    store.pin(None, KEY, "Cpp-c2")
    plan = store.plan(None, KEY, "mm-c1")
    assert plan.timings["highest"] == TIMES and plan.replaces is not None
    report = store.pin(None, KEY, "mm-c1")
    assert report.status is not None and report.status.state == "active"
    assert times(layout) == {"mm-c1": 1.5, "Cpp-c2": high(2.25), "Cpp-c3": math.inf}
    (pin,) = store.pins()
    assert pin.hash == "mm-c1" and pin.timings["highest"] == TIMES
    store.unpin(TuningKey(KEY.op, KEY.inputs, "high"))  # a pin holds in every precision
    assert cache_file(layout).read_bytes() == before
    assert [entry.what for entry in store.history()] == ["pin", "repin", "unpin"]


@pytest.mark.parametrize(
    ("key", "choice", "said"),
    [
        (KEY, "Cpp-c3", "failed"),
        (KEY, "Cpp-c9", "no choice"),
        (OTHER, "mm-c1", "ended before PyTorch wrote the times.*tune ID"),
        (TuningKey("mm", KEY.inputs, "medium"), "mm-c1", "wrote none; run the model again"),
    ],
)
def test_what_makes_no_sense_is_refused(
    layout: Layout, key: TuningKey, choice: str, said: str
) -> None:
    before = cache_file(layout).read_bytes()
    store = PinStore(layout)
    for call in (store.plan, store.pin):
        with pytest.raises(PinRefused, match=said) as caught:
            call(None, key, choice)
        assert "\n" not in str(caught.value)
    with pytest.raises(PinRefused, match="not pinned"):
        store.unpin(key)
    with pytest.raises(PinRefused, match="no cache file"):
        store.pin("../pins", KEY, "mm-c1")
    assert cache_file(layout).read_bytes() == before and store.pins() == ()


def test_a_pin_that_would_change_other_files_than_agreed_is_refused(layout: Layout) -> None:
    plan = PinStore(layout).plan(None, KEY, "Cpp-c2")
    check_agreed(plan, plan)
    graph = GraphEntry(layout.root / "fxgraph" / "a", "fxgraph/a", 0.0, 1)
    for now, why in (
        (replace(plan, path=layout.autotune / "moved"), r"its times now, .*/moved"),
        (replace(plan, numbers=3), "written meanwhile: 3 numbers would change"),
        (replace(plan, precisions=("high",)), "written meanwhile: 2 numbers would change"),
        (replace(plan, graphs=(graph,)), "meanwhile: 1 compiled graph would be moved aside"),
    ):
        with pytest.raises(PinRefused, match=why):
            check_agreed(plan, now)


def test_a_pin_refused_by_a_pin_that_holds(layout: Layout) -> None:
    """A failed choice cannot be pinned over a pin either, and the first pin stays."""
    store = PinStore(layout)
    store.pin(None, KEY, "mm-c1")
    with pytest.raises(PinRefused, match="failed"):
        store.pin(None, KEY, "Cpp-c3")
    assert states(store) == ["active"] and store.pins()[0].hash == "mm-c1"


def test_a_file_that_cannot_be_parsed_is_kept(layout: Layout) -> None:
    store = PinStore(layout)
    store.pin(None, KEY, "Cpp-c2")
    good = cache_file(layout).read_bytes()
    for bad in (good[:-20], b"", b"\xff" * 40, good + b"x"):
        cache_file(layout).write_bytes(bad)
        for call in (lambda: store.pin(None, KEY, "mm-c1"), lambda: store.unpin(KEY)):
            with pytest.raises(CacheUnreadable, match="move the file away"):
                call()
        (status,) = store.reconcile()
        assert status.state == "drifted" and str(cache_file(layout)) in status.detail
        assert cache_file(layout).read_bytes() == bad
    cache_file(layout).write_bytes(good)
    assert [status.state for status in store.reconcile()] == ["active"]

    layout.pins.write_text("{torn")
    for name in ("pins", "status", "reconcile", "history"):
        with pytest.raises(CacheUnreadable, match=r"pins\.json"):
            getattr(PinStore(layout), name)()
    with pytest.raises(CacheUnreadable):
        store.pin(None, KEY, "mm-c1")
    assert layout.pins.read_text() == "{torn"
    nothing_left_behind(layout)


def test_pins_of_a_later_version_are_left_alone_and_unknown_fields_kept(layout: Layout) -> None:
    store = PinStore(layout)
    store.pin(None, KEY, "Cpp-c2")
    document = json.loads(layout.pins.read_text())
    document["colour"] = "red"
    document["pins"][0]["mood"] = [1]
    layout.pins.write_text(json.dumps(document))
    store.pin(None, KEY, "mm-c1")
    document = json.loads(layout.pins.read_text())
    assert document["colour"] == "red" and document["pins"][0]["mood"] == [1]
    document["version"] = 2
    layout.pins.write_text(json.dumps(document))
    with pytest.raises(CacheUnreadable, match="update"):
        store.unpin(KEY)


def test_hostile_pins_are_refused(layout: Layout) -> None:
    store = PinStore(layout)
    store.pin(None, KEY, "Cpp-c2")
    good = json.loads(layout.pins.read_text())
    for name, value in (
        ("system_hash", "../../etc/passwd"),
        ("tokens", {"highest": {"mm-c1": '1}, "x": {'}}),
        ("tokens", [1]),
        ("op", None),
        ("when", "now"),
    ):
        bad = json.loads(json.dumps(good))
        bad["pins"][0][name] = value
        layout.pins.write_text(json.dumps(bad))
        with pytest.raises(CacheUnreadable):
            PinStore(layout).reconcile()


def test_a_retuned_pin_drifts_is_held_again_and_gives_the_new_times_back(layout: Layout) -> None:
    store = PinStore(layout)
    store.pin(None, KEY, "Cpp-c2")
    assert [s.state for s in store.reconcile()] == ["active"]
    cache = read(layout)
    cache["mm"][KEY.inputs]["highest"] = {"mm-c1": 7.0, "Cpp-c2": 8.0, "Cpp-c4": 9.0}
    cache["bmm"] = {"[]": {"highest": {"bmm": 1.0}}}
    write(layout, cache)
    assert states(store) == ["drifted"]
    assert store.measured(KEY) == {"mm-c1": 7.0, "Cpp-c2": 8.0, "Cpp-c4": 9.0, "Cpp-c3": math.inf}
    (status,) = store.reconcile()
    assert status.state == "active" and status.pin.drifts == 1 and status.detail
    assert times(layout) == {"mm-c1": high(7.0), "Cpp-c2": 8.0, "Cpp-c4": high(9.0)}
    assert [s.detail for s in PinStore(layout).reconcile()] == [""]
    store.unpin(KEY)
    assert times(layout) == {"mm-c1": 7.0, "Cpp-c2": 8.0, "Cpp-c4": 9.0}
    assert times(layout, "high") == {"mm-c1": 3.0, "Cpp-c2": 1.0}
    assert read(layout)["bmm"] == {"[]": {"highest": {"bmm": 1.0}}}
    assert [e.what for e in store.history()] == ["pin", "drift", "unpin"]


def test_unpin_keeps_what_others_measured_meanwhile(layout: Layout) -> None:
    store = PinStore(layout)
    store.pin(None, KEY, "Cpp-c2")
    cache = read(layout)
    cache["mm"][KEY.inputs]["highest"]["mm-c1"] = 5.0
    write(layout, cache)
    store.unpin(KEY)
    assert times(layout) == {"mm-c1": 5.0, "Cpp-c2": 2.25, "Cpp-c3": math.inf}
    assert times(layout, "high") == {"mm-c1": 3.0, "Cpp-c2": 1.0}


def test_a_number_that_was_raised_from_another_time_gives_that_time_back(layout: Layout) -> None:
    store = PinStore(layout)
    store.pin(None, KEY, "Cpp-c2")
    text = cache_file(layout).read_text()
    assert text.count(repr(high(1.5))) == 1
    cache_file(layout).write_text(text.replace(repr(high(1.5)), repr(high(3.5))))
    store.unpin(KEY)
    assert times(layout)["mm-c1"] == 3.5


def test_a_writer_with_an_old_copy_cannot_bring_a_released_pin_back(layout: Layout) -> None:
    store = PinStore(layout)
    store.pin(None, KEY, "Cpp-c2")
    held = read(layout)
    store.unpin(KEY)
    held["bmm"] = {"[]": {"highest": {"bmm": 1.0}}}
    write(layout, held)  # as PyTorch does, from what it had read while the pin held
    assert store.reconcile() == []
    assert times(layout) == TIMES and "bmm" in read(layout)
    assert [e.what for e in store.history()] == ["pin", "unpin", "restore"]


def test_a_pin_over_numbers_that_an_old_copy_brought_back_keeps_the_measured_times(
    layout: Layout,
) -> None:
    before = times(layout)
    store = PinStore(layout)
    store.pin(None, KEY, "mm-c1")
    pinned = cache_file(layout).read_bytes()
    store.unpin(KEY)
    cache_file(layout).write_bytes(pinned)
    PinStore(layout).pin(None, KEY, "mm-c1")
    store.unpin(KEY)
    assert times(layout) == before


def test_orphaned_and_shadowed(layout: Layout) -> None:
    store = PinStore(layout)
    store.pin(None, KEY, "Cpp-c2")
    cache = read(layout)
    cache["mm"][KEY.inputs]["medium"] = {"mm-c1": 1.0}
    write(layout, cache)
    (status,) = store.reconcile()
    assert status.state == "shadowed" and "medium" in status.detail
    assert times(layout, "medium") == {"mm-c1": 1.0}

    cache["mm"][KEY.inputs] = {"highest": {"mm-c1": 7.0, "Cpp-c2": math.inf}}
    write(layout, cache)  # tuned again, and the choice failed
    assert [s.state for s in store.reconcile()] == ["orphaned"]
    assert times(layout) == {"mm-c1": 7.0, "Cpp-c2": math.inf}

    for gone in ({"mm": {KEY.inputs: {"highest": {"mm-c1": 2.0}}}}, {"mm": {}}, {}):
        write(layout, gone)
        assert [s.state for s in store.reconcile()] == ["orphaned"]
        assert read(layout) == gone
    cache_file(layout).unlink()
    (status,) = store.reconcile()
    assert status.state == "orphaned" and "file is gone" in status.detail
    assert not cache_file(layout).exists()
    store.unpin(KEY)
    assert store.pins() == ()


def test_two_systems_and_unpin_all(layout: Layout) -> None:
    shutil.copy(cache_file(layout), layout.autotune / "second")
    before = cache_file(layout).read_bytes()
    os.utime(layout.autotune / "second", (4e9, 4e9))
    store = PinStore(layout)
    assert store.plan(None, KEY, "mm-c1").system_hash == "second"
    store.pin("hash", KEY, "Cpp-c2")
    store.pin("second", KEY, "mm-c1")
    assert [pin.system_hash for pin in store.pins()] == ["hash", "second"]
    assert cache_file(layout).read_bytes() != before
    assert len(store.unpin_all()) == 2
    assert cache_file(layout).read_bytes() == before
    assert (layout.autotune / "second").read_bytes() == before


def test_every_error_is_one_root() -> None:
    assert all(issubclass(e, StoreError) for e in (PinRefused, NotWritable, UnsafePath))
