"""Linear layers with frozen weights, fused with what follows, quantized, in few bits: tuned by a
program, then built again by a worker from what its session recorded, measured, tuned, pinned and
verified, on a CPU where each has a C++ choice beside the library's."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest

from backend.cache.autotune import copy_unpinned
from backend.disk.layout import Layout
from backend.model.events import GraphCompiled
from backend.model.graph import Swap
from backend.model.options import options_of_text
from backend.model.problem import TensorSpec, TuningKey
from backend.model.tuning import Tuning
from backend.pins.store import PinStore
from backend.wire.jobs import TrialJob, WorkerJob, job_words
from backend.worker.problem import options_of_key, rebuild
from backend.worker.rebuilt import NotRebuildable
from rocm_tui.actions.measure import measure_job
from rocm_tui.actions.sources import load_model
from rocm_tui.actions.verify_program import pins_to_verify
from rocm_tui.jobs.tune import TuneOptions, problem_of, tune_job
from rocm_tui.jobs.worker import Worker, spawn_worker
from tests.support.cpu_offers import need_avx512, need_onednn_bfloat16
from tests.support.hooked import sessions
from tests.support.rocm_programs import run
from tests.support.weight_programs import ACTIVATIONS, CPP, GPU, PROGRAM

pytestmark = pytest.mark.torch

OPS = {
    "linear_unary, with an activation": "linear_unary",
    "linear_binary": "linear_binary",
    "quantized linear": "qlinear_unary",
    "quantized linear, with a sum": "qlinear_binary",
    "int8 weights": "_weight_int8pack_mm",
    "int4 weights": "_weight_int4pack_mm_for_cpu",
}


@dataclass(frozen=True, eq=False)
class Lab:
    tunings: dict[str, Tuning]
    worker: Worker
    layout: Layout

    def do(self, job: WorkerJob[Any]) -> dict[str, Any]:
        return self.worker.exchange(job_words(job))

    @cache  # noqa: B019
    def tuned(self, kind: str) -> dict[str, Any]:
        return self.do(tune_job(problem_of(self.tunings[kind]), TuneOptions()))


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The worker has the program's compiled kernels, and none of its timings: the hashes in the
    autotune cache would tell some of what was recorded."""
    layout = Layout(tmp_path_factory.mktemp("weights") / "cache")
    run(PROGRAM, layout.root, {"ROCM_TUI_TEMPLATES": "0", "ROCM_TUI_CAPTURE": "1"}, code=False)
    rows = load_model(layout).rows()
    tunings = sorted((row.tuning for row in rows), key=lambda tuning: tuning.when or 0.0)
    shutil.rmtree(layout.autotune)
    with spawn_worker(sys.executable, layout.root) as worker:
        yield Lab(dict(zip((*ACTIVATIONS, *GPU, *CPP), tunings, strict=True)), worker, layout)


def need(kind: str) -> None:
    """Skip what Inductor does not build in this way on this CPU. A frozen layer that oneDNN does
    not take is an `addmm` of which no session records that its weight is frozen, so that a worker
    cannot build it again with its C++ choice."""
    if kind in ACTIVATIONS or kind.startswith("linear"):
        need_onednn_bfloat16()
    if kind == "int4 weights":
        need_avx512()


@pytest.mark.parametrize("kind", (*ACTIVATIONS, *CPP))
def test_all_choices_are_measured_and_right(lab: Lab, kind: str) -> None:
    """Another key, or a hash that is not offered, is an error of the job."""
    need(kind)
    tuning = lab.tunings[kind]
    assert tuning.op == OPS.get(kind, "linear_unary") and tuning.options_text
    choices = [c for c in tuning.choices if kind in CPP or kind.split()[0] in (c.hash or "")]
    assert len(choices) >= (2 if kind in CPP else 1)
    result = lab.do(measure_job(tuning, choices, budget=0.1, rounds=2))
    assert result["ok"] and not result["measurement"]["failed"], str(result)
    assert "not checked" not in " ".join(result["measurement"]["trouble"])


@pytest.mark.parametrize("kind", CPP)
def test_it_is_tuned_under_its_key(lab: Lab, kind: str) -> None:
    need(kind)
    tuning, tuned = lab.tunings[kind], lab.tuned(kind)
    assert tuned["ok"] and tuned["inputs"] == tuning.inputs_key, tuned
    assert {c["hash"] for c in tuned["choices"]} == {c.hash for c in tuning.choices}


