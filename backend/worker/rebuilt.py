"""An op as a program again: what is compiled, on what, and how."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from backend.inductor.truth.wrong import Truth


class NotRebuildable(Exception):
    """No program is known that leads to this op with these inputs; one line says why."""


class KnownNumbers(Protocol):
    """What lies in the tensors of an op whose sizes tell too little, and what must come of it."""

    def given(self, place: int, name: str) -> Tensor | None:
        """The tensor that a choice gets as its input at `place`, which is called `name` in the
        graph: what its memory begins with. None where any numbers will do."""
        ...

    def truth(self, precision: str) -> Truth:
        """What must come of it. Raises NoReference, and whatever torch raises."""
        ...

    def result(self, operands: Sequence[Tensor]) -> Tensor:
        """What a choice has computed, from what it has left in its operands, the output last."""
        ...

    @property
    def note(self) -> str:
        """What a reader of times must know of the numbers, in a line; empty: nothing."""
        ...

    def forget(self) -> None:
        """Let go of the tensors; they are made again where they are needed."""
        ...


def _by_dynamo(function: Callable[..., Any]) -> Callable[..., Any]:
    compiled: Callable[..., Any] = torch.compile(function, dynamic=False)
    return compiled


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """Call what `compiled` gives on `arguments`, with `freezing` set as it says, and Inductor's
    other `settings`."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    freezing: bool
    settings: Mapping[str, object] = field(default_factory=dict)
    numbers: KnownNumbers | None = None
    compiler: Callable[[Callable[..., Any]], Callable[..., Any]] = _by_dynamo

    def compiled(self) -> Callable[..., Any]:
        """Compiles at its first call, on the arguments; then runs."""
        return self.compiler(self.function)
