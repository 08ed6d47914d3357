"""What the detail pane says of one tuning, in lines. Pure functions."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len

from backend.records import Choice, MeasuredChoice, Tuning
from rocm_tui import format as fmt
from rocm_tui.format import plain
from rocm_tui.render.table import Line, Span
from rocm_tui.session import stats
from rocm_tui.session.model import Row
from rocm_tui.session.standing_text import versus
from rocm_tui.widgets import tuning_cells
from rocm_tui.widgets.bars import bar

if TYPE_CHECKING:
    from rocm_tui.session.resource_text import Told


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
    if tuning.state == "cut":
        return _cut(tuning, best)
    if best is None:
        return ((" No choice has a time.", "warn"),)
    spans: list[Span]
    if lead is None:
        spans = [(" Only one choice was timed", "")]
    elif stats.measured(tuning, best) is not None:
        spans = _measured_verdict(tuning, best)
    elif stats.tied(tuning):
        spans = [(" Tie", "strong"), (f": the best two are {fmt.percent(lead)} apart", "")]
        spans.append((", less than one measurement can tell", "dim"))
    else:
        spans = [(f" {plain(best.label)}", "good"), (f" is fastest by {fmt.percent(lead)}", "")]
    spans += _against_aten(tuning)
    told = stats.measured(tuning, best)
    rate = stats.tflops(tuning, told.ms if told else best.ms)
    if rate is not None:
        spans.append((f" · {fmt.throughput(rate)} TFLOP/s", ""))
    return tuple(spans)


def _measured_verdict(tuning: Tuning, best: Choice) -> list[Span]:
    """What repeated measurement says of the winner, as `stats.standing` judges it."""
    measurement = tuning.measured
    assert measurement is not None
    name, found = plain(best.label), stats.standing(tuning)
    rivals = [choice for choice in measurement.choices if choice.hash != best.hash]
    if not rivals:
        return [(f" {name}", "strong"), (" was measured alone", "")]
    if found == "slower":
        first = measurement.choices[0]
        told = stats.measured(tuning, best)
        by = fmt.percent(told.ratio - 1) if told else fmt.NONE
        return [
            (f" {_label(tuning, first)} is really {by} faster", "warn"),
            (f" than the winner {name}", ""),
        ]
    if found == "unclear":
        why = f": {measurement.rounds} rounds could not tell the best apart"
        return [(" Unclear", "strong"), (why, "")]
    if found == "tied":
        return [(" Tie", "strong"), (_tied_with(tuning, rivals), "")]
    near = min(rivals, key=lambda choice: choice.ratio)
    apart = f"{fmt.percent(near.ratio_low - 1)} to {fmt.percent(near.ratio_high - 1)}"
    return [
        (f" {name}", "good"),
        (f" is fastest by {fmt.percent(near.ratio - 1)}", ""),
        (f" ({apart})", "dim"),
    ]


def _tied_with(tuning: Tuning, rivals: Sequence[MeasuredChoice]) -> str:
    equal = [choice for choice in rivals if choice.verdict in ("tied", "faster")]
    if not equal:
        return ": a choice that was not measured is as fast"
    most = max(abs(choice.ratio - 1) for choice in equal)
    who = _label(tuning, equal[0]) if len(equal) == 1 else f"{len(equal)} others"
    return f": {who} as fast, {fmt.percent(most)} apart when measured again"


def _label(tuning: Tuning, measured: MeasuredChoice) -> str:
    """The name of a measured choice as the rest of the screen has it."""
    known = next((choice for choice in tuning.choices if choice.hash == measured.hash), None)
    return plain(known.label if known else measured.name or measured.hash)


def measured(tuning: Tuning) -> Line | None:
    """How it was measured again, and what disturbed that; None where it was not."""
    found = tuning.measured
    if found is None:
        return None
    facts = [f"{found.rounds} rounds in {fmt.seconds(found.seconds)}"]
    facts += ["caches emptied before each call"] if found.flushed else []
    facts += [f"{len(found.failed)} could not be run"] if found.failed else []
    first, *more = facts
    spans: list[Span] = [(f" Measured: {first}", "dim")]
    spans += [(f" · {fact}", "dim") for fact in more]
    spans += [(f" · {plain(trouble)}", "warn") for trouble in found.trouble]
    return (*spans, (f" · {when(found.when)}", "dim"))


def when(seconds: float) -> str:
    """A moment in the person's own time."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def _progress(tuning: Tuning, best: Choice | None) -> Line:
    total = stats.total(tuning)
    of = f" of {total}" if total else ""
    done = bar(tuning.timed / total if total else 0.0, 12)
    spans: list[Span] = [(" Tuning ", "accent"), (done, "accent")]
    spans.append((f" {tuning.timed}{of} timed", "strong"))
    if tuning.compiled:
        spans.append((f", {tuning.compiled} compiled", ""))
    if best is not None:
        spans.append((f" · best so far {fmt.duration(best.ms)} {plain(best.label)}", ""))
    return tuple(spans)


