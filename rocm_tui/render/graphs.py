"""Compiled graphs and their trials: as `graphs` and `trial` print them, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import TYPE_CHECKING

from msgspec import field

from backend.counted import counted
from backend.measure.trial import LEAST_PROCESSES, ArmStanding
from backend.measure.verdict import MARGIN
from backend.model.choice import Verdict
from backend.model.graph import (
    RETUNED,
    TEMPLATES,
    Arm,
    CompileOption,
    Graph,
    Swap,
    Trial,
    TrialArm,
    offers_templates,
    options_of,
    swaps_of,
)
from backend.model.tuning import Tuning
from rocm_tui.harmless import plain
from rocm_tui.ingest.records import KernelTime
from rocm_tui.json_output import Document, JsonObject, fill
from rocm_tui.render.measured import CommandLine, command_line, pinnable
from rocm_tui.render.pins import moment
from rocm_tui.render.shares import SIGNS
from rocm_tui.render.table import Field, Line, hanging, text_table
from rocm_tui.search.options import DEFAULT
from rocm_tui.search.types import agrees, best_result, differs
from rocm_tui.session import numbers as fmt
from rocm_tui.session import stats
from rocm_tui.session.graph_rows import GraphRow, GraphTuning

if TYPE_CHECKING:  # types only: what runs programs is not needed to draw a tuning
    from typing_extensions import Self

    from rocm_tui.jobs.program import ProgramRun, ProgramTrial, TableUse


def captured_text(row: GraphRow) -> str:
    """Return whether the graph's text is kept: `yes`, `no`, or `gone`."""
    if row.path is not None:
        return "yes"
    return "gone" if row.graph.captured else "no"


GRAPHS: tuple[Field[GraphRow], ...] = (
    Field("id", "ID", text=lambda row: row.id, about="of the graph's text and its inputs"),
    Field(
        "kind", "KIND", drop=5, text=lambda row: row.graph.kind,
        about="inference, forward or backward",
    ),
    Field(
        "title", "TITLE", text=lambda row: fmt.shorten(plain(row.graph.title), 30),
        about="where in the program it comes from",
    ),
    Field(
        "device", "DEVICE", drop=4, text=lambda row: plain(row.graph.device or ""),
        about="where it runs",
    ),
    Field(
        "nodes", "NODES", drop=8, right=True,
        text=lambda row: fmt.count(row.graph.nodes) if row.graph.nodes else "",
        about="how many ops it has",
    ),
    Field(
        "tunings", "TUNINGS", drop=3, right=True, text=lambda row: fmt.count(len(row.tunings)),
        about="whose choices it calls, as far as they are known",
    ),
    Field(
        "calls", "CALLS", right=True, text=lambda row: fmt.count(row.times.calls),
        about="how often the latest program that has it called it",
    ),
    Field(
        "ms", "A CALL", right=True, text=lambda row: fmt.duration(row.times.ms),
        about="mean time of those of its calls that were timed",
    ),
    Field(
        "share", "SHARE", right=True, text=lambda row: fmt.percent(row.share),
        about="of that program's time in compiled graphs, as far as it was seen",
    ),
    Field(
        "captured", "CAPTURED", drop=6, text=captured_text,
        about="whether its text is kept, for trials; gone: it was removed",
    ),
    Field(
        "program", "PROGRAM", drop=2, text=lambda row: plain(row.program),
        about="that program: its process, or a profiler's trace",
    ),
)  # fmt: skip


def _problem(tuning: GraphTuning) -> str:
    row = tuning.row
    if row is None:
        return tuning.use.inputs
    return f"{stats.sizes_text(row.tuning)} {stats.dtype_of(row.tuning)}"


def _choice(tuning: GraphTuning) -> str:
    choices = tuning.row.tuning.choices if tuning.row else ()
    name = next((choice.label for choice in choices if choice.hash == tuning.use.hash), None)
    return name or tuning.use.hash or fmt.NONE


