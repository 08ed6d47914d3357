"""A pin under the feet of programs that offer other choices under the same key; see `pin_pairs`.

`python tests/support/pin_pairs.py DIR --count 200` draws from more programs,
with whatever torch it has.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.places import ROOT
from tests.support.torch_models import child_env

pytestmark = pytest.mark.torch

PAIRS = ROOT / "tests" / "support" / "pin_pairs.py"


@pytest.mark.parametrize(
    ("forms", "flags"), [(["bmm"], []), (["relu", "sigmoid"], []), (["bmm"], ["--hooks"])]
)
def test_every_program_compiles_and_the_pin_holds_where_it_is_offered(
    tmp_path: Path, forms: list[str], flags: list[str]
) -> None:
    words = [str(tmp_path / "cache"), "--count", "6", "--forms", *forms, *flags]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(PAIRS), *words],
        env={**child_env(tmp_path), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["pairs"] == 6 and told["failures"] == 0
    assert 0 < told["apart"] < 6, "some offer what is pinned, others do not"
