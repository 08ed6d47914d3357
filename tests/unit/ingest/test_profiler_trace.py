"""Traces of torch.profiler: what a GPU's say of compiled graphs, however the bytes come, and
whatever stands in them."""

from __future__ import annotations

import gzip
import json
import math
import random
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from backend.model.session import Fault
from rocm_tui.ingest.follow.sources import read_sources, with_tunings
from rocm_tui.ingest.formats import profiler_trace as profiled
from rocm_tui.ingest.formats import profiler_trace as stream_of_events
from rocm_tui.ingest.formats.profiler_trace import FORMAT, Profile, ProfilerTrace
from rocm_tui.ingest.formats.registry import sniff
from rocm_tui.ingest.records import GraphSeen, KernelTime, Record
from tests.support.profile_lab import BACKWARD, FORWARD, Trace, call_name, event, training


def read(data: bytes, piece: int = 1 << 20) -> list[Record]:
    reader = ProfilerTrace("/x/trace.json")
    records: list[Record] = []
    for at in range(0, len(data), piece):
        records += reader.feed(data[at : at + piece])
    return records + reader.close()


def graphs(data: bytes, piece: int = 1 << 20) -> dict[str, GraphSeen]:
    records = read(data, piece)
    assert not [record for record in records if isinstance(record, Fault)], records
    last = {r.graph.key: r for r in records if isinstance(r, GraphSeen)}
    return {key or "": seen for key, seen in last.items()}


def test_a_training_on_a_gpu() -> None:
    seen = graphs(training())
    assert list(seen) == [FORWARD, BACKWARD]
    forward, backward = seen[FORWARD], seen[BACKWARD]
    assert (forward.graph.kind, backward.graph.kind) == ("forward", "backward")
    assert forward.graph.title == "region 0/0" and backward.graph.title == ""
    times = forward.times
    assert times is not None and (times.calls, times.timed, times.by) == (4, 3, "device")
    assert times.ms == pytest.approx(0.060)
    assert forward.kernels == (
        KernelTime("Cijk_A", 1, pytest.approx(0.030), "addmm", 1),
        KernelTime("Cijk_A", 1, pytest.approx(0.020), "addmm", 2),
        KernelTime("triton_tem_fused_mm_relu_1", 1, pytest.approx(0.010)),
    )
    times = backward.times
    assert times is not None and (times.calls, times.timed) == (4, 4)
    assert times.ms == pytest.approx(0.200)
    assert [kernel.name for kernel in backward.kernels] == ["triton_tem_fused_mm_2", "Cijk_B"]
    assert forward.when == pytest.approx(1_700_000_000.0, abs=1)


@pytest.mark.parametrize("piece", [1, 7, 100, 4096])
def test_pieces(piece: int) -> None:
    data = training()
    assert graphs(data, piece) == graphs(data)


