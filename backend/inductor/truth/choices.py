"""What is asked of the choices of a tuning, and what holds for the result of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from backend.inductor.benchmark.request import ROCmBenchmarkRequest
from backend.inductor.torch import choices as torch_choices
from backend.inductor.torch.tuning import ChoiceCaller, is_extern
from backend.inductor.truth.problem import NoReference
from backend.inductor.truth.rounding import Exact
from backend.inductor.truth.wrong import Asked
from backend.model.options import Options


def asked_of(
    op: str,
    precision: str,
    choices: Iterable[ChoiceCaller],
    sizes: Sequence[int],
    given: Options = (),
) -> Asked:
    """Of all `choices`, whose results have these `sizes`. `given` are a convolution's options,
    where they are known; ATen's choice tells what else the inputs do not."""
    told = torch_choices.told(op, list(choices))
    return Asked(op, precision, given or told.given, tuple(sizes), told.pointwise)


def bound_of(choice: ChoiceCaller, exact: Exact, dtype: torch.dtype) -> Exact | None:
    """What holds for the result of `choice`, which is of this type; None where that is not known.
    Ours may have an activation that the op has not."""
    request = torch_choices.request_of(choice)
    if not isinstance(request, ROCmBenchmarkRequest):
        if not is_extern(choice):
            return exact
        narrow = torch_choices.narrow_sums(exact.values.device, dtype)
        return (exact.narrow(dtype) if narrow else exact).of_library()
    if getattr(request.reference, "fast_sums", False):
        return None
    try:
        return exact.activated(getattr(request.reference, "activation", "none"), dtype)
    except NoReference:
        return None
