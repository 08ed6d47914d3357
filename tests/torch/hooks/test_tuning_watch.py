"""The events that are written of one tuning: each choice's end once, and the tuning's end once."""

from __future__ import annotations

import contextlib
import math
import time

import pytest
from torch._inductor.ir import ChoiceCaller

from backend.inductor.hooks.tuning_watch import (
    TuningWatch,
    compiling,
    current,
    note_failure,
    note_time,
    selecting,
    started,
    tuning_of,
    tuning_of_any,
    uses_of,
)
from backend.model.events import (
    BenchmarkStarted,
    ChoiceCompiled,
    ChoiceFailed,
    ChoiceSelected,
    ChoiceTimed,
    Event,
    RankAwaited,
    TimesTakenOver,
    TuningFailed,
    TuningStarted,
)
from backend.model.options import text_of_options
from backend.model.problem import TuningKey

pytestmark = pytest.mark.torch

KEY = TuningKey("mm", "[('cpu', 'torch.float32', 4, 8, 8, 1, 0)]", "highest")


class Kernel(ChoiceCaller):  # type: ignore[misc]  # torch gives it no type
    def __init__(self, name: str) -> None:
        super().__init__(name, [], None, f"{name}, which multiplies")

    def hash_key(self) -> str:
        return f"{self.name}-c1"


@pytest.fixture
def kernels() -> list[Kernel]:
    return [Kernel("mm"), Kernel("cpp_0")]


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def watch(kernels: list[Kernel], events: list[Event]) -> TuningWatch:
    return started(1, KEY, kernels, (), events.append)


def later(events: list[Event]) -> list[Event]:
    """All events but the tuning's start."""
    assert isinstance(events[0], TuningStarted)
    return events[1:]


def test_a_choice_leads_to_its_tuning(watch: TuningWatch, kernels: list[Kernel]) -> None:
    assert [tuning_of(kernel) for kernel in kernels] == [watch, watch]
    assert tuning_of(Kernel("mm")) is None
    assert tuning_of_any([Kernel("other"), kernels[1]]) is watch
    assert tuning_of_any([]) is None


def test_a_choice_of_no_recorded_tuning_is_ignored_in_silence(
    watch: TuningWatch, events: list[Event], capsys: pytest.CaptureFixture[str]
) -> None:
    note_time(Kernel("unrecorded"), 1.0)
    note_time(Kernel("unrecorded"), math.inf, ValueError("no"))
    note_failure(Kernel("unrecorded"), "precompile", "no")
    assert later(events) == []
    assert capsys.readouterr().err == ""


def test_each_choice_ends_once(
    watch: TuningWatch, kernels: list[Kernel], events: list[Event]
) -> None:
    first, second = kernels
    note_time(first, 1.5)
    note_time(first, 2.5)
    note_failure(first, "benchmark", "too late")
    note_failure(second, "precompile", ValueError("no such unit"))
    note_time(second, 0.5)
    watch.measuring(0.1)
    watch.looked_up({first: 2.5, second: 0.5})
    timed, failed = later(events)
    assert timed == ChoiceTimed(1, "mm-c1", 1.5)
    assert isinstance(failed, ChoiceFailed) and (failed.hash, failed.phase) == (
        "cpp_0-c1",
        "precompile",
    )
    assert "no such unit" in failed.reason


def test_each_choice_is_compiled_once(
    watch: TuningWatch, kernels: list[Kernel], events: list[Event]
) -> None:
    watch.compiled(kernels[0], 0.25)
    watch.all_compiled({kernels[0]: 0.5, kernels[1]: 0.75}, 1.0)
    assert later(events) == [
        ChoiceCompiled(1, "mm-c1", 0.25),
        ChoiceCompiled(1, "cpp_0-c1", 0.75),
    ]


@pytest.mark.parametrize("ms", [math.inf, math.nan, 0.0])
def test_a_time_that_no_kernel_takes_is_a_failure(
    watch: TuningWatch, kernels: list[Kernel], events: list[Event], ms: float
) -> None:
    note_time(kernels[0], ms)
    note_time(kernels[1], ms, ValueError("out of registers"))
    first, second = later(events)
    assert isinstance(first, ChoiceFailed) and isinstance(second, ChoiceFailed)
    assert first.phase == second.phase == "benchmark"
    assert "no time of a kernel" in first.reason and "out of registers" in second.reason


def test_an_error_after_the_selection_is_none_of_the_tuning(
    watch: TuningWatch, kernels: list[Kernel], events: list[Event]
) -> None:
    watch.selected(kernels[0])
    watch.aborted(RuntimeError("while the graph was written"))
    watch.selected(kernels[1])
    (selected,) = later(events)
    assert isinstance(selected, ChoiceSelected) and selected.hash == watch.hash == "mm-c1"


def test_a_tuning_that_failed_selects_nothing(
    watch: TuningWatch, kernels: list[Kernel], events: list[Event]
) -> None:
    watch.aborted(RuntimeError("no choices"))
    watch.aborted(RuntimeError("again"))
    watch.selected(kernels[0])
    (failed,) = later(events)
    assert isinstance(failed, TuningFailed) and "no choices" in failed.reason
    assert watch.hash is None


@pytest.mark.parametrize("benchmarked", [True, False])
def test_without_a_name_the_fastest_choice_was_selected(
    watch: TuningWatch, kernels: list[Kernel], events: list[Event], benchmarked: bool
) -> None:
    if benchmarked:
        watch.measuring(0.25)
        watch.measuring(0.25)
    watch.looked_up({kernels[0]: 2.0, kernels[1]: 1.0})
    watch.selected(None)
    *ends, selected = later(events)
    assert len(ends) == (2 if benchmarked else 0)  # times from the cache are nobody's news
    assert isinstance(selected, ChoiceSelected) and selected.hash == "cpp_0-c1"
    assert (selected.by, selected.benchmark_seconds) == (
        ("timing", 0.5) if benchmarked else ("cache", None)
    )


