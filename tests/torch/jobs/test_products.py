"""Sums of products, scaled and grouped ones: tuned by a program with our templates on, then built
again from their keys, measured, tuned, pinned and verified."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from backend.disk.layout import Layout
from backend.inductor.benchmark.errors import WrongResult
from backend.model.origin import is_own
from backend.model.tuning import Tuning
from backend.pins.store import PinStore
from backend.wire.jobs import WorkerJob, job_words
from backend.worker.measure.truth import true_product
from rocm_tui.actions.measure import measure_job
from rocm_tui.actions.pick import load_model
from rocm_tui.actions.proof import as_tuned
from rocm_tui.actions.tune import TuneOptions, problem_of, tune_job
from rocm_tui.jobs.worker import Worker, spawn_worker
from tests.support.rocm_programs import run

pytestmark = pytest.mark.torch

PROGRAM = """
rand, f8, bf16 = torch.randn, torch.float8_e4m3fn, torch.bfloat16

def go(function, *inputs):
    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(function)(*inputs)

go(lambda a, b, c, d: torch.mm(a, b) + torch.mm(c, d),
   rand(48, 64), rand(64, 32), rand(48, 64), rand(64, 32))
def scaled(a, b, s, t):
    return torch._scaled_mm(a, b, s, t, out_dtype=bf16)
a, b = rand(32, 64).to(f8), rand(48, 64).to(f8).t()
go(scaled, a, b, torch.tensor(0.5), torch.tensor(2.0))
go(scaled, a, b, torch.rand(32, 1) + 0.5, torch.rand(1, 48) + 0.5)
go(lambda x, w, e: torch._grouped_mm(x, w, e), rand(40, 32).bfloat16(), rand(3, 32, 16).bfloat16(),
   torch.tensor([8, 20, 40], dtype=torch.int32))
"""
KINDS = ("mm_plus_mm", "scaled_mm", "scaled_mm by row", "grouped_mm")
"""In the program's order."""


@dataclass(frozen=True)
class Lab:
    tunings: dict[str, Tuning]
    worker: Worker
    layout: Layout

    def do(self, job: WorkerJob[Any]) -> dict[str, Any]:
        return self.worker.exchange(job_words(job))


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    layout = Layout(tmp_path_factory.mktemp("products") / "cache")
    run(PROGRAM, layout.root, code=False)
    rows = load_model(layout).rows()
    tunings = sorted((row.tuning for row in rows), key=lambda tuning: tuning.when or 0.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROCM_TUI_TEMPLATE_BUDGET", "1")
        with spawn_worker(sys.executable, layout.root) as worker:
            yield Lab(dict(zip(KINDS, tunings, strict=True)), worker, layout)


@pytest.mark.parametrize("kind", KINDS)
def test_all_choices_are_measured_and_right(lab: Lab, kind: str) -> None:
    tuning = lab.tunings[kind]
    assert tuning.op == kind.split()[0] and len(tuning.choices) >= 2
    result = lab.do(measure_job(tuning, tuning.choices, budget=0.3, rounds=2))
    assert result["ok"] and not result["measurement"]["failed"], result
    assert "not checked" not in " ".join(result["measurement"]["trouble"])


@pytest.mark.parametrize("kind", KINDS)
def test_each_is_tuned_pinned_and_verified(lab: Lab, kind: str) -> None:
    tuning = lab.tunings[kind]
    tuned = lab.do(tune_job(problem_of(tuning), TuneOptions(templates=True)))
    assert tuned["ok"] and tuned["inputs"] == tuning.inputs_key, tuned
    assert {c["hash"] for c in tuned["choices"]} == {c.hash for c in tuning.choices}
    ours = next(choice for choice in tuning.choices if is_own(choice.hash or ""))
    assert tuning.key is not None and ours.hash is not None
    store = PinStore(lab.layout)
    store.pin(None, tuning.key, ours.hash, label=ours.label)
    [asked] = as_tuned([s.pin for s in store.status() if s.pin.hash == ours.hash], lab.layout)
    result = lab.do(asked.job())
    assert (result["ok"], result["hash"]) == (True, ours.hash), result


def _wrong(op: str, result: torch.Tensor, *inputs: torch.Tensor) -> bool:
    try:
        true_product(op, inputs, "highest").check(result)
    except WrongResult:
        return True
    return False


def test_a_wrong_result_is_seen() -> None:
    """Of what a reference could forget: a second product, a scale, the ends of groups."""
    torch.manual_seed(0)
    a, b, c, d = (torch.randn(16, 16) for _ in "abcd")
    assert not _wrong("mm_plus_mm", a @ b + c @ d, a, b, c, d)
    assert _wrong("mm_plus_mm", a @ b, a, b, c, d)
    rows, columns = torch.rand(16, 1) + 2, torch.rand(1, 16) + 2
    left, right = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn)
    product = left.float() @ right.float()
    scaled = (product * rows * columns).bfloat16()
    assert not _wrong("scaled_mm", scaled, left, right, rows, columns)
    assert _wrong("scaled_mm", product.bfloat16(), left, right, rows, columns)
    experts, ends = torch.stack([b, d]), torch.tensor([4, 16], dtype=torch.int32)
    grouped = torch.cat([a[:4] @ b, a[4:] @ d])
    assert not _wrong("grouped_mm", grouped, a, experts, ends)
    assert _wrong("grouped_mm", torch.cat([a[:5] @ b, a[5:] @ d]), a, experts, ends)