GRAPH_TUNINGS: tuple[Field[GraphTuning], ...] = (
    Field("id", "TUNING", text=lambda tuning: tuning.use.key.id, about="the tuning's id, for show"),
    Field("op", "OP", text=lambda tuning: plain(tuning.use.op), about="what was tuned"),
    Field(
        "problem", "SHAPE", text=lambda tuning: fmt.shorten(plain(_problem(tuning)), 44),
        about="sizes and types of the operands",
    ),
    Field(
        "count", "COUNT", right=True, text=lambda tuning: fmt.count(tuning.use.count),
        about="how many nodes of the graph call its choice",
    ),
    Field(
        "choice", "CHOICE", text=lambda tuning: fmt.shorten(plain(_choice(tuning)), 36),
        about="the choice that they call",
    ),
    Field(
        "share", "SHARE", right=True,
        text=lambda tuning: fmt.NONE
        if tuning.share is None
        else SIGNS[tuning.basis] + fmt.percent(tuning.share),
        about="of the graph's time; ~ by kernels alone",
    ),
)  # fmt: skip
KERNELS: tuple[Field[KernelTime], ...] = (
    Field("name", "KERNEL", text=lambda kernel: plain(kernel.name), about="as a profiler saw it"),
    Field(
        "count", "A CALL", right=True, text=lambda kernel: f"{kernel.count:g}",
        about="how often a call of the graph runs it",
    ),
    Field(
        "ms", "TIME", right=True, text=lambda kernel: fmt.duration(kernel.ms),
        about="what it takes of such a call",
    ),
)  # fmt: skip
_MOST_KERNELS = 40


def graph_text(row: GraphRow) -> str:
    """What `graphs ID` prints: the facts, its tunings, its kernels where a profiler saw them, and
    its trials."""
    lines = [hanging(f"{name:<11}", value) for name, value in _facts(row)]
    if row.tunings:
        lines += ["", text_table(GRAPH_TUNINGS, row.tunings.values())]
    if row.kernels:
        kernels = _by_name(row.kernels)
        lines += ["", text_table(KERNELS, kernels[:_MOST_KERNELS])]
        more = len(kernels) - _MOST_KERNELS
        lines += [f"and {counted(more, 'more kernel')}"] if more > 0 else []
    if row.trials:
        lines += ["", "Trials:"]
        lines += [f"{moment(trial.when)}  {short(trial)}" for trial in row.trials]
    return "\n".join(lines)


def _by_name(kernels: Iterable[KernelTime]) -> list[KernelTime]:
    """Whatever launched them, longest first."""
    sums: dict[str, KernelTime] = {}
    for kernel in kernels:
        before = sums.get(kernel.name, KernelTime(kernel.name, 0.0, 0.0))
        sums[kernel.name] = replace(
            before, count=before.count + kernel.count, ms=before.ms + kernel.ms
        )
    return sorted(sums.values(), key=lambda kernel: -kernel.ms)


def _facts(row: GraphRow) -> Sequence[tuple[str, str]]:
    graph, times = row.graph, row.times
    by = "events of the device" if times.by == "device" else "the host's clock"
    called = f"{counted(times.calls, 'time')} by {row.program}"
    each = (
        f", {fmt.duration(times.ms)} each (of {counted(times.timed, 'call')}, by {by})"
        if times.ms
        else ""
    )
    kept = str(row.path) if row.path is not None else ""
    why = graph.uncaptured or ("its text was removed" if graph.captured else "not captured")
    facts = [
        ("graph", f"{graph.id}, {graph.kind}"),
        ("title", graph.title),
        ("device", graph.device or ""),
        ("nodes", str(graph.nodes or "")),
        ("key", graph.key or ""),
        ("called", called + each),
        ("share", f"{fmt.percent(row.share)} of that program's time in graphs"),
        ("text", kept or why),
    ]
    return [(name, plain(value)) for name, value in facts if value]


class GraphTuningJson(JsonObject):
    """A tuning whose choice a graph calls."""

    id: str
    op: str
    inputs: str
    precision: str
    count: int
    hash: str | None
    share: float | None
    share_by: str | None

    @classmethod
    def of(cls, tuning: GraphTuning) -> GraphTuningJson:
        by = None if tuning.share is None else tuning.basis
        return fill(cls, tuning, tuning.use, id=tuning.use.key.id, share_by=by)


