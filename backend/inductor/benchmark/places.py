"""Where a choice runs: the device that it finds current, its stream, and whether it still works.

A kernel's launch goes to the device that is current in its thread, wherever its tensors lie.
"""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch

from backend.inductor.described import describe
from backend.inductor.torch import benchmarks

if TYPE_CHECKING:  # types only: importing it takes as long as torch
    from backend.inductor.torch.choices import Run


class Place(Protocol):
    """One device."""

    def current(self) -> AbstractContextManager[object]:
        """A block in which it is the current one."""

    def stream(self) -> int | None:
        """The address of the stream that work is queued on; None where there is none."""

    def wait(self) -> None:
        """Return when nothing is left to do. Raises what went wrong there."""

    def time(self, run: Run) -> float:
        """Milliseconds of one call, measured as Inductor does."""

    def trouble(self) -> str:
        """Why it does nothing in this process: it cannot be had, or after an error that a process
        cannot get over; empty where it works."""


class Cpu:
    """A call is over when it returns."""

    def current(self) -> AbstractContextManager[object]:
        return contextlib.nullcontext()

    def stream(self) -> int | None:
        return None

    def wait(self) -> None:
        return

    def time(self, run: Run) -> float:
        return benchmarks.time_cpu(run)

    def trouble(self) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One of `torch.cuda`, which ROCm's devices are called too."""

    device: torch.device

    def current(self) -> AbstractContextManager[object]:
        block: AbstractContextManager[object] = torch.cuda.device(self.device)
        return block

    def stream(self) -> int | None:
        return int(torch.cuda.current_stream(self.device).cuda_stream)

    def wait(self) -> None:
        torch.cuda.synchronize(self.device)

    def time(self, run: Run) -> float:
        return benchmarks.time_gpu(run)

    def trouble(self) -> str:
        try:
            self.wait()
        except Exception as error:  # torch asserts that it was built for one
            return describe(error)
        return ""


def place_of(device: torch.device | str) -> Place:
    found = torch.device(device)
    return Gpu(found) if found.type == "cuda" else Cpu()
