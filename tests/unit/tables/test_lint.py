"""Each rule of `lint` finds the fault that was planted for it, where it is, and nothing in what is
well; the faults are those that people reported."""

from __future__ import annotations

import csv
import json
import random
import re
from collections import Counter
from pathlib import Path

import pytest

from backend.tables.model import TableDevice
from backend.tables.registry import parse
from rocm_tui.tables.findings import Finding, Given
from rocm_tui.tables.lint import RULE_IDS, RULES, lint
from tests.support.places import CORPUS, TABLES

MI300X = TableDevice("gfx942", 304)
VALIDATORS = (
    "Validator,PT_VERSION,2.9.0\nValidator,HIP_VERSION,70100\n"
    "Validator,HIPBLASLT_VERSION,100200-2a3887e159\nValidator,GCN_ARCH_NAME,gfx942:sramecc+:xnack-\n"
    "Validator,ROCBLAS_VERSION,5.1.0.2a3887e159\n"
)
GEMM = "GemmTunableOp_BFloat16_TN,tn_{0}_{1}_{2}_ld_{2}_{2}_{0},{3},{4}\n"
TUNABLEOP = VALIDATORS + "".join(
    GEMM.format(4096, n, 4096, "Gemm_Hipblaslt_7", 0.02 + n / 9000) for n in (16, 64, 512)
)
BF16 = (
    "gfx,cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,libtype,solidx,splitK,us,kernelName,"
    "err_ratio,tflops,bw\n"
)
BF16_ROW = (
    "{gfx},{cu},{m},4096,4096,{bias},torch.bfloat16,torch.bfloat16,False,False,asm,3,0,{us},k{k},0.0,"
    "{tflops},0\n"
)
FMOE = (
    "gfx,cu_num,token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,"
    "use_g1u1,doweight_stage1,block_m,ksplit,us1,kernelName1,err1,us2,kernelName2,err2,us,run_1stage,"
    "tflops,bw,_tag\n"
)
FMOE_ROW = (
    "gfx950,256,{token},4096,512,64,8,ActivationType.Silu,torch.bfloat16,torch.float8_e4m3fn,"
    "torch.float8_e4m3fn,QuantType.per_1x128,1,0,32,0,{us1},a,0.0%,{us2},b,0.0%,{us},0,0,0,{tag}\n"
)


def row(
    m: int,
    us: str = "50.0",
    gfx: str = "gfx942",
    cu: int = 304,
    bias: str = "False",
    k: int = 1,
    tflops: float = 0.0,
) -> str:
    return BF16_ROW.format(m=m, us=us, gfx=gfx, cu=cu, bias=bias, k=k, tflops=tflops)


def moe_row(token: int, tag: str = "", us1: float = 60, us2: float = 40, us: float = 100) -> str:
    return FMOE_ROW.format(token=token, tag=tag, us1=us1, us2=us2, us=us)


def linted(
    *files: str | tuple[str, str], device: TableDevice | None = None, **versions: str
) -> list[Finding]:
    """What is found in files of these texts, or of (name, text)."""
    tables = []
    for file in files:
        name, text = file if isinstance(file, tuple) else ("/t/table.csv", file)
        table = parse(text.encode(), name)
        assert table is not None
        tables.append(table)
    return list(lint(tables, Given(device, versions)))


def only(findings: list[Finding], rule: str) -> Finding:
    (found,) = findings
    assert found.rule == rule
    return found


def test_nothing_in_what_is_well() -> None:
    assert linted(TUNABLEOP, device=MI300X, torch="2.9", hipblaslt="100200-2a3887e159") == []
    assert linted(BF16 + row(1) + row(64) + row(512, "90"), device=MI300X) == []
    assert linted(FMOE + moe_row(1) + moe_row(32768, us1=900, us2=500, us=1400)) == []


def test_the_table_of_rules() -> None:
    assert len(set(RULE_IDS)) == len(RULES) > 20
    assert all((rule.check is None) is not (rule.check_all is None) for rule in RULES)
    assert all(rule.source for rule in RULES if rule.level == "error")


