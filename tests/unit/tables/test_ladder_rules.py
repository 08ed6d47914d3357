"""Ladders of M, whose loaders take the nearest step or the first that is not smaller: gaps, ends,
names that no loader asks for. And indices of hipBLASLt's own files."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest

from backend.tables.model import Entry, Table, TableDevice
from backend.tables.registry import parse
from rocm_tui.tables.findings import Finding, Given
from rocm_tui.tables.lint import lint

STEP = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 1}
FULL = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024, 1536, 2048, 3072, 4096)
MOE = "E=8,N=512,device_name=AMD_Instinct_MI300X.json"


def linted(*files: tuple[str, str], device: TableDevice | None = None) -> list[Finding]:
    tables = []
    for name, text in files:
        table = parse(text.encode(), name)
        assert table is not None
        tables.append(table)
    return list(lint(tables, Given(device)))


def ladder(steps: Iterable[object], config: object = STEP) -> str:
    return json.dumps({str(step): config for step in steps}, indent=1)


def moe(steps: Iterable[object], name: str = MOE, **facts: str) -> list[Finding]:
    text = json.dumps({**facts, **{str(step): STEP for step in steps}}, indent=1)
    return linted((name, text))


def test_whole_ladders_are_well() -> None:
    assert moe(FULL) == []
    assert moe(reversed(FULL)) == []
    assert moe(FULL, triton_version="3.4.0") == []  # vLLM leaves it out
    for steps in (("M_LEQ_64", "M_LEQ_256", "any"), ("any",), ("M_LEQ_4", "M_GEQ_8")):
        assert linted(("gfx942-GEMM-A16W16.json", ladder(steps))) == []


def test_a_ladder_that_ends_early_as_in_vllm_52192() -> None:
    """Tuned for M up to 8 alone, a file made prompts slower than the default config."""
    (found,) = moe((1, 2, 4, 8))
    assert (found.rule, found.level, found.line) == ("short-ladder", "warning", 20)
    assert found.text == "every M above 8 takes the step of M 8, prompts too: the nearest is taken"
    assert moe((1, 2, 4, 8, 16, 64, 256, 1024)) == []


def test_a_ladder_that_begins_late() -> None:
    (found,) = moe((96, 128, 256, 512, 1024))
    assert found.level == "warning" and "every M below 96" in found.text
    (found,) = moe((2, 4, 16, 64, 256, 1024))
    assert found.level == "note"


def test_steps_far_apart() -> None:
    (found,) = moe((1, 64, 256, 1024))
    assert (found.rule, found.level) == (
        "wide-gap",
        "note",
    ) and "between M 1 and M 64" in found.text


def test_a_name_that_is_no_number() -> None:
    (found,) = moe((*FULL, "default"))
    assert (found.rule, found.level) == ("step-name", "error")
    in_sglang = f"/s/configs/triton_3_4_0/{MOE}"
    (found,) = moe(FULL, in_sglang, triton_version="3.4.0")
    assert found.rule == "step-name" and "SGLang" in found.text


def test_a_block_size_is_missing() -> None:
    config = {name: size for name, size in STEP.items() if name != "GROUP_SIZE_M"}
    (found,) = linted((MOE, ladder(FULL, config)))
    assert (found.rule, found.count) == ("incomplete-step", len(FULL))
    assert "GROUP_SIZE_M" in found.text
    flydsl = MOE.replace(".json", ",dtype=int4_w4a16,backend=flydsl.json")
    assert linted((flydsl, ladder(FULL, {"tile_m": 16}))) == []  # another kernel


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("E=8,N=512,device_name=NVIDIA_H100,dtype=bf16.json", "no dtype=bf16"),
        ("E=8,N=512,device_name=X,dtype=fp8_w8a8,block_shape=[128, 128].json", "vLLM never reads"),
        (
            "triton_3_4_0/E=8,N=512,device_name=X,dtype=fp8_w8a8,block_shape=[128,128].json",
            "SGLang",
        ),
        ("E=8,N=512,device_name=NVIDIA_H200_NVL.json", "calls every H200 NVIDIA_H200"),
    ],
)
def test_a_name_that_no_loader_asks_for(name: str, said: str) -> None:
    (found,) = moe(FULL, name)
    assert found.rule == "file-name" and said in found.text
    well = name.replace("triton_3_4_0/", "").replace("=bf16", "=fp8_w8a8").replace(", ", ",")
    assert moe(FULL, well.replace("_NVL", "")) == []


def test_a_step_that_a_kernel_never_looks_for() -> None:
    name = "gfx950-GEMM-A16W16-gated.json"
    (found,) = linted((name, ladder(("M_LEQ_8", "M_LEQ_16", "M_LEQ_64", "any"))))
    assert (found.rule, found.count) == ("unreachable-step", 2) and "M_LEQ_8" in found.text
    odd = ladder(("M_LEQ_31", "M_LEQ_64", "any"))
    (found,) = linted(("gfx950-GEMM-A16W16.json", odd))
    assert found.count == 1
    own = "/c/gfx950/triton/gemm/gemm_afp4wfp4_preshuffled/GEMM-AFP4WFP4_PRESHUFFLED-N=8-K=8.json"
    assert linted((own, odd)) == []  # that kernel looks for 31
    assert linted(("gfx1100-CONV-1X1.json", ladder(("M_LEQ_16384", "any")))) == []


def test_a_ladder_without_an_end() -> None:
    (found,) = linted(("gfx942-GEMM-A16W16.json", ladder(("M_LEQ_64", "M_LEQ_256"))))
    assert (found.rule, found.level) == ("open-end", "error") and "above 256" in found.text


def test_a_step_twice() -> None:
    one = json.dumps(STEP)
    other = one.replace("64", "32")
    steps = "".join(f'"{step}": {one},\n' for step in FULL)
    (found,) = linted((MOE, f'{{{steps}"8": {other}}}'))
    assert (found.rule, found.level) == ("duplicate", "error") and "keeps the last" in found.text


def test_damaged_json_is_not_silent() -> None:
    with pytest.raises(ValueError):
        parse(b'{"1": {"BLOCK_SIZE_M": 16', MOE)


def test_tables_of_other_devices() -> None:
    """A loader chooses a file by the device: one for another is no fault beside one for this."""
    mi350 = MOE.replace("MI300X", "MI350X")
    h100 = MOE.replace("AMD_Instinct_MI300X", "NVIDIA_H100_80GB_HBM3")
    device = TableDevice("gfx942", 304)
    text = ladder(FULL)
    assert linted((MOE, text), (mi350, text), (h100, text), device=device) == []
    found = linted((mi350, text), (h100, text), device=device)
    assert [one.rule for one in found] == ["other-device"] * 2
    assert linted((MOE.replace("MI300X", "MI325_OAM"), text), device=device) == []


FIND_DB = (
    "576-4-4-1x1-192-4-4-8-0x0-1x1-1x1-0-NCHW-FP32-F="
    "miopenConvolutionFwdAlgoGEMM:GemmFwd1x1_0_1,0.0412,0,miopenConvolutionFwdAlgoGEMM,not used\n"
)


def test_find_dbs_of_other_devices() -> None:
    mi300, mi210 = ("gfx942130.HIP.fdb.txt", FIND_DB), ("gfx90a68.HIP.fdb.txt", FIND_DB)
    assert linted(mi300, mi210, device=TableDevice("gfx942", 304)) == []
    (found,) = linted(mi210, device=TableDevice("gfx942", 304))
    assert found.text == "a table for gfx90a:104, which gfx942:304 never reads"


def hipblaslt(git: str, name: str) -> list[Finding]:
    """hipBLASLt's file as a table of one row, whose index is all that the rule looks at."""
    extra = (("solution_name", name),) if name else ()
    entry = Entry(3, 7, 7, "gemm", (("m", "8"), ("n", "8"), ("k", "8")), "437", 0.1, extra=extra)
    facts = (("Git Version", git),) if git else ()
    table = Table("hipblaslt", "tuning.txt", b"transA\n", facts, ("transA",), (entry,))
    return list(lint([table], Given(versions={"hipblaslt": "100300-abcdef1234"})))


