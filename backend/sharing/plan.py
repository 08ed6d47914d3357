"""The effect of importing pins here, and how far a pin of another machine applies at all.

A choice hash is a digest of generated source, so it means the same kernel everywhere; machines
differ in whether it occurs, and whether the times still hold. So only another kind of device is
refused, because no choice for one is ever good for the other. A Triton choice has another hash on
each device of a box: an export has them all, so that a pin from one device holds on all of another
host's.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from backend.cache.best_config import KernelFiles
from backend.counted import counted
from backend.errors import PinRefused
from backend.model.inductor_kernel import TRITON, is_inductors
from backend.model.problem import TuningKey
from backend.model.tuning import Pin
from backend.pins.file import PinGroup
from backend.pins.store import PinStore
from backend.sharing.share import Machine, SharedPin
from backend.tables.model import is_table_op

_RELEASE = re.compile(r"(\d+)\.(\d+)(?:\.\d+)?(?:\.post\d+)?(?:[+-].*)?$")


@dataclass(frozen=True, slots=True)
class MachineDifference:
    """A fact that differs between there (where the pins come from) and here, and its consequence.
    `there` and `here` are None if unknown."""

    field: str
    there: str | None
    here: str | None
    refuses: bool
    why: str

    @property
    def known(self) -> bool:
        return self.there is not None and self.here is not None

    @property
    def sentence(self) -> str:
        there, here = self.there or "unknown", self.here or "unknown"
        return f"{self.field}: {there} there, {here} here; {self.why}"


@dataclass(frozen=True, slots=True)
class MachineRule:
    """The consequence of a difference in one field: in the `part` of its text that matters. Of two
    rules for a field the first counts."""

    field: str
    part: Callable[[str], str]
    refuses: bool
    why: str


def target(arch: str) -> str:
    """Return `gfx942` of `gfx942:sramecc+:xnack-`."""
    return arch.partition(":")[0]


def minor(version: str) -> str:
    """Return `2.13` of `2.13.0+rocm7.1`; the whole text of a version that is not a release."""
    release = _RELEASE.match(version)
    return f"{release[1]}.{release[2]}" if release else version


_TIMES = "the times were measured on another device: measure again before you rely on them"
_HASHES = "a choice's hash changes with the generated source, so the pin may never apply here"
_COMPILER = "another compiler makes other machine code of the same choice: measure again"

RULES = (
    MachineRule("arch", target, True, "kernels of one arch say nothing about another"),
    MachineRule("arch", str, False, "another setting of the same arch: measure again"),
    MachineRule("device", str, False, _TIMES),
    MachineRule("compute_units", str, False, f"{_TIMES}; a Triton choice may have another hash"),
    MachineRule("torch", minor, False, _HASHES),
    MachineRule("triton", str, False, _COMPILER),
    MachineRule("hip", minor, False, _COMPILER),
    MachineRule("cuda", minor, False, _COMPILER),
)

_UNKNOWN = "it cannot be checked"


def differences(there: Machine, here: Machine) -> list[MachineDifference]:
    """Return the differences, in the order of the rules; empty if the machines are equivalent.

    A field known on only one side is reported; one known on neither, or not applicable, is not.
    """
    by_field: dict[str, MachineDifference] = {}
    runtimes = _runtime(there), _runtime(here)
    if None not in runtimes and runtimes[0] != runtimes[1]:
        why = "torch was built for another kind of GPU, and no choice is the same"
        return [MachineDifference("runtime", *runtimes, refuses=True, why=why)]
    for rule in RULES:
        theirs, ours = _fact(there, rule.field), _fact(here, rule.field)
        if theirs is None or ours is None:
            same, refuses, why = theirs is ours, False, _UNKNOWN
        else:
            same, refuses, why = rule.part(theirs) == rule.part(ours), rule.refuses, rule.why
        if not same:
            difference = MachineDifference(rule.field, theirs, ours, refuses, why)
            by_field.setdefault(rule.field, difference)
    if not by_field and there.system_hash != here.system_hash:
        why = "a part without a version number differs; the pin may never apply here"
        by_field[""] = MachineDifference(
            "system_hash", there.system_hash, here.system_hash, False, why
        )
    return list(by_field.values())


def refused(differing: Iterable[MachineDifference]) -> bool:
    return any(difference.refuses for difference in differing)


def _runtime(machine: Machine) -> str | None:
    """Return `HIP`, `CUDA`, or None if no version of either is known."""
    return "HIP" if machine.hip else "CUDA" if machine.cuda else None


def _fact(machine: Machine, name: str) -> str | None:
    value = getattr(machine, name)
    return None if value is None else str(value)


Action = Literal["pin", "wait", "replace", "same", "left out", "refused"]
"""`wait`: it is pinned, and applies once its choice is tuned here."""


@dataclass(frozen=True, slots=True)
class ImportStep:
    """The effect of an import on one pin. `numbers` of the cache file are raised, and `graphs`
    compiled graphs are moved aside; a tuned table's entry goes into `table`."""

    pin: SharedPin
    action: Action
    detail: str
    numbers: int = 0
    graphs: int = 0
    table: Path | None = None

    @property
    def changes(self) -> bool:
        return self.action in ("pin", "wait", "replace")


