"""A person's decision for one choice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from backend.model.problem import TuningKey
from backend.model.session import LATEST

PinState = Literal["active", "unproven", "drifted", "orphaned", "shadowed"]
"""What was seen of a pin: code calls it; a compiled graph may hide it; see docs/pins.md."""


def _is_moment(seconds: float) -> str:
    return "" if abs(seconds) <= LATEST else "is no time"


@dataclass(frozen=True, slots=True)
class Proof:
    """What was seen in generated code of the choice that a pin asks for: `ok` if it is called.

    `by` is what compiled it: `verify`, the op alone in a worker, or `program`, a person's own.
    `torch` is its version, empty where that was not told. `numbers` and `drifts` tell what the pin
    stood on: a digest of the tuning's times, and how often it had drifted. `when` is Unix time.
    """

    when: Annotated[int | float, _is_moment]
    ok: bool
    by: str
    torch: str = ""
    numbers: str = ""
    drifts: int = 0


@dataclass(frozen=True, slots=True)
class Pin:
    """A person's decision that an (op, inputs) shall use one choice, kept until unpinned.

    `timings` are the numbers of the tuning as they were before the pin, by precision and choice
    hash; a failed choice is `inf`. `drifts` counts how often it had to be applied again. `config`
    is that of the choice, where it is known. `variants` are the hashes of the same kernel by device
    index, as text; empty where `hash` is that of every device.
    """

    op: str
    inputs: str
    precision: str
    hash: str
    label: str
    system_hash: str
    timings: Mapping[str, Mapping[str, float]]
    device: str | None = None
    who: str = ""
    when: float = 0.0
    note: str = ""
    drifts: int = 0
    config: Mapping[str, str] = field(default_factory=dict)
    variants: Mapping[str, str] = field(default_factory=dict)

    @property
    def hashes(self) -> frozenset[str]:
        """The hashes of the pinned kernel on all devices."""
        return frozenset((self.hash, *self.variants.values()))

    @property
    def key(self) -> TuningKey:
        return TuningKey(self.op, self.inputs, self.precision)

    @property
    def id(self) -> str:
        """The id of the tuning that it pins."""
        return self.key.id
