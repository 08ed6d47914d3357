"""Results are checked by tiles, so that a check takes little memory."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

from backend.inductor.benchmark import tensors  # noqa: E402
from backend.inductor.benchmark.errors import (  # noqa: E402
    WrongResult,
)
from backend.inductor.benchmark.tensors import GemmReference  # noqa: E402

# Tiles


@pytest.mark.parametrize("shape", [(1, 7, 9), (3, 40, 24), (5, 64, 3)])
def test_tiles_cover_all_and_are_bounded(
    shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    from backend.inductor.benchmark.tensors import tiles

    monkeypatch.setattr(tensors, "CHUNK_BYTES", 4096)
    seen = torch.zeros(shape)
    for tile in tiles(*shape, k=4, itemsize=8):
        seen[tile] += 1
        b, m, n = seen[tile].shape
        assert 8 * b * (2 * 4 * (m + n) + 6 * m * n) <= 4096
    assert bool((seen == 1).all())


@pytest.mark.parametrize("batches", [(), (3,)])
def test_a_result_is_checked_by_tiles_as_it_is_at_once(
    batches: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensors, "CHUNK_BYTES", 8192)
    a, b = torch.randn(*batches, 40, 30), torch.randn(*batches, 30, 50)
    bias = torch.randn(50)
    expected = GemmReference(0.5, 2.0, "gelu").expected([a, b, bias])
    out = torch.nn.functional.gelu(0.5 * (a @ b) + 2.0 * bias)
    expected.check(out)
    place = (*(1 for _ in batches), 37, 45)
    for value, words in ((out[place] + 1, "max error (1|0.99)"), (torch.nan, "1 of .* is NaN")):
        wrong = out.clone()
        wrong[place] = value
        with pytest.raises(WrongResult, match=words) as caught:
            expected.check(wrong)
        assert str(list(place)) in str(caught.value)


PEAK = """
import sys
import torch
from backend.inductor.benchmark import tensors
from backend.inductor.benchmark.tensors import GemmReference, check_untouched
from backend.inductor.benchmark.tensors import TensorPlan, make_inputs

def peak():
    "Bytes that were resident at most since the last call."
    lines = open("/proc/self/status").read().splitlines()
    bytes_ = next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))
    open("/proc/self/clear_refs", "w").write("5")
    return bytes_

tensors.CHUNK_BYTES = 16 << 20

def checked(n):
    plans = [TensorPlan("cpu", torch.float32, sizes, (sizes[1], 1)) for sizes in ((n, 8), (8, n))]
    inputs = make_inputs(plans)
    out = TensorPlan("cpu", torch.float32, (n, n), (n, 1)).make()
    torch.matmul(*inputs, out=out)
    GemmReference().expected(inputs).check(out)
    check_untouched(out)

checked(64)
before = peak()
checked(4096)
print((peak() - before) >> 20)
"""


def test_a_check_takes_little_more_than_what_is_checked() -> None:
    """A result of 64 MiB, and 16 MiB for chunks; all at once took some 900 MiB on top."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PEAK],
        env={**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"},  # what is freed goes back at once
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert 60 < int(done.stdout) < 64 + 6 * 16