def test_pytorch_ignores_a_file_of_another_device_or_version() -> None:
    found = only(linted(TUNABLEOP, device=TableDevice("gfx950", 256)), "validator-device")
    assert found.level == "error" and "all 3 rows" in found.text and "gfx942" in found.text
    assert linted(TUNABLEOP, device=TableDevice("gfx942", 80)) == []  # units are no validator
    assert linted(TUNABLEOP, device=TableDevice("gfx942", None, "gfx942:sramecc+:xnack-")) == []
    other = TableDevice("gfx942", None, "gfx942:sramecc+:xnack+")
    only(linted(TUNABLEOP, device=other), "validator-device")
    found = only(linted(TUNABLEOP, torch="2.10"), "validator-version")
    assert "PT_VERSION is 2.9.0, not 2.10" in found.text
    only(linted(TUNABLEOP, hipblaslt="100300"), "validator-version")
    assert linted(TUNABLEOP, torch="2.9.0", rocblas="5.1.0.2a3887e") == []


@pytest.mark.parametrize(
    ("written", "same", "others"),
    [
        ("HIP_VERSION,702", ["702", "7", "7.2", "7.2.1", "7.2.53211-abc"], ["7.1", "7.20", "8"]),
        ("HIP_VERSION,70100", ["70100", "7.1", "7.1.0"], ["7.2", "7.1.1"]),
        ("HIP_VERSION,70051831", ["7.0", "7.0.51831", "7.0.51831-a3e3"], ["7.1", "7.0.51832"]),
        ("HIPBLASLT_VERSION,100200-2a3887e159", ["1.2", "1.2.0", "100200"], ["1.3", "1.2.1"]),
    ],
)
def test_a_version_in_a_number_is_compared_as_people_write_it(
    written: str, same: list[str], others: list[str]
) -> None:
    name, _, version = written.partition(",")
    text = re.sub(rf"Validator,{name},.*\n", "", TUNABLEOP) + f"Validator,{written}\n"
    library = name.partition("_")[0].lower()
    for wanted in same:
        assert not linted(text, device=None, **{library: wanted})
    for wanted in others:
        found = only(linted(text, device=None, **{library: wanted}), "validator-version")
        assert f"{name} is {version}, not {wanted}" in found.text


def test_a_prefix_of_a_version_ends_at_a_dot() -> None:
    text = TUNABLEOP.replace("2.9.0", "2.10.1")
    only(linted(text, torch="2.1"), "validator-version")
    assert linted(text, torch="2.10") == []


def test_validators_missing_and_twice() -> None:
    without = "".join(
        line for line in TUNABLEOP.splitlines(True) if "ROCBLAS" not in line and "PT_" not in line
    )
    found = only(linted(without), "validator-missing")
    assert "no PT_VERSION, ROCBLAS_VERSION among" in found.text
    only(linted(TUNABLEOP[len(VALIDATORS) :]), "validator-missing")
    old = (
        "Validator,PT_VERSION,2.2.0\nValidator,ROCM_VERSION,6.0\nValidator,HIPBLASLT_VERSION,0.6\n"
    )
    old += (
        "Validator,ROCBLAS_VERSION,4.0.0\nGemmTunableOp_float_NT,nt_25088_4096_64,Default,1.262\n"
    )
    assert linted(old) == []  # before GCN_ARCH_NAME was one
    both = TUNABLEOP + VALIDATORS.replace("2a3887e159", "976b9c4a87")
    assert [found.rule for found in linted(both)] == ["validator-twice"] * 2
    cuda = "Validator,PT_VERSION,2.9.0\nGemmTunableOp_float_TN,tn_8_8_8_ld_8_8_8,Default,0.5\n"
    assert linted(cuda) == []
    assert linted("Validator,CUBLASLT_VERSION,12.9\n" + cuda) == []
    assert linted("GemmTunableOp_float_TN,tn_8_8_8_ld_8_8_8\n") == []  # an untuned list has none


def test_windows_line_ends_make_every_validator_another() -> None:
    found = only(linted(TUNABLEOP.replace("\n", "\r\n")), "line-ends")
    assert found.level == "error" and "all 3 rows" in found.text
    rows = TUNABLEOP[len(VALIDATORS) :].replace("\n", "\r\n")
    assert linted(VALIDATORS + rows) == []  # a time is read up to the \r


def test_a_byte_order_mark_hides_the_first_word() -> None:
    """PyTorch 2.11 ignored such a file: no PT_VERSION."""
    found = only(linted("\ufeff" + TUNABLEOP), "line-ends")
    assert found.level == "error" and "all 3 rows" in found.text
    assert linted("\ufeff" + BF16 + row(1)) == []  # pandas leaves it out
    ladder = "\ufeff" + '{"1": {"BLOCK_SIZE_M": 16}}'
    name = "E=8,N=64,device_name=AMD_Instinct_MI300X.json"
    with pytest.raises(ValueError, match="BOM"):
        json.loads(ladder)
    found = only([one for one in linted((name, ladder)) if one.rule == "line-ends"], "line-ends")
    assert "json.load fails" in found.text


