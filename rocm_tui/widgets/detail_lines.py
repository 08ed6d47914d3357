"""What the detail pane says of one tuning, in lines. Pure functions."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from backend.records import Choice, Tuning
from rocm_tui import format as fmt
from rocm_tui.format import plain
from rocm_tui.session import stats
from rocm_tui.session.model import Row
from rocm_tui.session.providers import provider
from rocm_tui.widgets import tuning_cells
from rocm_tui.widgets.bars import bar
from rocm_tui.widgets.columns import Column, Slot, fit
from rocm_tui.widgets.line_view import Line, Span

if TYPE_CHECKING:
    from rocm_tui.session.resource_text import Told

_SPECIAL = (
    Column("place", "#", 3, 4, right=True),
    Column("bar", "", 6, 24, drop=1),
    Column("ms", "", 6, 8, right=True),
    Column("share", "%", 5, 5, drop=2, right=True),
    Column("name", "CHOICE", 14, 44),
    Column("from", "FROM", 6, 8, drop=9),
)
_TAKEN = tuple(
    Column(f"takes {title}", title, least, 9, drop=drop, right=True)
    for title, least, drop in (("VGPR", 4, 5), ("LDS", 6, 6), ("WAVES", 5, 7), ("SPILLS", 6, 8))
)
NOTHING: Mapping[str, Told] = {}


def title(row: Row) -> Line:
    """Op, sizes, types, device, id."""
    tuning = row.tuning
    times = f" (tuned {row.occurrence} times)" if row.occurrence > 1 else ""
    facts = [stats.dtype_of(tuning), tuning.device or "", f"id {row.id}{times}"]
    return (
        (f" {plain(tuning.op)} ", "title"),
        (f" {plain(fmt.operands(tuning))}", "head"),
        ("   " + " · ".join(plain(fact) for fact in facts if fact), "head"),
    )


def verdict(tuning: Tuning) -> Line:
    """Who wins, by how much, and what it is worth. A tie is told as a tie."""
    best, lead = stats.winner(tuning), stats.lead(tuning)
    if tuning.state == "running":
        return _progress(tuning, best)
    if best is None:
        return ((" No choice has a time.", "warn"),)
    spans: list[Span]
    if lead is None:
        spans = [(" Only one choice was timed", "")]
    elif stats.tied(tuning):
        spans = [(" Tie", "strong"), (f": the best two are {fmt.percent(lead)} apart", "")]
        spans.append((", less than one measurement can tell", "dim"))
    else:
        spans = [(f" {plain(best.label)}", "good"), (f" is fastest by {fmt.percent(lead)}", "")]
    spans += _against_aten(tuning)
    rate = stats.tflops(tuning, best.ms)
    if rate is not None:
        spans.append((f" · {fmt.throughput(rate)} TFLOP/s", ""))
    return tuple(spans)


def _progress(tuning: Tuning, best: Choice | None) -> Line:
    total = tuning_cells.count(tuning)
    done = bar(tuning.timed / total if total else 0.0, 12)
    spans: list[Span] = [(" Tuning ", "accent"), (done, "accent")]
    spans.append((f" {tuning.timed} of {total} timed", "strong"))
    if tuning.compiled:
        spans.append((f", {tuning.compiled} compiled", ""))
    if best is not None:
        spans.append((f" · best so far {fmt.duration(best.ms)} {plain(best.label)}", ""))
    return tuple(spans)


def _against_aten(tuning: Tuning) -> list[Span]:
    gain, saved = stats.gain(tuning), stats.saved_ms(tuning)
    if gain is None or saved is None:
        return []
    if saved <= 0:
        return [(" · ATen itself wins", "")]
    if gain - 1 <= stats.TIE_BAND:
        return [(" · no faster than ATen", "")]
    return [(f" · {fmt.factor(gain)} ATen, saves {fmt.duration(saved)} a call", "")]


def cost(tuning: Tuning) -> Line:
    """What the tuning took and where it was seen."""
    failed = sum(choice.failed for choice in tuning.choices)
    facts = [f"{tuning_cells.count(tuning)} choices" + (f", {failed} failed" if failed else "")]
    spent = [
        f"{what} {fmt.seconds(value)}"
        for what, value in (
            ("benchmark", tuning.seconds.benchmark),
            ("compile", tuning.seconds.precompile),
            ("prescreen", tuning.seconds.prescreen),
        )
        if value is not None and value >= 0.05
    ]
    facts += [", ".join(spent)] if spent else []
    facts += [f"rank {tuning.rank}"] if tuning.rank is not None else []
    facts += [f"precision {tuning.precision}"] if tuning.precision else []
    if tuning.selected_by not in (None, "timing"):
        facts.append(f"selected by {tuning.selected_by}")
    facts += [_source(tuning.sources)] if tuning.sources else []
    return ((" " + " · ".join(plain(fact) for fact in facts), "dim"),)


def _source(sources: Sequence[str]) -> str:
    name = sources[0].rsplit("/", 1)[-1]
    more = f" and {len(sources) - 1} more" if len(sources) > 1 else ""
    return f"from {fmt.shorten(name, 30)}{more}"


def pin_line(row: Row) -> Line | None:
    """What is pinned, in which state, by whom; None where nothing is."""
    if row.pin is None:
        return None
    pin, state = row.pin.pin, row.pin.state
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(pin.when)) if pin.when else ""
    facts = [row.pin.detail, pin.note, f"by {pin.who}" if pin.who else "", when]
    facts += [f"applied again {pin.drifts} times"] if pin.drifts else []
    return (
        (f" {tuning_cells.PIN_MARK[state]} ", tuning_cells.PIN_STYLE[state]),
        (f"Pinned to {plain(pin.label)}", "strong"),
        (f", {state}", tuning_cells.PIN_STYLE[state]),
        ("".join(f" · {plain(fact)}" for fact in facts if fact), "dim"),
    )


def choice_slots(row: Row, width: int, told: Mapping[str, Told] = NOTHING) -> tuple[Slot, ...]:
    """Columns of the list of choices: the keys of the configuration that differ come last.

    `told` says by hash what a kernel takes; it has columns where that is known of one.
    """
    choices = row.tuning.choices
    keys = stats.differing_keys(choices)
    wants = {column.key: column.least for column in _SPECIAL}
    wants["bar"] = 24 if width >= 100 else 10
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


def takes(choice: Choice | None, told: Mapping[str, Told]) -> Line:
    """What the kernel of this choice takes, in full; blank where nobody can know it."""
    found = told.get(choice.hash or "") if choice else None
    return ((f" {plain(found.sentence)}", "dim"),) if found else ()


def choice_heading(row: Row, slots: Sequence[Slot]) -> Line:
    unit, _ = _unit(row.tuning)
    line: list[Span] = [(" ", "head")]
    for slot in slots:
        text = unit if slot.column.key == "ms" else plain(slot.column.title)
        line += [(slot.cell(text), "head"), ("  ", "head")]
    return tuple(line)


def filled(line: Line, width: int) -> Line:
    """A line with the colour of headings up to its end."""
    return (*line, (" " * width, "head"))


def _unit(tuning: Tuning) -> tuple[str, float]:
    best = stats.winner(tuning)
    unit, scale = fmt.time_unit(best.ms if best else None)
    return unit, scale


def choice_line(
    row: Row, index: int, slots: Sequence[Slot], told: Mapping[str, Told] = NOTHING
) -> Line:
    """One choice: place, bar and percent of the best, time, name, configuration or reason."""
    tuning, choice = row.tuning, row.tuning.choices[index]
    best = stats.winner(tuning)
    share = best.ms / choice.ms if best and best.ms and choice.ms and not choice.failed else 0.0
    pinned = row.pin is not None and row.pin.pin.hash == choice.hash and choice.hash is not None
    style = _style(tuning, choice, share)
    _, scale = _unit(tuning)
    size = next((slot.width for slot in slots if slot.column.key == "bar"), 0)
    texts: dict[str, Span] = {
        "bar": (bar(share, size), style or "dim") if share else _state(tuning, choice),
        "place": (f"●{index + 1}" if pinned else str(index + 1), "accent" if pinned else "dim"),
        "ms": (fmt.significant(choice.ms * scale) if choice.ms is not None else "", style),
        "from": (provider(choice) or "", "dim"),
        "share": (f"{share * 100:.1f}" if share else "", "dim"),
        "name": (plain(choice.label), "dim" if choice.failed else "strong" if pinned else style),
    }
    taken = told.get(choice.hash or "")
    for column in _TAKEN:
        texts[column.key] = (taken.cells.get(column.title, "?") if taken else "", "dim")
    line: list[Span] = []
    for slot in slots:
        key = slot.column.key
        if key in texts:
            text, name = texts[key]
            line += [(slot.cell(text), name), ("  ", "")]
        elif not choice.failed:
            text = plain(choice.config.get(slot.column.title, ""))
            line += [(slot.cell(text), "dim"), ("  ", "")]
    if choice.failed:
        line.append((plain(choice.reason or "no reason known"), "dim"))
    return tuple(line)


def _style(tuning: Tuning, choice: Choice, share: float) -> str:
    if choice.failed or not share:
        return "dim"
    in_band = share >= 1 / (1 + stats.TIE_BAND)
    if in_band and tuning_cells.wins_clearly(tuning):
        return "good"
    return "" if in_band else "dim"


def _state(tuning: Tuning, choice: Choice) -> Span:
    """What stands in place of a bar."""
    if choice.failed:
        return "failed", "bad"
    return ("waiting" if tuning.state == "running" else "not timed"), "dim"