class GraphJson(JsonObject):
    """A compiled graph and the latest program that called it; unknown values are null."""

    id: str
    kind: str
    key: str | None
    title: str
    device: str | None
    nodes: int
    captured: bool
    uncaptured: str
    calls: int
    timed: int
    ms: float | None
    by: str
    share: float | None
    program: str
    session: str | None
    when: float | None
    path: str | None
    tunings: list[GraphTuningJson]
    kernels: tuple[KernelTime, ...]
    trials: list[TrialJson]

    @classmethod
    def of(cls, row: GraphRow) -> Self:
        return fill(
            cls,
            row,
            row.graph,
            row.times,
            session=row.session.id if row.session else None,
            when=row.when or None,
            path=str(row.path) if row.path else None,
            tunings=[GraphTuningJson.of(tuning) for tuning in row.tunings.values()],
            trials=[TrialJson.of(trial) for trial in row.trials],
        )


BASELINE = "without"
TUNED_AGAIN = "tuned again"
NAMED = 3
"""Kernels that a sentence names."""


@dataclass(frozen=True, slots=True)
class ArmLine:
    """An arm of a trial; `at` counts from the baseline, which is 0."""

    at: int
    arm: TrialArm
    label: str
    trial: Trial


def arm_label(arm: Arm) -> str:
    """`triton_mm_4`; what changes several things joins them by ` + `."""
    names = (TUNED_AGAIN if change == RETUNED else change.label for change in arm)
    return plain(" + ".join(names)) if arm else BASELINE


def arm_lines(trial: Trial) -> list[ArmLine]:
    return [ArmLine(at, arm, arm_label(arm.swaps), trial) for at, arm in enumerate(trial.arms)]


def arm_verdict(trial: Trial, arm: TrialArm) -> str:
    """Return `failed`, `same code`, `as retuned` or the verdict."""
    return "failed" if arm.failed else "same code" if arm.same else trial.verdict(arm)


def _verdict(line: ArmLine) -> str:
    if line.arm.failed:
        return f"failed: {plain(line.arm.failed, 200)}"
    return arm_verdict(line.trial, line.arm) if line.at else "baseline"


def _versus(line: ArmLine) -> str:
    if not line.at or line.arm.ratio is None:
        return ""
    return _difference(line.arm.ratio, line.arm.verdict)


def _difference(ratio: float, verdict: Verdict) -> str:
    """How much longer it takes. Of an unclear result only the interval says something: the two
    medians beside it may differ by another factor."""
    return fmt.NONE if verdict == "unclear" else fmt.signed(ratio - 1)


def interval(arm: TrialArm) -> str:
    """`−4.9 % to −3.9 %`: how much longer a pass takes than that of the baseline."""
    if arm.ratio_low is None or arm.ratio_high is None:
        return ""
    return fmt.signed_range(arm.ratio_low, arm.ratio_high)


def output(arm: TrialArm) -> str:
    """How far the outputs agree with those of the baseline."""
    if arm.error is None:
        return fmt.NONE
    if arm.error == 0:
        return "same bits"
    if not isfinite(arm.error):
        return "differs: not finite"
    beyond = arm.allowed is not None and arm.error > arm.allowed
    return f"{'differs: ' if beyond else ''}{arm.error:.0e}"


ARMS: tuple[Field[ArmLine], ...] = (
    Field(
        "arm", "CHOICE", text=lambda line: line.label,
        about="the choice that was put in place; `without`: as Inductor takes it without pins",
    ),
    Field(
        "verdict", "THE GRAPH IS", text=_verdict,
        about="faster, tied, slower or unclear against the graph without it, the same code, or as "
        "retuned: faster, but not clearly more than with all choices benchmarked again",
    ),
    Field(
        "pass", "A PASS", drop=1, right=True, text=lambda line: fmt.duration(line.arm.ms),
        about="median time of a whole pass of the graph",
    ),
    Field(
        "versus", "VS WITHOUT", right=True, text=_versus,
        about="how much longer than without it a pass takes; – unclear",
    ),
    Field(
        "interval", "INTERVAL", right=True, text=lambda line: interval(line.arm) if line.at else "",
        about="95 % interval of that, of all choices of the trial together",
    ),
    Field(
        "kernels", "KERNELS", drop=2, right=True,
        text=lambda line: fmt.NONE if line.arm.kernels is None else str(line.arm.kernels),
        about="how many kernels a pass calls",
    ),
    Field(
        "output", "OUTPUT", text=lambda line: output(line.arm) if line.at else "",
        about="largest difference of an output from the one without it, over the largest value",
    ),
)  # fmt: skip


