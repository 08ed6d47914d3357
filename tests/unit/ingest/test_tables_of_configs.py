"""AITER's tables and ladders of configs: what `ls`, `show` and `compare` tell of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rocm_tui.cli.entry import main
from rocm_tui.ingest.follow.sources import read_sources
from rocm_tui.ingest.formats.registry import known_format, sniff
from rocm_tui.ingest.records import Seen
from rocm_tui.session import stats
from rocm_tui.session.in_use import in_use
from rocm_tui.session.model import Model, Row
from rocm_tui.session.stats import asked_dtypes, asked_sizes

CONFIG = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 64, "num_warps": 4}
FMOE = "cu_num,token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,us"


def rows(path: Path) -> list[Row]:
    model = Model()
    model.apply(read_sources([str(path)]))
    return model.rows()


@pytest.mark.parametrize(
    ("line", "tuner"),
    [
        ("gfx,cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,libtype", "aiter"),
        ("M,N,K", "aiter"),
        ("B,M,N,K\r\n", "aiter"),
        ("gfx,b,m,n,k,libtype\n", "aiter"),
        (FMOE, "aiter"),
        ("dtype,K,V,BT,H,Hg,is_varlen,use_h0,store_fs", "aiter"),
        ("of M,N,K we know", "log"),
        ("M,N,Kernel", "log"),
        ('{"1": {"BLOCK_SIZE_M": 16}}', "moe"),
        ('{\n "M_LEQ_64": {\n  "BLOCK_SIZE_M": 16}}', "aiter triton"),
    ],
)
def test_how_such_a_file_begins(line: str, tuner: str) -> None:
    found = sniff(line.encode())
    assert found == tuner or (tuner == "log" and found not in ("aiter", "moe", "aiter triton"))


def test_by_its_name() -> None:
    assert known_format("/c/E=8,N=176,device_name=AMD_Instinct_MI300X_down.json") == "moe"
    assert known_format("N=8,K=176,device_name=X,dtype=fp8_w8a8.json") == "moe"
    assert known_format("/c/gfx942-GEMM-A16W16.json") == "aiter triton"
    assert known_format("/c/gfx950/triton/gemm/gemm_a16w16/DEFAULT.json") == "aiter triton"
    assert not known_format("/c/gfx942.json") and not known_format("/gfx942/config.json")


def test_a_ladder_has_a_row_a_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "E=8,N=176,device_name=AMD_Instinct_MI300X,dtype=fp8_w8a8.json"
    wide = {**CONFIG, "BLOCK_SIZE_N": 256, "num_stages": 2}
    path.write_text(json.dumps({"1": CONFIG, "16": CONFIG, "2048": wide}, indent=4))
    found = rows(path)
    sizes = [stats.sizes_text(row.tuning) for row in found]
    assert sizes == ["M=1 E=8 N=176", "M=16 E=8 N=176", "M=2048 E=8 N=176"]
    last = found[-1]
    own = in_use(last)
    assert own is not None and own.ms is None
    assert (own.name, own.config["BLOCK_SIZE_N"]) == ("16×256×64, 4 warps, 2 stages", "256")
    assert stats.dtype_of(last.tuning) == "fp8_w8a8" and last.device == "AMD_Instinct_MI300X"
    assert last.tuning.entry is not None and last.tuning.entry.line == 14
    assert main(["show", last.id, "--from", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "key        fused_moe, M=2048, E=8, N=176, dtype=fp8_w8a8\n" in shown
    assert "solution   16×256×64, 4 warps, 2 stages, no time recorded\n" in shown
    assert "BLOCK_SIZE_M=16, BLOCK_SIZE_N=256" in shown and "fastest" not in shown


def test_a_step_with_the_name_of_another_is_a_row_too(tmp_path: Path) -> None:
    path = tmp_path / "gfx942-GEMM-A16W16-N=8-K=16.json"
    path.write_text('{"any": {"num_warps": 4}, "any": {"num_warps": 8}}')
    found = rows(path)
    assert [stats.sizes_text(row.tuning) for row in found] == ["any N=8 K=16"] * 2
    names = [row.tuning.choices[0].name for row in found]
    assert sorted(map(str, names)) == ["num_warps=4", "num_warps=8"]


def test_what_is_no_ladder_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "E=8,N=176,device_name=X.json"
    path.write_text('{"1": {"BLOCK_SIZE_M": 16}')
    assert main(["ls", str(path)]) == 1
    assert "cut off on line 1" in capsys.readouterr().err


def test_rows_of_aiter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "tuned_fmoe.csv"
    types = "ActivationType.Silu,torch.bfloat16,torch.float8_e4m3fnuz,torch.float4_e2m1fn_x2"
    path.write_text(f"{FMOE}\n304,64,7168,512,384,6,{types},12.5\n304,1\n")
    (row,) = rows(path)
    assert stats.sizes_text(row.tuning) == "M=64 7168×512 E=384 topk=6"
    assert stats.dtype_of(row.tuning) == "bf16·f8e4m3·f4e2m1"
    assert main(["ls", str(path)]) == 0
    told = capsys.readouterr()
    assert "fused_moe" in told.out and "tuned_fmoe.csv:3" in told.err
    quantized = tmp_path / "a8w8_bpreshuffle_tuned_gemm.csv"
    quantized.write_text(
        "gfx,cu_num,M,N,K,q_dtype_w,libtype,us\ngfx942,304,1,8,16,torch.int8,ck,2\n"
    )
    (record,) = read_sources([str(quantized)])
    assert isinstance(record, Seen) and record.tuning.op == "gemm_a8w8_bpreshuffle"
    assert stats.sizes_text(record.tuning) == "1×8×16" and stats.dtype_of(record.tuning) == "i8"
    assert [choice.ms for choice in record.tuning.choices] == [0.002]


def test_a_key_in_short() -> None:
    assert asked_sizes("B=4,M=1,N=2,K=3") == "4×1×2×3"
    assert asked_sizes("tn_8_4_2") == "tn_8_4_2"
    assert asked_sizes("") == "" and asked_dtypes("") == ()
