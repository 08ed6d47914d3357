"""Pins where the wrapper is C++: `cpp_wrapper`, and packages of AOTInductor. Stock PyTorch."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.cache.autotune import read_caches
from backend.disk.layout import Layout
from backend.model.origin import kind_of
from backend.model.problem import TuningKey
from backend.pins.graphs.index import GraphIndex, packages_below
from backend.pins.graphs.match import WantedChoice
from backend.pins.store import PinStore
from tests.support.tuned_ops import Offered, compile_ops

pytestmark = pytest.mark.torch


def timings(layout: Layout, row: Offered) -> dict[str, float]:
    (file,) = read_caches(layout)[0]
    (found,) = [dict(times) for key, times in file.entries.items() if key.inputs == row.inputs]
    return found


def called(layout: Layout, row: Offered) -> set[str]:
    """The choices that the graphs where PyTorch finds them call, as their text tells."""
    index = GraphIndex(layout)
    return {
        choice
        for choice in row.choices
        for verdict in index.verdicts(
            index.live(), WantedChoice(row.op, row.inputs, choice, row.choices)
        )
        if verdict == "same"
    }


def test_a_warm_graph_with_a_wrapper_in_cpp_is_found_and_moved(tmp_path: Path) -> None:
    layout, flags = Layout(tmp_path / "inductor"), ["--cpp-wrapper"]
    (row,) = compile_ops([*flags, "bmm"], layout.root)
    (entry,) = [e for e in GraphIndex(layout).live() if e.relative.startswith("fxgraph/")]
    source = entry.path.read_bytes()
    assert b"inductor_entry_impl(" in source
    times = timings(layout, row)
    winner, second = sorted(times, key=times.__getitem__)
    assert called(layout, row) == {winner}
    assert (b"aoti_torch_cpu_bmm_out(" in source) == (not kind_of(winner))

    store = PinStore(layout)
    key = TuningKey(row.op, row.inputs, "highest")
    report = store.pin(None, key, second)
    assert report.moved == 1 and report.status is not None and report.status.state == "active"
    compile_ops([*flags, "bmm"], layout.root)
    (entry,) = [e for e in GraphIndex(layout).live() if e.relative.startswith("fxgraph/")]
    assert (b"aoti_torch_cpu_bmm_out(" in entry.path.read_bytes()) == (not kind_of(second))
    assert called(layout, row) == {second}
    assert compile_ops([*flags, "bmm"], layout.root) == []  # warm: nothing is asked for
    assert [s.state for s in store.reconcile()] == ["active"]
    store.unpin(key)
    assert called(layout, row) == {winner}


def test_a_package_keeps_its_kernel_and_the_pin_says_so(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "inductor")
    (row,) = compile_ops(["package"], layout.root)
    (package,) = packages_below(layout.root)
    times = timings(layout, row)
    winner, second = sorted(times, key=times.__getitem__)
    key = TuningKey(row.op, row.inputs, "highest")
    status = PinStore(layout).pin(None, key, second).status
    assert status is not None and status.state == "unproven"
    assert status.detail == (
        f"1 compiled graph of AOTInductor keeps another kernel ({package.relative[:59]}…); "
        "compile the package again"
    )
    status = PinStore(layout).pin(None, key, winner).status
    assert status is not None and status.state == "active"
