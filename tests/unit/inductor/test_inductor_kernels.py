"""Which events a tuning of a kernel of Inductor's becomes, step by step.

Inductor's tuner runs in `tests/torch/triton`; here its kernel and configs are given by hand.
"""

from __future__ import annotations

import os
import time
import weakref
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from backend.inductor.hooks import inductor_kernels
from backend.inductor.hooks.inductor_kernels import KernelWatch
from backend.inductor.torch import autotuner as torch_api
from backend.model.choice import Choice
from backend.model.events import (
    BenchmarkStarted,
    ChoiceAdded,
    ChoiceFailed,
    ChoiceSelected,
    ChoiceTimed,
    Event,
    TuningFailed,
    TuningStarted,
)


class Autotuner:
    """Has two configs, and one that could not be loaded."""


class Recorder:
    def __init__(self) -> None:
        self.events: list[Event] = []
        self.count = 0
        self.write = self.events.append

    def next_number(self) -> int:
        self.count += 1
        return self.count


class Tuner:
    """A tuner of configs by coordinate descent, which times nothing."""

    def compare_config(self, func: Any, candidate: Any, best: Any) -> tuple[bool, float]:
        return True, func(candidate)


def test_two_threads_may_descend_in_one_kernel_at_once() -> None:
    kernel: Any = SimpleNamespace(coordesc_tuner=Tuner())
    taken: list[tuple[Any, ...]] = []

    def descending() -> AbstractContextManager[None]:
        return torch_api.descending(
            kernel, lambda *_: None, lambda *_: None, lambda *args: taken.append(args)
        )

    first, second = descending(), descending()
    first.__enter__()
    second.__enter__()
    for context in (first, second):
        kernel.coordesc_tuner.compare_config(float, 1, 2)
        context.__exit__(None, None, None)
    assert (1, 1.0) in taken and vars(kernel.coordesc_tuner) == {}


def test_a_launch_that_cannot_be_written_is_written_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Launcher:
        def run(self) -> str:
            return "launched"

        bench = run

    config = SimpleNamespace(kwargs={"XBLOCK": 8}, num_warps=4, num_stages=1)
    for name, value in (
        ("tuner", lambda: Launcher),
        ("RUN", "run"),
        ("BENCH", "bench"),
        ("kernel_of_tuner", lambda _: SimpleNamespace(op="pointwise", inputs="gelu[1]")),
        ("launched", lambda _: config),
    ):
        monkeypatch.setattr(torch_api, name, value)
    folder = tmp_path / "later"
    inductor_kernels.install_launch_log(folder)
    kernel = Launcher()
    assert kernel.run() == "launched"
    folder.mkdir()
    for _ in range(3):
        kernel.run()
    assert len((folder / f"{os.getpid()}.jsonl").read_text().splitlines()) == 1


def test_a_kernel_with_a_pin_is_freed_with_its_graph() -> None:
    config = SimpleNamespace(kwargs={"XBLOCK": 8}, num_warps=4, num_stages=1)
    kernel: Any = Autotuner()
    kernel.configs, kernel.compile_results = [config, SimpleNamespace(**vars(config))], []
    undo = torch_api.keep_only(kernel, torch_api.named(config)[0], {})
    assert undo is not None and kernel.configs == [config]
    undo(kernel)
    assert len(kernel.configs) == 2
    gone = weakref.ref(kernel)
    del kernel
    assert gone() is None and undo is not None


@pytest.fixture
def tuner(monkeypatch: pytest.MonkeyPatch) -> Autotuner:
    kernel = SimpleNamespace(
        op="pointwise", inputs="gelu[1]:AAAA", name="triton_poi_0", device_type="cuda",
        dtypes=("torch.float32",),
    )  # fmt: skip
    torch_api = SimpleNamespace(
        kernel_of_tuner=lambda tuner: kernel,
        loaded=lambda tuner: ["x16", "x32"],
        not_loaded=lambda tuner: [("x512", "too many registers")],
        named=lambda config: (f"hash-{config}", f"name-{config}", f"XBLOCK={config[1:]}"),
        members=lambda config: {"XBLOCK": int(config[1:]), "num_warps": 4},
        source_of_tuner=lambda tuner: "/cache/k.py",
        compile_seconds=lambda tuner: 1.25,
    )
    monkeypatch.setattr(inductor_kernels, "torch_api", torch_api)
    return Autotuner()


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def watch(tuner: Autotuner, recorder: Recorder) -> KernelWatch:
    made: Any = KernelWatch(tuner, recorder)  # type: ignore[arg-type]
    return made  # type: ignore[no-any-return]


