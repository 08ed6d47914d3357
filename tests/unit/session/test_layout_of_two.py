"""Operands of two dimensions are told in a shorter way, which says the same as that of more."""

from __future__ import annotations

from itertools import product

from rocm_tui.session.stats import _operand


def test_two_dimensions_are_one_batch_of_them() -> None:
    for shape in product((1, 2, 3), repeat=2):
        for strides in product((0, 1, 2, 3, 6), repeat=2):
            assert _operand(shape, strides) == _operand((1, *shape), (7, *strides)), shape
