"""`tune --device` and `--all-devices`: for which GPUs the times are kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from backend.model.problem import Problem
from backend.wire.jobs import Environment, EnvironmentJob, TuneJob
from rocm_tui.actions.tune import for_all_devices, tune_options
from rocm_tui.cli.entry import main
from rocm_tui.errors import UsageError
from rocm_tui.jobs.tune import TuneOptions, tune_job

PROBLEM = Problem("mm", ((8, 8), (8, 8)), dtypes=("torch.float16",))


def test_without_options_the_worker_has_its_own() -> None:
    job = tune_job(PROBLEM, TuneOptions())
    assert job == TuneJob("mm", shapes=PROBLEM.shapes, dtypes=PROBLEM.dtypes)


def test_a_problem_with_a_key_is_tuned_by_it_alone() -> None:
    key = "[('cpu', 'torch.float16', 8, 8, 8, 1, 0), ('cpu', 'torch.float16', 8, 8, 8, 1, 0)]"
    keyed = replace(PROBLEM, inputs_key=key, precision="highest", strides=((8, 1),) * 2)
    assert tune_job(keyed, TuneOptions()) == TuneJob("mm", key, "highest")
    without = replace(keyed, inputs_key=None, device="cpu")
    job = TuneJob("mm", None, "highest", PROBLEM.shapes, PROBLEM.dtypes, keyed.strides, "cpu")
    assert tune_job(without, TuneOptions()) == job


def options(device: str | None) -> TuneOptions:
    return tune_options(
        backends=None, search_space=None, templates=False, budget=None, device=device
    )


@pytest.mark.parametrize(("device", "index"), [(None, None), ("cpu", None), ("0", 0), ("3", 3)])
def test_the_times_are_kept_for_the_gpu_that_is_named(
    device: str | None, index: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    job = tune_job(PROBLEM, options(device))
    assert (job.kept_as, job.others) == (index, ())


@pytest.mark.parametrize(("device", "index"), [(None, 0), (2, 2)])
def test_all_gpus_of_the_kind_take_the_times_over(device: int | None, index: int) -> None:
    jobs: list[Any] = []

    def run(job: Any) -> Any:
        jobs.append(job)
        return Environment("2.13.0", gpu=True, alike=(1, 3))

    job = tune_job(PROBLEM, for_all_devices(run, TuneOptions(kept_as=device, budget=2.0)))
    assert jobs == [EnvironmentJob(alike_to=index)]
    assert (job.kept_as, job.others, job.budget) == (index, (1, 3), 2.0)


def test_without_gpus_there_is_nobody_to_take_times_over() -> None:
    def run(job: Any) -> Any:
        return Environment("2.13.0")

    with pytest.raises(UsageError, match="torch sees none here"):
        for_all_devices(run, TuneOptions())


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--device", "cpu"), "--all-devices is for GPUs"),
        (("--fleet", "local"), "--all-devices goes without --fleet"),
    ],
)
def test_what_does_not_go_with_all_devices(
    words: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    problem = ("mm", "8x8", "8x8", "--dtype", "f16")
    assert main(["tune", *problem, "--all-devices", *words]) == 2
    assert why in capsys.readouterr().err
