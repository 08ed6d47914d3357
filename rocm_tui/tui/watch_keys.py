"""The keys of Watch, one entry each: bindings, help, footer and command palette are made of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.binding import Binding

from rocm_tui.session import refusals
from rocm_tui.tui.keys import READ_ONLY, Key, key, written

if TYPE_CHECKING:  # types only: this table stands before what they need is loaded
    from backend.model.choice import Choice
    from rocm_tui.session.model import Row


@dataclass(frozen=True, slots=True)
class Spot:
    """The position of a person in Watch: the tuning and the choice under the cursor (in the table,
    the winner), the names of the marked choices, whether the cursor is among the choices, and
    whether a job is about the tuning."""

    row: Row
    choice: Choice | None
    marked: frozenset[str]
    inside: bool
    job: bool


def always(spot: Spot) -> None:
    """Apply to every tuning."""


@dataclass(frozen=True, slots=True)
class WatchKey:
    """`id` is the name of the screen's action: `pin` runs `action_pin`; `watch.pin` is the id by
    which a person may choose other keys.

    `about` is the sentence of the help. `footer` is its word in the line of keys (`inside` where
    it is another among the choices), `palette` what the command palette calls it, with `hint`
    beside; without a word it does not stand there. `applies` gives the reason why it does nothing
    on this tuning, or None: then the key is dim, and pressing it says the reason. A key with
    `anywhere` is not about the tuning under the cursor; one that `acts` writes or starts work.
    """

    id: str
    keys: str
    about: str
    footer: str = ""
    inside: str = ""
    palette: str = ""
    hint: str = ""
    applies: Callable[[Spot], str | None] = always
    anywhere: bool = False
    acts: bool = False

    @property
    def action(self) -> str:
        """The action that the binding, the line of keys and the palette run."""
        return f"screen.key('{self.id}')"

    @property
    def binding(self) -> Binding:
        return key(self.keys, self.action, f"watch.{self.id}", self.about)

    def why_not(self, spot: Spot | None, read_only: bool) -> str | None:
        """Why it does nothing here, where it does not; `spot` is None where no tuning is."""
        if read_only and self.acts:
            return READ_ONLY
        if self.anywhere:
            return None
        return "No tuning is under the cursor." if spot is None else self.applies(spot)


def _pin(spot: Spot) -> str | None:
    return refusals.why_not_pinned(spot.row, spot.choice)


def _unpin(spot: Spot) -> str | None:
    return None if spot.row.pin else "This tuning is not pinned."


def _verify(spot: Spot) -> str | None:
    return None if spot.row.pin else "This tuning is not pinned; p pins a choice, v proves it."


def _mark(spot: Spot) -> str | None:
    return None if spot.inside else "Choices are marked, not tunings; tab goes to them."


def _compare(spot: Spot) -> str | None:
    return None if spot.row.tuning.choices else "No choice of this tuning is known yet."


def _read(spot: Spot) -> str | None:
    return refusals.why_not_read(spot.choice, spot.row.tuning)


def _tune(spot: Spot) -> str | None:
    return refusals.why_not_tuned(spot.row.tuning)


def _measure(spot: Spot) -> str | None:
    tuning = spot.row.tuning
    marked = [choice for choice in tuning.choices if (choice.name or choice.hash) in spot.marked]
    timed = [choice for choice in tuning.choices if choice.ms is not None]
    return refusals.why_not_measured(tuning, marked or timed)


def _trial(spot: Spot) -> str | None:
    return refusals.why_not_tried(spot.row.tuning)


def _cancel(spot: Spot) -> str | None:
    return None if spot.job else "No job of this screen is about this tuning; J lists the jobs."


KEYS: tuple[WatchKey, ...] = (
    WatchKey("pin", "p", "pin the choice, in the table the fastest as measured; asks", footer="pin",
        palette="pin: Pin choice", hint="asks first", applies=_pin, acts=True),
    WatchKey("unpin", "u", "take the pin back; asks", footer="unpin", palette="pin: Take back pin",
        hint="asks first", applies=_unpin, acts=True),
    WatchKey("verify", "v", "verify the pin: does a compile call its choice? a job",
        footer="verify", palette="pin: Verify pin", hint="a job", applies=_verify, acts=True),
    WatchKey("cancel", "x", "cancel the job about this tuning", footer="cancel",
        palette="job: Cancel job of tuning", applies=_cancel),
    WatchKey("mark", "space", "mark the choice, to compare or measure it", footer="mark",
        palette="tuning: Mark choice", applies=_mark),
    WatchKey("tune", "t", "tune again in a worker; asks what to try", footer="tune",
        palette="job: Tune again", hint="asks what to try", applies=_tune, acts=True),
    WatchKey("measure", "m", "measure those marked, else those near the best", footer="measure",
        palette="job: Measure choices", hint="those marked", applies=_measure, acts=True),
    WatchKey("compare", "c", "compare those marked, else those near the best", footer="compare",
        palette="tuning: Compare choices", applies=_compare),
    WatchKey("switch", "tab", "to the choices, the output, the table", footer="choices",
        inside="table"),
    WatchKey("switch_back", "shift+tab", "the same the other way round"),
    WatchKey("filter", "slash",
        "filter: op:mm dtype:bf16 gain>1.2 !pinned, or words; tab completes", footer="filter",
        palette="tunings: Filter", anywhere=True),
    WatchKey("sort", "s", "sort by the next of: newest, vs ATen, lead, time, to gain, share, op",
        footer="sort", anywhere=True),
    WatchKey("reverse", "r",
        "turn the order round; a click on a heading sorts by it, the next one turns round",
        palette="tunings: Reverse the order", anywhere=True),
    WatchKey("group", "b",
        "group by the next of: session, op, device, nothing; enter closes a group, lists devices",
        palette="tunings: Group by the next", anywhere=True),
    WatchKey("fold", "f", "fold the tunings with a single choice into one line, or show them",
        palette="tunings: Fold those with a single choice", anywhere=True),
    WatchKey("copy", "y", "copy the tuning's id, or the choice's hash", footer="copy",
        palette="tuning: Copy id"),
    WatchKey("read", "o", "the source of the choice, its assembly, what it takes of its GPU",
        footer="source", palette="tuning: Show source of choice", applies=_read),
    WatchKey("trial", "g", "try the marked choices in the whole graph; asks",
        palette="job: Try in the graph", hint="asks first", applies=_trial, acts=True),
    WatchKey("measure_suspects", "M",
        "measure all suspects, whose times (?) are not to be believed",
        palette="job: Measure all suspects", hint="times marked ?", anywhere=True, acts=True),
    WatchKey("history", "H", "history of the problem: winner and time by session, versions, pins",
        palette="tuning: Show history", hint="over the days"),
    WatchKey("undo", "U", "undo your last pin or unpin, also of another day; asks",
        palette="pin: Undo last pin or unpin", hint="asks first", anywhere=True, acts=True),
    WatchKey("devices", "D",
        "the GPUs, else the CPU: use, memory, power, temperature, clock; and away",
        palette="view: Show or hide devices", anywhere=True),
    WatchKey("border_back", "less_than_sign",
        "move the border of table and choices back, or that of the output up; it is remembered",
        anywhere=True),
    WatchKey("border_on", "greater_than_sign",
        "move the border on, or down; the mouse drags it, too", anywhere=True),
    WatchKey("border_reset", "equals_sign", "let the columns decide where the border stands",
        palette="view: Reset the border", anywhere=True),
    WatchKey("details", "l,right", "into the choices"),
    WatchKey("table", "h,left", "back to the table"),
    WatchKey("back", "escape", "clear the marks, to the table, clear the filter", anywhere=True),
)  # fmt: skip
_BY_ID = {entry.id: entry for entry in KEYS}


def by_id(id: str) -> WatchKey:
    """Raises KeyError for one that is not in the table."""
    return _BY_ID[id]


def bindings(*ids: str) -> list[Binding]:
    """The bindings of these keys, else of all. The lists of Watch have those that are theirs
    elsewhere: `g` goes to the first line, but here `home` does."""
    return [entry.binding for entry in (map(by_id, ids) if ids else KEYS)]


def footer(spot: Spot, read_only: bool) -> tuple[list[Key], frozenset[str]]:
    """The line of keys, and the actions of those that do nothing on this tuning."""
    entries = [entry for entry in KEYS if entry.footer]
    keys = [
        (written(entry.keys), (spot.inside and entry.inside) or entry.footer, entry.action)
        for entry in entries
    ]
    return keys, frozenset(entry.action for entry in entries if entry.why_not(spot, read_only))


def commands(spot: Spot | None, read_only: bool) -> Iterator[tuple[str, str, str]]:
    """Yield the commands of the palette that apply now: name, hint and action."""
    for entry in KEYS:
        if entry.palette and entry.why_not(spot, read_only) is None:
            beside = f"Key {written(entry.keys)}" + (f"; {entry.hint}" if entry.hint else "")
            yield entry.palette, beside, entry.action