EMPTY = {
    "header of bf16": BF16,
    "header and blank lines": FMOE + "\n\r\n,,,\n",
    "header without an end": BF16.rstrip(),
    "validators": VALIDATORS,
    "one validator": "Validator,PT_VERSION,2.9.0",
    "columns of hipBLASLt": "Git Version: abc1234\ntransA,transB,batch_count,m,n,k,us\n",
    "a ladder": ("/t/E=8,N=64,device_name=AMD_Instinct_MI300X.json", "{}"),
    "a ladder's version": ("/t/E=8,N=64,device_name=X.json", '{"triton_version": "3.4.0"}'),
}


@pytest.mark.parametrize("file", EMPTY.values(), ids=EMPTY)
def test_a_table_without_a_row_is_no_table_without_a_fault(file: str | tuple[str, str]) -> None:
    found = only([one for one in linted(file) if one.rule != "step-name"], "no-rows")
    assert (found.level, found.line) == ("warning", None)
    assert found.text.startswith("no rows")


def test_an_untuned_list_may_be_empty() -> None:
    assert (
        only(linted("M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle\n"), "no-rows").level == "note"
    )


def test_torn_rows_are_counted_and_named() -> None:
    torn = "GemmTunableOp_Half_TN,tn_4096_2_51\n"
    (found,) = linted(VALIDATORS + torn + TUNABLEOP[len(VALIDATORS) :] + torn * 2 + torn.rstrip())
    assert (found.rule, found.level, found.line, found.count) == ("unreadable", "warning", 6, 4)
    assert "torn row" in found.text and "could not parse line" in found.todo
    found = only(linted(BF16 + row(1) + "gfx942,304,2,4096,40"), "unreadable")
    assert (found.level, found.line, "torn row" in found.text) == ("error", 3, True)
    alone = linted(VALIDATORS + torn)
    assert {one.rule for one in alone} == {"unreadable", "no-rows"}


def test_a_row_that_ends_behind_its_solution_is_short() -> None:
    cut = row(2).rpartition(",")[0]
    found = only(linted(BF16 + row(1) + cut), "short-row")
    assert (found.level, found.line) == ("warning", 3)
    last = "M,N,K,libtype,solidx,us,gfx,cu_num\n1,2,3,ck,1,5.0,gfx942,304\n"
    assert [one for one in linted(last) if one.rule == "short-row"] == []


@pytest.mark.parametrize("time", ["0", "-2", "inf", "1e300", "1e-30", "soon", ""])
def test_a_time_that_no_kernel_takes_is_found_in_each_form(time: str) -> None:
    hipblaslt = (
        "Git Version: abc1234\ntransA,transB,batch_count,m,n,k,us,solution_index,solution_name\n"
    )
    fdb = "64-28-30-3x3-96-14-15-8-1x1-2x2-1x1-0-NCHW-FP16-F={}:{},0,miopenConvolutionFwdAlgoGEMM\n"
    for file in (
        BF16 + row(1, time),
        TUNABLEOP + GEMM.format(8, 8, 8, "Default", time),
        hipblaslt + f"N,T,1,2,3,4,{time},7,Cijk\n",
        ("/t/gfx942130.HIP.fdb.txt", fdb.format("GemmA", time)),
        ("/t/gfx942130.HIP.fdb.txt", fdb.format("A:0.02,0,miopenConvolutionFwdAlgoGEMM;B", time)),
    ):
        found = only(linted(file), "no-time")
        assert found.level == "warning" and found.count == 1


def number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


AITER_KEY = (
    *"gfx cu_num M N K b m n k bias dtype outdtype scaleAB bpreshuffle q_dtype_w token".split(),
    *"model_dim inter_dim expert topk act_type q_dtype_a q_type use_g1u1 doweight_stage1".split(),
    *"shared_expert_id hidden_pad intermediate_pad gate_mode _tag".split(),
)


