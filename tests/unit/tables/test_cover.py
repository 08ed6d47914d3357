"""`rocm-tui cover`: logs against tables, the lists that are written, read by whoever tunes them."""

from __future__ import annotations

import csv
import json
import random
import shlex
from collections import Counter
from pathlib import Path

import pytest

from backend.tables.registry import parse
from rocm_tui.cli.entry import main
from tests.support.places import CORPUS, TABLES

HEAD = "gfx,cu_num,M,N,K,libtype,kernelId,splitK,us,kernelName,tflops,bw,errRatio"
LADDER = '{"1": {"BLOCK_SIZE_M": 16, "num_warps": 4}, "64": {"BLOCK_SIZE_M": 32, "num_warps": 8}}'
FUSED = (
    "token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,"
    "doweight_stage1"
)


def miss(m: int, table: str = "a8w8_blockscale_tuned_gemm", n: int = 1536) -> str:
    return (
        f"[aiter] shape is M:{m}, N:{n}, K:7168, not found tuned config in /tmp/{table}.csv, will "
        "use default config!\n"
    )


def experts(token: int, act: str = "Silu", arch: str = "'gfx942', ") -> str:
    return (
        f"[aiter] [fused_moe] using 2stage default for ({arch}304, {token}, 7168, 256, 256, 8, "
        f"'ActivationType.{act}', 'torch.bfloat16', 'torch.int8', 'torch.uint32', "
        "'QuantType.per_Token', True, False) \n"
    )


def row(m: int, gfx: str = "gfx942", units: int = 304, n: int = 1536) -> str:
    return f"{gfx},{units},{m},{n},7168,ck,3,0,11.5,kernel_{m},1.0,2.0,0.0\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def covered(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, object]]:
    code = main(["cover", *words, "--json"])
    return code, json.loads(capsys.readouterr().out)


def outcomes(value: dict[str, object]) -> dict[str, str]:
    """By M, or by whatever comes first in the key."""
    rows = value["rows"]
    assert isinstance(rows, list)
    return {next(iter(row["key"].values())): row["outcome"] for row in rows}


def test_the_most_asked_for_stand_first_and_code_1(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("a.log").write_text(miss(1) + miss(64) * 3 + experts(2048) * 2)
    assert main(["cover", "a.log"]) == 1
    out = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in out[1:4]] == [
        ["missed", "3", "50.0"],
        ["missed", "2", "33.3"],
        ["missed", "1", "16.7"],
    ]
    assert out[4] == "looked up 3 products 6 times: 3 missed, 100 % of the times"


