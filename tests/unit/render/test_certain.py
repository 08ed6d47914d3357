"""No renderer says more than was seen: words of certainty have an interval behind them, shares are
parts of one whole, numbers are finite and have no more digits than their source."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf
from typing import Literal

from hypothesis import given
from hypothesis import strategies as st

from backend.model.choice import MeasuredChoice, Measurement, Verdict
from backend.model.graph import Graph, GraphTimes, TuningUse
from backend.model.tuning import Tuning
from rocm_tui.compare.comparison import compare, whole
from rocm_tui.compare.types import TuningSet
from rocm_tui.ingest.records import GraphSeen, MeasurementSeen, Record, Seen
from rocm_tui.json_output import builtins_of
from rocm_tui.render import compare as compared
from rocm_tui.render import report as reported
from rocm_tui.render.detail import row_verdict, show_text
from rocm_tui.render.history import HistoryJson, history_text
from rocm_tui.render.shares import share_line
from rocm_tui.render.tuning_json import TuningJson
from rocm_tui.render.tunings import cells, tunings_text
from rocm_tui.report.job import report
from rocm_tui.session.history import history
from rocm_tui.session.model import Model, Row
from tests.support.compare_lab import inputs, log, tuning

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
    r"|slower than ATen by single times, not measured"
)
CERTAIN = re.compile(r"\b(faster|slower|fastest|wins|beaten|really|nothing|right|no faster)\b")
NO_NUMBER = re.compile(r"\b(inf|nan|infinity)\b", re.IGNORECASE)


def no_certainty(text: str) -> None:
    assert not CERTAIN.search(HEDGED.sub("", text)), text


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
