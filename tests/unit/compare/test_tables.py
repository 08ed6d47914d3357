"""Two tables of another tuner side by side: real files through the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest

from rocm_tui.cli.entry import main
from rocm_tui.ingest.formats.tuned_table import RowQuota
from rocm_tui.render.compare import change
from tests.support.log_lab import MM_LOG

HEAD = "gfx,cu_num,M,N,K,q_dtype_w,libtype,kernelId,splitK,us,kernelName,tflops,bw,errRatio\n"


def row(m: int, us: str, kernel: str, *, cu: int = 304) -> str:
    return f"gfx942,{cu},{m},1280,8192,torch.int8,ck,3,0,{us},{kernel},1,1,0.0\n"


def table(path: Path, *rows: str) -> str:
    path.write_text(HEAD + "".join(rows))
    return str(path)


@pytest.fixture
def two(tmp_path: Path) -> list[str]:
    old = table(
        tmp_path / "old_a8w8_bpreshuffle_tuned_gemm.csv",
        row(1, "10", "a"),
        row(16, "20", "a"),
        row(32, "30", "a"),
        row(64, "0", "a"),
        row(64, "40", "b"),
    )
    new = table(
        tmp_path / "new_a8w8_bpreshuffle_tuned_gemm.csv",
        row(1, "11", "a"),
        row(16, "30", "c"),
        row(32, "15", "d"),
        row(64, "", "e"),
        row(128, "50", "a"),
        row(128, "60", "a", cu=80),
    )
    return [old, new]


def compared(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["compare", *words])
    out, err = capsys.readouterr()
    return code, out, err


def as_json(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(compared(capsys, *words, "--json")[1])
    return found


def test_other_solutions_come_first_with_what_lost_most(
    two: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = compared(capsys, *two)
    assert code == 0 and not err
    _, other, only, summary = out.split("\n\n")
    assert [line.split()[2] for line in other.splitlines()[2:]] == [
        "16×1280×8192",
        "32×1280×8192",
        "64×1280×8192",
    ]
    assert "20.0 µs  30.0 µs  1.50×  ck a → ck c" in other and "ck b → ck e" in other
    assert [line.split()[4] for line in only.splitlines()[2:]] == ["gfx942:80", "gfx942:304"]
    assert summary.splitlines() == [
        "4 keys in both: 1 with the same solution, 3 with another",
        "0 only in A, 2 only in B",
        "1 entry has a key that is in A before: the fastest, or the last, is taken",
        "B takes 1.10× of A's time at the median of 3, from 0.50× to 1.50×; by the times in the "
        "tables, not measured here",
    ]


def test_a_regression_has_an_exit_code(two: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = compared(capsys, *two, "--fail-on-regression", "10")
    assert code == 1 and err.count("slower by more than") == 1
    assert "16×1280×8192" in err and "ck a → ck c: 20.0 µs then, 30.0 µs now" in err
    assert compared(capsys, *two, "--fail-on-regression", "60")[0] == 0


def test_tables_that_are_not_read_whole_are_not_compared(
    two: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what was not read would count as lacking, and no key of it as slower."""
    monkeypatch.setattr("rocm_tui.ingest.formats.tuned_table.MOST_ROWS", 2)
    monkeypatch.setattr(
        RowQuota, "_all", WeakSet()
    )  # another test's tables may not be collected yet
    monkeypatch.setattr("rocm_tui.ingest.formats.tuned_table._LOOK", 1)
    code, out, err = compared(capsys, *two, "--fail-on-regression", "10")
    assert (code, out) == (1, "") and "name fewer tables" in err


