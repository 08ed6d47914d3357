"""Processes that run our package in an environment that is not ours: nothing else comes along."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from backend.inductor import child_python
from rocm_tui.jobs import worker
from rocm_tui.jobs.limits import JobFailed
from tests.support.places import ROOT

PLANTED = "raise ImportError('the torch of the tool')\n"


@pytest.fixture
def tool(tmp_path: Path) -> Path:
    """Packages of an environment of ours: `backend`, and a torch that is not the user's."""
    site = tmp_path / "tool" / "site-packages"
    (site / "torch").mkdir(parents=True)
    (site / "torch" / "__init__.py").write_text(PLANTED)
    (site / "backend").symlink_to(ROOT / "backend")
    return site


@pytest.fixture
def bare(tmp_path: Path) -> str:
    """A Python without any package."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    return str(tmp_path / "venv" / "bin" / "python")


def test_a_worker_finds_backend_and_nothing_beside_it(
    tool: Path, bare: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "BACKEND", tool / "backend")
    monkeypatch.chdir(tool)
    missing = pytest.raises(JobFailed, match="No module named 'torch'")
    with worker.spawn_worker(bare, tmp_path / "cache") as started, missing:
        started.exchange({"job": "environment"})


def test_a_process_of_a_graph_is_not_given_what_lies_where_the_user_stands(
    tool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tool)
    show = "import json, sys; print(json.dumps(sys.path))"
    done = subprocess.run(
        child_python.command(show),
        env=child_python.child_environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    path = json.loads(done.stdout)
    assert "" not in path and str(tool) not in path
    assert {p for p in sys.path if Path(p).is_dir() and p} <= {*path}
