"""Products of groups of rows, as of the experts of a mixture: each group has a right factor of its
own, and where it ends is known on the device alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from backend.templates.errors import UnsupportedProblemError
from backend.templates.problem import (
    Activation,
    Expr,
    GemmProblem,
    Operand,
    Sizes,
    contiguous_dim,
)


@dataclass(frozen=True, slots=True)
class GroupedProblem(GemmProblem):
    """A product of which the batch are the groups: `a` and `out` are the same for each, and the
    rows of a group are those up to its number in `ends`, from the end of the group before. K is
    not split."""

    ends: Operand | None = None

    def inputs(self) -> tuple[Operand | None, ...]:
        """`ends` stands where a bias would."""
        a, b, _, *rest = GemmProblem.inputs(self)
        return a, b, self.ends, *rest

    def sizes(self, hint: Callable[[Expr], int] = int) -> Sizes:
        """The rows of all groups together are those of one."""
        return Sizes(hint(self.m), hint(self.n), hint(self.k))


def grouped_problem(
    a: Operand, b: Operand, out: Operand, ends: Operand, activation: Activation = "none"
) -> GroupedProblem:
    """`out` (M, N) of `a` (M, K) and `b` (G, K, N), whose groups end at the rows `ends` (G).

    Raises UnsupportedProblemError for groups along K or along the columns, and for a result that is
    not row-major.
    """
    if (len(a.sizes), len(b.sizes), len(out.sizes)) != (2, 3, 2):
        raise UnsupportedProblemError("groups of other than rows")
    if ends.dtype != "int32" or len(ends.sizes) != 1 or ends.strides[0] != 1:
        raise UnsupportedProblemError(f"{ends.name}: no dense int32 numbers")
    if contiguous_dim(a) != -1:
        raise UnsupportedProblemError(f"{a.name}: groups of rows that lie side by side")
    groups = b.sizes[0]

    def of_each(operand: Operand) -> Operand:
        return replace(operand, sizes=(groups, *operand.sizes), strides=(0, *operand.strides))

    problem = GroupedProblem(of_each(a), b, of_each(out), activation=activation, ends=ends)
    if problem.flipped:
        raise UnsupportedProblemError("groups of rows of a column-major result")
    return problem
