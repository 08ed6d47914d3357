"""`trial --table`: a program with one tuned table, and with another or none."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from backend.disk.layout import Layout
from backend.errors import CacheUnreadable
from rocm_tui.actions.trial_program import steps_of, try_program
from rocm_tui.cli.entry import main
from rocm_tui.errors import UsageError
from rocm_tui.jobs.program import ProgramTrial
from rocm_tui.render.graphs import program_sentences, program_text
from tests.support.documents import document
from tests.support.places import ROOT
from tests.support.printed_times import run_at_printed_times
from tests.support.torch_models import child_env

PROGRAM = str(ROOT / "tests" / "support" / "table_program.py")
STEPS = steps_of("^step", None, 2)
MOE_NAME = "E=8,N=1024,device_name=AMD_Instinct_MI300X,dtype=fp8_w8a8.json"
OTHER_ROW = "GemmTunableOp_Half_TN,tn_1_1_1_ld_1_1_1,Gemm_Rocblas_1,0.5\n"


@pytest.fixture(autouse=True)
def printed_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocm_tui.actions.trial_program.run_program", run_at_printed_times)


def tunableop(path: Path, ms: int | None, more: str = "", version: str = "2.9.0") -> Path:
    """Write a table whose solution takes `ms`; without it, of another product alone."""
    row = "" if ms is None else f"GemmTunableOp_Half_TN,tn_64_8_32_ld_32_32_64,Gemm_R_{ms},0.1\n"
    path.write_text(f"Validator,PT_VERSION,{version}\n{row}{more}")
    return path


def aiter(path: Path, ms: int, rows: int = 16) -> Path:
    path.write_text(
        "gfx,cu_num,M,N,K,kernelId,splitK,us,kernelName,tflops,bw,errRatio\n"
        f"gfx942,304,{rows},1536,7168,3,0,9.5,a8w8_{ms},1.0,1.0,0.0\n"
    )
    return path


def fmoe(path: Path, ms: int) -> Path:
    names = (
        "token model_dim inter_dim expert topk act_type dtype q_dtype_a q_dtype_w q_type use_g1u1 "
        "doweight_stage1 block_m ksplit us1 kernelName1 err1 us2 kernelName2 err2 us"
    )
    path.write_text(
        f"cu_num,{','.join(names.split())}\n304,7,2304,1536,8,2,ActivationType.Gelu,torch.bfloat16,"
        "torch.float8_e4m3fnuz,torch.float8_e4m3fnuz,QuantType.per_Token,1,1,32,0,17.8,fmoe_g1u1,"
        f"0.0%,14.5,ck2stages_{ms},0.0%,32.3\n"
    )
    return path


def moe(path: Path, ms: int) -> Path:
    config = {"BLOCK_SIZE_M": 16, "num_warps": 4, "num_stages": ms}
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"8": config, "64": {**config, "num_stages": 99}}))
    return path


def tried(
    tmp_path: Path, kind: str, *tables: Path, pairs: int | None = 3, **variables: str
) -> ProgramTrial:
    layout = Layout(tmp_path / "cache")
    command = [sys.executable, PROGRAM, kind]
    env = {**child_env(layout.root), **variables}
    before = [path.read_bytes() for path in tables]
    trial = try_program(command, layout, STEPS, tables=tables, pairs=pairs, env=env)
    assert [path.read_bytes() for path in tables] == before
    assert list(layout.graphs.iterdir()) == []
    return trial


def times(trial: ProgramTrial) -> list[float]:
    return [round(standing.ms, 6) for standing in trial.standings]


def test_of_two_tables_the_second_is_faster(tmp_path: Path) -> None:
    """Rows of both are hit; a lookup that is logged in a counted run would show in the times."""
    tables = tunableop(tmp_path / "a.csv", 10), tunableop(tmp_path / "b.csv", 5, OTHER_ROW)
    trial = tried(tmp_path, "tunableop", *tables)
    assert (trial.verdict.verdict, times(trial)) == ("faster", [10, 5])
    assert [(use.hits, use.misses, use.entries) for use in trial.tables] == [(1, 0, 1), (1, 0, 2)]
    assert trial.trouble == ()
    said = program_sentences(trial)
    assert said[0].startswith("The program is 50.0 % faster with b.csv than with a.csv (")
    assert said[1:3] == ["a.csv: 1 lookup hit, 0 missed.", "b.csv: 1 lookup hit, 0 missed."]
    lines = [line.split() for line in program_text(trial).splitlines()]
    assert [line[0] for line in lines] == ["table", "a.csv", "b.csv"] and lines[2][1] == "faster"


def test_a_slower_table_is_slower(tmp_path: Path) -> None:
    trial = tried(tmp_path, "tunableop", tunableop(tmp_path / "a.csv", 40))
    assert (trial.verdict.verdict, times(trial)) == ("slower", [20, 40])
    assert "slower with a.csv than with no table" in program_sentences(trial)[0]


def test_two_tables_with_one_solution_tie(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    tables = tunableop(tmp_path / "a.csv", 5), tunableop(tmp_path / "b" / "a.csv", 5, OTHER_ROW)
    trial = tried(tmp_path, "tunableop", *tables)
    assert trial.verdict.verdict == "tied"
    said = program_sentences(trial)
    assert said[0] == f"The program is as fast with {tables[1]} as with {tables[0]}, within 0.5 %."
    assert "Both tables have the same solution for the 1 lookup that hit." in said


def test_two_tables_that_no_lookup_hit_have_no_solution_in_common(tmp_path: Path) -> None:
    tables = [tunableop(tmp_path / name, None, OTHER_ROW) for name in ("a.csv", "b.csv")]
    trial = tried(tmp_path, "tunableop", *tables)
    assert [(use.hits, use.misses) for use in trial.tables] == [(0, 1), (0, 1)]
    assert not any("same solution" in sentence for sentence in program_sentences(trial))


@pytest.mark.parametrize("kind", ["tunableop", "aiter", "fmoe", "vllm", "sglang"])
def test_one_table_is_compared_with_none(tmp_path: Path, kind: str) -> None:
    """A person's own setting of the variables counts for neither side."""
    write = {"tunableop": tunableop, "aiter": aiter, "fmoe": fmoe}.get(kind, moe)
    names = {"tunableop": "tuned.csv", "aiter": "a8w8_tuned_gemm.csv", "fmoe": "tuned_fmoe.csv"}
    name = names.get(kind, MOE_NAME)
    table = (
        write(tmp_path / "triton_3_4_0" / name, 5) if write is moe else write(tmp_path / name, 5)
    )
    own = moe(tmp_path / "own" / MOE_NAME, 1).parent
    variables = {
        "PYTORCH_TUNABLEOP_ENABLED": "1",
        "PYTORCH_TUNABLEOP_TUNING": "1",
        "PYTORCH_TUNABLEOP_RECORD_UNTUNED": "1",
        "PYTORCH_TUNABLEOP_FILENAME": str(tmp_path / "own.csv"),
        "AITER_CONFIG_GEMM_A8W8": str(aiter(tmp_path / "own.csv", 1)),
        "AITER_CONFIG_FMOE": str(fmoe(tmp_path / "own_fmoe.csv", 1)),
        "VLLM_TUNED_CONFIG_FOLDER": str(own),
        "VLLM_LOGGING_LEVEL": "ERROR",
        "SGLANG_MOE_CONFIG_DIR": str(own),
    }
    if kind == "sglang":
        variables.pop("VLLM_LOGGING_LEVEL")
    trial = tried(tmp_path, kind, table, **variables)
    assert (trial.verdict.verdict, times(trial)) == ("faster", [20, 5]), trial
    none, use = trial.tables
    assert (none.path, none.hits, use.path, use.hits, use.misses) == (None, 0, str(table), 1, 0)
    assert "faster with" in program_sentences(trial)[0]


