"""Each op that Inductor tunes on a CPU: tuned by one program with our templates on, then by one
worker, which knows what the session has recorded and nothing else, built again, measured, tuned,
pinned and verified. The graphs are tried by another. See `tests.support.op_cells`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest
import torch

from backend.cache.autotune import copy_unpinned
from backend.disk.layout import Layout
from backend.inductor.benchmark.errors import WrongResult
from backend.inductor.result_checks import OpSpec, true_product
from backend.model import options
from backend.model.choice import Choice
from backend.model.events import GraphCompiled
from backend.model.graph import Graph, Swap
from backend.model.origin import is_own
from backend.model.tuning import Tuning
from backend.pins.store import PinStore
from backend.wire.jobs import TrialJob, WorkerJob, job_words
from rocm_tui.actions.measure import measure_job
from rocm_tui.actions.sources import load_model
from rocm_tui.actions.verify_program import pins_to_verify
from rocm_tui.jobs.tune import TuneOptions, problem_of, tune_job
from rocm_tui.jobs.worker import Worker, spawn_worker
from tests.support.cpu_offers import frozen_linear
from tests.support.hooked import sessions
from tests.support.op_cells import COLUMNS, ONE_CHOICE, ROWS, kinds
from tests.support.rocm_programs import run

pytestmark = pytest.mark.torch

BEGIN = """
import torch.nn.functional as F
rand, f8, bf16 = torch.randn, torch.float8_e4m3fn, torch.bfloat16

def go(function, *inputs, dynamic=None):
    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(function, dynamic=dynamic)(*inputs)

def dynamic(function, *inputs, many):
    for given in inputs[:many]:
        torch._dynamo.mark_dynamic(given, 0)
    go(function, *inputs)

def last(*sizes):
    form = torch.channels_last if len(sizes) == 4 else torch.channels_last_3d
    return rand(*sizes).to(memory_format=form)

def i8(*sizes):
    return torch.randint(-5, 5, sizes, dtype=torch.int8)

def scaled(a, b, s, t):
    return torch._scaled_mm(a, b, s, t, out_dtype=bf16)

def frozen():
    return torch.nn.Linear(64, 96).eval()

a, b = rand(32, 64).to(f8), rand(48, 64).to(f8).t()
"""
PROGRAMS = {
    "mm": "go(torch.mm, rand(48, 64), rand(64, 32))",
    "addmm": "go(torch.addmm, rand(32), rand(48, 64), rand(64, 32))",
    "bmm": "go(torch.bmm, rand(2, 48, 64), rand(2, 64, 32))",
    "baddbmm": "go(torch.baddbmm, rand(2, 48, 32), rand(2, 48, 64), rand(2, 64, 32))",
    "int_mm": "go(torch._int_mm, i8(48, 64), i8(64, 32))",
    "mm_plus_mm": "go(lambda a, b, c, d: torch.mm(a, b) + torch.mm(c, d),"
    " rand(48, 64), rand(64, 32), rand(48, 64), rand(64, 32))",
    "scaled_mm, one scale": "go(scaled, a, b, torch.tensor(0.5), torch.tensor(2.0))",
    "scaled_mm, one scale a row": "go(scaled, a, b, torch.rand(32, 1) + 1, torch.rand(1, 48) + 1)",
    "grouped_mm of rows": "go(lambda x, w, e: torch._grouped_mm(x, w, e), rand(40, 32).to(bf16),"
    " rand(3, 32, 16).to(bf16), torch.tensor([8, 20, 40], dtype=torch.int32))",
    "convolution 1d": "go(lambda x, w, b: F.conv1d(x, w, b, stride=2, padding=1), rand(2, 8, 40),"
    " rand(12, 8, 3), rand(12))",
    "convolution 2d": "go(lambda x, w, b: F.conv2d(x, w, b, stride=2, padding=(1, 2)),"
    " last(1, 16, 16, 16), last(24, 16, 3, 3), rand(24))",
    "convolution 2d, groups and dilation": "go(lambda x, w: F.conv2d(x, w, groups=4,"
    " dilation=(1, 2)), last(1, 16, 12, 12), last(8, 4, 2, 3))",
    "convolution 2d, depthwise": "go(lambda x, w, b: F.conv2d(x, w, b, stride=(2, 1), padding=1,"
    " groups=12), last(2, 12, 7, 9), last(12, 1, 3, 3), rand(12))",
    "convolution 3d": "go(lambda x, w: F.conv3d(x, w, padding=1), rand(1, 4, 6, 6, 6),"
    " rand(6, 4, 3, 3, 3))",
    "convolution, transposed": "go(lambda x, w: F.conv_transpose2d(x, w, stride=2),"
    " last(1, 4, 6, 6), last(4, 5, 3, 3))",
    "mm, rows dynamic": "dynamic(torch.mm, rand(40, 64), rand(64, 32), many=1)",
    "bmm, batch dynamic": "dynamic(torch.bmm, rand(3, 48, 64), rand(3, 64, 32), many=2)",
    "convolution 2d, images dynamic": "dynamic(lambda x, w, b: F.conv2d(x, w, b, stride=2,"
    " padding=(1, 2)), last(3, 16, 16, 16), last(24, 16, 3, 3), rand(24), many=1)",
    "mm, dynamic=True": "go(torch.mm, rand(40, 80), rand(80, 24), dynamic=True)",
    "packed_linear": "config.freezing = True; go(frozen(), rand(32, 64))",
    "linear_unary": "go(frozen().bfloat16(), rand(32, 64).bfloat16())",
}
"""In the program's order."""
ALONE = [row.op for row in ROWS if row.op in PROGRAMS and row.cell("tune") == ONE_CHOICE]
GIVEN = {
    "convolution 1d": {"stride": (2,), "padding": (1,)},
    "convolution 2d": {"stride": (2, 2), "padding": (1, 2)},
    "convolution 2d, groups and dilation": {"dilation": (1, 2), "groups": (4,)},
    "convolution 2d, depthwise": {"stride": (2, 1), "padding": (1, 1), "groups": (12,)},
    "convolution 3d": {"padding": (1, 1, 1)},
    "convolution, transposed": {"transposed": (1,), "stride": (2, 2)},
}
"""What convolutions are given beside their tensors, which their key does not tell."""