@pytest.mark.parametrize("kind", CPP)
def test_it_is_pinned_and_verified(lab: Lab, kind: str) -> None:
    need(kind)
    tuning = lab.tunings[kind]
    cpp = next(c for c in tuning.choices if (c.hash or "").startswith("Cpp"))
    assert lab.tuned(kind)["ok"] and tuning.key is not None and cpp.hash is not None
    store = PinStore(lab.layout)
    store.pin(None, tuning.key, cpp.hash, label=cpp.label)
    [asked] = pins_to_verify([s.pin for s in store.status() if s.pin.hash == cpp.hash], lab.layout)
    assert asked.options == tuning.options_text
    result = lab.do(asked.job())
    assert (result["ok"], result["hash"]) == (True, cpp.hash), result


@pytest.fixture(scope="module")
def trying(lab: Lab) -> Iterator[Worker]:
    private = Layout(lab.layout.graphs / "cache")
    copy_unpinned(lab.layout, private)
    with spawn_worker(sys.executable, private.root) as worker:
        yield worker


@pytest.mark.parametrize("kind", CPP)
def test_its_graph_is_tried(lab: Lab, trying: Worker, kind: str) -> None:
    """The last that asked for the key: activations share it."""
    if kind == "int4 weights":
        need_avx512()
    tuning = lab.tunings[kind]
    events = [event for session in sessions(lab.layout.root) for event in session]
    told = [event.graph for event in events if isinstance(event, GraphCompiled)]
    [*_, graph] = [one for one in told if tuning.key in {use.key for use in one.tunings}]
    assert tuning.key is not None and graph.captured
    key, hashes = tuning.key, [choice.hash or "" for choice in tuning.choices if choice.offered]
    swaps = [(Swap(key.op, key.inputs, key.precision, hash),) for hash in hashes]
    result = trying.exchange(job_words(TrialJob(graph.id, tuple(swaps), budget=0.1, rounds=2)))
    assert result["ok"] and len(swaps) == 2, result
    assert [arm["failed"] for arm in result["trial"]["arms"]] == ["", ""]
    assert all(arm["error"] <= arm["allowed"] for arm in result["trial"]["arms"])


@pytest.mark.parametrize("kind", GPU)
def test_what_runs_on_no_cpu_is_built_again_to_its_key(lab: Lab, kind: str) -> None:
    """Inductor asks for that key, and offers the recorded choice, which then cannot be run."""
    tuning = lab.tunings[kind]
    assert tuning.op == kind.partition(",")[0] and "out_dtype" in dict(tuning.options)
    result = lab.do(measure_job(tuning, tuning.choices, budget=0.1))
    assert not result["ok"] and "none of the choices can be run" in result["reason"], result


def test_kernels_that_a_setting_asked_for_are_asked_for_again() -> None:
    specs = [TensorSpec("cpu", "torch.float32", (16, 16), (16, 1), 0)] * 2
    assert rebuild("mm", specs).settings == {}
    assert rebuild("mm", specs, options_of_text("tma=1")).settings == {
        "triton.enable_persistent_tma_matmul": True
    }


def test_what_was_recorded_decides_between_two_that_share_a_key() -> None:
    key = TuningKey("linear_unary", "[]", "highest")
    hashes = [f"_linear_pointwise-attr='{name}'-scalars=[]-cab" for name in ("relu", "tanh")]
    assert dict(options_of_key(key, hashes, "attr=tanh,frozen=1"))["attr"] == ("tanh",)
    with pytest.raises(NotRebuildable, match=r"relu.* and .*tanh"):
        options_of_key(key, hashes)


def test_without_what_was_recorded_its_program_is_to_be_run(lab: Lab) -> None:
    tuning = lab.tunings["quantized linear, with a sum"]
    cpp = [c for c in tuning.choices if (c.hash or "").startswith("Cpp")]
    key = (tuning.inputs_key or "").replace(" 32, 64,", " 33, 64,")
    job = replace(measure_job(tuning, cpp, budget=0.1), inputs=key, options="")
    unknown = lab.do(job)
    assert not unknown["ok"] and "rocm-tui run" in unknown["reason"], unknown
