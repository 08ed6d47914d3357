"""Convolutions and groups of rows by our templates on a GPU: pinned, called, right."""

from __future__ import annotations

from pathlib import Path

from tests.support.rocm_programs import last_session, pin_ours, run

PROGRAM = """
config.max_autotune_conv_backends = "ATEN"
conv = torch.nn.Conv2d(64, 128, 3, stride=2, padding=1).half().cuda().requires_grad_(False)
x = torch.randn(4, 64, 30, 27).half().cuda()
agree("first", lambda x: torch.relu(conv(x)), x, tolerance=0.1)
last = conv.to(memory_format=torch.channels_last)
x = x.to(memory_format=torch.channels_last)
agree("last", lambda x: torch.relu(last(x)), x, tolerance=0.1)
a, b = torch.randn(256, 64).bfloat16().cuda(), torch.randn(4, 64, 96).bfloat16().cuda()
ends = torch.tensor([10, 10, 200, 256], dtype=torch.int32).cuda()
agree("rows", lambda a, b, e: torch._grouped_mm(a, b, e) * 2, a, b, ends, tolerance=1.0)
"""


def test_ours_are_pinned_called_and_right(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cold = run(PROGRAM, cache)
    ops = [start.op for start, _ in last_session(cache)]
    assert {"convolution", "grouped_mm"} <= set(ops)
    assert "wrong result" not in cold.stderr
    pin_ours(cache)
    pinned = run(PROGRAM, cache)
    assert pinned.agreed == ["first", "last", "rows"]
    assert [call for call in pinned.calls if call.startswith("rocm_conv")]
    assert [call for call in pinned.calls if call.startswith("rocm_grouped")]
