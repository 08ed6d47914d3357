"""The worker's jobs on a convolution, whose key does not tell its stride and padding."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from backend.disk.layout import Layout
from backend.model import options
from backend.model.options import text_of_options
from backend.model.problem import TuningKey
from backend.pins.store import PinStore
from rocm_tui.jobs.worker import Worker, spawn_worker

pytestmark = pytest.mark.torch

LAST = [[1024, 1, 128, 16], [144, 1, 48, 16]]
JOB = {
    "job": "tune",
    "op": "convolution",
    "shapes": [[1, 16, 8, 8], [8, 16, 3, 3]],
    "strides": LAST,
    "dtypes": ["torch.float32"],
    "device": "cpu",
    "templates": True,
}


def given(stride: int) -> str:
    pairs = {"stride": (stride,) * 2, "padding": (1, 1), "dilation": (1, 1)}
    rest = {"transposed": (0,), "output_padding": (0, 0), "groups": (1,)}
    return text_of_options(options.options(pairs | rest))


@dataclass(frozen=True)
class Lab:
    worker: Worker
    cache: Path
    tuned: dict[str, Any]

    @property
    def of_key(self) -> dict[str, Any]:
        return {name: self.tuned[name] for name in ("op", "inputs", "precision")}

    def hash(self, name: str) -> str:
        (hash,) = (c["hash"] for c in self.tuned["choices"] if c["name"] == name)
        return str(hash)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    cache = tmp_path_factory.mktemp("convolution") / "cache"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROCM_TUI_TEMPLATE_BUDGET", "1")
        with spawn_worker(sys.executable, cache) as worker:
            yield Lab(worker, cache, worker.exchange({**JOB, "options": given(2)}))


def test_it_is_tuned_with_the_options_that_the_job_has(lab: Lab) -> None:
    assert lab.tuned["ok"], lab.tuned
    assert {choice["name"] for choice in lab.tuned["choices"]} == {"convolution", "rocm_conv_0"}
    assert ("stride", (2, 2)) in options.options_of_hash("convolution", lab.hash("convolution"))


def test_both_are_measured_and_compared_with_the_truth(lab: Lab) -> None:
    hashes = [lab.hash("convolution"), lab.hash("rocm_conv_0")]
    job = {"job": "measure", **lab.of_key, "hashes": hashes, "budget": 0.5}
    result = lab.worker.exchange(job)
    assert result["ok"], result
    said = " ".join(result["measurement"]["trouble"])
    assert "not checked" not in said and "wrong" not in said
    assert {choice["hash"] for choice in result["measurement"]["choices"]} == set(hashes)


def test_our_choice_is_called_once_it_is_pinned(lab: Lab) -> None:
    ours = lab.hash("rocm_conv_0")
    job = {"job": "verify", **lab.of_key, "hash": ours}
    key = TuningKey(*lab.of_key.values())
    PinStore(Layout(lab.cache)).pin(None, key, ours, label="rocm_conv_0")
    result = lab.worker.exchange(job)
    assert (result["ok"], result["kernel"]) == (True, "rocm_conv_0"), result


def test_without_options_it_is_not_rebuilt(lab: Lab) -> None:
    other = {**JOB, "shapes": [[1, 16, 8, 8], [4, 16, 3, 3]]}
    assert "cannot be rebuilt without its stride" in lab.worker.exchange(other)["reason"]


def test_two_convolutions_of_one_key_are_not_confused(lab: Lab) -> None:
    """Last in this file: the key is then that of both."""
    ones = lab.worker.exchange({**JOB, "options": given(1)})
    assert ones["ok"] and ones["inputs"] == lab.tuned["inputs"]
    job = {"job": "tune", **lab.of_key, "templates": True}
    assert "share this key" in lab.worker.exchange(job)["reason"]
    assert lab.worker.exchange({**job, "options": given(1)})["ok"]