def counted(path: Path) -> dict[str, int]:
    """Faults of a table by plain reading of its cells."""
    with path.open(newline="") as stream:
        lines = [cells for cells in csv.reader(stream) if any(cells)]
    if any(cells[0] == "Validator" for cells in lines):
        rows = [cells for cells in lines if cells[0] != "Validator"]
        whole = [cells for cells in rows if len(cells) > 3]
        keys, times = [tuple(cells[:2]) for cells in whole], [cells[3] for cells in whole]
        torn, short = len(rows) - len(whole), 0
    else:
        head, *rows = lines
        whole = [
            cells
            for cells in rows
            if len(cells) > head.index("kernelName1" if "token" in head else "us")
        ]
        keys = [
            tuple(c for n, c in zip(head, cells, strict=False) if n in AITER_KEY) for cells in whole
        ]
        times = [cells[head.index("us")] for cells in whole]
        torn, short = len(rows) - len(whole), sum(len(cells) < len(head) for cells in whole)
    found = {
        "unreadable": torn,
        "short-row": short,
        "no-time": sum(not 0 < number(time) < 1e7 for time in times),
        "duplicate": len(keys) - len(set(keys)),
    }
    return {rule: count for rule, count in found.items() if count}


PUBLIC = [
    path
    for folder in (TABLES, CORPUS)
    for path in sorted(folder.glob("*.csv"))
    if "untuned" not in path.name
]


@pytest.mark.parametrize("path", PUBLIC, ids=lambda path: path.name)
@pytest.mark.parametrize("damage", range(4))
def test_a_public_table_beside_counts_of_its_cells(path: Path, damage: int, tmp_path: Path) -> None:
    """As it is, and with rows cut, doubled and timed 0 by seed."""
    chance = random.Random(damage)
    lines = path.read_text().splitlines()
    first = next(
        at for at, line in enumerate(lines) if not line.startswith(("Validator", "gfx,", "cu_num"))
    )
    for at in sorted(chance.sample(range(first, len(lines)), 5 * damage)):
        cells = lines[at].split(",")
        match chance.randrange(3):
            case 0:
                lines[at] = ",".join(cells[: 2 if "TunableOp" in cells[0] else 5])
            case 1:
                lines.append(lines[at])
            case _ if "TunableOp" in cells[0]:
                lines[at] = ",".join((*cells[:3], "0.0"))
    copy = tmp_path / path.name
    copy.write_text("\n".join(lines) + "\n")
    table = parse(copy.read_bytes(), str(copy))
    assert table is not None
    found: Counter[str] = Counter()
    rules = ("unreadable", "short-row", "no-time", "duplicate")
    for one in lint([table], Given(), rules):
        found[one.rule] += one.count
    assert dict(found) == counted(copy)


def test_an_index_that_no_number_holds() -> None:
    table = "Git Version: abc1234\ntransA,transB,batch_count,m,n,k,a_type,us,solution_index\n"
    findings = linted(table + f"N,T,1,2,3,4,f16_r,2,{'9' * 5000}\n")
    assert [one.rule for one in findings] == ["bare-index"]


def test_a_solution_of_another_layout() -> None:
    bad = GEMM.format(64, 64, 64, "Gemm_Hipblaslt_NN_12", 0.5)
    found = only(linted(TUNABLEOP + bad), "other-layout")
    assert found.line == 9
    assert linted(TUNABLEOP + GEMM.format(64, 64, 64, "Gemm_Hipblaslt_TN_12", 0.5)) == []


def test_a_row_of_tunableop_twice() -> None:
    again = GEMM.format(4096, 16, 4096, "Gemm_Rocblas_3", 0.021)
    found = only(linted(TUNABLEOP + again), "duplicate")
    assert (found.line, "keeps the first" in found.text, "line 6" in found.text) == (9, True, True)
    assert found.level == "warning"
    assert only(linted(TUNABLEOP + TUNABLEOP.splitlines(True)[5]), "duplicate").level == "note"


def test_lines_that_are_no_rows() -> None:
    found = only(
        linted(TUNABLEOP + "GemmTunableOp_BFloat16_TN,tn_1_1_1,no name,soon\n"), "unreadable"
    )
    assert (found.level, found.line) == ("warning", 9)
    row_of = "GemmTunableOp_BFloat16_TN,tn_1_1_1,"
    found = only(linted(TUNABLEOP + row_of + "Default,fast\n"), "no-time")
    assert (found.level, found.line) == ("warning", 9) and "uses the solution" in found.text
    assert only(linted(TUNABLEOP + row_of + "Default,nan\n"), "no-time").level == "note"
    found = only(linted(BF16 + row(1) + row(2).rstrip() + ",7\n"), "unreadable")
    assert (found.level, found.line) == ("error", 3)


