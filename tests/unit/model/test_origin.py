"""Where a choice comes from, and what follows for tuning again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.model.choice import Choice
from backend.model.origin import (
    any_toolchain,
    choice_hash,
    is_own,
    kind_of,
    own_template,
    provider,
    template_of,
    toolchain_of,
)
from backend.model.tuning import Tuning
from rocm_tui.actions.tune import offers_ours
from tests.support.subgraphs import decompose_k


@pytest.mark.parametrize(
    ("hash", "template"),
    [
        ("rocm_gemm-c1", "gemm"),
        ("rocm_skinny-c1", "skinny"),
        ("rocm_triton-c1", "triton"),
        ("rocm_ck-c1", "ck"),  # of versions that offered Composable Kernel
        ("rocm_ck_gemm-c1", ""),
        ("rocm_gemm", ""),
        ("triton_mm-c1", ""),
        ("mm-c1", ""),
        (None, ""),
    ],
)
def test_templates_of_ours(hash: str | None, template: str) -> None:
    assert own_template(hash) == template
    assert is_own(hash) == bool(template)
    assert template_of(Choice(hash=hash)) == template.replace("triton", "")


def test_ours_in_triton_are_no_triton_templates_of_torch() -> None:
    assert kind_of("rocm_triton-c1") == "rocm" and kind_of("triton_mm-c1") == "triton"
    assert provider(Choice(hash="rocm_triton-c1")) == "rocm"


@pytest.mark.parametrize("kind", ["cutedsl", "flydsl", "nv_universal_gemm"])
def test_a_template_of_a_gpu_library_is_no_library_call(kind: str) -> None:
    assert kind_of(f"{kind}_mm-c1") == provider(Choice(name=f"{kind}_mm_1")) == kind


def test_the_hash_of_any_subgraph_is_no_library_call() -> None:
    assert kind_of(decompose_k(2).replace("decompose_k_mm", "my_op_autotuned")) == "subgraph"


def test_tuning_again_offers_our_kernels_where_only_those_in_triton_were_offered() -> None:
    """As on a box without a compiler for HIP."""
    stock = Choice("mm", "mm-c1", 2.0)
    tuning = Tuning("mm", choices=(Choice("x", "rocm_triton-c1", 1.0), stock))
    assert offers_ours(tuning)
    assert not offers_ours(replace(tuning, choices=(stock,)))


def test_the_hash_of_ours_says_what_compiles_it() -> None:
    ours = choice_hash("gemm", "kernel", "BLOCK_M=64", "0123abcd")
    assert own_template(ours) == "gemm" and toolchain_of(ours) == "0123abcd"
    assert any_toolchain(ours) == choice_hash("gemm", "kernel", "BLOCK_M=64")
    assert any_toolchain(ours) != any_toolchain(choice_hash("gemm", "kernel", "BLOCK_M=32", "x"))
    assert toolchain_of("rocm_gemm-c1") == toolchain_of("mm-123-4") == ""