def test_it_is_told_while_it_grows() -> None:
    data = training()
    reader = ProfilerTrace("/x/trace.json")
    assert reader.feed(data[: len(data) // 2]) == []
    first = [record for record in reader.settle() if isinstance(record, GraphSeen)]
    assert first and not reader.settle()
    rest = reader.feed(data[len(data) // 2 :])
    assert {r.g for r in rest if isinstance(r, GraphSeen)} == {1, 2}
    assert not reader.close()


def test_a_graph_of_which_nothing_new_came_is_not_told_again() -> None:
    trace = Trace()
    for key in (FORWARD, BACKWARD):
        for _ in range(3):
            trace.span(call_name(key), 100.0)
            trace.now += 200.0
    data = trace.text()
    reader = ProfilerTrace("/x/trace.json")
    cut = data.index(BACKWARD.encode())
    first = [*reader.feed(data[:cut]), *reader.settle()]
    assert {record.g for record in first if isinstance(record, GraphSeen)} == {1}
    rest = [*reader.feed(data[cut:]), *reader.settle(), *reader.close()]
    assert {record.g for record in rest if isinstance(record, GraphSeen)} == {2}


def test_files(tmp_path: Path) -> None:
    """By its beginning, in a folder too, packed or not."""
    data = training()
    (tmp_path / "a.pt.trace.json").write_bytes(data)
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(data))
    (tmp_path / "other.json").write_bytes(b'{"a": 1}')
    seen = [r for r in read_sources([str(tmp_path)]) if isinstance(r, GraphSeen)]
    names = {Path(r.source).name for r in seen}
    assert names == {"a.pt.trace.json", "b.json.gz"}
    for start in (b'{"traceEvents": [', b'{\n  "schemaVersion": 1,\n', b'{"displayTimeUnit":"ms",'):
        assert sniff(start + b"\n" * 10) == FORMAT.name


def test_the_cache_dir_is_read_beside_traces_behind_links_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "none"))
    trace, link, log = (str(tmp_path / name) for name in ("trace.json", "latest", "train.log"))
    Path(trace).write_bytes(training())
    Path(link).symlink_to(trace)
    Path(log).write_text("no trace\n")
    cache = tmp_path / "cache"
    assert with_tunings([link, trace], cache) == [link, trace, str(cache)]
    for others in ([trace, log], [str(tmp_path / "gone")]):
        assert with_tunings(others, cache) == others


def test_threads_and_processes_are_kept_apart() -> None:
    """A kernel belongs to the call that is open on the thread that launched it."""
    trace = Trace()
    trace.span(call_name(FORWARD), 100.0)
    trace.launch([("mine", 5.0)])
    for place in ((900, 1), (1, 901), (2, 2)):
        trace.device.append(
            event("cuda_runtime", "hipLaunchKernel", 1005.0, 1.0, {"correlation": 9}, place)
        )
        trace.device.append(event("kernel", "other", 1100.0, 70.0, {"correlation": 9}, (0, 7)))
    (seen,) = graphs(trace.text()).values()
    assert [kernel.name for kernel in seen.kernels] == ["mine"]


def test_host_only() -> None:
    """Without a device's events a call takes as long as its span, and ops are its kernels."""
    trace = Trace()
    for _ in range(3):
        trace.span(call_name(FORWARD), 100.0)
        trace.span("aten::addmm", 50.0)
        trace.span("aten::expand", 5.0)  # within addmm
        trace.now += 200.0
        trace.span("aten::outside", 10.0)
        trace.now += 20.0
    (seen,) = graphs(trace.text()).values()
    assert seen.times is not None and seen.times.by == "host"
    assert seen.times.ms == pytest.approx(0.1)
    assert seen.kernels == (KernelTime("aten::addmm", 1, pytest.approx(0.05), "addmm", 1),)


def damaged(number: int) -> bytes:
    rng = random.Random(number)
    events = json.loads(training())["traceEvents"]
    odd: list[Any] = [
        None,
        "x",
        -1,
        1 << 80,
        1e308,
        math.nan,
        math.inf,
        [],
        {},
        True,
        "\x1b[2J" * 9,
    ]
    for _ in range(40):
        rng.choice(events)[rng.choice(["ts", "dur", "pid", "tid", "name", "cat", "args", "ph"])] = (
            rng.choice(odd)
        )
        args = rng.choice(events)["args"]
        if isinstance(args, dict):
            args[rng.choice(["correlation", "External id"])] = rng.choice(odd)
    data = json.dumps({"schemaVersion": 1, "traceEvents": events}).encode()
    if number % 3 == 0:
        at = rng.randrange(len(data))
        data = data[:at] + rng.randbytes(9) + data[at:]
    return data[: rng.randrange(len(data))] if number % 3 == 1 else data


@pytest.mark.parametrize("number", range(60))
def test_damage(number: int) -> None:
    """Numbers that cannot be and torn text: what is told can be, and names are harmless."""
    records = read(damaged(number), 777)
    assert records
    for record in records:
        if isinstance(record, GraphSeen):
            assert record.times is not None and record.times.ms is not None
            assert 0 <= record.times.ms < math.inf and record.times.calls >= record.times.timed > 0
            assert all(kernel.name.isprintable() for kernel in record.kernels)
            assert all(0 <= kernel.ms < math.inf for kernel in record.kernels)


def test_most_damaged_traces_still_tell_of_graphs() -> None:
    """Otherwise the test above would check nothing."""
    seen = [any(isinstance(r, GraphSeen) for r in read(damaged(n), 777)) for n in range(60)]
    assert sum(seen) > 50


def test_torn_and_broken_are_said_once() -> None:
    data = training()
    faults = [r for r in read(data[: len(data) // 2]) if isinstance(r, Fault)]
    assert [fault.what for fault in faults] == ["the trace ends in the middle"]
    broken = b'{"schemaVersion": 1, "traceEvents": [' + b'{"name": "' + b"x" * (9 << 20)
    faults = [r for r in read(broken) if isinstance(r, Fault)]
    assert len(faults) == 1 and "no JSON" in faults[0].what
    deep = b'{"traceEvents": [{"a":' + b"[" * 100_000
    assert all(isinstance(record, Fault) for record in read(deep))


@pytest.mark.parametrize("end", [b"]}", b'{"name": "' + b"x" * (8 << 20)], ids=["end", "damage"])
def test_nothing_is_held_of_what_follows_the_events_or_the_damage(end: bytes) -> None:
    reader = ProfilerTrace("/x/trace.json")
    tracemalloc.start()
    try:
        reader.feed(b'{"schemaVersion": 1, "traceEvents": [' + end + b" " * (8 << 20))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 1 << 20


def test_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than is kept is left out, and that is said."""
    monkeypatch.setattr(profiled, "MOST_EVENTS", 10)
    records = read(training())
    assert any(isinstance(r, Fault) and "not all of them" in r.what for r in records)
    assert any(isinstance(r, GraphSeen) for r in records)


def test_a_long_trace_is_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events that concern no graph leave nothing behind."""
    other = json.dumps(event("python_function", "f" * 300, 1.0, 1.0, {"a": "b"})).encode() + b",\n"
    reader = ProfilerTrace("/x/trace.json")
    reader.feed(b'{"schemaVersion": 1, "traceEvents": [')
    piece = other * 2500  # about a MB
    for _ in range(5):
        reader.feed(piece)
        assert len(reader._events._text) < stream_of_events.MAX_EVENT
    assert reader._profile._count == 0


def test_tritons_own_cache_is_added_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the cache directory, and not where the cache directory contains it."""
    cache, inside, outside = tmp_path / "cache", tmp_path / "cache" / "triton", tmp_path / "triton"
    for folder, added in ((inside, []), (outside, [str(outside)]), (tmp_path / "none", [])):
        if folder.name == "triton":
            folder.mkdir(parents=True)
        monkeypatch.setenv("TRITON_CACHE_DIR", str(folder))
        assert with_tunings([str(cache)], cache) == [str(cache), *added]


HOST, RUNTIME, KERNEL = "cpu_op", "cuda_runtime", "kernel"


def happened(category: str, name: str, ts: object, dur: object, **args: object) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "ts": ts, "dur": dur, "pid": 1, "tid": 1,
            "args": args}  # fmt: skip


def called(ts: float, dur: float = 10.0, name: str = FORWARD) -> dict[str, Any]:
    return happened(HOST, call_name(name), ts, dur)


def launched(
    ts: float, dur: float, correlation: object = 1, **args: object
) -> list[dict[str, Any]]:
    kernel = happened(KERNEL, "k", 99.0, dur, correlation=correlation, **args)
    return [happened(RUNTIME, "launch", ts, 0.1, correlation=correlation), kernel]


def profile(*events: dict[str, Any]) -> Profile:
    made = Profile()
    for each in events:
        made.take(each)
    return made


@pytest.mark.parametrize(
    ("events", "ms", "by", "kernels"),
    [
        ([], 0.01, "host", 0),
        (launched(5.0, 3.0), 0.003, "device", 1),
        (launched(0.0, 3.0), 0.003, "device", 1),
        (launched(10.0, 3.0), 0.003, "device", 1),
        (launched(10.1, 3.0), 0.01, "host", 0),
        (launched(-0.1, 3.0), 0.01, "host", 0),
        (launched(5.0, 0.0), 0.01, "host", 0),
        (launched(5.0, -1.0), 0.01, "host", 0),
        (launched(5.0, 3.0)[:1], 0.01, "host", 0),
        (launched(5.0, 3.0)[1:], 0.01, "host", 0),
        (launched(5.0, 3.0, correlation=True), 0.01, "host", 0),
        (launched(5.0, 3.0, correlation=-1), 0.01, "host", 0),
        (launched(5.0, 3.0, correlation=1 << 63), 0.01, "host", 0),
        (launched(5.0, 3.0, correlation=0), 0.003, "device", 1),
        (launched(5.0, 3.0)[::-1], 0.003, "device", 1),
        ([*launched(5.0, 3.0), *launched(6.0, 2.0, 2)], 0.005, "device", 1),
        ([{**each, "ph": "i"} for each in launched(5.0, 3.0)], 0.01, "host", 0),
        ([{**each, "dur": None} for each in launched(5.0, 3.0)], 0.01, "host", 0),
        ([{**each, "dur": True} for each in launched(5.0, 3.0)], 0.01, "host", 0),
        ([{**each, "dur": 1e18} for each in launched(5.0, 3.0)], 0.01, "host", 0),
        ([{**each, "name": 3} for each in launched(5.0, 3.0)], 0.01, "host", 0),
        ([{**each, "args": 3} for each in launched(5.0, 3.0)], 0.01, "host", 0),
        ([{**each, "tid": 2} for each in launched(5.0, 3.0)], 0.01, "host", 0),
        ([{**each, "pid": "1"} for each in launched(5.0, 3.0)], 0.01, "host", 0),
    ],
)
def test_which_kernels_are_of_a_call(
    events: list[dict[str, Any]], ms: float, by: str, kernels: int
) -> None:
    (graph,) = profile(called(0.0), *events).graphs()
    assert (graph.times.ms, graph.times.by) == (pytest.approx(ms), by)
    assert len(graph.kernels) == kernels and graph.end == 10.0
    assert graph.graph.device == ("gpu" if by == "device" else None)
    assert graph.graph.key == FORWARD and len(graph.graph.id) == 7


def op(name: str, ts: float, dur: float, id: int | None = None) -> dict[str, Any]:
    return happened(HOST, name, ts, dur, **({} if id is None else {"External id": id}))


def test_the_op_that_a_kernel_was_launched_by() -> None:
    ops = [op("aten::mm", 1.0, 3.0, 7), op("aten::t", 2.0, 1.0, 8), op("aten::mm", 4.0, 1.0, 9)]
    ops += [op("other", 5.0, 1.0, 10), op("aten::" + "x" * 95, 6.0, 1.0, 11)]
    kernels = [
        each
        for at, id in enumerate((7, 8, 9, 10, 11, 12, None))
        for each in launched(5.0, 7.0 - at, at, **{"External id": id})
    ]
    (graph,) = profile(called(0.0), *ops, *kernels).graphs()
    assert [(k.op, k.nth, k.count) for k in graph.kernels] == [
        ("mm", 1, 2),
        ("", 0, 4),
        ("mm", 2, 1),
    ]


@pytest.mark.parametrize(
    ("lengths", "timed", "ms"),
    [
        ([10.0], 1, 0.010), ([10.0, 1000.0], 2, 0.505), ([10.0, 10.0, 50.0], 3, 0.070 / 3),
        ([10.0, 10.0, 50.1], 2, 0.010), ([0.0, 0.0, 1.0], 2, 0.0), ([1.0, 6.0, 10.0], 3, 0.017 / 3),
    ],
)  # fmt: skip
def test_a_call_that_compiled_is_not_counted(lengths: list[float], timed: int, ms: float) -> None:
    (graph,) = profile(*(called(100.0 * at, dur) for at, dur in enumerate(lengths))).graphs()
    assert (graph.times.calls, graph.times.timed) == (len(lengths), timed)
    assert graph.times.ms == pytest.approx(ms)
    assert graph.end == 100.0 * (len(lengths) - 1) + lengths[-1]


@pytest.mark.parametrize(
    ("around", "kind", "title"),
    [
        ([], "inference", ""),
        ([op("CompiledFunction", 0.0, 5.0)], "forward", ""),
        ([op("CompiledFunction", 0.0, 4.9)], "inference", ""),
        ([op("CompiledFunctionBackward", 0.0, 9.0)], "backward", ""),
        ([op("Torch-Compiled Region: 0/1", 0.0, 5.0)], "inference", "region 0/1"),
        ([op("Torch-Compiled Region: 0/1", 0.0, 4.9)], "inference", ""),
        ([op("Torch-Compiled Region: " + "1" * 90, 0.0, 9.0)], "inference", "region " + "1" * 40),
    ],
)
def test_what_a_graph_is_called_within(around: list[dict[str, Any]], kind: str, title: str) -> None:
    made = profile(*around, called(5.0))
    made.take(called(50.0))
    (graph,) = made.graphs()
    assert (graph.graph.kind, graph.graph.title, graph.times.calls) == (kind, title, 2)


def test_spans_out_of_order_are_calls_all_the_same_without_ops() -> None:
    made = profile(called(100.0), op("aten::mm", 101.0, 2.0), called(0.0), *launched(5.0, 3.0))
    (graph,) = made.graphs()
    assert (graph.times.calls, graph.times.ms, len(graph.kernels)) == (2, pytest.approx(0.0015), 1)
    (graph,) = profile(called(100.0), op("aten::mm", 101.0, 2.0), called(0.0)).graphs()
    assert graph.kernels == () and graph.times.by == "host"


@pytest.mark.parametrize(
    ("name", "most", "kept"),
    [("MOST_GRAPHS", 2, 2), ("MOST_SPANS", 3, 3), ("MOST_NAMES", 1, 4)],
)
def test_what_is_too_much_is_left_out(
    monkeypatch: pytest.MonkeyPatch, name: str, most: int, kept: int
) -> None:
    monkeypatch.setattr(profiled, name, most)
    made = profile(*(called(100.0 * at, name=str(at)) for at in range(most)))
    assert not made.full
    for at in range(most, 4):
        made.take(called(100.0 * at, name=str(at)))
    calls = sum(graph.times.calls for graph in made.graphs())
    assert made.full is (kept < 4) and calls == kept


def test_the_time_of_a_trace_is_known_by_its_head() -> None:
    events = json.dumps([called(2e6)])
    for head, when in (
        ('"baseTimeNanoseconds": 5000000000, ', 7.00001), ("", None),
        ('"baseTimeNanoseconds": 9999999999999999999, ', 9999999999.99 + 2.0),
    ):  # fmt: skip
        (seen,) = graphs(f'{{"schemaVersion": 1, {head}"traceEvents": {events}}}'.encode()).values()
        assert seen.when == (None if when is None else pytest.approx(when, abs=0.02))
