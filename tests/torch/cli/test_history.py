"""`show ID --history` of what a real program left in the cache dir: two runs, and a pin after."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rocm_tui.cli.entry import main
from tests.support.torch_models import child_env

pytestmark = pytest.mark.torch

PROGRAM = """
import torch
a, b = torch.randn(4, 32, 64), torch.randn(4, 64, 96)
torch.compile(lambda a, b: torch.relu(torch.bmm(a, b)))(a, b)
print(torch.__version__)
"""


def run(cache: Path, settings: dict[str, str]) -> str:
    """The version of PyTorch that compiled it under `rocm-tui run`."""
    words = [sys.executable, "-m", "rocm_tui", "run", "--max-autotune", "--"]
    done = subprocess.run(
        [*words, sys.executable, "-W", "ignore", "-c", PROGRAM],
        env=child_env(cache, settings), capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


def test_two_runs_and_a_pin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    version = run(tmp_path, {})
    only_aten = {"TORCHINDUCTOR_MAX_AUTOTUNE_GEMM_BACKENDS": "ATEN"}
    assert run(tmp_path, {**only_aten, "TORCHINDUCTOR_FX_GRAPH_CACHE": "0"}) == version
    place = ("--cache-dir", str(tmp_path))
    assert main(["ls", "--json", *place]) == 0
    tunings = json.loads(capsys.readouterr().out)["tunings"]
    (id,) = {tuning["id"] for tuning in tunings}
    assert main(["pin", id, "bmm", *place]) == 0
    capsys.readouterr()
    assert main(["show", id, "--history", "--json", *place]) == 0
    told = json.loads(capsys.readouterr().out)
    tuned, lone, pin = told["events"]
    assert [event["what"] for event in told["events"]] == ["tuned", "one choice", "pin"]
    assert told["op"] == "bmm" and told["shapes"] == [[4, 32, 64], [4, 64, 96]]
    assert tuned["ms"] > 0 and lone["ms"] is None and lone["name"] == pin["name"] == "bmm"
    assert {tuned["torch"], lone["torch"]} == {version}
    assert tuned["session"] != lone["session"] and None not in (tuned["session"], lone["session"])
    assert tuned["when"] < lone["when"] < pin["when"]
    assert main(["show", id, "--history", *place]) == 0
    text = capsys.readouterr().out
    assert text.startswith("3 events\n") and "one choice" in text and version in text
