"""Ranks on GPUs of one kind, with choices of Triton and fusions: alike with --agree."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ranks import program
from tests.ranks.__main__ import choices_in, torchrun

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("ranks", [2, 4])
def test_gpus_choose_alike(ranks: int, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available() or torch.cuda.device_count() < ranks:
        pytest.skip(f"needs {ranks} GPUs")
    torchrun(["--agree"], ranks, tmp_path, ["--gpu"])
    problems = choices_in(tmp_path).values()
    assert len(problems) == program.GPU_PROBLEMS
    for by_rank in problems:
        assert sorted(by_rank) == list(range(ranks))
        assert len({choice for choice, _ in by_rank.values()}) == 1
        assert sorted(by for _, by in by_rank.values()) == ["rank"] * (ranks - 1) + ["timing"]