def steps_of(
    pins: Sequence[SharedPin], here: Machine, store: PinStore, tables: Sequence[Path] = ()
) -> list[ImportStep]:
    """Return a step for each of `pins`, in their order; entries go into the first of `tables` that
    has the entry, for the same device, and no other of `pins` there. Raises CacheUnreadable.

    Of two pins of one (op, inputs), the one of this machine's own system is taken, else the latest.
    """
    ranked = sorted(pins, key=lambda pin: (pin.machine.system_hash == here.system_hash, pin.when))
    chosen = {(pin.op, pin.inputs): pin for pin in ranked}
    files = KernelFiles(store.layout.root)
    steps: list[ImportStep] = []
    used: defaultdict[TuningKey, set[Path]] = defaultdict(set)
    for pin in pins:
        if is_table_op(pin.op):
            step = _row_step(pin, store, tables, used[pin.key])
            if step.table is not None:
                used[pin.key].add(step.table)
            steps.append(step)
        elif refused(differences(pin.machine, here)):
            steps.append(ImportStep(pin, "refused", "it comes from another kind of machine"))
        elif chosen[pin.op, pin.inputs] is not pin:
            steps.append(ImportStep(pin, "left out", _SECOND))
        else:
            steps.append(_step(pin, here, store, files))
    return steps


def system_for(pin: SharedPin, here: Machine) -> str | None:
    """Return the cache file that a pin goes to: this machine's. The name of a Triton kernel's
    folder derives from source, configs, Triton and device: it is the same, or the pin is
    useless."""
    return pin.machine.system_hash if pin.op == TRITON else here.system_hash


def take_in(
    store: PinStore,
    pin: SharedPin,
    system_hash: str | None,
    group: PinGroup,
    table: Path | None = None,
) -> None:
    """Pin here what was pinned there, noting its origin; undone as `group`. Raises StoreErrors."""
    store.pin(
        system_hash,
        pin.key,
        pin.hash,
        label=pin.label,
        note=_note(pin),
        config=pin.config,
        wait=True,
        table=table,
        group=group,
        variants=pin.variants,
    )


def _note(pin: SharedPin) -> str:
    """Return the origin of a pin and its note there."""
    day = time.strftime("%Y-%m-%d", time.localtime(pin.when))
    origin = f"imported from {pin.machine.host or 'another host'}, pinned {day} by {pin.who or '?'}"
    return f"{pin.note} ({origin})" if pin.note else origin


_OTHER_LIST = (
    "; there it was chosen from another list of configs, and stock PyTorch before 2.13 tunes over "
    "one that its own list lacks"
)


def _row_step(
    pin: SharedPin, store: PinStore, tables: Sequence[Path], used: Collection[Path]
) -> ImportStep:
    """Return the step for an entry, whose key has its device, so other devices' tables lack it.

    The tables `used` have another pin of this key.
    """
    why = "it is an entry of another tuner's table; name that of this machine with --table"
    for table in tables:
        if table in used:
            continue
        try:
            plan = store.plan(None, pin.key, pin.hash, pin.config, table=table)
        except PinRefused as error:
            why = str(error)
            continue
        old = plan.replaces
        if old is not None and old.hash == pin.hash:
            return ImportStep(pin, "same", f"is pinned in {table} already", table=table)
        detail = f"{counted(plan.numbers, 'row')} of {table} written"
        return _instead(ImportStep(pin, "pin", detail, plan.numbers, table=table), old)
    if any(table in used for table in tables):
        return ImportStep(pin, "left out", _SECOND)
    return ImportStep(pin, "refused", why)


_SECOND = "the file has another pin of the same inputs"


def _instead(step: ImportStep, old: Pin | None) -> ImportStep:
    """Return the step, as one that replaces the pin `old` if there is one."""
    if old is None:
        return step
    detail = f"instead of {old.label or old.hash}, pinned by {old.who}; {step.detail}"
    return replace(step, action="replace", detail=detail)


def _step(pin: SharedPin, here: Machine, store: PinStore, files: KernelFiles) -> ImportStep:
    try:
        plan = store.plan(
            system_for(pin, here),
            pin.key,
            pin.hash,
            pin.config,
            wait=True,
            variants=pin.variants,
        )
    except PinRefused as error:
        return ImportStep(pin, "refused", str(error))
    old, graphs = plan.replaces, len(plan.graphs)
    if old is not None and old.hashes & pin.hashes:
        return ImportStep(pin, "same", "is pinned here already")
    numbers = f"{counted(plan.numbers, 'number')} raised out of reach"
    if is_inductors(pin.op):
        numbers = f"{counted(plan.numbers, 'best config')} written"
    aside = counted(graphs, "compiled graph moves", "compiled graphs move")
    detail = f"{numbers}, {aside} aside"
    if pin.lists and not set(files.lists(pin.op, pin.inputs)) <= set(pin.lists):
        detail += _OTHER_LIST
    if plan.waits:
        detail = "its choice was not tuned here; it applies once tuned"
    action: Action = "wait" if plan.waits else "pin"
    return _instead(ImportStep(pin, action, detail, plan.numbers, graphs), old)
