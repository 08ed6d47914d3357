"""Budgets and read-only of the settings hold where a command does not say it itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from backend.disk.layout import Layout
from backend.model.graph import Arm
from backend.wire.jobs import TrialJob, WorkerJob
from rocm_tui.actions.measure import choices_to_measure, measure_job
from rocm_tui.actions.sources import load_model
from rocm_tui.actions.trial import GraphTrial
from rocm_tui.actions.verify import Verifying
from rocm_tui.cli import watch
from rocm_tui.cli.entry import main
from tests.support.screen_lab import write_cache


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "config.toml"
    path.write_text("[watch]\nread_only = true\n[budgets]\nmeasure = 7\ntrial = 8.5\nverify = 9\n")
    monkeypatch.setenv("ROCM_TUI_CONFIG", str(path))
    return tmp_path


def test_budgets_of_the_settings(said: Path) -> None:
    write_cache(said, 16)
    (row,) = load_model(Layout(said)).rows()
    choices = choices_to_measure(row)
    assert measure_job(row.tuning, choices).budget == 7
    assert measure_job(row.tuning, choices, budget=3).budget == 3
    asked: list[TrialJob] = []

    def run(job: WorkerJob[Any]) -> Any:
        assert isinstance(job, TrialJob)
        asked.append(job)
        raise InterruptedError

    arms: tuple[Arm, ...] = ((), ())
    for given in ({}, {"budget": 2.0}):
        with pytest.raises(InterruptedError):
            GraphTrial(run, Layout(said), "abc", arms, **given).once()
    assert [job.budget for job in asked] == [8.5, 2.0]
    assert Verifying("python", Layout(said))._limits.seconds == 9
    assert Verifying("python", Layout(said), seconds=4)._limits.seconds == 4


def test_read_only_of_the_settings(
    said: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown: list[bool] = []

    def screen(paths: list[str], *, read_only: bool, **rest: object) -> int:
        shown.append(read_only)
        return 0

    monkeypatch.setattr(watch, "run_watch", screen)
    for words in ([], ["--read-only"], ["--no-read-only"]):
        assert main(["watch", *words, str(said)]) == 0
    assert shown == [True, True, False]
    assert main(["watch", "--", "true"]) == 2
    assert "say --no-read-only" in capsys.readouterr().err
    for words, flag in (([], "--read-only"), (["--allow-actions"], "--no-read-only")):
        params = watch.serve_command.make_context("serve", words).params
        asked = {name: params[name] for name in ("allow_actions", "polling", "python", "cache_dir")}
        assert flag in watch.screen_command(params["paths"], **asked)
