"""Configs in JSON: vLLM's and SGLang's of experts, AITER's of its Triton kernels. Each step has its
place in the file, whatever the file is indented like; what stands twice is seen twice."""

from __future__ import annotations

import json

import pytest

from backend.tables.ladder import MAX_DOCUMENT, ladder_of
from backend.tables.model import NotAProblem, Table, TableDevice
from backend.tables.registry import parse, problem_of_entry, sniff

NAME = "E=128,N=352,device_name=AMD_Instinct_MI300X,dtype=fp8_w8a8,block_shape=[128,128].json"
SMALL = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32, "num_warps": 4}
LARGE = {"BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 256, "num_warps": 8}
MOE = json.dumps({"triton_version": "3.4.0", "1": SMALL, "512": LARGE}, indent=4).encode()


def table(data: bytes, path: str) -> Table:
    found = parse(data, path)
    assert found is not None and not found.problems
    assert found.rewritten({each: found.text(each) for each in found.entries}) == data
    return found


def test_steps_of_experts() -> None:
    found = table(MOE, f"configs/{NAME}")
    assert (found.tuner, found.facts) == ("moe", (("triton_version", "3.4.0"),))
    first, second = found.entries
    assert (first.line, first.op, first.ms) == (3, "fused_moe", None)
    assert first.device == TableDevice(name="AMD_Instinct_MI300X")
    assert first.key == (
        ("M", "1"),
        ("E", "128"),
        ("N", "352"),
        ("dtype", "fp8_w8a8"),
        ("block_shape", "[128,128]"),
    )
    assert second.solution == "BLOCK_SIZE_M=128, BLOCK_SIZE_N=256, num_warps=8"
    assert second.extra[0] == ("BLOCK_SIZE_M", "128") and second.line == 8
    assert json.loads(b"{" + found.text(second) + b"}") == {"512": LARGE}
    with pytest.raises(NotAProblem, match="experts"):
        problem_of_entry(found, first)


@pytest.mark.parametrize("indent", [None, 0, 1, 4, "\t"])
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_any_indentation(indent: int | str | None, ends: str) -> None:
    text = json.dumps({"1": SMALL, "512": LARGE}, indent=indent).replace("\n", ends)
    found = table(b"\xef\xbb\xbf" + text.encode() + b"\n", NAME)
    assert [dict(each.key)["M"] for each in found.entries] == ["1", "512"]
    assert [dict(each.extra)["num_warps"] for each in found.entries] == ["4", "8"]


@pytest.mark.parametrize(
    ("name", "op", "told"),
    [
        ("E=8,N=7168,device_name=NVIDIA_H20-3e_down.json", "fused_moe", ("projection", "down")),
        (
            "E=8,N=1,device_name=X,dtype=fp8_w8a8,block_shape=[128, 128]_down.json",
            "fused_moe",
            ("block_shape", "[128, 128]"),
        ),
        (
            "E=8,N=1,device_name=X,dtype=int4_w4a16,backend=flydsl.json",
            "fused_moe",
            ("backend", "flydsl"),
        ),
        (
            "N=512,K=7168,device_name=X,dtype=fp8_w8a8,block_shape=[128,128].json",
            "block_scaled_mm",
            ("K", "7168"),
        ),
    ],
)
def test_what_the_name_of_a_file_tells(name: str, op: str, told: tuple[str, str]) -> None:
    entry = table(MOE, f"triton_3_5_1/{name}").entries[0]
    assert entry.op == op and told in entry.key and entry.device.name in ("X", "NVIDIA_H20-3e")


def test_the_folder_tells_the_version_of_triton() -> None:
    data = json.dumps({"1": SMALL}).encode()
    assert table(data, f"triton_3_5_1/{NAME}").facts == (("triton_version", "3.5.1"),)
    assert table(data, NAME).facts == ()
    renamed = table(data, "best.json")
    assert renamed.tuner == "moe" and renamed.entries[0].key == (("M", "1"),)


def test_steps_of_a_kernel_of_aiter() -> None:
    data = json.dumps({"_note": "made by hand", "M_LEQ_64": SMALL, "any": LARGE}, indent=2).encode()
    found = table(data, "gemm/gfx942-GEMM-A8W8_BLOCKSCALE-N=3072-K=1536.json")
    assert (found.tuner, found.facts) == ("aiter triton", (("_note", "made by hand"),))
    first = found.entries[0]
    assert (first.op, first.device) == ("GEMM-A8W8_BLOCKSCALE", TableDevice("gfx942"))
    assert first.key == (("step", "M_LEQ_64"), ("N", "3072"), ("K", "1536"))
    with pytest.raises(NotAProblem, match="a range of sizes"):
        problem_of_entry(found, first)
    folder = "configs/gfx950/gluon/gemm/gemm_afp4wfp4"
    newer = table(data, f"{folder}/DEFAULT.json").entries[0]
    assert (newer.op, newer.device, newer.key[1:]) == ("GEMM-AFP4WFP4", TableDevice("gfx950"), ())
    sized = table(data, f"{folder}/GEMM-AFP4WFP4-N=16-K=32.json").entries[0]
    assert sized.op == newer.op and sized.key[1:] == (("N", "16"), ("K", "32"))


def test_steps_within_steps() -> None:
    deep = {"fwd": {"default": SMALL, "dropout": {**LARGE, "if": {"num_warps": 1}}}, "empty": {}}
    found = table(json.dumps(deep).encode(), "gfx942-MHA-DEFAULT.json")
    assert [each.key[0][1] for each in found.entries] == ["fwd/default", "fwd/dropout", "empty"]
    assert found.entries[1].solution.endswith('num_warps=8, if={"num_warps": 1}')


def test_what_stands_twice_and_numbers_as_they_are_written() -> None:
    ladder = ladder_of(
        b'{"1": {"a": 1.50, "a": 1e3, "b": [1,\n 2], "c": "\\u00e9\xc3\xa9", "d": true},'
        b' "1": {"a": -0, "b": ' + b"9" * 5000 + b"}}"
    )
    first, again = ladder.steps
    told = ("a", "1.50"), ("a", "1e3"), ("b", "[1, 2]"), ("c", "\\u00e9é"), ("d", "true")
    assert first.path == again.path == ("1",) and again.line == 2
    assert first.config[:3] == told[:3] and first.config[4] == told[4]
    assert again.config[0] == ("a", "-0") and again.config[1][1] == "9" * 5000


def test_cut_anywhere_a_document_is_damaged() -> None:
    for cut in range(len(MOE)):
        with pytest.raises(ValueError, match=r"cut off on line|is no JSON"):
            ladder_of(MOE[:cut])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"[1]", "line 1 is no JSON"),
        (b'{"1": {"a": 1,}}', "line 1 is no JSON"),
        (b'{"1": {"a" 1}}', "line 1 is no JSON"),
        (b'{\n"1": {"a": 1} "2"}', "line 2 is no JSON"),
        (b'{"1": {"a": 1}}x', "line 1 is no JSON"),
        (b'{"1": {"a": "\xff"}}', "byte 13 is no UTF-8"),
        (b'{"1": ' * 40 + b"1" + b"}" * 40, "too deep"),
        (b'{"1": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "too deep"),
        (b" " * (MAX_DOCUMENT + 1), "larger than"),
    ],
    ids=range(9),
)
def test_what_is_no_ladder(data: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        ladder_of(data)


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (b'{"config": {"BLOCK_SIZE_M": 16}}', "config.json"),
        (b'{"op": {"inputs": {"precision": {"hash": 0.01}}}}', "44136fa355"),
        (b'{"num_warps": 4, "num_stages": 2, "configs_hash": "x"}', "abc.best_config"),
        (b'{"E": 1}', "E=1,N=2.json"),
        (b"", NAME),
        (b'{"name": "GEMM", "any": {"x": 1}}', "gfx942-GEMM.txt"),
    ],
)
def test_what_is_none_of_these_tables(head: bytes, name: str) -> None:
    assert sniff(head, name) is None
