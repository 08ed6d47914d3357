"""TunableOp's files: each row is read, each line that is none is told, and no byte is lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from backend.tables.model import (
    MAX_LINE,
    NOT_ITS_FORM,
    TOO_LONG,
    TORN,
    NotAProblem,
    Table,
    TableDevice,
)
from backend.tables.registry import parse, problem_of_entry, sniff, tuner_named
from rocm_tui.ingest.formats.tuned_table import TableReader
from rocm_tui.ingest.records import Seen

RESULTS = (
    b"\xef\xbb\xbfValidator,PT_VERSION,2.13.0\r\n"
    b"Validator,ROCM_VERSION,7.0.0.0-38-1234567\n"
    b"Validator,GCN_ARCH_NAME,gfx942:sramecc+:xnack-\n"
    b"GemmTunableOp_Half_TN,tn_320_64_128,Gemm_Hipblaslt_TN_12683,0.182\n"
    b"GemmTunableOp_BFloat16_TN,tn_96_16_64_ld_64_64_96,Gemm_Hipblaslt_12683,0.0125\r\n"
    b"\n"
    b"GemmAndBiasTunableOp_tf32_TN,tn_96_16_64_ld_64_64_96,Default,1e-3\n"
    b"GemmStridedBatchedTunableOp_float_NN,nn_6_4_2_B_3_ld_6_2_6,Gemm_Rocblas_-1162085757,nan,"
    b"BLAS_PARAMS: - { function: matmul, M: 6, N: 4, K: 2 }\n"
    b"GemmTunableOp_Half_TN,tn_320_64_128,Gemm Rocblas_1\n"
    b"GemmTunableOp_Half_TN,tn_320_64_128,,fast\n"
    b"Validator,ALONE\n"
    b"ScaledGemmTunableOp_Float8_e4m3fn_Float8_e4m3fn_BFloat16_TN,"
    b"tn_8_8_8_ld_8_8_8_rw_0_bias_None,Default,0.5"
)


def table(data: bytes) -> Table:
    found = parse(data, "results0.csv")
    assert found is not None and found.tuner == "tunableop"
    return found


def test_rows_of_results() -> None:
    found = table(RESULTS)
    assert found.facts[0] == ("PT_VERSION", "2.13.0") and len(found.facts) == 3
    old, new, bias, batch, scaled = found.entries
    assert (old.line, old.op, old.key) == (
        4,
        "GemmTunableOp_Half_TN",
        (("params", "tn_320_64_128"),),
    )
    assert (old.solution, old.ms) == ("Gemm_Hipblaslt_TN_12683", 0.182)
    assert old.device == TableDevice("gfx942", None, "gfx942:sramecc+:xnack-")
    assert str(replace(old.device, units=304)) == "gfx942:304"
    assert problem_of_entry(found, new).shapes == ((16, 64), (64, 96)) and new.ms == 0.0125
    assert problem_of_entry(found, bias).precision == "high" and bias.solution == "Default"
    assert batch.ms is None and batch.extra[0][1].startswith("- { function: matmul, M")
    assert scaled.line == 12 and scaled.ms == 0.5
    assert problem_of_entry(found, scaled).shapes == ((8, 8), (8, 8), (), ())
    assert [(fault.line, fault.what) for fault in found.problems] == [
        (9, TORN), (10, NOT_ITS_FORM), (11, NOT_ITS_FORM),
    ]  # fmt: skip


def test_a_row_whose_time_cannot_be_read_is_one_for_pytorch_too() -> None:
    """`ReadFile` takes the solution, and 0 as its time; of two rows the first."""
    row = b"GemmTunableOp_Half_TN,tn_8_4_2,"
    found = table(row + b"Gemm_Rocblas_1\n" + row + b"Default,fast\n")
    assert [(each.line, each.solution, each.ms) for each in found.entries] == [
        (1, "Gemm_Rocblas_1", None), (2, "Default", None),
    ]  # fmt: skip


HEAD = b"Validator,PT_VERSION,2.9.1\nValidator,GCN_ARCH_NAME,gfx1201\n"
ROW = b"GemmTunableOp_Half_TN,tn_4096_1_5120_ld_5120_5120_4096,Gemm_Hipblaslt_12683,2.4\n"
TORN_ROWS = {
    "in the sizes": b"GemmTunableOp_Half_TN,tn_4096_2_51",
    "behind the sizes": b"GemmTunableOp_Half_TN,tn_4096_2_5120_ld_5120_5120_4096",
    "behind a comma": b"GemmTunableOp_Half_TN,tn_4096_2_5120_ld_5120_5120_4096,",
    "in the solution": b"GemmTunableOp_Half_TN,tn_4096_2_5120_ld_5120_5120_4096,Gemm_Hipb",
    "in the index": b"GemmTunableOp_Half_TN,tn_4096_2_5120_ld_5120_5120_4096,Gemm_Hipblaslt_12",
    "another row behind it": b"GemmTunableOp_Half_TN,tn_4096_2_51" + ROW.rstrip(),
    "another row in its solution": b"GemmTunableOp_Half_TN,tn_4096_2_5120,Gemm_Hipb" + ROW.rstrip(),
    "another row in its time": b"GemmTunableOp_Half_TN,tn_4096_2_5120,Default,2." + ROW.rstrip(),
}


@pytest.mark.parametrize("torn", TORN_ROWS.values(), ids=TORN_ROWS)
@pytest.mark.parametrize(
    "file",
    [
        lambda torn: HEAD + ROW + torn,
        lambda torn: HEAD + torn + b"\n" + ROW,
        lambda torn: HEAD + ROW + torn + b"\r\n" + ROW,
        lambda torn: torn + b"\n" + HEAD + ROW,
        lambda torn: torn + b"\n" + ROW,
    ],
    ids=["last", "middle", "windows", "before the validators", "first"],
)
def test_a_torn_row_of_results_is_no_entry(torn: bytes, file: Callable[[bytes], bytes]) -> None:
    """PyTorch: could not parse line, or a solution that it does not have."""
    data = file(torn)
    found = table(data)
    assert {(each.solution, each.ms) for each in found.entries} == {("Gemm_Hipblaslt_12683", 2.4)}
    assert [fault.what for fault in found.problems] == [TORN]
    reader = TableReader(tuner_named("tunableop"), "results0.csv")
    records = [*reader.feed(data), *reader.close()]
    rows = [record for record in records if isinstance(record, Seen)]
    assert len(rows) == len(found.entries)
    assert all(row.tuning.choices[0].label == "Gemm_Hipblaslt_12683" for row in rows)


def test_an_untuned_list_and_results_whose_time_is_no_kernels() -> None:
    bare = b"GemmTunableOp_Half_TN,tn_8_4_2_ld_2_2_8\n"
    assert not table(bare * 3).problems and len(table(bare * 3).entries) == 3
    for time in (b"0", b"-1", b"inf", b"1e300", b"1e-30", b"nan"):
        (entry,) = table(HEAD + bare.rstrip() + b",Default," + time + b"\n").entries
        assert entry.ms is None and entry.solution == "Default"


def test_no_byte_is_lost_and_an_edit_touches_its_line_alone() -> None:
    found = table(RESULTS)
    texts = {entry: found.text(entry) for entry in found.entries}
    assert found.rewritten(texts) == found.data == RESULTS
    first, second = found.entries[0], found.entries[1]
    changed = found.text(second).replace(b"Hipblaslt_12683", b"Rocblas_7")
    assert found.rewritten({second: changed}) == RESULTS.replace(
        b"Gemm_Hipblaslt_12683", b"Gemm_Rocblas_7"
    )
    both = found.rewritten({second: b"b", first: b"a"})
    assert b"\na\nb\r\n\nGemmAnd" in both


def test_an_untuned_list_has_neither_solution_nor_time() -> None:
    found = table(
        b"GemmTunableOp_Half_TN,tn_8_4_2_ld_2_2_8\n"
        b"GemmTunableOp_Half_TN,tn_8_4_2_ld_2_2_8,BLAS_PARAMS: - { function: matmul, M: 8 }\n"
    )
    assert [(each.solution, each.ms) for each in found.entries] == [("", None)] * 2
    assert found.entries[1].extra and found.entries[0].key == found.entries[1].key


@pytest.mark.parametrize("cut", range(0, len(RESULTS), 7))
def test_cut_anywhere(cut: int) -> None:
    """Each whole line counts once: as a row, a fact, a problem or a blank."""
    found = parse(RESULTS[:cut], "x.csv")
    if found is None:
        assert cut < 15
        return
    whole = table(RESULTS)
    counted = len(found.entries) + len(found.problems) + len(found.facts)
    lines = [line for line in RESULTS[:cut].splitlines() if line.strip(b"\xef\xbb\xbf \r")]
    assert counted == len(lines)
    full = [each for each in found.entries if each.end < cut]
    assert full == whole.entries[: len(full)]


def test_hostile_lines() -> None:
    row = b"GemmTunableOp_Half_TN,tn_8_4_2,Default,1\n"
    found = table(row + b"x" * MAX_LINE + b"\n" + row + b"\0" * 50 + b"\n\x1b[31m,\xff\n" + row)
    assert [each.line for each in found.entries] == [1, 3, 6]
    assert [fault.what for fault in found.problems] == [TOO_LONG, NOT_ITS_FORM, NOT_ITS_FORM]


def test_what_is_no_table() -> None:
    assert sniff(b"M,N\n1,2\n", "a.txt") is None and parse(b"", "tunableop_results0.csv") is None


def test_entries_are_a_sequence() -> None:
    rows = table(RESULTS).entries
    assert len(rows) == 5 and rows[-1] == list(rows)[4] and rows[1:3] == list(rows)[1:3]
    with pytest.raises(IndexError):
        rows[5]


def test_products_with_scales() -> None:
    """The first type is that of torch's first factor, though the library's first is the second."""
    found = table(
        b"ScaledGemmTunableOp_Float8_e4m3fnuz_Float8_e5m2fnuz_BFloat16_TN,"
        b"tn_96_64_128_ld_128_128_96_rw_1_bias_Half,Default,0.1\n"
        b"ScaledGemmTunableOp_Float8_e4m3fn_Float8_e4m3fn_Float8_e4m3fn_TN,"
        b"tn_96_64_128_ld_128_128_96_rw_0_bias_None,Default,0.1\n"
        b"ScaledGemmTunableOp_Float8_e4m3fn_Float8_e4m3fn_Half_TN,tn_8_8_8_ld_8_8_8,Default,0.1\n"
        b"ScaledGemmTunableOp_Float8_e4m3fn_Float8_e8m0fnu_Half_TN,tn_8_8_8_ld_8_8_8_rw_0_bias_None,"
        b"Default,0.1\n"
    )
    rows, whole, older, other = found.entries
    product = problem_of_entry(found, rows)
    assert product.op == "scaled_mm"
    assert product.shapes == ((64, 128), (128, 96), (64, 1), (1, 96), (96,))
    assert product.strides[:2] == ((128, 1), (1, 128))
    assert [name.removeprefix("torch.") for name in product.dtypes] == [
        *("float8_e4m3fnuz", "float8_e5m2fnuz", "float32", "float32", "float16")
    ]
    assert product.options == (("out_dtype", ("bfloat16",)),)
    assert problem_of_entry(found, whole).shapes[2:] == ((), ())
    for entry, why in ((older, "without its scales"), (other, "Float8_e8m0fnu")):
        with pytest.raises(NotAProblem, match=why):
            problem_of_entry(found, entry)
