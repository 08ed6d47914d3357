"""Events of a structured trace one by one, and the generated code in it."""

from __future__ import annotations

import hashlib
import io
import json
from typing import Any

import pytest

from backend.model.session import Fault
from backend.model.tuning import Tuning
from rocm_tui.ingest.formats import torch_trace
from rocm_tui.ingest.formats.torch_trace import TorchTrace, TraceCode
from rocm_tui.ingest.records import Dropped, Record, Seen

STATS = {"num_choices": 9, "best_kernel": "mm", "best_time": 0.5}


def event(name: object, phase: object, ts: object, head: object = None, **args: object) -> bytes:
    document = {"name": name, "ts": ts, "args": args, "ph": phase}
    begin = {"chromium_event": {}, **({"rank": 2} if head is None else {"rank": head})}
    payload = json.dumps(document, indent=0).replace("\n", "\n\t")
    return f"V1120 10:10:29.070000 6512 a.py:1] {json.dumps(begin)}\n\t{payload}\n".encode()


def tuned(op: str = "mm", ts: object = 7e6, **stats: object) -> bytes:
    text = json.dumps({**STATS, **stats})
    return event(f"{op}_template_autotuning", "E", ts, autotune_choices_stats=text)


def begun(op: str = "mm", ts: object = 5e6, head: object = None, **args: object) -> bytes:
    return event(f"{op}_template_autotuning", "B", ts, head, **args)


def precompiled(op: str, phase: str, ts: float) -> bytes:
    return event(f"{op}_template_precompiling", phase, ts)


def read(*events: bytes) -> list[Record]:
    reader = TorchTrace("/t")
    return [*reader.feed(b"".join(events)), *reader.settle(), *reader.close()]


def last(records: list[Record]) -> list[Tuning]:
    tunings: dict[str, Tuning] = {}
    for record in records:
        if isinstance(record, Seen):
            tunings[record.uid] = record.tuning
        elif isinstance(record, Dropped):
            del tunings[record.uid]
    return list(tunings.values())


def test_an_op_that_is_tuned_twice_and_one_beside_it() -> None:
    first, second, other = last(
        read(begun(), tuned(), tuned(), begun(ts=8e6), begun("bmm", 8.5e6), tuned("bmm", 9e6))
    )
    assert [(t.op, t.state) for t in (first, second, other)] == [
        ("mm", "done"), ("mm", "cut"), ("bmm", "done"),
    ]  # fmt: skip
    assert (first.when, first.seconds.benchmark, first.num_choices) == (5.0, 2.0, 9)
    assert (other.seconds.benchmark, other.sources) == (0.5, ("/t",))


@pytest.mark.parametrize(
    ("events", "seconds"),
    [
        ([precompiled("mm", "B", 1e6), precompiled("mm", "E", 4e6)], 3.0),
        ([precompiled("mm", "B", 1e6)], None),
        ([precompiled("mm", "E", 4e6)], None),
        ([precompiled("bmm", "B", 1e6), precompiled("bmm", "E", 4e6)], None),
        (
            [precompiled("mm", "B", 1e6), precompiled("mm", "E", 2e6), precompiled("mm", "E", 9e6)],
            1.0,
        ),
    ],
)
def test_the_time_of_precompiling_is_of_its_op(events: list[bytes], seconds: float | None) -> None:
    (one,) = last(read(begun(), *events, tuned()))
    assert one.seconds.precompile == seconds
    again = last(read(begun(), *events, tuned(), begun(), tuned()))[1]
    assert again.seconds.precompile is None, "it was of the first"


@pytest.mark.parametrize(
    ("begin", "end", "when", "seconds"),
    [
        (5e6, 7e6, 5.0, 2.0),
        (7e6, 5e6, 7.0, None),  # the clock was set back
        (1e30, 1e30, None, 0.0),
        (-1e9, 5e6, None, 1005.0),
        (float("nan"), 5e6, None, None),
    ],
)
def test_times_that_cannot_be_are_unknown(
    begin: float, end: float, when: float | None, seconds: float | None
) -> None:
    precompiling = precompiled("mm", "B", begin), precompiled("mm", "E", end)
    (tuning,) = last(read(*precompiling, begun(ts=begin), tuned(ts=end)))
    assert (tuning.when, tuning.seconds.benchmark, tuning.seconds.precompile) == (
        when, seconds, seconds,
    )  # fmt: skip


@pytest.mark.parametrize(("head", "rank"), [(0, 0), (3, 3), (True, None), ("3", None), ([], None)])
def test_the_rank_is_a_number(head: object, rank: int | None) -> None:
    (one,) = last(read(begun(head=head)))
    assert one.rank == rank


@pytest.mark.parametrize(
    "odd",
    [
        event(3, "B", 5e6), begun(ts="5"), begun(ts=None), begun(ts=10**400),
        event("mm_template_autotuning", "X", 5e6), event("mm", "B", 5e6), tuned(),
        begun().replace(b"chromium_event", b"other"),
    ],
)  # fmt: skip
def test_events_that_begin_no_tuning(odd: bytes) -> None:
    assert read(odd) == []


