"""Calls of flex attention that a program made, built again from what its session recorded."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask

from backend.disk.layout import Layout
from backend.model.graph import Swap
from backend.model.tuning import Tuning
from backend.wire.captured import FlexCall, flex_call_of, flex_text
from backend.wire.jobs import TrialJob, VerifyJob, WorkerJob, job_words
from backend.worker.trial.drawn import drawn_inputs
from backend.worker.trial.program import program_of
from rocm_tui.actions.measure import measure_job
from rocm_tui.actions.sources import load_model
from rocm_tui.jobs.tune import TuneOptions, problem_of, tune_job
from rocm_tui.jobs.worker import Worker, spawn_worker
from tests.support.places import ROOT
from tests.support.rocm_programs import run
from tests.support.torch_models import child_env
from tests.support.triton_lab import triton_python

pytestmark = pytest.mark.torch


def test_each_pass_is_built_again_to_its_key_and_its_choices(tmp_path: Path) -> None:
    """For a gfx942, by Triton's compiler: the rebuilt call and the captured graph differ in nothing
    that is recorded."""
    child = subprocess.run(
        [triton_python(), "-m", "tests.support.flex_calls"],
        cwd=ROOT,
        env=child_env(tmp_path),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert child.returncode == 0, child.stderr[-2000:]
    passes = [json.loads(line) for line in child.stdout.splitlines()]
    assert all(first == again == tried for first, again, tried in passes)
    counts = {first[0]: len(set(first[2])) for first, *_ in passes}
    assert counts.keys() == {"flex_attention", "flex_decoding", "flex_attention_backward"}
    assert min(counts.values()) > 1


PROGRAM = """
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
rand = torch.randn

def go(dynamic, function, *inputs):
    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(function, dynamic=dynamic)(*inputs)

slopes, documents = torch.rand(4), torch.arange(200) // 70
def alibi(score, b, h, q, k):
    return score + (k - q) * slopes[h]
def window(b, h, q, k):
    return (q >= k) & (q - k < 90) & (documents[q] == documents[k])
mask = create_block_mask(window, None, None, 200, 200, device="cpu")
go(False, lambda *qkv: flex_attention(*qkv, alibi, mask), *(rand(1, 4, 200, 32) for _ in "qkv"))
config.cpp.cxx = ("no-compiler",)  # what follows is recorded before it is compiled
try:
    go(True, lambda *qkv: flex_attention(*qkv, alibi), *(rand(2, 4, 40, 32) for _ in "qkv"))
except Exception:
    pass
