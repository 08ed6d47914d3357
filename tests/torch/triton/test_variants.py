"""What stock PyTorch offers on GPUs that are missing here: the hash of each choice on every device
can be computed from the modules that PyTorch wrote for another one."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from backend.cache.variants import ChoiceVariants
from tests.support.places import ROOT
from tests.support.torch_models import child_env
from tests.support.triton_lab import triton_python

OPS = {"mm", "addmm", "bmm", "mm_plus_mm", "convolution", "flex_attention"}


@pytest.mark.parametrize("kind", ["hip", "cuda"])
def test_hashes_on_other_devices_are_those_that_pytorch_makes(tmp_path: Path, kind: str) -> None:
    offered = _offered(kind, tmp_path / "all", 0, 1, 7)
    first = _offered(kind, tmp_path / "first", 1)
    variants = ChoiceVariants(tmp_path / "first")
    assert first[1].keys() >= OPS
    for op, hashes in first[1].items():
        triton = [hash_ for hash_ in hashes if hash_.startswith("triton_")]
        assert len(triton) > 2, op
        assert all(variants.device(hash_) == 1 for hash_ in triton)
        for index, there in offered.items():
            assert [variants.on(hash_, index) for hash_ in hashes] == there[op], (op, index)
            same = hashes if index == 1 else [h for h in hashes if h not in triton]
            assert [hash_ for hash_ in hashes if hash_ in there[op]] == same


def _offered(kind: str, cache: Path, *indices: int) -> dict[int, dict[str, list[str]]]:
    done = subprocess.run(
        [triton_python(), "-W", "ignore", "-m", "tests.support.device_program", kind]
        + [str(index) for index in indices],
        cwd=ROOT,
        env=child_env(cache),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answers = map(json.loads, done.stdout.splitlines())
    return {answer["index"]: answer["offered"] for answer in answers}
