"""What PyTorch offers on this CPU: tests ask here and adapt, or skip and say why."""

from __future__ import annotations

import pytest


def onednn_takes_bfloat16() -> bool:
    """Whether Inductor packs frozen bfloat16 weights for oneDNN (`linear_unary`).

    Without AVX-512 such a layer stays an `addmm` (or `mm`, without a bias), which has a C++ choice
    beside ATen's.
    """
    import torch

    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def frozen_linear() -> str:
    """The op that Inductor tunes for a frozen bfloat16 layer with a bias."""
    return "linear_unary" if onednn_takes_bfloat16() else "addmm"


def need_onednn_bfloat16() -> None:
    """Skip the test where frozen bfloat16 layers do not reach oneDNN."""
    if not onednn_takes_bfloat16():
        pytest.skip("Inductor gives oneDNN no bfloat16 layer on a CPU without AVX-512")


def need_avx512() -> None:
    """Skip the test where Inductor has no C++ kernel for int4 weights."""
    import torch

    if not torch.cpu._is_avx512_supported():
        pytest.skip("Inductor has a C++ kernel for int4 weights on CPUs with AVX-512 only")
