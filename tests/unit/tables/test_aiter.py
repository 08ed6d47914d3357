"""AITER's tables: each of their forms, what a row is looked up by, what was taken, no byte lost."""

from __future__ import annotations

import pytest

from backend.model.problem import Problem
from backend.tables.aiter import FUSED
from backend.tables.model import FP8, NOT_ITS_FORM, TORN, Entry, NotAProblem, Table, TableDevice
from backend.tables.registry import parse, problem_of_entry

BF16_COLUMNS = (
    "gfx,cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,"
    "libtype,solidx,splitK,us,kernelName,err_ratio,tflops,bw"
)
BF16_ROW = "gfx942,304,16,1280,8192,False,torch.bfloat16,torch.bfloat16,False,False,"
FMOE = (
    "cu_num,token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,"
    "use_g1u1,doweight_stage1,block_m,ksplit,us1,kernelName1,err1,us2,kernelName2,err2,us,tflops,_tag"
)
FMOE_ROW = (
    "304,64,4096,1536,128,8,ActivationType.Silu,torch.bfloat16,torch.int8,torch.int8,"
    "QuantType.per_Token,1,0,32,0,20.5,up_kernel,0.0%,10.5,down_kernel,0.0%,31.0,77.1,"
)


def table(text: str, name: str = "tuned_gemm.csv") -> Table:
    found = parse(text.encode(), f"configs/{name}")
    assert found is not None and found.tuner == "aiter"
    assert found.rewritten({entry: found.text(entry) for entry in found.entries}) == text.encode()
    return found


def only(text: str, name: str = "tuned_gemm.csv") -> Entry:
    found = table(text, name)
    assert not found.problems
    (entry,) = found.entries
    return entry


def problem(text: str, name: str = "tuned_gemm.csv") -> Problem:
    found = table(text, name)
    return problem_of_entry(found, found.entries[0])


def test_a_product_of_bfloat16() -> None:
    text = f"\ufeff{BF16_COLUMNS}\r\n\r\n{BF16_ROW}asm,7,4,12.5,bf16_128x64,0.0,9.1,800.0\r\n"
    entry = only(text)
    assert (entry.line, entry.op, entry.device) == (3, "gemm_a16w16", TableDevice("gfx942", 304))
    assert entry.key[:4] == (("M", "16"), ("N", "1280"), ("K", "8192"), ("bias", "False"))
    assert [name for name, _ in entry.key][4:] == ["dtype", "outdtype", "scaleAB", "bpreshuffle"]
    assert (entry.solution, entry.ms) == ("asm bf16_128x64, splitK 4", 0.0125)
    told = ["libtype", "solidx", "splitK", "kernelName", "err_ratio", "tflops", "bw"]
    assert [name for name, _ in entry.extra] == told
    found = problem(text)
    assert found.op == "mm" and found.dtypes == ("torch.bfloat16",) * 2
    assert found.shapes == ((16, 8192), (8192, 1280)) and found.strides == ((8192, 1), (1, 8192))
    assert problem(text.replace("False,torch", "TRUE,torch")).op == "addmm"


def test_a_solution_without_a_name_is_its_index() -> None:
    def taken(cells: str) -> str:
        return only(f"{BF16_COLUMNS}\n{BF16_ROW}{cells}").solution

    assert taken("hipblaslt,3456,0,1.0,,0.0,1,1") == "hipblaslt 3456"
    assert taken("torch,0,0,1.0,nan,0.0,1,1") == "torch 0"


@pytest.mark.parametrize(
    ("us", "left"),
    [("0", "0"), ("inf", "inf"), ("1e300", "1e300"), ("1e-9", "1e-9"), ("", ""), ("x", "x")],
)
def test_what_is_no_time_is_told_as_it_is_written(us: str, left: str) -> None:
    entry = only(f"{BF16_COLUMNS}\n{BF16_ROW}asm,7,4,{us},name,0.0,9.1,800.0")
    assert entry.ms is None and ("us", left) in entry.extra


