"""The choice that later programs take, of a tuning and on several devices of one box: its time, its
lead, and whether another one would compute the same bits. Pure functions.

It is the pinned choice while its pin holds, else the one with the smallest time in the cache, which
a later tuning may have written, or in the tuning itself. Nothing is taken across devices.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Literal

from backend.counted import device_ranges
from backend.model.choice import Choice, Output
from backend.model.inductor_kernel import is_kernel
from backend.model.tuning import PinState, Tuning
from rocm_tui.session import stats
from rocm_tui.session.model import Row

_HOLDS: frozenset[PinState] = frozenset(("active", "unproven", "drifted"))
"""The states of a pin whose choice is taken, or is taken again as soon as it is applied."""


def pinned_choice(row: Row) -> tuple[int, Choice] | None:
    """Return the choice that the row is pinned to and its place, counted from 1; None if it was not
    offered or is unknown."""
    if row.pin is None:
        return None
    pinned = row.pin.pin.hashes
    for place, choice in enumerate(row.tuning.choices, start=1):
        if choice.hash in pinned and choice.offered:
            return place, choice
    return None


def in_use(row: Row) -> Choice | None:
    """Return the pinned choice, if its pin holds and it has not failed, else what the cache gives
    now, else the fastest, of a kernel what its file names; None while its pin is being read."""
    if row.awaits_pin:
        return None
    if row.pin is not None and row.pin.state in _HOLDS:
        pinned = pinned_choice(row)
        if pinned is not None and not pinned[1].failed:
            return pinned[1]
    if row.taken is not None:
        current = (c for c in row.tuning.choices if c.hash == row.taken and not c.failed)
        return next(current, taken(row.tuning))
    return taken(row.tuning)


def label(row: Row, choice: Choice) -> str:
    """Return what a row calls the choice in use: its name, which counts the choices of one process;
    without it where other tunings of the id count otherwise."""
    return replace(choice, name=None).label if row.renamed and choice.hash else choice.label


def taken(tuning: Tuning) -> Choice | None:
    """What a program takes that knows of no pin: the winner, of a kernel what its file names, of
    an entry of another tuner's table what that has. None for several solutions without times, as
    in a perf-db of MIOpen: the entry does not say which one counts."""
    if tuning.entry is not None:
        certain = len(tuning.choices) == 1 or any(c.ms is not None for c in tuning.choices)
        return tuning.choices[0] if certain else None
    if is_kernel(tuning.op) and tuning.selected is not None:
        named = (c for c in tuning.choices if c.hash == tuning.selected and not c.failed)
        return next(named, stats.winner(tuning))
    return stats.winner(tuning)


def time_ms(row: Row) -> float | None:
    """Milliseconds of one call of what is in use."""
    return stats.time_ms(row.tuning, in_use(row))


def gain(row: Row) -> float | None:
    """ATen's time over that of what is in use."""
    return None if row.awaits_pin else stats.gain(row.tuning, in_use(row))


def lead(row: Row) -> float | None:
    """How far the nearest rival lies behind what is in use; negative where one is faster."""
    return None if row.awaits_pin else stats.lead(row.tuning, in_use(row))


def device_name(row: Row) -> str:
    """`cuda:1`, of several devices `cuda:0-3`; empty where nothing shows the index."""
    rows = row.devices or (row,)
    if rows[0].tuning.device_index is None:  # most of them
        return ""
    indices = [r.tuning.device_index for r in rows if r.tuning.device_index is not None]
    return f"{row.tuning.device or 'cuda'}:{device_ranges(indices)}"


def kernel_identity(choice: Choice) -> Hashable:
    """What a choice is called on every device of a kind: its hash on device 0; where that is not
    known, its template and configuration, of a choice without these its own hash or name."""
    if choice.identity or choice.hash is None:
        return choice.identity or choice.name
    template = choice.hash.partition("-")[0]
    return (template, choice.description) if choice.description else choice.hash


def devices_by_kernel(row: Row) -> list[tuple[Choice | None, list[Row]]]:
    """The choices in use, each with the devices that use this kernel; None where none is known."""
    kernels: dict[Hashable, tuple[Choice | None, list[Row]]] = {}
    for device in row.devices:
        choice = in_use(device)
        name = None if choice is None else kernel_identity(choice)
        kernels.setdefault(name, (choice, []))[1].append(device)
    return list(kernels.values())


def used_by_all(row: Row) -> str:
    """What the choice in use is called on all devices of a row, else `differs (2)`. The number in a
    name is another one in each process, so a name counts only where all devices have it."""
    used = [in_use(device) for device in row.devices]
    first, kernels = used[0], len(devices_by_kernel(row))
    if kernels > 1 or first is None:
        return f"differs ({kernels})" if kernels > 1 else ""
    names = {choice.name for choice in used if choice}
    return first.label if len(names) == 1 or not first.hash else replace(first, name=None).label


Bits = Literal["same", "other", "unknown"]


@dataclass(frozen=True, slots=True)
class OutputChange:
    """What later compiles would compute with another choice: `after`, as far as that was measured,
    and the choice in use `now`."""

    bits: Bits
    now: Choice | None
    after: Output | None = None


def output_change(row: Row, choice: Choice) -> OutputChange:
    """Return what would change. Only choices that are steady in every run prove equal bits."""
    now = in_use(row)
    ours, theirs = stats.measured(row.tuning, choice), stats.measured(row.tuning, now)
    after, before = ours.output if ours else None, theirs.output if theirs else None
    if now is not None and now.hash == choice.hash and choice.hash is not None:
        unsteady = after is not None and not after.steady
        return OutputChange("other" if unsteady else "same", now, after)
    if before is None or after is None:
        return OutputChange("unknown", now, after)
    same = before.group == after.group and before.steady and after.steady
    return OutputChange("same" if same else "other", now, after)
