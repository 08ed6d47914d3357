"""Offsets that take 64 bits, though every number that a kernel gets fits into 32."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sympy

from backend.templates.operand import Operand
from backend.templates.triton.choice import TritonGemmConfig
from backend.templates.triton.gemm import TritonGemm, generate
from tests.support.triton_lab import Case, TritonChild, triton_child

M, N, K, P, Q = sympy.symbols("m n k p q", integer=True, positive=True)


@pytest.fixture(scope="module")
def child(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonChild]:
    with triton_child(tmp_path_factory.mktemp("triton"), interpret=True) as process:
        yield process


def _problem(step: sympy.Expr, line: sympy.Expr) -> TritonGemm:
    """Strides of the batch and of the lines that the kernel computes from sizes."""

    def far(name: str, rows: sympy.Expr, cols: sympy.Expr) -> Operand:
        return Operand(name, "float16", (3, rows, cols), (step, line, 1))

    return TritonGemm(far("a", M, K), far("b", K, N), far("c", M, N))


@pytest.mark.parametrize("split_k", [1, 2])
@pytest.mark.parametrize("p, q", [(65536, 65536), (32769, 65536)])
def test_products_of_sizes_take_64_bits(child: TritonChild, split_k: int, p: int, q: int) -> None:
    config = TritonGemmConfig(16, 16, 16, split_k=split_k)
    numbers = {"m": 5, "n": 7, "k": 40, "p": p, "q": q}
    for problem in (_problem(P * Q, 64), _problem(64, P * Q + 64)):
        case = Case(generate(problem, config, "gfx942"), problem, numbers)
        assert child.run(case).error < 1


def test_the_whole_is_compiled(tmp_path_factory: pytest.TempPathFactory) -> None:
    with triton_child(tmp_path_factory.mktemp("compiled"), interpret=False) as compiler:
        for split_k in (1, 2):
            config = TritonGemmConfig(32, 32, 32, split_k=split_k)
            made = compiler.compile(generate(_problem(P * Q, P), config, "gfx942"))
            assert len(made) == split_k
