"""`rocm-tui trial` on a graph that a real program called, and on that program."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from backend.disk.layout import Layout
from rocm_tui.actions.trial_program import ONCE
from tests.support.documents import document
from tests.support.places import ROOT
from tests.support.torch_models import child_env

PROGRAM = [sys.executable, str(ROOT / "tests" / "support" / "captured_program.py")]


def call(cache: Path, *words: str, env: Mapping[str, str] | None = None) -> Any:
    return subprocess.run(
        [sys.executable, "-m", "rocm_tui", *words],
        env=child_env(cache, env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
    )


def persons(cache: Path) -> dict[str, bytes]:
    """All files of the cache dir that are not ours."""
    return {
        str(path.relative_to(cache)): path.read_bytes()
        for path in sorted(cache.rglob("*"))
        if path.is_file() and "rocm_tui" not in path.parts
    }


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cache = tmp_path_factory.mktemp("captured") / "cache"
    done = call(cache, "run", "--capture", "--", *PROGRAM, "1")
    assert done.returncode == 0, done.stderr
    return cache


@pytest.fixture(scope="module")
def tuning(captured: Path) -> dict[str, Any]:
    """The one that takes most time, with two choices."""
    tunings = json.loads(call(captured, "ls", "--json").stdout)["tunings"]
    assert len(tunings) == 2
    return max(tunings, key=lambda tuning: tuning["share"])


@pytest.fixture
def cache(captured: Path, tmp_path: Path) -> Path:
    """A copy with the graphs, of which nothing was run."""
    shutil.copytree(captured, tmp_path / "cache", symlinks=True)
    return tmp_path / "cache"


def test_a_graph_is_shown_then_tried_and_nothing_else_changes(
    cache: Path, tuning: dict[str, Any]
) -> None:
    before = persons(cache)
    words = ["trial", tuning["id"], "#2", "--budget", "1"]
    refused = call(cache, *words)
    assert refused.returncode == 1 and refused.stdout == ""
    (path,) = Layout(cache).graphs.glob("*.py")
    assert f"look at {path}, then run it with --yes" in refused.stderr
    assert "captured_program.py" in refused.stderr  # its title
    planned = call(cache, *words, "--dry-run")
    assert planned.returncode == 1 and "run it with --yes" in planned.stderr
    planned = call(cache, *words, "--dry-run", "--yes")
    assert planned.returncode == 0 and planned.stdout.startswith("would time ")
    assert "for at most 1 s with " in planned.stdout
    assert planned.stdout.endswith(f"never run before: {path}\n")
    assert not (path.parent / "accepted.json").exists()
    done = call(cache, *words, "--yes", "--json")
    assert done.returncode in (0, 1), done.stderr
    trial = document(done.stdout, "trial")["trial"]
    assert trial["graph"] == path.stem
    baseline, arm = trial["arms"]
    assert baseline["choices"] == [] and baseline["ratio"] == 1.0
    assert arm["choices"][0]["hash"] == tuning["choices"][1]["hash"]
    assert arm["failed"] == "" and arm["error"] is not None and arm["error"] <= arm["allowed"]
    assert arm["ratio_low"] <= arm["ratio"] <= arm["ratio_high"] and arm["passes"] >= 1
    assert arm["gone"] or arm["added"]
    assert persons(cache) == before
    again = call(cache, *words)
    assert "run it with --yes" not in again.stderr
    assert "the graph is" in again.stdout and "rounds in" in again.stdout
    told = call(cache, "graphs", path.stem).stdout
    assert "Trials:" in told and told.count("graph ") >= 2


def test_the_baseline_is_the_graph_without_pins(cache: Path, tuning: dict[str, Any]) -> None:
    """The pinned choice is tried against what Inductor would take, so its kernels differ."""
    second = tuning["choices"][1]["hash"]
    assert call(cache, "pin", tuning["id"], second).returncode == 0
    before = persons(cache)
    done = call(cache, "trial", tuning["id"], second, "--budget", "1", "--yes", "--json")
    trial = document(done.stdout, "trial")["trial"]
    assert trial["arms"][1]["gone"] or trial["arms"][1]["added"], done.stderr
    assert persons(cache) == before


def test_several_processes_are_told_one_by_one(cache: Path, tuning: dict[str, Any]) -> None:
    words = ["trial", tuning["id"], "#2", "--yes", "--budget", "0.5", "--processes", "3"]
    done = call(cache, *words)
    assert [line.partition(":")[0] for line in done.stdout.splitlines()[:3]] == [
        "1 of 3",
        "2 of 3",
        "3 of 3",
    ], done.stderr
    assert "the graph is" in done.stdout


def test_a_text_that_is_no_list_of_ops_is_refused(cache: Path, tuning: dict[str, Any]) -> None:
    (path,) = Layout(cache).graphs.glob("*.py")
    witness = cache / "witness"
    path.write_text(path.read_text() + f"\nopen({str(witness)!r}, 'w')\n")
    done = call(cache, "trial", tuning["id"], "#2", "--yes")
    assert done.returncode == 1 and done.stdout == ""
    assert "is not a captured graph of ours" in done.stderr
    assert not witness.exists()


def test_another_graph_is_asked_for(cache: Path, tuning: dict[str, Any]) -> None:
    done = call(cache, "trial", tuning["id"], "#2", "--graph", "fffffff")
    assert done.returncode == 1 and "no graph has the id 'fffffff'" in done.stderr


def test_a_program_with_its_pins_and_without(cache: Path, tuning: dict[str, Any]) -> None:
    assert call(cache, "pin", tuning["id"], tuning["choices"][1]["hash"]).returncode == 0
    before = persons(cache)
    words = ["trial", "--step", r"^step \d", "--pairs", "3", "--", *PROGRAM, "10", "4000"]
    done = call(cache, *words)
    assert done.stdout.count("a step,") == 8, done.stderr
    assert "to compile, not counted, with the pins" in done.stdout
    assert "same code" not in done.stdout and "compiled nothing" not in done.stdout
    assert "3 pairs of runs in" in done.stdout
    assert persons(cache) == before
    assert not list(Layout(cache).graphs.glob("trial-*"))


def test_a_graph_that_a_program_calls_is_a_step_too(cache: Path, tuning: dict[str, Any]) -> None:
    assert call(cache, "pin", tuning["id"], tuning["choices"][1]["hash"]).returncode == 0
    (path,) = Layout(cache).graphs.glob("*.py")
    words = ["trial", "--graph", path.stem[:4], "--pairs", "3", "--json", "--", *PROGRAM, "3"]
    done = call(cache, *words)
    assert done.stdout, done.stderr
    trial = document(done.stdout, "trial-program")
    assert [run["side"] for run in trial["runs"][:2]] == ["without", "with"]
    assert all(run["steps"] > 0 and run["ms"] > 0 for run in trial["runs"])
    assert ONCE in trial["trouble"]
