"""Why a choice of ours cannot be used, and whether that is the fault of its kernel.

Only a kernel's own fault is kept beside the times of its rivals. Whatever else may be gone in the
next process, which tries again.

Inductor sets a choice aside for a RuntimeError alone:

ChoiceError             one choice cannot be used
├── OwnFault                its kernel's own fault: it would fail again
│   ├── CompileFailed           the compiler said no
│   ├── WrongResult             it computes other numbers than ATen
│   ├── EntryFailed             its entry returned an error code
│   └── Crashed                 it ended one fresh process after the other, or their device
├── NotCompiled             there is no compiler, or it was stopped
├── TimedOut                it did not end in time
├── OutOfMemory             there was no memory for its tensors
├── NotStarted              the process that benchmarks does not come up
└── ProcessLost             it is gone
    ├── Killed                  by somebody else
    └── DeviceLost              its device does nothing more in it
        └── NoDevice                or did nothing from the beginning
ErrorFromChoice         any of them, with the choice and its inputs
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import torch

from backend.errors import (
    CompileError,
    CompileTimeoutError,
    KernelError,
    ToolchainError,
    TritonCompileError,
    TritonError,
)
from backend.inductor.guard import describe


class ChoiceError(RuntimeError):
    """The root: `str()` is one line for a person."""


class OwnFault(ChoiceError):
    """It would fail wherever it is tried again."""


class CompileFailed(OwnFault):
    """The compiler that is here said no."""


class WrongResult(OwnFault):
    """It does not compute what ATen computes."""


class EntryFailed(OwnFault):
    """Its entry returned an error code, and the device still works."""


class Crashed(OwnFault):
    """It ended the process that ran nothing else, again and again."""


class NotCompiled(ChoiceError):
    """No compiler had its say."""


class TimedOut(ChoiceError):
    """It was stopped."""


class OutOfMemory(ChoiceError):
    """There was no memory for it."""


class ProcessLost(ChoiceError):
    """The process that ran it has ended; `own` if that may be its doing."""

    own = True


class Killed(ProcessLost):
    """Somebody else ended the process, or the system did where memory ran out."""

    own = False


class DeviceLost(ProcessLost):
    """After it, or what ran before it, the process can do nothing more on its device."""


class NoDevice(DeviceLost):
    """The process could do nothing on its device before it ran the choice."""

    own = False


class NotStarted(ChoiceError):
    """The process that benchmarks does not come up."""


class ErrorFromChoice(RuntimeError):
    """What happened, to which choice, on which inputs; `choice` is the caller."""

    intended = True
    """An answer to torch, no failure of the hooks (see `guard.beside`)."""

    def __init__(self, cause: object, choice: Any, inputs: str) -> None:
        config = f" ({choice.description})" if choice.description else ""
        super().__init__(f"{cause}; choice {choice.name}{config} on {inputs}")
        self.choice = choice


def is_own_fault(error: BaseException) -> bool:
    """Whether what a choice raised, or what that was raised for, is the fault of its kernel."""
    return any(isinstance(cause, OwnFault) for cause in _causes(error))


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    for _ in range(8):  # a chain may be a circle
        if cause is None:
            return
        yield cause
        cause = cause.__cause__


def choice_error(error: Exception) -> ChoiceError:
    """Whatever a choice raised while it was compiled or run."""
    if isinstance(error, ChoiceError):
        return error
    if _is_out_of_memory(error):
        return OutOfMemory(describe(error))
    if isinstance(error, KernelError):
        return EntryFailed(describe(error))
    if isinstance(error, (TritonCompileError, SyntaxError)):
        return CompileFailed(str(error))
    if isinstance(error, TritonError):  # it is not there, or the interpreter is on
        return NotCompiled(str(error))
    if isinstance(error, ToolchainError):
        return CompileFailed(str(error)) if _said_no(error) else NotCompiled(str(error))
    return ChoiceError(describe(error))


_NO_MEMORY = 2
"""hipErrorOutOfMemory, cudaErrorMemoryAllocation."""
_NO_MEMORY_TEXT = re.compile(r"out of memory|can't allocate memory", re.IGNORECASE)


def _is_out_of_memory(error: Exception) -> bool:
    if isinstance(error, KernelError):
        return error.code == _NO_MEMORY
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and bool(_NO_MEMORY_TEXT.search(str(error)))


_STARVED = re.compile(
    r"\bKilled\b|out of memory|cannot allocate memory|No space left|exit status -\d", re.IGNORECASE
)
"""What a compiler says, or is said of one, that was not let finish."""


def _said_no(error: ToolchainError) -> bool:
    if not isinstance(error, CompileError) or isinstance(error, CompileTimeoutError):
        return False
    return not any(_STARVED.search(line) for line in error.errors)
