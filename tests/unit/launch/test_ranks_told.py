"""At the end of a run under `--agree` it is said where its ranks took different choices after all:
one that finds a compiled graph in the cache asks nobody."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rocm_tui.cli.entry import main
from tests.support.places import ROOT

PROGRAM = """
import sys, time
from pathlib import Path
from backend.disk.layout import Layout
from backend.disk.sessions import EventWriter
from backend.model.choice import Choice
from backend.model.events import ChoiceSelected, GraphCompiled, SessionEnded, TuningStarted
from backend.model.graph import Graph, TuningUse
from backend.model.session import Session
from tests.support.pin_lab import KEY

root, run, program, first, *ranks = sys.argv[1:]
for number, told in enumerate(ranks, int(first)):
    by, took = told.split(":")
    session = Session(f"{run}-{100 + number}", host="box", pid=100 + number, rank=number,
                      argv=(program,), torch="2.13", started=time.time())
    writer = EventWriter(Layout(Path(root)), session)
    key = (KEY.op, KEY.inputs, KEY.precision)
    if by == "graph":
        writer.write(GraphCompiled(1, time.time(), Graph("1dabc8d", tunings=(
            TuningUse(*key, 1, took),))))
    else:
        choices = (Choice("mm", "mm-c1"), Choice("Cpp", "Cpp-c2"))
        writer.write(TuningStarted(1, time.time(), *key, ((4, 8),), ((8, 1),),
                                   ("torch.float32",), "cpu", choices))
        writer.write(ChoiceSelected(1, time.time(), took, by, 0.1, 0.1))
    writer.write(SessionEnded(time.time()))
    writer.close()
"""


def said(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    *ranks: str,
    flag: str = "--agree",
    run: str = "box-1",
    first: int = 0,
    program: str = "train.py",
) -> str:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), run, program, str(first), *ranks]
    words = ["run", flag, "--id", run, "--cache-dir", str(tmp_path), "--", *command]
    assert main(words) == 0
    *_, look, command = capfd.readouterr().err.splitlines()[-3:]
    return f"{look}\n{command}" if "ranks took" in look else ""


@pytest.fixture(autouse=True)
def _path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def test_a_rank_with_a_cached_graph_is_told_of(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert said(tmp_path, capfd, "timing:mm-c1", "rank:mm-c1", "graph:Cpp-c2") == (
        "rocm-tui: worth a look: ranks took different choices of 1 of 1 problem (1 by a compiled "
        "graph out of the cache, with which a rank asks nobody)\n"
        f"rocm-tui: next: rocm-tui agree --run box-1 --cache-dir {tmp_path}"
    )
    assert main(["agree", "--run", "box-1", "--cache-dir", str(tmp_path)]) == 1


def test_ranks_that_choose_alone_are_told_of(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    told = said(tmp_path, capfd, "timing:mm-c1", "alone:Cpp-c2")
    assert "ranks took different choices of 1 of 1 problem\n" in told


def test_ranks_that_agree_and_those_that_were_not_asked_to_are_left_in_peace(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert said(tmp_path / "a", capfd, "timing:mm-c1", "graph:mm-c1") == ""
    assert said(tmp_path / "b", capfd, "timing:mm-c1", "timing:Cpp-c2", flag="--no-agree") == ""


def test_ranks_of_other_runs_are_told_of_by_each_run_that_sees_them(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """As where a launcher starts a `run` for each rank, or each host; what is no rank of that job
    says nothing."""
    assert said(tmp_path, capfd, "timing:mm-c1") == ""
    assert said(tmp_path, capfd, "alone:Cpp-c2", run="box-8", program="other.py", first=2) == ""
    assert said(tmp_path, capfd, "rank:mm-c1", run="box-3", first=1) == ""
    told = said(tmp_path, capfd, "alone:Cpp-c2", run="far-4", first=3)
    assert "different choices of 1 of 1 problem\n" in told
    assert told.endswith(f"rocm-tui agree --run far-4 --cache-dir {tmp_path}")
    capfd.readouterr()
    assert main(["agree", "--run", "far-4", "--cache-dir", str(tmp_path)]) == 1
    assert "ranks 0-1, 3" in capfd.readouterr().out


def test_damaged_pins_hinder_neither_that_nor_the_exit_code(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rocm_tui").mkdir()
    (tmp_path / "rocm_tui" / "pins.json").write_text("{")
    words = [str(tmp_path), "box-1", "train.py", "0", "timing:mm-c1", "alone:Cpp-c2"]
    command = [sys.executable, "-c", f"{PROGRAM}\nsys.exit(7)", *words]
    flags = ["--agree", "--id", "box-1", "--cache-dir", str(tmp_path)]
    assert main(["run", *flags, "--", *command]) == 7
    assert "ranks took different choices of 1 of 1 problem" in capfd.readouterr().err
