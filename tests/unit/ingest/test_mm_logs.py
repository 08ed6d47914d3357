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
