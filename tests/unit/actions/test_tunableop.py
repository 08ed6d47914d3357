"""What TunableOp finds, put into a person's table as it comes. What a worker on a GPU would answer
is given here by hand; locks, files and processes are real."""

from __future__ import annotations

import itertools
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from backend.disk.layout import Layout
from backend.errors import NotWritable, UnsafePath
from backend.pins.leftovers import leftovers, remove
from backend.wire.jobs import TunableOpJob, TunableOpResult, TunedProduct, WorkerJob
from rocm_tui.actions.tunableop import Outcome, tune_products, wanted_in
from rocm_tui.cli.entry import main
from rocm_tui.errors import RocmTuiError
from rocm_tui.jobs.limits import WorkerDied
from tests.support.tunableop_merging import found, lines, run

HEAD = "Validator,PT_VERSION,2.13.0\n"
LINES = lines(4)


def rows(wanted: list[str]) -> str:
    return "".join(f"{line},Gemm_Hipblaslt_1,0.5\n" for line in wanted)


class Machine:
    """`answers` by line are other answers, or what ends the worker; `asked` is what it was told."""

    def __init__(self, answers: dict[str, TunableOpResult | BaseException] | None = None) -> None:
        self.answers = answers or {}
        self.asked: list[str] = []

    def __call__(self, job: WorkerJob[Any]) -> Any:
        assert isinstance(job, TunableOpJob)
        assert Path(job.folder).is_dir()
        self.asked.append(job.line)
        answer = self.answers.get(job.line)
        if isinstance(answer, BaseException):
            raise answer
        return answer or run(job)


@pytest.fixture
def tune(tmp_path: Path) -> Callable[..., Outcome]:
    def tune(machine: Machine, outcome: Outcome | None = None, **options: Any) -> Outcome:
        outcome = outcome or Outcome()
        layout = Layout(tmp_path / "cache")
        tune_products(machine, layout, LINES, tmp_path / "r.csv", outcome, **options)
        return outcome

    return tune


def test_each_row_is_in_the_file_before_the_next_begins(
    tmp_path: Path, tune: Callable[..., Outcome]
) -> None:
    seen = []
    table = tmp_path / "r.csv"

    def begins(line: str, done: int, total: int) -> None:
        seen.append((line, done, total, table.read_text() if table.exists() else ""))
        assert {path.name for path in tmp_path.iterdir()} <= {"cache", "r.csv"}

    outcome = tune(Machine(), begins=begins)
    texts = ["", *(HEAD + rows(LINES[:done]) for done in (1, 2, 3))]
    assert seen == [(line, at, 4, texts[at]) for at, line in enumerate(LINES)]
    assert table.read_text() == HEAD + rows(LINES)
    assert len(outcome.rows) == 4 and not outcome.failed
    assert [path.name for path in tmp_path.iterdir() if path.name != "cache"] == ["r.csv"]
    assert not list((tmp_path / "cache" / "rocm_tui" / "tunableop").iterdir())


def test_what_is_there_is_not_tuned_again_without_force(
    tmp_path: Path, tune: Callable[..., Outcome]
) -> None:
    table, machine = tmp_path / "r.csv", Machine()
    other = f"{LINES[1]},Default,9\n"
    table.write_text(HEAD + other)
    assert tune(machine).there == 1
    assert machine.asked == ["", LINES[0], LINES[2], LINES[3]]
    assert table.read_text() == HEAD + other + rows([LINES[0], *LINES[2:]])
    tune(Machine(), force=True)
    assert table.read_text() == HEAD + rows([LINES[1], LINES[0], *LINES[2:]])


def test_a_row_that_another_process_wrote_meanwhile_is_not_said_to_be_put_in(
    tmp_path: Path, tune: Callable[..., Outcome]
) -> None:
    table = tmp_path / "r.csv"
    theirs = HEAD + rows(LINES[:1]).replace("0.5", "0.25")
    outcome = tune(Machine(), begins=lambda line, done, total: done or table.write_text(theirs))
    assert [",".join(row.key) for row in outcome.rows] == LINES[1:]
    assert (outcome.there, outcome.failed) == (1, {})
    assert table.read_text() == theirs + rows(LINES[1:])


