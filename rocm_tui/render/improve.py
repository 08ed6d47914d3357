"""Searches for a faster graph and proofs of a graph's pins: as text, and as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from backend.counted import counted
from backend.errors import InputsKeyInvalid
from backend.model.graph import (
    Arm,
    Swap,
    TrialArm,
    offers_templates,
    options_of,
    swaps_of,
)
from backend.model.problem import parse_inputs_key
from rocm_tui.harmless import plain
from rocm_tui.json_output import Document, JsonObject, fill
from rocm_tui.render.graphs import compile_call
from rocm_tui.render.table import Field
from rocm_tui.search.steps import (
    ERROR,
    LOOKS,
    MOST_FAILURES,
    Gain,
    SearchStatus,
    best_arm,
    confirmed_by,
    finished,
    search_status,
)
from rocm_tui.search.types import (
    Alone,
    Candidate,
    GraphGain,
    GraphProof,
    MeasureStep,
    Search,
    Step,
    Subject,
    Try,
    agrees,
    results,
    trouble_of,
)
from rocm_tui.session import numbers as fmt
from rocm_tui.session import stats


def subject_title(subject: Subject) -> str:
    """`mm 512×4096 · 4096×4096`, or `options of Inductor and our kernels`."""
    if subject.options:
        names = ["options of Inductor"] * bool(options_of(subject.options))
        return " and ".join([*names, *["our kernels"] * offers_templates(subject.options)])
    try:
        specs = parse_inputs_key(subject.inputs).specs
    except InputsKeyInvalid:
        return plain(subject.op)
    return plain(f"{subject.op} {stats.operands_text(spec.sizes for spec in specs)}")


def gain_text(gain: GraphGain) -> str:
    """`4.4 % faster (3.9 to 4.9 %)`; `tied (-0.2 % to +0.3 %)`."""
    return f"{_change(gain)} ({fmt.between(gain.low, gain.high)})"


def note_of(search: Search, gain: Gain) -> str:
    """What a pin that the search proposes says of itself: the gain, and what that needs besides."""
    beside = beside_pins(gain.arm)
    needs = f" together with {beside}" if beside else ""
    return f"improve: graph {search.graph} {gain_text(gain)}{needs}"


def beside_pins(arm: Arm) -> str:
    """`combo_kernels=True and our kernels`: what an arm changes beside pins; empty if nothing."""
    names = [option.label for option in options_of(arm)]
    names += ["our kernels"] * offers_templates(arm)
    return plain(" and ".join(names))


def proposal_text(arm: Arm) -> str:
    """`1 pin, combo_kernels=True`: what a confirmed arm changes."""
    pins = swaps_of(arm)
    parts = (counted(len(pins), "pin") if pins else "", beside_pins(arm))
    return ", ".join(filter(None, parts))


# How far it is.


def step_text(search: Search, step: Step | None) -> str:
    """`tuning 2 of 7, mm 512×4096 · 4096×4096: 3 choices in the graph`."""
    if step is None:
        return "done"
    if isinstance(step, MeasureStep):
        return f"{_place(search, step.subject)}: measuring its choices alone"
    if step.kind == "screen":
        again = f", sweep {step.turn}" if step.turn > 1 else ""
        options = bool(search.subjects[step.subject].options)
        count = counted(len(step.arms) - 1, "option" if options else "choice")
        return f"{_place(search, step.subject)}{again}: {count} in the graph"
    if step.kind == "prune":
        return f"which of the {len(step.arms) - 1} kept are needed?"
    done = confirmed_by(search, step.turn)
    total = next((look for look in LOOKS if look > done), done + 1)
    return f"confirming in new processes, {done + 1} of {total}"


def _place(search: Search, at: int) -> str:
    subject = search.subjects[at]
    if subject.options:
        return subject_title(subject)
    tunings = [each for each in search.subjects if not each.options]
    return f"tuning {tunings.index(subject) + 1} of {len(tunings)}, {subject_title(subject)}"


def best_text(search: Search) -> str:
    """What is kept so far; the figure is that of the screening, which flatters."""
    now = search_status(search)
    if now.sure is not None and now.sure.arm == now.kept:
        return gain_text(now.sure)
    if not now.kept:
        return "nothing kept yet"
    results_ = (_kept_result(attempt, now) for attempt in search.tries)
    ratios = [better.ratio for better in results_ if better is not None and better.ratio]
    about = (
        f", some {fmt.change(prod(ratios), 'faster')} when tried, not confirmed" if ratios else ""
    )
    return f"{len(now.kept)} kept{about}"


def _kept_result(attempt: Try, now: SearchStatus) -> TrialArm | None:
    """What a trial said of the choice that it added to those kept."""
    kept = best_arm(attempt) if attempt.kind == "screen" else None
    if kept is None or not set(kept) - set(attempt.arms[0]) <= set(now.kept):
        return None
    return next(result for arm, result in results(attempt) if arm == kept)


def news_text(search: Search, step: Step | None, left: float) -> str:
    """The live line: where it is, what is kept, what is left of the budget."""
    return f"{step_text(search, step)}; {best_text(search)}; {fmt.seconds(left)} left"


# What came of it.

GAINS: tuple[Field[tuple[str, Gain]], ...] = (
    Field("graph", "GRAPH", text=lambda pair: pair[0], about="the graph's id"),
    Field(
        "before", "BEFORE", right=True, text=lambda pair: fmt.duration(pair[1].before),
        about="a pass without any pin, as Inductor tunes it",
    ),
    Field(
        "after", "AFTER", right=True, text=lambda pair: fmt.duration(pair[1].after),
        about="a pass with the proposed choices",
    ),
    Field(
        "change", "THE GRAPH IS", right=True, text=lambda pair: _change(pair[1]),
        about="how much faster, from new processes that the search did not choose by",
    ),
    Field(
        "interval", "INTERVAL", right=True,
        text=lambda pair: fmt.between(pair[1].low, pair[1].high),
        about="of that; how sure it is: see docs/model.md",
    ),
    Field(
        "kernels", "KERNELS", right=True, text=lambda pair: _kernels(pair[1]),
        about="how many a pass calls, before and after",
    ),
    Field(
        "output", "OUTPUT", text=lambda pair: _output(pair[1]),
        about="largest difference of an output, over the largest value",
    ),
    Field(
        "processes", "PROCESSES", right=True, text=lambda pair: str(pair[1].processes),
        about="how many were compared",
    ),
)  # fmt: skip


def _change(gain: GraphGain) -> str:
    return (
        fmt.change(gain.ratio, gain.verdict)
        if gain.verdict in ("faster", "slower")
        else gain.verdict
    )


def _kernels(gain: GraphGain) -> str:
    if gain.kernels_before is None or gain.kernels_after is None:
        return fmt.NONE
    if gain.kernels_before == gain.kernels_after:
        return str(gain.kernels_after)
    return f"{gain.kernels_before} → {gain.kernels_after}"


def _output(gain: Gain) -> str:
    if gain.error is None:
        return fmt.NONE
    return "same bits" if gain.error == 0 else f"{gain.error:.0e}"


@dataclass(frozen=True, slots=True)
class PinLine:
    """A proposed pin."""

    subject: Subject
    candidate: Candidate
    graph: TrialArm | None


def alone_text(alone: Alone | None) -> str:
    """Return the measured verdict on a choice against the one that Inductor takes."""
    if alone is None:
        return fmt.NONE
    if alone.verdict == "unclear":
        return f"unclear ({fmt.between(alone.low, alone.high)})"
    return f"{fmt.change(alone.ratio, alone.verdict)} ({fmt.between(alone.low, alone.high)})"


def graph_text(arm: TrialArm | None) -> str:
    """What the trial said in which a choice was found; of many tries, so it flatters."""
    if arm is None or arm.failed:
        return fmt.NONE
    if arm.ratio is None or arm.verdict not in ("faster", "slower"):
        return arm.verdict
    return fmt.change(arm.ratio, arm.verdict)


PINS: tuple[Field[PinLine], ...] = (
    Field("id", "ID", 7, 7, text=lambda line: line.subject.id, about="the tuning's id"),
    Field(
        "op", "OP", 20, 48, text=lambda line: subject_title(line.subject), style="strong",
        about="its op, and every operand's sizes",
    ),
    Field(
        "places", "PLACES", 6, 6, drop=3, right=True,
        text=lambda line: fmt.narrow_count(line.subject.count),
        about="in how many places the graph calls it",
    ),
    Field(
        "from", "FROM", 8, 30, drop=2,
        text=lambda line: plain(line.subject.current.name) if line.subject.current else fmt.NONE,
        about="what Inductor takes",
    ),
    Field(
        "to", "TO", 8, 30, text=lambda line: plain(line.candidate.name),
        about="the choice that makes the graph faster",
    ),
    Field(
        "alone", "THE KERNEL ALONE", 16, 34, drop=1,
        text=lambda line: alone_text(line.candidate.alone),
        about="against the choice that Inductor takes, by `measure`",
    ),
    Field(
        "in_graph", "IN THE GRAPH", 12, 14, text=lambda line: graph_text(line.graph),
        about="the graph with it, in the trial that found it",
    ),
)  # fmt: skip


def no_gain_text(search: Search, budget: float) -> str:
    """Say why a search that ended within `budget` seconds states no gain, without a full stop.

    Only a finished search has shown that there is nothing to find.
    """
    if stopped := search_status(search).stopped:
        return plain(_stopped_text(stopped))
    if finished(search):
        screened = (attempt for attempt in search.tries if attempt.kind == "screen")
        said = [result for attempt in screened for _, result in results(attempt)]
        unclear = sum(result.verdict == "unclear" and not result.failed for result in said)
        text = "nothing was found with which the graph is faster"
        return (
            f"{text}; {counted(unclear, 'result is', 'results are')} unclear" if unclear else text
        )
    spent = f"the budget of {fmt.seconds(budget)} ran out"
    if not search.tries:
        return f"{spent} while preparing; nothing was tried"
    return f"{spent} before the search was finished; no gain is confirmed so far"


def summary(search: Search) -> list[str]:
    """What was tried, in sentences."""
    now = search_status(search)
    lines = [_tried(search)] if search.tries else []
    unfit = (subject for subject in search.subjects if subject.unfit)
    lines += [f"{subject_title(subject)} was not tried: {subject.unfit}" for subject in unfit]
    lines += _wrong(search)
    lines += _retuned(search)
    lines += _unsure(now)
    if now.stopped and now.sure is not None:  # else `no_gain_text` says it
        lines.append(_stopped_text(now.stopped))
    lines += _trouble(search)
    return [plain(line) for line in lines]


def _retuned(search: Search) -> list[str]:
    """What a new tuning alone changed, if it made the graph faster in the last trial with it."""
    trials = (t.trial for t in search.tries if t.kind == "screen" and t.trial is not None)
    control = next((c for trial in reversed([*trials]) if (c := trial.control) is not None), None)
    if control is None or control.ratio is None or control.verdict != "faster":
        return []
    return [
        f"tuned again, with nothing else changed, the graph was "
        f"{fmt.change(control.ratio, 'faster')} in one trial; "
        "the first tuning may have been disturbed"
    ]


def _trouble(search: Search) -> tuple[str, ...]:
    """What disturbed the confirming tries, whose times the search states."""
    return trouble_of(t.trial for t in search.tries if t.kind == "confirm" and t.trial is not None)


def _stopped_text(why: str) -> str:
    return f"the search stopped, because {MOST_FAILURES} trials in a row failed: {why}"


def _tried(search: Search) -> str:
    """`2 of 3 tunings tried: 5 choices in 9 trials, 40 s`."""
    trials = sum(attempt.trial is not None for attempt in search.tries)
    screened = [attempt for attempt in search.tries if attempt.kind == "screen"]
    of_options = {at for at, subject in enumerate(search.subjects) if subject.options}
    shown = {
        (attempt.subject, change)
        for attempt in screened
        for arm, _ in results(attempt)
        for change in set(arm) - set(attempt.arms[0])
    }
    options = counted(sum(at in of_options for at, _ in shown), "option")
    choices = counted(sum(at not in of_options for at, _ in shown), "choice")
    tried = {attempt.subject for attempt in screened} - of_options
    tunings = len(search.subjects) - len(of_options)
    spent = f"in {counted(trials, 'trial')}, {fmt.seconds(search.seconds)}"
    if not tunings:
        return f"{options} tried {spent}"
    options = f"{options} and " if of_options else ""
    return f"{len(tried)} of {counted(tunings, 'tuning')} tried: {options}{choices} {spent}"


def _unsure(now: SearchStatus) -> list[str]:
    """What is kept and not proposed, and why."""
    if not now.kept or (now.sure is not None and now.sure.arm == now.kept):
        return []
    kept = f"{counted(len(now.kept), 'change')} made the graph faster when tried"
    if not now.settled:
        return [f"{kept}, and new processes have not confirmed it yet"]
    if now.gain is None:
        return [f"{kept}, but in new processes its outputs differed"]
    return [
        f"{kept}, but new processes do not confirm it: {now.gain.verdict} "
        f"({fmt.between(now.gain.low, now.gain.high)})"
    ]


def _wrong(search: Search) -> list[str]:
    """Choices that broke, or computed something else."""
    lines: dict[str, None] = {}
    for attempt in search.tries:
        if attempt.kind == "screen" and attempt.failed and len(attempt.arms) == 2:
            lines[f"{_added(attempt, 1)} failed: {attempt.failed}"] = None
        for at, (_, result) in enumerate(results(attempt), 1):
            if attempt.kind != "screen":
                continue
            if result.failed:
                lines[f"{_added(attempt, at)} failed: {result.failed}"] = None
            elif not agrees(result):
                far = "unknown" if result.error is None else f"{result.error:.0e}"
                lines[f"{_added(attempt, at)} was left out: its outputs differ ({far})"] = None
    return list(lines)


def _added(attempt: Try, at: int) -> str:
    rival = [change for change in attempt.arms[at] if change not in attempt.arms[0]]
    return ", ".join(change.label for change in rival) or "the baseline"


SURE = (
    f"Of a hundred searches in which nothing is faster, at most {ERROR * 100:g} propose something."
)


class GraphGainJson(JsonObject):
    """How much faster a graph is; times of a pass in milliseconds."""

    ratio: float | None
    low: float | None
    high: float | None
    verdict: str
    before: float | None
    after: float | None
    kernels_before: int | None
    kernels_after: int | None


class SearchGainJson(GraphGainJson):
    """The confirmed gain of a search. `compile_call` is the line of a program with the options;
    `templates` is true if the gain needs our kernels."""

    processes: int
    error: float | None
    choices: tuple[Swap, ...]
    options: dict[str, str]
    templates: bool
    compile_call: str


class AloneJson(JsonObject):
    """What measuring the kernel of a choice alone found."""

    ms: float | None
    ratio: float | None
    low: float | None
    high: float | None
    verdict: str


class InGraphJson(JsonObject):
    """What one trial found of the graph with a choice. Its outputs are wrong if `error` is more
    than `allowed`. `same`: it compiles to the same code, so it was not timed."""

    ms: float | None
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    verdict: str
    same: bool
    kernels: int | None
    error: float | None
    allowed: float | None
    failed: str


class CandidateJson(JsonObject):
    hash: str
    name: str
    maker: str
    alone: AloneJson | None
    graph: list[InGraphJson]


class SubjectJson(JsonObject):
    """A tuning of the graph, and the choices that were tried for it."""

    id: str
    op: str
    inputs: str
    precision: str
    count: int
    unfit: str
    ruled_out: int
    current: str | None
    candidates: list[CandidateJson]

    @classmethod
    def of(cls, search: Search, at: int) -> SubjectJson:
        subject = search.subjects[at]
        shown = [
            (set(arm) - set(attempt.arms[0]), result, attempt.trial.verdict(result))
            for attempt in search.tries
            if attempt.kind == "screen" and attempt.subject == at and attempt.trial is not None
            for arm, result in results(attempt)
        ]
        candidates = [
            fill(
                CandidateJson,
                candidate,
                alone=candidate.alone and fill(AloneJson, candidate.alone),
                graph=[
                    fill(InGraphJson, result, verdict=verdict)
                    for added, result, verdict in shown
                    if subject.change(candidate) in added
                ],
            )
            for candidate in subject.candidates
        ]
        current = subject.current.hash if subject.current else None
        return fill(cls, subject, current=current, candidates=candidates)


class SearchJson(Document, tag="rocm-tui/improve/1"):
    """A search with all its tries; see docs/model.md."""

    graph: str
    within: float
    seconds: float
    gain: SearchGainJson | None
    unconfirmed: list[str]
    tunings: list[SubjectJson]
    trials: int
    stopped: str
    trouble: tuple[str, ...]

    @classmethod
    def of(cls, search: Search) -> SearchJson:
        now = search_status(search)
        confirmed = now.sure is not None and now.sure.arm == now.kept
        return fill(
            cls,
            search,
            gain=now.sure
            and fill(
                SearchGainJson,
                now.sure,
                choices=swaps_of(now.sure.arm),
                options={option.name: option.value for option in options_of(now.sure.arm)},
                templates=offers_templates(now.sure.arm),
                compile_call=compile_call(now.sure.arm),
            ),
            unconfirmed=[] if confirmed else [change.identity for change in now.kept],
            tunings=[SubjectJson.of(search, at) for at in range(len(search.subjects))],
            trials=sum(attempt.trial is not None for attempt in search.tries),
            stopped=now.stopped,
            trouble=_trouble(search),
        )


class ProvedPinJson(JsonObject):
    id: str
    hash: str
    state: str


class ProofJson(GraphGainJson, Document, tag="rocm-tui/prove/1"):
    """What stock processes show of the pins of a graph."""

    graph: str
    pairs: int
    pins: list[ProvedPinJson]

    @classmethod
    def of(cls, proof: GraphProof) -> ProofJson:
        return fill(cls, proof, pins=[fill(ProvedPinJson, s, s.pin) for s in proof.pins])


def proof_figure(proof: GraphProof) -> str:
    """`prove: graph b3f21aa 4.4 % faster (3.9 to 4.9 %), 5 pairs of stock processes`."""
    pairs = counted(proof.pairs, "pair")
    return f"prove: graph {proof.graph} {gain_text(proof)}, {pairs} of stock processes"


PROOFS: tuple[Field[GraphProof], ...] = (
    Field("graph", "GRAPH", text=lambda proof: proof.graph, about="the graph's id"),
    Field(
        "before", "WITHOUT", right=True, text=lambda proof: fmt.duration(proof.before),
        about="a pass in stock processes without the pins",
    ),
    Field(
        "after", "WITH PINS", right=True, text=lambda proof: fmt.duration(proof.after),
        about="a pass in stock processes with the person's cache dir",
    ),
    Field(
        "result", "THE GRAPH IS", right=True, text=gain_text,
        about="by how much, with the 95 % interval",
    ),
    Field("kernels", "KERNELS", right=True, text=_kernels, about="how many a pass calls"),
    Field(
        "pairs", "PAIRS", right=True, text=lambda proof: str(proof.pairs),
        about="of processes, in drawn order",
    ),
)  # fmt: skip


def proof_sentences(proof: GraphProof) -> list[str]:
    """Return the states of the pins by the compiled graphs that these processes left."""
    count = len(proof.pins)
    lines = [
        f"{status.pin.label} ({status.pin.id}) is {status.state}: {status.detail}"
        for status in proof.contradicted
    ]
    if not lines:
        lines = [f"{counted(count, 'pin')} of the graph, all active"]
    return [plain(line) for line in lines]