def test_json_and_markdown(two: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    found = as_json(capsys, *two)
    assert found["tables"] and found["totals"]["other_solution"] == 3
    first = found["common"][0]
    assert (first["tuner"], first["op"], first["ratio"]) == ("aiter", "gemm_a8w8_bpreshuffle", 1.5)
    assert first["key"].endswith(",M=16,N=1280,K=8192,q_dtype_w=torch.int8")
    assert first["a"]["ms"] == 0.02 and first["b"]["line"] == 3 and not first["same_solution"]
    assert found["common"][2]["b"]["ms"] is None and found["common"][2]["ratio"] is None
    assert [each["device"] for each in found["only_b"]] == ["gfx942:80", "gfx942:304"]
    text = compared(capsys, *two, "--markdown")[1]
    assert "| 1.50× | ck a → ck c |" in text and "- only in B: `" in text


def test_two_devices_with_one_table_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = table(tmp_path / "a.csv", row(1, "10", "a"))
    b = table(tmp_path / "b.csv", row(1, "20", "a", cu=80))
    out = compared(capsys, a, b)[1]
    assert "1 key in both: the same solutions" in out and "B takes 2.00× of A's time;" in out
    assert out.endswith("other device: gfx942:304 in A, gfx942:80 in B\n")
    table(tmp_path / "b.csv", row(1, "20", "a", cu=80), row(1, "20", "a", cu=20))
    code, out, _ = compared(capsys, a, b)
    assert code == 1 and "no key in both" in out


def test_ladders_tell_which_values_differ(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 64, "num_warps": 4}
    name = "E=8,N=176,device_name=AMD_Instinct_MI300X,dtype=fp8_w8a8"
    paths = []
    for folder, shape, other in (("vllm", "[128,128]", {}), ("sglang", "[128, 128]", {"kpack": 2})):
        path = tmp_path / folder / f"{name},block_shape={shape}.json"
        path.parent.mkdir()
        steps = {"1": config, "128": {**config, "num_warps": 8, **other}, "16": config}
        path.write_text(json.dumps({**steps, "64": config} if other else steps))
        paths.append(str(path))
    out = compared(capsys, *paths)[1]
    assert "M=128 E=8 N=176 block_shape=[128, 128]  fp8_w8a8  kpack – → 2\n" in out
    assert "3 keys in both: 2 with the same solution, 1 with another" in out
    assert "0 only in A, 1 only in B" in out and "these tables have none" in out
    same = as_json(capsys, *paths)["common"][1:]
    assert [each["key"].split(",")[1] for each in same] == ["M=1", "M=16"]


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        ("ck x", "", "ck x → not tuned"),
        ("ck a_1", "asm b_1", "ck a_1 → asm b_1"),
        ("ck k_16_x, splitK 2", "ck k_32_x, splitK 2", "ck …16_… → ck …32_…"),
        ("ck k_16_x, splitK 2", "ck k_16_x, splitK 4", "ck …2 → ck …4"),
        ("ck k_16", "ck k_16_x", "ck …16 → ck …16_x"),
        ("A=1, B=2", "A=1, B=3, C=4", "B 2 → 3  C – → 4"),
        ("A=1", "ck x", "A=1 → ck x"),
    ],
)
def test_a_change_names_what_differs(a: str, b: str, said: str) -> None:
    assert change(a, b) == said


def test_a_table_and_a_tuning_of_inductors_are_no_two_tables(
    two: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "run.log"
    log.write_text("AUTOTUNE mm(16x8192, 8192x1280)\n  mm 0.0200 ms 100.0% \n")
    code, out, _ = compared(capsys, two[0], str(log))
    assert code == 1 and "nothing in both" in out


def test_entries_beside_tunings_are_left_out_and_said(
    two: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "run.log"
    log.write_text(MM_LOG)
    words = (str(log), str(log), "--also-a", two[0], "--also-b", two[1])
    code, out, err = compared(capsys, *words, "--json", "--fail-on-regression", "1")
    found = json.loads(out)
    assert code == 0 and [pair["op"] for pair in found["common"]] == ["mm"]
    assert not found["only_a"] and not found["only_b"]
    assert "5 entries of tuned tables left out: they are no tunings of Inductor" in err
    assert "6 entries of tuned tables left out" in err
    assert main(["report", str(log), two[0]]) == 0
    out, err = capsys.readouterr()
    assert "\n1 problem is left out" in out and "5 entries of tuned tables left out" in err


def test_a_table_alone_has_nothing_to_report(
    two: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", two[0]]) == 1
    out, err = capsys.readouterr()
    assert not out and f"no tuning in {two[0]}" in err