@dataclass(frozen=True, eq=False)
class Lab:
    """What was recorded of the program, whose cache dir is `layout`, and a worker on a cache
    `elsewhere` that is empty at first."""

    tunings: dict[str, Tuning]
    graphs: list[Graph]
    layout: Layout
    worker: Worker
    elsewhere: Layout

    def do(self, job: WorkerJob[Any]) -> dict[str, Any]:
        return self.worker.exchange(job_words(job))

    @cache  # noqa: B019
    def tuned(self, kind: str) -> dict[str, Any]:
        return self.do(
            tune_job(
                problem_of(self.tunings[kind]), TuneOptions(templates=True, backends=("ATEN",))
            )
        )

    def ours(self, kind: str) -> tuple[Tuning, Choice]:
        """A tuning with choices of ours, and one of them."""
        tuning = self.tunings[kind]
        return tuning, next(c for c in tuning.choices if is_own(c.hash or ""))


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("ops")
    layout, elsewhere = Layout(folder / "cache"), Layout(folder / "elsewhere")
    program = "\n".join((BEGIN, *PROGRAMS.values()))
    run(program, layout.root, {"ROCM_TUI_CAPTURE": "1"}, code=False)
    rows = load_model(layout).rows()
    tunings = sorted((row.tuning for row in rows), key=lambda tuning: tuning.when or 0.0)
    [events] = sessions(layout.root)
    graphs = [event.graph for event in events if isinstance(event, GraphCompiled)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROCM_TUI_TEMPLATE_BUDGET", "1")
        with spawn_worker(sys.executable, elsewhere.root) as worker:
            yield Lab(dict(zip(PROGRAMS, tunings, strict=True)), graphs, layout, worker, elsewhere)


def test_the_table_has_each_kind() -> None:
    assert set(PROGRAMS) == {kind for column in COLUMNS for kind in kinds(column)}


@pytest.mark.parametrize("kind", GIVEN)
def test_what_a_convolution_was_given_is_recorded(lab: Lab, kind: str) -> None:
    given = dict(lab.tunings[kind].options)
    assert given.keys() == set(options.CONVOLUTION)
    assert given.items() >= GIVEN[kind].items()


@pytest.mark.parametrize("kind", kinds("measure"))
def test_all_choices_are_measured_and_right(lab: Lab, kind: str) -> None:
    """Another key, or a hash that is not offered, is an error of the job."""
    tuning = lab.tunings[kind]
    op = kind.split()[0].rstrip(",")
    assert tuning.op == (frozen_linear() if op == "linear_unary" else op)
    result = lab.do(measure_job(tuning, tuning.choices, budget=0.2, rounds=2))
    assert result["ok"] and not result["measurement"]["failed"], result
    assert "not checked" not in " ".join(result["measurement"]["trouble"])


@pytest.mark.parametrize("kind", kinds("tune"))
def test_it_is_tuned_under_its_key(lab: Lab, kind: str) -> None:
    tuning, tuned = lab.tunings[kind], lab.tuned(kind)
    assert tuned["ok"] and tuned["inputs"] == tuning.inputs_key, tuned
    assert len(tuning.choices) >= 2
    assert {c["hash"] for c in tuned["choices"]} == {c.hash for c in tuning.choices}


@pytest.mark.parametrize("kind", kinds("verify"))
def test_it_is_pinned_and_verified(lab: Lab, kind: str) -> None:
    tuning, ours = lab.ours(kind)
    assert lab.tuned(kind)["ok"] and tuning.key is not None and ours.hash is not None
    store = PinStore(lab.elsewhere)
    store.pin(None, tuning.key, ours.hash, label=ours.label)
    pins = [status.pin for status in store.status() if status.pin.inputs == tuning.inputs_key]
    [asked] = pins_to_verify([pin for pin in pins if pin.hash == ours.hash], lab.elsewhere)
    assert asked.options == tuning.options_text
    result = lab.do(asked.job())
    assert (result["ok"], result["hash"]) == (True, ours.hash), result


@pytest.mark.parametrize("kind", ALONE)
def test_with_one_choice_there_is_nothing_to_tune(lab: Lab, kind: str) -> None:
    assert len(lab.tunings[kind].choices) == 1
    assert "nothing to choose from" in lab.tuned(kind)["reason"]


def test_choices_of_sizes_that_are_all_dynamic_are_not_taken_for_those_of_fixed_ones(
    lab: Lab,
) -> None:
    """The key has the sizes that the program came with. What is built again has these alone, so
    that it is tuned under the same key; the code for them is other code."""
    tuning, ours = lab.ours("mm, dynamic=True")
    tuned = lab.tuned("mm, dynamic=True")
    assert tuned["ok"] and tuned["inputs"] == tuning.inputs_key, tuned
    assert ours.hash not in {choice["hash"] for choice in tuned["choices"]}
    result = lab.do(measure_job(tuning, [ours], budget=0.2))
    assert not result["ok"] and "dynamic sizes" in result["reason"], result


@pytest.fixture(scope="module")
def trying(lab: Lab) -> Iterator[Worker]:
    private = Layout(lab.layout.graphs / "cache")
    copy_unpinned(lab.layout, private)
    with spawn_worker(sys.executable, private.root) as worker:
        yield worker


@pytest.mark.parametrize("kind", kinds("trial"))
def test_its_graph_is_tried(lab: Lab, trying: Worker, kind: str) -> None:
    """With each choice in place; where there is one, that is what Inductor takes itself."""
    tuning = lab.tunings[kind]
    [graph] = [one for one in lab.graphs if tuning.key in {use.key for use in one.tunings}]
    assert tuning.key is not None and graph.captured
    key, hashes = tuning.key, [choice.hash or "" for choice in tuning.choices]
    swaps = [(Swap(key.op, key.inputs, key.precision, hash),) for hash in hashes]
    result = trying.exchange(job_words(TrialJob(graph.id, ((), *swaps), budget=0.2, rounds=2)))
    assert result["ok"], result
    assert [arm["failed"] for arm in result["trial"]["arms"]] == [""] * (1 + len(swaps))
    assert all(arm["error"] <= arm["allowed"] for arm in result["trial"]["arms"])


DEPTHWISE = "convolution 2d, depthwise"


def test_without_what_was_recorded_ours_alone_is_not_measured(lab: Lab) -> None:
    """Its hash tells no stride, and the cache knows nothing of the key."""
    tuning, ours = lab.ours(DEPTHWISE)
    key = (tuning.inputs_key or "").replace(" 2, 12, 7,", " 3, 12, 7,")
    job = measure_job(tuning, [ours], budget=0.2)
    unknown = lab.do(replace(job, inputs=key, options=""))
    assert not unknown["ok"] and "rocm-tui run" in unknown["reason"]


def test_with_another_stride_no_choice_is_the_recorded_one(lab: Lab) -> None:
    """The key does not tell the two apart; the hash does."""
    tuning, ours = lab.ours(DEPTHWISE)
    other = dict(tuning.options) | {"stride": (1, 2)}
    job = measure_job(replace(tuning, options=options.options(other)), [ours], budget=0.2)
    result = lab.do(job)
    assert not result["ok"] and "is none of the" in result["reason"]


def _wrong(op: str, result: torch.Tensor, *inputs: torch.Tensor) -> bool:
    try:
        true_product(OpSpec(op, "highest"), inputs).check(result)
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
