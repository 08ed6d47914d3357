"""Kernels of ours where nothing else may win: layouts, dtypes and dynamic sizes.

One process compiles all of it, optimized as for a user; with a look at what is said where Triton is
asked for and absent.
"""

from __future__ import annotations

import importlib.util

import pytest

from tests.support.rocm_programs import Ran, run

HAS_TRITON = importlib.util.find_spec("triton") is not None

FORCED = """
from torch._inductor import select_algorithm

def ours_alone(choices):
    ours = [choice for choice in choices if choice.name.startswith("rocm_")]
    print("offered", len(ours), *(choice.name for choice in ours), flush=True)
    return ours[:1] or choices

select_algorithm.add_preprocessing_fn(ours_alone)
R, F = torch.randn, torch.nn.functional

part("dynamic")
compiled = torch.compile(lambda a, b: torch.relu(a @ b), dynamic=True)
for m, k, n in ((37, 64, 96), (50, 33, 70), (1000, 8, 5)):
    a, b = R(m, k), R(k, n)
    error = (compiled(a, b) - torch.relu(a @ b)).abs().max().item()
    assert error < 1e-4, error
    print("right", m, k, n, flush=True)
print("graphs", torch._dynamo.utils.counters["stats"]["unique_graphs"])

part("layouts")
agree("transposed", lambda a, b: a.t() @ b.t(), R(64, 37), R(96, 64))
agree("sliced", lambda a, b: (a + 1)[2:30, 8:40] @ b[8:40], R(37, 64), R(64, 96))
agree("padded", lambda a, b: a[:, :33] @ b[:33, 1:90], R(37, 64), R(64, 96))
agree("bias", lambda c, a, b: torch.addmm(c, a, b, alpha=0.5, beta=2), R(96), R(37, 64), R(64, 96))
agree("full_bias", lambda c, a, b: torch.addmm(c, a, b).sin(), R(37, 96), R(37, 64), R(64, 96))
agree("baddbmm", lambda c, a, b: torch.baddbmm(c, a, b), R(4, 1, 96), R(4, 37, 64), R(4, 64, 96))
agree("same", lambda a: torch.bmm(a, a.transpose(1, 2)), R(4, 37, 64))
agree("one_row", lambda a, b: a @ b, R(1, 64), R(64, 96))
agree("chain", lambda a, b, c: (a @ b).relu() @ c + (a @ b), R(37, 64), R(64, 48), R(48, 48))
for dtype, tolerance in ((torch.float16, 0.02), (torch.bfloat16, 0.2)):
    agree(f"{dtype}", torch.bmm, R(4, 37, 64, dtype=dtype), R(4, 64, 96, dtype=dtype),
          tolerance=tolerance)
frozen = torch.nn.Sequential(torch.nn.Linear(64, 96), torch.nn.ReLU()).eval()
with torch.no_grad(), config.patch(freezing=True):
    agree("frozen", frozen, R(32, 64))
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    env = {"KERNELS_OPTIMIZED": "1"} | ({} if HAS_TRITON else {"TRITON_INTERPRET": "1"})
    return run(FORCED, tmp_path_factory.mktemp("forced") / "cache", env)


@pytest.mark.torch
def test_dynamic_shapes_share_one_kernel(ran: Ran) -> None:
    dynamic = ran.part("dynamic")
    assert dynamic.stdout.count("right") == 3
    assert "graphs 1" in dynamic.stdout
    assert len(dynamic.calls) == 1 and " s" in dynamic.calls[0]  # sizes by name
    assert len(dynamic.kernels_compiled) == 1


@pytest.mark.torch
def test_layouts_and_dtypes(ran: Ran) -> None:
    layouts = ran.part("layouts")
    assert len(layouts.agreed) == 12
    assert "offered 0" not in layouts.stdout
    assert layouts.stderr.count("rocm-tui:") in (0, 3)  # the closing lines of `run`
    assert len(layouts.calls) == 14  # three of them in `chain`
    assert any(" + 4 * (" in call for call in layouts.calls)  # a view that begins in its buffer


@pytest.mark.torch
@pytest.mark.skipif(HAS_TRITON, reason="this Python has Triton")
def test_triton_is_not_offered_where_it_is_absent(ran: Ran) -> None:
    assert "rocm_gemm_0" in ran.stdout
    assert "rocm_triton" not in ran.stdout
    assert ran.stderr.count("Triton cannot be imported") == 1
