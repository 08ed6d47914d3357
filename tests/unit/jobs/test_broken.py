"""Choices that end or block their worker: they fail alone, and the rest is measured."""

from __future__ import annotations

import ctypes
import json
import os
from pathlib import Path
from typing import Any

import pytest

from backend.disk.layout import Layout
from backend.model.choice import Choice, Measurement
from backend.model.tuning import Tuning
from backend.processes.shared import MARK_SIZE, place_of
from backend.wire.jobs import EnvironmentJob, TuneJob
from rocm_tui.actions.measure import Measuring, NotMeasured
from rocm_tui.cli.work import with_log
from rocm_tui.jobs import run, worker
from rocm_tui.jobs.limits import JobFailed, Limits, WorkerDied
from rocm_tui.jobs.program import run_program
from rocm_tui.jobs.run import run_watched
from rocm_tui.jobs.tune import tuned
from rocm_tui.jobs.worker import spawn_worker
from tests.support.broken_workers import broken_python
from tests.support.odd_workers import Odd, odd_python

KEY = "[('cpu', 'torch.float32', 8, 8, 8, 1, 0), ('cpu', 'torch.float32', 8, 8, 8, 1, 0)]"


class Lab:
    """A folder, and what its workers were asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = broken_python(folder)
        self.layout = Layout(folder / "cache")

    def measuring(self, *hashes: str, op: str = "mm") -> Measuring:
        choices = tuple(Choice(hash, hash, 1.0) for hash in hashes)
        tuning = Tuning(op, inputs_key=KEY, precision="highest", choices=choices)
        return Measuring(self.run, tuning, choices, budget=8.0)

    def run(self, job: Any) -> Any:
        return run_watched(
            job,
            python=self.python,
            layout=self.layout,
            env=os.environ,
            limits=Limits(stuck=2.0),
            on_progress=lambda progress: None,
        )

    @property
    def jobs(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "jobs").read_text().splitlines()]


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def told(found: Measurement) -> tuple[list[str], dict[str | None, str | None]]:
    return [one.hash for one in found.choices], {one.hash: one.reason for one in found.failed}


def test_what_crashes_aborts_or_hangs_fails_alone_and_is_not_tried_again(lab: Lab) -> None:
    measuring = lab.measuring("a-1", "segv-1", "compiler-1", "slow-1", "hang-1", "killed-1", "b-1")
    able, failed = told(measuring.once())
    assert able == ["a-1", "slow-1", "b-1"]
    assert failed == {
        "segv-1": "the worker ended (signal 11, SIGSEGV): last words",
        "compiler-1": "the worker ended (signal 6, SIGABRT): last words",
        "hang-1": "it ran for 2 s without an end and was killed",
        "killed-1": "the worker ended (signal 9, SIGKILL: somebody killed it, or the system for "
        "want of memory): last words",
    }
    assert [len(job["broken"]) for job in lab.jobs] == [0, 1, 2, 3, 4]
    assert [job["budget"] for job in lab.jobs] == [8.0, 4.0, 2.0, 1.0, 1.0], "one budget for all"
    assert told(measuring.once()) == (able, failed)
    assert len(lab.jobs) == 6 and lab.jobs[-1]["budget"] == 8.0


def test_where_no_choice_is_to_blame_the_job_fails_at_once(lab: Lab) -> None:
    with pytest.raises(WorkerDied, match="signal 11"):
        lab.measuring("a-1", "b-1", op="outside").once()
    assert len(lab.jobs) == 1
    with pytest.raises(NotMeasured, match=r"none of the choices .* segv-2: .*signal 11"):
        lab.measuring("segv-1", "segv-2").once()
    assert len(lab.jobs) == 3


def test_a_worker_that_we_killed_because_it_ended_slowly_was_not_killed_by_somebody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "_LAST_BREATH", 1.0)
    with (
        spawn_worker(odd_python(tmp_path), tmp_path / "cache") as slow,
        pytest.raises(WorkerDied) as caught,
    ):
        slow.run(Odd("mute"))
    assert str(caught.value) == (
        "the worker ended (killed, as it had closed its channel 1 s before): acting: mute"
    )


class ClosedMeanwhile(worker.Worker):
    """Another thread closes it while its log is read."""

    def __init__(self) -> None:
        self._before, self._last_log, self._reads = 0, ["last words"], [-1]

    @property
    def _log(self) -> int | None:  # type: ignore[override]
        return self._reads.pop() if self._reads else None


def test_the_log_of_a_worker_that_is_closed_meanwhile_is_its_last() -> None:
    assert ClosedMeanwhile().log() == ["last words"]


def test_an_answer_that_makes_no_sense_fails_the_job(lab: Lab) -> None:
    why = "the job measure failed: the worker's answer makes no sense: .*measurement"
    with pytest.raises(JobFailed, match=why):
        lab.measuring("nonsense-1", "a-1").once()


def test_a_signal_that_has_no_name_is_a_number(lab: Lab) -> None:
    with pytest.raises(NotMeasured, match=r"\(signal 37, which has no name\)"):
        lab.measuring("realtime-1").once()


def test_the_end_of_a_failed_worker_s_log_is_kept_and_named(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "KEPT", 2)
    folder = lab.layout.home / "failed"
    for _ in range(3):
        with pytest.raises(WorkerDied) as caught:
            lab.measuring("a-1", op="outside").once()
        log = caught.value.log
        assert log is not None and log.parent == folder
        assert log.read_text() == "last words\n"
        assert with_log(caught.value) == f"{caught.value}; the end of its log: {log}"
    assert len(list(folder.iterdir())) == 2 and log.exists()


def test_a_log_that_cannot_be_kept_or_says_nothing_is_not_named(tmp_path: Path) -> None:
    assert run.keep_log(Layout(tmp_path / "cache"), "tune", ["", " "]) is None
    (tmp_path / "rocm_tui").write_text("no folder")
    assert run.keep_log(Layout(tmp_path), "tune", ["a line"]) is None
    assert with_log(WorkerDied("it died")) == "it died"


def test_a_mark_that_is_half_written_says_nothing() -> None:
    assert place_of(b"running 12 mm-x".ljust(MARK_SIZE, b"\0")) is not None
    for text in (
        b"",
        b"running",
        b"running 12",
        b"running x mm-x",
        b"sleeping 1 mm-x",
        b"\xff\xfe",
    ):
        assert place_of(text.ljust(MARK_SIZE, b"\0")) is None


def test_a_worker_that_does_not_start_leaves_orphans_to_the_system() -> None:
    """A process adopts orphans only as long as it has a worker."""

    def adopts() -> bool:  # 37 is PR_GET_CHILD_SUBREAPER
        answer = ctypes.c_int(-1)
        assert ctypes.CDLL(None).prctl(37, ctypes.byref(answer)) == 0
        return bool(answer.value)

    before = adopts()
    with pytest.raises(WorkerDied, match="cannot start a worker with /no/python"):
        spawn_worker("/no/python")
    assert adopts() == before
    with pytest.raises(OSError):
        run_program(["/no/program"], os.environ, lambda line, when: None)
    assert adopts() == before


@pytest.mark.parametrize(("blamed", "tried"), [(None, [{}]), ("Cpp-2", [{}, {"Cpp-2": "it died"}])])
def test_a_tuning_ends_where_no_other_choice_is_to_blame(
    blamed: str | None, tried: list[dict[str, str]]
) -> None:
    """Nobody is, or one that was left out already."""
    jobs: list[dict[str, str]] = []

    def run(job: Any) -> Any:
        jobs.append(dict(job.broken))
        assert len(jobs) < 9, "it is tried again and again"
        error = WorkerDied("it died")
        error.blamed = blamed
        raise error

    with pytest.raises(WorkerDied, match="it died"):
        tuned(run, TuneJob("mm"), any_mode=True)
    assert jobs == tried


def test_a_worker_never_autotunes_in_a_pipeline(tmp_path: Path) -> None:
    """Then PyTorch would write no times to its cache, and fail on a CPU."""
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nenv >{tmp_path}/environment\n")
    python.chmod(0o700)
    env = {**os.environ, "TORCHINDUCTOR_PIPELINE_GEMM_AUTOTUNING": "1"}
    with spawn_worker(str(python), tmp_path, env) as worker, pytest.raises(WorkerDied):
        worker.run(EnvironmentJob())
    lines = (tmp_path / "environment").read_text().splitlines()
    assert "TORCHINDUCTOR_PIPELINE_GEMM_AUTOTUNING=0" in lines
