"""The state of a pin, by its numbers, the compiled graphs and what programs were seen to do."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backend.cache.autotune import CacheText, Numbers
from backend.cache.autotune import raise_ms as high
from backend.disk.layout import Layout
from backend.model.inductor_kernel import TRITON
from backend.model.tuning import Proof
from backend.pins.file import PinRecord
from backend.pins.graphs.index import GraphEntry
from backend.pins.graphs.match import WantedChoice
from backend.pins.state import (
    GraphDoubt,
    GraphSweeper,
    GraphVerdicts,
    numbers_of,
    state_of,
    state_of_kernel,
    why_stale,
)
from tests.support.graph_lab import GRAPH, KEY, form
from tests.support.graph_lab import TRITON as TRITON_CODE
from tests.unit.pins import test_frozen_weights as frozen

PIN = PinRecord("mm", "[x]", "highest", "mm-c1", "the choice", "hash", {}, raised=True)
ENTRY = GraphEntry(Path("/c/fxgraph/a"), "fxgraph/a", 0.0, 1)
DOUBT = GraphDoubt(("fxgraph/a",), "may call another kernel", "clear {it}")
TIMED = {"tokens": {"highest": {"mm-c1": "2.0"}}}
HELD = {"mm-c1": 2.0, "b-2": high(1.0)}
OURS = "rocm_gemm-ab-1"


def stored(precisions: dict[str, dict[str, float]]) -> Numbers:
    data = json.dumps({"cache": {"mm": {"[x]": precisions}}}).encode()
    return CacheText(Path("hash"), data).find("mm", "[x]")


@pytest.mark.parametrize(
    ("numbers", "graphs", "fields", "state", "why"),
    [
        (None, {}, TIMED, "orphaned", "file is gone"),
        ({}, {}, TIMED, "orphaned", "no longer in the cache"),
        (None, {}, {}, "orphaned", "not tuned here yet"),
        ({}, {}, {}, "orphaned", "not tuned here yet"),
        ({"highest": {"b-2": 1.0}}, {}, {}, "orphaned", "the choice is no longer among"),
        ({"highest": {"mm-c1": math.inf, "b-2": 1.0}}, {}, {}, "orphaned", "no longer among"),
        ({"highest": {"mm-c1": 2.0, "b-2": 1.0}}, {}, {}, "drifted", "1 number was written over"),
        ({"highest": {"mm-c1": 2.0, "b-2": 1.0, "d-4": 3.0}}, {}, {}, "drifted", "2 numbers were"),
        ({"highest": {"mm-c1": 2.0, "b-2": 1.0}}, {}, {"raised": False}, "drifted", "older"),
        ({"highest": HELD}, {}, {"raised": False}, "active", ""),
        ({"highest": HELD}, {"stale": (ENTRY,)}, {}, "drifted", "1 compiled graph made with"),
        ({"highest": HELD, "high": {"b-2": 1.0}}, {}, {}, "shadowed", "precision high, without"),
        ({"highest": HELD}, {"doubts": (DOUBT,)}, {}, "unproven", "may call another kernel"),
        ({"highest": HELD}, {"since": 1}, {}, "active", ""),
        ({"highest": HELD}, {}, {"op": TRITON}, "unproven", "no program was seen"),
        # The same kernel of ours, timed again as other headers or compilers made it.
        (
            {"highest": {OURS: 2.0, "rocm_gemm-ab-2": 1.0}},
            {},
            {"hash": OURS},
            "orphaned",
            "pin it again",
        ),
        ({"highest": {"rocm_gemm-ab-2": 1.0, OURS: 2.0}}, {}, {"hash": OURS}, "active", ""),
        ({"highest": {OURS: 2.0, "rocm_gemm-cd-1": 1.0}}, {}, {"hash": OURS}, "active", ""),
        ({"highest": {"mm-a-1": 2.0, "mm-a-2": high(1.0)}}, {}, {"hash": "mm-a-1"}, "active", ""),
    ],
)
def test_the_state_of_a_pin(
    numbers: dict[str, dict[str, float]] | None,
    graphs: dict[str, Any],
    fields: dict[str, Any],
    state: str,
    why: str,
) -> None:
    found = None if numbers is None else stored(numbers) if numbers else {}
    status = state_of(replace(PIN, **fields), found, GraphVerdicts(**graphs))
    assert (status.state, status.pin.hash) == (state, fields.get("hash", PIN.hash))
    assert why in status.detail and bool(status.detail) == bool(why)
    assert status.detail.isprintable()


def proof(record: PinRecord, ok: bool = True) -> Proof:
    return Proof(1e9, ok, "program", "2.13.0", numbers_of(record), record.drifts)


@pytest.mark.parametrize(
    ("files", "differing", "graphs", "fields", "state", "why"),
    [
        (2, 1, {"stale": (ENTRY,)}, {}, "drifted", "1 file was written over ours"),
        (2, 2, {}, {}, "drifted", "2 files were"),
        (2, 0, {"stale": (ENTRY,)}, {}, "drifted", "1 compiled graph made before it was pinned"),
        (0, 0, {}, {}, "unproven", "stock PyTorch has no file"),
        (2, 0, {}, {}, "unproven", "no program was seen"),
        (2, 0, {}, {"drifts": 2}, "unproven", "tuned over it (2 times)"),
        (2, 0, {}, {"drifts": 2, "op": TRITON}, "unproven", "no program was seen"),
        (2, 0, {}, {"proof": proof(PIN)}, "active", ""),
        (2, 0, {"since": 1}, {"proof": proof(PIN)}, "active", ""),
        (
            2,
            0,
            {},
            {"proof": proof(PIN, False)},
            "unproven",
            "launched another config on 2001",
        ),
        (2, 0, {}, {"proof": proof(PIN), "drifts": 1}, "unproven", "it drifted since; `rocm-tui v"),
    ],
)
def test_the_state_of_a_kernels_pin(
    files: int, differing: int, graphs: dict[str, Any], fields: dict[str, Any], state: str, why: str
) -> None:
    record = replace(PIN, op="pointwise")
    status = state_of_kernel(replace(record, **fields), files, differing, GraphVerdicts(**graphs))
    assert (status.state, status.proof) == (state, fields.get("proof"))
    assert why in status.detail and bool(status.detail) == bool(why)
    assert bool(status.stale) == ("proof" in fields and bool(graphs or "drifts" in fields))


def test_why_what_was_seen_may_be_outdated() -> None:
    seen = replace(PIN, tokens={"highest": {"mm-c1": "2.0"}}, drifts=3)
    assert why_stale(seen, 2) == "", "nothing was seen"
    seen = replace(seen, proof=proof(seen))
    assert why_stale(seen, 0) == ""
    assert why_stale(seen, 1) == "1 graph was compiled since"
    assert why_stale(seen, 2) == "2 graphs were compiled since"
    assert why_stale(replace(seen, drifts=4), 1) == "it drifted since"
    retuned = replace(seen, tokens={"highest": {"mm-c1": "2.5"}})
    assert why_stale(retuned, 1) == "it was tuned again since"
    # By the numbers that the file has now, whether or not the pin has learned them.
    assert state_of(seen, stored({"highest": {"mm-c1": 2.5}}), GraphVerdicts()).stale == (
        "it was tuned again since"
    )


TIMED = {"highest": {"mm-c1": "2.0", "triton_mm-c2": "1.0", "d-4": "Infinity", "e-5": "NaN"}}


@pytest.mark.parametrize(
    ("fields", "pinned", "released"),
    [
        ({}, ["mm-c1"], ["triton_mm-c2"]),
        ({"hash": "d-4"}, [], ["triton_mm-c2"]),  # it failed here, so it replaces no other
        ({"tokens": {}}, [], []),
        ({"tokens": {"high": {"mm-c1": "2.0"}}}, ["mm-c1"], []),
        ({"tokens": {"highest": {"d-4": "Infinity"}}}, [], []),
        ({"op": TRITON}, [], []),
        ({"op": "table:tunableop:gemm"}, [], []),
        ({"op": "pointwise"}, ["mm-c1"], ["mm-c1"]),
    ],
)
def test_which_choice_graphs_should_call(
    tmp_path: Path, fields: dict[str, Any], pinned: list[str], released: list[str]
) -> None:
    sweeper = GraphSweeper(Layout(tmp_path))
    record = replace(PIN, tokens=TIMED, config={"BLOCK_M": "64"})
    record = replace(record, **fields)
    for each, hashes in ((record, pinned), (replace(record, released=7.0), released)):
        rulings = sweeper.rulings(each)
        assert [wanted.hash for wanted in rulings] == hashes
        for wanted in rulings:
            assert (wanted.op, wanted.inputs) == (record.op, record.inputs)
    if not fields:
        rivals = ("mm-c1", "triton_mm-c2")
        expected = WantedChoice("mm", "[x]", "mm-c1", rivals, {"BLOCK_M": "64"})
        assert sweeper.wanted(record) == expected
        (winner,) = sweeper.rulings(replace(record, released=7.0))
        assert not winner.config, "that of the pinned choice"


def put(layout: Layout, relative: str, text: str) -> GraphEntry:
    path = layout.root / relative
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    (entry,) = [e for e in GraphSweeper(layout).live() if e.relative == relative]
    return entry


def pin_of(*choices: str, **fields: Any) -> PinRecord:
    """A pin of the first of these choices, which all have a time."""
    tokens = {"highest": dict.fromkeys(choices, "1.0")}
    fields = {"inputs": KEY, "hash": choices[0], "tokens": tokens, **fields}
    return replace(PIN, **fields)


def test_what_a_compiled_graph_says_of_a_pin(tmp_path: Path) -> None:
    """It calls a Triton template."""
    layout = Layout(tmp_path)
    entry = put(layout, "fxgraph/ab/key/content", form(TRITON_CODE + GRAPH))
    other = replace(PIN, op="bmm", inputs=KEY, tokens={"highest": {"mm-c1": "1.0"}})
    sweeper = GraphSweeper(layout)
    after, before = entry.mtime + 60, entry.mtime - 60

    def judged(record: PinRecord) -> GraphVerdicts:
        return sweeper.judged(record, [entry])

    assert judged(pin_of("mm-c1", "triton_mm-c2")).stale == (entry,)
    assert judged(other) == GraphVerdicts()
    rightly = pin_of("triton_mm-c2", "mm-c1")
    assert judged(rightly) == GraphVerdicts(), "nothing was proved before"
    for when, since in ((before, 1), (after, 0)):
        seen = replace(proof(PIN), when=when)
        assert judged(replace(rightly, proof=seen)).since == since
        assert judged(replace(other, proof=seen)).since == 0

    unknown = pin_of("triton_mm-c2", "triton_mm-c3")
    assert judged(replace(unknown, applied=after)).stale == (entry,), "older than the pin"
    verdicts = judged(replace(unknown, applied=before))
    assert not verdicts.stale
    assert [(doubt.paths, doubt.why) for doubt in verdicts.doubts] == [
        ((entry.relative,), "may call another kernel")
    ]
    # After a release the measured winner counts, and only for graphs made under the pin.
    released = pin_of("mm-c1", "triton_mm-c2", released=after)
    released.tokens["highest"]["mm-c1"] = "0.5"
    assert judged(replace(released, made=before)) == GraphVerdicts((entry,))
    assert judged(replace(released, made=after)) == GraphVerdicts()


def test_graphs_that_appeared_after_the_pin_are_late(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    entry = put(layout, "fxgraph/ab/key/content", form(TRITON_CODE + GRAPH))
    record = pin_of("mm-c1", "triton_mm-c2")
    for when, late in ((entry.appeared - 60, 1), (entry.appeared + 60, 0)):
        assert GraphSweeper(layout).late(replace(record, when=when)) == late


def test_a_package_that_keeps_another_kernel_is_in_doubt(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    path = tmp_path / ("c" * 52) / "m.wrapper.cpp"
    path.parent.mkdir()
    path.write_text(frozen.PACKAGE)
    for choices, why in (
        ((frozen.ATEN, frozen.CPP), ["of AOTInductor {keeps} another kernel"]),
        ((frozen.CPP, frozen.ATEN), []),
    ):
        record = pin_of(*choices, op="addmm", inputs=frozen.KEY)
        verdicts = GraphSweeper(layout).judged(record, [])
        assert [doubt.why for doubt in verdicts.doubts] == why
        assert not verdicts.stale
