"""`benchmark(*inputs, out=out)` of our choices: the result stands in `out`, as Inductor's own do.

PyTorch's check (`select_algorithm.VERIFY`) looks there, and calls a choice wrong that writes none.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("torch")

from tests.support.cpu_offers import frozen_linear
from tests.support.hooked import launch_program
from tests.support.rocm_programs import BEGIN, ON

pytestmark = pytest.mark.torch

PROGRAM = (
    BEGIN
    + """
import json
from torch._inductor import select_algorithm
from backend.inductor.benchmark import process as rocm_process
from backend.inductor.hip.caller import ROCmTemplateCaller

sent = []
pack = rocm_process.packed
rocm_process.packed = lambda tensor: sent.append(1) or pack(tensor)
offered = []

class Keep:
    "The last to see what is offered: our choices are appended before."
    def __call__(self, choices):
        ours = (c for c in choices if isinstance(getattr(c, "_wrapped", c), ROCmTemplateCaller))
        offered.extend(ours)
        return choices

select_algorithm.add_preprocessing_fn(Keep())
a, b = torch.randn(3, 33, 48), torch.randn(3, 48, 40)
agree("nobody looks", torch.bmm, a, b)
print("sent", len(sent))

select_algorithm.VERIFY = dict(atol=1e-4, rtol=1e-4)
agree("bmm", lambda a, b: torch.bmm(a + 1, b), a, b)
agree("one buffer, two views", lambda a: a @ a.permute(0, 2, 1), torch.randn(5, 32, 32))
agree("one buffer twice", lambda a: a @ a, torch.randn(5, 24, 24))
agree("broadcast", lambda a, b: a.unsqueeze(0).expand(5, -1, -1) @ b,
      torch.randn(16, 32), torch.randn(5, 32, 64))
agree("offset", lambda a, b: a @ torch.empty(3, *b.shape)[2].copy_(b),
      torch.randn(4, 20, 36), torch.randn(4, 36, 28))
for bias in (False, True):
    layer = torch.nn.Linear(48, 40, bias).eval()
    with torch.no_grad(), config.patch(freezing=True):
        agree(f"linear {bias}", layer, torch.randn(33, 48))
half = torch.nn.Sequential(torch.nn.Linear(48, 40), torch.nn.ReLU()).eval().bfloat16()
select_algorithm.VERIFY = dict(atol=1e-2, rtol=1e-2)
with torch.no_grad(), config.patch(freezing=True):
    agree("linear_unary", half, torch.randn(32, 48).bfloat16(), tolerance=2e-2)
print("offered", json.dumps(sorted({c.tuning.op for c in offered})), "sent", len(sent) > 0)

select_algorithm.VERIFY = {}
ours = offered[0]
for seconds in ("60", "0"):  # apart, and in this process
    os.environ[rocm_process.SECONDS] = seconds
    out = torch.full((3, 33, 40), 7.0)
    ms = ours.benchmark(a, b, out=out)
    print("called by hand", ms > 0, torch.allclose(out, torch.bmm(a, b), atol=1e-4))
wide = torch.zeros(3, 33, 80)
ours.benchmark(a, b, out=wide[..., ::2])
right = torch.allclose(wide[..., ::2], torch.bmm(a, b), atol=1e-4)
print("strided", right, wide[..., 1::2].any().item())
try:
    ours.benchmark(a[:2].clone(), b, out=torch.empty(2, 33, 40))
except RuntimeError as error:
    print("refused:", error)
"""
)


def test_the_result_stands_in_out(tmp_path: Path) -> None:
    env = {**ON, "COMPILE_LOG": str(tmp_path / "log")}
    done = launch_program(PROGRAM, tmp_path / "cache", env=env)
    assert "Incorrect result" not in done.stderr
    for words in ("error during autotuning", "Not yet implemented", " inf ms"):
        assert words not in done.stderr  # no choice is left out: each was looked at
    assert len(re.findall(r" agrees ", done.stdout)) == 9
    assert "\nsent 0\n" in done.stdout  # a plain tuning copies nothing
    offered = json.loads(done.stdout.split("\noffered ")[1].split(" sent ")[0])
    assert offered == sorted(["bmm", "packed_linear", frozen_linear()])
    assert "] sent True\n" in done.stdout
    assert done.stdout.count("called by hand True True\n") == 2
    assert "strided True False\n" in done.stdout
    assert "refused: a tensor of sizes (2, 33, 48) was given for (3, 33, 48)" in done.stdout
