"""What doctor says of hooks and templates is seen, not looked up."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.torch_models import child_env
from tests.support.warm_python import warm_python

pytestmark = pytest.mark.torch

PROGRAM = """
import json, torch
from backend.inductor.torch import tuning as torch_api
from backend.worker.jobs import environment as fit
found = {"fits": fit.examine_fit()}

offer = fit.offer
def broken(*args):
    raise AttributeError("'SizeVarAllocator' object has no attribute 'optimization_hint'")
fit.offer = broken
found["templates"] = fit.examine_fit()
fit.offer = offer

key = torch_api.tuning_key
torch_api.tuning_key = broken
found["hooks"] = fit.examine_fit()
torch_api.tuning_key = key

torch.__version__ = "2.7.1+cpu"
found["unknown"] = fit.examine_fit()
print(json.dumps({name: [each.hooks, each.templates] for name, each in found.items()}))
"""


def test_each_of_them_is_tried(tmp_path: Path) -> None:
    done = subprocess.run(
        [*warm_python(), "-c", PROGRAM],
        env=child_env(tmp_path),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["fits"] == ["", ""]
    hooks, templates = found["templates"]
    assert hooks == "" and "no attribute 'optimization_hint'" in templates
    hooks, templates = found["hooks"]
    assert "no attribute 'optimization_hint'" in hooks
    assert "no attribute 'optimization_hint'" in templates
    off = "torch 2.7.1+cpu is not supported by the hooks (2.8 to 2.15 are)"
    assert found["unknown"] == [off, off]
    assert not list(tmp_path.rglob("*.jsonl"))  # no session
