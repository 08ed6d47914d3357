"""Jobs that end early: `--json` prints what was done, and the error on the next line."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from backend.model.problem import TuningKey
from backend.wire.jobs import WorkerJob
from rocm_tui.cli import graphs, measure, tune
from rocm_tui.cli.entry import main
from rocm_tui.cli.work import LiveLine
from rocm_tui.jobs.limits import JobError
from tests.support.graph_log import inputs, write_program
from tests.support.improve_lab import GRAPH, Workers, write_graph

ID = TuningKey("mm", inputs(8), "highest").id
DIED = JobError("the worker died")


@dataclass
class EndingWorkers(Workers):
    line: LiveLine = field(default_factory=LiveLine)


def documents(
    words: str,
    cache: Path,
    job_that_ends: int,
    error: BaseException,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> list[dict[str, Any]]:
    """Run a command whose n-th job ends with an error; return its documents."""
    jobs: list[WorkerJob[Any]] = []

    def before(job: WorkerJob[Any]) -> None:
        jobs.append(job)
        if len(jobs) == job_that_ends:
            raise error

    workers = EndingWorkers(before=before)
    for module in (graphs, measure, tune):
        monkeypatch.setattr(module, "Work", lambda *args, **options: workers)
    code = main([*words.split(), "--cache-dir", str(cache), "--json"])
    assert code == (130 if isinstance(error, KeyboardInterrupt) else 1)
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    ("words", "done"),
    [
        (f"measure {ID} --repeat 3 --yes", "measurements"),
        (f"trial {ID} --processes 3 --yes", "trials"),
    ],
)
def test_a_process_that_dies_costs_only_its_own_result(
    words: str,
    done: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_graph(tmp_path)
    result, error = documents(words, tmp_path, 3, DIED, monkeypatch, capsys)
    assert len(result[done]) == 2
    assert "the worker died" in error["error"]["message"]
    (error,) = documents(words, tmp_path, 1, DIED, monkeypatch, capsys)
    assert "the worker died" in error["error"]["message"]


def test_an_interrupted_search_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_graph(tmp_path)
    words = f"improve {GRAPH} --yes"
    (search,) = documents(words, tmp_path, 3, KeyboardInterrupt(), monkeypatch, capsys)
    assert search["schema"].startswith("rocm-tui/improve/")


@pytest.mark.parametrize(
    ("words", "schema"),
    [
        ("measure --suspects --yes", "rocm-tui/measure-suspects/1"),
        (f"tune {ID}", "rocm-tui/tune/1"),
    ],
)
def test_an_interrupted_list_is_printed(
    words: str,
    schema: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_program(tmp_path)
    (result,) = documents(words, tmp_path, 1, KeyboardInterrupt(), monkeypatch, capsys)
    assert result["schema"] == schema