@pytest.mark.parametrize("text", ["Validator,PT_VERSION,2.12.0\n", "a text\n", "{}"])
def test_a_table_of_other_libraries_is_refused_before_anything_is_tuned(
    text: str, tmp_path: Path, tune: Callable[..., Outcome]
) -> None:
    table, machine = tmp_path / "r.csv", Machine()
    table.write_text(text)
    with pytest.raises(RocmTuiError, match=r"r\.csv: it.*nothing was changed"):
        tune(machine)
    assert machine.asked == [""]
    assert table.read_text() == text


def test_a_link_is_followed_and_its_target_changed(
    tmp_path: Path, tune: Callable[..., Outcome]
) -> None:
    (tmp_path / "there.csv").write_text(HEAD)
    (tmp_path / "r.csv").symlink_to("there.csv")
    tune(Machine())
    assert (tmp_path / "there.csv").read_text() == HEAD + rows(LINES)
    assert (tmp_path / "r.csv").is_symlink()


def test_a_folder_of_others_is_not_written_into(
    tmp_path: Path, tune: Callable[..., Outcome]
) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(UnsafePath):
        tune(Machine())


def test_one_that_cannot_be_tuned_costs_itself_alone(
    tmp_path: Path, tune: Callable[..., Outcome]
) -> None:
    hostile = TunedProduct("a", "b\nValidator,PT_VERSION,1", "c", 1.0)
    head = found(LINES[0]).validators
    other = found(lines(5)[4])
    outcome = tune(
        Machine(
            {
                LINES[0]: WorkerDied("the worker was ended by SIGSEGV"),
                LINES[1]: TunableOpResult(True, validators=head, rows=(hostile,)),
                LINES[2]: other,
            }
        )
    )
    assert list(outcome.failed) == LINES[:3]
    assert "SIGSEGV" in str(outcome.failed[LINES[0]])
    assert "is no row" in str(outcome.failed[LINES[1]])
    assert "PyTorch called it" in str(outcome.failed[LINES[2]])
    assert (tmp_path / "r.csv").read_text() == HEAD + rows([lines(5)[4], LINES[3]])


def test_ctrl_c_leaves_what_is_tuned(tmp_path: Path, tune: Callable[..., Outcome]) -> None:
    outcome = Outcome()
    with pytest.raises(KeyboardInterrupt):
        tune(Machine({LINES[2]: KeyboardInterrupt()}), outcome)
    assert (tmp_path / "r.csv").read_text() == HEAD + rows(LINES[:2])
    assert len(outcome.rows) == 2
    assert not list((tmp_path / "cache" / "rocm_tui" / "tunableop").iterdir())


def test_the_budget_leaves_out_the_rest(
    tune: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = itertools.count()  # each product takes one
    monkeypatch.setattr(
        "rocm_tui.actions.tunableop.time", SimpleNamespace(monotonic=lambda: next(seconds))
    )
    outcome = tune(Machine(), budget=2.0)
    assert (len(outcome.rows), outcome.skipped) == (1, 3)


def test_a_full_disk_keeps_the_table_that_was(tmp_path: Path, tune: Callable[..., Outcome]) -> None:
    """The system refuses to write past a limit here, as it does where there is no room."""
    table = tmp_path / "r.csv"
    text = HEAD + rows(lines(104)[4:])
    table.write_text(text)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(text), before[1]))
    try:
        with pytest.raises(NotWritable):
            tune(Machine())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert table.read_text() == text
    tune(Machine())
    assert table.read_text() == text + rows(LINES)


def merging(table: Path, cache: Path, begin: int, end: int) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "tests.support.tunableop_merging", table, cache, begin, end]
    return subprocess.Popen([*map(str, words)], stdout=subprocess.PIPE)


def test_two_processes_with_caches_of_their_own_share_a_table(tmp_path: Path) -> None:
    table = tmp_path / "r.csv"
    starts = {"a": 0, "b": 60}
    children = [merging(table, tmp_path / name, n, n + 60) for name, n in starts.items()]
    for child in children:
        child.communicate()
        assert child.returncode == 0
    assert sorted(table.read_text().splitlines()[1:]) == sorted(rows(lines(120)).splitlines())
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b", "r.csv"}


