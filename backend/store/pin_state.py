"""Whether a pin holds, as a cache file and the compiled graphs tell."""

from __future__ import annotations

from dataclasses import dataclass

from backend.model.pin import Pin, PinState
from backend.store.cache_edit import Found
from backend.store.errors import brief
from backend.store.pin_edit import holding, is_held, learn
from backend.store.pin_file import Record
from backend.store.pin_graphs import Doubt, Judged

GRAPHS_APPEARED = "compiled graphs with another choice had appeared"
"""The cause of a drift that does not lie in the cache file."""


@dataclass(frozen=True, slots=True)
class PinStatus:
    """A pin with its state; `detail` says in one line what is wrong or what was done."""

    pin: Pin
    state: PinState
    detail: str = ""


def state_of(record: Record, found: Found | None, graphs: Judged) -> PinStatus:
    """The state of a pin; `found` are its numbers in the file, None if the file is gone."""
    pin = record.pin
    if not found:
        what = "the cache file is gone" if found is None else "the tuning is no longer in the cache"
        return PinStatus(pin, "orphaned", f"{what}; it counts again once tuned again")
    record = learn(record, found)
    held = [precision for precision in found if is_held(record, found, precision)]
    if not held:
        return PinStatus(
            pin, "orphaned", f"{brief(record.label, 60)} is no longer among the choices"
        )
    changes = holding(record, found)
    if changes and not record.raised:
        what = "made by an older version, which can break programs; `rocm-tui pins --reconcile`"
        return PinStatus(pin, "drifted", what)
    if changes:
        were = "was" if len(changes) == 1 else "were"
        what = f"{_count(len(changes), 'number')} {were} written over ours"
        return PinStatus(pin, "drifted", what)
    if graphs.stale:
        what = f"{_count(len(graphs.stale), 'compiled graph')} made with another choice"
        return PinStatus(pin, "drifted", what)
    free = sorted(set(found) - set(held))
    if free:
        where = brief(", ".join(free), 60)
        what = f"also tuned with precision {where}, without a time for {brief(record.label, 60)}"
        return PinStatus(pin, "shadowed", what)
    if graphs.doubts:
        return PinStatus(pin, "unproven", "; ".join(_told(doubt) for doubt in graphs.doubts))
    return PinStatus(pin, "active")


def _told(doubt: Doubt) -> str:
    """The line of one doubt: how many graphs, why, where, and what to do."""
    many = len(doubt.paths) > 1
    words = {"it": "them" if many else "it"}
    words |= {"calls": "call", "keeps": "keep"} if many else {"calls": "calls", "keeps": "keeps"}
    where = brief(doubt.paths[0], 60) + (f" and {len(doubt.paths) - 1} more" if many else "")
    what = _count(len(doubt.paths), "compiled graph")
    return f"{what} {doubt.why.format(**words)} ({where}); {doubt.todo.format(**words)}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
