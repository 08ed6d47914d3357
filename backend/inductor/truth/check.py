"""A choice's result before it may win, beside that of ATen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from backend.counted import counted, noun
from backend.inductor.benchmark.errors import WrongResult
from backend.inductor.benchmark.reference import epsilon_of
from backend.inductor.torch.tuning import ChoiceCaller
from backend.inductor.truth.choices import bound_of
from backend.inductor.truth.problem import NoReference
from backend.inductor.truth.rounding import Exact, exact_product
from backend.inductor.truth.wrong import Asked, true_product


@dataclass(frozen=True, slots=True)
class Check:
    """What ATen made of the inputs, and where it is known, the bound of what rounding explains. A
    library may round more than that on purpose: what ATen itself is off is no other's fault."""

    expected: Tensor
    exact: Exact | None = None
    most: float = 1.0

    def check(self, output: Tensor, choice: ChoiceCaller) -> None:
        """Raises WrongResult."""
        exact = None if self.exact is None else bound_of(choice, self.exact, output.dtype)
        if exact is None:
            _compare(output, self.expected)
            return
        found = exact.distance(output)
        if found.excess > self.most:
            worst = "far more than" if found.excess > 1e6 else f"{found.excess:.3g} times"
            raise WrongResult(
                f"wrong result: {found.beyond:,} of {counted(found.compared, 'element')} "
                f"{noun(found.beyond, 'is', 'are')} further off than rounding explains, the worst "
                f"by {worst} what is allowed"
            )


def check_of(asked: Asked | None, inputs: Sequence[Tensor], expected: Tensor) -> Check:
    """The check of what these inputs give, of which ATen made `expected`; without `asked` nothing
    is known but that."""
    if asked is None:
        return Check(expected)
    try:
        exact = exact_product(asked, inputs, true_product(asked, inputs))
    except (NoReference, RuntimeError, IndexError):  # no memory for it, or odd operands
        exact = None
    if exact is None:
        return Check(expected)
    library = exact.of_library()
    most = 1.0 if library is None else library.distance(expected).excess
    return Check(expected, exact, max(1.0, most))


def _compare(output: Tensor, expected: Tensor) -> None:
    """Where no bound is known: both are rounded sums, in orders of their own. Raises
    WrongResult."""
    wide = torch.float32 if output.is_cuda else torch.float64
    error = (output.to(wide) - expected.to(wide)).abs()
    worst = float(error.max()) if error.numel() else 0.0
    scale = float(expected.to(wide).abs().max()) if error.numel() else 0.0
    exact = not output.dtype.is_floating_point
    allowed = 0.0 if exact else 8 * epsilon_of(output.dtype) * scale + 1e-4 * scale
    if math.isnan(worst) or worst > allowed:
        raise WrongResult(f"wrong result: max error {worst:.3g}, where {allowed:.3g} is allowed")