def test_rows_of_other_units_as_in_aiter_4634() -> None:
    """All rows of gfx942 are for 80 units; on 304 none is ever found."""
    table = BF16 + row(1, cu=80) + row(2, cu=80) + row(1, gfx="gfx950", cu=256)
    findings = linted(table, device=MI300X)
    assert [(one.rule, one.level, one.line, one.count) for one in findings] == [
        ("other-device", "warning", 2, 2), ("other-device", "warning", 4, 1),
    ]  # fmt: skip
    assert findings[0].text.startswith("2 rows for gfx942:80 can never match gfx942:304")
    with_own = linted(table + row(1), device=MI300X)
    assert [one.level for one in with_own] == ["note", "note"]
    assert linted(table) == []  # no device, no such finding


def test_units_counted_in_pairs_as_in_aiter_4322() -> None:
    (found,) = linted(BF16 + row(1, gfx="gfx1201", cu=64), device=TableDevice("gfx1201", 32))
    assert "pairs" in found.todo


def test_models_for_another_device_are_a_note_where_their_family_has_rows() -> None:
    default = ("/a/configs/bf16_tuned_gemm.csv", BF16 + row(1))
    model = ("/a/configs/model_configs/x_bf16_tuned_gemm.csv", BF16 + row(4, gfx="gfx950", cu=256))
    assert [one.level for one in linted(default, model, device=MI300X)] == ["note"]
    findings = linted(default, model, device=TableDevice("gfx90a", 104))
    assert [one.level for one in findings] == ["warning", "note", "note"]
    assert "none of the 2 rows of these 2 tables" in findings[0].text


def test_a_key_twice_in_aiter() -> None:
    found = only(linted(BF16 + row(1) + row(2) + row(1, "40", k=2)), "duplicate")
    assert (found.level, found.line) == ("error", 4) and "line 2" in found.text
    assert linted(BF16 + row(1) + row(1, bias="True") + row(1, gfx="gfx950", cu=256)) == []


def test_a_key_in_two_files_that_are_merged_as_in_aiter_4017() -> None:
    default = ("/a/configs/bf16_tuned_gemm.csv", BF16 + row(1) + row(2))
    model = ("/a/configs/model_configs/dsv4_bf16_tuned_gemm.csv", BF16 + row(2, "45", k=2))
    found = only(linted(default, model), "merged-duplicate")
    assert found.path == model[0] and found.line == 2 and found.level == "error"
    assert "another solution" in found.text and "50 µs against 45 µs" in found.text
    apart = ("/b/bf16_tuned_gemm.csv", model[1])
    assert linted(default, apart) == []  # never read together
    kind = ("/a/configs/model_configs/a8w8_tuned_gemm.csv", model[1])
    assert linted(default, kind) == []


def test_legacy_rows_get_their_architecture_by_units() -> None:
    head, *rows = (BF16 + row(1) + row(2)).splitlines(True)
    legacy = "".join(line.partition(",")[2] for line in (head, *rows))
    findings = linted(
        ("/a/bf16_tuned_gemm.csv", legacy), ("/a/x_bf16_tuned_gemm.csv", BF16 + row(2))
    )
    assert {one.rule for one in findings} == {"missing-column", "merged-duplicate"}
    alone = linted(("/a/bf16_tuned_gemm.csv", legacy), device=TableDevice("gfx950", 256))
    assert any("2 rows for gfx942:304 can never" in one.text for one in alone)


def test_fused_moe_rows_that_no_call_comes_to() -> None:
    found = only(
        linted(
            FMOE
            + moe_row(1)
            + moe_row(40, us1=61, us=101)
            + moe_row(65536, us1=2e3, us2=2e3, us=4e3)
        ),
        "unused-row",
    )
    assert (found.count, found.line) == (2, 3) and "token 40" in found.text
    tagged = linted(FMOE + moe_row(1) + moe_row(1, "flydsl_fallback"))
    assert only(tagged, "unused-row").level == "note"
    only(linted(FMOE + moe_row(1) + moe_row(1, "mine")), "tagged-duplicate")


def test_columns_and_words() -> None:
    head = BF16.replace("gfx,", "", 1)
    found = only(linted(head + row(1).partition(",")[2]), "missing-column")
    assert found.level == "error" and "gfx" in found.text
    found = only(linted(BF16 + row(1) + row(2, bias="0")), "mixed-words")
    assert found.line == 3
    assert linted(BF16 + row(1, bias="0") + row(2, bias="1")) == []