def test_only_what_is_missed_is_listed_and_all_is_counted(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("a.log").write_text(miss(64) + miss(128))
    Path("my.csv").write_text(f"{HEAD}\n{row(64)}")
    assert outcomes(covered(capsys, "a.log", "my.csv")[1]) == {"64": "covered", "128": "missed"}
    value = covered(capsys, "a.log", "my.csv", "--missed")[1]
    assert (outcomes(value), value["products"]) == ({"128": "missed"}, 2)


def test_aiter_rounds_m_up_twice(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """First by a step, as 61 to 64 and 5000 to 5120; then to a power of two, as 33 to 64."""
    Path("a.log").write_text("".join(map(miss, (61, 5000, 9000, 20, 33))))
    table = "".join(map(row, (64, 5120, 16384, 32)))
    Path("a8w8_blockscale_tuned_gemm.csv").write_text(f"{HEAD}\n{table}")
    code, value = covered(capsys, "a.log", "a8w8_blockscale_tuned_gemm.csv")
    assert code == 0
    found = {row["key"]["M"]: row["entry"] for row in value["rows"]}  # type: ignore[attr-defined]
    near = {m: entry and (entry["near"], entry["line"]) for m, entry in found.items()}
    assert near == {
        "61": ("as M 64", 2),
        "5000": ("as M 5120", 3),
        "9000": ("as M 16384", 4),
        "20": ("as M 32", 5),
        "33": ("as M 64", 2),
    }


def test_another_device_s_rows_do_not_count(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("a.log").write_text(miss(64))
    Path("my.csv").write_text(f"{HEAD}\n{row(64, 'gfx950', 256)}")
    assert covered(capsys, "a.log", "my.csv", "--device", "gfx942:304")[0] == 1
    assert covered(capsys, "a.log", "my.csv", "--device", "MI355X")[0] == 0
    assert covered(capsys, "a.log", "my.csv", "--device", "gfx950:256")[0] == 0
    assert covered(capsys, "a.log", "my.csv", "--device", "gfx950:128")[0] == 1
    assert main(["cover", "a.log", "my.csv"]) == 0
    assert "the log does not name the device" in capsys.readouterr().out


def test_an_older_untuned_list_asks_for_what_its_columns_do_not_tell(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """AITER's own list for llama70B lacks `bpreshuffle`, which its table has."""
    asked, told = "M,N,K,bias,dtype,scaleAB", "outdtype,bpreshuffle"
    bf16 = "torch.bfloat16"
    Path("bf16_untuned_gemm.csv").write_text(
        f"{asked}\n1,1280,8192,False,{bf16},False\n2,1280,8192,False,{bf16},False\n"
    )
    Path("bf16_tuned_gemm.csv").write_text(
        f"gfx,cu_num,{asked},{told},libtype,solidx,splitK,us,kernelName\n"
        f"gfx950,256,1,1280,8192,False,{bf16},False,{bf16},False,asm,1,1,7.1,k\n"
        f"gfx950,256,2,1280,8192,False,{bf16},False,{bf16},True,asm,1,1,7.1,k\n"
    )
    code, value = covered(capsys, "bf16_untuned_gemm.csv", "bf16_tuned_gemm.csv")
    assert (code, outcomes(value)) == (1, {"1": "covered", "2": "missed"})
    (near,) = (row["entry"]["near"] for row in value["rows"] if row["entry"])  # type: ignore[attr-defined]
    assert near == f"outdtype {bf16}, bpreshuffle False"


def test_a_table_of_another_op_does_not_count(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("a.log").write_text(miss(64))
    Path("a4w4_blockscale_tuned_gemm.csv").write_text(f"{HEAD}\n{row(64)}")
    assert covered(capsys, "a.log", "a4w4_blockscale_tuned_gemm.csv")[0] == 1


def test_experts_of_another_activation_and_of_fewer_tokens(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = "torch.bfloat16,torch.int8,torch.uint32,QuantType.per_Token,1,0,64,0,9.0,k1,k2"
    head = f"gfx,cu_num,{FUSED},block_m,ksplit,us,kernelName1,kernelName2,_tag\n"
    Path("tuned_fmoe.csv").write_text(
        head
        + f"gfx942,304,64,7168,256,256,8,ActivationType.Gelu,{asked},\n"
        + f"gfx942,304,32768,7168,256,256,8,ActivationType.Silu,{asked},\n"
        + f"gfx942,304,128,7168,256,256,8,ActivationType.Silu,{asked},flydsl_fallback\n"
        + f"gfx950,256,256,7168,256,256,8,ActivationType.Silu,{asked},\n"
    )
    tokens = (64, 131072, 128, 256, 16)
    Path("a.log").write_text("".join(map(experts, tokens)))
    _, value = covered(capsys, "a.log", "tuned_fmoe.csv")
    assert outcomes(value) == {
        "64": "covered",
        "131072": "covered",
        "128": "missed",
        "256": "missed",
        "16": "missed",
    }
    rows = value["rows"]
    assert isinstance(rows, list)
    near = {row["key"]["token"]: row["entry"]["near"] for row in rows if row["entry"]}
    assert near == {"64": "of another activation", "131072": "as 32768 tokens"}


def test_tunableop_s_own_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = "GemmTunableOp_Half_TN,tn_64_8_32_ld_32_32_64", "GemmTunableOp_Half_NN,nn_4_8_2"
    Path("tunableop_untuned0.csv").write_text(f"{one}\n{two}\n")
    Path("tunableop_results0.csv").write_text(f"Validator,PT_VERSION,2.9.0\n{one},Default,0.01\n")
    _, value = covered(capsys, "tunableop_untuned0.csv")
    assert outcomes(value) == {"tn_64_8_32_ld_32_32_64": "missed", "nn_4_8_2": "missed"}
    rows = value["rows"]
    assert isinstance(rows, list)
    assert [row["ran"] for row in rows] == [[{"what": "Default", "times": 1}]] * 2
    code, value = covered(capsys, "tunableop_untuned0.csv", "tunableop_results0.csv")
    assert code == 1
    assert outcomes(value)["tn_64_8_32_ld_32_32_64"] == "covered"
    assert main(["cover", "tunableop_untuned0.csv", "--write", "again.csv"]) == 1
    assert Path("again.csv").read_text() == f"{one}\n"
    assert "without leading dimensions" in capsys.readouterr().err


def test_one_product_is_looked_up_on_each_device(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    product = "GemmTunableOp_Half_TN,tn_64_8_32_ld_32_32_64"
    paths = []
    for arch in ("gfx942", "gfx90a"):
        for name, end in (("untuned0", ""), ("results0", ",Default,0.1")):
            path = Path(arch, f"tunableop_{name}.csv")
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"Validator,GCN_ARCH_NAME,{arch}\n{product}{end}\n")
            paths.append(str(path))
    code, value = covered(capsys, *paths)
    rows = value["rows"]
    assert code == 0 and isinstance(rows, list)
    assert [row["outcome"] for row in rows] == ["covered", "covered"]
    assert {row["entry"]["path"] for row in rows} == {path for path in paths if "results" in path}


def test_experts_of_an_older_list_have_no_activation(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head = FUSED.replace("act_type,", "")
    asked = (
        "64,7168,256,256,8,torch.bfloat16,torch.int8,torch.uint32,QuantType.per_Token,True,False"
    )
    Path("untuned_fmoe.csv").write_text(f"{head}\n{asked}\n")
    Path("tuned_fmoe.csv").write_text(
        f"cu_num,{head},block_m,kernelName1,kernelName2,us\n304,{asked},32,a,b,3.0\n"
    )
    code, value = covered(capsys, "untuned_fmoe.csv", "tuned_fmoe.csv")
    assert code == 0 and outcomes(value) == {"64": "covered"}


def test_fp8_products_that_pytorch_s_reader_refuses_are_left_out(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "ScaledGemmTunableOp_Float8_e4m3fn_Float8_e4m3fn_BFloat16"
    told = f"{name}_TN,tn_16_8_32_ld_32_32_16_rw_1_bias_None"
    older, other = f"{name}_TN,tn_8_8_8_ld_8_8_8", f"{name}_NN,nn_8_8_8_ld_8_8_8_rw_0_bias_None"
    Path("tunableop_untuned0.csv").write_text(f"{told}\n{older}\n{other}\n")
    main(["cover", "tunableop_untuned0.csv", "--write", "again.csv"])
    assert Path("again.csv").read_text() == f"{told}\n"
    errors = capsys.readouterr().err
    assert "without its scales" in errors and "another layout than TN" in errors


def test_a_server_s_ladder_counts_by_its_name(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "E=16,N=8,device_name=AMD_Instinct_MI300X,block_shape=[128,128].json"
    Path("a.log").write_text(
        "Using default MoE config. Performance might be sub-optimal! Config file not found at "
        f"/v/{name}\n"
    )
    assert covered(capsys, "a.log")[0] == 1
    folder.joinpath("tables").mkdir()
    spaced = folder / "tables" / name.replace("128,128", "128, 128")
    spaced.write_text(LADDER)  # SGLang's way to write it, which vLLM does not find
    assert covered(capsys, "a.log", "tables")[0] == 1
    spaced.rename(spaced.with_name(name))
    code, value = covered(capsys, "a.log", "--table", "tables")
    assert (code, outcomes(value)) == (0, {"16": "covered"})


def test_the_written_lists_are_those_of_the_tuners(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = "dtype='torch.bfloat16' otype='torch.bfloat16' bias=True, scaleAB=False"
    Path("a.log").write_text(
        miss(1)
        + miss(64) * 2
        + experts(64)
        + f"shape is M:1, N:32, K:4096 {typed}, bpreshuffle=False, not found tuned config in "
        + "/tmp/bf16_tuned_gemm.csv, will use default config! using torch solution:0\n"
        + miss(7, "bf16_tuned_gemm")
    )
    assert main(["cover", "a.log", "--write", "todo.csv"]) == 1
    captured = capsys.readouterr()
    assert "1 × AITER, the log does not name their types" in captured.err
    assert "gemm_moe_tune.py -i todo.untuned_fmoe.csv -o tuned_fmoe.csv" in captured.out
    texts = {path.name: path.read_text() for path in folder.glob("todo*")}
    assert texts == {
        "todo.a8w8_blockscale_untuned_gemm.csv": "M,N,K\n64,1536,7168\n1,1536,7168\n",
        "todo.bf16_untuned_gemm.csv": (
            "M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle\n"
            "1,32,4096,True,torch.bfloat16,torch.bfloat16,False,False\n"
        ),
        "todo.untuned_fmoe.csv": (
            f"{FUSED}\n64,7168,256,256,8,ActivationType.Silu,torch.bfloat16,torch.int8,torch.int4,"
            "QuantType.per_Token,1,0\n"
        ),
    }
    for name, text in texts.items():
        table = parse(text.encode(), name)
        assert table is not None
        assert not table.problems
        assert len(table.entries) == text.count("\n") - 1


@pytest.mark.parametrize(
    "word", ["exit()", "__import__", "a.b.c", "torch.int8;x", "[1]", "a-b", "lambda:0", "torch."]
)
def test_what_aiter_s_tuner_evaluates_is_a_name_or_a_number(
    folder: Path, capsys: pytest.CaptureFixture[str], word: str
) -> None:
    columns = "M,N,K,q_dtype_w"
    Path("a8w8_untuned_gemm.csv").write_text(
        f"{columns}\n1,1536,7168,{word}\n2,1536,7168,torch.int8\n"
    )
    assert main(["cover", "a8w8_untuned_gemm.csv", "--write", "todo.csv"]) == 1
    assert Path("todo.csv").read_text() == f"{columns}\n2,1536,7168,torch.int8\n"
    assert "with a word that no list can hold" in capsys.readouterr().err


def test_nothing_is_replaced_without_force(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("a.log").write_text(miss(1))
    Path("todo.csv").write_text("mine")
    assert main(["cover", "a.log", "--write", "todo.csv"]) == 1
    assert "exists already" in capsys.readouterr().err
    assert Path("todo.csv").read_text() == "mine"
    main(["cover", "a.log", "--write", "todo.csv", "--force"])
    assert Path("todo.csv").read_text() == "M,N,K\n1,1536,7168\n"
    assert sorted(path.name for path in folder.iterdir()) == ["a.log", "todo.csv"]


def test_what_a_shell_is_given_holds_no_command_of_a_log(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evil = "E=16,N=8,device_name=$(touch x);`id`,dtype=fp8_w8a8.json"
    Path("a.log").write_text(f"Config file not found at /v/{evil}\n")
    main(["cover", "a.log", "--write", "todo.sh"])
    text = Path("todo.sh").read_text()
    words = shlex.split(text, comments=True)
    assert words[:2] == ["python3", "benchmarks/kernels/benchmark_moe.py"]
    assert not any(char in "".join(words) for char in ";`(")
    assert text.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("a.log", "--device", "304"), 2),
        (("a.log", "--force"), 2),
        (("my.csv",), 2),
        (("none.log",), 1),
        (("a.log", "--table", "a.log"), 1),
        (("empty.log",), 1),
    ],
)
def test_one_line_says_what_is_wrong(
    folder: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], code: int
) -> None:
    Path("a.log").write_text(miss(1))
    Path("empty.log").write_text("INFO server started\n")
    Path("my.csv").write_text(f"{HEAD}\n{row(64)}")
    assert main(["cover", *words]) == code
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)


def test_all_found_is_0(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.log").write_text(
        "shape is M:64, N:1536, K:7168, found padded_M: 64, N:1536, K:7168 is tuned on cu_num = "
        "256 in /c/my.csv , kernel name is _ZN5k, splitK is 0!\n"
    )
    assert main(["cover", "a.log"]) == 0
    assert main(["cover", "a.log", "--missed"]) == 0
    assert "looked up 1 product 1 time: 1 found" in capsys.readouterr().out


def test_hipblaslt_says_what_it_is_asked_not_what_is_tuned(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = (
        "hipblaslt-bench --api_method c -m 48 -n 176 -k 1024 --transA N --transB T "
        "--batch_count 1 --a_type bf16_r --b_type bf16_r --c_type bf16_r --d_type bf16_r "
        "--compute_type f32_r"
    )
    Path("a.log").write_text(f"{call} --algo_method index --solution_index 7\n" * 5)
    code, value = covered(capsys, "a.log", "--write", "bench.sh")
    assert (code, outcomes(value), value["times"]) == (1, {"N": "unknown"}, 5)
    assert Path("bench.sh").read_text() == f"{call}\n"
    head = (
        "transA,transB,batch_count,m,n,k,a_type,b_type,c_type,d_type,compute_type,us,solution_index"
    )
    for n, outcome in ((176, "covered"), (175, "missed")):
        Path("tuning.txt").write_text(
            f"Git Version: abc\n{head}\nN,T,1,48,{n},1024,bf16_r,bf16_r,bf16_r,bf16_r,f32_r,9.0,7\n"
        )
        assert outcomes(covered(capsys, "a.log", "tuning.txt")[1]) == {"N": outcome}


def test_inductor_s_products_in_tables_of_the_library_that_aten_calls(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    block = (
        "AUTOTUNE mm(2048x512, 512x{n})\n"
        "strides: [512, 1], [1, 512]\n"
        "dtypes: torch.bfloat16, torch.bfloat16\n"
        "  mm 2.7136 ms 100.0% \n"
        "  triton_mm_1 2.8 ms 96.9% BLOCK_K=32\n"
        "SingleProcess AUTOTUNE benchmarking takes 1.5 seconds and 0.2 seconds precompiling for "
        "2 choices\n"
    )
    Path("a.log").write_text(block.format(n=1024) + block.format(n=4096) + miss(64))
    Path("results.csv").write_text(
        "Validator,PT_VERSION,2.9.0\n"
        "GemmTunableOp_BFloat16_TN,tn_1024_2048_512_ld_512_512_1024,Gemm_Hipblaslt_9,0.5\n"
        "GemmTunableOp_BFloat16_NN,nn_4096_2048_512_ld_4096_512_4096,Gemm_Hipblaslt_9,0.5\n"
    )
    code, value = covered(capsys, "a.log", "results.csv")
    assert code == 1
    rows = value["rows"]
    assert isinstance(rows, list)
    told = {row["key"].get("shapes", row["op"]): (row["outcome"], row["entry"]) for row in rows}
    assert told["2048x512, 512x1024"][0] == "covered"
    assert told["2048x512, 512x1024"][1]["line"] == 2
    assert told["2048x512, 512x4096"] == ("missed", None)  # that row is of another layout
    assert len(covered(capsys, "a.log")[1]["rows"]) == 1  # type: ignore[arg-type]
    main(["cover", "a.log", "results.csv", "--write", "todo.csv"])
    assert Path("todo.csv").read_text() == "M,N,K\n64,1536,7168\n"
    assert "2048x512, 512x4096ᵀ bfloat16" in capsys.readouterr().out


def test_ls_of_such_a_log_says_who_reads_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("a.log").write_text(miss(1) * 2 + miss(64) + "INFO ready\n")
    assert main(["ls", "a.log"]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == (
        "rocm-tui: 2 products missed in tuned tables: rocm-tui cover a.log"
    )


def test_the_command_that_tunes_names_the_file_for_a_shell(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("a.log").write_text("ResultEntry found for x\n" + miss(1))
    code, value = covered(capsys, "a.log", "--write", "my {list}; x.csv")
    (written,) = value["written"]  # type: ignore[misc]
    words = shlex.split(written["run"])
    assert code == 1
    assert words[words.index("-i") + 1] == "my {list}; x.csv"


def test_sizes_are_ordered_as_numbers(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where they were asked for as often: M, then N; of TunableOp's signatures each number."""
    Path("a.log").write_text("".join(miss(m, n=n) for m in (64, 8, 128) for n in (1024, 9, 128)))
    rows = covered(capsys, "a.log")[1]["rows"]
    assert [(row["key"]["M"], row["key"]["N"]) for row in rows] == [  # type: ignore[attr-defined]
        (m, n) for m in ("8", "64", "128") for n in ("9", "128", "1024")
    ]
    op = "GemmTunableOp_Half_TN"
    Path("untuned.csv").write_text(
        "".join(f"{op},tn_{n}_8_{k}\n" for n in (100, 20) for k in (9, 10))
    )
    rows = covered(capsys, "untuned.csv")[1]["rows"]
    assert [row["key"]["params"] for row in rows] == [  # type: ignore[attr-defined]
        "tn_20_8_9", "tn_20_8_10", "tn_100_8_9", "tn_100_8_10",
    ]  # fmt: skip


def near_miss(value: dict[str, object]) -> object:
    (row,) = value["rows"]  # type: ignore[misc]
    assert row["outcome"] == "missed" and row["entry"] is None
    return row["near_miss"] and (row["near_miss"]["near"], row["near_miss"]["line"])


@pytest.mark.parametrize(
    ("name", "rows", "device", "near"),
    [
        ("a8w8_blockscale_tuned_gemm.csv", row(64, units=80), "gfx942:304", ("for gfx942:80", 2)),
        ("mine.csv", row(64, "gfx950", 256), "gfx942:304", ("for gfx950:256", 2)),
        ("a.csv", row(8) + row(64, "gfx1201", 64), "gfx1201:32", ("for gfx1201:64", 3)),
        ("a4w4_blockscale_tuned_gemm.csv", row(64), "gfx942:304",
         ("in a table of gemm_a4w4_blockscale", 2)),
        ("a8w8_bpreshuffle_tuned_gemm.csv", row(64), "MI300X",
         ("in a table of gemm_a8w8_bpreshuffle", 2)),
        ("mine.csv", row(8) + row(65), "gfx942:304", None),
    ],
)  # fmt: skip
def test_a_product_that_another_device_or_op_has_is_named(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    rows: str,
    device: str,
    near: tuple[str, int] | None,
) -> None:
    Path("a.log").write_text(miss(64))
    Path(name).write_text(f"{HEAD}\n{rows}")
    code, value = covered(capsys, "a.log", name, "--device", device)
    assert (code, near_miss(value)) == (1, near)
    main(["cover", "a.log", name, "--device", device])
    out = capsys.readouterr().out
    assert ("1 missed product for another device or under another name" in out) is bool(near)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("E=16,N=8,device_name=AMD_Instinct_MI325X,block_shape=[128,128].json",
         ("for AMD_Instinct_MI325X", None)),
        ("E=16,N=8,device_name=AMD_Instinct_MI300X_OAM,block_shape=[128,128].json",
         ("for AMD_Instinct_MI300X_OAM", None)),
        ("E=16,N=8,device_name=AMD_Instinct_MI300X,block_shape=[128, 128].json",
         ("called E=16,N=8,device_name=AMD_Instinct_MI300X,block_shape=[128, 128].json", None)),
        ("E=16,N=8,device_name=AMD_Instinct_MI300X.json", None),
        ("E=16,N=16,device_name=AMD_Instinct_MI300X,block_shape=[128,128].json", None),
    ],
)  # fmt: skip
def test_a_ladder_of_another_name_is_named(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    near: tuple[str, None] | None,
) -> None:
    asked = "E=16,N=8,device_name=AMD_Instinct_MI300X,block_shape=[128,128].json"
    Path("a.log").write_text(f"Using default MoE config. Config file not found at /v/{asked}\n")
    Path(name).write_text(LADDER)
    code, value = covered(capsys, "a.log", "--table", name)
    assert (code, near_miss(value)) == (1, near)


def test_miopen_s_problems_in_its_find_dbs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = "3-224-224-7x7-64-112-112-{}-3x3-2x2-1x1-0-NCHW-FP32-F"
    looked = "MIOpen(HIP): Info2 [FindRecord] Looking for key {} in file /o/gfx942130.HIP.fdb.txt\n"
    matched = f"MIOpen(HIP): Info2 [FindRecord] Key match: {key.format(8)}\n"
    Path("a.log").write_text("".join(looked.format(key.format(n)) for n in (8, 16, 4)) + matched)
    assert outcomes(covered(capsys, "a.log")[1]) == {
        key.format(8): "found", key.format(16): "unknown", key.format(4): "unknown",
    }  # fmt: skip
    line = f"{key.format(16)}=GemmFwdRest:3.1,0,miopenConvolutionFwdAlgoGEMM\n"
    Path("gfx942130.HIP.fdb.txt").write_text(line)
    Path("gfx906_60.HIP.fdb.txt").write_text(line.replace("-16-", "-4-"))
    code, value = covered(capsys, "a.log", "--table", "gfx942130.HIP.fdb.txt", "--table", ".")
    assert code == 1
    assert outcomes(value) == {
        key.format(8): "found", key.format(16): "covered", key.format(4): "missed",
    }  # fmt: skip
    near = [row["near_miss"]["near"] for row in value["rows"] if row["near_miss"]]  # type: ignore[attr-defined]
    assert near == ["for gfx906:60"]


def cells(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


needs_tables = pytest.mark.skipif(not TABLES.is_dir(), reason="the public tables are not here")


@needs_tables
def test_an_untuned_list_beside_counts_of_its_cells(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exact hits, and those of a larger M, counted from the cells by AITER's rule."""
    untuned, tuned = (
        TABLES / "aiter_bf16_untuned_llama70B.csv",
        TABLES / "aiter_bf16_tuned_llama70B.csv",
    )
    names = ("N", "K", "bias", "dtype", "scaleAB")
    have = {(row["M"], *(row[name] for name in names)) for row in cells(tuned)
            if row["bpreshuffle"] == "False" and row["outdtype"] == row["dtype"]}  # fmt: skip
    asked = {(row["M"], *(row[name] for name in names)) for row in cells(untuned)}
    exact = asked & have
    code, value = covered(capsys, str(untuned), str(tuned))
    rows = value["rows"]
    assert isinstance(rows, list) and len(rows) == len(asked)
    hits = [row for row in rows if row["entry"]]
    assert sum("as M" not in (row["entry"]["near"] or "") for row in hits) == len(exact)
    assert 0 < len(exact) <= len(hits) and code == (len(hits) != len(rows))


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus of real logs is not here")
@pytest.mark.parametrize("seed", range(3))
def test_two_ranks_of_tunableop_beside_counts_of_their_lines(
    folder: Path, capsys: pytest.CaptureFixture[str], seed: int
) -> None:
    """What rank 1 tuned, asked for as often as drawn; rank 0 has what it has."""
    results = {
        rank: [
            tuple(line.split(",")[:2])
            for line in (CORPUS / f"tunableop_results{rank}_mi300_rocmvllm.csv")
            .read_text()
            .splitlines()
            if "TunableOp_" in line
        ]
        for rank in (0, 1)
    }
    chance = random.Random(seed)
    asked = [key for key in results[1] for _ in range(chance.randrange(3))]
    chance.shuffle(asked)
    Path("server.log").write_text(
        "".join(
            f"[W pid=1] missing params_signature, returning null ResultEntry for {op},{params}\n"
            for op, params in asked
        )
    )
    table = CORPUS / "tunableop_results0_mi300_rocmvllm.csv"
    _, value = covered(capsys, "server.log", str(table))
    rows = value["rows"]
    assert isinstance(rows, list) and value["times"] == len(asked)
    times = {(row["op"], row["key"]["params"]): row["times"] for row in rows}
    assert times == Counter(asked)
    found = {(row["op"], row["key"]["params"]) for row in rows if row["outcome"] == "covered"}
    assert found == set(asked) & set(results[0])


@needs_tables
def test_experts_beside_counts_of_their_cells(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tuned = TABLES / "aiter_fmoe_tuned_kimik3.csv"
    names = FUSED.split(",")
    rows = [{name: one[name] for name in names} for one in cells(tuned)]
    wanted = [one for at, one in enumerate(rows) if at % 2]
    other = [one | {"inter_dim": "9"} for one in wanted]
    lines = (",".join(one[name] for name in names) for one in (*wanted, *other))
    Path("untuned_fmoe.csv").write_text("\n".join((FUSED, *lines)) + "\n")
    code, value = covered(capsys, "untuned_fmoe.csv", str(tuned))
    different = {tuple(one.values()) for one in wanted}
    outcome = Counter(outcomes_of(value))
    assert (code, outcome) == (1, {"covered": len(different), "missed": len(different)})


def outcomes_of(value: dict[str, object]) -> list[str]:
    return [row["outcome"] for row in value["rows"]]  # type: ignore[attr-defined]
