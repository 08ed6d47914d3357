"""`rocm-tui cover`: logs against tables, the lists that are written, read by whoever tunes them."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from backend.tables.registry import parse
from rocm_tui.cli.entry import main

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
    assert out[4] == "asked for 3 products 6 times: 3 missed, 100 % of the times"


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
    assert "the log does not tell the device" in capsys.readouterr().out


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
    assert outcomes(covered(capsys, "tunableop_untuned0.csv")[1]) == {
        "tn_64_8_32_ld_32_32_64": "missed",
        "nn_4_8_2": "missed",
    }
    code, value = covered(capsys, "tunableop_untuned0.csv", "tunableop_results0.csv")
    assert code == 1
    assert outcomes(value)["tn_64_8_32_ld_32_32_64"] == "covered"
    assert main(["cover", "tunableop_untuned0.csv", "--write", "again.csv"]) == 1
    assert Path("again.csv").read_text() == f"{one}\n"
    assert "without leading dimensions" in capsys.readouterr().err


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
    assert "1 × AITER, the log does not tell their types" in captured.err
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
    assert "asked for 1 product 1 time: 1 found" in capsys.readouterr().out


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
