"""The choices of one tuning as lines of the detail pane. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

from backend.records import Choice, MeasuredChoice, Tuning
from rocm_tui import format as fmt
from rocm_tui.format import plain
from rocm_tui.render.table import Column, Line, Span
from rocm_tui.session import stats
from rocm_tui.session.model import Row
from rocm_tui.session.providers import provider
from rocm_tui.widgets import tuning_cells, whiskers
from rocm_tui.widgets.bars import bar
from rocm_tui.widgets.columns import Slot, fit

if TYPE_CHECKING:
    from rocm_tui.session.resource_text import Told

_SPECIAL = (
    Column("place", "#", 3, 4, right=True),
    Column("bar", "", 6, 24, drop=2, good=16),
    Column("ms", "", 6, 8, right=True),
    Column("error", "±%", 4, 4, drop=3, right=True),
    Column("share", "%", 5, 5, drop=4, right=True),
    Column("extra", "EXTRA", 7, 7, drop=1, right=True),
    Column("verdict", "VERDICT", 7, 8),
    Column("name", "CHOICE", 14, 44, good=20),
    Column("from", "FROM", 6, 8, drop=9),
)
_TAKEN = tuple(
    Column(f"takes {title}", title, least, 9, drop=drop, right=True)
    for title, least, drop in (("VGPR", 4, 5), ("LDS", 6, 6), ("WAVES", 5, 7), ("SPILLS", 6, 8))
)
_WIDE = 100
NOTHING: Mapping[str, Told] = {}
NONE_MARKED: AbstractSet[str] = frozenset()


def choice_slots(row: Row, width: int, told: Mapping[str, Told] = NOTHING) -> tuple[Slot, ...]:
    """Columns of the list of choices: the keys of the configuration that differ come last.

    `told` says by hash what a kernel takes; it has columns where that is known of one. Where
    choices were measured again, their verdicts replace the share of the best's speed.
    """
    choices = row.tuning.choices
    keys = stats.differing_keys(choices)
    again = row.tuning.measured is not None
    wants = {column.key: column.least for column in _SPECIAL}
    for key in ("share",) if again else ("error", "extra", "verdict"):
        del wants[key]
    wants["bar"] = 24 if width >= _WIDE else 10
    wants["name"] = max((len(choice.label) for choice in choices), default=0)
    if any(one.cells for one in told.values()):
        for column in _TAKEN:
            texts = [one.cells.get(column.title, "?") for one in told.values()]
            wants[column.key] = max(len(text) for text in texts)
    config = []
    for at, key in enumerate(keys):
        longest = max((len(c.config.get(key, "")) for c in choices), default=1)
        size = max(len(key), longest)
        config.append(Column(f"config {key}", key, min(size, 24), 24, drop=10 + at, right=True))
        wants[f"config {key}"] = size
    return fit((*_SPECIAL, *_TAKEN, *config), wants, width)


def choice_heading(row: Row, slots: Sequence[Slot]) -> Line:
    unit, _ = fmt.time_unit(_best_ms(row.tuning))
    line: list[Span] = [(" ", "head")]
    for slot in slots:
        text = unit if slot.column.key == "ms" else plain(slot.column.title)
        if slot.column.key == "bar" and row.tuning.measured is not None:
            text = _scale(row.tuning, slot.width).title
        line += [(slot.cell(text), "head"), ("  ", "head")]
    return tuple(line)


def choice_line(
    row: Row,
    index: int,
    slots: Sequence[Slot],
    told: Mapping[str, Told] = NOTHING,
    marked: AbstractSet[str] = NONE_MARKED,
) -> Line:
    """One choice: place, bar, time, how it stands, name, configuration or reason."""
    tuning, choice = row.tuning, row.tuning.choices[index]
    size = next((slot.width for slot in slots if slot.column.key == "bar"), 0)
    if tuning.measured is None:
        texts = _single_number(tuning, choice, size)
    else:
        texts = _measured(tuning, choice, size)
    texts["place"] = _place(row, index, choice, marked)
    texts["from"] = (provider(choice) or "", "dim")
    name = "strong" if _pinned(row, choice) else texts["ms"][1]
    texts["name"] = (plain(choice.label), "dim" if choice.failed else name)
    taken = told.get(choice.hash or "")
    for column in _TAKEN:
        texts[column.key] = (taken.cells.get(column.title, "?") if taken else "", "dim")
    line: list[Span] = []
    for slot in slots:
        key = slot.column.key
        if key in texts:
            text, style = texts[key]
            line += [(slot.cell(text), style), ("  ", "")]
        elif not choice.failed:
            text = plain(choice.config.get(slot.column.title, ""))
            line += [(slot.cell(text), "dim"), ("  ", "")]
    if choice.failed:
        line.append((plain(choice.reason or "no reason known"), "dim"))
    return tuple(line)


def name_of(choice: Choice) -> str:
    """What a choice is marked by: its hash, else its name."""
    return choice.hash or choice.label


def _pinned(row: Row, choice: Choice) -> bool:
    return row.pin is not None and choice.hash is not None and row.pin.pin.hash == choice.hash


def _place(row: Row, index: int, choice: Choice, marked: AbstractSet[str]) -> Span:
    pinned, chosen = _pinned(row, choice), name_of(choice) in marked
    place = index + 1 if choice.offered else fmt.NONE
    text = f"{'●' if pinned else ''}{'✓' if chosen else ''}{place}"
    return text, "accent" if pinned or chosen else "dim"


def _single_number(tuning: Tuning, choice: Choice, size: int) -> dict[str, Span]:
    """What one number can say: a bar and the percents of the best's speed."""
    best = stats.winner(tuning)
    share = best.ms / choice.ms if best and best.ms and _counts(choice) and choice.ms else 0.0
    style = _style(tuning, share)
    return {
        "bar": (bar(share, size), style or "dim") if share else _state(tuning, choice),
        "ms": (_time(tuning, choice.ms), style),
        "share": (f"{share * 100:.1f}" if share else "", "dim"),
    }


