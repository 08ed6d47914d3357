"""What the queue of a fleet wants done."""

from __future__ import annotations

from dataclasses import dataclass

from rocm_tui.fleet.messages import Done, ToAgent


@dataclass(frozen=True, slots=True)
class Send:
    agent: str
    message: ToAgent


@dataclass(frozen=True, slots=True)
class Accept:
    """A result counts; `settled`: it was the last that the unit needed."""

    done: Done
    settled: bool


@dataclass(frozen=True, slots=True)
class Settled:
    """A unit whose results are fewer than were asked for needs no more."""

    unit: str


@dataclass(frozen=True, slots=True)
class Fail:
    unit: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Single:
    """There is one choice of it: nothing to tune, and no failure."""

    unit: str
    reason: str


@dataclass(frozen=True, slots=True)
class Trouble:
    """A device failed at a unit, which is tried on another one."""

    unit: str
    agent: str
    reason: str


@dataclass(frozen=True, slots=True)
class Quarantine:
    agent: str
    reason: str


@dataclass(frozen=True, slots=True)
class Ignore:
    """What came needs nobody: the unit is settled, or has a result of this device."""

    done: Done


@dataclass(frozen=True, slots=True)
class Silent:
    agent: str


Step = Send | Accept | Settled | Fail | Single | Trouble | Quarantine | Ignore | Silent