def graph_title(graph: Graph) -> str:
    """`graph 1a2b3c4 (forward, Block.forward)`."""
    parts = [graph.kind, *([graph.title] if graph.title else [])]
    return plain(f"graph {graph.id} ({', '.join(parts)})")


def verdict_sentence(trial: Trial, arm: TrialArm) -> str:
    """`the graph is 4.4 % faster (3.9 to 4.9 %) with triton_mm_4`."""
    name = f"{'' if RETUNED in arm.swaps else 'with '}{arm_label(arm.swaps)}"
    if arm.failed:
        return f"the graph cannot be run {name}: {plain(arm.failed, 200)}"
    if arm.ratio is None or arm.ratio_low is None or arm.ratio_high is None:
        return f"the graph was not timed {name}"
    if arm.verdict in ("faster", "slower"):
        by = f"{fmt.change(arm.ratio, arm.verdict)} ({fmt.between(arm.ratio_low, arm.ratio_high)})"
        return f"the graph is {by} {name}{_BUT.get(trial.verdict(arm), '')}"
    if arm.verdict == "tied":
        return f"the graph is as fast {name}, within {MARGIN * 100:g} %"
    if not isfinite(arm.ratio_high):
        return f"it is unclear whether the graph is faster {name}"
    return f"it is unclear whether the graph is faster {name} ({interval(arm)})"


_BUT = {
    "as retuned": ", but not clearly more than when it is only tuned again",
    "unclear": ", but it is unclear whether tuning it again would do the same: that could not be "
    "compared",
}
"""Why an arm that is faster is no gain, by the trial's verdict."""


def changes(arm: TrialArm, baseline: TrialArm) -> str:
    """Which kernels the choice brought and which it made needless; may be empty."""
    if not (arm.gone or arm.added):
        return ""
    parts = [
        f"{verb} {_names(names)}"
        for verb, names in (("calls", arm.added), ("no longer", arm.gone))
        if names
    ]
    text = f"with {arm_label(arm.swaps)} it {', '.join(parts)}"
    if arm.kernels is not None and baseline.kernels not in (None, arm.kernels):
        text += f": {counted(arm.kernels, 'kernel')} a pass instead of {baseline.kernels}"
    return plain(text)


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NAMED])
    return f"{shown} and {len(names) - NAMED} more" if len(names) > NAMED else shown


def sentences(trial: Trial, tuning: Tuning | None = None) -> list[str]:
    """What the trial says of each arm, what `measure` said of its kernel alone, what changed in the
    graph, what disturbed the trial. `tuning` is what all arms have a choice of."""
    baseline, *arms = trial.arms
    texts: list[str] = []
    for arm in arms:
        said = verdict_sentence(trial, arm)
        alone = "" if tuning is None else kernel_alone(tuning, arm)
        texts.append(f"{said[0].upper()}{said[1:]}{alone}.")
        changed = changes(arm, baseline)
        texts += [f"{changed[0].upper()}{changed[1:]}."] if changed else []
        if differs(arm) and arm.error is not None:
            texts.append(
                f"Its output differs by {arm.error:.1e}, more than rounding explains "
                f"({arm.allowed or 0.0:.1e}): {arm_label(arm.swaps)} computes something else."
            )
    if any(arm.verdict == "unclear" and not arm.failed for arm in arms):
        texts.append(
            "A larger --budget or a quieter machine may decide; a difference below "
            f"{MARGIN * 100:g} % needs --processes {LEAST_PROCESSES} or more."
        )
    texts += [*trial.trouble, f"{counted(trial.rounds, 'round')} in {fmt.seconds(trial.seconds)}"]
    return [plain(text) for text in texts]


_ALONE = {"clear": "faster", "slower": "slower", "tied": "as fast", "unclear": "unclear"}