@pytest.mark.parametrize(
    ("stats", "choices"),
    [
        ({}, [("mm", 0.5, "")]),
        ({"best_kernel_desc": "A=\x07"}, [("mm", 0.5, "A=")]),
        ({"best_kernel_desc": 3}, [("mm", 0.5, "")]),
        ({"best_triton_kernel": "t\x07", "best_triton_time": 0.25}, [("t", 0.25, ""),
         ("mm", 0.5, "")]),
        ({"best_triton_kernel": "t", "best_triton_time": -0.25}, [("mm", 0.5, ""),
         ("t", None, "")]),
        ({"best_triton_kernel": "t"}, [("mm", 0.5, "")]),
        ({"best_triton_kernel": "t", "best_triton_time": "1"}, [("mm", 0.5, "")]),
        ({"best_triton_kernel": 3, "best_triton_time": 0.25}, [("mm", 0.5, "")]),
        ({"best_triton_kernel": "t", "best_triton_time": 0.0}, [("t", 0.0, ""), ("mm", 0.5, "")]),
    ],
)  # fmt: skip
def test_the_choices_that_statistics_name(stats: dict[str, Any], choices: list[Any]) -> None:
    (one,) = last(read(begun(), tuned(**stats)))
    assert [(c.name, c.ms, c.description) for c in one.choices] == choices
    assert all(choice.failed is (choice.ms is None) for choice in one.choices)


def test_sizes_with_numbers_go_before_those_with_symbols() -> None:
    args = {"autotune_shape": "s0x3", "autotune_shape_hinted": "2x3", "autotune_strides": "(3, 1)"}
    (one,) = last(read(begun(**args)))
    assert (one.shapes, one.strides, one.dtypes) == (((2, 3),), ((3, 1),), ())
    (one,) = last(read(begun(autotune_shape=3, autotune_dtypes=["x"])))
    assert one.shapes == one.dtypes == ()


def test_an_event_that_is_too_long_or_torn(monkeypatch: pytest.MonkeyPatch) -> None:
    long = begun(autotune_shape="2x3", filler="x" * 5000)
    assert [t.shapes for t in last(read(long))] == [((2, 3),)]
    with monkeypatch.context() as patch:
        patch.setattr(torch_trace, "MAX_EVENT", 4096)
        assert last(read(long)) == [] and len(last(read(long, begun()))) == 1
    half = begun()[:-3]
    for text in (half, half + b"\n"):
        (fault,) = (record for record in read(text, b"other\n") if isinstance(record, Fault))
        assert "torn" in fault.what
    assert read(event("dynamo", "B", 1)[:-3] + b"\nother\n") == []


CODE, GRAPH, SETTINGS = "inductor_output_code", "inductor_post_grad_graph", "fx_graph_runnable"


def record(kind: str, text: str, frame: int = 0, named: str = "", **head: object) -> bytes:
    digest = hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
    body = "".join(f"\t{line}\n" for line in text.split("\n"))
    begin = {named: {"name": kind}} if named else {kind: {}}
    ids = {"frame_id": frame, "frame_compile_id": 0, "attempt": 0, "has_payload": digest, **head}
    return f"V1120 10:10:29.070000 6512 a.py:1] {json.dumps({**begin, **ids})}\n{body}".encode()


def code(*records: bytes, most: int | None = None) -> tuple[list[bytes], int]:
    reader = TraceCode()
    return list(reader.read(io.BytesIO(b"".join(records)), most)), reader.damaged


def test_code_comes_with_what_was_said_in_the_same_compile() -> None:
    graph, settings = record(GRAPH, "g"), record(SETTINGS, "s1\ns2")
    assert code(graph, settings, record(CODE, "c")) == ([b"c\ns1\ns2\ng"], 0)
    assert code(graph, record(CODE, "c", 1), record(CODE, "d")) == ([b"c\n\n", b"d\n\ng"], 0)
    assert code(graph, record(CODE, "c"), record(CODE, "d")) == ([b"c\n\ng", b"d\n\n"], 0)
    assert code(graph, b"other\n\tlines\n", record(CODE, "c", attempt=1)) == ([b"c\n\n"], 0)
    named = record("fx_graph_runnable", "s", named="artifact"), record(CODE, "c")
    assert code(*named) == ([b"c\ns\n"], 0)
    assert code(record(CODE, "c", named="graph_dump")) == ([b"c\n\n"], 0)
    assert code(record(CODE, "c", named="other")) == ([], 0)
    assert code(record(CODE, "c", has_payload=3)) == ([], 0)


def test_code_that_is_damaged_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, torn = record(CODE, "c"), record(CODE, "c").replace(b"\tc", b"\tx")
    assert code(torn, whole, torn) == ([b"c\n\n"], 2)
    assert code(record(GRAPH, "g").replace(b"\tg", b"\tx"), whole) == ([b"c\n\n"], 0)
    assert code(whole, whole, most=len(whole)) == ([b"c\n\n"], 0)
    assert code(whole, whole, most=len(whole) + 9) == ([b"c\n\n"], 0)
    assert code(whole, most=len(whole) - 2) == ([], 1)
    monkeypatch.setattr(torch_trace, "MAX_PAYLOAD", 3)
    assert code(record(CODE, "cc"), record(CODE, "ccc")) == ([b"cc\n\n"], 1)


def test_of_many_compiles_at_once_the_first_are_forgotten() -> None:
    graphs = [record(GRAPH, str(frame), frame) for frame in range(257)]
    found, damaged = code(
        *graphs, record(CODE, "c", 0), record(CODE, "c", 1), record(CODE, "c", 256)
    )
    assert (found, damaged) == ([b"c\n\n", b"c\n\n1", b"c\n\n256"], 0)
