"""Factors that are computed where they are loaded, on a GPU: no pointwise kernel stands beside.

torch 2.11 fuses so with its own templates alone, and the numbers are all there is to see.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.rocm_programs import run

PROGRAM = """
from torch._inductor import select_algorithm

def ours_alone(choices):
    found = [c for c in choices if c.name.startswith(("rocm_gemm", "rocm_skinny"))]
    rings = [f"STAGES={n}" for n in (3, 4, 5)]
    return [c for c in found if not any(ring in c.description for ring in rings)][:1] or choices

select_algorithm.add_preprocessing_fn(ours_alone)
print("version", *torch.__version__.split(".")[:2], flush=True)
F, bf16 = torch.nn.functional, torch.bfloat16
def R(*sizes): return torch.randn(*sizes, device="cuda")
def i8(*sizes): return torch.randint(-100, 100, sizes, dtype=torch.int8, device="cuda")
def grouped(w, s): return (w.view(96, -1, 32).to(bf16) * s[:, :, None]).view(96, -1)

def part_of(name, function, *inputs):
    part(name)
    with torch.no_grad():
        got, want = torch.compile(function)(*inputs), function(*inputs)
    torch.testing.assert_close(got, want, rtol=0.05, atol=0.05 * want.abs().max().item())
    print(name, "agrees 0", flush=True)

x = R(8, 256).to(bf16)
part_of("cast", lambda x, w: F.linear(x, w.to(bf16)), x, R(96, 256))
part_of("int8", lambda x, w, s: F.linear(x, w.to(bf16) * s[:, None]),
        x, i8(96, 256), R(96).to(bf16))
part_of("groups", lambda x, w, s: F.linear(x, grouped(w, s)), x, i8(96, 256), R(96, 8).to(bf16))
"""


def version(stdout: str) -> tuple[int, ...]:
    told = re.search(r"^version (\d+) (\d+)$", stdout, re.MULTILINE)
    assert told is not None
    return int(told[1]), int(told[2])


def test_one_kernel_of_ours_does_it_all(tmp_path: Path) -> None:
    ran = run(PROGRAM, tmp_path / "cache", {"ROCM_TUI_TEMPLATE_BUDGET": "8"})
    assert ran.agreed == ["cast", "int8", "groups"]
    for name in ran.agreed:
        part = ran.part(name)
        assert re.search(r"\brocm_(skinny|gemm)_\d+", part.stderr)
        assert "triton_poi_" not in part.stderr or version(ran.stdout) < (2, 13), name
