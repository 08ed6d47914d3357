"""The ways to a fleet's devices: local processes, Ray. The driver does not know which."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rocm_tui.errors import RocmTuiError, UsageError
from rocm_tui.fleet.messages import ToAgent, ToDriver


class NoFleet(RocmTuiError):
    """A fleet cannot be had; one line says why and what to do."""


class NotAFleet(NoFleet, UsageError):
    """The words for a fleet are off."""


@dataclass(frozen=True, slots=True)
class Site:
    """What a fleet's agents are told of the run: its name, the cache dir below which those of this
    machine have theirs, and the Python that has torch; None is what each host finds itself. So many
    agents are on this machine."""

    root: Path | None
    run: str
    python: str | None = None
    here: int = 1


class Fleet(Protocol):
    """Agents, one a device. All are called from one thread, the driver's."""

    @property
    def agents(self) -> Collection[str]:
        """Those that are at work, or may yet say `Hello`: started, or to be brought back."""

    def offer(self, agent: str, message: ToAgent) -> None:
        """Send an offer, a cancellation or a stop to an agent that said `Hello`. Never blocks for
        long, never raises for an agent that is gone: that comes as `Gone`."""

    def results(self, timeout: float) -> Sequence[ToDriver]:
        """What the agents said since the last call, in order for each; waits up to `timeout`
        seconds for the first of it."""

    def stop(self) -> None:
        """End all agents and what they started, wherever it runs; may be called twice."""
