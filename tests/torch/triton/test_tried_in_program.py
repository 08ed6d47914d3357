"""`trial -- CMD` where Triton kernels are pinned: both sides under our hooks, the pin on one."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.disk.layout import Layout
from rocm_tui.actions.pin import pin_choice, pinnable
from rocm_tui.actions.trial_program import ONCE, steps_of, try_program
from rocm_tui.environment import hooked
from rocm_tui.ingest.follow.sources import read_sources
from rocm_tui.jobs.program import ProgramTrial
from rocm_tui.session.model import Model
from tests.support import autotuned
from tests.support.hooked import launch
from tests.support.places import EVERYTHING, ROOT
from tests.support.torch_models import child_env
from tests.support.triton_lab import triton_python

pytestmark = pytest.mark.torch

PROGRAM = ROOT / "tests" / "support" / "inductor_kernels_program.py"
STEPS = steps_of("^step", None, 2)


def pin_slowest(cache: Path, op: str, *more: Path) -> None:
    model = Model()
    model.apply(read_sources([str(path) for path in (cache, *more)]))
    (row,) = [row for row in model.rows() if row.tuning.op == op]
    pin_choice(pinnable(row, row.tuning.choices[-1].hash or "", model.sessions), Layout(cache))


def slower(trial: ProgramTrial) -> float:
    """How many times as long the side with the pins took."""
    with_, without = (
        min(run.ms for run in trial.runs if run.side == side) for side in ("with", "without")
    )
    return with_ / without


@pytest.mark.skipif(not EVERYTHING, reason="five processes with Inductor: TEST_EVERYTHING=1")
def test_a_pinned_kernel_of_inductors_is_launched_on_one_side_alone(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    command = [triton_python(), "-W", "ignore", str(PROGRAM), f"code={cache}.code"]
    command += ["compute=-", "only=def user_kernel("]
    env = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "TRITON_DEFAULT_FP_FUSION": "1"}
    done = launch(command, cache, "--quiet", env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    pin_slowest(cache, "user_autotune")
    words = [*command, "steps=9"]
    trial = try_program(words, Layout(cache), STEPS, pairs=1, env=child_env(cache, env))
    assert trial.trouble == (ONCE,)
    assert slower(trial) > 1.2
    assert not list(Layout(cache).graphs.glob("trial-*"))


def test_a_pinned_kernel_of_triton_is_launched_on_one_side_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, kept = tmp_path / "cache", tmp_path / "triton"
    monkeypatch.setenv("TRITON_CACHE_DIR", str(kept))
    env = {**autotuned.environment(kept), "TORCHINDUCTOR_CACHE_DIR": str(cache)}
    autotuned.run(kept, 1024)
    cache.mkdir()
    pin_slowest(cache, "triton", kept)
    before = [path.read_bytes() for path in autotuned.files(kept)]
    env |= {"STEPS": "9", **{k: v for k, v in hooked(env, "").items() if k == "PYTHONPATH"}}
    trial = try_program(autotuned.argv(1024), Layout(cache), STEPS, pairs=1, env=env)
    assert trial.trouble == ()
    assert slower(trial) > 1.2
    assert [path.read_bytes() for path in autotuned.files(kept)] == before
