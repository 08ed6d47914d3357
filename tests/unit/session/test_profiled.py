"""Kernels that a profiler saw, told to be tunings: by a session's log, by the graph's text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from queue import Queue
from threading import Thread

import pytest

from backend.disk.layout import Layout
from backend.model.events import GraphCalled, GraphCompiled
from backend.model.graph import Graph, GraphTimes, TuningUse
from backend.model.problem import TuningKey
from rocm_tui.actions.sources import load_model
from rocm_tui.ingest.records import Gone, GraphSeen, GraphTold, KernelTime, Record
from rocm_tui.session.graph_rows import TextReader, described_graphs
from rocm_tui.session.graphs import tuning_ms
from rocm_tui.session.model import Model
from tests.support.graph_log import inputs, tune, use, writer_of
from tests.support.profile_lab import FORWARD, training

CUDA = [
    f"[('cuda', 'torch.float16', {m}, 32, 32, 1, 0), ('cuda', 'torch.float16', 32, 64, 64, 1, 0)]"
    for m in (8, 16, 24)
]
FIRST, SECOND, THIRD = (TuningKey("mm", key, "highest") for key in CUDA)


def seen_with(*kernels: KernelTime, by: str = "device", hashes: str = "mm tri mm") -> GraphSeen:
    keys = (FIRST, SECOND, THIRD)
    uses = tuple(
        TuningUse(
            key.op, key.inputs, key.precision, 1, f"{name}-1" if name != "tri" else "triton-1"
        )
        for key, name in zip(keys, hashes.split(), strict=False)
    )
    times = GraphTimes(10, 10, 1.0, "device" if by == "device" else "host")
    return GraphSeen("/x/t.json", 1, Graph("aaaaaa1", key=FORWARD, tunings=uses), None, times,
                     kernels=kernels)  # fmt: skip


def test_by_the_order_of_the_text() -> None:
    kernels = (
        KernelTime("nvjet", 1, 0.3, "mm", 1),
        KernelTime("nvjet", 1, 0.2, "mm", 2),
        KernelTime("reduce", 1, 0.1, "mm", 2),
        KernelTime("triton_tem_fused_mm_0", 1, 0.05),
        KernelTime("triton_poi_fused_1", 1, 0.04),
    )
    told = GraphTold(
        FORWARD, (use(8),), (("triton_tem_fused_mm_0", SECOND),), (("mm", FIRST), ("mm", THIRD))
    )
    times = tuning_ms(seen_with(*kernels), told)
    assert times == {FIRST: 0.3, THIRD: pytest.approx(0.3), SECOND: 0.05}
    # one call more than the text has: which is which is not known
    more = (*kernels, KernelTime("nvjet", 1, 0.3, "mm", 3))
    assert tuning_ms(seen_with(*more), told) == {SECOND: 0.05}
    # all calls are one tuning's: it does not matter
    same = replace(told, externs=(("bias_mm", FIRST),))
    assert tuning_ms(seen_with(*more), same)[FIRST] == pytest.approx(0.9)


def test_without_a_text_only_what_can_be_one() -> None:
    kernels = (
        KernelTime("nvjet", 1, 0.3, "mm", 1),
        KernelTime("triton_tem_fused_mm_0", 1, 0.05),
    )
    assert tuning_ms(seen_with(*kernels), None) == {SECOND: 0.05}
    assert tuning_ms(seen_with(*kernels, hashes="mm tri"), None) == {FIRST: 0.3, SECOND: 0.05}


def test_the_hosts_spans_say_nothing_of_a_gpu() -> None:
    kernel = KernelTime("aten::mm", 1, 0.3, "mm", 1)
    assert tuning_ms(seen_with(kernel, by="host", hashes="mm tri"), None) == {}


def test_the_text_of_a_graph_is_no_problem_whenever_it_is_read() -> None:
    told = GraphTold(FORWARD, (), (("triton_tem_fused_mm_0", SECOND),))
    seen = seen_with(KernelTime("triton_tem_fused_mm_0", 1, 0.05))
    for records in ([seen, told], [told, seen]):
        model = Model()
        model.apply(records)
        assert model.problems == [] and len(model.graphs.programs()) == 1


def model_with(tmp_path: Path) -> Model:
    """A log that knows the graph of the hand-made trace, whose calls took 1 ms there."""
    writer = writer_of(tmp_path)
    tune(writer, 1, 8, 2.0, 1.0)
    graph = Graph("aaaaaa1", "forward", FORWARD, "Net", "cuda", 9, (use(8, 1, "triton_mm-1"),))
    writer.write(GraphCompiled(1, 105.0, graph))
    writer.write(GraphCalled(1, 107.0, 10, 5, 1.0, "device"))
    writer.close()
    return load_model(Layout(tmp_path))


def test_a_trace_and_a_log_of_one_graph(tmp_path: Path) -> None:
    """The trace gets the names of the log, the log's program the parts that the trace saw."""
    model = model_with(tmp_path)
    (row,) = model.rows()
    assert row.share is not None and row.share.share is None  # of this hash no time is known
    trace = tmp_path / "trace.json"
    trace.write_bytes(training())
    model = load_model(Layout(tmp_path), also=[str(trace)])
    (row,) = model.rows()
    # 10 of the 60 us of a call are the template's
    assert row.share is not None and row.share.basis == "seen"
    program = next(p for p in model.graphs.programs() if p.name == "trace.json")
    forward = next(seen for seen in program.graphs if seen.graph.key == FORWARD)
    assert (forward.graph.id, forward.graph.title) == ("aaaaaa1", "Net")
    assert program.total == pytest.approx(4 * 0.06 + 4 * 0.2)
    assert row.share.program == "trace.json"  # its calls are of 2023, the log's of 1970
    assert row.share.share == pytest.approx(4 * 0.01 / program.total)
    model.apply([Gone(str(trace))])
    (row,) = model.rows()
    assert row.share is not None and row.share.program == "llama.py pid 1"
    assert row.share.share is None and len(model.graphs.programs()) == 1
    assert inputs(8) == row.tuning.inputs_key


