"""Pins of flex attention as `kernel_options`: which they have, and what is said of the rest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from backend.sharing.kernel_options import (
    FlexChoice,
    as_python,
    calls_of,
    kernel_options_of,
    operands,
)
from tests.support.sharing_lab import BACKWARD, FORWARD, ROCM, eval_options

SHAPES = ((2, 8, 1024, 64),) * 3
CHOICE = FlexChoice("3fa91c2", "flex_attention", "triton_flex_attention-c1", "x", FORWARD)
BACK = replace(
    CHOICE,
    op="flex_attention_backward",
    hash="triton_flex_attention_backward-c1",
    config={**BACKWARD, **ROCM},
)


def test_each_pass_has_its_keys() -> None:
    assert kernel_options_of(CHOICE) == {
        "BLOCK_M": 64,
        "fwd_BLOCK_N": 32,
        "fwd_num_warps": 4,
        "fwd_num_stages": 2,
    }
    assert kernel_options_of(BACK) == {f"bwd_{name}": int(text) for name, text in BACKWARD.items()}
    decoding = replace(CHOICE, op="flex_decoding")
    assert list(kernel_options_of(decoding)) == ["fwd_BLOCK_N", "fwd_num_warps", "fwd_num_stages"]
    assert (
        kernel_options_of(replace(CHOICE, config={**FORWARD, "USE_TMA": "True"}))["fwd_USE_TMA"]
        is True
    )
    without = replace(CHOICE, config={**FORWARD, "USE_TMA": "False"})
    assert kernel_options_of(without) == kernel_options_of(CHOICE)
    largest = replace(CHOICE, config={**FORWARD, "num_warps": "99999"})
    assert kernel_options_of(largest)["fwd_num_warps"] == 99_999


def test_a_forward_and_its_backward_are_one_call() -> None:
    forward, backward = replace(CHOICE, shapes=SHAPES), replace(BACK, shapes=SHAPES)
    (call,) = calls_of([backward, forward]).calls
    assert call.choices == (forward, backward)
    assert call.options == {**kernel_options_of(forward), **kernel_options_of(backward)}
    assert len(calls_of([forward, backward, replace(forward, id="0000000")]).calls) == 3
    assert len(calls_of([forward, replace(backward, shapes=SHAPES[:2])]).calls) == 2
    assert len(calls_of([CHOICE, BACK]).calls) == 2  # nothing tells that they belong together


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"op": "flex_flash_attention"}, "no tile sizes are options of flex_flash_attention"),
        ({"hash": "flex_attention-c1"}, "a C++ template"),
        ({"hash": "rocm_gemm-c1"}, "a kernel of ours"),
        ({"config": {**FORWARD, "num_warps": "100000"}}, "num_warps=100000"),
        ({"hash": "call_aten_x-c1"}, "not Inductor's Triton template"),
        ({"config": {}}, "is unknown: no session or log"),
        ({"config": {"BLOCK_M": "64"}}, "no BLOCK_N, num_warps, num_stages"),
        ({"config": {**FORWARD, "BLOCK_M": "__import__('os')"}}, "BLOCK_M=__import__"),
        ({"config": {**FORWARD, "BLOCK_M": "²"}}, "BLOCK_M=²"),
        ({"config": {**FORWARD, "num_warps": "9" * 5000}}, "num_warps=999"),
        ({"config": {**FORWARD, "USE_TMA": "1\n"}}, "USE_TMA=1?"),
    ],
)
def test_what_no_options_say_is_named(change: dict[str, Any], why: str) -> None:
    found = calls_of([replace(CHOICE, **change)])
    assert not found.calls
    (remark,) = found.left_out
    assert why in remark.text and remark.text.isprintable() and len(remark.text) < 200


def test_what_the_options_leave_open() -> None:
    other = {**BACK.config, "matrix_instr_nonkdim": "16"}
    (note,) = calls_of([replace(BACK, rivals=(other,))]).notes
    assert "matrix_instr_nonkdim=0 cannot be an option" in note.text and "kpack" not in note.text
    for rivals in ((dict(BACK.config),), (FORWARD,), ()):
        assert not calls_of([replace(BACK, rivals=rivals)]).notes


def test_decoding_is_a_call_of_its_own() -> None:
    forward, backward = replace(CHOICE, shapes=SHAPES), replace(BACK, shapes=SHAPES)
    decoding = replace(forward, op="flex_decoding")
    calls = calls_of([decoding, backward, forward]).calls
    assert [call.choices for call in calls] == [(decoding,), (forward, backward)]
    halves = ("torch.float16",) * 3
    assert len(calls_of([replace(forward, dtypes=halves), backward]).calls) == 2


def test_the_operands_of_a_key() -> None:
    spec = "('cuda', 'torch.float16', 2, 8, {}, 64, 4096, 512, 64, 1, 0)"
    key = f"[{', '.join(spec.format(rows) for rows in (16, 32, 48, 64))}]"
    shapes, dtypes = operands(key)
    assert shapes == ((2, 8, 16, 64), (2, 8, 32, 64), (2, 8, 48, 64))
    assert dtypes == ("torch.float16",) * 3
    assert operands("[nonsense") == ((), ())


def test_the_text_is_python_whatever_a_log_says() -> None:
    evil = replace(CHOICE, label='\n"""\nimport os\x1b[2J\u2028boom', shapes=SHAPES)
    text = as_python(calls_of([evil]).calls)
    assert eval_options(text) == [kernel_options_of(CHOICE)]
    assert "\x1b" not in text and "\u2028" not in text
    timed = replace(CHOICE, shapes=SHAPES[:1], dtypes=("torch.float16", "torch.float16"), ms=0.5)
    titled = as_python(calls_of([timed, replace(timed, ms=None)]).calls)
    first, second = titled.rstrip("\n").split("\n\n")
    assert first.startswith("# 3fa91c2 flex_attention(2x8x1024x64) float16: x, 0.5000 ms\n")
    assert second.startswith("# 3fa91c2 flex_attention(2x8x1024x64) float16: x\n")
    assert titled.endswith("}\n") and len(eval_options(titled)) == 2
    assert text.startswith("# 3fa91c2 flex_attention(2x8x1024x64, 2x8x1024x64, 2x8x1024x64): ")
