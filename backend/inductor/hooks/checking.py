"""Inductor's selector where choices are benchmarked: ours are compiled side by side, results are
compared where that is wanted, and what failed is remembered.

`ROCM_TUI_CHECK=1`: every choice's output is checked before it may win, by what rounding explains
(`truth.rounding`), where that is not known beside ATen's. Choices of our templates are checked in
any case, where they are benchmarked.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from backend.inductor.benchmark import process
from backend.inductor.benchmark.errors import (
    ChoiceError,
    ErrorFromChoice,
    WrongResult,
    is_own_fault,
)
from backend.inductor.benchmark.tensors import unread_results
from backend.inductor.guard import Entrance, Stock, quietly
from backend.inductor.hip.caller import ROCmTemplateCaller
from backend.inductor.hooks import unkept
from backend.inductor.hooks.environment import check_wanted
from backend.inductor.hooks.tuning_watch import tuning_of_any
from backend.inductor.torch import own_choices
from backend.inductor.torch import tuning as torch_api
from backend.inductor.torch.tuning import ChoiceCaller
from backend.inductor.truth.check import Check, check_of
from backend.inductor.truth.choices import asked_of
from backend.inductor.truth.wrong import Asked

_here = threading.local()
"""`failures`, and `check`: the tensors of the tuning and how results in them are checked."""


def failures() -> list[tuple[str, str]]:
    """Name and reason of each choice that failed in this thread, since somebody cleared it."""
    failed: list[tuple[str, str]] = _here.__dict__.setdefault("failures", [])
    return failed


class CheckingSelector(torch_api.LazySelector):
    """The stock selector, which compares outputs where that is wanted, and remembers failures."""

    get_inputs = Entrance("_with_expected")
    benchmark_choice = Entrance("_checked")

    @staticmethod
    def _with_expected(stock: Stock, choices: Any, *args: Any, **kwargs: Any) -> Any:
        tensors = stock(choices, *args, **kwargs)
        aten = next((choice for choice in choices if torch_api.is_extern(choice)), None)
        if check_wanted() and aten is not None:
            inputs, output = tensors.get_benchmark_tensors(True).unpack()
            aten.benchmark(*inputs, out=output)
            asked = asked_in(choices, output.shape)
            _here.check = tensors, check_of(asked, inputs, output.clone())
        return tensors

    @staticmethod
    def _checked(stock: Stock, choice: ChoiceCaller, autotune_args: Any) -> Any:
        try:
            with contextlib.nullcontext() if torch_api.verifies() else unread_results():
                milliseconds = stock(choice, autotune_args)
            tensors, check = getattr(_here, "check", (None, None))
            if check is not None and tensors is autotune_args and not is_ours(choice):
                checked(check, tensors.extern.output_tensor, choice)
        except RuntimeError as error:
            failures().append((str(choice.name), torch_api.describe(error)))
            if is_ours(choice) and not is_own_fault(error):
                unkept.note(choice)
            raise
        return milliseconds

    log_results = Entrance("_logged")

    @staticmethod
    def _logged(stock: Stock, name: Any, nodes: Any, timings: Any, *rest: Any, **more: Any) -> Any:
        with own_choices.logging(timings, log_entry):
            return stock(name, nodes, timings, *rest, **more)

    @classmethod
    def benchmark_in_current_process(cls, choices: Any, *args: Any, **kwargs: Any) -> Any:
        with quietly("our choices are not compiled ahead"):
            compile_ahead(choices)
        try:
            return super().benchmark_in_current_process(choices, *args, **kwargs)
        finally:
            _here.__dict__.pop("check", None)
            with quietly("the tensors of a tuning are kept for some seconds"):
                process.forget()

    @classmethod
    def benchmark_in_sub_process(cls, choices: Any, *args: Any, **kwargs: Any) -> Any:
        """Ours have processes of their own in any case, one a device."""
        ours = [choice for choice in choices if is_ours(choice)]
        theirs = [choice for choice in choices if not is_ours(choice)]
        timings = super().benchmark_in_sub_process(theirs, *args, **kwargs) if theirs else {}
        if ours:
            timings |= cls.benchmark_in_current_process(ours, *args, **kwargs)
        return {choice: timings[choice] for choice in choices}


def log_entry(choice: ChoiceCaller) -> dict[str, Any] | None:
    """What torch's log of matrix products says of a choice of ours, beside its time."""
    if not is_ours(choice):
        return None
    info = dict(choice.info_dict())
    return {"type": str(info.pop("backend", "")).lower(), **info}


def compile_ahead(choices: Iterable[ChoiceCaller]) -> None:
    """Compile ours side by side, each binary once. Torch leaves that out on some Pythons.

    What fails is said when its choice is benchmarked, and does not compile again then.
    """
    binaries = {choice.kernel_hash_key(): choice for choice in choices if is_ours(choice)}
    if not binaries:
        return
    with ThreadPoolExecutor(min(len(binaries), os.cpu_count() or 1)) as pool:
        for compiling in [pool.submit(choice.precompile) for choice in binaries.values()]:
            with contextlib.suppress(ChoiceError):
                compiling.result()


def is_ours(choice: ChoiceCaller) -> bool:
    return isinstance(getattr(choice, "_wrapped", choice), ROCmTemplateCaller)


def asked_in(choices: Sequence[ChoiceCaller], sizes: Sequence[int]) -> Asked | None:
    """What these choices are asked for, if the tuning is recorded."""
    tuning = tuning_of_any(choices)
    if tuning is None:
        return None
    return asked_of(tuning.key.op, tuning.key.precision, choices, sizes, tuning.given)


def checked(check: Check, output: torch.Tensor, choice: ChoiceCaller) -> None:
    """Raises ErrorFromChoice."""
    try:
        check.check(output, choice)
    except WrongResult as cause:
        raise ErrorFromChoice(cause, choice, f"{tuple(output.shape)} {output.dtype}") from cause
