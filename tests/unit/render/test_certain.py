"""No renderer says more than was seen: words of certainty have an interval behind them, shares are
parts of one whole, numbers are finite and have no more digits than their source."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from math import inf
from typing import Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backend.model.choice import Choice, MeasuredChoice, Measurement, Verdict, sort_choices
from backend.model.graph import Graph, GraphTimes, Swap, Trial, TrialArm, TuningUse
from backend.model.tuning import Pin, Tuning
from backend.pins.state import PinStatus
from rocm_tui.compare.comparison import compare, whole
from rocm_tui.compare.types import TuningSet
from rocm_tui.ingest.records import GraphSeen, MeasurementSeen, Record, Seen
from rocm_tui.json_output import builtins_of
from rocm_tui.render import agree as agreed
from rocm_tui.render import compare as compared
from rocm_tui.render import graphs, improve
from rocm_tui.render import report as reported
from rocm_tui.render.detail import device_lines, row_verdict, show_text
from rocm_tui.render.history import HistoryJson, history_text
from rocm_tui.render.jobs import outcome
from rocm_tui.render.pins import pin_effect, pin_warning
from rocm_tui.render.shares import share_line
from rocm_tui.render.side_by_side import facts
from rocm_tui.render.table import text_table
from rocm_tui.render.tuning_json import TuningJson
from rocm_tui.render.tunings import cells, tunings_text
from rocm_tui.report.agreement import Chooser, Selection, agreement, propose
from rocm_tui.report.job import report
from rocm_tui.search.steps import Gain, finished, search_status
from rocm_tui.search.types import GraphGain, GraphProof
from rocm_tui.session.history import history
from rocm_tui.session.model import Model, Row
from tests.support.compare_lab import inputs, log, tuning
from tests.support.search_lab import Bench, additive, advance, run, search_of

State = Literal["none", "unclear", "tied", "faster", "slower", "failed", "one choice", "clipped"]
STATES: tuple[State, ...] = (
    "none", "unclear", "tied", "faster", "slower", "failed", "one choice", "clipped",
)  # fmt: skip
INTERVALS: dict[str, tuple[float, float, float, Verdict]] = {
    "unclear": (1.7, 0.49, 5.94, "unclear"),
    "endless": (1.7, 0.0, inf, "unclear"),
    "tied": (1.001, 0.998, 1.004, "tied"),
    "apart": (1.2, 1.1, 1.3, "slower"),
}
"""Ratio, both ends of its interval, and the verdict that these support."""


@dataclass(frozen=True)
class Problem:
    """One that a session tuned: the times of ATen's and of Triton's kernel, what a measurement said
    of them, and how many calls of them a graph has."""

    state: State
    aten: float
    triton: float
    calls: int
    endless: bool
    devices: int
    beside: bool


TIMES = st.integers(1, 200_000).map(lambda ticks: ticks / 1e4)
PROBLEMS = st.builds(
    Problem,
    st.sampled_from(STATES),
    TIMES,
    TIMES,
    st.integers(0, 9),
    st.booleans(),
    st.integers(1, 3),
    st.booleans(),
)
SESSIONS = st.lists(PROBLEMS, min_size=1, max_size=4)


def tuned(n: int, problem: Problem) -> Tuning:
    times: dict[str, float | None] = {"bmm": problem.aten, "triton_a": problem.triton}
    if problem.state == "one choice":
        return replace(tuning(n, {"bmm": problem.aten}), num_choices=1, selected_by="only")
    if problem.state == "failed":
        times["triton_a"] = None
    if problem.state == "clipped":
        return replace(log(n, times), num_choices=20)
    if problem.beside:
        times["triton_b"] = min(problem.aten, problem.triton) * 1.001
    return tuning(n, times)


def on_devices(one: Tuning, count: int) -> Iterable[Tuning]:
    """As each device of a box tuned it; one alone has no number."""
    for index in range(count if count > 1 and one.session else 0):
        yield replace(one, device_index=index, session=f"s{index}", sources=(f"/c/s{index}.jsonl",))
    if count == 1 or not one.session:
        yield one


def measured(n: int, problem: Problem) -> Measurement | None:
    """By its state Triton's kernel is faster or slower than ATen's, or neither is known."""
    if problem.state not in ("unclear", "tied", "faster", "slower"):
        return None
    kind = "apart" if problem.state in ("faster", "slower") else problem.state
    kind = "endless" if kind == "unclear" and problem.endless else kind
    ratio, low, high, verdict = INTERVALS[kind]
    names = ["bmm", "triton_a"] if problem.state == "slower" else ["triton_a", "bmm"]
    best, other = (f"{name}-0123456789abcdef" for name in names)
    ms, own = problem.aten, "faster" if kind == "apart" else verdict
    width = 0.01 if kind in ("apart", "tied") else high
    choices = (
        MeasuredChoice(best, ms, ms * 0.99, ms * (1 + width), 0.01, 9, 1.0, 1.0, 1.0, own),  # type: ignore[arg-type]
        MeasuredChoice(
            other, ms * ratio, ms * low, ms * max(ratio, high), 0.01, 9, ratio, low, high, verdict
        ),
    )
    return Measurement("bmm", inputs(n), "highest", 5.0, choices, rounds=9)


def model_of(problems: list[Problem], graph_ms: float) -> Model:
    """A session whose one graph calls each problem's choice so often."""
    records: list[Record] = []
    uses = []
    for n, problem in enumerate(problems, start=1):
        one = tuned(n, problem)
        seen = on_devices(one, problem.devices)
        records += [Seen(f"{view.sources[0]}#{n}", view) for view in seen]
        told = measured(n, problem)
        records += [MeasurementSeen(f"/m/{n}", told)] if told else []
        if problem.calls and one.key is not None:
            use = (problem.calls, one.choices[0].hash)
            uses.append(TuningUse("bmm", inputs(n), "highest", *use))
    times = GraphTimes(10, 5, graph_ms)
    records.append(GraphSeen("/g", 1, Graph("aaaaaa1", tunings=tuple(uses)), "s", times, 9.0))
    model = Model()
    model.apply(records)
    return model


