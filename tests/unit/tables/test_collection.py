"""Many tables at once: what is found is what a look at every entry finds."""

from __future__ import annotations

import random

import pytest

from backend.tables.model import Table
from backend.tables.registry import parse
from rocm_tui.tables.collection import TableCollection, parse_row_filter


def _table(name: str, data: bytes) -> Table:
    table = parse(data, name)
    assert table is not None
    return table


def _gemms(seed: int, count: int) -> bytes:
    draw = random.Random(seed)
    lines = ["Validator,GCN_ARCH_NAME,gfx942:sramecc+:xnack-"]
    for _ in range(count):
        m, n, k = (draw.choice((1, 16, 64, 4096)) for _ in range(3))
        solution = f"Gemm_Hipblaslt_{draw.randrange(40)}"
        lines.append(f"GemmTunableOp_Half_TN,tn_{m}_{n}_{k},{solution},0.{draw.randrange(9)}1")
        if draw.random() < 0.2:
            lines.append(draw.choice(("", "Gemm_Hipblaslt_3 in a line that is no row", "x,y")))
    return "\r\n".join(lines).encode()


EXPERTS = (
    b'{"triton_version": "3.4.0",\n "1": {"BLOCK_SIZE_M": 16,\n "num_warps": 4},\n'
    b' "64": {"BLOCK_SIZE_M": 64, "num_warps": 8}, "4096": {"num_warps": 3}}'
)
SHELF = TableCollection(
    [
        _table("a/results0.csv", _gemms(1, 60)),
        _table("E=8,N=176,device_name=AMD_Instinct_MI300X.json", EXPERTS),
        _table("b/results1.csv", _gemms(2, 40)),
    ]
)


def found(text: str) -> list[int]:
    return [number for number in SHELF.find(parse_row_filter(text)) if number is not None]


def by_looking_at_each(*words: bytes) -> list[int]:
    return [
        number
        for number in range(len(SHELF))
        if all(word in SHELF[number].table.text(SHELF[number].entry) for word in words)
    ]


@pytest.mark.parametrize(
    "words", ["Gemm_Hipblaslt_3", "_64_", "Gemm_Hipblaslt_3 4096", "16", "warps", "no", "e", "\r"]
)
def test_words_are_found_where_they_are(words: str) -> None:
    assert found(words) == by_looking_at_each(*(word.encode() for word in words.split()))


def test_names_tell_columns_tables_and_devices() -> None:
    assert found("M=64 tuner:moe") == [61]
    assert found("BLOCK_SIZE_M=16") == [60] and found("num_warps=1") == []
    assert found("file:a/") == list(range(60)) and found("tuner:tunableop") == [
        *range(60), *range(63, 103),
    ]  # fmt: skip
    assert found("device:MI300") == [60, 61, 62]
    same = found("solution=Gemm_Hipblaslt_7")
    assert same and all(SHELF[n].entry.solution == "Gemm_Hipblaslt_7" for n in same)
    assert found("solution=Gemm_Hipblaslt_7 file:results1") == [n for n in same if n >= 63]


def test_all_of_them_stand_in_the_order_of_their_files() -> None:
    assert found("") == list(range(103)) == list(range(len(SHELF)))
    assert SHELF[0].place == "results0.csv:2" and SHELF[63].place == "results1.csv:2"
    assert [SHELF[number].entry.line for number in (60, 61, 62)] == [2, 4, 4]


def test_whoever_looks_may_stop_though_nothing_is_found() -> None:
    assert list(SHELF.find(parse_row_filter("there is none of these"))) == [None] * 3
    assert (
        len(TableCollection(())) == 0
        and list(TableCollection(()).find(parse_row_filter("x"))) == []
    )
