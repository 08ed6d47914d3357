"""How pins are held by the numbers of a cache file: which file, and what is raised and restored."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest

from backend.cache.autotune import raise_ms as high
from backend.cache.journal import Journal, Tuned, line_of
from backend.disk import exchange
from backend.disk.layout import Layout
from backend.errors import CacheUnreadable, PinRefused
from backend.model.problem import TuningKey
from backend.pins.file import read_pin_file
from backend.pins.holders import pinned_choices
from backend.pins.store import PinStore
from tests.support.pin_lab import (
    KEY,
    TIMES,
    cache_file,
    make_layout,
    measured,
    read,
    states,
    times,
    write,
)

OTHER = TuningKey("mm", "[('cpu', 'torch.float32', 9, 8, 8, 1, 0)]", "highest")


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return make_layout(tmp_path / "inductor")


@pytest.mark.parametrize(
    ("key", "choice", "said"),
    [
        (KEY, "Cpp-c3", "failed"),
        (KEY, "Cpp-c9", "is not a choice"),
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


def test_a_retuned_pin_drifts_is_held_again_and_gives_the_new_times_back(layout: Layout) -> None:
    store = PinStore(layout)
    store.pin(None, KEY, "Cpp-c2")
    assert [s.state for s in store.reconcile()] == ["active"]
    cache = read(layout)
    cache["mm"][KEY.inputs]["highest"] = {"mm-c1": 7.0, "Cpp-c2": 8.0, "Cpp-c4": 9.0}
    cache["bmm"] = {"[]": {"highest": {"bmm": 1.0}}}
    write(layout, cache)
    assert states(store) == ["drifted"]
    assert measured(store, KEY) == {"mm-c1": 7.0, "Cpp-c2": 8.0, "Cpp-c4": 9.0, "Cpp-c3": math.inf}
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


def second_of(layout: Layout) -> Path:
    path = layout.autotune / "second"
    path.write_bytes(cache_file(layout).read_bytes())
    return path


def test_a_pin_changes_the_time_of_the_cache_file(layout: Layout) -> None:
    """What looks at the time of a file sees that it is another one."""
    os.utime(cache_file(layout), (1000, 1000))
    PinStore(layout).pin(None, KEY, "Cpp-c2")
    assert cache_file(layout).stat().st_mtime > 1000


def test_the_file_that_was_written_last_is_taken_among_those_that_have_the_choice(
    layout: Layout,
) -> None:
    second, store = second_of(layout), PinStore(layout)
    for path, other in ((second, cache_file(layout)), (cache_file(layout), second)):
        os.utime(path, (4e9, 4e9))
        os.utime(other, (1e9, 1e9))
        assert store.plan(None, KEY, "mm-c1").system_hash == path.name
    second.write_bytes(second.read_bytes().replace(b"mm-c1", b"mm-c7"))
    assert store.plan(None, KEY, "mm-c7").system_hash == "second"
    second.write_bytes(b"{torn")
    assert store.plan(None, KEY, "mm-c1").system_hash == "hash"
    for choice in ("mm-c9", "mm-c7"):
        with pytest.raises(CacheUnreadable, match="second"):
            store.plan(None, KEY, choice)


def test_a_pin_that_waits_needs_no_file(layout: Layout) -> None:
    store = PinStore(layout)
    plan = store.plan("later", KEY, "mm-c1", wait=True)
    assert plan.waits and plan.path == layout.autotune / "later" and plan.numbers == 0
    assert store.plan("hash", KEY, "mm-c9", wait=True).waits
    assert not store.plan("hash", KEY, "mm-c1", wait=True).waits
    with pytest.raises(PinRefused, match="there is no cache file"):
        store.plan("later", KEY, "mm-c1")
    with pytest.raises(PinRefused, match="there is no cache file"):
        store.plan("../later", KEY, "mm-c1", wait=True)


def test_times_of_our_processes_are_folded_before_a_pin(layout: Layout) -> None:
    """`run` adds them to a large file after a while, and after a kill the next process does."""
    file = cache_file(layout)
    tuned = Tuned(OTHER.op, OTHER.inputs, OTHER.precision, {"mm-c1": 1.0, "Cpp-c2": 0.5}, 7.0)
    Journal(layout.root, file).append(line_of(tuned))
    store = PinStore(layout)
    plan = store.plan(None, OTHER, "mm-c1")
    assert plan.numbers == 1 and not plan.waits
    report = store.pin(None, OTHER, "mm-c1", agreed=plan)
    assert report.status and report.status.state == "active"
    held = read(layout)[OTHER.op][OTHER.inputs][OTHER.precision]
    assert held == {"mm-c1": 1.0, "Cpp-c2": high(0.5)}
    store.unpin(OTHER)
    assert read(layout)[OTHER.op][OTHER.inputs][OTHER.precision] == tuned.timings
    with pytest.raises(PinRefused, match="is not a choice"):
        store.plan(None, OTHER, "mm-c9")


def test_a_pin_that_waits_says_so_and_is_applied_without_a_drift(layout: Layout) -> None:
    file = cache_file(layout)
    tuned = file.read_bytes()
    file.unlink()
    store = PinStore(layout)
    status = store.pin("hash", KEY, "mm-c1", wait=True).status
    assert status and (status.state, status.detail) == (
        "orphaned",
        "not tuned here yet; it applies once tuned",
    )
    file.write_bytes(tuned)
    (status,) = store.status()
    assert status.state == "drifted" and "older version" not in status.detail
    (status,) = store.reconcile()
    assert status.state == "active" and status.pin.drifts == 0
    assert [entry.what for entry in store.history()] == ["pin"]
    file.write_bytes(tuned)
    (status,) = store.reconcile()
    assert status.pin.drifts == 1
    store.unpin(KEY)
    assert file.read_bytes() == tuned


def test_a_plan_that_waits_is_not_that_of_a_choice_that_is_tuned(layout: Layout) -> None:
    file = cache_file(layout)
    tuned = file.read_bytes()
    file.unlink()
    store = PinStore(layout)
    waiting = store.plan("hash", KEY, "mm-c1", wait=True)
    file.write_bytes(tuned)
    with pytest.raises(PinRefused, match="its choice was tuned meanwhile; nothing was pinned"):
        store.pin("hash", KEY, "mm-c1", wait=True, agreed=waiting)
    ready = store.plan("hash", KEY, "mm-c1", wait=True)
    write(layout, {})
    with pytest.raises(PinRefused, match="its choice is no longer tuned; nothing was pinned"):
        store.pin("hash", KEY, "mm-c1", wait=True, agreed=ready)


def test_new_times_of_the_pinned_choice_are_recorded(layout: Layout) -> None:
    store = PinStore(layout)
    store.pin(None, KEY, "Cpp-c2")
    cache = read(layout)
    cache["mm"][KEY.inputs]["highest"]["Cpp-c2"] = 2.0
    write(layout, cache)
    (status,) = store.reconcile()
    assert status.state == "active" and status.pin.drifts == 0
    cache_file(layout).unlink()
    assert store.pins()[0].timings["highest"]["Cpp-c2"] == 2.0


def test_numbers_that_no_pin_raised_make_no_pin(layout: Layout) -> None:
    cache = read(layout)
    cache["mm"][KEY.inputs]["high"]["odd-9"] = 1e12
    write(layout, cache)
    with pytest.raises(PinRefused, match="0 of odd-9 is not the milliseconds"):
        PinStore(layout).pin(None, KEY, "mm-c1")
    assert PinStore(layout).pins() == ()


def test_numbers_of_former_pins_are_lowered_in_each_file(layout: Layout) -> None:
    second, store = second_of(layout), PinStore(layout)
    store.pin("hash", KEY, "Cpp-c2")
    store.pin("second", KEY, "Cpp-c2")
    raised = second.read_bytes()
    store.unpin(KEY, "second")
    file = read_pin_file(layout.pins)
    assert [record.system_hash for record in file.released] == ["second"]
    file.released = []  # after a day
    file.save()
    second.write_bytes(raised)
    (status,) = PinStore(layout).reconcile()
    assert status.state == "active" and times(layout)["mm-c1"] == high(1.5)
    assert json.loads(second.read_bytes())["cache"]["mm"][KEY.inputs]["highest"] == TIMES


def test_no_cache_file_behind_a_link_is_written_by_a_repair(tmp_path: Path, layout: Layout) -> None:
    store = PinStore(layout)
    store.pin(None, KEY, "Cpp-c2")
    elsewhere = tmp_path / "elsewhere"
    write(layout, {"mm": {KEY.inputs: {"highest": TIMES}}})
    cache_file(layout).rename(elsewhere)
    cache_file(layout).symlink_to(elsewhere)
    before = elsewhere.read_bytes()
    (status,) = store.reconcile()
    assert status.state == "drifted" and "it is a symlink" in status.detail
    assert cache_file(layout).is_symlink() and elsewhere.read_bytes() == before


def test_what_a_killed_pin_had_displaced_is_merged_and_the_newer_number_counts(
    layout: Layout,
) -> None:
    store = PinStore(layout)
    store.pin(None, KEY, "Cpp-c2")
    cache = read(layout)
    cache["mm"][KEY.inputs]["highest"]["mm-c1"] = 9.0
    cache["bmm"] = {"[x]": {"highest": {"bmm-c1": 1.0}}}
    leftover = exchange.leftover_path(cache_file(layout))
    leftover.write_text(json.dumps({"cache": cache}))
    (status,) = PinStore(layout).reconcile()
    assert status.state == "active" and not leftover.exists()
    assert times(layout)["mm-c1"] == high(1.5) and read(layout)["bmm"] == cache["bmm"]


def test_which_choices_win_in_a_cache_file(layout: Layout) -> None:
    cache = read(layout)
    cache["bmm"] = {"[x]": {"highest": {"rocm_gemm-a-1": 1.0, "bmm-c1": 2.0}}}
    write(layout, cache)
    second_of(layout)
    store = PinStore(layout)
    store.pin("hash", KEY, "Cpp-c2")
    store.pin("hash", TuningKey("bmm", "[x]", "highest"), "rocm_gemm-a-1")
    store.pin("second", KEY, "mm-c1")
    assert pinned_choices(cache_file(layout)) == {
        ("mm", KEY.inputs): {"Cpp-c2"}, ("bmm", "[x]"): frozenset(),
    }  # fmt: skip
    assert pinned_choices(layout.autotune / "third") == {}