def test_nothing_is_written_before_a_config_is_timed(
    watch: KernelWatch, recorder: Recorder
) -> None:
    watch.timed("x16", 1.0)
    watch.failed("x16", "benchmark", "no")
    watch.added("x64", "x32")
    watch.selected("x16")
    watch.aborted(ValueError("no"))
    assert recorder.events == [] and watch.times == {}


def test_a_tuning_from_its_first_time_to_its_end(watch: KernelWatch, recorder: Recorder) -> None:
    begun = time.time()
    for _ in range(2):
        watch.benchmarking()
    watch.timed("x16", 2.0)
    watch.timed("x16", 9.0)
    watch.failed("x32", "benchmark", "it crashed")
    watch.failed("x512", "benchmark", "said before")
    watch.added("x16", "x32")
    for _ in range(2):
        watch.added("x64", "x32")
    watch.timed("x64", 1.0)
    watch.seconds = 0.75
    watch.selected("x64")
    start, refused, benchmark, first, crashed, added, second, selected = recorder.events
    assert isinstance(start, TuningStarted) and isinstance(benchmark, BenchmarkStarted)
    assert (start.n, start.op, start.inputs, start.precision) == (
        1,
        "pointwise",
        "gelu[1]:AAAA",
        "",
    )
    assert (start.kernel, start.source, start.device) == ("triton_poi_0", "/cache/k.py", "cuda")
    assert (start.shapes, start.strides, start.dtypes) == ((), (), ("torch.float32",))
    assert start.choices == tuple(
        Choice(f"name-{c}", f"hash-{c}", description=f"XBLOCK={c[1:]}")
        for c in ("x16", "x32", "x512")
    )
    assert refused == ChoiceFailed(1, "hash-x512", "precompile", "too many registers")
    assert benchmark.n == 1 and first == ChoiceTimed(1, "hash-x16", 2.0)
    assert crashed == ChoiceFailed(1, "hash-x32", "benchmark", "it crashed")
    assert isinstance(added, ChoiceAdded) and second == ChoiceTimed(1, "hash-x64", 1.0)
    assert (added.n, added.choice.hash, added.origin) == (1, "hash-x64", "hash-x32")
    assert added.moved == "XBLOCK 32 to 64"
    assert isinstance(selected, ChoiceSelected)
    assert (selected.n, selected.hash, selected.by) == (1, "hash-x64", "timing")
    assert (selected.benchmark_seconds, selected.precompile_seconds) == (0.75, 1.25)
    assert watch.times == {"hash-x16": ("x16", 2.0), "hash-x64": ("x64", 1.0)}
    whens = [start.when, benchmark.when, selected.when]
    assert begun <= whens[0] and whens == sorted(whens) and whens[-1] <= time.time()


def test_a_config_that_is_taken_without_timing_has_no_seconds(
    watch: KernelWatch, recorder: Recorder
) -> None:
    watch.pinned("x32")
    start, refused, selected = recorder.events
    assert isinstance(start, TuningStarted) and isinstance(refused, ChoiceFailed)
    assert isinstance(selected, ChoiceSelected)
    assert (selected.n, selected.hash, selected.by) == (1, "hash-x32", "pin")
    assert (selected.benchmark_seconds, selected.precompile_seconds) == (None, None)


def test_a_tuning_that_fails_says_why(watch: KernelWatch, recorder: Recorder) -> None:
    watch.benchmarking()
    watch.aborted(ValueError("out of memory"))
    failed = recorder.events[-1]
    assert isinstance(failed, TuningFailed) and failed.n == 1
    assert "out of memory" in failed.reason and abs(failed.when - time.time()) < 60


def test_a_kernel_that_is_gone_has_no_end(
    tuner: Autotuner, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = KernelWatch(Autotuner(), recorder)  # type: ignore[arg-type]
    watch.benchmarking()
    watch.selected("x16")
    assert not any(isinstance(event, ChoiceSelected) for event in recorder.events)