def test_an_index_that_dies_with_its_library() -> None:
    assert hipblaslt("abcdef1234", "Cijk_Ailk_Bljk") == hipblaslt("", "Cijk_Ailk_Bljk") == []
    (found,) = hipblaslt("abcdef1234", "")
    assert (found.rule, found.level) == ("bare-index", "warning")
    (found,) = hipblaslt("0123456789", "")
    assert found.level == "error" and "0123456789" in found.text
    (found,) = hipblaslt("", "")
    assert found.level == "error" and "without a Git Version" in found.text


NAMES = (
    "    transA,transB,grouped_gemm,batch_count,m,n,k,alpha,lda,stride_a,beta,ldb,stride_b,ldc,"
    "stride_c,ldd,stride_d,a_type,b_type,c_type,d_type,compute_type,hipblaslt-Gflops,"
    "hipblaslt-GB/s,us,solution_index,solution_name\n"
)
PRODUCT = (
    "    N,N,0,1,1024,{n},1024,1,1024,1048576,0,1024,524288,1024,524288,1024,524288,f16_r,f16_r,"
    "f16_r,f16_r,f32_r,{rate},363.5,{us},{index},Cijk_Ailk\n"
)


def product(n: int = 512, index: int = 56537, us: float = 16.0, rate: float = 67108.9) -> str:
    return PRODUCT.format(n=n, index=index, us=us, rate=rate)