def test_times_that_come_without_a_lookup_count_once(
    watch: TuningWatch, kernels: list[Kernel], events: list[Event]
) -> None:
    watch.deferred_timings({kernels[0]: 2.0})
    watch.deferred_timings({kernels[1]: 1.0})
    assert later(events) == [ChoiceTimed(1, "mm-c1", 2.0)]


def test_the_start_says_what_is_tuned(events: list[Event], kernels: list[Kernel]) -> None:
    begun = time.time()
    started(7, KEY, kernels, (("beta", (2,)),), events.append)
    (start,) = events
    assert isinstance(start, TuningStarted)
    assert (start.n, start.op, start.inputs, start.precision) == (7, "mm", KEY.inputs, "highest")
    assert begun <= start.when <= time.time()
    assert (start.shapes, start.strides, start.dtypes) == (((4, 8),), ((8, 1),), ("torch.float32",))
    assert (start.device, start.options) == ("cpu", text_of_options((("beta", (2,)),)))
    assert [(choice.name, choice.hash) for choice in start.choices] == [
        ("mm", "mm-c1"),
        ("cpp_0", "cpp_0-c1"),
    ]
    assert start.choices[0].description == "mm, which multiplies"
    events.clear()
    started(8, TuningKey("mm", "[]", "highest"), kernels, (), events.append)
    assert isinstance(events[0], TuningStarted) and events[0].device == ""


def test_each_event_has_its_number_its_time_and_what_happened(
    watch: TuningWatch, kernels: list[Kernel], events: list[Event]
) -> None:
    begun = time.time()
    watch.benchmarking()
    watch.awaits(3)
    watch.taken_over(0, (1, 2), {"mm-c1": 1.0})
    watch.all_compiled({}, 2.5)
    watch.measuring(0.5)
    watch.selected(kernels[0], "rank")
    other = started(2, KEY, kernels, (), lambda event: None)
    assert tuning_of(kernels[0]) is other
    failing = TuningWatch(9, KEY, events.append)
    failing.aborted(RuntimeError("no choices"))
    now = time.time()
    benchmark, awaited, taken, selected, failed = later(events)
    assert isinstance(benchmark, BenchmarkStarted) and benchmark.n == 1
    assert isinstance(awaited, RankAwaited) and (awaited.n, awaited.rank) == (1, 3)
    assert isinstance(taken, TimesTakenOver)
    assert (taken.n, taken.device, taken.devices, taken.timings) == (1, 0, (1, 2), {"mm-c1": 1.0})
    assert isinstance(selected, ChoiceSelected) and isinstance(failed, TuningFailed)
    assert (selected.n, selected.hash, selected.by) == (1, "mm-c1", "rank")
    assert (selected.benchmark_seconds, selected.precompile_seconds) == (0.5, 2.5)
    assert failed.n == 9
    whens = [benchmark.when, awaited.when, taken.when, selected.when, failed.when]
    assert all(begun <= when <= now for when in whens)


def test_without_any_time_no_choice_is_named(
    watch: TuningWatch, kernels: list[Kernel], events: list[Event]
) -> None:
    watch.selected(None)
    assert later(events) == [] and watch.hash is None
    watch.selected(kernels[1])  # it did not end before
    assert watch.hash == "cpp_0-c1"


def test_compiling_is_watched_choice_by_choice(
    watch: TuningWatch, kernels: list[Kernel], events: list[Event]
) -> None:
    """What a choice's own `precompile` returns or raises is torch's; one without is left alone."""
    compiled: list[str] = []
    kernels[0].precompile = lambda: compiled.append("mm") or "result"
    kernels[1].precompile = None
    watch.watch_compiling(kernels)
    assert kernels[1].precompile is None
    assert kernels[0].precompile() == "result" and compiled == ["mm"]
    (event,) = later(events)
    assert isinstance(event, ChoiceCompiled) and event.hash == "mm-c1"
    assert event.seconds is not None and 0 <= event.seconds < 60


def test_a_graph_calls_the_choices_of_the_tunings_within_it(kernels: list[Kernel]) -> None:
    """Not those of a tuning within a tuning, nor of one that failed."""
    tunings = [TuningWatch(n, KEY, lambda event: None) for n in range(4)]
    assert current() is None
    with selecting(tunings[0]):
        pass  # in no graph
    with compiling() as outer:
        assert current() is outer
        for n in (0, 1):
            with selecting(tunings[n]):
                tunings[n].selected(kernels[n])
                with selecting(tunings[2]):
                    pass
        with compiling() as inner:
            assert current() is inner
        with pytest.raises(ValueError, match="no"), selecting(tunings[3]):
            raise ValueError("no")
        with selecting(tunings[0]), contextlib.suppress(ValueError):
            pass
        with selecting(None):
            pass
        assert current() is outer
    assert current() is None and inner.tunings == []
    assert outer.tunings == [tunings[0], tunings[1], tunings[0]]
    uses = uses_of(outer.tunings)
    assert [(use.op, use.inputs, use.precision, use.count, use.hash) for use in uses] == [
        ("mm", KEY.inputs, "highest", 2, "mm-c1"),
        ("mm", KEY.inputs, "highest", 1, "cpp_0-c1"),
    ]
