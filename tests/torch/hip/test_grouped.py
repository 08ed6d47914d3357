"""Products of groups of rows by our template in a real compile on the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.disk.layout import Layout
from backend.model.problem import TuningKey
from backend.pins.store import PinStore
from tests.support.rocm_programs import last_session, run

pytestmark = pytest.mark.torch

EXPERTS = """
x, w = torch.randn(64, 32).bfloat16(), torch.randn(4, 32, 48).bfloat16()
ends = torch.tensor([10, 10, 47, 64], dtype=torch.int32)
agree("rows", lambda x, w, e, r: torch.relu(torch._grouped_mm(x, w, e)) * 2 + r, x, w, ends,
      torch.randn(64, 48).bfloat16(), tolerance=0.2)
columns = torch.tensor([8, 16, 32, 48], dtype=torch.int32)
agree("columns", lambda x, w, e: torch._grouped_mm(x, w, e), w.transpose(1, 2).contiguous(),
      torch.randn(32, 48).bfloat16(), columns, tolerance=0.1)
"""


def test_experts_are_offered_pinned_and_called(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cold = run(EXPERTS, cache)
    assert cold.agreed == ["rows", "columns"]
    assert "wrong result" not in cold.stderr
    rows, *others = [start for start, _ in last_session(cache) if start.op == "grouped_mm"]
    assert [choice.name for choice in rows.choices][-1] == "rocm_grouped_0"
    assert all("rocm" not in choice.name for start in others for choice in start.choices)
    store = PinStore(Layout(cache))
    ours = pin_rows(cache)
    pinned = run(EXPERTS, cache)
    assert pinned.agreed == ["rows", "columns"]
    (call,) = [call for call in pinned.calls if call.startswith("rocm_grouped")]
    assert call and "cpp_fused" not in pinned.stderr  # what stands behind it is in its store
    assert [status.state for status in store.status()] == ["active"] and ours


def pin_rows(cache: Path) -> str:
    """The choice of ours, which one of the tunings has."""
    start = next(s for s, _ in last_session(cache) if s.op == "grouped_mm")
    hash = start.choices[-1].hash
    assert hash is not None
    key = TuningKey(start.op, start.inputs, start.precision)
    PinStore(Layout(cache)).pin(None, key, hash, label=start.choices[-1].name)
    return hash
