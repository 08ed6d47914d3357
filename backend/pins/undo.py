"""Undo: what a person pinned or took back last, step by step, as the history in `pins.json` tells.

A step back is a pin or an unpin like any other; its history entry says what it undid, so that the
next step goes on behind that. Nothing is undone twice, and an undo is not undone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from backend.disk.layout import Layout
from backend.errors import PinRefused
from backend.pins.file import HistoryEntry, PinFile, Record, read_pin_file
from backend.pins.held import default_who
from backend.pins.state import PinReport
from backend.pins.store import PinStore

_DONE = ("pin", "repin", "unpin")


@dataclass(frozen=True, slots=True)
class UndoStep:
    """`entry` is what will be undone, in the cache file `system_hash`. `again` is the choice that
    is then pinned again, as it was pinned before; None where the pin is just taken back."""

    entry: HistoryEntry
    system_hash: str
    again: HistoryEntry | None = None


def next_undo(layout: Layout, who: str | None = None) -> UndoStep | None:
    """The latest pin or unpin of this person (of `user@host` the user) that is still in force and
    was not undone; None if there is none. Raises StoreError."""
    return _next(read_pin_file(layout.pins), who or default_who())


def undo(layout: Layout, step: UndoStep, who: str | None = None) -> PinReport:
    """Take one step back. Raises StoreErrors; PinRefused, too, where others have changed the pins
    since `step` was found."""
    store, entry, again = PinStore(layout), step.entry, step.again
    if next_undo(layout, who) != step:
        raise PinRefused("the pins were changed since; nothing was undone")
    if again is None:
        return store.unpin(entry.key, step.system_hash, who, undoes=entry.when)
    return store.pin(
        step.system_hash,
        again.key,
        again.hash,
        label=again.label,
        note=again.note,
        who=who,
        config=again.config,
        wait=True,
        undoes=entry.when,
    )


def _next(file: PinFile, who: str) -> UndoStep | None:
    undone = {entry.undoes for entry in file.history if entry.undoes}
    for at in range(len(file.history) - 1, -1, -1):
        entry = file.history[at]
        ours = _user(entry.who) == _user(who)
        if ours and entry.what in _DONE and not entry.undoes and entry.when not in undone:
            step = _step(file, entry, file.history[:at])
            if step is not None:
                return step
    return None


def _step(file: PinFile, entry: HistoryEntry, before: Sequence[HistoryEntry]) -> UndoStep | None:
    """What undoing `entry` takes; None where it is not in force any more."""
    held = _of(file.pins, entry)
    if entry.what == "unpin":
        released = _of(file.released, entry)
        system = entry.system_hash or (released.system_hash if released else "")
        if held is not None or not system:
            return None
        made = next((e for e in reversed(before) if _pinned(e, entry)), entry)
        return UndoStep(entry, system, made if made.hash == entry.hash else entry)
    if held is None or held.hash != entry.hash:
        return None
    if entry.what == "pin":
        return UndoStep(entry, held.system_hash)
    former = next((other for other in reversed(before) if _pinned(other, entry)), None)
    return UndoStep(entry, held.system_hash, former)


def _pinned(other: HistoryEntry, entry: HistoryEntry) -> bool:
    """Whether `other` made a pin in the place of which `entry` tells."""
    same = (other.op, other.inputs) == (entry.op, entry.inputs)
    file = "" in (other.system_hash, entry.system_hash) or other.system_hash == entry.system_hash
    return same and file and other.what in ("pin", "repin")


def _of(records: Sequence[Record], entry: HistoryEntry) -> Record | None:
    """The record in the place of which an entry tells; older entries do not tell the file."""
    for record in records:
        same = (record.op, record.inputs) == (entry.op, entry.inputs)
        if same and entry.system_hash in ("", record.system_hash):
            return record
    return None


def _user(who: str) -> str:
    return who.partition("@")[0]