@pytest.mark.parametrize("kind", ["unread", "elsewhere"])
def test_a_table_without_a_hit_is_never_faster(tmp_path: Path, kind: str) -> None:
    """The program is faster with the variables, but not by a row: `elsewhere` reads the file of
    that name in another folder."""
    unread = kind == "unread"
    table = tunableop(tmp_path / "a.csv", 5) if unread else moe(tmp_path / MOE_NAME, 5)
    trial = tried(tmp_path, kind, table)
    assert times(trial) == [20, 5] and trial.standings[1].verdict == "faster"
    assert (trial.verdict.verdict, trial.tables[1].hits) == ("unclear", 0)
    said = " ".join(program_sentences(trial))
    assert said.startswith(
        f"No lookup of {table.name} was seen to hit: the difference says nothing"
    )
    assert "faster" not in said and "faster" not in program_text(trial)
    assert "may not call the library" in said
    trial = tried(tmp_path, kind, table, pairs=None)
    assert (trial.pairs, trial.verdict.verdict) == (1, "unclear")


@pytest.mark.parametrize("version", ["2.9.0", "2.8.0"])
def test_a_table_that_misses_or_is_refused_is_unclear(tmp_path: Path, version: str) -> None:
    right = None if version == "2.9.0" else 5
    table = tunableop(tmp_path / "b.csv", right, OTHER_ROW, version)
    trial = tried(tmp_path, "tunableop", tunableop(tmp_path / "a.csv", 40), table)
    assert (trial.verdict.verdict, times(trial)) == ("unclear", [40, 20])
    assert [use.hits for use in trial.tables] == [1, 0] and trial.tables[1].misses == 1
    said = program_sentences(trial)[0]
    assert "No lookup of b.csv was seen" in said and "`rocm-tui lint` names rows" in said


