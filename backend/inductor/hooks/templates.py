"""Our templates in Inductor: their choices beside its own, their calls in its code.

`ROCM_TUI_CHECK=1`: every choice's output is compared with ATen's before it may win. Choices of our
templates are checked in any case, where they are benchmarked.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from backend.inductor.benchmark.errors import (
    ChoiceError,
    ErrorFromChoice,
    NoValidChoicesError,
    WrongResult,
)
from backend.inductor.benchmark.tensors import unread_results
from backend.inductor.guard import Entrance, Stock, quietly
from backend.inductor.hip.caller import ROCmTemplateCaller, sound
from backend.inductor.hip.scheduling import with_templates
from backend.inductor.hooks import offer
from backend.inductor.hooks.environment import check_wanted
from backend.inductor.hooks.selector import Selector
from backend.inductor.torch import graph as torch_graph
from backend.inductor.torch import tuning as torch_api
from backend.inductor.torch.tuning import ChoiceCaller

DEVICES = ("cpu", "cuda")
"""ROCm's devices are called `cuda` too."""

_here = threading.local()


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
        if check_wanted() and aten is not None and tensors.expected is None:
            inputs, output = tensors.get_benchmark_tensors(True).unpack()
            aten.benchmark(*inputs, out=output)
            tensors.expected = output.clone()
        return tensors

    @staticmethod
    def _checked(stock: Stock, choice: ChoiceCaller, autotune_args: Any) -> Any:
        try:
            with contextlib.nullcontext() if torch_api.verifies() else unread_results():
                milliseconds = stock(choice, autotune_args)
            if autotune_args.expected is not None and not _checks_itself(choice):
                compare(autotune_args.extern.output_tensor, autotune_args.expected, choice)
        except RuntimeError as error:
            failures().append((str(choice.name), torch_api.describe(error)))
            raise
        return milliseconds

    @classmethod
    def benchmark_in_current_process(cls, choices: Any, *args: Any, **kwargs: Any) -> Any:
        with quietly("our choices are not compiled ahead"):
            compile_ahead(choices)
        return super().benchmark_in_current_process(choices, *args, **kwargs)


def compile_ahead(choices: Iterable[ChoiceCaller]) -> None:
    """Compile ours side by side, each binary once. Torch leaves that out on some Pythons.

    What fails is said when its choice is benchmarked, and does not compile again then.
    """
    binaries = {choice.kernel_hash_key(): choice for choice in choices if _checks_itself(choice)}
    if not binaries:
        return
    with ThreadPoolExecutor(min(len(binaries), os.cpu_count() or 1)) as pool:
        for compiling in [pool.submit(choice.precompile) for choice in binaries.values()]:
            with contextlib.suppress(ChoiceError):
                compiling.result()


def _checks_itself(choice: ChoiceCaller) -> bool:
    return isinstance(getattr(choice, "_wrapped", choice), ROCmTemplateCaller)


def compare(output: torch.Tensor, expected: torch.Tensor, choice: ChoiceCaller) -> None:
    """Raises ErrorFromChoice. Both are rounded sums, in orders of their own."""
    wide = torch.float32 if output.is_cuda else torch.float64
    error = (output.to(wide) - expected.to(wide)).abs()
    worst = float(error.max()) if error.numel() else 0.0
    scale = float(expected.to(wide).abs().max()) if error.numel() else 0.0
    allowed = 8 * torch.finfo(output.dtype).eps * scale + 1e-4 * scale
    if not worst <= allowed:  # a NaN is not
        cause = WrongResult(f"wrong result: max error {worst:.3g}, where {allowed:.3g} is allowed")
        raise ErrorFromChoice(cause, choice, f"{tuple(output.shape)} {output.dtype}")


def install() -> None:
    """Take the place of our selector that knows no templates; again, nothing."""
    current = torch_api.selector()
    if isinstance(current, Selector) and not isinstance(current, TemplateSelector):
        torch_api.set_selector(TemplateSelector(*current.parts))


def install_checks() -> None:
    """Take the place of our selector that believes every result."""
    current = torch_api.selector()
    if isinstance(current, Selector) and not isinstance(current, CheckingSelector):
        torch_api.set_selector(CheckedSelector(*current.parts))


class CheckedSelector(Selector, CheckingSelector):
    """The selector that records and honours pins, and compares results where that is wanted."""


class TemplateSelector(CheckedSelector):
    """The same, asked about our choices too."""

    offers_templates = True

    __call__ = Entrance("_with_ours")

    def _with_ours(
        self,
        stock: Stock,
        name: str,
        choices: Any,
        input_nodes: Any,
        layout: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        offered = [*choices, *_offered(name, choices, input_nodes, layout)]
        failures().clear()
        try:
            return stock(name, offered, input_nodes, layout, *args, **kwargs)
        except torch_api.StockNoValidChoicesError as error:
            shapes = ", ".join("x".join(map(str, node.get_size())) for node in input_nodes)
            raise NoValidChoicesError(name, shapes, failures()) from error


def _offered(name: str, choices: Any, input_nodes: Any, layout: Any) -> list[Any]:
    """Ours; none, and a line that says why, where making them goes wrong."""
    with quietly("our templates are not offered"):
        schedule()
        return sound(offer.offer(name, choices, input_nodes, layout), choices)
    return []


@functools.cache
def schedule() -> None:
    """Let each device's scheduling know our kernels. Not before the first tuning: it imports all
    of Inductor's backends."""
    for device in DEVICES:
        torch_graph.wrap_scheduling(device, with_templates)
