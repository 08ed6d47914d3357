"""`tune --from-log` of other tuners' files, logs of hipBLASLt and exports: each product once, with
how often it is asked for, for one device and for a fleet."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from backend.sharing.share import Machine, PinExport, SharedPin, share_text
from rocm_tui.cli.entry import main

INPUTS = (
    "[('cuda', 'torch.bfloat16', 16, 1024, 1024, 1, 0), "
    "('cuda', 'torch.bfloat16', 1024, 4096, 1, 1024, 0)]"
)
SAME = "GemmTunableOp_BFloat16_TN,tn_4096_16_1024_ld_1024_1024_4096\n"
OTHER = "GemmAndBiasTunableOp_BFloat16_TN,tn_4096_16_1024_ld_1024_1024_4096\n"
FP8 = "ScaledGemmTunableOp_Float8_e4m3fn_Float8_e4m3fn_BFloat16_TN,tn_1_1_1_ld_1_1_1\n"
AITER = (
    "M,N,K,bias,dtype,outdtype,scaleAB\n16,4096,1024,False,torch.bfloat16,torch.bfloat16,False\n"
)
BLOCK = """AUTOTUNE addmm(16x4096, 16x1024, 1024x4096)
strides: [0, 1], [1024, 1], [1, 1024]
dtypes: torch.bfloat16, torch.bfloat16, torch.bfloat16
  addmm 0.0100 ms 100.0%
SingleProcess AUTOTUNE benchmarking takes 1.5000 seconds and 0.5000 seconds precompiling for 1 choices
"""  # noqa: E501
CALL = (
    "hipblaslt-bench --api_method c -m 4096 -n 16 -k 1024 --lda 1024 --ldb 1024 --ldc 4096 "
    "--transA T --transB N --batch_count 1 --a_type bf16_r --b_type bf16_r --c_type bf16_r "
    "--d_type bf16_r --compute_type f32_r\n"
)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    pin = SharedPin(
        "mm", INPUTS, "highest", "mm-1", "mm", Machine(), {}, {"highest": {"mm-1": 1.0}}
    )
    kernel = SharedPin("triton", "[]", "", "triton_config-1", "c", Machine())
    texts = {
        "rank0.csv": SAME + OTHER + FP8,
        "untuned1.csv": "Validator,PT_VERSION,2.13.0\n" + SAME,
        "aiter.csv": AITER,
        "train.log": BLOCK + CALL + CALL,
        "pins.json": share_text(PinExport((pin,))),
        "kernels.json": share_text(PinExport((kernel, pin))),
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def dry(
    files: Path, names: Sequence[str], capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[int, dict[str, Any], str]:
    logs = [word for name in names for word in ("--from-log", str(files / name))]
    code = main(["tune", "--dry-run", "--json", "--cache-dir", str(files), *logs, *words])
    said = capsys.readouterr()
    return code, json.loads(said.out or "{}"), said.err


def test_ranks_ask_for_one_product(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found, errors = dry(files, ["rank0.csv", "untuned1.csv", "aiter.csv"], capsys)
    assert code == 0
    assert [(one["op"], one["calls"]) for one in found["problems"]] == [("mm", 3), ("addmm", 1)]
    assert found["problems"][0]["strides"] == [[1024, 1], [1, 1024]]
    assert errors.count("\n") == 1
    assert "rank0.csv: 1 of 3 products left out: 1 × an fp8 product without its scales" in errors


def test_a_log_of_two_speakers(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Inductor's tuning and hipBLASLt's calls; the tuning takes the calls of the same product."""
    code, found, _ = dry(files, ["train.log", "rank0.csv"], capsys)
    told, called = found["problems"]
    assert code == 0 and told["op"] == "addmm" and told["strides"][0] == [0, 1]
    assert (told["calls"], called["op"], called["calls"]) == (1, "mm", 3)


def test_an_export_has_its_keys(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found, errors = dry(files, ["pins.json", "rank0.csv", "kernels.json"], capsys)
    first = found["problems"][0]
    assert code == 0 and (first["inputs"], first["calls"]) == (INPUTS, 3)
    assert "kernels.json: 1 of 2 products left out" in errors
    (files / "pins.json").write_text('{"format": "rocm-tui pins", "version": 99}')
    code, _, errors = dry(files, ["pins.json"], capsys)
    assert code == 1 and errors.count("\n") == 1 and "pins.json" in errors


def test_one_of_them_by_its_id(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["tune", "--dry-run", "--cache-dir", str(files), "--from-log", str(files / "rank0.csv")])
    first, second = capsys.readouterr().out.splitlines()
    assert "asked for 1 time" in first
    code, found, _ = dry(files, ["rank0.csv"], capsys, second.split()[0])
    assert code == 0 and [one["op"] for one in found["problems"]] == ["addmm"]
    code, _, errors = dry(files, ["rank0.csv"], capsys, "fffffff")
    assert code == 1 and "fffffff" in errors


def test_a_fleet_begins_with_what_is_asked_for_most(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found, _ = dry(files, ["rank0.csv", "untuned1.csv"], capsys, "--fleet", "local:2")
    told = [(unit["title"].split()[0], unit["calls"]) for unit in found["units"]]
    assert code == 0 and told == [("mm", 2.0), ("addmm", 1.0)]
    assert dry(files, ["missing.csv"], capsys)[0] == 1
    only = files / "only.csv"
    only.write_text(FP8)
    assert dry(files, ["only.csv"], capsys)[0] == 1
