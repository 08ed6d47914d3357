"""What repeated measurements found, as the text that `measure` and `show` print."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING

from backend.model.measurement import Measurement
from backend.model.tuning import Tuning
from rocm_tui import format as fmt
from rocm_tui.session import stats

if TYPE_CHECKING:
    from backend.pins.state import PinStatus

HEADER = ("choice", "median", "95 % interval", "spread", "over best", "interval", "verdict")
RIGHT = "lrrrrrl"


def rows(tuning: Tuning, found: Measurement) -> list[list[str]]:
    """A line a choice, best first, then those that failed with the reason."""
    lines = [
        [
            label(tuning, choice.hash, choice.name),
            fmt.duration(choice.ms),
            _times(choice.low, choice.high),
            fmt.percent(choice.spread),
            "best" if not at else fmt.signed(choice.ratio - 1),
            "" if not at else _overs(choice.ratio_low, choice.ratio_high),
            choice.verdict,
        ]
        for at, choice in enumerate(found.choices)
    ]
    for failed in found.failed:
        name = label(tuning, failed.hash, failed.name)
        lines.append([name, fmt.NONE, "", "", "", "", f"failed: {fmt.plain(failed.reason or '')}"])
    return lines


def sentences(
    tuning: Tuning, found: Measurement, id: str, pin: PinStatus | None = None
) -> list[str]:
    """Who is faster, what that means for the choice that is in use, what disturbed it."""
    told = [standing(tuning, found), meaning(tuning, found, id, pin), _conditions(found)]
    return [fmt.plain(text) for text in (*told, *found.trouble) if text]


def standing(tuning: Tuning, found: Measurement) -> str:
    """`bmm is the fastest, cpp_X is slower by 0.9 % to 1.8 %`."""
    best, *rivals = found.choices
    name = label(tuning, best.hash, best.name)
    if not rivals:
        return f"{name} was measured alone: there is nothing to compare it with"
    unclear = [label(tuning, c.hash, c.name) for c in rivals if c.verdict == "unclear"]
    ties = [label(tuning, c.hash, c.name) for c in rivals if c.verdict == "tied"]
    slower = [c for c in rivals if c.verdict == "slower"]
    if unclear:
        text = f"it is unclear whether {name} is faster than {_names(unclear)}"
    elif ties:
        text = f"{name} and {_names(ties)} are tied"
    else:
        text = f"{name} is the fastest"
    if slower:
        next_ = slower[0]
        by = f"by {fmt.percent(next_.ratio_low - 1)} to {fmt.percent(next_.ratio_high - 1)}"
        text += f"; {label(tuning, next_.hash, next_.name)} is slower {by}"
        text += f", {len(slower) - 1} more are slower too" if len(slower) > 1 else ""
    if unclear:
        text += "; a larger --budget or a quieter machine may tell"
    return text


def meaning(tuning: Tuning, found: Measurement, id: str, pin: PinStatus | None = None) -> str:
    """Whether what is in use, pinned or Inductor's own choice, is the right one, and what to do if
    not; may be empty."""
    if pin is not None and pin.state != "orphaned":
        return pinned(tuning, found, id, pin)
    taken = stats.winner(tuning)
    told = stats.measured(tuning, taken) if tuning.measured == found else None
    if taken is None or told is None:
        return ""
    best = found.choices[0]
    if told.verdict == "slower":
        by = fmt.percent(told.ratio - 1)
        better = pinnable(tuning, best.hash)
        return f"Inductor takes {taken.label}, which is {by} slower: rocm-tui pin {id} {better}"
    if told.verdict == "tied":
        return f"Inductor takes {taken.label}, and nothing measured is faster"
    if told.verdict == "faster":
        return f"Inductor takes {taken.label}, which is right"
    return ""


def pinned(tuning: Tuning, found: Measurement, id: str, pin: PinStatus) -> str:
    """What holds a tuning that is pinned, and what the measurement says of that choice."""
    name = label(tuning, pin.pin.hash, pin.pin.label)
    by = f"pinned by {pin.pin.who}" if pin.pin.who else "pinned"
    held = f"{name} is in use, {by}" if pin.state == "active" else f"{name} is {by}, {pin.state}"
    told = next((choice for choice in found.choices if choice.hash == pin.pin.hash), None)
    if told is None:
        return f"{held}; it was not measured"
    if told.verdict == "slower":
        best = found.choices[0]
        slower = f"{fmt.percent(told.ratio - 1)} slower than {label(tuning, best.hash, best.name)}"
        better = pinnable(tuning, best.hash)
        return f"{held}; it is {slower}: rocm-tui pin {id} {better}, or rocm-tui unpin {id}"
    if told.verdict == "tied":
        return f"{held}, and nothing measured is faster"
    return f"{held}, which is right" if told.verdict == "faster" else held


def label(tuning: Tuning, hash: str | None, name: str | None) -> str:
    """The name that the tuning has for a choice: torch numbers kernels anew in each process."""
    known = next((choice for choice in tuning.choices if hash and choice.hash == hash), None)
    return fmt.plain((known.label if known else None) or name or hash or "?")


def pinnable(tuning: Tuning, hash: str) -> str:
    """What `pin` takes for a choice: its name if no other has it, else the hash."""
    name = next((choice.name for choice in tuning.choices if choice.hash == hash), None)
    alone = sum(choice.name == name for choice in tuning.choices) == 1
    return name if name and alone else hash


def _conditions(found: Measurement) -> str:
    flushed = ", caches emptied before each call" if found.flushed else ""
    return f"{found.rounds} rounds in {fmt.seconds(found.seconds)}{flushed}"


def _names(names: Sequence[str]) -> str:
    shown = list(names[:3])
    if len(names) > 3:
        shown.append(f"{len(names) - 3} more")
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else shown[0]


def _times(low: float, high: float) -> str:
    if not (isfinite(low) and isfinite(high)):
        return fmt.NONE
    unit, scale = fmt.time_unit(high)
    return f"{fmt.significant(low * scale)} to {fmt.significant(high * scale)} {unit}"


def _overs(low: float, high: float) -> str:
    return f"{fmt.signed(low - 1)} to {fmt.signed(high - 1)}"
