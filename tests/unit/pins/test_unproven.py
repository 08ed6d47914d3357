"""What a pin says where compiled graphs contradict it, may do so, or cannot be told."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from pathlib import Path

import pytest

from backend.disk.layout import Layout
from backend.model.problem import TuningKey
from backend.pins.graphs import index as graphs
from backend.pins.state import PinStatus
from backend.pins.store import PinStore
from tests.support.graph_samples import FOLDER, Sample, samples

FLEX_A, FLEX_B = (next(s for s in samples() if s.name == f"flex.{side}") for side in "ab")
KEY = TuningKey(FLEX_A.op, FLEX_A.inputs, "highest")
HOUR = 3600.0


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return with_cache(tmp_path / "inductor", FLEX_A.op, FLEX_A.inputs, rivals())


def rivals() -> tuple[str, ...]:
    """All choices; the fastest is the one that FLEX_A calls."""
    return tuple(
        sorted({*FLEX_A.rivals, *FLEX_B.rivals}, key=lambda name: (name != FLEX_A.called, name))
    )


def with_cache(root: Path, op: str, inputs: str, choices: tuple[str, ...]) -> Layout:
    layout = Layout(root)
    layout.autotune.mkdir(parents=True)
    times = {name: 1.0 + at for at, name in enumerate(choices)}
    document = {"system": {}, "cache": {op: {inputs: {"highest": times}}}}
    (layout.autotune / "hash").write_text(json.dumps(document))
    return layout


def add_modules(layout: Layout) -> None:
    """The sources of choices, where Inductor keeps them."""
    for key, text in json.loads((FOLDER / "modules.json").read_text()).items():
        path = layout.root / key[1:3] / f"{key}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


def add_graph(layout: Layout, place: str, name: str, data: bytes, age: float = 0.0) -> Path:
    """An entry `age` seconds old; what has a negative age is newer than all pins."""
    path = layout.fxgraph / "ab" / place / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    when = time.time() - age
    os.utime(path, (when, when))
    return path


def pin(layout: Layout, choice: str | None, key: TuningKey = KEY) -> PinStatus:
    assert choice is not None
    status = PinStore(layout).pin(None, key, choice).status
    assert status is not None
    return status


def now(layout: Layout) -> PinStatus:
    (status,) = PinStore(layout).status()
    return status


def test_a_graph_of_flex_attention_is_moved_and_one_with_the_choice_stays(layout: Layout) -> None:
    add_modules(layout)
    stale = add_graph(layout, "f1", "c1", FLEX_A.data, HOUR)
    right = add_graph(layout, "f2", "c2", FLEX_B.data, HOUR)
    assert pin(layout, FLEX_B.called).state == "active"
    assert right.exists() and not stale.exists()
    PinStore(layout).unpin(KEY)
    assert stale.read_bytes() == FLEX_A.data and right.exists()


def test_a_graph_copied_here_after_the_pin_is_found_by_its_text(layout: Layout) -> None:
    add_modules(layout)
    assert pin(layout, FLEX_B.called).state == "active"
    late = add_graph(layout, "f1", "c1", FLEX_A.data, -1)
    assert now(layout).state == "drifted"
    (status,) = PinStore(layout).reconcile()
    assert status.state == "active" and not late.exists()
    assert status.pin.drifts == 1 and "another choice had appeared" in status.detail


def test_the_age_of_a_graph_that_does_not_tell_its_kernel_proves_nothing(layout: Layout) -> None:
    old = add_graph(layout, "f1", "c1", FLEX_A.data, HOUR)
    assert pin(layout, FLEX_B.called).state == "active" and not old.exists()
    new = add_graph(layout, "f2", "c2", FLEX_A.data, -1)
    status = now(layout)
    assert status.state == "unproven"
    assert status.detail == (
        "1 compiled graph may call another kernel (fxgraph/ab/f2/c2); "
        "clear it or run `rocm-tui verify`"
    )
    add_graph(layout, "f3", "c3", FLEX_B.data, -1)
    assert "2 compiled graphs may call another kernel (" in now(layout).detail
    assert " and 1 more); clear them or run" in now(layout).detail
    assert PinStore(layout).reconcile()[0].state == "unproven" and new.exists()
    add_modules(layout)  # once its source is there, the text tells
    assert now(layout).state == "drifted"
    assert PinStore(layout).reconcile()[0].state == "active" and not new.exists()


def test_a_program_that_does_not_offer_the_choice_keeps_its_graph_in_the_end(
    layout: Layout,
) -> None:
    """Each time it is compiled anew, its graph has another name in the same folder."""
    add_modules(layout)
    first = add_graph(layout, "f1", "c1", FLEX_A.data, HOUR)
    assert pin(layout, FLEX_B.called).state == "active"
    second = add_graph(layout, "f1", "c2", FLEX_A.data, -1)
    assert PinStore(layout).reconcile()[0].state == "active" and not second.exists()
    third = add_graph(layout, "f1", "c3", FLEX_A.data, -1)
    (status,) = PinStore(layout).reconcile()
    assert status.state == "unproven" and third.exists()
    assert "made again under the pin still calls another kernel" in status.detail
    assert "may not offer this choice" in status.detail
    # The very graphs that were moved aside are no news: a container brings them at each start.
    same = add_graph(layout, "f1", "c1", FLEX_A.data, -1)
    PinStore(layout).reconcile()
    assert not same.exists() and third.exists()
    PinStore(layout).unpin(KEY)
    assert first.exists() and second.exists() and third.exists()


def test_two_systems_do_not_move_the_graphs_of_each_other(layout: Layout) -> None:
    """Their cache files, as before and after an update of Triton, have the same tuning."""
    add_modules(layout)
    layout.cache_file("newer").write_bytes(layout.cache_file("hash").read_bytes())
    assert FLEX_A.called is not None and FLEX_B.called is not None
    older = add_graph(layout, "f0", "c0", FLEX_A.data, HOUR)
    store = PinStore(layout)
    store.pin("hash", KEY, FLEX_A.called)
    store.pin("newer", KEY, FLEX_B.called)
    assert not older.exists(), "it is older than the second pin, which has to take effect"
    mine = add_graph(layout, "f1", "c1", FLEX_A.data, -1)
    other = add_graph(layout, "f2", "c2", FLEX_B.data, -1)
    statuses = store.reconcile()
    assert [(s.state, s.pin.drifts) for s in statuses] == [("unproven", 0)] * 2
    assert statuses[0].detail == (
        "1 compiled graph calls the choice pinned for another Triton, ROCm or GPU "
        "(fxgraph/ab/f2/c2); `rocm-tui verify -- CMD` shows what your program calls"
    )
    assert mine.exists() and other.exists()
    store.unpin(KEY, "newer")
    assert older.exists() and mine.exists() and not other.exists(), "nobody wants it any longer"
    store.pin("newer", KEY, FLEX_B.called)
    other = add_graph(layout, "f3", "c3", FLEX_B.data, -1)
    store.unpin(KEY, "hash")
    assert other.exists(), "it was not made for the released pin"


@pytest.mark.parametrize(
    ("op", "inputs"),
    [
        ("my_op_autotuned", FLEX_A.inputs),  # known to nobody, but all its tensors are there
        ("flex_attention", "something that is no list of inputs"),
        ("flex_flash_attention", FLEX_A.inputs),  # known, but in no graph that was ever read
    ],
)
def test_what_the_reader_is_not_proven_for_is_never_active(
    tmp_path: Path, op: str, inputs: str
) -> None:
    layout = with_cache(tmp_path / "other", op, inputs, ("triton_a-c1", "triton_b-c2"))
    key = TuningKey(op, inputs, "highest")
    assert pin(layout, "triton_b-c2", key).state == "active"  # there is no graph at all
    for age in (HOUR, -1):
        graph = add_graph(layout, "f1", "c1", FLEX_A.data, age)
        assert now(layout).state == "unproven"
        assert PinStore(layout).reconcile()[0].state == "unproven" and graph.exists()
    graph.unlink()
    add_graph(layout, "f2", "c2", sample("mm.a").data)
    assert now(layout).state == "active"


def sample(name: str) -> Sample:
    return next(s for s in samples() if s.name == name)


def test_an_entry_that_is_read_in_part_or_in_no_known_form(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = add_graph(layout, "f1", "c1", b"flex_attention on 2, 8, 512, 64", HOUR)
    assert pin(layout, FLEX_B.called).state == "unproven"
    graph.write_bytes(b"nothing of that")
    assert now(layout).state == "active"
    monkeypatch.setattr(graphs, "MAX_BYTES", 10_000)
    add_graph(layout, "f1", "c1", b"x" * 10_001)
    status = now(layout)
    assert status.state == "unproven"
    assert "1 compiled graph may hold it and cannot be read (fxgraph/ab/f1/c1)" in status.detail


def test_the_rest_of_a_graph_that_is_read_in_part_may_call_another_choice(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_modules(layout)
    graph = add_graph(layout, "f1", "c1", FLEX_B.data, HOUR)
    assert pin(layout, FLEX_B.called).state == "active"
    monkeypatch.setattr(graphs, "MAX_BYTES", len(FLEX_B.data) - 1)
    graph.write_bytes(FLEX_B.data + b" ")
    status = now(layout)
    assert status.state == "unproven" and "cannot be read (fxgraph/ab/f1/c1)" in status.detail
    graph.write_bytes(FLEX_A.data + b" " * len(FLEX_B.data))
    assert now(layout).state == "drifted", "what it does call is known"


def test_what_a_pin_that_waits_and_a_released_one_say(layout: Layout) -> None:
    add_graph(layout, "f1", "c1", FLEX_A.data, -1)
    store = PinStore(layout)
    store.pin("hash", KEY, "triton_flex_attention-c9", wait=True)
    assert now(layout).state == "orphaned"
    store.unpin(KEY)
    assert store.status() == []


def test_a_path_with_braces_is_told_as_it_is(layout: Layout) -> None:
    add_graph(layout, "{it}", "{0}", FLEX_A.data, -1)
    pinned = pin(layout, FLEX_B.called)
    assert pinned.state == "unproven" and "(fxgraph/ab/{it}/{0});" in pinned.detail


def test_a_graph_for_other_sizes_that_may_serve_these(tmp_path: Path) -> None:
    static = sample("mm_dyn.b")  # it was compiled for any size, and tuned for these
    assert static.called is not None
    key = TuningKey(static.op, static.inputs, "highest")
    layout = with_cache(tmp_path / "dynamic", static.op, static.inputs, static.rivals)
    extern = next(name for name in static.rivals if name.startswith("mm-"))
    graph = add_graph(layout, "f1", "c1", static.data, HOUR)
    assert pin(layout, extern, key).state == "active" and not graph.exists()
    other = dataclasses.replace(key, inputs=key.inputs.replace("512, 1024,", "8, 1024,"))
    layout = with_cache(tmp_path / "served", static.op, other.inputs, static.rivals)
    graph = add_graph(layout, "f1", "c1", static.data, HOUR)
    assert pin(layout, extern, other).state == "unproven" and graph.exists()
