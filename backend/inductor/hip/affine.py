"""Where the loops of a pointwise node run over the elements of a product, in terms of its batch,
row and column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sympy

from backend.counted import counted
from backend.templates.errors import ExpressionError


@dataclass(frozen=True, slots=True)
class Walk:
    """An index as a sum: a step for each loop, or for each dimension, and what is left."""

    steps: tuple[sympy.Expr, ...]
    offset: sympy.Expr


def walk_of(index: sympy.Expr, loops: Sequence[sympy.Symbol]) -> Walk:
    """Raises ExpressionError for an index that is no such sum."""
    rest = sympy.expand(index)
    steps = tuple(rest.coeff(loop, 1) for loop in loops)
    for loop, step in zip(loops, steps, strict=True):
        rest = sympy.expand(rest - loop * step)
    if any(part.has(*loops) for part in (rest, *steps) if loops):
        raise ExpressionError(f"{index} is no sum of steps")
    return Walk(steps, rest)


@dataclass(slots=True)
class _Digits:
    """A loop or a dimension, of which the lower digits are known already: the rest of its size, the
    step of the next digit in memory, and its weight in the loop or dimension itself."""

    size: sympy.Expr
    step: sympy.Expr
    weight: sympy.Expr = sympy.S.One

    def take(self, size: sympy.Expr) -> None:
        self.size, self.step = _quotient(self.size, size), self.step * size
        self.weight = self.weight * size


@dataclass(frozen=True, slots=True)
class Digit:
    """A number that is part of one loop and of one dimension, with its weight in each."""

    loop: int
    dim: int
    in_loop: sympy.Expr
    in_dim: sympy.Expr


@dataclass(frozen=True, slots=True)
class LoopMap:
    """How loops make up dimensions: one may be split into several of the other."""

    digits: tuple[Digit, ...]
    dims: int

    def by_dim(self, walk: Walk) -> Walk:
        """A walk along loops as one along dimensions. Raises ExpressionError where an element's
        place is no sum of steps along these, as in a tensor that repeats within a dimension."""
        steps: list[sympy.Expr | None] = [None] * self.dims
        for digit in self.digits:
            step = walk.steps[digit.loop] * digit.in_loop
            if steps[digit.dim] is None:
                steps[digit.dim] = sympy.cancel(step / digit.in_dim)
            if not _equal(step, steps[digit.dim] * digit.in_dim):
                raise ExpressionError("a tensor that repeats itself within a dimension")
        return Walk(tuple(sympy.Integer(0) if s is None else s for s in steps), walk.offset)


def loop_map(
    loops: Sequence[sympy.Expr],
    walk: Walk,
    sizes: Sequence[sympy.Expr],
    strides: Sequence[sympy.Expr],
) -> LoopMap:
    """Loops of such sizes `walk` through a tensor of such sizes and strides, each element once.
    Raises ExpressionError where they do not, or where it cannot be told."""
    left = {
        n: _Digits(size, step)
        for n, (size, step) in enumerate(zip(loops, walk.steps, strict=True))
        if size != 1
    }
    dims = {
        n: _Digits(size, step)
        for n, (size, step) in enumerate(zip(sizes, strides, strict=True))
        if size != 1
    }
    digits = []
    while left or dims:
        pairs = [(n, d) for n in left for d in dims if _equal(left[n].step, dims[d].step)]
        if not pairs:
            raise ExpressionError("loops that run elsewhere than the product")
        n, d = pairs[0]
        loop, dim = left[n], dims[d]
        digits.append(Digit(n, d, loop.weight, dim.weight))
        size = loop.size if _divides(loop.size, dim.size) else dim.size
        if not _divides(size, loop.size):
            raise ExpressionError(f"loops of {loop.size} over {counted(dim.size, 'element')}")
        for numbers, at in ((left, n), (dims, d)):
            numbers[at].take(size)
            if numbers[at].size == 1:
                del numbers[at]
    return LoopMap(tuple(digits), len(sizes))


def _equal(first: sympy.Expr, second: sympy.Expr) -> bool:
    return bool(sympy.expand(first - second) == 0)


def _quotient(over: sympy.Expr, under: sympy.Expr) -> sympy.Expr:
    return sympy.cancel(over / under)


def _divides(under: sympy.Expr, over: sympy.Expr) -> bool:
    """Whether it does for all values of the symbols, as far as can be seen."""
    quotient = _quotient(over, under)
    return bool(sympy.denom(sympy.together(quotient)) == 1)
