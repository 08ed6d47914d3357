"""Why a choice of ours cannot be used, and whether that is the fault of its kernel.

Only a kernel's own fault is stored beside the times of its rivals. Other errors may not recur in
the next process, which tries again.

Inductor skips a choice only for a RuntimeError, which all of these are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, CancelledError, TimeoutError
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
    """The choice would fail wherever it is tried again."""


class CompileFailed(OwnFault):
    """The installed compiler rejected it."""


class WrongResult(OwnFault):
    """It computes other results than ATen."""


class EntryFailed(OwnFault):
    """Its entry returned an error code, and the device still works."""


class Crashed(OwnFault):
    """It repeatedly ended a process that ran nothing else."""


class NotCompiled(ChoiceError):
    """No compiler finished."""


class TimedOut(ChoiceError):
    """It exceeded its time."""


class OutOfMemory(ChoiceError):
    """There was no memory for it."""


class ProcessLost(ChoiceError):
    """The process that ran it has ended; `own` if the choice may be the cause."""

    own = True


class Killed(ProcessLost):
    """Somebody else ended the process, or the system did because memory ran out."""

    own = False


class DeviceLost(ProcessLost):
    """After this choice, or an earlier one, the process can do nothing more on its device."""


class NoDevice(DeviceLost):
    """The process could do nothing on its device before it ran the choice."""

    own = False


class NotStarted(ChoiceError):
    """The benchmark process does not start."""


class ErrorFromChoice(RuntimeError):
    """The error, the choice and its inputs; `choice` is the caller."""

    intended = True
    """An answer to torch, not a failure of the hooks (see `guard.beside`)."""

    def __init__(self, cause: object, choice: Any, inputs: str) -> None:
        config = f" ({choice.description})" if choice.description else ""
        super().__init__(f"{cause}; choice {choice.name}{config} on {inputs}")
        self.choice = choice


def is_own_fault(error: BaseException) -> bool:
    """Return whether an error of a choice, or one of its causes, is the fault of its kernel."""
    return any(isinstance(cause, OwnFault) for cause in _causes(error))


def is_blameless(error: BaseException) -> bool:
    """Return whether the error that a compile of any choice raised, torch's too, is of the machine:
    an ended pool, a time limit, no memory or disk. Others count as the kernel's own."""
    if isinstance(error, ChoiceError):
        return not is_own_fault(error)
    # torch's pool of processes sends an exception as the text of its traceback.
    starved = (BrokenExecutor, CancelledError, OSError, MemoryError, TimeoutError)
    return isinstance(error, starved) or is_starved(error)


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    for _ in range(8):  # a chain may be a circle
        if cause is None:
            return
        yield cause
        cause = cause.__cause__


def choice_error(error: Exception) -> ChoiceError:
    """Convert any error that a choice raised while it was compiled or run."""
    if isinstance(error, ChoiceError):
        return error
    if _is_out_of_memory(error):
        return OutOfMemory(describe(error))
    if isinstance(error, KernelError):
        return EntryFailed(describe(error))
    if isinstance(error, CompileTimeoutError):
        return NotCompiled(str(error))
    if isinstance(error, (CompileError, TritonCompileError, SyntaxError)):
        return NotCompiled(str(error)) if is_starved(error) else CompileFailed(str(error))
    if isinstance(error, (ToolchainError, TritonError)):  # no compiler, or the interpreter is on
        return NotCompiled(str(error))
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
    r"\bKilled\b|(?-i:\bTerminated\b)|signal (9|15)\b|SIG(KILL|TERM)|exit status (-\d|137|143)"
    r"|out of memory|MemoryError|cannot allocate memory|memory allocation fail|bad_alloc"
    r"|No space left|quota exceeded|stale file handle|input/output error"
    r"|temporarily unavailable|start new thread|too many open files",
    re.IGNORECASE,
)
"""Messages of, or about, a compiler that could not finish. GCC writes "terminated" in small letters
about its own crashes; Triton's "out of resource" is about the kernel."""


def is_starved(error: BaseException) -> bool:
    """Return whether a compiler failed for want of memory, disk, processes or files, or was killed:
    another time it may succeed."""
    lines = error.errors if isinstance(error, CompileError) else (str(error),)
    return any(_STARVED.search(line) for line in lines)
