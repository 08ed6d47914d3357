"""Products of other types than fp16, bf16 and fp32 in real compiles on the CPU."""

from __future__ import annotations

import pytest

from backend.model.session import TuningStarted
from tests.support.rocm_programs import Ran, last_session, pin_ours, run, selections

pytestmark = pytest.mark.torch

PROGRAM = """
part("int_mm")
def whole(rows, columns):
    return torch.randint(-128, 128, (rows, columns), dtype=torch.int8)
agree("int_mm", torch._int_mm, whole(37, 64), whole(64, 96), tolerance=0.5)
agree("int_mm transposed", lambda a, b: torch._int_mm(a, b.t()) + 1, whole(20, 48), whole(40, 48),
      tolerance=0.5)

part("double")
def wide(*sizes):
    return torch.randn(*sizes, dtype=torch.float64)
agree("mm", lambda a, b: torch.relu(a @ b), wide(37, 64), wide(64, 96), tolerance=1e-12)
agree("addmm", lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=-2.0),
      wide(96), wide(33, 64), wide(64, 96), tolerance=1e-12)
agree("bmm", torch.bmm, wide(3, 20, 30), wide(3, 30, 25), tolerance=1e-12)
"""


@pytest.fixture(scope="module")
def story(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Ran, list[TuningStarted], Ran, set[str]]:
    """Cold, and again with each tuning pinned to ours."""
    cache = tmp_path_factory.mktemp("dtypes") / "cache"
    cold = run(PROGRAM, cache, code=False)
    offered = [start for start, _ in last_session(cache)]
    pinned = pin_ours(cache)
    again = run(PROGRAM, cache)
    assert {key: hash for key, (hash, _) in selections(cache).items()} == pinned
    return cold, offered, again, set(pinned)


def test_ours_are_offered_and_right(
    story: tuple[Ran, list[TuningStarted], Ran, set[str]],
) -> None:
    cold, offered, _, _ = story
    assert {start.op for start in offered} == {"int_mm", "mm", "addmm", "bmm"}
    for start in offered:
        assert [c for c in start.choices if c.name.startswith("rocm_gemm_")], start
    assert "wrong result" not in cold.stderr


def test_pinned_they_are_called(story: tuple[Ran, list[TuningStarted], Ran, set[str]]) -> None:
    cold, offered, again, _ = story
    assert again.agreed == cold.agreed
    assert len(again.calls) == len(offered)
    assert "int32_t" in again.part("int_mm").stderr
    assert "using Acc = double;" in again.part("double").stderr
