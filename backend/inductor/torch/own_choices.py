"""Private names of torch by which choices of ours are treated as its own are: where their output
may lie, and what its log of matrix products says of them.

Read in torch 2.13.0 (`torch/_inductor/ir.py`, `select_algorithm.py`). Importing this module imports
torch._inductor.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

from torch._inductor import ir
from torch._inductor import select_algorithm as _select

from backend.inductor.torch.tuning import ChoiceCaller, Timings, deferred

Describe = Callable[[ChoiceCaller], dict[str, Any] | None]
"""What the log says of a choice; None where that is left to torch."""


def let_output_be_planned(result: Any, ours: Callable[[ChoiceCaller], bool]) -> None:
    """Let the output of a selection that was put off lie within another buffer, as in that of a
    concatenation, where that would be so without our choices. They write wherever they are told."""
    buffer = deferred(result)
    if getattr(buffer, "_output_plannable", None) is False:
        choices = getattr(buffer, "choices", ())
        buffer._output_plannable = all(ours(choice) or _plannable(choice) for choice in choices)


def _plannable(choice: ChoiceCaller) -> bool:
    """As torch decides it of its own."""
    if isinstance(choice, _select.ExternKernelCaller):
        return bool(choice.has_out_variant)
    return isinstance(choice, ir.TritonTemplateCallerBase)


_here = threading.local()


@contextlib.contextmanager
def logging(timings: Timings, describe: Describe) -> Iterator[None]:
    """In the block torch writes these times into its logs; what it has no words for is described.

    Each list of a log has an entry for each choice, None where torch has nothing to say.
    """
    _wrap_log()
    _here.choices = [(choice, ms, describe) for choice, ms in timings.items()]
    try:
        yield
    finally:
        _here.choices = []


@functools.cache
def _wrap_log() -> None:
    stock = getattr(_select, "append_to_log", None)
    if stock is None:
        return

    @functools.wraps(stock)
    def append_to_log(filename: Any, data: Any) -> Any:
        return stock(filename, _filled(data))

    _select.append_to_log = append_to_log


def _filled(data: Any) -> Any:
    choices = getattr(_here, "choices", [])
    if not choices or not isinstance(data, dict):
        return data
    return {name: _entries(value, choices) for name, value in data.items()}


def _entries(value: Any, choices: list[tuple[ChoiceCaller, float, Describe]]) -> Any:
    if not isinstance(value, list) or len(value) != len(choices):
        return value
    pairs = zip(value, choices, strict=True)
    return [_described(*choice) if entry is None else entry for entry, choice in pairs]


def _described(choice: ChoiceCaller, ms: float, describe: Describe) -> dict[str, Any] | None:
    said = describe(choice)
    return None if said is None else {**said, "time": ms}