def kernel_alone(tuning: Tuning, arm: TrialArm) -> str:
    """What repeated measurement said of the arm's kernel alone against the one that Inductor takes,
    as the end of a sentence; empty where that is not known."""
    taken = stats.winner(tuning)
    swaps = swaps_of(arm.swaps)
    choice = next((c for c in tuning.choices for s in swaps if c.hash == s.hash), None)
    if taken is None or choice is None or choice.hash == taken.hash or len(arm.swaps) != 1:
        return ""
    ours, theirs = stats.measured(tuning, choice), stats.measured(tuning, taken)
    standing = stats.versus(tuning, choice, taken)
    if ours is None or theirs is None or standing is None:
        return ""
    verdict, name = _ALONE[standing], plain(taken.label)
    if verdict == "unclear":
        return f"; alone, `measure` found no clear difference from {name}"
    by = f"{fmt.percent(abs(ours.ratio / theirs.ratio - 1))} {verdict} than"
    said = f"; its kernel alone is {'as fast as' if verdict == 'as fast' else by} {name}"
    said += ", says `measure`"
    differ = verdict != "as fast" and arm.verdict in ("faster", "slower", "tied")
    return f"{said}: the graph is what counts" if differ and verdict != arm.verdict else said


def pin_command(trial: Trial, tuning: Tuning, id: str, line: CommandLine = command_line) -> str:
    """What to type to have the graph faster; empty where nothing is."""
    best = best_result(trial)
    if best is None or len(best.swaps) != 1 or not swaps_of(best.swaps):
        return ""
    return plain(line("pin", id, pinnable(tuning, best.swaps[0].identity)))


def options_lines(arm: Arm) -> list[str]:
    """Return how a program sets the options of an arm: a call, or lines for a program that passes
    `mode=`, since `torch.compile` takes a mode or options."""
    settings = [option for option in options_of(arm) if option.value != DEFAULT]
    lines = [
        f"  torch._inductor.config.{option.name} = {value_text(option.value)}"
        for option in settings
    ]
    if settings:
        lines = [
            compile_call(arm),
            "or, if it passes mode=, these lines before it compiles, in that thread:",
            *lines,
        ]
    resets = [option.name for option in options_of(arm) if option.value == DEFAULT]
    if resets:
        lines.append(f"without the program's own setting of {' and '.join(resets)}")
    if options := options_of(arm):
        given = " ".join(f"--option {option.label}" for option in options)
        lines.append(f"or, without a change: rocm-tui run {given} -- CMD")
    if offers_templates(arm):
        lines.append("import rocm_tui; rocm_tui.activate(templates=True)")
        lines.append("or, without a change: ROCM_TUI_TEMPLATES=1, with rocm-tui beside torch")
    return [plain(line) for line in lines]


def compile_call(arm: Arm) -> str:
    """Return `torch.compile(model, options={"combo_kernels": True})`; empty without options."""
    settings = [
        f"{json.dumps(option.name)}: {value_text(option.value)}"
        for option in options_of(arm)
        if option.value != DEFAULT
    ]
    return f"torch.compile(model, options={{{', '.join(settings)}}})" if settings else ""


def value_text(value: str) -> str:
    """Return the value as Python writes it."""
    plain_value = value in ("True", "False", "None") or value.lstrip("-").isdecimal()
    return value if plain_value else repr(value)


def short(trial: Trial) -> str:
    """The result in a line, for the list of jobs: `graph 4.4 % faster with triton_mm_4`."""
    arms = [arm for arm in trial.rivals if not arm.failed]
    if not arms:
        return "no choice could be run in the graph"
    best = best_result(trial) or arms[0]
    verdict = arm_verdict(trial, best)
    text = f"graph {verdict}"
    if verdict in ("faster", "slower") and best.ratio is not None:
        text = f"graph {fmt.change(best.ratio, best.verdict)}"
    rest = len(trial.rivals) - 1
    text += f" with {arm_label(best.swaps)}{_DIFFERS if differs(best) else ''}"
    return plain(text + (f"; {rest} more tried" if rest else ""))


_DIFFERS = ", but its output differs"


_STYLES = {"faster": "good", "slower": "bad"}


def trial_line(trial: Trial | None) -> Line | None:
    """`In graph b3f21aa: the graph is 4.4 % faster (3.9 to 4.9 %) with cpp_A`; None without one."""
    if trial is None or not trial.rivals:
        return None
    best = best_result(trial) or trial.rivals[0]
    good = agrees(best) and not best.failed
    style = _STYLES.get(arm_verdict(trial, best), "") if good else ""
    more = len(trial.rivals) - 1
    rest = f" · {more} more tried" if more else ""
    where = f" In graph {plain(trial.graph)}: "
    but = _DIFFERS if differs(best) and not best.failed else ""
    return ((where, "dim"), (f"{verdict_sentence(trial, best)}{but}", style), (rest, "dim"))


# Trials of whole programs.


