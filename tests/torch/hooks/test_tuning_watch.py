"""The events that are written of one tuning: each choice's end once, and the tuning's end once."""

from __future__ import annotations

import math

import pytest
from torch._inductor.ir import ChoiceCaller

from backend.inductor.hooks.tuning_watch import (
    TuningWatch,
    note_failure,
    note_time,
    started,
    tuning_of,
    tuning_of_any,
)
from backend.model.events import (
    ChoiceCompiled,
    ChoiceFailed,
    ChoiceSelected,
    ChoiceTimed,
    Event,
    TuningFailed,
    TuningStarted,
)
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


def test_work_is_reported_for_each_end_and_each_compile(
    watch: TuningWatch, kernels: list[Kernel]
) -> None:
    calls: list[None] = []
    watch.at_work = lambda: calls.append(None)
    for _ in range(2):
        watch.compiled(kernels[0], 0.1)
        watch.timed(kernels[0], 1.0)
    assert len(calls) == 2


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
