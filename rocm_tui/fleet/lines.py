"""The lines of a run's record: what happened, one JSON object each, typed by the codec.

A line is `{"is": NAME, "at": Unix seconds, ...members}`. Later versions may say more.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from backend.wire.codec import WireError, kinds_by_name, line_of_kind, loads, read_kind
from backend.wire.jobs import Progress
from rocm_tui.fleet.messages import Done as Said
from rocm_tui.fleet.messages import Facts, Unit


@dataclass(frozen=True, slots=True)
class Begun:
    """The first line. `process` names the driver (`backend.processes.tree`)."""

    run: str
    command: tuple[str, ...] = ()
    who: str = ""
    pid: int = 0
    process: str = ""
    fleet: tuple[str, ...] = ()
    repeat: int = 1
    canary: str | None = None
    units: tuple[Unit, ...] = ()


@dataclass(frozen=True, slots=True)
class Resumed:
    """Another driver goes on."""

    who: str = ""
    pid: int = 0
    process: str = ""
    command: tuple[str, ...] = ()
    fleet: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which systems and class of devices count: results of others do not get into the file."""

    system_hash: str
    device_class: str


@dataclass(frozen=True, slots=True)
class Came:
    """An agent said hello. `refused` says why it gets no work, else nothing."""

    agent: str
    facts: Facts
    refused: str = ""
    ahead: bool = False
    """It compiles ahead, and tunes nothing."""


@dataclass(frozen=True, slots=True)
class Lost:
    agent: str
    reason: str
    returns: bool = False


@dataclass(frozen=True, slots=True)
class Lent:
    agent: str
    lease: str
    unit: str


@dataclass(frozen=True, slots=True)
class Ended:
    """A lease was cancelled."""

    agent: str
    lease: str


@dataclass(frozen=True, slots=True)
class Pulse:
    """What an agent's heartbeats say, now and then."""

    agent: str
    unit: str | None = None
    progress: Progress = field(default_factory=Progress)
    clock: float | None = None
    power: float | None = None
    temperature: float | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """A result that counts, all of it."""

    done: Said


@dataclass(frozen=True, slots=True)
class Tried:
    """A device failed at a unit, which goes to another one."""

    unit: str
    agent: str
    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    unit: str
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Single:
    """There is one choice of it, so nothing to tune."""

    unit: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Cancelled:
    unit: str


@dataclass(frozen=True, slots=True)
class Merged:
    """The times that `agent` measured are in the journal of the cache file. Of a unit that several
    devices tuned, `holds` of them found the same choice the fastest.

    Of a problem in `heats`, `told` times are those of its heats, on whatever device those were;
    `raised` of them were raised (`splitting.whole`), so they are lower bounds of no card."""

    unit: str
    agent: str
    system_hash: str = ""
    winner: str = ""
    holds: int = 1
    of: int = 1
    heats: int = 0
    told: int = 0
    raised: int = 0


@dataclass(frozen=True, slots=True)
class Unmerged:
    """Why the times are not in the cache: they stay in this record."""

    unit: str
    reason: str


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Problems that are not this run's: its devices are others."""

    units: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Compiled:
    """What `agent` has compiled ahead so far: choices, those that were there, those that failed."""

    agent: str
    compiled: int = 0
    found: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class Quarantined:
    agent: str
    reason: str


@dataclass(frozen=True, slots=True)
class Slow:
    """At the canary it took so many times the median of all devices."""

    agent: str
    ratio: float


@dataclass(frozen=True, slots=True)
class Over:
    """A driver ended; `left` units are neither merged nor failed nor cancelled."""

    reason: str = ""
    left: int = 0


Line = (
    Begun | Resumed | Chosen | Came | Lost | Lent | Ended | Pulse | Done | Tried | Failed
    | Single | Cancelled | Merged | Unmerged | LeftOut | Compiled | Quarantined | Slow | Over
)  # fmt: skip

_KINDS = kinds_by_name(
    Begun, Resumed, Chosen, Came, Lost, Lent, Ended, Pulse, Done, Tried, Failed, Single, Cancelled,
    Merged, Unmerged, LeftOut, Compiled, Quarantined, Slow, Over,
)  # fmt: skip


def text_of(line: Line, at: float) -> bytes:
    """With its end."""
    return line_of_kind(line, at=round(at, 3))


def line_in(text: bytes) -> tuple[float, Line] | None:
    """None for what was torn, and for what a later version says."""
    try:
        words = loads(text)
        line: Line = read_kind(words, _KINDS)
    except WireError:
        return None
    at = words.get("at")
    return float(at) if isinstance(at, (int, float)) else 0.0, line
