"""The logs of MM, conv and flex choices that Inductor writes as JSON."""

from __future__ import annotations

import json
import math

import pytest

from backend.model.session import (
    Fault,
)
from rocm_tui.ingest.formats import mm_log
from rocm_tui.ingest.formats.reader import NotReadable
from tests.support.format_lab import needs_corpus, tunings
from tests.support.places import CORPUS

# MM, conv and flex logs


def test_an_mm_log() -> None:
    triton = {"type": "triton", "time": 0.5, "BLOCK_M": 64, "num_warps": 4}
    log = [
        {"(64, 32, 16)": [{"type": "cublas", "time": 0.25}, triton, None], "kernel_type": "mm"},
        {"invoke": "(1, 2, 3)"},
        {"(8, 128, 192)": [{"type": "cublas", "time": math.inf}], "kernel_type": "bmm"},
    ]
    found = tunings(mm_log.parse(json.dumps(log).encode(), "m.json"))
    assert list(found) == ["m.json#1", "m.json#3"]
    mm, bmm = found.values()
    assert (mm.op, mm.shapes, mm.dims) == ("mm", ((64, 32), (32, 16)), (64, 32, 16))
    assert [(c.ms, c.config) for c in mm.choices] == [
        (0.25, {"type": "cublas"}),
        (0.5, {"BLOCK_M": "64", "num_warps": "4"}),
    ]
    assert (mm.num_choices, mm.state) == (3, "done")
    assert (bmm.shapes, bmm.dims) == ((), (8, 128, 192))
    assert bmm.choices[0].failed and bmm.choices[0].ms is None
    assert mm.id != bmm.id


def test_conv_and_flex_logs() -> None:
    log = [
        {
            "input_shape": "[1, 3, 224, 224]",
            "weight_shape": "[64, 3, 7, 7]",
            "choices": [{"time": 0.5, "backend": "Triton", "BLOCK_M": 32}],
            "kernel_type": "convolution",
        },
        {
            "query_shape": "[4, 16, 64, 32]",
            "key_shape": "[4, 16, 64, 32]",
            "value_shape": "[4, 16, 64, 16]",
            "kernel_type": "backward",
            "choices": [{"type": "triton", "time": 2.5, "BLOCK_M1": 16, "B": 4, "Hq": 16}],
        },
    ]
    conv, flex = tunings(mm_log.parse(json.dumps(log).encode(), "c.json")).values()
    assert (conv.op, conv.shapes) == ("convolution", ((1, 3, 224, 224), (64, 3, 7, 7)))
    assert conv.choices[0].config == {"backend": "Triton", "BLOCK_M": "32"}
    assert (flex.op, flex.shapes[2]) == ("flex_attention_backward", (4, 16, 64, 16))
    assert flex.choices[0].config == {"BLOCK_M1": "16"}


@needs_corpus
def test_mm_logs_of_the_corpus() -> None:
    new = (CORPUS / "local_mmlog_2130_linear.json").read_bytes()
    found = list(tunings(mm_log.parse(new, "m")).values())
    assert [(t.op, t.dims, t.num_choices) for t in found] == [
        ("packed_linear", (1459233, 1, 256), 2),
        ("packed_linear", (1459233, 1, 512), 2),
    ]
    assert [t.choices[0].ms for t in found] == [0.09430100010376918, 0.050054999974236125]
    assert mm_log.parse((CORPUS / "local_mmlog_251_linear.json").read_bytes(), "m") == []


@pytest.mark.parametrize("data", [b"", b"{", b"{}", b"[" * 100_000, b"\xff"])
def test_half_an_mm_log_is_not_readable(data: bytes) -> None:
    with pytest.raises(NotReadable):
        mm_log.parse(data, "m")


@pytest.mark.parametrize("data", [b"[{}]", b"[1]"])
def test_an_entry_that_is_no_tuning_is_a_problem(data: bytes) -> None:
    (problem,) = mm_log.parse(data, "m")
    assert isinstance(problem, Fault)


CUBLAS = {"type": "cublas", "time": 0.25}


@pytest.mark.parametrize(
    ("entry", "op", "shapes", "dims"),
    [
        ({"(2, 3, 4)": [CUBLAS], "kernel_type": "addmm"}, "addmm", ((2, 3), (3, 4)), (2, 3, 4)),
        ({"(2, 3, 4)": [CUBLAS]}, "?", (), (2, 3, 4)),
        ({"(2, 3)": [CUBLAS], "kernel_type": "mm"}, "mm", (), (2, 3)),
        ({"(s0, 3, 4)": [CUBLAS], "kernel_type": "mm"}, "mm", (), ()),
        ({"(1)": 5, "(2, 3, 4)": [CUBLAS], "kernel_type": "mm\x07"}, "mm", ((2, 3), (3, 4)),
         (2, 3, 4)),
        ({"input_shape": "[1, 3]", "weight_shape": "[s0, 3]", "choices": [CUBLAS],
          "kernel_type": "convolution"}, "convolution", (), ()),
        ({"input_shape": "[1, 3]", "choices": [CUBLAS], "kernel_type": "convolution"},
         "convolution", (), ()),
        ({"query_shape": "[1]", "key_shape": "(2,)", "value_shape": "[3]", "choices": [CUBLAS],
          "kernel_type": "forward"}, "flex_attention", ((1,), (2,), (3,)), ()),
        ({"query_shape": "[1]", "choices": [CUBLAS], "kernel_type": "decode"}, "flex_decoding",
         (), ()),
        ({"query_shape": "[1]", "choices": [CUBLAS], "kernel_type": "new"}, "new", (), ()),
    ],
)  # fmt: skip
def test_the_problem_of_an_entry(
    entry: object, op: str, shapes: object, dims: tuple[int, ...]
) -> None:
    ((_, found),) = tunings(mm_log.parse(json.dumps([entry]).encode(), "m")).items()
    assert (found.op, found.shapes, found.dims) == (op, shapes, dims)
    assert (found.num_choices, found.sources) == (1, ("m",))


@pytest.mark.parametrize(
    ("choice", "ms"),
    [
        ({"time": 0}, 0.0), ({"time": 2}, 2.0), ({"time": math.nan}, None),
        ({"time": 10**400}, None),
        ({"time": -0.5}, "no time"), ({"time": True}, "no time"), ({"time": "1"}, "no time"),
        ({"time": None}, "no time"), ({}, "no time"), (3, "no time"),
    ],
)  # fmt: skip
def test_the_time_of_a_choice(choice: object, ms: float | str | None) -> None:
    entries = [{"(2, 3, 4)": [choice], "kernel_type": "mm"}, {"(2, 3, 4)": [CUBLAS]}]
    records = mm_log.parse(json.dumps(entries).encode(), "m")
    if isinstance(ms, str):
        fault = records[0]
        assert isinstance(fault, Fault) and ms in fault.what and "entry 1" in fault.what
        assert list(tunings(records)) == ["m#2"]
    else:
        (found,) = tunings(records)["m#1"].choices
        assert (found.ms, found.failed) == (ms, ms is None)


@pytest.mark.parametrize(
    "entry", [{"choices": 3, "input_shape": "[1]"}, {"choices": []}, {"(2, 3, 4)": 5}, {"mm": []}]
)
def test_entries_of_no_tuning(entry: object) -> None:
    (fault,) = mm_log.parse(json.dumps([entry, {"invoke": "(1, 2, 3)"}]).encode(), "m")
    assert isinstance(fault, Fault) and "entry 1" in fault.what


def test_a_damaged_log_is_told_twenty_times() -> None:
    assert len(mm_log.parse(json.dumps([1] * 40).encode(), "m")) == 21
