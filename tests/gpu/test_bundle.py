"""A service on a GPU that starts warm on what came in a bundle: nothing timed, nothing compiled.

Skipped where torch sees no GPU.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from backend.disk.layout import Layout
from rocm_tui.actions.pin import pin_choice, pinnable
from rocm_tui.cli.entry import main
from rocm_tui.ingest.follow.watcher import read_sources
from rocm_tui.session.model import Model
from tests.support.hooked import launch
from tests.support.places import ROOT
from tests.support.torch_models import child_env

pytestmark = pytest.mark.torch

PROGRAM = ROOT / "tests" / "support" / "bundle_program.py"


def started(cache: Path) -> dict[str, int]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(PROGRAM)],
        env=child_env(cache),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    told: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return told


def kernels(cache: Path) -> set[str]:
    """The folders of what Triton compiled."""
    return {path.name for path in (cache / "triton").glob("*/*") if path.is_dir()}


def pin_the_slowest_of_triton(layout: Layout) -> None:
    model = Model()
    model.apply(read_sources([str(layout.root)]))
    (row,) = (row for row in model.rows() if row.tuning.op == "bmm")
    ours = {c.hash: c.ms for c in row.tuning.choices if c.ms and str(c.name).startswith("triton")}
    pin_choice(pinnable(row, max(ours, key=ours.__getitem__) or "", model.sessions), layout)


def test_a_service_starts_warm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there, here = Layout(tmp_path / "a"), Layout(tmp_path / "elsewhere" / "b")
    done = launch([sys.executable, "-W", "ignore", str(PROGRAM)], there.root, "--quiet")
    assert done.returncode == 0, done.stderr[-4000:]
    pin_the_slowest_of_triton(there)
    started(there.root)
    path, before = tmp_path / "warm.tar.gz", kernels(there.root)
    assert main(["bundle", "-o", str(path), "--cache-dir", str(there.root), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {row["part"] for row in told["parts"]} >= {"pins", "timings", "graphs", "triton"}
    shutil.rmtree(there.root)

    take_in = ["unbundle", str(path), "--yes", "--sha256", told["sha256"], "--cache-dir"]
    assert main([*take_in, str(there.root)]) == 0
    warm = started(there.root)
    print("at its path:", warm)
    assert (warm["benchmarks"], warm["hits"], warm["misses"]) == (0, 1, 0)
    assert kernels(there.root) == before
    words = ["verify", "--cache-dir", str(there.root), "--", sys.executable, str(PROGRAM)]
    assert main(words) == 0 and "called: " in capsys.readouterr().out

    assert main([*take_in, str(here.root)]) == 0
    assert f"will look in {there.root} for the best configs" in capsys.readouterr().err
    moved = started(here.root)
    print("at another path:", moved)
    assert (moved["hits"], moved["misses"]) == (1, 0)
    assert kernels(here.root) == before