def test_times_that_cannot_be() -> None:
    found = only(linted(BF16 + row(1) + row(2, "0.0") + row(4, "0")), "no-time")
    assert (found.line, found.count) == (3, 2)
    assert [one.line for one in linted(BF16 + row(1, "-1") + row(2, "inf") + row(4, "nan"))] == [
        2,
        3,
        4,
    ]
    found = only(linted(TUNABLEOP + GEMM.format(8, 8, 8, "Default", "inf")), "no-time")
    assert found.line == 9
    # 2 * 65536 * 4096 * 4096 in a microsecond
    found = only(linted(BF16 + row(1) + row(65536, "1.0")), "above-peak")
    assert found.level == "error" and "2,199,023 TFLOP/s" in found.text and "1,307" in found.text
    assert linted(BF16 + row(65536, "1700.0")) == []  # 1,293 of 1,307
    partition = linted(BF16 + row(65536, "1.0", cu=80))
    only(partition, "above-peak")  # no device of fewer units is faster
    assert linted(BF16 + row(65536, "1.0", gfx="gfx1250", cu=256)) == []  # its peak is not known


def test_faster_than_memory() -> None:
    wide = GEMM.format(262144, 1, 8192, "Gemm_Hipblaslt_7", 0.1)  # 4.3 GB at 43 TB/s
    assert "GB/s" in only(linted(VALIDATORS + wide), "above-peak").text
    assert linted(VALIDATORS + wide.replace(",0.1\n", ",0.9\n")) == []


def test_neighbours_that_disagree() -> None:
    found = only(linted(BF16 + row(1) + row(8, "120.0") + row(16)), "slower-than-larger")
    assert found.line == 3 and "M 8 takes 120 µs, M 16 50 µs, line 4" in found.text
    odd = BF16 + row(1) + row(8, "70.0", k=2) + row(16)
    assert only(linted(odd), "odd-one-out").level == "note"
    assert linted(BF16 + row(1) + row(8, "70.0") + row(16)) == []  # less than twice
    assert linted(BF16 + row(8, "9.0") + row(16, "4.0")) == []  # launching
    broken = linted(BF16 + row(8, "9000.0") + row(65536, "1.0"))
    only(broken, "above-peak")  # what cannot be is no neighbour


def test_a_row_that_was_copied_and_not_timed() -> None:
    found = only(linted(BF16 + row(1024, "275.4024") + row(2048, "275.4024")), "copied-time")
    assert (found.level, found.line) == ("note", 3) and "M 2048 as M 1024, line 2" in found.text
    assert linted(BF16 + row(1024, "275.4024") + row(1100, "275.4024")) == []  # one tile more
    assert linted(BF16 + row(1024, "275.4024") + row(2048, "275.4024", k=2)) == []
    assert linted(BF16 + row(1, "9.5") + row(2, "9.5")) == []


def test_numbers_that_contradict_each_other() -> None:
    true = 2 * 512 * 4096 * 4096 / 50 / 1e6
    found = only(linted(BF16 + row(512, tflops=round(10 * true, 2))), "contradiction")
    assert found.level == "warning" and "343.6" in found.text
    assert linted(BF16 + row(512, tflops=round(true, 2))) == []
    stages = linted(FMOE + moe_row(1, us1=60, us2=40, us=170))
    assert only(stages, "contradiction").level == "note"


@pytest.mark.parametrize("seed", range(20))
def test_damaged_tables_are_no_mistake_of_ours(seed: int) -> None:
    """Whatever stands in a file, rules answer."""
    chance, read = random.Random(seed), 0
    for text in (TUNABLEOP, BF16 + row(1) + row(64), FMOE + moe_row(1) + moe_row(8, "x")):
        data = bytearray(text.encode())
        for _ in range(chance.randrange(1, 12)):
            at = chance.randrange(len(data))
            data[at : at + chance.choice((0, 1, 3))] = chance.choice(JUNK)
        table = parse(bytes(data), "/t/a8w8_tuned_gemm.csv")
        if table is not None:
            lint([table, table], Given(MI300X, {"torch": "2.9", "hipblaslt": "1"}))
            read += 1
    assert read, "none of these could be read"


JUNK = (
    b"",
    b",",
    b"\n",
    b"\r\n",
    b"\x00",
    b"\xff\xfe",
    b"-",
    b"nan",
    b"9" * 30,
    b'"',
    b"1e999",
    b".",
)


def test_indices_of_hipblaslt_in_aiter() -> None:
    text = BF16 + row(1).replace(",asm,3,", ",hipblaslt,437103,")
    assert only(linted(text), "bare-index").level == "note"
