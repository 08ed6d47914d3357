"""What stands behind a product, in real compiles on the CPU: in the store of our kernel where it
can be, apart where it cannot, and right either way.

One process compiles all of it.
"""

from __future__ import annotations

import pytest

from tests.support.rocm_programs import Ran, run

pytestmark = pytest.mark.torch

BEGIN = """
from torch._inductor import select_algorithm

def ours_alone(choices):
    return [c for c in choices if c.name.startswith("rocm_gemm")][:1] or choices

select_algorithm.add_preprocessing_fn(ours_alone)
R, F = torch.randn, torch.nn.functional

def all_agree(name, function, *inputs, tolerance=1e-4, **options):
    "As `agree`, of several results, inputs that are changed among them."
    part(name)
    torch._dynamo.reset()
    mine, theirs = ([x.clone() for x in inputs] for _ in range(2))
    got, want = torch.compile(function, **options)(*mine), function(*theirs)
    got, want = ([*(x if isinstance(x, tuple) else [x]), *given]
                 for x, given in ((got, mine), (want, theirs)))
    for one, other in zip(got, want, strict=True):
        assert one.dtype == other.dtype and one.stride() == other.stride(), (one, other)
        error = (one.double() - other.double()).abs().max().item()
        assert error < tolerance, (name, error)
    print(name, "agrees", flush=True)

a, b, r = R(37, 64), R(64, 96), R(37, 96)
row, col = R(96), R(37, 1)
"""

FUSED = """
all_agree("residual", lambda a, b, r: (a @ b) * 0.5 + r, a, b, r)
all_agree("gelu", lambda a, b, s, c: F.gelu((a @ b) * s + c), a, b, col, row)
all_agree("swiglu", lambda x, g, u: F.silu(x @ g) * (x @ u), a, b, R(64, 96))
all_agree("results", lambda a, b, c: (h := F.silu(a @ b + c), h.bfloat16(), h > 0.5), a, b, row)
all_agree("kept", lambda a, b: (y := a @ b, torch.relu(y) * 2), a, b)
all_agree("scalar", lambda a, b, s: (a @ b) * s - s, a, b, R(()))
all_agree("turned", lambda a, b, r: (a @ b) * r.t(), a, b, R(96, 37))
all_agree("viewed", lambda x, w, r: (x.reshape(-1, 64) @ w).view(2, 20, 96) * 2 + r,
          R(2, 20, 64), b, R(2, 20, 96))
all_agree("batch", lambda x, y, m, c: torch.bmm(x, y) * m + c,
          R(3, 20, 32), R(3, 32, 24), R(3, 1, 24), R(20, 1))
all_agree("chosen", lambda a, b, r: torch.where(
    (y := a @ b) > r, y.clamp(-1, 1), torch.maximum(y.abs().sqrt(), r)), a, b, r)
all_agree("whole", lambda a, b, k: ((a @ b * 3).to(torch.int32) & 7) * k, a, b,
          torch.randint(-9, 9, (37, 96), dtype=torch.int32))
all_agree("numbers", lambda a, b: torch.tanh(torch.log1p(torch.exp(-(y := a @ b).abs())))
          + torch.rsqrt(y * y + 1) + torch.erf(y) + torch.sigmoid(y).floor(), a, b)
half = [x.half() for x in (a, b, r)]
all_agree("half", lambda a, b, r: torch.relu(a @ b) + r, *half, tolerance=0.05)
all_agree("narrowed", lambda a, b, r: ((a @ b).float() * 2 + r.float()).bfloat16(),
          *(x.bfloat16() for x in half), tolerance=0.3)
all_agree("sliced", lambda a, b, r: (a @ b) * r[3:40, 4:], a, b, R(50, 100))
all_agree("bool", lambda a, b, m: (a @ b).masked_fill(m, -1.5), a, b, r > 0)

part("dynamic")
torch._dynamo.reset()
compiled = torch.compile(lambda a, b, r, c: F.gelu(a @ b * c) + r, dynamic=True)
for m, k, n in ((37, 64, 96), (50, 33, 70), (8, 8, 5)):
    given = R(m, k), R(k, n), R(m, n), R(n)
    want = F.gelu(given[0] @ given[1] * given[3]) + given[2]
    assert (compiled(*given) - want).abs().max() < 1e-4
print("dynamic agrees")
"""
CALLS = {"swiglu": 2}

APART = """
all_agree("inplace", lambda x, w: x.add_(x @ w), R(37, 37), R(37, 37))
all_agree("softmax", lambda a, b: torch.softmax(a @ b, 1), a, b)
all_agree("repeated", lambda x, w, r: (x.reshape(-1, 64) @ w).view(2, 20, 96) + r,
          R(2, 20, 64), b, R(20, 96))
all_agree("looked-up", lambda a, b, i: (a @ b) + b[i], a, b, torch.randint(0, 64, (37,)))
all_agree("sine", lambda a, b: (a @ b).sin(), a, b)
all_agree("backwards", lambda a, b, r: (a @ b) * r.flip(0), a, b, r)
all_agree("placed", lambda a, b: (a @ b).tril(), a, b)
all_agree("shifted", lambda a, b: (y := a @ b)[1:] - y[:-1], a, b)
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return run(BEGIN + FUSED + APART, tmp_path_factory.mktemp("epilogues") / "cache")


def _names(program: str) -> list[str]:
    return [line.split('"')[1] for line in program.splitlines() if line.startswith(("all", "part"))]


@pytest.mark.parametrize("name", _names(FUSED))
def test_one_kernel_does_it_all(ran: Ran, name: str) -> None:
    part = ran.part(name)
    assert f"{name} agrees" in part.stdout
    assert len(part.calls) == CALLS.get(name, 1)
    assert "async_compile.cpp_pybinding" not in part.stderr
    assert part.stderr.count("rocm-tui:") in (0, 3)  # the closing lines of `run`


@pytest.mark.parametrize("name", _names(APART))
def test_what_cannot_be_fused_is_right_all_the_same(ran: Ran, name: str) -> None:
    part = ran.part(name)
    assert f"{name} agrees" in part.stdout
    assert len(part.calls) == 1
    assert "async_compile.cpp_pybinding" in part.stderr
    assert part.stderr.count("rocm-tui:") in (0, 3)  # the closing lines of `run`