HEDGED = re.compile(
    r"unclear whether [^.;\n·]*|unclear which is faster|not known to be faster[^.;\n]*"
    r"|slower than [^.;\n]* by single times, not measured"
    r"|(?m:^fastest +(\S+$|[^\n]*(not measured|unclear whether [^\n]*|tied with [^\n]*)))"
    r"|best of them ~|the best two are|Nothing was measured"
    r"|(?m:^.* by single (numbers|times)$)"
    r"|(?m:^\d+ in both: .*$)|(?m:^single timings are tied up to .*$)"
    r"|some [^;]* (faster|slower) when tried, not confirmed"
    r"|made the graph faster when tried, (and|but) [^\n]*"
)
"""Words of certainty that say themselves how little is known."""
CERTAIN = re.compile(
    r"(?<![~\w])(faster|slower|fastest|best|wins?|won|beaten|really|nothing|right|no gain)\b"
)
TIE = re.compile(r"\b(tie|tied|ties)\b")
HEADING = re.compile(r"(?m)^ *(id|#|at|choice|device|arm|run|rank|graph) .*$")
NO_NUMBER = re.compile(r"\b(inf|nan|infinity)\b", re.IGNORECASE)


def no_certainty(text: str) -> None:
    left = HEDGED.sub("", HEADING.sub("", text))
    assert not CERTAIN.search(left), (CERTAIN.search(left), text)


def no_tie(text: str) -> None:
    left = HEDGED.sub("", HEADING.sub("", text))
    assert not TIE.search(left), text


def decided(row: Row) -> bool:
    told = row.tuning.measured
    return told is not None and any(choice.verdict in ("slower", "tied") for choice in told.choices)


def said(row: Row) -> Iterable[str]:
    yield "".join(text for text, _ in row_verdict(row))
    yield from (text for text, _ in cells(row, 9.0).values())
    yield "".join(text for text, _ in share_line(row.share) or ())


def each(model: Model) -> Iterable[Row]:
    for row in model.listed():
        yield row
        yield from row.devices


@given(SESSIONS, TIMES)
def test_a_row_is_certain_only_of_what_was_decided(
    problems: list[Problem], graph_ms: float
) -> None:
    for row in each(model_of(problems, graph_ms)):
        for text in said(row):
            assert not NO_NUMBER.search(text), text
            if not decided(row):
                no_certainty(text)
        shown = {key: text for key, (text, _) in cells(row, 9.0).items()}
        assert "−" not in shown["lead"]
        if row.tuning.measured is None:
            assert shown["time"][:1] in ("~", "?", "–"), shown
            assert shown["to_gain"] in ("", "–")
            assert not re.search(r"\d\.\d\d+ µs", shown["time"]) or row.tuning.session, shown
        if shown["share"] not in ("", "–"):
            assert shown["share"].startswith("~"), "no profiler saw it"