def _measured(tuning: Tuning, choice: Choice, size: int) -> dict[str, Span]:
    """Time, interval and verdict against the measured best; one number where there is no more."""
    assert tuning.measured is not None
    told = tuning.measured.of(choice.hash)
    scale = _scale(tuning, max(size, 6))
    if told is None:
        extra = _extra_of_one_number(tuning, choice)
        texts = dict.fromkeys(("error", "verdict"), ("", "dim"))
        drawn = _state(tuning, choice) if extra is None else (whiskers.single(scale, extra), "dim")
        return {
            **texts,
            "bar": drawn,
            "ms": (_time(tuning, choice.ms), "dim"),
            "extra": ("" if extra is None else fmt.signed(extra - 1.0), "dim"),
        }
    style = verdict_style(tuning, told)
    return {
        "bar": (whiskers.interval(scale, told), style or "dim"),
        "ms": (_time(tuning, told.ms), style),
        "error": (tuning_cells.error(told), "dim"),
        "extra": ("" if told.ratio == 1.0 else fmt.signed(told.ratio - 1.0), "dim"),
        "verdict": (verdict_word(told), style),
    }


def _extra_of_one_number(tuning: Tuning, choice: Choice) -> float | None:
    """Its single number over that of the measured best."""
    assert tuning.measured is not None
    best = tuning.measured.choices[0].hash if tuning.measured.choices else None
    base = next((c.ms for c in stats.ranked(tuning) if c.hash == best), None)
    return choice.ms / base if base and choice.ms is not None and _counts(choice) else None


def _counts(choice: Choice) -> bool:
    """Whether its time may be set beside the others'."""
    return choice.offered and not choice.failed


def _scale(tuning: Tuning, width: int) -> whiskers.Scale:
    assert tuning.measured is not None
    one_number = [c for c in tuning.choices if tuning.measured.of(c.hash) is None]
    ratios = [ratio for c in one_number if (ratio := _extra_of_one_number(tuning, c)) is not None]
    return whiskers.scale_of(tuning.measured.choices, width, min(ratios, default=1.0))


def verdict_word(told: MeasuredChoice) -> str:
    """`fastest` for the measured best where it is, else the verdict's own word."""
    return "fastest" if told.verdict == "faster" else told.verdict


def verdict_style(tuning: Tuning, told: MeasuredChoice) -> str:
    """Only a choice that is known to be faster than all is shown as a winner."""
    best = stats.winner(tuning)
    taken = best is not None and told.hash == best.hash
    if told.verdict == "faster":
        return "good" if not taken or tuning_cells.wins_clearly(tuning) else ""
    if told.verdict == "slower":
        return "warn" if taken else "dim"
    return ""


def _best_ms(tuning: Tuning) -> float | None:
    """The time that decides the unit of all."""
    best = stats.winner(tuning)
    told = stats.measured(tuning, best)
    return told.ms if told else best.ms if best else None


def _time(tuning: Tuning, ms: float | None) -> str:
    _, scale = fmt.time_unit(_best_ms(tuning))
    return fmt.significant(ms * scale) if ms is not None else ""


def _style(tuning: Tuning, share: float) -> str:
    if not share:
        return "dim"
    in_band = share >= 1 / (1 + stats.TIE_BAND)
    if in_band and tuning_cells.wins_clearly(tuning):
        return "good"
    return "" if in_band else "dim"


def _state(tuning: Tuning, choice: Choice) -> Span:
    """What stands in place of a bar."""
    if choice.failed:
        return "failed", "bad"
    if not choice.offered:
        return "apart", "dim"
    return ("waiting" if tuning.state == "running" else "not timed"), "dim"
