"""All that the heuristics offer for a target: what tests and the table of resources go through."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from backend.templates.config import GemmConfig, SkinnyConfig
from backend.templates.heuristics import gemm_configs, skinny_configs
from backend.templates.operand import DType, Operand
from backend.templates.problem import GemmProblem, Sizes
from backend.templates.rendering import Rendered, render_gemm, render_skinny
from backend.templates.tiles import ShapeClass, shape_class
from backend.toolchain.target import Target

SHAPES: tuple[Sizes, ...] = (
    Sizes(4096, 4096, 4096),
    Sizes(8192, 1024, 4096),
    Sizes(1024, 8192, 4096),
    Sizes(128, 128, 512),
    Sizes(256, 256, 16384),
    *(Sizes(rows, 4096, 4096) for rows in (1, 2, 4, 8, 16)),
)
"""At least one of each shape class, and each number of rows that the skinny template knows."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A config that is offered by default, with the problem and the class it is offered for."""

    shape: ShapeClass
    problem: GemmProblem
    config: GemmConfig | SkinnyConfig

    @property
    def template(self) -> str:
        return "gemm" if isinstance(self.config, GemmConfig) else "skinny"

    def render(self, name: str = "rt_kernel") -> Rendered:
        if isinstance(self.config, GemmConfig):
            return render_gemm(self.problem, self.config, name)
        return render_skinny(self.problem, self.config, name)


def plain_problem(dtype: DType, sizes: Sizes, b_k_fast: bool = False) -> GemmProblem:
    """A product of contiguous, aligned matrices; `b` may be the transpose of a contiguous one."""
    m, n, k = sizes.m, sizes.n, sizes.k
    return GemmProblem(
        Operand("X", dtype, (m, k), (k, 1)),
        Operand("W", dtype, (k, n), (1, k) if b_k_fast else (n, 1)),
        Operand("Y", dtype, (m, n), (n, 1)),
    )


def offers(target: Target, dtypes: tuple[DType, ...] = ("float16", "float32")) -> tuple[Offer, ...]:
    """Each binary once: configs that differ in runtime arguments or shapes alone are one."""
    seen: dict[tuple[object, ...], Offer] = {}
    for offer in _all(target, dtypes):
        source_of = (offer.problem.a.dtype, offer.problem.b.strides[-1] == 1, offer.config)
        seen.setdefault(source_of, offer)
    return tuple(seen.values())


def _all(target: Target, dtypes: tuple[DType, ...]) -> Iterator[Offer]:
    for dtype in dtypes:
        for sizes in SHAPES:
            for b_k_fast in (False, True):
                problem, shape = plain_problem(dtype, sizes, b_k_fast), shape_class(sizes)
                for gemm in gemm_configs(problem, target, sizes):
                    yield Offer(shape, problem, gemm.binary)
                for skinny in skinny_configs(problem, target, sizes):
                    yield Offer(shape, problem, skinny.binary)