def test_other_code_on_one_side_is_reported(tmp_path: Path) -> None:
    trial = tried(tmp_path, "tunableop", tunableop(tmp_path / "a.csv", 5), OWN_CODE="1")
    assert "The sides compiled different code" in trial.trouble[0]


def test_tables_that_cannot_be_compared_are_refused(tmp_path: Path) -> None:
    good = tunableop(tmp_path / "good.csv", 5)
    untuned = tmp_path / "untuned.csv"
    untuned.write_text("GemmTunableOp_Half_TN,tn_64_8_32_ld_32_32_64\n")
    text = tmp_path / "text.csv"
    text.write_text("name,age\n")
    unnamed = aiter(tmp_path / "mine.csv", 5)
    blocks = moe(tmp_path / "N=8,K=8,device_name=X,dtype=fp8_w8a8,block_shape=[128,128].json", 5)
    hipblaslt = tmp_path / "hipblaslt.csv"
    hipblaslt.write_text("transA,transB,batch_count,m,n,k,solution_index\nT,N,1,8,8,8,3\n")
    for tables, why in (
        ([good, good, good], "--table is given once"),
        ([good, aiter(tmp_path / "a8w8_tuned_gemm.csv", 5)], "cannot be compared"),
        ([untuned], "no row with a solution"),
        ([text], "is no table"),
        ([tmp_path / "gone.csv"], "No such file"),
        ([unnamed], "no environment variable gives a program"),
        ([blocks], "no environment variable"),
        ([hipblaslt], "no environment variable"),
    ):
        with pytest.raises((UsageError, CacheUnreadable), match=why) as error:
            try_program(["true"], Layout(tmp_path / "cache"), STEPS, tables=tables)
        assert "\n" not in str(error.value), tables


def test_the_command_prints_a_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in child_env(tmp_path / "cache").items():
        monkeypatch.setenv(name, value)
    tables = tunableop(tmp_path / "a.csv", 10), tunableop(tmp_path / "b.csv", 5)
    program = ["--step", "^step", "--pairs", "3", "--", sys.executable, PROGRAM, "tunableop"]
    words = ["trial", "--json", "--table", str(tables[0]), "--table", str(tables[1]), *program]
    assert main(words) == 0
    found = document(capsys.readouterr().out, "trial-tables")
    assert (found["verdict"], found["tuner"]) == ("faster", "tunableop")
    assert found["ratio"] == pytest.approx(0.5)
    assert [table["path"] for table in found["tables"]] == list(map(str, tables))
    assert [run["table"] for run in found["runs"][:2]] == list(map(str, tables))
    assert main(["trial", "--table", str(tables[0]), *program[:-1], "unread"]) == 1
    out, err = capsys.readouterr()
    assert "pair 1, with no table: 20.00 ms a step" in out and err == ""
    assert "No lookup of a.csv was seen to hit" in out
    assert main(["trial", "--table", str(tables[0])]) == 2
    assert "--table needs a program" in capsys.readouterr().err
