"""Undo: the last pins and unpins of a person, step by step, from the history in `pins.json`.

An undo step is a pin or an unpin like any other, or several: the changes of one command are undone
together or not at all. Each history entry names what it undid, so that the next step continues
before that. Nothing is undone twice, and an undo is not undone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from backend.disk.layout import Layout
from backend.errors import PinRefused
from backend.pins.file import (
    HistoryEntry,
    PinFile,
    PinGroup,
    PinRecord,
    PinRequest,
    default_who,
    find_record,
    read_pin_file,
)
from backend.pins.holders import PinHolders
from backend.pins.plan import Attribution, PinChange, pin_in_file, release_in_file
from backend.pins.state import PinReport
from backend.pins.store import PinStore

_DONE = ("pin", "repin", "unpin")


@dataclass(frozen=True, slots=True)
class UndoStep:
    """The `entry` to undo, in the cache file `system_hash`. `again` is the choice to pin again as
    before; None if the pin is only released."""

    entry: HistoryEntry
    system_hash: str
    again: HistoryEntry | None = None


@dataclass(frozen=True, slots=True)
class Undo:
    """One step, or all steps of a `group`, latest first. `left` more changes of the group are not
    in force any more, because others were pinned in their place, and stay as they are."""

    steps: tuple[UndoStep, ...]
    group: PinGroup | None = None
    left: int = 0

    @property
    def entry(self) -> HistoryEntry:
        """The latest entry to undo."""
        return self.steps[0].entry


def next_undo(layout: Layout, who: str | None = None) -> Undo | None:
    """Return the latest pins or unpins of this person (the user of `user@host`) that are in force
    and not undone; None if there are none. Raises StoreError."""
    return _next(read_pin_file(layout.pins), who or default_who())


def undo(layout: Layout, wanted: Undo, who: str | None = None) -> list[PinReport]:
    """Undo every step or none. Raises StoreErrors; PinRefused also if the pins have changed since
    `wanted` was determined."""
    who = who or default_who()

    def back(file: PinFile, holders: PinHolders) -> list[PinChange]:
        if _next(file, who) != wanted:
            raise PinRefused("the pins were changed since; nothing was undone")
        return [_back(file, holders, step, who, wanted.group) for step in wanted.steps]

    return PinStore(layout).change(back)


def _back(
    file: PinFile, holders: PinHolders, step: UndoStep, who: str, group: PinGroup | None
) -> PinChange:
    entry, again = step.entry, step.again
    by = Attribution(who, group, entry.when)
    if again is not None:
        request = PinRequest(
            step.system_hash,
            again.key,
            again.hash,
            again.label,
            again.note,
            again.config,
            wait=True,
        )
        return pin_in_file(file, holders, request, by)
    record = find_record(file.pins, step.system_hash, entry.key)
    if record is None:
        raise PinRefused("the pins were changed since; nothing was undone")
    return release_in_file(file, holders, record, by)


def _next(file: PinFile, who: str) -> Undo | None:
    undone = {(entry.undoes, entry.op, entry.inputs) for entry in file.history}
    ours = [
        at
        for at, entry in enumerate(file.history)
        if _user(entry.who) == _user(who)
        and entry.what in _DONE
        and not entry.undoes
        and (entry.when, entry.op, entry.inputs) not in undone
    ]
    past = _PinHistory(file)
    for at in reversed(ours):
        step = past.step(at)
        group = file.history[at].group
        if step is not None and group is None:
            return Undo((step,))
        if step is not None and group is not None:
            members = [other for other in ours if _same(file.history[other].group, group)]
            steps_of_group = [step for other in reversed(members) if (step := past.step(other))]
            steps = {
                (each.system_hash, each.entry.op, each.entry.inputs): each
                for each in steps_of_group
            }
            return Undo(tuple(steps.values()), group, len(members) - len(steps))
    return None


class _PinHistory:
    """The pins before and after each history entry."""

    def __init__(self, file: PinFile) -> None:
        self._file = file
        self._pins = _by_place(file.pins)
        self._released = _by_place(file.released)
        self._pinnings: dict[tuple[str, str], list[int]] = {}
        for at, entry in enumerate(file.history):
            if entry.what in ("pin", "repin"):
                self._pinnings.setdefault((entry.op, entry.inputs), []).append(at)

    def step(self, at: int) -> UndoStep | None:
        """Return the step that undoes the entry; None if it is not in force any more."""
        entry = self._file.history[at]
        held = _of(self._pins, entry)
        if entry.what == "unpin":
            released = _of(self._released, entry)
            system = entry.system_hash or (released.system_hash if released else "")
            if held is not None or not system:
                return None
            former = self._former(at) or entry
            return UndoStep(entry, system, former if former.hash == entry.hash else entry)
        if held is None or held.hash != entry.hash:
            return None
        if entry.what == "pin":
            return UndoStep(entry, held.system_hash)
        return UndoStep(entry, held.system_hash, self._former(at))

    def _former(self, at: int) -> HistoryEntry | None:
        """Return the previous pin, of another command."""
        entry = self._file.history[at]
        for before in reversed(self._pinnings.get((entry.op, entry.inputs), [])):
            other = self._file.history[before]
            systems = {entry.system_hash, other.system_hash} - {""}
            if before < at and len(systems) < 2 and not _same(other.group, entry.group):
                return other
        return None


def _by_place(records: Sequence[PinRecord]) -> dict[tuple[str, str], list[PinRecord]]:
    by_place: dict[tuple[str, str], list[PinRecord]] = {}
    for record in records:
        by_place.setdefault((record.op, record.inputs), []).append(record)
    return by_place


def _of(
    records: Mapping[tuple[str, str], Sequence[PinRecord]], entry: HistoryEntry
) -> PinRecord | None:
    """Return the record in the place of an entry; older entries do not name the file."""
    for record in records.get((entry.op, entry.inputs), ()):
        if entry.system_hash in ("", record.system_hash):
            return record
    return None


def _same(first: PinGroup | None, second: PinGroup | None) -> bool:
    return first is not None and second is not None and first.id == second.id


def _user(who: str) -> str:
    return who.partition("@")[0]
