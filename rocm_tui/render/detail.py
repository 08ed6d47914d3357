"""The details of one tuning: the lines of the screen's pane, and the output of `show`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from backend.counted import counted, device_ranges, noun
from backend.model.choice import Choice, MeasuredChoice
from backend.model.inductor_kernel import is_kernel
from backend.model.tuning import Tuning
from rocm_tui.harmless import plain
from rocm_tui.render.choices import APART, Footprint, choices_text
from rocm_tui.render.measured import (
    CommandLine,
    command_line,
    conditions,
    exactness,
    label,
    machine,
    measured_text,
    sentences,
)
from rocm_tui.render.pins import PIN_SIGNS, moment, proof_facts, state_text
from rocm_tui.render.plot import bar
from rocm_tui.render.table import Line, Span, hanging, text_table
from rocm_tui.render.tuned_tables import beside_text, entry_facts, entry_verdict
from rocm_tui.render.tunings import DEVICE_LINES, benchmark_text, time_text
from rocm_tui.session import numbers as fmt
from rocm_tui.session import stats
from rocm_tui.session.in_use import device_name, devices_by_kernel, in_use, pinned_choice
from rocm_tui.session.model import Row


def title(row: Row) -> Line:
    """Op, sizes, types, device, id."""
    tuning = row.tuning
    times = f" ({row.occurrence:,} times)" if row.occurrence > 1 else ""
    device = device_name(row) or tuning.device or row.device
    facts = [stats.dtype_of(tuning), device, f"id {row.id}{times}"]
    return (
        (f" {plain(tuning.op)} ", "title"),
        (f" {plain(stats.all_sizes(tuning))}", "head"),
        ("   " + " · ".join(plain(fact) for fact in facts if fact), "head"),
    )


_BY_SINGLE = " by single times, not measured"


def row_verdict(row: Row) -> Line:
    """Return the `verdict` of a row; none before its pin was read."""
    if row.tuning.entry is not None:
        return entry_verdict(row.tuning)
    if row.awaits_pin:
        return ((f" {fmt.AWAITED} pinned; whether it holds is being read", "dim"),)
    said = verdict(row.tuning, in_use(row))
    return ((f" {device_name(row.devices[0])}:", "strong"), *said) if row.devices else said


def device_lines(row: Row) -> list[Line]:
    """Return a line for each kernel in use on the devices of a box, with its times."""
    lines: list[Line] = []
    for choice, devices in devices_by_kernel(row) if row.devices else ():
        where = device_ranges(device.tuning.device_index or 0 for device in devices)
        times = ", ".join(_device_time(device) for device in devices)
        name = plain(choice.label) if choice else "no choice has a time"
        spans: list[Span] = [(f" {devices[0].tuning.device}:{where}", "accent"), (f"  {name}", "")]
        lines.append((*spans, (f"  {times}", "dim")))
    return lines


def shared_note(row: Row) -> str:
    """Why the time of some choices is in doubt; empty where it is not."""
    rows = row.devices or (row,)
    if not any(choice.shared for each in rows for choice in each.tuning.choices):
        return ""
    return (
        "?: the cache has one time for ATen and other choices that are the same on all devices, "
        "that of the device which tuned last"
    )


def _device_time(row: Row) -> str:
    own = in_use(row)
    return time_text(row.tuning, own, fmt.SUSPECT if own and own.shared else fmt.ONCE)


def verdict(tuning: Tuning, own: Choice | None = None) -> Line:
    """Return who wins, by how much, and what that saves. A tie is shown as a tie, and times that
    were taken once name no winner. Where `own`, a pinned choice, is in use instead of the winner,
    the line compares it with the winner."""
    best, lead = stats.winner(tuning), stats.lead(tuning)
    error = stats.rounding(tuning, best, stats.nearest(tuning))
    if tuning.state == "running":
        return _progress(tuning, best)
    if tuning.state == "cut":
        return _cut(tuning, best)
    if best is None:
        if stats.single(tuning):
            return ((" Not timed: Inductor had no other choice", ""),)
        return ((" No choice has a time", "warn"),)
    spans: list[Span]
    if own is not None and own is not best:
        best, spans = own, _own_verdict(tuning, own, best)
    elif lead is None:
        spans = [(" Only one choice was timed", "")]
    elif stats.measured(tuning, best) is not None:
        spans = _measured_verdict(tuning, best)
    elif (standing := stats.standing(tuning)) in ("tied", "unclear"):
        spans = [
            (" Tie" if standing == "tied" else " Unclear", "strong"),
            (f": the best two are {fmt.percent(lead, error)} apart", ""),
        ]
        spans.append((", less than single timings resolve", "dim"))
    else:
        ahead = fmt.once(fmt.percent(lead, error))
        spans = [(f" {plain(best.label)} is {ahead} ahead", ""), (f" ·{_BY_SINGLE}", "dim")]
    spans += _against_aten(tuning, best)
    rate = stats.tflops(tuning, stats.time_ms(tuning, best))
    if rate is not None:
        text = fmt.throughput(rate, stats.rounding(tuning, best))
        text = fmt.once(text) if stats.once(tuning, best) else text
        spans.append((f" · {text}", ""))
    if benchmark := _benchmark(tuning, best):
        spans.append((f" · {benchmark}", "dim"))
    return tuple(spans)


def _benchmark(tuning: Tuning, choice: Choice | None) -> str:
    return "" if stats.measured(tuning, choice) else benchmark_text(tuning, choice)


def _with_time(tuning: Tuning, choice: Choice, *words: str) -> str:
    """Join the words and the time of a choice, if that is known."""
    return ", ".join((*words, time_text(tuning, choice))).removesuffix(f", {fmt.NONE}")


def _own_verdict(tuning: Tuning, own: Choice, best: Choice) -> list[Span]:
    """Compare the pinned choice, which is in use, with the choice that won the tuning."""
    spans: list[Span] = [(f" {plain(own.label)}", "strong"), (" is in use", "")]
    standing, lead = stats.standing(tuning, own), stats.lead(tuning, own)
    if standing == "clear":
        return [*spans, (f", and fastest by {fmt.percent(lead)}", "good")]
    if standing == "tied":
        return [*spans, (": a tie", "")]
    if standing == "unclear":
        return [*spans, (": unclear whether another is faster", "")]
    better = stats.faster(tuning, own)
    rival = better[1] if better else best
    over = stats.ratio(tuning, own, rival)
    if over is None:
        return spans
    single = stats.once(tuning, own, rival)
    gain = fmt.factor(over, stats.rounding(tuning, own, rival))
    gain = fmt.once(gain) if single else gain
    spans.append((f", {plain(rival.label)} would gain {gain}", "" if single else "warn"))
    ours, theirs = stats.time_ms(tuning, own), stats.time_ms(tuning, rival)
    if ours is not None and theirs is not None and ours > theirs:
        saved = fmt.duration(ours - theirs)
        spans.append((f" · {fmt.once(saved) if single else saved} a call", ""))
    return [*spans, (f" ·{_BY_SINGLE}", "dim")] if single else spans


def _measured_verdict(tuning: Tuning, best: Choice) -> list[Span]:
    """Return the verdict of repeated measurement on the winner, by `stats.standing`."""
    measurement = tuning.measured
    assert measurement is not None
    name, standing = plain(best.label), stats.standing(tuning)
    rivals = [choice for choice in measurement.choices if choice.hash != best.hash]
    if not rivals:
        return [(f" {name}", "strong"), (" was measured alone", "")]
    if standing == "slower":
        first = measurement.choices[0]
        measured = stats.measured(tuning, best)
        by = fmt.percent(measured.ratio - 1) if measured else fmt.NONE
        return [
            (f" {label(tuning, first.hash, first.name)} is {by} faster", "warn"),
            (f" than {name}, which is in use", ""),
        ]
    if standing == "unclear":
        why = f": {counted(measurement.rounds, 'round')} did not decide"
        own = stats.measured(tuning, best)
        if own is not None and own.verdict == "faster":
            why = ": by single times, a choice that was not measured may be as fast"
        return [(" Unclear", "strong"), (why, "")]
    if standing == "tied":
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
        return ": by single times, a choice that was not measured is as fast"
    most = max(abs(choice.ratio - 1) for choice in equal)
    first = equal[0]
    who = label(tuning, first.hash, first.name) if len(equal) == 1 else f"{len(equal)} others"
    return f": {who} as fast, {fmt.percent(most)} apart when measured again"


def measured(tuning: Tuning) -> Line | None:
    """Return how the tuning was measured, and what disturbed that; None where it was not."""
    measurement = tuning.measured
    if measurement is None:
        return None
    facts = conditions(measurement)
    facts += [f"{len(measurement.failed)} could not be run"] if measurement.failed else []
    first, *more = facts
    spans: list[Span] = [(f" Measured: {first}", "dim")]
    spans += [(f" · {fact}", "dim") for fact in more]
    spans += [(f" · {plain(trouble)}", "warn") for trouble in measurement.trouble]
    more = [*exactness(measurement), *filter(None, [machine(measurement)])]
    spans += [(f" · {fact}", "dim") for fact in more]
    return (*spans, (f" · {moment(measurement.when)}", "dim"))


def suspect(row: Row) -> Line | None:
    """Return why the times are not to be believed; None where nothing speaks against them."""
    if row.suspect is None:
        return None
    return ((" Suspect: ", "warn"), (plain(row.suspect), ""))


def _progress(tuning: Tuning, best: Choice | None) -> Line:
    if tuning.awaited is not None:
        return ((f" Waits for rank {tuning.awaited}'s choice", "accent"),)
    total = stats.total(tuning)
    of = f" of {total}" if total else ""
    done = bar(tuning.timed / total if total else 0.0, 12)
    spans: list[Span] = [(" Tuning ", "accent"), (done, "accent")]
    spans.append((f" {tuning.timed}{of} timed", "strong"))
    if tuning.compiled:
        spans.append((f", {tuning.compiled} compiled", ""))
    if best is not None:
        spans.append((f" · best {_with_time(tuning, best, plain(best.label))}", ""))
    return tuple(spans)


def _cut(tuning: Tuning, best: Choice | None) -> Line:
    """Describe a tuning whose end was never read: its winner is unknown."""
    timed, total = len(stats.ranked(tuning)), stats.tried(tuning)
    of = f" of {total:,}" if total > timed else ""
    spans: list[Span] = [
        (" Cut off", "warn"),
        (f": {timed:,}{of} {noun(total if of else timed, 'choice was', 'choices were')} seen", ""),
    ]
    if best is not None:
        spans.append((f" · best of them {_with_time(tuning, best, plain(best.label))}", ""))
    return tuple(spans)


_NOT_FASTER = {
    "tied": " · tied with ATen",
    "unclear": " · unclear whether it is faster than ATen",
    "behind": f" · slower than ATen{_BY_SINGLE}",
}


def _against_aten(tuning: Tuning, best: Choice) -> list[Span]:
    gain, saved = stats.gain(tuning, best), stats.saved_ms(tuning, best)
    rival = stats.aten(tuning)
    if gain is None or saved is None or rival is None:
        return []
    if rival is best:
        return [(" · it is ATen's", "")] if stats.standing(tuning, best) == "clear" else []
    standing = stats.versus(tuning, best, rival)
    if standing == "slower":
        said_before = (
            stats.standing(tuning, best) == "slower"
        )  # the sentence before says what is faster
        return [] if said_before else [(" · slower than ATen", "warn")]
    if standing == "ahead":
        mark = fmt.SUSPECT if rival.shared else fmt.ONCE
        return [
            (f" · {fmt.once(fmt.factor(gain, stats.rounding(tuning, best, rival)), mark)} ATen", "")
        ]
    if standing != "clear":
        return [(_NOT_FASTER.get(standing or "", ""), "")] if standing else []
    return [(f" · {fmt.factor(gain)} ATen, saves {fmt.duration(saved)} a call", "")]


def cost(tuning: Tuning) -> Line:
    """Return what the tuning cost and where it was seen."""
    failed = sum(choice.failed for choice in tuning.choices)
    count = stats.tried(tuning)
    number = counted(count, "choice") if tuning.num_choices is not None else None
    facts = [(number or stats.tried_text(tuning)) + (f", {failed} failed" if failed else "")]
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
    process = tuning.process if tuning.rank is None else f"rank {tuning.rank}"
    facts += [process] if process else []
    facts += [f"precision {tuning.precision}"] if tuning.precision else []
    facts += [selection_text(tuning)] if tuning.selected_by not in (None, "timing") else []
    facts += [_source(tuning.sources)] if tuning.sources else []
    first, *more = map(plain, facts)
    return ((f" {first}", "dim"), *((f" · {fact}", "dim") for fact in more))


def selection_text(tuning: Tuning) -> str:
    """Return why its choice was selected."""
    if tuning.selected_by == "alone":
        return f"chosen alone: {tuning.apart}"
    if tuning.selected_by == "rank" and tuning.decided == tuning.rank:
        return "taken by other ranks"  # who timed it and who took it are one row
    if tuning.selected_by == "rank":
        return f"taken from rank {tuning.decided}" + (f": {tuning.apart}" if tuning.apart else "")
    return _SELECTIONS.get(tuning.selected_by or "", f"selected by {tuning.selected_by}")


_SELECTIONS = {
    "cache": "from cache",
    "only": "only choice",
    "pin": "pinned",
    "deterministic": "deterministic mode",
}


def _source(sources: Sequence[str]) -> str:
    name = sources[0].rsplit("/", 1)[-1]
    more = f" and {len(sources) - 1} more" if len(sources) > 1 else ""
    return f"from {fmt.shorten(name, 30)}{more}"


def pin_line(row: Row) -> Line | None:
    """Return which choice is pinned, in which state and by whom; None without a pin."""
    if row.pin is None:
        return None
    pin, state, own = row.pin.pin, row.pin.state, pinned_choice(row)
    sign = PIN_SIGNS[state]
    facts = [
        *proof_facts(row.pin),
        row.pin.detail,
        pin.note,
        f"by {pin.who}" if pin.who else "",
        moment(pin.when) if pin.when else "",
    ]
    facts += [f"applied again {counted(pin.drifts, 'time')}"] if pin.drifts else []
    return (
        (f" {sign.mark} ", sign.style),
        (f"Pinned to {plain(own[1].label if own else pin.label)}", "strong"),
        (f", {state_text(row.pin)}", sign.style),
        *((f" · {plain(fact)}", "dim") for fact in facts if fact),
    )


def takes(choice: Choice | None, footprints: Mapping[str, Footprint]) -> Line:
    """Return which resources the kernel of this choice uses; blank where they are unknown."""
    footprint = footprints.get(choice.hash or "") if choice else None
    return ((f" {plain(footprint.sentence)}", "dim"),) if footprint else ()


# The same for `show`.


def tuning_facts(row: Row) -> list[tuple[str, str]]:
    """Return name and value of each fact that `show` prints above the choices."""
    tuning, own = row.tuning, in_use(row)
    throughput = stats.tflops(tuning, stats.time_ms(tuning, own))
    rate = fmt.throughput(throughput, stats.rounding(tuning, own))
    again = f", number {row.occurrence:,} with this id" if row.occurrence > 1 else ""
    facts = [
        ("tuning", f"{row.id}{again}, {tuning.state}"),
        ("kernel" if is_kernel(tuning.op) else "operands", stats.all_sizes(tuning)),
        *entry_facts(tuning),
        ("launched", tuning.kernel),
        ("code", tuning.code),
        ("strides", " · ".join(str(list(strides)) for strides in tuning.strides)),
        ("dtypes", ", ".join(tuning.dtypes)),
        ("device", device_name(row) or tuning.device or row.device),
        ("precision", tuning.precision or ""),
        *([] if tuning.entry else [("in use", _in_use(row)), ("fastest", _fastest(row))]),
        ("benchmark", _benchmark(tuning, own)),
        ("throughput", (fmt.once(rate) if stats.once(tuning, own) else rate) if throughput else ""),
        ("saved", _saved(tuning, own)),
        ("suspect", row.suspect or ""),
        ("spent", _spent(row)),
        ("pin", f"{row.pin.pin.label}, {state_text(row.pin)}" if row.pin else ""),
        ("rank", "" if tuning.rank is None else str(tuning.rank)),
        ("choice", selection_text(tuning) if tuning.selected_by in ("rank", "alone") else ""),
        ("sources", ", ".join(plain(source) for source in tuning.sources)),
    ]
    several = _OF_ONE if row.devices else ()
    return [(name, plain(value)) for name, value in facts if value and name not in several]


_OF_ONE = ("in use", "fastest", "benchmark", "throughput", "saved", "suspect", "spent", "rank")
"""Facts of one tuning, which devices do not have in common."""


def _saved(tuning: Tuning, own: Choice | None) -> str:
    """Return what the choice in use saves; empty where it is not known to beat ATen."""
    rival, saved = stats.aten(tuning), stats.saved_ms(tuning, own)
    if (
        own is None
        or rival is None
        or saved is None
        or (standing := stats.versus(tuning, own, rival)) not in ("clear", "ahead")
    ):
        return ""
    if standing == "ahead":
        mark = fmt.SUSPECT if rival.shared else fmt.ONCE
        return f"{fmt.once(fmt.duration(saved), mark)} a call against ATen{_BY_SINGLE}"
    return f"{fmt.duration(saved)} a call against ATen"


def _in_use(row: Row) -> str:
    """Return the choice in use where it is not the fastest."""
    own = in_use(row)
    if own is None or own is stats.winner(row.tuning):
        return ""
    if row.pin is not None:
        return _with_time(row.tuning, own, own.label, "pinned")
    if stats.winner(row.tuning) is None:
        return f"{own.label}; its time and its rivals are unknown"
    why = "by the cache's present times" if row.taken else "which its file names"
    return _with_time(row.tuning, own, own.label, why)


def _fastest(row: Row) -> str:
    tuning = row.tuning
    best, standing = stats.winner(tuning), stats.standing(tuning)
    if best is None or standing is None:
        only = best or (None if in_use(row) else stats.chosen(tuning))
        return only.label if only else ""
    lead, error = stats.lead(tuning), stats.rounding(tuning, best, stats.nearest(tuning))
    if standing == "tied":
        return f"{best.label}, tied with the second ({fmt.percent(abs(lead or 0.0), error)} apart)"
    if standing == "unclear" and tuning.measured is None:
        apart = f"{fmt.percent(lead, error)} apart, less than single timings resolve"
        return f"{best.label}, unclear whether it is the fastest ({apart})"
    if standing == "unclear":
        return f"{best.label}, unclear whether it is the fastest"
    if standing == "slower":
        return f"{best.label} by single timings; another is faster when measured"
    if standing == "ahead":
        return f"{best.label}, {fmt.once(fmt.percent(lead, error))} ahead{_BY_SINGLE}"
    return f"{best.label}, {fmt.percent(lead)} ahead"


def _spent(row: Row) -> str:
    seconds = row.tuning.seconds
    parts = [
        f"{fmt.seconds(value)} {name}"
        for name, value in (
            ("precompiling", seconds.precompile),
            ("prescreening", seconds.prescreen),
            ("benchmarking", seconds.benchmark),
        )
        if value is not None
    ]
    return ", ".join(parts)


def show_text(
    row: Row, only: Choice | None = None, modes: str = "", line: CommandLine = command_line
) -> str:
    """Return what `show` prints: the facts, then every choice, or `only` that choice. `modes` are
    those of its session (`modes_text`)."""
    facts = [*tuning_facts(row), *([("modes", modes)] if modes else [])]
    lines = [hanging(f"{name:<11}", value) for name, value in facts]
    if row.devices and only is None:
        lines += ["", text_table(DEVICE_LINES, row.devices)]
        lines += [f"\n{device_name(device)}\n{choices_text(device)}" for device in row.devices]
    elif row.tuning.choices or row.tuning.entry is None:
        lines += ["", choices_text(row, only)]
    lines += ["", hanging("", note)] if (note := shared_note(row)) else []
    lines += beside_text(row) if only is None else []
    if not all(choice.offered for choice in row.tuning.choices):
        lines += ["", hanging("", APART)]
    measurement = row.tuning.measured
    if measurement is not None and only is None:
        lines += ["", "Measured:", measured_text(row.tuning, measurement)]
        said = sentences(row.tuning, measurement, row.id, row.pin, line)
        lines += ["", *(hanging("", sentence) for sentence in said)]
    return "\n".join(lines)
