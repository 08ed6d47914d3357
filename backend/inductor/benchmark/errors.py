"""Why a choice of ours cannot be used. Inductor sets a choice aside for a RuntimeError alone.

ChoiceError             one choice cannot be used
├── CompileFailed       the compiler said no, or there is none
├── WrongResult         it computes other numbers than ATen
├── Crashed             the process that ran it is gone
└── TimedOut            it did not end in time
ErrorFromChoice         any of them, with the choice and its inputs
NoValidChoicesError     a tuning of which every choice failed
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from backend.inductor.torch.tuning import StockNoValidChoicesError


class ChoiceError(RuntimeError):
    """The root: `str()` is one line for a person."""


class CompileFailed(ChoiceError):
    """It does not compile here."""


class WrongResult(ChoiceError):
    """It does not compute what ATen computes."""


class Crashed(ChoiceError):
    """It killed the process that benchmarked it."""


class TimedOut(ChoiceError):
    """It was stopped."""


class ErrorFromChoice(RuntimeError):
    """What happened, to which choice, on which inputs; `choice` is the caller."""

    intended = True
    """An answer to torch, no failure of the hooks (see `guard.beside`)."""

    def __init__(self, cause: object, choice: Any, inputs: str) -> None:
        config = f" ({choice.description})" if choice.description else ""
        super().__init__(f"{cause}; choice {choice.name}{config} on {inputs}")
        self.choice = choice


class NoValidChoicesError(StockNoValidChoicesError):  # type: ignore[misc]
    """No choice is left: says of which op, on which inputs, and what each one died of."""

    intended = True

    def __init__(self, op: str, inputs: str, failures: Iterable[tuple[str, str]]) -> None:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in failures)
        super().__init__(
            f"no choice for {op}({inputs}) can be used: {reasons or 'none was offered'}. "
            "Add ATEN to TORCHINDUCTOR_MAX_AUTOTUNE_GEMM_BACKENDS to have one that always works"
        )
