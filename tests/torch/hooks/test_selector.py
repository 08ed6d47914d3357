"""Our selector around a stock one that is played by hand: what is offered, recorded and returned.

Whole programs under the selector are run in the other files of this folder.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._inductor import config
from torch._inductor.ir import ChoiceCaller

from backend.disk.layout import Layout
from backend.disk.sessions import read_log
from backend.inductor.hooks import recording
from backend.inductor.hooks.environment import CacheDirs
from backend.inductor.hooks.recording import Recorder
from backend.inductor.hooks.selector import Selector
from backend.inductor.torch import tuning as torch_api
from backend.model.events import (
    BenchmarkStarted,
    ChoiceCompiled,
    ChoiceFailed,
    ChoiceSelected,
    ChoiceTimed,
    Event,
    TuningFailed,
    TuningStarted,
)
from backend.model.problem import TuningKey
from backend.model.tuning import Pin

pytestmark = pytest.mark.torch

PLACE = SimpleNamespace(device=torch.device("cpu"))


class Kernel(ChoiceCaller):  # type: ignore[misc]  # torch gives it no type
    def __init__(self, name: str) -> None:
        super().__init__(name, [], None, "")

    def hash_key(self) -> str:
        return f"{self.name}-c1"


class Pins:
    """A `PinLookup` with one pin or none."""

    def __init__(self, hash: str | None = None) -> None:
        self.hash = hash
        self.asked: list[tuple[TuningKey, str]] = []

    def find(self, key: TuningKey, system_hash: str) -> Pin | None:
        self.asked.append((key, system_hash))
        if self.hash is None:
            return None
        return Pin(key.op, key.inputs, key.precision, self.hash, "it", system_hash, {})


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(recording, "home", CacheDirs(tmp_path))
    monkeypatch.setattr(recording.atexit, "register", lambda *_: None)
    return Layout(tmp_path)


@pytest.fixture
def kernels() -> list[Kernel]:
    return [Kernel("mm"), Kernel("cpp_0")]


@pytest.fixture(autouse=True)
def tuning() -> Iterator[None]:
    with config.patch(max_autotune=True):
        yield


def events_of(layout: Layout) -> list[Event]:
    logs = list(layout.sessions.glob("*.jsonl"))
    return [event for log in logs for event in list(read_log(log)[0])[1:]]


class Stock:
    """Stands for `AlgorithmSelectorCache.__call__`; `seen` are its calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, result: Any = None) -> None:
        self.seen: list[tuple[Any, ...]] = []
        self.result = result
        self.functions: list[list[Any]] = []
        stock = self

        def call(selector: Any, name: str, choices: Any, nodes: Any, layout: Any, *rest: Any,
                 **options: Any) -> Any:  # fmt: skip
            stock.seen.append((name, list(choices), nodes, layout, rest, options))
            stock.functions.append(list(selector.preprocessing_fns))
            if isinstance(stock.result, BaseException):
                raise stock.result
            return stock.result or ("node", choices[0])

        monkeypatch.setattr(torch_api.StockSelector, "__call__", call)


def select(selector: Selector, choices: list[Kernel], **options: Any) -> Any:
    return selector("mm", choices, [], PLACE, **options)


def test_a_selection_is_passed_on_and_recorded(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, kernels: list[Kernel]
) -> None:
    stock, pins = Stock(monkeypatch), Pins()
    selector = Selector(Recorder(), pins)  # type: ignore[arg-type]
    assert select(selector, kernels, extra=7) == ("node", kernels[0])
    assert stock.seen == [("mm", kernels, [], PLACE, (), {"extra": 7})]
    start, selected = events_of(layout)
    assert isinstance(start, TuningStarted) and isinstance(selected, ChoiceSelected)
    assert (start.n, start.op) == (selected.n, "mm") == (1, "mm")
    assert [choice.hash for choice in start.choices] == ["mm-c1", "cpp_0-c1"]
    assert (selected.hash, selected.by) == ("mm-c1", "cache")
    assert pins.asked == [(TuningKey("mm", start.inputs, start.precision), torch_api.system_hash())]
    select(selector, kernels)
    assert [e.n for e in events_of(layout) if isinstance(e, TuningStarted)] == [1, 2]


def test_one_choice_of_a_program_that_does_not_tune_is_no_tuning(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, kernels: list[Kernel]
) -> None:
    Stock(monkeypatch)
    with config.patch(max_autotune=False, max_autotune_gemm=False):
        selector = Selector(Recorder(), Pins())  # type: ignore[arg-type]
        assert select(selector, kernels[:1]) == ("node", kernels[0])
        assert events_of(layout) == []
        select(selector, kernels)
        assert len(events_of(layout)) == 2, "a choice among several is"