OPEN: tuple[State, ...] = ("none", "unclear", "one choice", "failed", "clipped")
"""States in which nothing was measured to be faster, slower or as fast."""
UNDECIDED = st.lists(
    PROBLEMS.map(lambda one: replace(one, state=OPEN[one.calls % len(OPEN)])),
    min_size=1,
    max_size=3,
)


def prose(model: Model) -> Iterable[str]:
    """What is printed of the rows of a session, one by one, by every renderer that has them."""
    yield tunings_text(model.listed())
    for row in model.rows():
        yield show_text(row)
        yield history_text(history(model, row))
        yield outcome(row.tuning)
        for choice in row.tuning.choices:
            yield from pin_effect(row, choice)
            yield pin_warning(row.tuning, choice) or ""
            yield show_text(row, choice)
        if len(choices := row.tuning.choices) > 1:
            pin = Pin("bmm", "x", "highest", choices[1].hash or "", "", "s", {})
            pinned = replace(row, pin=PinStatus(pin, "active", ""))
            yield "".join(text for text, _ in row_verdict(pinned))
            yield show_text(pinned)
            lines = facts(row.tuning, choices, {})
            yield "\n".join(" ".join(fact.texts) for fact in lines)
    for row in model.listed():
        yield "\n".join("".join(text for text, _ in line) for line in device_lines(row))
        for choice in row.tuning.choices if row.devices else ():
            yield from pin_effect(row, choice)


@given(UNDECIDED)
def test_no_renderer_knows_what_was_not_decided(problems: list[Problem]) -> None:
    for text in prose(model_of(problems, 1.0)):
        no_certainty(text)
        assert not NO_NUMBER.search(text), text


@given(UNDECIDED)
def test_the_history_of_what_was_not_decided_says_so(problems: list[Problem]) -> None:
    model = model_of(problems, 1.0)
    for row in model.rows():
        events = history(model, row).events
        assert all(e.standing in (None, "tied", "unclear", "ahead") for e in events), events
        lines = history_text(history(model, row)).splitlines()
        for line in (line for line in lines if re.search(r"\d  measured  ", line)):
            assert re.search(r"\bunclear\b", line), line


UNMEASURED = UNDECIDED.map(
    lambda some: [replace(p, state="none") if p.state == "unclear" else p for p in some]
)


@given(UNMEASURED, UNMEASURED)
def test_a_comparison_by_single_times_says_so(one: list[Problem], two: list[Problem]) -> None:
    found = compare(*(whole("", model_of(problems, 1.0)) for problems in (one, two)))
    for line in compared.summary(found):
        assert not re.search(r"\b(lost|gained|slower|faster)\b", line) or re.search(
            r"\bsingle\b|^\d+ in both|unclear", line
        ), line


@given(UNDECIDED, st.sampled_from([1.03, 1.3]))
def test_what_is_apart_by_single_times_is_no_tie(problems: list[Problem], gap: float) -> None:
    """A timer that is too coarse for a gap of 3 % leaves unclear which is faster."""
    apart = [
        replace(each, aten=round(each.triton * gap + 1e-4, 4), beside=False) for each in problems
    ]
    for text in prose(model_of(apart, 1.0)):
        no_tie(text)


@pytest.mark.parametrize(("state", "single"), [("faster", 0.5), ("slower", 0.5), ("faster", 0.999)])
def test_what_was_not_measured_may_be_as_fast(state: State, single: float) -> None:
    """A choice beside the measured ones is ahead of these, or tied with them, by single times."""
    model = model_of([Problem(state, 1.2, 1.0, 0, False, 1, False)], 1.0)
    (row,) = model.rows()
    beside = Choice(name="triton_b", hash="triton_b-9", ms=single)
    choices = sort_choices([*row.tuning.choices, beside])
    best = "triton_a" if state == "faster" else "bmm"
    pin = Pin("bmm", "x", "highest", f"{best}-0123456789abcdef", best, "s", {})
    tuning = replace(row.tuning, choices=choices)
    row = replace(row, tuning=tuning, pin=PinStatus(pin, "active", ""))
    assert f"{best} is in use, pinned" in show_text(row)
    for text in (show_text(row), *(text for text, _ in row_verdict(row))):
        assert "which is right" not in text and "is fastest" not in text, text
    assert cells(row, 9.0)["lead"][0] == ("tie" if single == 0.999 else "unclear")


