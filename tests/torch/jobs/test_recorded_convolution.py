"""Convolutions that a program tuned, built again from what its session recorded: the worker's cache
knows nothing of them, and the hashes of our choices tell no stride."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from backend.disk.layout import Layout
from backend.model import convolution
from backend.model.choice import Choice
from backend.model.origin import is_own
from backend.model.tuning import Tuning
from backend.pins.store import PinStore
from backend.wire.jobs import WorkerJob, job_words
from rocm_tui.actions.measure import measure_job
from rocm_tui.actions.pick import load_model
from rocm_tui.actions.proof import as_tuned
from rocm_tui.actions.tune import TuneOptions, problem_of, tune_job
from rocm_tui.jobs.worker import Worker, spawn_worker
from tests.support.rocm_programs import run

pytestmark = pytest.mark.torch

PROGRAM = """
import torch.nn.functional as F
LAST, rand = torch.channels_last, torch.randn

def go(function, *inputs):
    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(function)(*inputs)

def last(*sizes):
    return rand(*sizes).to(memory_format=LAST)
"""
PLAIN = """
go(lambda x, w, b: F.conv1d(x, w, b, stride=2, padding=1), rand(2, 8, 40), rand(12, 8, 3), rand(12))
go(lambda x, w: F.conv2d(x, w, padding=(1, 2)), rand(1, 4, 9, 7), rand(6, 4, 3, 3))
go(lambda x, w, b: F.conv2d(x, w, b, stride=2), last(1, 16, 16, 16), last(24, 16, 3, 3), rand(24))
go(lambda x, w: F.conv2d(x, w, groups=4, dilation=(1, 2)), last(1, 16, 12, 12), last(8, 4, 2, 3))
go(lambda x, w: F.conv3d(x, w, padding=1), rand(1, 4, 6, 6, 6), rand(6, 4, 3, 3, 3))
go(lambda x, w: F.conv_transpose2d(x, w, stride=2), rand(1, 4, 6, 6), rand(4, 5, 3, 3))
"""
OURS = """
go(lambda x, w, b: F.conv2d(x, w, b, stride=(2, 1), padding=1, groups=12),
   last(2, 12, 7, 9), last(12, 1, 3, 3), rand(12))
"""
WANTED: Mapping[int, Mapping[str, tuple[int, ...]]] = {
    1: {"stride": (2,), "padding": (1,)},
    2: {"stride": (1, 1), "padding": (1, 2)},
    3: {"stride": (2, 2), "padding": (0, 0)},
    4: {"dilation": (1, 2), "groups": (4,)},
    5: {"padding": (1, 1, 1)},
    6: {"transposed": (1,), "stride": (2, 2)},
    7: {"stride": (2, 1), "padding": (1, 1), "groups": (12,)},
}
"""What each of the program's convolutions is given, by its place."""


@dataclass(frozen=True)
class Lab:
    """What was recorded, in the program's order; and a worker on a cache that is empty at first."""

    recorded: list[Tuning]
    worker: Worker
    cache: Path

    def do(self, job: WorkerJob[Any]) -> dict[str, Any]:
        return self.worker.exchange(job_words(job))

    @property
    def ours(self) -> tuple[Tuning, Choice]:
        """The convolution with choices of ours, and one of them."""
        tuning = self.recorded[-1]
        return tuning, next(c for c in tuning.choices if is_own(c.hash or ""))


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("recorded")
    off = {"ROCM_TUI_TEMPLATES": "0"}
    recorded: list[Tuning] = []
    for name, program, env in (("plain", PLAIN, off), ("ours", OURS, {})):
        run(PROGRAM + program, folder / name, env, code=False)
        rows = load_model(Layout(folder / name)).rows()
        recorded += sorted((row.tuning for row in rows), key=lambda tuning: tuning.when or 0.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROCM_TUI_TEMPLATE_BUDGET", "1")
        with spawn_worker(sys.executable, folder / "elsewhere") as worker:
            yield Lab(recorded, worker, folder / "elsewhere")


@pytest.mark.parametrize("place", WANTED)
def test_what_it_was_given_is_recorded(lab: Lab, place: int) -> None:
    assert len(lab.recorded) == len(WANTED)
    given = dict(lab.recorded[place - 1].options)
    assert given.keys() == set(convolution.NAMES)
    assert given.items() >= WANTED[place].items()


@pytest.mark.parametrize("place", [1, 2, 3, 4, 5, 6])
def test_each_kind_is_built_again_to_its_key_and_measured(lab: Lab, place: int) -> None:
    """Another key, or a hash that is not offered, is an error of the job."""
    tuning = lab.recorded[place - 1]
    result = lab.do(measure_job(tuning, tuning.choices, budget=0.2, rounds=2))
    assert result["ok"], result
    said = " ".join(result["measurement"]["trouble"])
    assert "wrong" not in said
    assert ("transposed" in said) == ("not checked" in said) == (place == 6)


def test_ours_alone_is_measured_by_what_was_recorded(lab: Lab) -> None:
    tuning, ours = lab.ours
    unknown = lab.do(replace(measure_job(tuning, [ours], budget=0.2), options=""))
    assert not unknown["ok"] and "rocm-tui run" in unknown["reason"]
    result = lab.do(measure_job(tuning, [ours], budget=0.2, rounds=2))
    assert result["ok"], result
    assert not result["measurement"]["failed"]
    assert "not checked" not in " ".join(result["measurement"]["trouble"])


def test_with_another_stride_no_choice_is_the_recorded_one(lab: Lab) -> None:
    """The key does not tell the two apart; the hash does."""
    tuning, ours = lab.ours
    other = dict(tuning.options) | {"stride": (1, 2)}
    job = measure_job(replace(tuning, options=convolution.options(other)), [ours], budget=0.2)
    result = lab.do(job)
    assert not result["ok"] and "is none of the" in result["reason"]


def test_it_is_tuned_pinned_and_verified(lab: Lab) -> None:
    tuning, ours = lab.ours
    tuned = lab.do(tune_job(problem_of(tuning), TuneOptions(templates=True)))
    assert tuned["ok"], tuned
    assert tuned["inputs"] == tuning.inputs_key
    assert {c["hash"] for c in tuned["choices"]} == {c.hash for c in tuning.choices}
    assert tuning.key is not None and ours.hash is not None
    PinStore(Layout(lab.cache)).pin(None, tuning.key, ours.hash, label=ours.label)
    pins = [status.pin for status in PinStore(Layout(lab.cache)).status()]
    [asked] = as_tuned(pins, Layout(lab.cache))
    assert asked.options == tuning.options
    result = lab.do(asked.job())
    assert (result["ok"], result["hash"]) == (True, ours.hash), result
