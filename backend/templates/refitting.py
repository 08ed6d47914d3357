"""Whether and how a config that has been chosen serves a product whose factors are computed where
they are loaded.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from backend.templates.config import GemmConfig, SkinnyConfig
from backend.templates.errors import ConfigError
from backend.templates.operand import Expr
from backend.templates.problem import GemmProblem, Sizes, canonical

_CACHE = 4
"""How much faster bytes come from L2 than from memory, about; only the order of size matters."""
_LAUNCH_BYTES = 4 << 20
"""What memory brings while a kernel that is not needed would be launched: some 2 us."""


def refitted(
    config: GemmConfig | SkinnyConfig, problem: GemmProblem, offered: GemmProblem
) -> GemmConfig | SkinnyConfig:
    """A config that was chosen for `offered`, with the vectors that `problem` allows, which loads
    its factors otherwise. Raises ConfigError where another arrangement would be needed."""
    form, old = canonical(problem), canonical(offered)
    vec_a, vec_b = min(config.vec_a, form.left.vector), min(config.vec_b, form.right.vector)
    if isinstance(config, GemmConfig):
        return replace(config, vec_a=vec_a, vec_b=vec_b)
    if (form.left.k_fast, form.right.k_fast) != (old.left.k_fast, old.right.k_fast):
        raise ConfigError("the factors lie the other way round")
    if not form.right.k_fast:  # as many lanes side by side
        cols = config.cols // config.vec_b * vec_b
        return replace(config, vec_a=vec_a, vec_b=vec_b, cols=cols)
    if form.left.k_fast:
        vec_a = vec_b = min(vec_a, vec_b)
    return replace(config, vec_a=vec_a, vec_b=vec_b)


class Tiled(Protocol):
    """A config with tiles of the result, in whatever language."""

    @property
    def block_m(self) -> int: ...

    @property
    def block_n(self) -> int: ...


def pays(
    config: Tiled | SkinnyConfig, problem: GemmProblem, hint: Callable[[Expr], int] = int
) -> bool:
    """Whether loading what a factor is computed from, again for each tile, costs less than writing
    the factor once. `hint` guesses sizes that are dynamic."""
    sizes = problem.sizes(hint)
    return all(
        (times - 1) * (stored - plain) / _CACHE <= stored + plain + _LAUNCH_BYTES
        for stored, plain, times in _traffic(config, problem, sizes, hint)
    )


def _traffic(
    config: Tiled | SkinnyConfig,
    problem: GemmProblem,
    sizes: Sizes,
    hint: Callable[[Expr], int],
) -> list[tuple[int, int, int]]:
    """Of each computed factor: bytes of its sources, its own bytes, and how often it is loaded."""
    rows, cols = (sizes.n, sizes.m) if problem.flipped else (sizes.m, sizes.n)
    tall, wide = _block(config)
    form = canonical(problem)
    found = []
    for side, lines, times in (
        (form.left, rows, -(-cols // wide)),
        (form.right, cols, -(-rows // tall)),
    ):
        if side.prologue is not None:
            operands = [source.operand for source in side.prologue.sources]
            stored = sum(math.prod(map(hint, x.sizes)) * x.item_bytes for x in operands)
            own = sizes.batch * lines * sizes.k * side.operand.item_bytes
            found.append((stored, own, times))
    return found


def _block(config: Tiled | SkinnyConfig) -> tuple[int, int]:
    """Rows and columns of the result that a block computes."""
    if isinstance(config, SkinnyConfig):
        return config.rows, config.cols * config.waves_n
    return config.block_m, config.block_n
