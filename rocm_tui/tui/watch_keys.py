"""The keys of Watch, in one table from which bindings, help, footer and palette are made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.binding import Binding

from rocm_tui.session import refusals
from rocm_tui.tui.keys import READ_ONLY, Key, key, written

if TYPE_CHECKING:  # types only: this table is needed before they are loaded
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

    `about` is the sentence of the help. `footer` is its word in the line of keys (`inside` is
    the word among the choices, if it differs), `palette` its name in the command palette, with
    `hint` beside it; a key without such a word is not listed there. `applies` gives the reason why
    the key does nothing on this tuning, or None; a press of the key shows the reason. A key with
    `anywhere` is not about the tuning under the cursor; a key that `acts` writes or starts work.
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
        """Return why the key does nothing here, or None; `spot` is None where no tuning is."""
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
    return None if spot.row.pin else "This tuning is not pinned; p pins a choice, v verifies it."


def _mark(spot: Spot) -> str | None:
    return None if spot.inside else "Choices can be marked, tunings cannot; tab goes to them."


def _compare(spot: Spot) -> str | None:
    return None if spot.row.tuning.choices else "No choice of this tuning has been seen yet."


def _read(spot: Spot) -> str | None:
    return refusals.why_not_read(spot.choice, spot.row.tuning)


def _tune(spot: Spot) -> str | None:
    return refusals.why_not_tuned(spot.row.tuning)


def _measure(spot: Spot) -> str | None:
    from rocm_tui.render.choices import name_of

    tuning = spot.row.tuning
    marked = [choice for choice in tuning.choices if name_of(choice) in spot.marked]
    timed = [choice for choice in tuning.choices if choice.ms is not None]
    return refusals.why_not_measured(tuning, marked or timed)


def _trial(spot: Spot) -> str | None:
    return refusals.why_not_tried(spot.row.tuning)


def _cancel(spot: Spot) -> str | None:
    return None if spot.job else "No job of this screen is about this tuning; 4 lists the jobs."


KEYS: tuple[WatchKey, ...] = (
    WatchKey("cancel", "x", "cancel the job about this tuning", footer="cancel",
        palette="job: Cancel job of tuning", applies=_cancel),
    WatchKey("measure", "m", "measure the marked choices, or those near the best",
        footer="measure", palette="job: Measure choices", hint="the marked ones",
        applies=_measure, acts=True),
    WatchKey("pin", "p", "pin the choice (in the table: the fastest as measured); asks first",
        footer="pin", palette="pin: Pin choice", hint="asks first", applies=_pin, acts=True),
    WatchKey("verify", "v", "verify the pin in a job: does a compile call its choice?",
        footer="verify", palette="pin: Verify pin", hint="a job", applies=_verify, acts=True),
    WatchKey("mark", "space", "mark the choice, to compare or measure it", footer="mark",
        palette="tuning: Mark choice", applies=_mark),
    WatchKey("compare", "c", "compare the marked choices, or those near the best",
        footer="compare", palette="tuning: Compare choices", applies=_compare),
    WatchKey("switch", "tab", "go to the choices, the output, the table", footer="choices",
        inside="table"),
    WatchKey("read", "o", "read the source of the choice, its assembly, the resources it uses",
        footer="source", palette="tuning: Show source of choice", applies=_read),
    WatchKey("filter", "slash",
        "filter: op:mm dtype:bf16 gain>1.2 !pinned, or words; tab completes", footer="filter",
        palette="tunings: Filter", anywhere=True),
    WatchKey("unpin", "u", "unpin the choice; asks first", footer="unpin",
        palette="pin: Unpin choice", hint="asks first", applies=_unpin, acts=True),
    WatchKey("tune", "t", "tune again in a worker; asks what to try", footer="tune",
        palette="job: Tune again", hint="asks what to try", applies=_tune, acts=True),
    WatchKey("sort", "s", "sort by the next of: newest, vs ATen, lead, time, to gain, share, op",
        footer="sort", anywhere=True),
    WatchKey("copy", "y", "copy the tuning's id, or the choice's hash", footer="copy",
        palette="tuning: Copy id"),
    WatchKey("trial", "w", "try the marked choices in the whole graph; asks first",
        footer="try in graph", palette="job: Try in the graph", hint="asks first",
        applies=_trial, acts=True),
    WatchKey("history", "i", "history of the problem: winner and time by session, versions, pins",
        footer="history", palette="tuning: Show history", hint="over the days"),
    WatchKey("measure_suspects", "a", "measure all suspects, whose times (?) cannot be right",
        palette="job: Measure all suspects", hint="times marked ?", anywhere=True, acts=True),
    WatchKey("undo", "z", "undo your last pin or unpin, even of another day; asks first",
        palette="pin: Undo last pin or unpin", hint="asks first", anywhere=True, acts=True),
    WatchKey("reverse", "r",
        "reverse the order; a click on a heading sorts by it, another click reverses",
        palette="tunings: Reverse the order", anywhere=True),
    WatchKey("group", "b",
        "group by the next of: session, op, device, nothing; enter closes a group, lists devices",
        palette="tunings: Group by the next", anywhere=True),
    WatchKey("fold", "f", "fold the tunings with a single choice into one line, or show them",
        palette="tunings: Fold those with a single choice", anywhere=True),
    WatchKey("others", "e", "show or hide entries of other tuners and kernels without times",
        palette="tunings: Show or hide rows of other tuners", anywhere=True),
    WatchKey("devices", "d",
        "show or hide the GPUs, else the CPU: use, memory, power, temperature, clock",
        palette="view: Show or hide devices", anywhere=True),
    WatchKey("switch_back", "shift+tab", "the same in the other direction"),
    WatchKey("details", "l,right", "go to the choices"),
    WatchKey("table", "h,left", "go back to the table"),
    WatchKey("border_back", "less_than_sign",
        "move the border between table and choices back, or that of the output up; "
        "it is remembered", anywhere=True),
    WatchKey("border_on", "greater_than_sign",
        "move the border forward, or down; the mouse drags it, too", anywhere=True),
    WatchKey("border_reset", "equals_sign", "let the columns place the border again",
        palette="view: Reset the border", anywhere=True),
    WatchKey("back", "escape", "clear the marks, go to the table, clear the filter",
        anywhere=True),
)  # fmt: skip
"""Every key of Watch; those of the line of keys from the most to the least useful."""
_BY_ID = {entry.id: entry for entry in KEYS}


def by_id(id: str) -> WatchKey:
    """Return the key with this id; raises KeyError for an id that is not in the table."""
    return _BY_ID[id]


def footer(spot: Spot, read_only: bool, step: str) -> list[Key]:
    """Return the keys that do something on this tuning, the one of the next `step` first."""
    entries = [entry for entry in KEYS if entry.footer and not entry.why_not(spot, read_only)]
    entries.sort(key=lambda entry: entry.id != step)
    return [
        (written(entry.keys), (spot.inside and entry.inside) or entry.footer, entry.action)
        for entry in entries
    ]


def commands(spot: Spot | None, read_only: bool) -> Iterator[tuple[str, str, str]]:
    """Yield the commands of the palette that apply now: name, hint and action."""
    for entry in KEYS:
        if entry.palette and entry.why_not(spot, read_only) is None:
            beside = f"Key {written(entry.keys)}" + (f"; {entry.hint}" if entry.hint else "")
            yield entry.palette, beside, entry.action
