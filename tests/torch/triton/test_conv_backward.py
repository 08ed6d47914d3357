"""The backward pass of convolutions, which Inductor tunes from torch 2.13 on, with Triton's choices
alone: they are Inductor's own, written for gfx942 and run on the CPU by Triton's interpreter."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from backend.disk.layout import Layout
from backend.model.events import GraphCompiled
from backend.model.graph import Swap
from backend.model.options import CONVOLUTION_RESULTS
from backend.model.tuning import Tuning
from backend.pins.store import PinStore
from backend.wire.jobs import TrialJob, WorkerJob, job_words
from rocm_tui.actions.measure import measure_job
from rocm_tui.actions.sources import load_model
from rocm_tui.actions.verify_program import pins_to_verify
from rocm_tui.jobs.tune import TuneOptions, problem_of, tune_job
from rocm_tui.jobs.worker import Worker, spawn_worker
from tests.support.hooked import sessions
from tests.support.rocm_programs import run
from tests.support.triton_lab import triton_python

pytestmark = pytest.mark.torch

ENV = {"TRITON_INTERPRET": "1", "TRITON_TARGET": "gfx942", "TRITON_DEFAULT_FP_FUSION": "1"}
PROGRAM = """
config.cpu_backend = "triton"
config.max_autotune_gemm_backends = "ATEN,TRITON"
config.max_autotune_conv_bwd_weight_backends = "ATEN,TRITON"
config.max_autotune_conv_bwd_input_backends = config.max_autotune_conv_backends = "TRITON"

def last(*sizes):
    return torch.randn(*sizes).to(memory_format=torch.channels_last)

def backward(grad, x, weight):
    options = [2, 1], [1, 0], [1, 2], False, [0, 0], 2
    given = grad, x, weight, None, *options, [True, True, False]
    return torch.ops.aten.convolution_backward(*given)[:2]

sizes = (1, 4, 4, 5), (6, 2, 3, 2)
x, weight = (last(*shape) for shape in sizes)
grad = last(1, 6, 2, 3)
compiled = torch.compile(backward)
for mine, right in zip(compiled(grad, x, weight), backward(grad, x, weight)):
    assert (mine - right).abs().max() < 1e-4
torch._dynamo.reset()
torch.compile(lambda x, w: torch.conv2d(x, w, stride=(2, 1), groups=2))(x, weight)
"""
OPTIONS = {
    "stride": (2, 1),
    "padding": (1, 0),
    "dilation": (1, 2),
    "transposed": (0,),
    "output_padding": (0, 0),
    "groups": (2,),
}
OPS = {"convolution_bwd_weight": (6, 2, 3, 2), "convolution_bwd_input": (1, 4, 4, 5)}
"""With the sizes of the result, which the key does not tell: a stride leaves a row of x unread."""


@dataclass(frozen=True)
class Lab:
    """What was recorded of the program, and a worker on a cache that is empty at first."""

    tunings: dict[str, Tuning]
    graph: str
    recorded: Layout
    worker: Worker
    layout: Layout

    def do(self, job: WorkerJob[Any]) -> dict[str, Any]:
        return self.worker.exchange(job_words(job))


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder, python = tmp_path_factory.mktemp("backward"), triton_python()
    recorded, layout = Layout(folder / "recorded"), Layout(folder / "elsewhere")
    off = {"ROCM_TUI_TEMPLATES": "0"}
    env = {**ENV, **off, "ROCM_TUI_CAPTURE": "1"}
    run(PROGRAM, recorded.root, env, code=False, python=python)
    tunings = {row.tuning.op: row.tuning for row in load_model(recorded).rows()}
    [events] = sessions(recorded.root)
    graphs = [event.graph for event in events if isinstance(event, GraphCompiled)]
    [graph] = [graph.id for graph in graphs if {use.op for use in graph.tunings} == set(OPS)]
    with spawn_worker(python, layout.root, {**os.environ, **ENV}) as worker:
        yield Lab(tunings, graph, recorded, worker, layout)


@pytest.mark.parametrize("op", OPS)
def test_what_it_was_given_is_recorded(lab: Lab, op: str) -> None:
    """By ATen's choice; or by the graph, where the program asks for Triton's choices alone."""
    sizes = {CONVOLUTION_RESULTS[op]: OPS[op]}
    assert dict(lab.tunings[op].options) == {**OPTIONS, **sizes}
    assert bool(_aten(lab.tunings[op])) == (op == "convolution_bwd_weight")


def test_what_a_forward_one_without_aten_was_given_is_recorded(lab: Lab) -> None:
    forward = lab.tunings["convolution"]
    wanted = {**OPTIONS, "padding": (0, 0), "dilation": (1, 1)}
    assert dict(forward.options) == wanted and not _aten(forward)


def _aten(tuning: Tuning) -> list[str]:
    names = [choice.name or "" for choice in tuning.choices]
    assert any(name.startswith("triton_") for name in names)
    return [choice.hash or "" for choice in tuning.choices if "triton" not in (choice.name or "")]


@pytest.mark.parametrize("op", OPS)
def test_it_is_measured_and_right(lab: Lab, op: str) -> None:
    """ATen's own choice names its outputs as ATen does not, and cannot be run (torch 2.13.0)."""
    tuning = lab.tunings[op]
    fastest = min(tuning.choices, key=lambda choice: choice.ms or math.inf)
    aten = [choice for choice in tuning.choices if choice.hash in _aten(tuning)]
    result = lab.do(measure_job(tuning, [fastest, *aten], budget=0.1, rounds=1))
    assert result["ok"], result["reason"]
    found = result["measurement"]
    assert "not checked" not in " ".join(found["trouble"])
    assert [choice["hash"] for choice in found["failed"]] == _aten(tuning)
    assert [choice["hash"] for choice in found["choices"]] == [fastest.hash]


@pytest.mark.parametrize("op", OPS)
def test_it_is_tuned_pinned_and_verified(lab: Lab, op: str) -> None:
    tuning = lab.tunings[op]
    tuned = lab.do(tune_job(problem_of(tuning), TuneOptions()))
    assert tuned["ok"] and tuned["inputs"] == tuning.inputs_key, tuned
    assert {c["hash"] for c in tuned["choices"]} >= {c.hash for c in tuning.choices}
    last = next(c for c in reversed(tuning.choices) if not c.failed)
    assert tuning.key is not None and last.hash is not None
    store = PinStore(lab.layout)
    store.pin(None, tuning.key, last.hash, label=last.label)
    [pin] = [status.pin for status in store.status() if status.pin.op == op]
    [asked] = pins_to_verify([pin], lab.layout)
    assert asked.options == tuning.options_text
    result = lab.do(asked.job())
    assert (result["ok"], result["hash"]) == (True, last.hash), result


def test_its_graph_is_tried(lab: Lab) -> None:
    """Both ops with their second best; the worker's cache has no times of what was recorded."""
    swaps = []
    for tuning in map(lab.tunings.__getitem__, OPS):
        timed = sorted((c.ms, c.hash) for c in tuning.choices if c.ms and c.hash)
        assert tuning.key is not None
        key = tuning.key
        swaps.append(Swap(key.op, key.inputs, key.precision, timed[1][1]))
    arms, root = ((), tuple(swaps)), str(lab.recorded.root)
    result = lab.do(TrialJob(lab.graph, arms, budget=0.1, rounds=1, root=root))
    assert result["ok"], result["reason"]
    assert [arm["failed"] for arm in result["trial"]["arms"]] == ["", ""]