def test_the_only_choice_is_selected_for_that(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, kernels: list[Kernel]
) -> None:
    """Some versions return the node alone."""
    Stock(monkeypatch, "node")
    assert select(Selector(Recorder(), Pins()), kernels[1:]) == "node"  # type: ignore[arg-type]
    _, selected = events_of(layout)
    assert isinstance(selected, ChoiceSelected)
    assert (selected.hash, selected.by) == ("cpp_0-c1", "only")


def test_a_pinned_choice_is_all_that_is_offered(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, kernels: list[Kernel]
) -> None:
    stock = Stock(monkeypatch)
    result = select(Selector(Recorder(), Pins("cpp_0-c1")), kernels)  # type: ignore[arg-type]
    assert result == ("node", kernels[1]) and stock.seen[0][1] == [kernels[1]]
    start, selected = events_of(layout)
    assert isinstance(start, TuningStarted) and len(start.choices) == 2
    assert isinstance(selected, ChoiceSelected)
    assert (selected.hash, selected.by) == ("cpp_0-c1", "pin")


@pytest.mark.parametrize(
    ("hash", "deterministic", "said", "by"),
    [
        ("gone-c1", False, "does not hold here", "cache"),
        ("cpp_0-c1", True, "shadowed", "deterministic"),
        (None, True, "", "deterministic"),
    ],
)
def test_a_pin_that_cannot_hold_is_said_and_all_are_offered(
    layout: Layout,
    monkeypatch: pytest.MonkeyPatch,
    kernels: list[Kernel],
    hash: str | None,
    deterministic: bool,
    said: str,
    by: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    stock = Stock(monkeypatch)
    monkeypatch.setattr(torch_api, "deterministic", lambda: deterministic)
    select(Selector(Recorder(), Pins(hash)), kernels)  # type: ignore[arg-type]
    assert stock.seen[0][1] == kernels
    selected = events_of(layout)[-1]
    assert isinstance(selected, ChoiceSelected) and selected.by == by
    err = capfd.readouterr().err
    assert said in err and bool(err) == bool(said)


def test_a_selection_that_fails_fails_as_ever(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, kernels: list[Kernel]
) -> None:
    stock = Stock(monkeypatch, ValueError("no valid choices"))
    selector = Selector(Recorder(), Pins())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no valid choices"):
        select(selector, kernels)
    failed = events_of(layout)[-1]
    assert isinstance(failed, TuningFailed) and "no valid choices" in failed.reason
    stock.result = None
    assert selector.preprocessing_fns, "they are run again after a failure"


def test_functions_of_the_program_choose_before_pins_do_and_once(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, kernels: list[Kernel]
) -> None:
    stock = Stock(monkeypatch)
    selector = Selector(Recorder(), Pins("mm-c1"))  # type: ignore[arg-type]
    calls: list[int] = []

    def without_mm(choices: list[Kernel]) -> list[Kernel]:
        calls.append(len(choices))
        return [choice for choice in choices if choice.name != "mm"]

    selector.preprocessing_fns.append(without_mm)
    select(selector, kernels)
    assert calls == [2] and stock.seen[0][1] == kernels[1:] and stock.functions == [[]]
    assert selector.preprocessing_fns[-1] is without_mm


def test_times_that_are_looked_up_or_measured_are_recorded(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, kernels: list[Kernel]
) -> None:
    selector = Selector(Recorder(), Pins())  # type: ignore[arg-type]
    times = {kernels[0]: 2.0, kernels[1]: 1.0}
    found: list[Any] = []
    precompiled: list[str] = []

    def stock(self: Any, name: str, choices: Any, *_: Any, **__: Any) -> Any:
        precompile = self.make_precompile_fn(choices, "mm", "[]")
        precompiled.append(precompile.precompile_key)
        precompile()
        for benchmark in (None, lambda candidates: dict(times)):
            found.append(self.lookup(choices, "mm", "[]", benchmark, hint_override=None))
        return "node", None

    def compile_all() -> dict[Kernel, float]:
        return {kernels[0]: 0.25}

    compile_all.precompile_key = "key"  # type: ignore[attr-defined]
    monkeypatch.setattr(torch_api.StockSelector, "__call__", stock)
    monkeypatch.setattr(
        torch_api.StockSelector, "make_precompile_fn", lambda self, *_, **__: compile_all
    )
    select(selector, kernels)
    assert found == [{}, times] and precompiled == ["key"]
    _, compiled, benchmark, first, second, selected = events_of(layout)
    assert compiled == ChoiceCompiled(1, "mm-c1", 0.25)
    assert isinstance(benchmark, BenchmarkStarted)
    assert (first, second) == (ChoiceTimed(1, "mm-c1", 2.0), ChoiceTimed(1, "cpp_0-c1", 1.0))
    assert isinstance(selected, ChoiceSelected)
    assert (selected.hash, selected.by) == ("cpp_0-c1", "timing")
    assert selected.benchmark_seconds is not None and selected.precompile_seconds is not None
    assert 0 <= selected.benchmark_seconds < 60 and 0 <= selected.precompile_seconds < 60


def test_what_is_compiled_already_is_not_watched(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, kernels: list[Kernel]
) -> None:
    def no_op() -> None: ...

    monkeypatch.setattr(torch_api.StockSelector, "make_precompile_fn", lambda self, *_, **__: no_op)
    selector = Selector(Recorder(), Pins())  # type: ignore[arg-type]
    assert selector.make_precompile_fn(kernels) is no_op


def test_each_benchmark_of_a_choice_is_recorded_with_its_failure(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, kernels: list[Kernel]
) -> None:
    def benchmark(choice: Kernel, args: Any) -> float:
        if choice.name == "cpp_0":
            raise RuntimeError("out of registers")
        return 1.5

    def stock(self: Any, name: str, choices: Any, *_: Any, **__: Any) -> Any:
        assert self.benchmark_choice(choices[0], None) == 1.5
        with pytest.raises(RuntimeError):
            self.benchmark_choice(choices[1], None)
        return "node", choices[0]

    monkeypatch.setattr(torch_api.StockSelector, "__call__", stock)
    monkeypatch.setattr(torch_api.StockSelector, "benchmark_choice", staticmethod(benchmark))
    select(Selector(Recorder(), Pins()), kernels)  # type: ignore[arg-type]
    _, timed, failed, _ = events_of(layout)
    assert timed == ChoiceTimed(1, "mm-c1", 1.5)
    assert isinstance(failed, ChoiceFailed) and "out of registers" in failed.reason
    assert (failed.hash, failed.phase) == ("cpp_0-c1", "benchmark")


def test_the_other_ranks_have_a_say_before_torch_gets_the_times(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, kernels: list[Kernel]
) -> None:
    """As if another rank had chosen the first: the record is that of the times that decide."""
    from backend.inductor.hooks import agreement

    monkeypatch.setattr(agreement, "settled", lambda tuning, timings: {kernels[0]: 2.0})

    def stock(self: Any, name: str, choices: Any, *_: Any, **__: Any) -> Any:
        times = {kernels[0]: 2.0, kernels[1]: 1.0}
        found = self.lookup(choices, "mm", "[]", lambda _: times, hint_override=None)
        assert found == {kernels[0]: 2.0}
        return "node", None

    monkeypatch.setattr(torch_api.StockSelector, "__call__", stock)
    select(Selector(Recorder(), Pins()), kernels)  # type: ignore[arg-type]
    selected = events_of(layout)[-1]
    assert isinstance(selected, ChoiceSelected) and selected.hash == "mm-c1"


def test_a_selection_that_is_deferred_is_recorded_when_it_is_made(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, kernels: list[Kernel]
) -> None:
    later: list[Any] = []

    def watch(result: Any, choices: Any, on_timings: Any, on_selected: Any) -> bool:
        assert (result, list(choices)) == (("node", None), kernels)
        later.extend([on_timings, on_selected])
        return True

    monkeypatch.setattr(torch_api, "watch_deferred", watch)
    monkeypatch.setattr(torch_api.StockSelector, "__call__", lambda *_, **__: ("node", None))
    select(Selector(Recorder(), Pins()), kernels)  # type: ignore[arg-type]
    assert len(events_of(layout)) == 1
    on_timings, on_selected = later
    on_timings({kernels[0]: 1.0, kernels[1]: math.inf})
    on_selected(kernels[0])
    *_, failed, selected = events_of(layout)
    assert isinstance(failed, ChoiceFailed) and failed.hash == "cpp_0-c1"
    assert isinstance(selected, ChoiceSelected)
    assert (selected.hash, selected.by) == ("mm-c1", "timing")


def test_where_another_choice_took_the_place_of_ours_that_one_is_recorded(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, kernels: list[Kernel]
) -> None:
    kernels[1].replaced_by = kernels[0]
    Stock(monkeypatch, ("node", kernels[1]))
    select(Selector(Recorder(), Pins()), kernels)  # type: ignore[arg-type]
    selected = events_of(layout)[-1]
    assert isinstance(selected, ChoiceSelected) and selected.hash == "mm-c1"
