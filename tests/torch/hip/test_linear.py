"""Our templates for linear layers whose weights oneDNN has packed, with what torch fuses there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from backend.templates.reproducer import rebuild
from backend.toolchain.target import cpu
from tests.support.cpu_offers import onednn_takes_bfloat16
from tests.support.hooked import by_tuning, launch_program, sessions

pytestmark = pytest.mark.torch

LAYERS = """
import torch
import torch._inductor.config as config
from torch._inductor import select_algorithm
from torch.nn import functional as F

config.max_autotune = True
config.max_autotune_gemm_backends = "ATEN"
config.freezing = True
torch.manual_seed(0)
torch.set_grad_enabled(False)

def ours(choices):
    "Let our choice win without a benchmark, and leave those alone that have none."
    return [c for c in choices if c.name.startswith("rocm_gemm")][:1] or choices

select_algorithm.add_preprocessing_fn(ours)

def tanh(x):
    return F.gelu(x, approximate="tanh")

for name, after, bias in [
    ("none", torch.clone, False), ("relu", F.relu, True), ("tanh", tanh, True),
    ("silu", F.silu, True), ("sigmoid", torch.sigmoid, True),
]:
    torch._dynamo.reset()
    layer = torch.nn.Linear(64, 96, bias=bias).to(torch.bfloat16).eval()
    x = torch.randn(2, 5, 64, dtype=torch.bfloat16)
    got = torch.compile(lambda x: after(layer(x)))(x)
    want = after(F.linear(
        x.double(), layer.weight.double(), layer.bias.double() if bias else None))
    error = ((got.double() - want).abs() / (want.abs() + 0.1)).max().item()
    assert error < 0.01, (name, error)
    print(name, "agrees", flush=True)
"""


def test_packed_weights_bias_and_activation(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    more = {
        "ROCM_TUI_TEMPLATES": "1",
        "ROCM_TUI_TEMPLATE_BUDGET": "1",
        "TORCH_LOGS": "output_code",
    }
    done = launch_program(LAYERS, cache, env=more)
    for name in ("none", "relu", "tanh", "silu", "sigmoid"):
        assert f"{name} agrees" in done.stdout
    calls = re.findall(r"\brocm_gemm_\d+\(.*data_ptr.*\)$", done.stderr, re.MULTILINE)
    # None of our stores has a sigmoid; where oneDNN does not take the layer, nothing is fused yet.
    packed = onednn_takes_bfloat16()
    assert len(calls) == (4 if packed else 5)
    offered = by_tuning(sessions(cache)[0])
    assert {start.op for start, _ in offered} == ({"linear_unary"} if packed else {"addmm", "mm"})
    for start, _ in offered:
        for choice in start.choices:
            if choice.name.startswith("rocm_"):
                assert choice.hash
                assert rebuild(start.op, start.inputs, choice.description, choice.hash, cpu())