@pytest.mark.parametrize(
    ("name", "columns", "op"),
    [
        (
            "a8w8_blockscale_bpreshuffle_tuned_gemm.csv",
            "gfx,cu_num,M,N,K,libtype,us",
            "gemm_a8w8_blockscale_bpreshuffle",
        ),
        (
            "ds_a8w8_bpreshuffle_tuned_gemm.csv",
            "cu_num,M,N,K,q_dtype_w,kernelId,us",
            "gemm_a8w8_bpreshuffle",
        ),
        ("a4w4_blockscale_untuned_gemm.csv", "M,N,K", "gemm_a4w4_blockscale"),
        ("a8w8_tuned_batched_gemm.csv", "gfx,cu_num,B,M,N,K,kernelId,us", "batched_gemm_a8w8"),
        (
            "dsv4_batched_gemm_a8w8_blockscale_mxscale_tuned.csv",
            "gfx,b,m,n,k,kernelId,us",
            "batched_gemm_a8w8_blockscale_mxscale",
        ),
        ("qwen_chunk_gdn_h_opt_tuned.csv", "gfx,cu_num,dtype,K,V,H,Hg,use_h0,BV,us", "chunk_gdn_h"),
        ("mine.csv", "M,N,K", "gemm"),
    ],
)
def test_the_op_of_a_table_of_products(name: str, columns: str, op: str) -> None:
    entry = only(f"{columns}\n{','.join('8' for _ in columns.split(','))}\n", name)
    assert entry.op == op


def test_a_batch_of_bfloat16() -> None:
    found = problem("B,M,N,K\n 4, 2, 8, 16\n", "bf16_untuned_batched_gemm.csv")
    assert found.op == "bmm" and found.shapes == ((4, 2, 16), (4, 16, 8))
    assert found.strides == ((32, 16, 1), (128, 1, 16))
    with pytest.raises(NotAProblem, match="does not name the types"):
        problem("B,M,N,K\n4,2,8,16\n", "a8w8_untuned_batched_gemm.csv")


@pytest.mark.parametrize("sizes", ["B,M,N,K", "b,m,n,k"])
def test_a_batch_whose_types_the_table_names(sizes: str) -> None:
    columns = f"gfx,cu_num,{sizes},bias,dtype,outdtype,scaleAB,bpreshuffle,kernelName,us"
    row = "gfx942,304,8,16,1280,8192,False,torch.bfloat16,torch.bfloat16,False,False,a,12.5"
    found = problem(f"{columns}\n{row}\n")
    assert found.op == "bmm" and found.shapes == ((8, 16, 8192), (8, 8192, 1280))


def test_a_fused_mixture_of_experts() -> None:
    entry = only(f"{FMOE}\n{FMOE_ROW}", "tuned_fmoe.csv")
    assert entry.op == "fused_moe" and entry.device == TableDevice("", 304)
    assert entry.key[:3] == (("token", "64"), ("model_dim", "4096"), ("inter_dim", "1536"))
    assert entry.key[-1] == ("doweight_stage1", "0") and len(entry.key) == 12
    assert (entry.solution, entry.ms) == ("up_kernel + down_kernel, block_m 32", 0.031)
    assert ("us1", "20.5") in entry.extra and ("_tag", "") in entry.extra
    with pytest.raises(NotAProblem, match=FUSED):
        problem(f"{FMOE}\n{FMOE_ROW}")
    untuned = FMOE.split(",block_m")[0]
    entry = only(f"{untuned}\n{FMOE_ROW.split(',32,0,')[0]}", "untuned_grouped_fmoe.csv")
    assert (entry.op, entry.solution, entry.ms) == ("grouped_fmoe", "", None)


