"""Entries of other tuners' tables, and the tunings of Inductor of the same product beside which
they are shown. Pure state."""

from __future__ import annotations

from dataclasses import replace

from backend.model.options import of_hash
from backend.model.problem import Problem, Shape
from backend.model.tuning import Tuning
from rocm_tui.session.join import Bucket, inductors_problem_of

_CONVOLUTION = "convolution"
_SCALED = "scaled_mm"
_NUMBERS: tuple[Shape, ...] = ((), (1,), (1, 1))
"""What a scale of a whole matrix may be."""
MOST = 8
"""Entries that are shown beside one tuning."""
Product = tuple[object, ...]


def product_of(problem: Problem) -> Product | None:
    """The same for one product, whoever tells of it; None where its sizes or strides are not told.

    A bias may be spread over the rows already, a size of 1 has any stride, a scale of one number
    any dimensions, and a precision that is not told is the one that float32 products have by
    themselves.
    """
    shapes, strides = problem.shapes, problem.strides
    if not shapes or len(strides) != len(shapes):
        return None
    if problem.op == "addmm" and len(shapes[0]) == 2 and strides[0][:1] == (0,):
        shapes, strides = (shapes[0][1:], *shapes[1:]), (strides[0][1:], *strides[1:])
    precision = problem.precision if "torch.float32" in problem.dtypes[:2] else None
    if problem.op.lstrip("_") == _SCALED:
        one = [shape in _NUMBERS for shape in shapes]
        shapes = tuple(() if alone else shape for alone, shape in zip(one, shapes, strict=True))
        strides = tuple(() if alone else step for alone, step in zip(one, strides, strict=True))
    if problem.op == _CONVOLUTION:  # a bias changes little, and no table has one
        shapes, strides = shapes[:2], strides[:2]
    steps = tuple(map(_steps, shapes, strides))
    dtypes = problem.dtypes[: len(shapes)]
    return (problem.op.lstrip("_"), shapes, steps, dtypes, precision or "highest")


def _steps(sizes: Shape, strides: Shape) -> Shape:
    return tuple([0 if size == 1 else step for size, step in zip(sizes, strides, strict=False)])


class Tables:
    """The entries by what Inductor's tuning of their product is found by."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[Tuning, ...]] = {}

    def __bool__(self) -> bool:
        return bool(self._of)

    def add(self, entry: Tuning) -> tuple[Bucket, ...]:
        """Where tunings of the product are, beside which it is shown."""
        return self._put(entry, True)

    def remove(self, entry: Tuning) -> tuple[Bucket, ...]:
        return self._put(entry, False)

    def _put(self, entry: Tuning, there: bool) -> tuple[Bucket, ...]:
        product = product_of(entry)
        if product is None:
            return ()
        place = hash(product)
        others = tuple(one for one in self._of.get(place, ()) if one is not entry)
        self._of[place] = (*others, entry) if there else others
        if not self._of[place]:
            del self._of[place]
        if entry.op != _SCALED or entry.shapes[2] not in _NUMBERS:
            return (inductors_problem_of(entry),)
        scales = (replace(entry, shapes=_scaled(entry.shapes, one)) for one in _NUMBERS)
        return tuple(map(inductors_problem_of, scales))

    def of(self, tuning: Tuning) -> tuple[Tuning, ...]:
        """The entries of its product, those with the least time first."""
        product = product_of(tuning) if self._of else None
        found = self._of.get(hash(product), ()) if product is not None else ()
        same = [one for one in found if product_of(one) == product and _given_alike(one, tuning)]
        return tuple(sorted(same, key=_order)[:MOST])


def _scaled(shapes: tuple[Shape, ...], scale: Shape) -> tuple[Shape, ...]:
    return (*shapes[:2], scale, scale, *shapes[4:])


def _given_alike(entry: Tuning, tuning: Tuning) -> bool:
    """Whether nothing that both were given beside the tensors differs, such as a padding."""
    hashes = (of_hash(tuning.op, choice.hash or "") for choice in tuning.choices)
    given = dict(tuning.options or next(filter(None, hashes), ()))
    return all(given.get(name, values) == values for name, values in entry.options)


def _order(entry: Tuning) -> tuple[bool, float, int]:
    ms = entry.choices[0].ms if entry.choices else None
    return ms is None, ms or 0.0, entry.entry.line if entry.entry else 0
