"""Pins as Inductor's lookup table: what it can hold, and what it is told of the rest."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from backend.sharing.lookup_table import as_json, gpu_name, lookup_table, value_of
from backend.sharing.share import Inexpressible, Machine, SharedPin
from tests.support.sharing_lab import ADDMM_HASH, BIAS, GPU, MACHINE, PIN, TRITON_HASH, VALUES, A, B


def entries(pin: SharedPin) -> dict[str, Any]:
    return dict(lookup_table([pin]).entries)


def reason(pin: SharedPin) -> str:
    table = lookup_table([pin])
    assert not table.entries and not table.pins
    (remark,) = table.left_out
    return remark.text


def test_the_form_of_the_table() -> None:
    key = f"{GPU}+((torch.float16, [64, 128], [128, 1]), (torch.float16, [128, 96], [1, 128]))+mm"
    assert entries(PIN) == {key: [{"template_id": "triton::mm", **VALUES}]}
    assert entries(replace(PIN, hash="mm-cxyz", config={})) == {key: [{"template_id": "aten::mm"}]}
    cuda = Machine(arch="sm_90", cuda="13.0", device="NVIDIA H200")
    assert list(entries(replace(PIN, machine=cuda))) == [key.replace(GPU, "NVIDIA H200")]


def test_scalars_come_from_the_hashes_of_the_rivals() -> None:
    inputs = f"[{BIAS}, {A}, {B}]"
    timings = {"highest": {TRITON_HASH: 0.1, ADDMM_HASH: 0.2, "bias_addmm-alpha=1-beta=1-c1": 0.2}}
    table = lookup_table([replace(PIN, op="addmm", inputs=inputs, timings=timings)])
    (key,) = table.entries
    assert key.startswith(f"{GPU}+((torch.float16, [64, 96], [0, 1]), ")
    assert key.endswith("+alpha=1&beta=1+addmm")
    (note,) = table.notes
    assert "ATen's choices of addmm separately" in note.text

    odd = {"highest": {TRITON_HASH: 0.1, "addmm-alpha=-0.5-beta=1e-05-cdef": 0.2}}
    (key,) = entries(replace(PIN, op="addmm", inputs=inputs, timings=odd))
    assert key.endswith("+alpha=-0.5&beta=1e-05+addmm")
    assert "is unknown" in reason(replace(PIN, op="addmm", inputs=inputs))
    both = {"highest": {**timings["highest"], **odd["highest"]}}
    assert "two values" in reason(replace(PIN, op="addmm", inputs=inputs, timings=both))


def test_aten_is_asked_for_with_the_bias_as_it_was() -> None:
    pin = replace(PIN, op="addmm", inputs=f"[{BIAS}, {A}, {B}]", hash=ADDMM_HASH, config={})
    found = entries(pin)
    assert [re.search(r"float16, (.*?)\)", key)[1] for key in found] == [  # type: ignore[index]
        "[64, 96], [0, 1]",
        "[96], [1]",
        "[1, 96], [96, 1]",
    ]
    assert set(map(str, found.values())) == {"[{'template_id': 'aten::addmm'}]"}
    assert entries(replace(pin, hash="bias_addmm-alpha=1-beta=1-c1")).keys() == found.keys()
    (note,) = lookup_table([pin]).notes
    assert note.subject == pin and "Triton's choices of addmm separately" in note.text
    assert not lookup_table([PIN]).notes
    full = pin.inputs.replace("64, 96, 0, 1", "64, 96, 96, 1")
    assert len(entries(replace(pin, inputs=full))) == 1


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"op": "packed_linear"}, "does not ask the table for packed_linear"),
        ({"op": "convolution", "hash": "triton_convolution2d-c1"}, "does not ask"),
        ({"inputs": PIN.inputs.replace("cuda", "cpu")}, "GPUs only"),
        ({"inputs": PIN.inputs + "_64"}, "ends in _64"),
        ({"inputs": PIN.inputs.replace("128, 1, 0)", "128, 1, 256)")}, "does not begin"),
        ({"inputs": "[nonsense"}, "not an inputs key"),
        ({"machine": Machine()}, "GPU that it was tuned on is unknown"),
        ({"hash": "CppMicroGemmFP32Vec-c1"}, "a C++ template"),
        ({"hash": "ck_gemm_template-c1"}, "a Composable Kernel"),
        ({"hash": "cutlass_gemm-c1"}, "a CUTLASS kernel"),
        ({"hash": "decompose_k_mm_4_split-c1"}, "a decomposition"),
        ({"hash": "rocm_gemm-c1"}, "a kernel of ours"),
        ({"hash": "rocm_triton-c1"}, "a kernel of ours"),
        ({"hash": "triton_mm_persistent_tma-c1"}, "parameters that no log records"),
        ({"hash": "triton_bmm-c1"}, "parameters that no log records"),
        ({"hash": "triton_mm_persistent-c1"}, "no NUM_SMS"),
        ({"hash": "mm_dtype-out_dtype=torch.float32-c1"}, "arguments that the table would drop"),
        ({"op": "scaled_mm", "hash": "_scaled_mm-out_dtype=1-c1"}, "would drop"),
        ({"hash": "contiguous_mm-[64]"}, "would drop"),
        ({"config": {}}, "is unknown: no session or log here records it"),
        ({"config": {"BLOCK_M": "64", "num_warps": "4"}}, "no ACC_TYPE, BLOCK_K, BLOCK_N, EVEN_K"),
        ({"config": {**PIN.config, "BLOCK_M": "__import__('os')"}}, "the value __import__"),
        ({"config": {**PIN.config, "BLOCK_M": "s0"}}, "the value s0"),
    ],
)
def test_what_it_cannot_hold_is_named(change: dict[str, Any], why: str) -> None:
    assert why in reason(replace(PIN, **change))


def test_values() -> None:
    texts = ["-1", "64", "True", "None", "'tl.float32'"]
    assert [value_of(text) for text in texts] == [-1, 64, True, None, "tl.float32"]
    assert value_of("False") is False and value_of("9" * 9) == 999_999_999
    for odd in ("9" * 10, "'a b'", "1.5", ""):
        with pytest.raises(Inexpressible):
            value_of(odd)


def test_a_persistent_template_has_its_number_of_units() -> None:
    config = {**PIN.config, "NUM_SMS": "304"}
    pin = replace(PIN, hash="triton_mm_persistent-c1", config=config)
    ((value,),) = entries(pin).values()
    assert value == {"template_id": "triton::mm_persistent", **VALUES, "NUM_SMS": 304}


@pytest.mark.parametrize(
    ("machine", "name"),
    [
        (MACHINE, GPU),
        (Machine(arch="sm_90", device="NVIDIA H200"), "NVIDIA H200"),
        (Machine(cuda="13.0", device="NVIDIA H200"), "NVIDIA H200"),
        (Machine(arch="AVX512", device="cpu"), None),
        (Machine(hip="7.1.0", device="AMD Instinct MI300X"), None),
        (Machine(), None),
    ],
)
def test_the_name_of_a_gpu(machine: Machine, name: str | None) -> None:
    assert gpu_name(machine) == name


def test_the_text_of_the_table_is_sorted_json() -> None:
    table = {"b": [{"template_id": "aten::mm"}], "a": [{"template_id": "aten::bmm", "A": 1}]}
    text = as_json(table)
    assert text.endswith("}\n") and json.loads(text) == table
    assert list(json.loads(text)) == ["a", "b"] and text.index('"A"') < text.index('"template_id"')


def test_of_two_pins_with_one_key_the_later_counts() -> None:
    early = replace(PIN, precision="high", when=1.0, hash="mm-c1", config={})
    table = lookup_table([early, replace(PIN, when=2.0)])
    assert [remark.subject for remark in table.left_out] == [early]
    assert [config["template_id"] for (config,) in table.entries.values()] == ["triton::mm"]
    same = lookup_table([replace(PIN, precision="high"), PIN])
    assert len(same.pins) == 2 and not same.left_out