@given(st.integers(1, 30), st.integers(1, 30), st.booleans())
def test_what_is_made_of_coarse_times_has_two_digits(aten: int, triton: int, beside: bool) -> None:
    """Each time has two digits, so that of no ratio from 1 up two decimals are known."""
    problem = Problem("clipped", aten / 1e4, triton / 1e4, 0, False, 1, beside)
    sides = [model_of([replace(problem, aten=ms)], 1.0) for ms in (problem.aten, 0.0023)]
    comparison = compare(*(whole(name, model) for name, model in zip("ab", sides, strict=True)))
    texts = [*prose(sides[0]), compared.text(comparison), compared.markdown(comparison)]
    for text in texts:
        assert not re.search(r"[1-9]\d*\.\d\d×", text), text
        assert not re.search(r"[1-9]\d\.\d %", text.replace("10.0 % (the", "")), text


CLIPPED = Problem("clipped", 1.0, 2.0, 4, False, 1, False)


@example([CLIPPED], [replace(CLIPPED, aten=2.0, triton=1.0)])
@given(UNDECIDED, UNDECIDED)
def test_ranks_that_differ_do_not_know_which_is_right(
    first: list[Problem], second: list[Problem]
) -> None:
    choosers = [Chooser(f"rank {at}", "", at) for at in (0, 1)]
    selections = [
        Selection(by, row, row.tuning.choices[0])
        for by, problems in zip(choosers, (first, second), strict=True)
        for row in model_of(problems, 1.0).rows()
    ]
    seen = agreement(choosers, selections)
    proposals = [propose(differing) for differing in seen.differing]
    no_certainty("\n".join([agreed.text(seen, proposals), *agreed.footer(seen)]))


VERDICTS: st.SearchStrategy[Verdict] = st.sampled_from(["faster", "tied", "slower", "unclear"])
ARM = st.builds(
    lambda verdict, ratio, end, error: TrialArm(
        (Swap("bmm", "x", "highest", "triton-aa", "triton_a"),),
        ms=ratio, ratio=ratio, ratio_low=ratio * 0.9, ratio_high=end, verdict=verdict,
        error=error, allowed=1e-3,
    ),
    VERDICTS, st.floats(0.2, 5.0), st.sampled_from([6.0, inf]), st.sampled_from([0.0, 1.0]),
)  # fmt: skip


@given(st.lists(ARM, min_size=1, max_size=3))
def test_a_trial_says_of_the_graph_what_its_verdict_says(arms: list[TrialArm]) -> None:
    base = TrialArm((), ms=1.0, ratio=1.0, verdict="tied")
    trial = Trial("b3f21aa", 9.0, (base, *arms), rounds=9)
    line = "".join(text for text, _ in graphs.trial_line(trial) or ())
    texts = [
        "\n".join(graphs.sentences(trial)),
        text_table(graphs.ARMS, graphs.arm_lines(trial)),
        graphs.short(trial),
        line,
    ]
    for text in texts:
        assert not NO_NUMBER.search(text), text
        if {arm.verdict for arm in arms} <= {"tied", "unclear"}:
            no_certainty(text)
    for arm in arms:
        alone = replace(trial, arms=(base, arm))
        line = "".join(text for text, _ in graphs.trial_line(alone) or ())
        for text in (graphs.short(alone), line, "\n".join(graphs.sentences(alone))):
            words = set(CERTAIN.findall(HEDGED.sub("", text))) & {"faster", "slower"}
            assert words == {arm.verdict} & {"faster", "slower"}, text
            assert ("differs" in text) == bool(arm.error), text


@given(
    st.integers(0, 10**6), st.sampled_from([0.0, -0.05, 0.05]), st.booleans(), st.integers(0, 60)
)
def test_a_search_states_no_gain_that_was_not_confirmed(
    seed: int, effect: float, broken: bool, steps: int
) -> None:
    search = search_of(2, 2)
    hashes = frozenset(["triton-0a"]) if broken else frozenset()
    bench = Bench(additive({"triton-1a": effect}), seed=str(seed), noise=0.01, broken=hashes)
    for _ in range(steps):
        search = advance(search, bench)
    ended = improve.no_gain_text(search, 60.0)
    assert ("nothing" in ended) == (finished(search) or not search.tries)
    if search_status(search).sure is not None:
        return
    texts = [improve.news_text(search, None, 9.0), *improve.summary(search)]
    for text in texts:
        no_certainty(text.replace("nothing kept yet", ""))


