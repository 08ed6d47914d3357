"""Indexes of pointwise nodes as places in a factor, checked against every element."""

from __future__ import annotations

import itertools

import pytest
import sympy
from torch.utils._sympy.functions import FloorDiv, ModularIndexing

from backend.errors import ExpressionError
from backend.inductor.hip.loops import LINE, Digits, K, loop_map, walk_of

X, Y, Z = sympy.symbols("x y z", integer=True, nonnegative=True)
LINES, DEPTH = 6, 32
FLAT = (LINES * DEPTH,), (X,)
PLAIN = (LINES, DEPTH), (X, Y)
SPLIT = (LINES * DEPTH // 8, 8), (X, Y)
THREE = (LINES, DEPTH // 8, 8), (X, Y, Z)


def digits(sizes: tuple[int, ...], loops: tuple[sympy.Symbol, ...]) -> Digits:
    """Of loops that run through a factor whose lines are contiguous."""
    step, stored = 1, sympy.S.Zero
    for size, loop in zip(reversed(sizes), reversed(loops), strict=True):
        stored, step = stored + step * loop, step * size
    numbers = [sympy.Integer(size) for size in sizes]
    factor = [sympy.Integer(LINES), sympy.Integer(DEPTH)]
    found = loop_map(numbers, walk_of(stored, loops), factor, [sympy.Integer(DEPTH), sympy.S.One])
    return Digits(numbers, found, (LINE, K))


@pytest.mark.parametrize(
    ("loops", "index"),
    [
        (FLAT, X + 5),
        (FLAT, FloorDiv(X, 2)),
        (FLAT, FloorDiv(X, 8)),
        (FLAT, FloorDiv(X, DEPTH)),
        (PLAIN, X),
        (PLAIN, Y),
        (PLAIN, X + LINES * Y),
        (PLAIN, 4 * X + FloorDiv(Y, 8)),
        (PLAIN, X + LINES * FloorDiv(Y, 5)),
        (PLAIN, FloorDiv(DEPTH * X + Y, 16)),
        (SPLIT, X),
        (SPLIT, 8 * X + Y),
        (SPLIT, 4 * X + FloorDiv(Y, 2)),
        (SPLIT, FloorDiv(X, 2)),
        (THREE, 4 * X + Y),
        (THREE, 2 * X + FloorDiv(Y, 2)),
        (THREE, X),
    ],
    ids=str,
)
def test_every_element_is_where_the_index_says(
    loops: tuple[tuple[int, ...], tuple[sympy.Symbol, ...]], index: sympy.Expr
) -> None:
    sizes, symbols = loops
    found = digits(sizes, symbols)
    values = dict(zip(symbols, found.values, strict=True))
    place = found.gathered(index.subs(values))
    for number, at in enumerate(itertools.product(*map(range, sizes))):
        line, k = divmod(number, DEPTH)
        expected = int(index.subs(dict(zip(symbols, at, strict=True))))
        _, by_line, by_k = map(int, place.strides)
        assert line * by_line + k // place.group * by_k + int(place.offset) == expected


@pytest.mark.parametrize(
    ("loops", "index"),
    [
        (FLAT, FloorDiv(X, 64)),  # two lines share an element
        (FLAT, ModularIndexing(X, 1, 8)),
        (PLAIN, ModularIndexing(Y, 1, 8)),
        (PLAIN, X * Y),
        (PLAIN, FloorDiv(X, 2)),
        (PLAIN, DEPTH * X + DEPTH - 1 - Y),
        (PLAIN, FloorDiv(X + Y, 4)),
        (PLAIN, Y + FloorDiv(Y, 2)),
        (SPLIT, Y),
        (SPLIT, X + Y),
        (THREE, Y + Z),
    ],
    ids=str,
)
def test_what_is_no_place_is_refused(
    loops: tuple[tuple[int, ...], tuple[sympy.Symbol, ...]], index: sympy.Expr
) -> None:
    sizes, symbols = loops
    found = digits(sizes, symbols)
    with pytest.raises(ExpressionError):
        found.gathered(index.subs(dict(zip(symbols, found.values, strict=True))))


@pytest.mark.parametrize("loops", [FLAT, PLAIN, SPLIT, THREE], ids=str)
def test_a_digit_of_k(loops: tuple[tuple[int, ...], tuple[sympy.Symbol, ...]]) -> None:
    sizes, symbols = loops
    found = digits(sizes, symbols)
    last = found.values[-1]
    assert found.place(ModularIndexing(last, 1, 2)) == (1, 2)
    assert found.place(ModularIndexing(last, 2, 4)) == (2, 4)
    assert found.place(last) is None
    if len(sizes) > 1:
        assert found.place(ModularIndexing(found.values[0], 1, 2)) is None