@dataclass(frozen=True, slots=True)
class _SideLine:
    """What all runs of one side say together; `at` 0 is the baseline."""

    at: int
    side: str
    standing: ArmStanding
    table: TableUse | None = None


def run_line(run: ProgramRun) -> str:
    """One run, as it ends: `pair 2, with the pins: 12.34 ms a step, 40 steps in 3.1 s`."""
    which = f"pair {run.pair}" if run.pair else "to compile, not counted"
    count = f"{counted(run.steps, 'step')} in {fmt.seconds(run.seconds)}"
    return f"{which}, {run.label}: {fmt.duration(run.ms)} a step, {count}"


SIDES: tuple[Field[_SideLine], ...] = (
    Field("side", "PINS", text=lambda line: line.side, about="with the pins, or without them"),
    Field(
        "verdict", "THE PROGRAM IS",
        text=lambda line: line.standing.verdict if line.at else "baseline",
        about="faster, tied, slower, or unclear: with the pins against without",
    ),
    Field(
        "step", "A STEP", right=True, text=lambda line: fmt.duration(line.standing.ms),
        about="median of the runs, of which each gives the median of its steps",
    ),
    Field(
        "versus", "VS WITHOUT", right=True,
        text=lambda line: (
            _difference(line.standing.ratio, line.standing.verdict) if line.at else ""
        ),
        about="how much longer than without the pins a step takes; – unclear",
    ),
    Field(
        "interval", "INTERVAL", right=True,
        text=lambda line: (
            fmt.signed_range(line.standing.ratio_low, line.standing.ratio_high) if line.at else ""
        ),
        about="95 % interval of that, from how the pairs of runs differ",
    ),
)  # fmt: skip


def _table_lookups(line: _SideLine) -> str:
    return fmt.NONE if line.table is None or line.table.path is None else str(line.table.hits)


TABLE_SIDES: tuple[Field[_SideLine], ...] = (
    replace(SIDES[0], name="table", title="TABLE", about="the tuned table of these runs"),
    replace(SIDES[1], about="faster, tied, slower or unclear, with the second table"),
    SIDES[2],
    replace(SIDES[3], title="VS FIRST", about="the time of a step compared with the first table"),
    SIDES[4],
    Field(
        "hits", "HITS", right=True, text=_table_lookups,
        about="distinct lookups of the first run that the table answered",
    ),
)  # fmt: skip


def program_text(trial: ProgramTrial) -> str:
    """A line a side."""
    standings = (trial.standings[0], trial.verdict)
    if trial.tables:
        uses = zip(trial.tables, standings, strict=True)
        lines = [_SideLine(at, use.name, its, use) for at, (use, its) in enumerate(uses)]
        return text_table(TABLE_SIDES, lines)
    sides = zip(("without", "with"), standings, strict=True)
    return text_table(SIDES, [_SideLine(at, *pair) for at, pair in enumerate(sides)])


def program_sentences(trial: ProgramTrial) -> list[str]:
    """What came out, and what makes it doubtful."""
    its = trial.verdict
    with_, first = "with the pins", ""
    if trial.tables:
        with_, first = f"with {trial.tables[1].name}", f" with {trial.tables[0].name}"
    than = f"{with_}{first and ' than'}{first}"
    if trial.unseen:
        names = " or ".join(use.name for use in trial.unseen)
        missed = any(use.misses for use in trial.unseen)
        why = (
            "`rocm-tui lint` names rows that are never used."
            if missed
            else "The program may not call the library, or hide its log."
        )
        said = f"No lookup of {names} was seen to hit: the difference says nothing about it. {why}"
    elif its.verdict in ("faster", "slower"):
        ends = fmt.between(its.ratio_low, its.ratio_high)
        said = f"The program is {fmt.change(its.ratio, its.verdict)} {than} ({ends})."
    elif its.verdict == "tied":
        same = f"{with_}{first and ' as'}{first}"
        said = f"The program is as fast {same}, within {MARGIN * 100:g} %."
    else:
        said = f"It is unclear whether the program is faster {than}."
        fewer = trial.pairs < LEAST_PROCESSES
        more = f"{LEAST_PROCESSES} pairs of runs are needed" if fewer else "more pairs may decide"
        said += f" {more[0].upper()}{more[1:]}: a larger --budget, or --pairs."
    hits = [
        f"{use.name}: {counted(use.hits, 'lookup')} hit, {fmt.count(use.misses)} missed."
        for use in trial.tables
        if use.path is not None
    ]
    pairs = f"{counted(trial.pairs, 'pair')} of runs in {fmt.seconds(trial.seconds)}"
    return [plain(text) for text in (said, *hits, *trial.trouble, pairs)]


