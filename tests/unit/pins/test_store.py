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
from backend.disk import exchange, safe
from backend.disk.layout import Layout
from backend.errors import CacheUnreadable, NotWritable, PinRefused, StoreError, UnsafePath
from backend.model.problem import TuningKey
from backend.pins.file import read_pin_file
from backend.pins.graphs.index import GraphEntry
from backend.pins.plan import check_agreed
from backend.pins.store import PinStore
from tests.support.pin_lab import (
    KEY,
    TIMES,
    cache_file,
    make_layout,
    measured,
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
    assert measured(store, KEY) == TIMES
    assert measured(store, OTHER) is None

    assert store.unpin(KEY).numbers == 2
    assert cache_file(layout).read_bytes() == before
    assert cache_file(layout).stat().st_mode & 0o777 == 0o640
    assert store.pins() == () and measured(store, KEY) is None
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


def test_nothing_is_read_again_until_something_changes(layout: Layout) -> None:
    store = PinStore(layout)
    assert store.reconcile() == []
    store.pin(None, KEY, "Cpp-c2")
    first = store.reconcile()
    assert store.reconcile() is first
    graph = layout.fxgraph / "ab" / "key" / "content"
    graph.parent.mkdir(parents=True)
    for change in (
        lambda: write(layout, read(layout)),
        lambda: graph.write_bytes(b"no graph"),
        lambda: graph.write_bytes(b"another"),
        lambda: shutil.copy(cache_file(layout), exchange.leftover_path(cache_file(layout))),
        lambda: safe.temporary_path(layout.pins).write_bytes(b""),
        lambda: PinStore(layout).annotate(store.pins()[0], "a note"),
    ):
        before = store.reconcile()
        assert store.reconcile() is before
        change()
        after = store.reconcile()
        assert after is not before and [status.state for status in after] == ["active"]
    nothing_left_behind(layout)


def test_a_note_is_changed_alone(layout: Layout) -> None:
    store = PinStore(layout)
    pin = store.pin(None, KEY, "Cpp-c2", note="first").pin
    held = cache_file(layout).read_bytes()
    for _ in range(2):
        assert store.annotate(pin, "second", "bob@box")
        assert [(pin.note, pin.hash) for pin in store.pins()] == [("second", "Cpp-c2")]
    assert cache_file(layout).read_bytes() == held
    entry = store.history()[-1]
    assert (entry.what, entry.note, entry.who) == ("note", "second", "bob@box")
    assert len(store.history()) == 2, "the same note again is none"
    for other in (
        replace(pin, op="bmm"),
        replace(pin, system_hash="other"),
        replace(pin, hash="mm-c1"),
    ):
        assert not store.annotate(other, "third")
    assert len(store.history()) == 2


def test_measured_times_are_those_of_the_named_file(layout: Layout) -> None:
    second = layout.autotune / "second"
    second.write_bytes(cache_file(layout).read_bytes().replace(b"1.5", b"1.25"))
    store = PinStore(layout)
    store.pin("hash", KEY, "Cpp-c2")
    store.pin("second", KEY, "Cpp-c2")
    assert measured(store, KEY) == measured(store, KEY, "hash") == TIMES
    assert measured(store, KEY, "second") == {**TIMES, "mm-c1": 1.25}
    assert measured(store, KEY, "third") is None
    assert measured(store, replace(KEY, precision="none")) == {}
    second.write_bytes(b"{torn")
    assert measured(store, KEY, "second") == {**TIMES, "mm-c1": 1.25}, "as the pin has them"
    assert store.unpin(KEY, "hash").pin.system_hash == "hash"
    assert [pin.system_hash for pin in store.pins()] == ["second"]


def test_an_interrupted_release_is_finished_and_named_until_then(layout: Layout) -> None:
    store = PinStore(layout)
    store.pin(None, KEY, "Cpp-c2")
    store.unpin(KEY)
    assert store.unfinished() == ()
    document = json.loads(layout.pins.read_text())
    document["released"][0]["pending"] = True
    layout.pins.write_text(json.dumps(document))
    assert [pin.hash for pin in store.unfinished()] == ["Cpp-c2"]
    assert PinStore(layout).reconcile() == [] and store.unfinished() == ()
    assert [entry.what for entry in store.history()] == ["pin", "unpin"]
    layout.pins.write_text(json.dumps(document))
    assert PinStore(layout).unpin_all() == [] and store.unfinished() == ()
    assert [entry.what for entry in store.history()] == ["pin", "unpin"]
    assert PinStore(layout).unpin_all() == []


def test_a_pin_that_cannot_be_made_leaves_the_one_before(layout: Layout) -> None:
    """The cache file goes bad between the look and the write: its lock cannot be had."""
    store = PinStore(layout)
    store.pin(None, KEY, "Cpp-c2", note="first")
    before, history = cache_file(layout).read_bytes(), store.history()
    lock = safe.lock_of(layout.root, cache_file(layout))
    lock.unlink()
    lock.mkdir()
    for act in (lambda: store.pin(None, KEY, "mm-c1"), lambda: store.unpin(KEY)):
        with pytest.raises(UnsafePath):
            act()
        assert store.history() == history and cache_file(layout).read_bytes() == before
        (pin,) = store.pins()
        assert (pin.hash, pin.note) == ("Cpp-c2", "first")
        assert read_pin_file(layout.pins).released == []
    lock.rmdir()
    store.unpin(KEY)
    lock.unlink()
    lock.mkdir()
    before, history = cache_file(layout).read_bytes(), store.history()
    with pytest.raises(UnsafePath):
        store.pin(None, KEY, "mm-c1")
    assert store.pins() == () and store.history() == history
    assert cache_file(layout).read_bytes() == before


def test_whoever_was_asked_about_another_pin_changes_nothing(layout: Layout) -> None:
    store = PinStore(layout)
    plan = store.plan(None, KEY, "mm-c1")
    report = store.pin(None, KEY, "Cpp-c2", label="cpp_0", who="bob@box")
    assert (report.path, report.pin.hash) == (cache_file(layout), "Cpp-c2")
    with pytest.raises(PinRefused, match="cpp_0 was pinned meanwhile by bob@box; nothing was pinn"):
        store.pin(None, KEY, "mm-c1", agreed=plan)
    agreed = store.plan(None, KEY, "mm-c1")
    store.annotate(store.pins()[0], "a note is no other decision")
    held = store.pins()[0]
    store.pin(None, KEY, "mm-c1", agreed=agreed)
    with pytest.raises(PinRefused, match="mm-c1 was pinned meanwhile; nothing was unpinned"):
        store.unpin(KEY, held=held)
    agreed = store.plan(None, KEY, "Cpp-c2")
    released = store.unpin(KEY, held=store.pins()[0])
    assert (released.path, released.pin.hash) == (cache_file(layout), "mm-c1")
    with pytest.raises(PinRefused, match="it was unpinned meanwhile; nothing was pinned"):
        store.pin(None, KEY, "Cpp-c2", agreed=agreed)
    agreed = store.plan(None, KEY, "Cpp-c2")
    cache = read(layout)
    cache["mm"][KEY.inputs]["highest"]["mm-c1"] = 9.0
    write(layout, cache)
    with pytest.raises(PinRefused, match="tuned again meanwhile"):
        store.pin(None, KEY, "Cpp-c2", agreed=agreed)
    assert store.pins() == ()


def test_a_proof_is_kept_for_the_choice_that_it_is_of(layout: Layout) -> None:
    store = PinStore(layout)
    pin = store.pin(None, KEY, "Cpp-c2").pin
    assert store.keep_proof(pin, ok=True, by="verify", torch="2.13.0", what="seen")
    (status,) = store.status()
    assert status.proof is not None and not status.stale
    assert (status.proof.ok, status.proof.by, status.proof.torch) == (True, "verify", "2.13.0")
    assert store.keep_proof(pin, ok=False, by="program")
    assert [entry.what for entry in store.history()] == ["pin", "verify", "refute"]
    assert store.history()[1].note == "seen"
    store.pin(None, KEY, "mm-c1")
    assert not store.keep_proof(pin, ok=True, by="verify")
    store.unpin(KEY)
    assert not store.keep_proof(pin, ok=True, by="verify")


def test_pins_of_this_version_are_not_repaired_before_a_program_starts(layout: Layout) -> None:
    store = PinStore(layout)
    store.migrate()
    store.pin(None, KEY, "Cpp-c2")
    write(layout, {"mm": {KEY.inputs: {"highest": TIMES}}})
    store.migrate()
    assert times(layout) == TIMES and states(store) == ["drifted"]
