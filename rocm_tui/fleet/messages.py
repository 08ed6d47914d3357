"""What a driver and its agents say to each other: one JSON object a line, typed by the codec.

Driver to agent: `Offer`, `Compile`, `Cancel`, `Stop`. Agent to driver: `Hello`, `Beat`, `Done`,
`Compiled`; a transport says `Gone` for an agent that can say nothing any more. A line is
`{"is": NAME, ...members}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from backend.wire import codec
from backend.wire.jobs import CompileResult, Gpu, Progress, TuneJob, TuneResult


@dataclass(frozen=True, slots=True)
class Facts:
    """Of a device and what tunes on it; None and empty where nothing tells.

    `partition` is how an MI300 is divided (SPX/NPS1, ...), `bus` its PCI address. Clock in MHz and
    power in watts are medians of what was seen while it tuned. `compilers` are those of
    `Environment`; agents of one `store` find each other's compiled kernels.
    """

    host: str = ""
    device: str = ""
    arch: str | None = None
    compute_units: int | None = None
    partition: str | None = None
    bus: str | None = None
    system_hash: str = ""
    torch: str = ""
    triton: str | None = None
    hip: str | None = None
    cuda: str | None = None
    driver: str | None = None
    compilers: Mapping[str, str] = field(default_factory=dict)
    store: str = ""
    clock: float | None = None
    power: float | None = None


@dataclass(frozen=True, slots=True)
class Unit:
    """One problem with all its choices, to be tuned on one device in one worker.

    `id` is the same wherever the same problem is found. `known` are times in ms by choice hash that
    the driver's cache has of its key: they tell in which mode of torch it was tuned. `weight` is
    how long it may take, in seconds by estimate; `calls` how often programs call it (0: not told).

    A problem that is split (`splitting`) is several: its heats are `part_of` it and tune some of
    the choices; the final has the problem's id and comes `after` them, when it is known of what.
    """

    id: str
    title: str
    job: TuneJob
    known: Mapping[str, float] = field(default_factory=dict)
    weight: float = 0.0
    calls: float = 0.0
    after: tuple[str, ...] = ()
    part_of: str = ""


@dataclass(frozen=True, slots=True)
class Offer:
    """A lease: this unit is the agent's until it says `Done`, or says nothing for too long."""

    lease: str
    unit: Unit


@dataclass(frozen=True, slots=True)
class Compile:
    """A lease of another kind: compile what this unit's worker on such a GPU will want."""

    lease: str
    unit: Unit
    gpu: Gpu


@dataclass(frozen=True, slots=True)
class Cancel:
    """End this lease at once; it is over without a `Done`, and the agent goes on."""

    lease: str


@dataclass(frozen=True, slots=True)
class Stop:
    """End all work and the agent itself."""


@dataclass(frozen=True, slots=True)
class Hello:
    """An agent is ready. `protocol` differs where the two programs do not fit together."""

    agent: str
    facts: Facts
    protocol: int = 1


@dataclass(frozen=True, slots=True)
class Beat:
    """An agent lives: every `BEAT` seconds. `leases` are those that it has, the first at work."""

    agent: str
    leases: tuple[str, ...] = ()
    progress: Progress = field(default_factory=Progress)
    clock: float | None = None
    power: float | None = None
    temperature: float | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """What came of a lease: a result, or a `reason` why there is none. `seconds` is how long it
    took; `own` tells that the problem itself is at fault (it cannot be built), not the device, and
    `single` that there is one choice of it, so nothing to tune."""

    agent: str
    lease: str
    unit: str
    facts: Facts
    result: TuneResult | None = None
    reason: str = ""
    own: bool = False
    seconds: float = 0.0
    single: bool = False


@dataclass(frozen=True, slots=True)
class Compiled:
    """What came of a `Compile`: a result, or a `reason` why there is none."""

    agent: str
    lease: str
    unit: str
    result: CompileResult | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Gone:
    """An agent is lost, with all its leases; `reason` in one line. `returns`: the transport tries
    to bring it back, and another `Hello` may come."""

    agent: str
    reason: str
    returns: bool = False


BEAT = 2.0
"""Seconds between two heartbeats."""
PROTOCOL = 1

ToAgent = Offer | Compile | Cancel | Stop
ToDriver = Hello | Beat | Done | Compiled | Gone

_KINDS = codec.kinds_by_name(Offer, Compile, Cancel, Stop, Hello, Beat, Done, Compiled, Gone)


def line_of(message: ToAgent | ToDriver) -> bytes:
    """The message as a line, with its end."""
    return codec.line_of_kind(message)


def message_of(line: bytes | str) -> ToAgent | ToDriver:
    """Raises WireError for what is no message."""
    message: ToAgent | ToDriver = codec.read_line(line, _KINDS)
    return message
