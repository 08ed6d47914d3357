"""Instances of a library of device GEMMs: which of them fit a product, and what a kernel takes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import sympy

from backend.errors import ConfigError
from backend.model.choice import Choice
from backend.model.origin import choice_hash, kernel_hash
from backend.templates.ck import CkConfig, ck_configs, ck_defect, render_ck
from backend.templates.operand import Operand
from backend.templates.problem import GemmProblem
from backend.toolchain import code_cache
from backend.toolchain.target import CompileOptions, Compiler, Headers, cuda
from backend.toolchain.targets import find_compiler
from rocm_tui.session.kernel_resources import KernelResources, ResourceUse

LIBRARY = Path(__file__).parents[2] / "support" / "ck_like"
M, N, K = sympy.symbols("m n k", positive=True, integer=True)


@pytest.fixture(scope="module")
def operation() -> Any:
    """The library's first instance: fp32, row-major, any size."""
    sys.path.insert(0, str(LIBRARY))
    try:
        from ck4inductor.universal_gemm import gen_instances

        return gen_instances.gen_ops_library()[0]
    finally:
        sys.path.remove(str(LIBRARY))


def matrix(name: str, rows: Any, cols: Any, **more: Any) -> Operand:
    return Operand(name, more.pop("dtype", "float32"), (rows, cols), (cols, 1), **more)


def product(m: Any, n: Any, k: Any, **more: Any) -> GemmProblem:
    return GemmProblem(matrix("a", m, k, **more), matrix("b", k, n), matrix("out", m, n))


def defect(operation: Any, problem: GemmProblem, **changes: Any) -> str | None:
    return ck_defect(CkConfig.of(replace(operation, **changes)), problem)


def test_what_an_instance_computes(operation: Any) -> None:
    whole = {"gemm_specialization": "GemmSpecialization::Default"}
    assert defect(operation, product(37, 50, 70)) is None
    assert defect(operation, product(M, N, K)) is None  # it masks its edges
    assert defect(operation, product(32, 64, 96), **whole) is None
    assert "multiple of what a block" in str(defect(operation, product(M, 64, 96), **whole))
    assert "K = 70 is not a multiple" in str(defect(operation, product(32, 64, 70), **whole))
    kept = {"gemm_specialization": "GemmSpecialization::MNPadding"}
    assert "K = 70" in str(defect(operation, product(37, 50, 70), **kept))
    assert "a is float32" in str(defect(operation, product(32, 64, 96), a_element_dtype="F16"))
    assert "the other way" in str(defect(operation, product(32, 64, 96), b_layout="Col"))
    assert "a function" in str(defect(operation, product(1, 1, 1), c_elementwise_op="Scale"))
    batch = [Operand(x, "float32", (2, 4, 4), (16, 4, 1)) for x in ("a", "b", "out")]
    assert "two matrices" in str(defect(operation, GemmProblem(*batch)))
    bias = GemmProblem(*(matrix(x, 4, 4) for x in ("a", "b", "out")), bias=matrix("bias", 4, 4))
    assert "no more" in str(defect(operation, bias))


def test_wide_reads_need_alignment(operation: Any) -> None:
    wide = {"a_block_transfer_src_scalar_per_vector": 4}
    assert defect(operation, product(37, 50, 72), **wide) is None
    assert "cannot be read 4" in str(defect(operation, product(37, 50, 70), **wide))
    assert "cannot be read 4" in str(defect(operation, product(37, 50, K), **wide))
    assert "cannot be read 4" in str(defect(operation, product(37, 50, 72, offset=2), **wide))
    assert "cannot be read 4" in str(defect(operation, product(37, 50, 72, base_bytes=4), **wide))


def test_those_tried_are_spread_over_the_list(operation: Any) -> None:
    listed = [replace(operation, k_per_block=32 * (1 + i)) for i in range(10)]
    tried = ck_configs(listed, product(32, 64, 96), 3)
    assert [config["k_per_block"] for config in tried] == [32, 128, 224]
    assert ck_configs(listed, product(32, 64, 96), 99)[9]["k_per_block"] == 320
    assert ck_configs([], product(32, 64, 96), 3) == []
    with pytest.raises(ConfigError, match="does not list"):
        ck_configs([object()], product(32, 64, 96), 3)

    @dataclass
    class Other:
        block_size: int = 256

    with pytest.raises(ConfigError, match="an instance without a_block_transfer_src"):
        ck_configs([Other()], product(32, 64, 96), 3)


def test_what_a_kernel_takes_is_found_by_its_choice(operation: Any, tmp_path: Path) -> None:
    target = cuda("sm_90")
    if not isinstance(find_compiler(target), Compiler):
        pytest.skip(f"no compiler for {target}")
    problem = product(32, 64, 96)
    (config,) = ck_configs([operation], problem, 1)
    rendered = render_ck("ck_like", problem, config, "rocm_ck")
    options = CompileOptions(headers=(_headers(),), standard="c++20")
    compiled = code_cache.compile(rendered.source, target, options, cache_root=tmp_path)
    kernel = kernel_hash(rendered.source, "rocm_ck", str(target))
    named = choice_hash("ck", kernel, config.description, compiled.toolchain)
    choices: Sequence[Choice] = [Choice("rocm_ck_0", named, 0.1, config.description)]
    found = KernelResources(tmp_path).of(choices)[named]
    assert isinstance(found, ResourceUse), found
    assert found.resources.vgprs and found.resources.lds and found.occupancy


def _headers() -> Headers:
    return Headers.of(LIBRARY / "ck4inductor" / "include")