def test_rows_that_hipblaslt_leaves_out() -> None:
    git = "Git Version: abcdef1234\n"
    assert linted(("tuning.txt", git + NAMES + product() + NAMES + product(256, 7, 8))) == []
    (found,) = linted(("tuning.txt", git + NAMES + product() + product(256, 7, 8)))
    assert (found.rule, found.line) == ("unused-row", 4) and "names right above" in found.text
    (found,) = linted(("tuning.txt", git + NAMES + product(index=0)))
    assert found.rule == "unused-row" and "index 0" in found.text
    as_printed = NAMES.replace("solution_index", "soulution_index") + product()
    (found,) = linted(("tuning.txt", git + as_printed))
    assert found.rule == "unused-row" and "soulution_index" in found.text
    windows = (git + NAMES + product()).replace("\n", "\r\n")
    assert [one.rule for one in linted(("tuning.txt", windows))] == ["line-ends"]
    (found,) = linted(("tuning.txt", git + NAMES + product(rate=6.7)))
    assert found.rule == "contradiction"


def test_a_file_of_2024_has_no_names() -> None:
    """Newer releases of hipBLASLt read no row of it, and its key tells no beta."""
    row = (
        "    T,N,0,1,96,16,64,1,64,6144,{beta},64,1024,96,1536,96,1536,bf16_r,bf16_r,bf16_r,bf16_r,"
        "f32_r,0,0,0,0,0,none,0,f32_r,512,1,3,196.6,{index},gfx942:sramecc+:xnack-,304\n"
    )
    rows = [row.format(beta=beta, index=index) for beta, index in ((0, 5), (1, 7), (0, 5))]
    found = linted(("tuning.txt", "Git Version: ab12\n" + "".join(rows)))
    told = [(each.rule, each.level) for each in found if each.rule != "bare-index"]
    assert told == [("unused-row", "warning"), ("duplicate", "warning"), ("duplicate", "note")]
    assert any("as of 2024" in each.text for each in found)


def test_a_convolution_twice_in_a_perf_db() -> None:
    row = "64-28-30-3x3-96-14-15-8-1x1-2x2-1x1-0-NCHW-FP16-F=ConvAsm:1,2\n"
    twice = linted(("gfx906_60.db.txt", row + row.replace("1,2", "4,4") + row))
    assert [(one.rule, one.level, one.line) for one in twice] == [
        ("duplicate", "warning", 2),
        ("duplicate", "note", 3),
    ]
    assert "MIOpen keeps the first one" in twice[0].text
