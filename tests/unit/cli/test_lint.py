"""`rocm-tui lint`: files and folders in, a line a finding out, and an exit code for a check."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backend.tables.model import TableDevice
from rocm_tui.actions.lint import device_here
from rocm_tui.cli.entry import main
from rocm_tui.tables.lint import RULE_IDS

HEAD = "gfx,cu_num,M,N,K,kernelId,splitK,us,kernelName,tflops,bw,errRatio\n"
ROW = "gfx942,80,{m},512,7168,6,0,{us},k,0,0,0.0\n"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "configs" / "a8w8_tuned_gemm.csv"
    path.parent.mkdir()
    path.write_text(HEAD + ROW.format(m=1, us=9.5) + ROW.format(m=2, us=9.6))
    return path


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["lint", *words])
    out, err = capsys.readouterr()
    return code, out, err


def test_a_clean_table(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, str(table))
    assert (code, out) == (
        0,
        "1 table, 2 rows, checked for no device (name one with --device): nothing found\n",
    )
    code, out, _ = run(capsys, str(table), "--device", "gfx942:80")
    assert (code, out) == (0, "1 table, 2 rows, checked for gfx942:80: nothing found\n")


def test_each_row_is_told(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with table.open("a") as stream:
        stream.write(ROW.format(m=4, us=0) + ROW.format(m=8, us=0))
    code, out, _ = run(capsys, str(table), "--json")
    (one,) = json.loads(out)["findings"]
    assert (one["line"], one["count"], one["what"]) == (4, 2, "2 rows with a time of 0")
    code, out, _ = run(capsys, str(table), "--json", "--each")
    told = [(one["line"], one["count"], one["what"]) for one in json.loads(out)["findings"]]
    assert code == 1 and told == [(n, 1, "row with a time of 0") for n in (4, 5)]


def test_findings_of_a_folder(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models = table.parent / "model_configs"
    models.mkdir()
    model = models / "x_a8w8_tuned_gemm.csv"
    model.write_text(HEAD + ROW.format(m=2, us=9.0) + ROW.format(m=4, us="-1"))
    (table.parent / "notes.txt").write_text("no table\n")
    words = str(table.parent), "--device", "MI300X"
    code, out, _ = run(capsys, *words)
    assert code == 1
    lines = out.splitlines()
    assert lines[-1].startswith("2 tables, 4 rows, checked for gfx942:304: 1 error, ")
    assert any(line.startswith(f"{model}:2: error: 1 row also in a8w8") for line in lines)
    assert any(line.startswith(f"{model}:3: warning: 1 row with a time of -1;") for line in lines)
    assert sum("[other-device]" in line for line in lines) == 3

    code, out, _ = run(capsys, *words, "--rule", "no-time", "--json")
    told = json.loads(out)
    assert code == 1 and (told["tables"], told["rows"], told["device"]) == (2, 4, "gfx942:304")
    (found,) = told["findings"]
    assert (found["file"], found["line"], found["count"]) == (str(model), 3, 1)
    assert (found["rule"], found["level"]) == ("no-time", "warning")

    rest = [
        word
        for rule in ("no-time", "other-device", "merged-duplicate")
        for word in ("--ignore", rule)
    ]
    assert run(capsys, *words, *rest)[0] == 0


def test_a_note_alone_fails_nothing(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table.write_text(table.read_text() + ROW.format(m=4, us=9.7).replace("gfx942,80", "gfx950,256"))
    code, out, _ = run(capsys, str(table), "--device", "gfx942:80")
    assert code == 0 and "1 note" in out


def test_bad_usage(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys)[0] == 2
    assert run(capsys, str(table), "--device", "MI9999X")[0] == 2
    assert run(capsys, str(table), "--rule", "none")[0] == 2
    code, out, err = run(capsys, str(tmp_path / "gone.csv"))
    assert (code, out) == (1, "") and "cannot read" in err
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    assert "no table" in run(capsys, str(tmp_path / "other.csv"))[2]


def test_a_damaged_document_is_a_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "E=8,N=512,device_name=AMD_Instinct_MI300X.json"
    path.write_text('{"1": {"BLOCK_SIZE_M": 16')
    code, out, _ = run(capsys, str(path))
    assert code == 1 and f"{path}: error: 1 line unreadable: cut off on line 1" in out


def test_the_rules_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--rules")
    assert code == 0 and all(f"{rule} " in out for rule in RULE_IDS)


def test_hostile_text(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head = HEAD.replace("us,", "us,q_dtype_w,")
    bad = ROW.format(m=1, us="0").replace(",0,k,", ",0,\x1b[31m,k,")
    table.write_text(head + bad)
    _, out, _ = run(capsys, str(table), "--json")
    assert "\x1b" not in out
    assert "\x1b" not in run(capsys, str(table))[1]


def test_the_device_that_is_here(tmp_path: Path) -> None:
    assert device_here(tmp_path / "none") is None
    for at, told in enumerate(("gfx_target_version 0\nsimd_count 0\n", GFX90A, GFX90A)):
        (tmp_path / str(at)).mkdir()
        (tmp_path / str(at) / "properties").write_text(told)
    assert device_here(tmp_path) == TableDevice("gfx90a", 104)
    (tmp_path / "2" / "properties").write_text(GFX90A.replace("416", "440"))
    assert device_here(tmp_path) is None  # two kinds: which one is not known


GFX90A = "\nname\ncpu_cores_count 0\nsimd_count 416\nsimd_per_cu 4\ngfx_target_version 90010\n"