"""


@dataclass(frozen=True)
class Lab:
    """What was recorded of the program: a call, and one whose sizes may vary; and a worker."""

    call: Tuning
    varying: Tuning
    worker: Worker
    layout: Layout

    def do(self, job: WorkerJob[Any]) -> dict[str, Any]:
        return self.worker.exchange(job_words(job))


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("flex")
    program = Layout(folder / "program")
    run(PROGRAM, program.root, {"ROCM_TUI_CAPTURE": "1"}, code=False)
    rows = load_model(program).rows()
    call, varying = sorted((row.tuning for row in rows), key=lambda tuning: tuning.when or 0.0)
    with spawn_worker(sys.executable, folder / "elsewhere") as worker:
        yield Lab(call, varying, worker, program)


def test_a_call_is_recorded_whole(lab: Lab) -> None:
    told = flex_call_of(lab.call.call)
    assert told.call.startswith("flex_attention(t0, t1, t2, score_mod, (200, 200, t3, ")
    assert told.functions.keys() == {"score_mod", "mask_mod"}
    assert "aten.mul.Tensor" in told.functions["score_mod"]
    assert "aten.lt.Scalar(sub, 90)" in told.functions["mask_mod"]
    assert [spec.sizes for spec in told.tensors[-2:]] == [(4,), (200,)]


def test_its_one_choice_on_a_cpu_is_measured_and_right(lab: Lab) -> None:
    """Another key, or a hash that is not offered, is an error of the job; a wrong result too."""
    result = lab.do(measure_job(lab.call, lab.call.choices, budget=0.2, rounds=2))
    assert result["ok"], result
    assert not result["measurement"]["failed"]
    assert "not checked" not in " ".join(result["measurement"]["trouble"])
    tuned = lab.do(tune_job(problem_of(lab.call), TuneOptions()))
    assert "nothing to choose from: Inductor offers cpp_flex_attention" in tuned["reason"]


def verify_job(tuning: Tuning, told: str) -> VerifyJob:
    assert tuning.key is not None
    key, (choice,) = tuning.key, tuning.choices
    return VerifyJob(key.op, key.inputs, key.precision, choice.hash or "", 0, tuning.threads, told)


def test_the_generated_code_calls_it(lab: Lab) -> None:
    result = lab.do(verify_job(lab.call, lab.call.options_text))
    assert (result["ok"], result["hash"]) == (True, lab.call.choices[0].hash), result


def test_another_mask_is_another_choice_under_the_same_key(lab: Lab) -> None:
    other = lab.call.options_text.replace("lt.Scalar(sub, 90)", "lt.Scalar(sub, 91)")
    result = lab.do(verify_job(lab.call, other))
    assert not result["ok"] and "is none of the" in result["reason"]


def graph_of(lab: Lab) -> Path:
    (path,) = lab.layout.graphs.glob("*.py")
    return path


def test_its_graph_is_tried(lab: Lab) -> None:
    key, (choice,) = lab.call.key, lab.call.choices
    assert key is not None
    arm = (Swap(key.op, key.inputs, key.precision, choice.hash or ""),)
    root = str(lab.layout.root)
    result = lab.do(TrialJob(graph_of(lab).stem, ((), arm), budget=0.2, rounds=2, root=root))
    assert result["ok"], result
    assert [(each["failed"], each["error"]) for each in result["trial"]["arms"]] == [("", 0.0)] * 2


def test_a_captured_graph_gets_the_block_mask_of_its_mask(lab: Lab) -> None:
    program = program_of(graph_of(lab).read_text())
    assert list(program.functions) == ["sdpa_score0", "sdpa_mask0"]
    inputs = drawn_inputs(program)
    (documents,) = (each for each in inputs if each.dtype == torch.int64)

    def window(b: Any, h: Any, q: Any, k: Any) -> Any:
        return (q >= k) & (q - k < 90) & (documents[q] == documents[k])

    wanted = create_block_mask(window, None, None, 200, 200, device="cpu").as_tuple()
    made = [each for each in inputs if each.dtype == torch.int32]
    tensors = [each for each in wanted if isinstance(each, torch.Tensor)]
    assert documents.unique().numel() > 1 and len(made) == len(tensors)
    assert {str(each) for each in made} == {str(each) for each in tensors}


RUN = "lib = __import__('os').system('true')"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"functions": {"score_mod": RUN, "mask_mod": RUN}}, "`forward` is expected"),
        ({"call": "__import__('os').system('true')"}, "a call of flex attention is expected"),
        ({"call": "flex_attention(t0, open, 1)"}, "is not a number, tensor or function"),
        ({"reason": "it has sizes that may vary"}, "sizes that may vary"),
    ],
)
def test_what_no_recorder_writes_is_refused(lab: Lab, change: dict[str, Any], why: str) -> None:
    told = replace(flex_call_of(lab.call.call), **change)
    result = lab.do(verify_job(lab.call, flex_text(told)))
    assert not result["ok"] and why in result["reason"], result


def test_what_is_missing_is_said(lab: Lab) -> None:
    unknown = lab.do(verify_job(lab.call, ""))
    assert not unknown["ok"] and "rocm-tui run -- CMD" in unknown["reason"]
    varying = lab.do(verify_job(lab.varying, lab.varying.options_text))
    assert not varying["ok"] and "compile with dynamic=False" in varying["reason"]
    assert flex_call_of(lab.varying.call) == FlexCall(reason=flex_call_of(lab.varying.call).reason)
