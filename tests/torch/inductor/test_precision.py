"""The precision of float32 products, where the program sets it per backend."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from backend.inductor.torch import tuning

pytestmark = pytest.mark.torch


@pytest.fixture
def tf32() -> Iterator[None]:
    matmul, legacy = torch.backends.cuda.matmul, torch.get_float32_matmul_precision()
    before = matmul.fp32_precision
    matmul.fp32_precision = "tf32"
    yield
    matmul.fp32_precision = before
    torch.set_float32_matmul_precision(legacy)


@pytest.mark.skipif(
    not hasattr(torch.backends.mkldnn, "matmul"), reason="this torch has one precision for all"
)
def test_a_precision_per_backend_is_read_and_set_again(tf32: None) -> None:
    """`torch.get_float32_matmul_precision` raises then."""
    named = tuning.precision()
    assert named.startswith("cuda:tf32,mkldnn:")
    torch.backends.cuda.matmul.fp32_precision = "ieee"
    tuning.set_precision(named)
    assert torch.backends.cuda.matmul.fp32_precision == "tf32" and tuning.precision() == named