def test_a_row_with_fewer_cells_lacks_the_last_ones() -> None:
    text = f"{BF16_COLUMNS}\n{BF16_ROW}asm,7,4,12.5,bf16_128x64,0.0"
    entry = only(text)
    assert entry.extra[-1] == ("err_ratio", "0.0") and entry.ms == 0.0125


WHOLE = f"{BF16_ROW}asm,7,4,12.5,bf16_128x64,0.0,9.1,800.0"
NEEDED = len(f"{BF16_ROW}asm,7,4,12.5,bf16_128x64,")


@pytest.mark.parametrize("cut", range(30, len(WHOLE), 3))
@pytest.mark.parametrize("behind", ["", "\n", f"\n{WHOLE}\n"])
def test_a_row_of_results_that_was_cut_is_no_entry(cut: int, behind: str) -> None:
    """Its last cell may be cut too, so it is an entry only where that is behind all that counts."""
    found = table(f"{BF16_COLUMNS}\n{WHOLE}\n{WHOLE[:cut]}{behind}")
    assert {(each.solution, each.ms) for each in found.entries} == {
        ("asm bf16_128x64, splitK 4", 0.0125)
    }
    torn = [fault for fault in found.problems if fault.what == TORN]
    assert bool(torn) is (cut < NEEDED)
    assert len(found.entries) + len(torn) == (3 if len(behind) > 1 else 2)


@pytest.mark.parametrize("name", ["a8w8_blockscale_tuned_gemm.csv", "mine.csv"])
def test_a_row_without_its_solution_is_torn(name: str) -> None:
    columns = "gfx,cu_num,M,N,K,libtype,kernelId,splitK,us,kernelName,tflops,bw,errRatio"
    whole = "gfx942,304,16,1024,3072,ck,1,0,7.1,a8w8_x,14.18,300.0,0.0"
    for torn in (
        "gfx942,304,32,1024,30",
        "gfx942,304,32,1024,3072",
        "gfx942,304,32,1024,3072,",
        "gfx942,304,32,1024,3072,,,,,,,,",
        "gfx942,304,32,1024,3072,ck,1,0,7.1,a8w8_",
    ):
        found = table(f"{columns}\n{whole}\n{torn}\n{whole}", name)
        assert [(fault.line, fault.what) for fault in found.problems] == [(3, TORN)]
        assert [each.line for each in found.entries] == [2, 4]


def test_lines_that_are_no_rows() -> None:
    found = table(
        "M,N,K,q_dtype_w\n,,,\n\n1,2,3,torch.int8\t\n1,2,3\n1,2,3,torch.int8,9\nM,N,K,q_dtype_w\n"
        '1,2,3,"torch.int8"\n1,2,3,"x\n'
    )
    assert [(fault.line, fault.what) for fault in found.problems] == [
        (5, NOT_ITS_FORM),
        (6, "more cells than columns"),
        (7, "the names of the columns once more"),
    ]
    blank, quoted, open_quote = (dict(entry.key)["q_dtype_w"] for entry in found.entries)
    assert (blank, quoted, open_quote) == ("torch.int8\t", "torch.int8", "x")


@pytest.mark.parametrize(
    ("was", "becomes", "reason"),
    [
        ("False,False,asm", "True,False,asm", FP8),
        ("False,False,asm", "False,True,asm", "bpreshuffle"),
        ("torch.bfloat16,torch.bfloat16", "torch.bfloat16,torch.float32", "another type"),
        ("torch.bfloat16,torch.bfloat16", "torch.int8,torch.int8", FP8),
        ("8192,False", "8192,maybe", NOT_ITS_FORM),
        ("8192", "8_192", NOT_ITS_FORM),
        ("8192", "0", "a size of 0"),
    ],
)
def test_what_is_no_problem_of_torch(was: str, becomes: str, reason: str) -> None:
    text = f"{BF16_COLUMNS}\n{BF16_ROW}asm,7,4,12.5,name,0.0,9.1,800.0"
    with pytest.raises(NotAProblem, match=reason):
        problem(text.replace(was, becomes, 1))