@pytest.mark.parametrize("moment", [0.0, 0.07, 0.2])
def test_kill_9_loses_no_row_that_was_there(tmp_path: Path, moment: float) -> None:
    table = tmp_path / "r.csv"
    child = merging(table, tmp_path / "cache", 0, 100_000)
    assert child.stdout is not None and child.stdout.readline() == b"begun\n"
    time.sleep(moment)
    end = time.monotonic() + 60
    while not table.exists() and time.monotonic() < end:
        time.sleep(0.001)
    child.kill()
    child.wait()
    child.stdout.close()
    text = table.read_text()
    count = text.count("\n") - 1
    assert count > 0 and text == HEAD + rows(lines(count))
    (folder,) = (tmp_path / "cache" / "rocm_tui" / "tunableop").iterdir()
    layout, later = Layout(tmp_path / "cache"), time.time() + 90 * 86400
    (old,) = leftovers(layout, later, 30).old
    assert old.files == (folder,) and remove(layout, old, later, 30) and not folder.exists()
    more = lines(count + 2)
    tune_products(run, Layout(tmp_path / "cache"), more, table, Outcome())
    assert table.read_text() == HEAD + rows(more)


def test_logs_and_lists_say_what_is_wanted_and_others_what_to_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, untuned = tmp_path / "a.log", tmp_path / "u.csv"
    miss = "missing params_signature, returning null ResultEntry for"
    log.write_text(
        f"{miss} {LINES[1]}\n{miss} {LINES[1]}\n"
        "Using default MoE config. Performance might be sub-optimal! Config file not found at "
        "/a/vllm/model_executor/layers/fused_moe/configs/E=8,N=1792,device_name=AMD_X.json\n"
    )
    untuned.write_text("".join(f"{line}\n" for line in (*LINES[:2], "GemmTunableOp_Half_NN,nn_1")))
    wanted = wanted_in([log, untuned])
    assert wanted.lines == (LINES[1], LINES[0])
    assert wanted.left_out == (("without leading dimensions, which PyTorch's reader needs", 1),)
    assert [one.tuner for one in wanted.others] == ["moe"]
    assert main(["tune", str(log), "--tunableop", "--dry-run"]) == 0
    out, err = capsys.readouterr()
    assert out == f"{LINES[1]}\n"
    assert "vLLM" in err and "cover FILE --write LIST" in err and "MODEL=" in err
    assert "t.tune_gemm_in_file(sys.argv[1])' UNTUNED.csv" in err


@pytest.mark.parametrize(
    "words",
    [
        ["--tunableop", "-o", "r.csv"],
        ["u.csv", "--tunableop"],
        ["u.csv", "-o", "r.csv"],
        ["u.csv", "--force"],
        ["u.csv", "--tunableop", "-o", "r.csv", "--all"],
        ["u.csv", "--tunableop", "-o", "r.csv", "--fleet", "local"],
        ["u.csv", "--tunableop", "-o", "r.csv", "--all-devices"],
        ["u.csv", "--tunableop", "-o", "r.csv", "--repeat", "3"],
        ["u.csv", "--tunableop", "-o", "r.csv", "--missing"],
        ["u.csv", "--tunableop", "-o", "r.csv", "--class", "x"],
        ["--from-log", "u.csv", "--from", "r.csv"],
        ["713276b", "--all"],
        ["mm", "8x8", "8x8", "--dtype", "f32", "--all"],
        ["mm", "8x8", "8x8", "--dtype", "f32", "--from", "r.csv"],
        ["713276b", "--repeat", "3"],
        ["713276b", "--class", "x"],
        ["u.csv", "--tunableop", "-o", "r.csv", "--device", "cpu"],
        ["u.csv", "--tunableop", "-o", "r.csv", "--budget", "0"],
        ["r.csv", "--tunableop", "-o", "r.csv"],
    ],
)
def test_words_that_do_not_go_together(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("u.csv").write_text(f"{LINES[0]}\n")
    Path("r.csv").write_text(HEAD + rows(LINES))
    assert main(["tune", *words]) == 2