class SidesJson(JsonObject):
    """Milliseconds of a step without and with the pins."""

    without: float
    with_: float = field(name="with")


class ProgramRunJson(JsonObject):
    pair: int
    side: str
    ms: float
    steps: int
    seconds: float


class ProgramTrialJson(Document, tag="rocm-tui/trial-program/1"):
    """Runs of a program with the pins and without, and the verdict on the pins."""

    command: tuple[str, ...]
    pairs: int
    seconds: float
    trouble: tuple[str, ...]
    runs: list[ProgramRunJson]
    verdict: str
    ratio: float
    ratio_low: float
    ratio_high: float | None
    ms: SidesJson

    @classmethod
    def of(cls, trial: ProgramTrial) -> ProgramTrialJson:
        without, with_ = trial.standings
        its, ms = trial.verdict, SidesJson(without=without.ms, with_=with_.ms)
        runs = [fill(ProgramRunJson, run) for run in trial.runs]
        return fill(cls, trial, its, runs=runs, verdict=its.verdict, ms=ms)


class TableRunJson(JsonObject):
    """A run of a program with `table`, which is null for no table."""

    pair: int
    table: str | None
    ms: float
    steps: int
    seconds: float


class TableUseJson(JsonObject):
    """The table of a side, null for no table; how many lookups of its first run hit and missed."""

    path: str | None
    entries: int
    hits: int
    misses: int
    ms: float


class TablesTrialJson(Document, tag="rocm-tui/trial-tables/1"):
    """Runs of a program with one tuned table or none, and with another; the verdict on the other.

    It is `unclear` if a table had no hit, whatever the times are.
    """

    command: tuple[str, ...]
    tuner: str
    pairs: int
    seconds: float
    trouble: tuple[str, ...]
    runs: list[TableRunJson]
    verdict: str
    ratio: float
    ratio_low: float
    ratio_high: float | None
    tables: list[TableUseJson]

    @classmethod
    def of(cls, trial: ProgramTrial) -> TablesTrialJson:
        first, other = trial.tables
        its, table_of = trial.verdict, {"without": first.path, "with": other.path}
        runs = [fill(TableRunJson, run, table=table_of[run.side]) for run in trial.runs]
        sides = zip(trial.tables, trial.standings, strict=True)
        tables = [fill(TableUseJson, use, ms=standing.ms) for use, standing in sides]
        named = {"verdict": its.verdict, "tuner": other.tuner, "runs": runs, "tables": tables}
        return fill(cls, trial, its, **named)


class TrialArmJson(JsonObject):
    """An arm of a trial; times in milliseconds, ratios to the baseline. `templates`: our kernels
    are among its choices; `same`: it compiles to the baseline's code, so it has its time."""

    choices: tuple[Swap, ...]
    options: dict[str, str]
    templates: bool
    verdict: str | None
    same: bool
    ms: float | None
    low: float | None
    high: float | None
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    passes: int
    kernels: int | None
    error: float | None
    allowed: float | None
    gone: tuple[str, ...]
    added: tuple[str, ...]
    failed: str

    @classmethod
    def of(cls, trial: Trial, arm: TrialArm) -> TrialArmJson:
        return fill(
            cls,
            arm,
            choices=swaps_of(arm.swaps),
            options={
                change.name: change.value
                for change in arm.swaps
                if isinstance(change, CompileOption) and change != TEMPLATES
            },
            templates=offers_templates(arm.swaps),
            verdict=None if arm.failed else trial.verdict(arm),
        )


class TrialJson(JsonObject):
    """A trial of a graph, baseline first."""

    graph: str
    when: float
    rounds: int
    seconds: float
    by: str
    trouble: tuple[str, ...]
    device: str | None
    torch: str
    arms: list[TrialArmJson]

    @classmethod
    def of(cls, trial: Trial) -> TrialJson:
        return fill(cls, trial, arms=[TrialArmJson.of(trial, arm) for arm in trial.arms])