def test_results_that_say_nothing_are_counted() -> None:
    noisy = run(search_of(1, 3), Bench(additive({}), noise=0.05))
    assert improve.no_gain_text(noisy, 60.0).endswith("faster; 3 results are unclear")
    quiet = run(search_of(1, 3), Bench(additive({}), noise=0.0001))
    assert improve.no_gain_text(quiet, 60.0).endswith("is faster")


@given(VERDICTS, st.floats(0.2, 5.0))
def test_a_gain_or_a_proof_is_named_by_its_verdict(verdict: Verdict, ratio: float) -> None:
    ratio = {"faster": min(ratio, 0.9), "slower": max(ratio, 1.1)}.get(verdict, ratio)
    shared = GraphGain(
        ratio=ratio, low=ratio * 0.99, high=ratio * 1.01, verdict=verdict, before=1.0, after=ratio
    )
    gain = Gain(**asdict(shared), arm=(), processes=5)
    proof = GraphProof(**asdict(shared), graph="b3f21aa", pins=(), pairs=5)
    search = search_of(1, 1)
    texts = [
        text_table(improve.GAINS, [(search.graph, gain)]),
        text_table(improve.PROOFS, [proof]),
    ]
    texts += [improve.proof_figure(proof), improve.note_of(search, gain)]
    for text in texts:
        words = set(CERTAIN.findall(text)) & {"faster", "slower"}
        assert words == {verdict} & {"faster", "slower"}, text


@given(SESSIONS, TIMES)
def test_shares_of_a_program_are_parts_of_it(problems: list[Problem], graph_ms: float) -> None:
    sums: dict[str, float] = defaultdict(float)
    for row in model_of(problems, graph_ms).rows():
        if row.share is not None and row.share.share is not None:
            sums[row.share.program] += row.share.share
    assert all(total <= 1 + 1e-9 for total in sums.values())


@given(SESSIONS, SESSIONS, TIMES)
def test_texts_and_json_have_only_finite_numbers(
    before: list[Problem], after: list[Problem], graph_ms: float
) -> None:
    a, b = model_of(before, graph_ms), model_of(after, graph_ms)
    comparison = compare(whole("a", a), whole("b", b))
    job = report(whole("a", a))
    histories = [history(a, row) for row in a.rows()]
    texts = [
        tunings_text(a.listed()),
        *map(show_text, a.listed()),
        *map(history_text, histories),
        compared.text(comparison),
        compared.markdown(comparison),
        reported.text(job),
    ]
    assert not [text for text in texts if NO_NUMBER.search(text)]
    documents = [
        *map(TuningJson.of, a.listed()),
        *map(HistoryJson.of, histories),
        compared.ComparisonJson.of(comparison),
        reported.ReportJson.of(job),
    ]
    for document in documents:
        json.dumps(builtins_of(document), allow_nan=False)
    for past in histories:
        for event in past.events:
            assert event.standing in (None, "tied", "unclear", "ahead", "clear"), event


@given(SESSIONS, SESSIONS)
def test_a_comparison_agrees_with_its_rows(before: list[Problem], after: list[Problem]) -> None:
    sets: list[TuningSet] = [whole("", model_of(problems, 1.0)) for problems in (before, after)]
    found = compare(*sets)
    for pair in found.common:
        if pair.verdict in ("faster", "slower"):
            assert pair.high < 1 or pair.low > 1, pair.reason
    verdicts = {pair.verdict for pair in found.common}
    printed = "\n".join(compared.summary(found))
    if verdicts == {"unclear"}:
        assert found.totals.a_ms == found.totals.b_ms == 0.0
        assert " %)" not in printed and "nothing is slower" not in printed
    if "unclear" in verdicts:
        assert "nothing lost" not in printed and "no difference" not in printed
    totals = found.totals
    decided_ms = sum(
        pair.lost_total_ms for pair in found.common if pair.verdict in ("faster", "slower")
    )
    assert abs(totals.lost_ms - totals.gained_ms - decided_ms) < 1e-9


@given(SESSIONS)
def test_a_report_is_certain_only_of_what_was_decided(problems: list[Problem]) -> None:
    part = whole("", model_of(problems, 1.0))
    job = report(part)
    for gain in job.savings.gains:
        if not gain.measured or gain.undecided:
            continue
        assert decided(gain.row) or gain.saved_ms == 0.0
    (sentence,) = reported.saved_lines(job.savings)[:1] if job.savings.gains else [""]
    if not any(decided(row) for row in part.rows):
        assert "saves nothing" not in sentence or all(
            gain.saved_ms == 0.0 for gain in job.savings.valued
        )