def test_the_part_holds_in_another_program(tmp_path: Path) -> None:
    model = model_with(tmp_path)
    (program,) = model.graphs.programs()
    (own,) = program.graphs
    kernels = (KernelTime("triton_tem_fused_mm_2", 1, 0.5),)
    other = GraphSeen("/old.json", 1, replace(own.graph, id="bbbbbb2", tunings=()), None,
                      GraphTimes(3, 3, 2.0, "device"), 1.0, kernels)  # fmt: skip
    model.apply([other])
    (row,) = model.rows()
    assert row.share is not None and row.share.program == "llama.py pid 1"
    assert (row.share.share, row.share.basis) == (pytest.approx(0.25), "seen")


def test_the_text_of_each_profiled_graph_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(_: Thread) -> None:
        raise RuntimeError("can't start new thread")

    model_with(tmp_path)
    layout, trace = Layout(tmp_path), tmp_path / "trace.json"
    trace.write_bytes(training())
    for key in (FORWARD, "f" + "z" * 51):
        folder = layout.fxgraph / "ab" / key
        folder.mkdir(parents=True)
        (folder / "entry").write_text("def call(args): ...")
    model = load_model(layout, also=[str(trace)])
    assert [told.key for told in described_graphs(model, layout)] == [FORWARD]
    assert described_graphs(Model(), layout) == []
    read: Queue[Sequence[Record]] = Queue()
    reader = TextReader(layout, read.put)
    with monkeypatch.context() as patch:
        patch.setattr(Thread, "start", no_thread)
        reader.look(model)  # as if a limit of the system were reached
    reader.look(model)
    (text,) = read.get(timeout=60)
    assert isinstance(text, GraphTold) and text.key == FORWARD
