"""What the process that benchmarks does with a request. Imports torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from backend.inductor.benchmark.errors import (
    ChoiceError,
    DeviceLost,
    NoDevice,
    OutOfMemory,
    choice_error,
)
from backend.inductor.benchmark.places import place_of
from backend.inductor.benchmark.request import forget_problem
from backend.inductor.benchmark.tensors import Computed
from backend.inductor.described import describe


@dataclass(frozen=True, slots=True)
class Answer:
    """`last` if this process can do nothing more on its device."""

    value: float | Computed | ChoiceError
    last: bool = False


def answer(request: Any) -> Answer:
    """What `request.benchmark()` returns or raises. It is not run where its device does nothing."""
    if trouble := _trouble(request):
        return Answer(NoDevice(f"its device cannot be used: {trouble}"), last=True)
    try:
        value = request.benchmark()
        return Answer(value if isinstance(value, Computed) else float(value))
    except Exception as error:  # the outermost boundary of a choice
        failure, lost = choice_error(error), bool(_trouble(request))
        if lost and not isinstance(failure, OutOfMemory):
            failure = DeviceLost(describe(error))
        return Answer(failure, last=lost)


def _trouble(request: Any) -> str:
    return place_of(getattr(request, "device", "cpu")).trouble()


def forget() -> None:
    """Give back the memory of the last tuning."""
    forget_problem()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
