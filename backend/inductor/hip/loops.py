"""The loops of a pointwise node: over the elements of a product, by its batch, row and column,
and over those of a factor, by batch, line and K, where neighbours along K may share a source
element."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import sympy

from backend.counted import counted
from backend.errors import ExpressionError


@dataclass(frozen=True, slots=True)
class Walk:
    """An index as a sum: a step for each loop or dimension, and the rest."""

    steps: tuple[sympy.Expr, ...]
    offset: sympy.Expr


def walk_of(index: sympy.Expr, loops: Sequence[sympy.Symbol]) -> Walk:
    """Split an index. Raises ExpressionError if it is not such a sum."""
    rest = sympy.expand(index)
    steps = tuple(rest.coeff(loop, 1) for loop in loops)
    for loop, step in zip(loops, steps, strict=True):
        rest = sympy.expand(rest - loop * step)
    if any(part.has(*loops) for part in (rest, *steps) if loops):
        raise ExpressionError(f"{index} is not a sum of steps")
    return Walk(steps, rest)


@dataclass(slots=True)
class _Digits:
    """A loop or a dimension whose lower digits are assigned already: the rest of its size, the step
    of the next digit in memory, and its weight in the loop or dimension itself."""

    size: sympy.Expr
    step: sympy.Expr
    weight: sympy.Expr = sympy.S.One

    def take(self, size: sympy.Expr) -> None:
        self.size, self.step = _quotient(self.size, size), self.step * size
        self.weight = self.weight * size


@dataclass(frozen=True, slots=True)
class LoopDigit:
    """A number that is part of one loop and of one dimension, with its weight in each."""

    loop: int
    dim: int
    in_loop: sympy.Expr
    in_dim: sympy.Expr


@dataclass(frozen=True, slots=True)
class LoopMap:
    """How loops form dimensions: either may be split into several of the other."""

    digits: tuple[LoopDigit, ...]
    dims: int

    def by_dim(self, walk: Walk) -> Walk:
        """Convert a walk along loops to one along dimensions. Raises ExpressionError if an
        element's position is not a sum of steps along these, as in a tensor that repeats within a
        dimension."""
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
    """Map loops that `walk` through a tensor of these sizes and strides, each element once. Raises
    ExpressionError if they do not, or if that cannot be decided."""
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
        digits.append(LoopDigit(n, d, loop.weight, dim.weight))
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
    """Return whether it certainly divides for all values of the symbols."""
    quotient = _quotient(over, under)
    return bool(sympy.denom(sympy.together(quotient)) == 1)


BATCH, LINE, K = range(3)
"""The dimensions of a factor."""


@dataclass(frozen=True, slots=True)
class Digit:
    """A number of `size` values that is part of a dimension, with the weight `weight` in it."""

    dim: int
    weight: sympy.Expr
    size: sympy.Expr


@dataclass(frozen=True, slots=True)
class _Part:
    """`times` the digit that is divided by `divisor` and rounded down."""

    digit: sympy.Symbol
    times: sympy.Expr
    divisor: sympy.Expr = sympy.S.One


@dataclass(frozen=True, slots=True)
class Gathered:
    """Element `offset + batch * strides[0] + line * strides[1] + k // group * strides[2]`, where
    line and k restart after `periods`; 0 is never."""

    strides: tuple[sympy.Expr, sympy.Expr, sympy.Expr]
    group: int
    offset: sympy.Expr
    periods: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class _Periodic:
    """`times` the index of a whole dimension, divided, modulo a number."""

    times: sympy.Expr
    divisor: int
    modulus: int


class Digits:
    """The loops of a node, split into digits of a factor's dimensions. `mapping` maps the loops to
    a tensor; `dims` are its dimensions."""

    def __init__(self, loops: Sequence[sympy.Expr], mapping: LoopMap, dims: Sequence[int]) -> None:
        self._digits: dict[sympy.Symbol, Digit] = {}
        values = []
        for number, size in enumerate(loops):
            own = [digit for digit in mapping.digits if digit.loop == number]  # the lowest first
            value = sympy.S.Zero
            for at, digit in enumerate(own):
                end = own[at + 1].in_loop if at + 1 < len(own) else size
                symbol = sympy.Symbol(f"digit{len(self._digits)}", integer=True, nonnegative=True)
                values_of = sympy.cancel(end / digit.in_loop)
                self._digits[symbol] = Digit(dims[digit.dim], digit.in_dim, values_of)
                value += digit.in_loop * symbol
            values.append(value)
        self.values = tuple(values)
        """The values of the loops, composed of digits."""

    def gathered(self, index: sympy.Expr) -> Gathered:
        """Return the elements of an index. Raises ExpressionError for an index of another form."""
        plain, again = self._periodic(index)
        parts, offset = self._parts(plain)
        if len({part.digit for part in parts}) < len(parts):
            raise ExpressionError(f"{index}: a digit that counts twice")
        if any(self._dim(part) in again for part in parts):
            raise ExpressionError(f"{index}: a dimension that counts twice")
        strides = [
            self._stride(parts, dim) if dim not in again else again[dim].times
            for dim in (BATCH, LINE)
        ]
        group, stride = self._grouped([part for part in parts if self._dim(part) == K])
        if K in again:
            group, stride = again[K].divisor, again[K].times
        if any(step.could_extract_minus_sign() for step in (*strides, stride)):
            raise ExpressionError(f"{index}: read backwards")
        line, k = (
            again[dim].divisor * again[dim].modulus if dim in again else 0 for dim in (LINE, K)
        )
        return Gathered((strides[0], strides[1], stride), group, offset, (line, k))

    def _periodic(self, index: sympy.Expr) -> tuple[sympy.Expr, dict[int, _Periodic]]:
        """Split a sum into its non-periodic part, and the periodic parts by dimension."""
        plain, periodic = sympy.S.Zero, dict[int, _Periodic]()
        for term in sympy.Add.make_args(sympy.expand(index)):
            times, rest = term.as_independent(*self._digits, as_Add=False)
            dim = self.whole(rest.args[0]) if type(rest).__name__ == "ModularIndexing" else None
            if dim is None:
                plain += term
                continue
            _, divisor, modulus = rest.args
            if dim in periodic or not (divisor * modulus).is_Integer or (dim != K and divisor != 1):
                raise ExpressionError(f"{index}: a tensor that repeats itself")
            periodic[dim] = _Periodic(times, int(divisor), int(modulus))
        return plain, periodic

    def whole(self, index: sympy.Expr) -> int | None:
        """Return the dimension, line or K, whose position `index` is, or None."""
        for dim in (LINE, K):
            own = [
                symbol * digit.weight for symbol, digit in self._digits.items() if digit.dim == dim
            ]
            if own and sympy.expand(index - sympy.Add(*own)) == 0:
                return dim
        return None

    def size(self, dim: int) -> sympy.Expr:
        return sympy.Mul(*(digit.size for digit in self._digits.values() if digit.dim == dim))

    def last(self, gathered: Gathered) -> int | None:
        """Return the last of all elements; None if sizes are unknown."""
        last = gathered.offset
        for dim, stride in zip((BATCH, LINE, K), gathered.strides, strict=True):
            size = self.size(dim)
            period = 0 if dim == BATCH else gathered.periods[dim - 1]
            if period and size.is_Integer:
                size = min(size, sympy.Integer(period))
            last += stride * sympy.floor((size - 1) / (gathered.group if dim == K else 1))
        return int(last) if last.is_Integer else None

    def place(self, index: sympy.Expr) -> tuple[int, int] | None:
        """Return divisor and modulus if the index is `k // divisor % modulus`; else None."""
        if type(index).__name__ != "ModularIndexing":
            return None
        inner, divisor, modulus = index.args
        whole = divisor * modulus
        parts, offset = self._parts(inner)
        left = [part for part in parts if not _divides(whole, part.times)]
        if len(left) != 1 or offset != 0 or not whole.is_Integer:
            return None
        (part,) = left
        digit = self._digits[part.digit]
        # Higher digits must also be multiples of the modulus.
        alone = digit.weight == 1 and self._is_top(digit)
        low = digit.weight == 1 and _divides(whole, digit.size)
        if digit.dim != K or part.times != 1 or part.divisor != 1 or not (alone or low):
            return None
        return int(divisor), int(modulus)

    def _is_top(self, digit: Digit) -> bool:
        return all(other.dim != digit.dim or other == digit for other in self._digits.values())

    def _dim(self, part: _Part) -> int:
        return self._digits[part.digit].dim

    def _parts(self, index: sympy.Expr) -> tuple[list[_Part], sympy.Expr]:
        """Return the index as a sum of parts, and the rest."""
        parts: list[_Part] = []
        offset = sympy.S.Zero
        for term in sympy.Add.make_args(sympy.expand(index)):
            times, rest = term.as_independent(*self._digits, as_Add=False)
            if rest == 1:
                offset += times
            elif rest in self._digits:
                parts.append(_Part(rest, times))
            elif type(rest).__name__ == "FloorDiv":
                over, under = rest.args
                parts += self._divided(over, under, times)
            else:
                raise ExpressionError(f"{index} is not a place in a factor")
        return parts, offset

    def _divided(self, over: sympy.Expr, under: sympy.Expr, times: sympy.Expr) -> Iterator[_Part]:
        """Divide a sum: at most one digit is not a multiple of the divisor, and is cut."""
        parts, offset = self._parts(over)
        lost = [part for part in parts if not _divides(under, part.times)]
        if len(lost) > 1 or not _divides(under, offset) or offset != 0:
            raise ExpressionError(f"{over} // {under} is not a place in a factor")
        for part in parts:
            if part not in lost:
                yield _Part(part.digit, times * sympy.cancel(part.times / under), part.divisor)
            elif _divides(part.times, under):
                divisor = part.divisor * sympy.cancel(under / part.times)
                yield _Part(part.digit, times, divisor)
            else:
                raise ExpressionError(f"{over} // {under} is not a place in a factor")

    def _stride(self, parts: Sequence[_Part], dim: int) -> sympy.Expr:
        times = {part.digit: part for part in parts if self._dim(part) == dim}
        own = [(symbol, digit) for symbol, digit in self._digits.items() if digit.dim == dim]
        strides = set()
        for symbol, digit in own:
            part = times.get(symbol)
            if part is not None and part.divisor != 1:
                raise ExpressionError("lines that share an element")
            strides.add(sympy.S.Zero if part is None else sympy.cancel(part.times / digit.weight))
        if len(strides) > 1:
            raise ExpressionError("a tensor that repeats itself within a dimension")
        return strides.pop() if strides else sympy.S.Zero

    def _grouped(self, parts: Sequence[_Part]) -> tuple[int, sympy.Expr]:
        """Return the group along K and the stride from one to the next."""
        if not parts:
            return 1, sympy.S.Zero
        units = {part: self._digits[part.digit].weight * part.divisor for part in parts}
        if not all(unit.is_Integer for unit in units.values()):
            raise ExpressionError("a group whose size is not known")
        first = min(parts, key=lambda part: int(units[part]))
        group = int(units[first])
        by_digit = {part.digit: part for part in parts}
        for symbol, digit in self._digits.items():
            if digit.dim != K:
                continue
            part = by_digit.get(symbol)
            ends = sympy.expand(digit.weight * digit.size)
            if part is None and not (ends.is_Integer and int(ends) <= group):
                raise ExpressionError("a tensor that repeats itself along K")
            if part is not None and sympy.expand(part.times * group - first.times * units[part]):
                raise ExpressionError("a tensor that repeats itself along K")
            if part not in (None, first) and part is not None and part.divisor != 1:
                raise ExpressionError("two groups along K")
        return group, first.times