def _cut(tuning: Tuning, best: Choice | None) -> Line:
    """What is known of a tuning whose end was never read: not who won."""
    timed, total = len(stats.ranked(tuning)), stats.tried(tuning)
    of = f" of {total}" if total > timed else ""
    spans: list[Span] = [(" Cut off", "warn"), (f": {timed}{of} choices were seen", "")]
    if best is not None:
        spans.append((f" · best of them {fmt.duration(best.ms)} {plain(best.label)}", ""))
    return tuple(spans)


def _against_aten(tuning: Tuning) -> list[Span]:
    gain, saved = stats.gain(tuning), stats.saved_ms(tuning)
    best, rival = stats.winner(tuning), stats.aten(tuning)
    if gain is None or saved is None or best is None or rival is None:
        return []
    if rival is best:
        return [(" · ATen itself wins", "")] if stats.standing(tuning) == "clear" else []
    found = versus(tuning, best, rival)
    if found == "slower":
        told = stats.standing(tuning) == "slower"  # the sentence before says what is faster
        return [] if told else [(" · slower than ATen", "warn")]
    if found != "clear":
        return [(" · no faster than ATen", "")]
    return [(f" · {fmt.factor(gain)} ATen, saves {fmt.duration(saved)} a call", "")]


def cost(tuning: Tuning) -> Line:
    """What the tuning took and where it was seen."""
    failed = sum(choice.failed for choice in tuning.choices)
    count = stats.tried(tuning)
    told = f"{count} choice{'s' * (count != 1)}" if tuning.num_choices is not None else None
    facts = [(told or stats.tried_text(tuning)) + (f", {failed} failed" if failed else "")]
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
    first, *more = map(plain, facts)
    return ((f" {first}", "dim"), *((f" · {fact}", "dim") for fact in more))


def _source(sources: Sequence[str]) -> str:
    name = sources[0].rsplit("/", 1)[-1]
    more = f" and {len(sources) - 1} more" if len(sources) > 1 else ""
    return f"from {fmt.shorten(name, 30)}{more}"


def pin_line(row: Row) -> Line | None:
    """What is pinned, in which state, by whom; None where nothing is."""
    if row.pin is None:
        return None
    pin, state = row.pin.pin, row.pin.state
    made = when(pin.when) if pin.when else ""
    facts = [row.pin.detail, pin.note, f"by {pin.who}" if pin.who else "", made]
    facts += [f"applied again {pin.drifts} time{'s' * (pin.drifts != 1)}"] if pin.drifts else []
    return (
        (f" {tuning_cells.PIN_MARK[state]} ", tuning_cells.PIN_STYLE[state]),
        (f"Pinned to {plain(pin.label)}", "strong"),
        (f", {state}", tuning_cells.PIN_STYLE[state]),
        *((f" · {plain(fact)}", "dim") for fact in facts if fact),
    )


def takes(choice: Choice | None, told: Mapping[str, Told]) -> Line:
    """What the kernel of this choice takes, in full; blank where nobody can know it."""
    found = told.get(choice.hash or "") if choice else None
    return ((f" {plain(found.sentence)}", "dim"),) if found else ()


def whole(line: Line, width: int) -> Line:
    """A line without its last facts, each a span after a `·`, that `width` cells cannot hold."""
    kept = list(line)
    while sum(cell_len(text) for text, _ in kept) > width and kept[-1][0].startswith(" · "):
        kept.pop()
    return tuple(kept)


def filled(line: Line, width: int) -> Line:
    """A line with the colour of headings up to its end."""
    return (*line, (" " * width, "head"))
