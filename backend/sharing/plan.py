"""What an import of pins would do, one step a pin; nothing is changed here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from backend.errors import PinRefused
from backend.pins.store import PinStore
from backend.sharing.machine import Machine, differences, refused
from backend.sharing.share import SharedPin

Action = Literal["pin", "wait", "replace", "same", "left out", "refused"]
"""`wait`: it is pinned, and counts once its choice was tuned here."""


@dataclass(frozen=True, slots=True)
class Step:
    """What an import does with one pin. `numbers` of the cache file are raised, and so many
    compiled `graphs` are moved aside."""

    pin: SharedPin
    action: Action
    detail: str
    numbers: int = 0
    graphs: int = 0

    @property
    def changes(self) -> bool:
        return self.action in ("pin", "wait", "replace")


def steps_of(pins: Sequence[SharedPin], here: Machine, store: PinStore) -> list[Step]:
    """A step for each of `pins`, in their order. Raises CacheUnreadable.

    Of two pins of one (op, inputs) that of this machine's own system is taken, else the latest.
    """
    ranked = sorted(pins, key=lambda pin: (pin.machine.system_hash == here.system_hash, pin.when))
    chosen = {(pin.op, pin.inputs): pin for pin in ranked}
    steps = []
    for pin in pins:
        if refused(differences(pin.machine, here)):
            steps.append(Step(pin, "refused", "it comes from another kind of machine"))
        elif chosen[pin.op, pin.inputs] is not pin:
            steps.append(Step(pin, "left out", "the file has another pin of the same inputs"))
        else:
            steps.append(_step(pin, here, store))
    return steps


def _step(pin: SharedPin, here: Machine, store: PinStore) -> Step:
    try:
        plan = store.plan(here.system_hash, pin.key, pin.hash, pin.config, wait=True)
    except PinRefused as error:
        return Step(pin, "refused", str(error))
    old, graphs = plan.replaces, len(plan.graphs)
    if old is not None and old.hash == pin.hash:
        return Step(pin, "same", "is pinned here already")
    detail = f"{plan.numbers} number(s) raised out of reach, {graphs} compiled graph(s) move aside"
    if plan.waits:
        detail = "its choice was not tuned here; it counts once it was"
    if old is None:
        return Step(pin, "wait" if plan.waits else "pin", detail, plan.numbers, graphs)
    detail = f"instead of {old.label or old.hash}, pinned by {old.who}; {detail}"
    return Step(pin, "replace", detail, plan.numbers, graphs)
