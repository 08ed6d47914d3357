"""A worker's jobs whose choices are named by the hashes of another device of the box."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from backend.disk.layout import Layout
from backend.model.choice import Choice, MeasuredChoice, Measurement
from backend.model.graph import Swap
from backend.processes.shared import ChoiceMark, SharedMark
from backend.wire.jobs import (
    MeasureJob,
    MeasureResult,
    TrialJob,
    TuneJob,
    TuneResult,
    VerifyJob,
    VerifyResult,
)
from backend.worker import boundary as device_hashes
from backend.worker.boundary import as_asked, hashes_of, root_of, run_here, why_not_offered
from backend.worker.jobs import trial
from tests.support.device_modules import write_choice

pytestmark = pytest.mark.torch

KEY = ("mm", "[]", "highest")


def tell(what: str, **fields: object) -> None:
    """Nobody listens."""


@pytest.fixture(autouse=True)
def _on_gpu_0(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A worker that uses the first GPU, and whose cache dir is `tmp_path`."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.current_device", lambda: 0)
    monkeypatch.setattr(device_hashes, "_current", None)


def test_a_job_gets_the_hashes_of_this_device_and_answers_with_those_it_names(
    tmp_path: Path,
) -> None:
    here, there = (write_choice(tmp_path, index, BLOCK_M=64) for index in (0, 3))
    job = MeasureJob(*KEY, (there, "mm"), broken={there: "it died"})
    seen: list[MeasureJob] = []

    def run(job: MeasureJob, tell: object, mark: ChoiceMark) -> MeasureResult:
        seen.append(job)
        numbers = (0.1, 0.1, 0.1, 0.0, 9, 1.0, 1.0, 1.0)
        choices = tuple(MeasuredChoice(name, *numbers, "tied") for name in job.hashes)
        measurement = Measurement(*KEY, 5.0, choices, failed=(Choice(hash=here),))
        assert as_asked(measurement).choices[0].hash == there
        return MeasureResult(True, f"{here} is slow", measurement=measurement, missing=(here,))

    result = run_here(run, job, tell, ChoiceMark())
    assert seen == [MeasureJob(*KEY, (here, "mm"), broken={here: "it died"})]
    assert result.measurement is not None
    assert [choice.hash for choice in result.measurement.choices] == [there, "mm"]
    assert result.measurement.failed == (Choice(hash=there),)
    assert (result.reason, result.missing) == (f"{there} is slow", (there,))


def test_a_mark_names_the_choice_as_the_job_does(tmp_path: Path) -> None:
    here, there = (write_choice(tmp_path, index, BLOCK_M=64) for index in (0, 3))
    shared = SharedMark()
    mark = ChoiceMark(shared.descriptor)
    blamed: list[str] = []

    def run(job: VerifyJob, tell: object, mark: ChoiceMark) -> VerifyResult:
        with mark.at("compiling", here):
            place = shared.place()
            assert place is not None
            blamed.append(place.hash)
        return VerifyResult(True, hash=job.hash)

    assert run_here(run, VerifyJob(*KEY, there), tell, mark).hash == there
    run_here(run, VerifyJob(*KEY, here), tell, mark)
    assert blamed == [there, here]
    shared.close()


def test_a_proof_on_another_gpu_of_the_worker_has_its_hashes(tmp_path: Path) -> None:
    here, there = (write_choice(tmp_path, index, BLOCK_M=64) for index in (0, 3))
    hashes: list[str] = []

    def run(job: VerifyJob, tell: object, mark: ChoiceMark) -> VerifyResult:
        hashes.append(job.hash)
        return VerifyResult(True, hash=job.hash)

    assert run_here(run, VerifyJob(*KEY, here, gpu=3), tell, ChoiceMark()).hash == here
    assert hashes == [there]


def test_times_of_a_tuning_stay_under_the_hashes_of_this_device(tmp_path: Path) -> None:
    here, there = (write_choice(tmp_path, index, BLOCK_M=64) for index in (0, 3))
    other_here, other = (write_choice(tmp_path, index, BLOCK_M=32) for index in (0, 1))
    jobs: list[TuneJob] = []

    def run(job: TuneJob, tell: object, mark: ChoiceMark) -> TuneResult:
        jobs.append(job)
        return TuneResult(True, times={here: 0.1})

    job = TuneJob("mm", broken={there: "it died", other: "it hung"})
    assert run_here(run, job, tell, ChoiceMark()).times == {here: 0.1}
    assert jobs == [replace(job, broken={here: "it died", other_here: "it hung"})]


def test_the_choices_of_a_trial_are_those_of_this_device(tmp_path: Path) -> None:
    here, there = (write_choice(tmp_path, index, BLOCK_M=64) for index in (0, 3))
    job = TrialJob("abc", ((), (Swap(*KEY, there, "triton_mm_3"),)))
    hashes = hashes_of(job, tmp_path)
    assert hashes.on_this_device(job).arms == ((), (Swap(*KEY, here, "triton_mm_3"),))
    assert hashes.as_asked(hashes.on_this_device(job)) == job


def test_a_trial_finds_modules_in_the_cache_dir_of_the_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = TrialJob("abc", ((),))
    monkeypatch.setattr("backend.inductor.hooks.environment.home._home", Layout(tmp_path).trials)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(Layout(tmp_path).trials))
    assert root_of(job) == tmp_path
    assert root_of(replace(job, root="/elsewhere")) == Path("/elsewhere")
    assert root_of(VerifyJob(*KEY, "mm")) == Layout(tmp_path).trials


def test_the_same_kernel_named_twice_keeps_the_name_of_this_device(tmp_path: Path) -> None:
    here, there = (write_choice(tmp_path, index, BLOCK_M=64) for index in (0, 3))
    for names in ((here, there), (there, here)):
        hashes = hashes_of(MeasureJob(*KEY, names), tmp_path)
        assert hashes.on_this_device(names) == (here, here)
        assert hashes.as_asked((here,)) == (here,)


def test_without_a_gpu_nothing_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    there = write_choice(tmp_path, 3, BLOCK_M=64)
    job = MeasureJob(*KEY, (there,))
    assert hashes_of(job, tmp_path).on_this_device(job) == job


def test_a_job_without_such_hashes_touches_no_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def touched() -> int:
        raise AssertionError("initialises the GPU")

    monkeypatch.setattr("torch.cuda.current_device", touched)
    job = MeasureJob(*KEY, ("mm", "cpp_gemm-c2"))
    assert hashes_of(job, tmp_path).on_this_device(job) == job


def test_a_hash_for_any_device_is_not_renamed(tmp_path: Path) -> None:
    shared = write_choice(tmp_path, None, BLOCK_M=64)
    job = MeasureJob(*KEY, (shared,))
    assert hashes_of(job, tmp_path).on_this_device(job) == job


def _why(job: VerifyJob, *offered: str) -> str | None:
    reasons: list[str | None] = []

    def run(job: VerifyJob, tell: object, mark: ChoiceMark) -> VerifyResult:
        reasons.append(why_not_offered(job.hash, offered))
        return VerifyResult(False)

    run_here(run, job, tell, ChoiceMark())
    return reasons[0]


def test_why_a_choice_of_another_kind_of_device_is_not_offered(tmp_path: Path) -> None:
    there = write_choice(tmp_path, 3, units=304, BLOCK_M=64)
    offered = write_choice(tmp_path, 0, units=228, BLOCK_M=32)
    assert _why(VerifyJob(*KEY, there), "mm", offered) == (
        "it was tuned on another kind of device (multi_processor_count 304, here 228)"
    )


def test_why_a_choice_without_a_module_is_not_offered(tmp_path: Path) -> None:
    there = write_choice(tmp_path / "elsewhere", 3, BLOCK_M=64)
    offered = write_choice(tmp_path, 0, BLOCK_M=32)
    assert _why(VerifyJob(*KEY, there), offered) == (
        "its module is not in the cache dir, so its hash on this device is unknown"
    )


def test_devices_are_not_blamed_for_other_choices(tmp_path: Path) -> None:
    there = write_choice(tmp_path, 3, BLOCK_M=64)
    offered = write_choice(tmp_path, 0, BLOCK_M=32)
    assert _why(VerifyJob(*KEY, there), offered) is None  # dynamic sizes, or another mode
    assert _why(VerifyJob(*KEY, "cpp_gemm-" + there.partition("-")[2]), offered) is None
    assert _why(VerifyJob(*KEY, "mm"), offered) is None


def test_a_graph_of_another_gpu_is_tried_on_this_one() -> None:
    text = "full([2], device=device(type='cuda', index=3)); x = rand(3, device='cuda:3')"
    assert trial._for_this_gpu(text) == text.replace("3))", "0))").replace("cuda:3", "cuda:0")
    both = text + "; device(type='cuda', index=0)"
    assert trial._for_this_gpu(both) == both
    assert trial._for_this_gpu("device(type='cpu')") == "device(type='cpu')"
