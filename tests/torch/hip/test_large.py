"""Dynamic graphs whose sizes and strides grow beyond what they were compiled with: right, always.

One process compiles all of it. What is far apart is mapped and never touched.
"""

from __future__ import annotations

import pytest

from tests.support.places import ROOT
from tests.support.rocm_programs import Ran, run

pytestmark = pytest.mark.torch

PROGRAM = """
from torch._inductor import select_algorithm
sys.path.append(ROOT)
from tests.support.sparse import sparse

def ours_alone(choices):
    ours = [choice for choice in choices if choice.name.startswith("rocm_")]
    print("offered", len(ours), flush=True)
    return ours[:1] or choices

select_algorithm.add_preprocessing_fn(ours_alone)

def right(compiled, *inputs):
    got, want = compiled(*inputs), torch.bmm(*(x.contiguous() for x in inputs))
    assert (got - want).abs().max() < 1e-4, (got - want).abs().max()
    print("right", *(x.stride() for x in inputs), flush=True)

def graphs():
    print("graphs", torch._dynamo.utils.counters["stats"]["unique_graphs"], flush=True)

part("strides")
compiled = torch.compile(torch.bmm, dynamic=True)
for step in (4096, 2**32, 2**31 + 64):
    far = [sparse(2 * step + 4096, torch.float32) for _ in range(2)]
    a = far[0].as_strided((3, 20, 24), (step, 24, 1))
    b = far[1].as_strided((3, 24, 28), (step, 28, 1))
    a.copy_(torch.randn(3, 20, 24)), b.copy_(torch.randn(3, 24, 28))
    right(compiled, a, b)
graphs()

part("limits")
torch._dynamo.reset()
torch._dynamo.utils.counters.clear()
import backend.templates.problem
backend.templates.problem.LARGEST_SIZE = 100
compiled = torch.compile(torch.bmm, dynamic=True)
for k in (24, 100, 101, 200, 25):
    right(compiled, torch.randn(3, 20, k), torch.randn(3, k, 28))
graphs()

part("launch")
torch._dynamo.reset()
torch._dynamo.utils.counters.clear()
import backend.templates.convolution
backend.templates.convolution._GRID = 16 * 256
backend.templates.problem.LARGEST_SIZE = 2**30
weight = torch.randn(32, 16, 3, 3)
conv = torch.compile(lambda x: torch.nn.functional.conv2d(x, weight, padding=1))
for n in (2, 3, 70, 2):
    x = torch.randn(n, 16, 8, 8)
    torch._dynamo.mark_dynamic(x, 0)
    error = (conv(x) - torch.nn.functional.conv2d(x, weight, padding=1)).abs().max()
    assert error < 1e-3, error
    print("right", n, flush=True)
graphs()
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return run(f"ROOT = {str(ROOT)!r}\n{PROGRAM}", tmp_path_factory.mktemp("large") / "cache")


def test_strides_may_grow_beyond_32_bits(ran: Ran) -> None:
    strides = ran.part("strides")
    assert strides.stdout.count("right") == 3
    assert len(strides.calls) == 1 and "graphs 1" in strides.stdout


def test_a_size_that_no_kernel_takes_is_compiled_anew_without_ours(ran: Ran) -> None:
    limits = ran.part("limits")
    assert limits.stdout.count("right") == 5
    assert "graphs 2" in limits.stdout
    assert len(limits.calls) == 1
    assert limits.stdout.count("offered 0") == 1
    assert limits.stderr.count("takes more than 100") == 1
    assert limits.stderr.count("rocm-tui:") in (1, 4)  # with the closing lines of `run`


def test_what_one_launch_cannot_have_and_cannot_be_split_is_compiled_anew(ran: Ran) -> None:
    launch = ran.part("launch")
    assert launch.stdout.count("right") == 4
    assert "graphs 2" in launch.stdout
    assert len(launch.calls) == 1 and launch.stdout.count("offered 0") == 1
    assert launch.stderr.count("takes more than") == 1
    assert launch.stderr.count("rocm-tui:") in (1, 4)  # with the closing lines of `run`
