"""What is known of a tuning and of its process after each event of a session's log."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest

from backend.model.choice import Choice
from backend.model.events import (
    ActivityChanged,
    BenchmarkStarted,
    ChoiceAdded,
    ChoiceCompiled,
    ChoiceFailed,
    ChoiceSelected,
    ChoiceTimed,
    GraphCalled,
    GraphCompiled,
    ProcessExited,
    RankAwaited,
    RanksAsked,
    SessionEnded,
    TuningFailed,
    TuningStarted,
)
from backend.model.graph import Graph
from backend.model.session import Activity, Session
from backend.model.tuning import LATEST, Seconds, Tuning
from rocm_tui.ingest.formats.event_folds import (
    ActivityFold,
    GraphFolds,
    OfTuning,
    TuningFold,
    TuningProgress,
    clean_choice,
    finite,
    given,
)
from rocm_tui.ingest.records import ActivitySeen, GraphSeen

MM, FAST, BAD = Choice("mm", "mm-b"), Choice("triton_mm_1", "triton-a"), Choice("t2", "triton-c")
STARTED = TuningStarted(
    1, 5.0, "mm", "x", "highest", ((2, 3), (3, 4)), ((3, 1), (4, 1)), ("torch.int8",) * 2, "cuda",
    (MM, FAST, BAD), kernel="k", source="/k.py",
)  # fmt: skip
OF = Session("s", rank=3, threads=7)
TIMED = [ChoiceTimed(1, "mm-b", 2.0), ChoiceTimed(1, "triton-a", 1.0)]
FAILED = ChoiceFailed(1, "triton-c", "benchmark", "why\x07")


def fold(*events: OfTuning, session: Session | None = OF) -> TuningFold:
    made = TuningFold.begun(STARTED, session, ("/none.jsonl",))
    for event in events:
        made.take(event)
    return made


def test_a_tuning_from_its_beginning_to_its_end() -> None:
    begun = fold().result()
    assert (begun.op, begun.shapes, begun.strides) == ("mm", *(STARTED.shapes, STARTED.strides))
    assert (begun.dtypes, begun.device, begun.inputs_key) == (STARTED.dtypes, "cuda", "x")
    assert (begun.precision, begun.num_choices, begun.when) == ("highest", 3, 5.0)
    assert (begun.rank, begun.session, begun.threads, begun.state) == (3, "s", 7, "running")
    assert (begun.kernel, begun.code, begun.sources) == ("k", "/k.py", ("/none.jsonl",))
    assert {choice.hash for choice in begun.choices} == {"mm-b", "triton-a", "triton-c"}
    assert begun.device_index is None and begun.seconds == Seconds()
    alone = fold(session=None).result()
    assert (alone.rank, alone.session, alone.threads) == (None, None, None)

    selected = ChoiceSelected(1, 9.0, "triton-a", "timing", 1.5, 1e300)
    ended = fold(*TIMED, FAILED, selected, ChoiceTimed(1, "new-d", 3.0)).result()
    assert [(c.hash, c.ms, c.failed, c.reason) for c in ended.choices] == [
        ("triton-a", 1.0, False, None), ("mm-b", 2.0, False, None), ("new-d", 3.0, False, None),
        ("triton-c", None, True, "why"),
    ]  # fmt: skip
    assert (ended.state, ended.timed, ended.selected) == ("done", 4, "triton-a")
    assert (ended.selected_by, ended.seconds) == ("timing", Seconds(1.5, None))
    failed = fold(TuningFailed(1, 9.0, "why")).result()
    assert (failed.state, failed.selected) == ("done", None)
    again = TuningFold.reopened(ended)
    again.take(ChoiceTimed(1, "mm-b", 0.5))
    assert [c.ms for c in again.result().choices] == [0.5, 1.0, 3.0, None]
    assert again.result().selected == "triton-a" and again.result().timed == 5


@pytest.mark.parametrize(
    ("ms", "time", "failed"),
    [
        (0.0, 0.0, False),
        (1.0, 1.0, False),
        (inf, None, True),
        (nan, None, True),
        (-1.0, None, True),
    ],
)
def test_a_time_that_is_none_is_a_failure(ms: float, time: float | None, failed: bool) -> None:
    by_hash = {c.hash: c for c in fold(ChoiceTimed(1, "mm-b", ms)).result().choices}
    assert (by_hash["mm-b"].ms, by_hash["mm-b"].failed) == (time, failed)
    assert not by_hash["triton-a"].failed
    empty = fold(ChoiceFailed(1, "mm-b", "compile", "")).result()
    assert [c.reason for c in empty.choices if c.failed] == [None] and empty.timed == 0


COMPILED = ChoiceCompiled(1, "triton-a", 1.0)


@pytest.mark.parametrize(
    ("events", "progress"),
    [
        ([], ("precompiling", 5.0, 0, 2, None)),
        ([COMPILED], ("precompiling", 5.0, 1, 2, None)),
        ([COMPILED, FAILED], ("precompiling", 5.0, 2, 2, None)),
        ([COMPILED] * 3, ("precompiling", 5.0, 2, 2, None)),
        ([ChoiceFailed(1, "triton-c", "compile", "")], ("precompiling", 5.0, 1, 2, None)),
        ([COMPILED, BenchmarkStarted(1, 6.0)], ("tuning", 5.0, 0, 3, None)),
        (TIMED[:1], ("tuning", 5.0, 1, 3, None)),
        ([*TIMED, FAILED], None),
        ([RankAwaited(1, 7.0, 2)], ("waiting", 7.0, 0, 0, 2)),
        ([RankAwaited(1, -7.0, 0)], ("waiting", None, 0, 0, 0)),
        ([RankAwaited(1, 7.0, 2), RankAwaited(1, 8.0, None)], ("precompiling", 5.0, 0, 2, None)),
    ],
)
def test_how_far_it_is(events: list[OfTuning], progress: tuple[Any, ...] | None) -> None:
    if progress == ("precompiling", 5.0, 2, 2, None) and FAILED in events:
        progress = ("tuning", 5.0, 1, 3, None)  # a benchmark failed: they are under way
    found = fold(*events).progress()
    wanted = None
    if progress is not None:
        state, since, done, total, rank = progress
        wanted = TuningProgress(state, "mm", since, done, total, rank)
    assert found == wanted


def test_what_ranks_told_each_other_and_choices_that_come_later() -> None:
    asked = fold(
        RanksAsked(1, 6.0, 2, "mm-b", 0.1, reason="a\x07b"), RankAwaited(1, 7.0, 1)
    ).result()
    assert (asked.decided, asked.apart, asked.awaited) == (2, "ab", 1)
    moved = ChoiceAdded(1, Choice("t3", "triton-d", None, "A=2"), "triton-a", "A\x07")
    added = fold(moved, ChoiceTimed(1, "triton-d", 0.5)).result()
    (choice,) = (c for c in added.choices if c.hash == "triton-d")
    assert (choice.origin, choice.moved, choice.ms) == ("triton-a", "A", 0.5)
    assert added.num_choices == 4


@pytest.mark.parametrize(
    ("seconds", "known"),
    [(None, None), (-1.0, None), (0.0, 0.0), (LATEST, LATEST), (LATEST + 1, None), (nan, None)],
)
def test_times_that_no_calendar_has(seconds: float | None, known: float | None) -> None:
    assert finite(seconds) == known
    folds = GraphFolds("/s")
    when = -1.0 if seconds is None else seconds
    assert not folds.take(GraphCompiled(1, when, Graph("aaaaaa1")), OF)
    (seen,) = folds.changed()
    assert isinstance(seen, GraphSeen) and seen.when == known and seen.session == "s"


def test_a_graph_that_is_compiled_again_keeps_its_calls() -> None:
    folds = GraphFolds("/s")
    folds.take(GraphCompiled(1, 5.0, Graph("aaaaaa1", title="a\x07")), None)
    assert not folds.take(GraphCalled(1, 6.0, 4, 2, 0.0, "device"), None)
    assert not folds.take(GraphCalled(1, 6.0, 0, 0, None), None)
    folds.take(GraphCalled(1, 6.0, 4, 4, 1.0, "device"), None)
    folds.take(GraphCompiled(1, 7.0, Graph("aaaaaa1", title="b")), None)
    (seen,) = folds.changed()
    assert isinstance(seen, GraphSeen) and seen.times is not None and seen.when == 7.0
    assert (seen.graph.title, seen.times.calls, seen.times.by) == ("b", 4, "device")
    assert folds.changed() == [] and seen.session is None


def test_texts_of_choices_and_arguments() -> None:
    dirty = Choice("a\x07", "h\x07", 1.0, "A=\x07", True, "w\x07")
    assert clean_choice(dirty) == Choice("a", "h", 1.0, "A=", True, "w")
    assert clean_choice(Choice()) == Choice()
    assert given("flex_attention", "f(x)") == ((), "f(x)") and given("convolution", "") == ((), "")
    assert given("convolution", "{}")[1] == ""


def process(session: Session, *events: Any) -> list[Activity]:
    """What is said of a process of another host after each event."""
    own, said = ActivityFold("/s"), []
    own.begin(session)
    for event in (None, *events):
        if event is not None:
            own.take(event)
        said += own.changed(None)
    assert all(isinstance(s, ActivitySeen) and (s.source, s.session) == ("/s", "s") for s in said)
    return [each.activity for each in said]


AWAY = Session("s", host="elsewhere.example", torch="2.9", started=5.0)


@pytest.mark.parametrize(
    ("event", "state", "last", "since", "ended", "status"),
    [
        (ActivityChanged(6.0, "compiling"), "unknown", "compiling", 6.0, None, None),
        (ActivityChanged(-6.0, "importing"), "unknown", "importing", None, None, None),
        (ActivityChanged(6.0, "dreaming"), "unknown", "dreaming", 6.0, None, None),
        (ActivityChanged(6.0, "died"), "unknown", "running", 5.0, None, None),
        (ActivityChanged(6.0, "a\nb"), "unknown", "running", 5.0, None, None),
        (SessionEnded(6.0), "done", "running", 5.0, 6.0, None),
        (SessionEnded(LATEST + 1), "done", "running", 5.0, None, None),
        (ProcessExited(6.0, 0), "done", "running", 5.0, 6.0, 0),
        (ProcessExited(6.0, 255), "done", "running", 5.0, 6.0, 255),
        (ProcessExited(6.0, 256), "done", "running", 5.0, 6.0, None),
        (ProcessExited(6.0, -9), "died", "running", 5.0, 6.0, -9),
        (ProcessExited(6.0, -256), "done", "running", 5.0, 6.0, None),
    ],
)
def test_what_a_process_of_another_host_says(
    event: Any, state: str, last: str, since: float, ended: float | None, status: int | None
) -> None:
    begun, *after = process(AWAY, event)
    assert (begun.state, begun.last_state, begun.since) == ("unknown", "running", 5.0)
    now = after[-1] if after else begun
    assert (now.state, now.last_state, now.since) == (state, last, since)
    assert (now.ended, now.status) == (ended, status)
    assert process(Session("s", host="elsewhere.example"))[0].last_state == "starting"


def test_what_it_tunes_is_what_it_does_until_it_ends() -> None:
    own = ActivityFold("/s")
    running = TuningProgress("tuning", "mm", 7.0, 2, 3, 1)
    assert own.changed(running) == [], "it is not known whose log that is"
    own.begin(AWAY)
    (seen,) = own.changed(running)
    facts = ("tuning", 7.0, "mm", 2, 3, 1)
    now = seen.activity
    assert (now.last_state, now.since, now.op, now.done, now.total, now.rank) == facts
    assert own.changed(running) == [] and not own.waits and not own.settle()
    own.take(SessionEnded(9.0))
    (seen,) = own.changed(running)
    assert (seen.activity.state, seen.activity.last_state) == ("done", "tuning")


def test_the_device_of_a_log_without_a_cache_is_unknown() -> None:
    made = TuningFold.begun(STARTED, OF, ())
    assert isinstance(made.result(), Tuning) and made.result().device_index is None
