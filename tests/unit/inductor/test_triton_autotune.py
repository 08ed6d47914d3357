"""What is recorded of kernels of `@triton.autotune`, from a tuner that works as Triton's does.

Triton itself runs in `tests/torch/triton`; here each step of its tuner is played by hand.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from backend.cache.configs import described
from backend.disk.layout import Layout
from backend.disk.sessions import read_log
from backend.inductor.hooks import recording, triton_autotune
from backend.inductor.hooks.environment import CacheDirs
from backend.inductor.hooks.recording import Recorder
from backend.inductor.hooks.triton_autotune import (
    TunedCall,
    install,
    install_launch_log,
    key_of,
    measuring_wanted,
    wrap_autotuner,
)
from backend.model.events import (
    BenchmarkStarted,
    ChoiceFailed,
    ChoiceSelected,
    ChoiceTimed,
    Event,
    TuningStarted,
)
from backend.model.inductor_kernel import inputs_of

DIGEST = "A" * 52
KEY_HEX = bytes(32).hex()
"""The key of Triton's cache whose folder is DIGEST: zeros in base32."""


class Config:
    def __init__(self, block: int) -> None:
        self.kwargs = {"BLOCK": block}
        self.num_warps, self.num_stages, self.pre_hook = 4, 2, None

    def all_kwargs(self) -> dict[str, int]:
        return {**self.kwargs, "num_warps": self.num_warps}


SMALL, LARGE = Config(16), Config(64)


class Tensor:
    """A value that can be restored."""

    def __init__(self, value: int) -> None:
        self.value = value

    def detach(self) -> Tensor:
        return self

    def clone(self) -> Tensor:
        return Tensor(self.value)


@pytest.fixture
def autotuner(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module such as `triton.runtime.autotuner`, in the place of which it is."""
    cache = SimpleNamespace(get_cache_manager=lambda key, *rest: (key, rest))
    monkeypatch.setitem(sys.modules, "triton.runtime.cache", cache)

    class Autotuner:
        """Times each config, unless `disk` says that the file has them."""

        def __init__(self, times: dict[Any, Any], disk: bool = False) -> None:
            def add_kernel() -> None: ...

            self.base_fn, self.times, self.disk = add_kernel, times, disk
            self.cache: dict[tuple[Any, ...], Any] = {}
            self.configs_timings: dict[Any, Any] = {}
            self.bench_time = 1.5
            self.restore_value: Sequence[str] = ("x", "n")
            self.nargs: dict[str, Any] = {}

        def check_disk_cache(self, run: Any) -> bool:
            cache.get_cache_manager(KEY_HEX, "more")
            return self.disk

        def _bench(self, config: Any) -> Any:
            cache.get_cache_manager("ff")  # as a kernel is compiled
            return self.times[config]

        def run(self, *args: Any, **kwargs: Any) -> str:
            key = (*args, "torch.float32")
            self.nargs = kwargs
            if key not in self.cache:
                if not self.check_disk_cache(run=None):
                    self.times = {c: t for c, t in self.times.items() if self._bench(c) or True}
                self.configs_timings = self.times
                self.best_config = min(self.times, key=lambda c: self.times[c])
                self.cache[key] = self.best_config
            return "launched"

    return SimpleNamespace(Autotuner=Autotuner, get_cache_manager=None)


Heard = list[tuple[str | None, bool]]


@pytest.mark.parametrize("disk", [False, True])
def test_each_first_launch_is_heard_with_the_folder_that_was_read(
    autotuner: Any, disk: bool
) -> None:
    heard: Heard = []
    wrap_autotuner(autotuner, lambda kernel, digest, timed: heard.append((digest, timed)), "lost")
    kernel = autotuner.Autotuner({SMALL: [1.0], LARGE: [0.5]}, disk)
    assert [kernel.run(n) for n in (64, 64, 128)] == ["launched"] * 3
    assert heard == [(DIGEST, not disk)] * 2
    assert autotuner.get_cache_manager("a", 1) == ("a", (1,)), "as before"


def test_only_the_key_that_the_check_asks_for_is_read(autotuner: Any) -> None:
    """Not one of a kernel that is compiled, nor one that was asked for elsewhere before."""
    heard: Heard = []
    wrap_autotuner(autotuner, lambda kernel, digest, timed: heard.append((digest, timed)), "lost")
    kernel = autotuner.Autotuner({SMALL: [1.0]})
    kernel.check_disk_cache = lambda run: False  # as where Triton's files are off
    kernel.run(64)
    assert heard == [(None, True)]


def test_a_launch_within_a_launch_is_heard_on_its_own(autotuner: Any) -> None:
    heard: Heard = []
    wrap_autotuner(autotuner, lambda kernel, digest, timed: heard.append((digest, timed)), "lost")
    inner = autotuner.Autotuner({SMALL: [1.0]}, True)
    outer = autotuner.Autotuner({SMALL: [1.0]})
    bench = outer._bench

    def nested(config: Any) -> Any:
        result = bench(config)
        inner.run(1)
        return result

    outer._bench = nested
    outer.run(64)
    assert heard == [(DIGEST, False), (DIGEST, True)]


def test_what_a_kernel_raises_goes_through_and_what_we_raise_does_not(
    autotuner: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    def hear(kernel: Any, digest: str | None, timed: bool) -> None:
        raise RuntimeError("ours")

    wrap_autotuner(autotuner, hear, "launches are lost")
    assert autotuner.Autotuner({SMALL: [1.0]}).run(64) == "launched"
    assert "launches are lost" in capfd.readouterr().err
    with pytest.raises(ValueError, match="empty"):
        autotuner.Autotuner({}).run(64)


def test_a_call_that_was_tuned_is_given_with_what_the_tuner_restores(autotuner: Any) -> None:
    calls: list[TunedCall] = []
    wrap_autotuner(autotuner, lambda *_: None, "lost", calls.append)
    kernel, x = autotuner.Autotuner({SMALL: [1.0], LARGE: [2.0]}), Tensor(7)
    kernel.run(64, x=x, n=64)
    x.value = 8
    (call,) = calls
    assert call.kernel is kernel and call.digest == DIGEST
    assert (call.args, call.kwargs) == ((64,), {"x": x, "n": 64})
    assert {name: value.value for name, value in call.stood.items()} == {"x": 7}
    autotuner.Autotuner({SMALL: [1.0]}, True).run(64)
    assert len(calls) == 1, "that was read from a file"


def test_a_key_is_plain_values(autotuner: Any) -> None:
    kernel = autotuner.Autotuner({SMALL: [1.0]})
    kernel.run(1)
    kernel.run(64, 2.5, True, None, Path("/x"))
    assert key_of(kernel) == [64, 2.5, True, None, "/x", "torch.float32"]


@pytest.mark.parametrize("disk", [False, True])
def test_a_launch_is_one_line_of_the_process(autotuner: Any, tmp_path: Path, disk: bool) -> None:
    install_launch_log(autotuner, tmp_path)
    kernel = autotuner.Autotuner({SMALL: [1.0], LARGE: [0.5]}, disk)
    for n in (64, 64, 128):
        kernel.run(n)
    lines = (tmp_path / f"{os.getpid()}.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {
            "kernel": "add_kernel",
            "key": [n, "torch.float32"],
            "digest": DIGEST,
            "read": disk,
            "config": described(dict(vars(LARGE)))[0],
        }
        for n in (64, 128)
    ]


def test_a_launch_that_cannot_be_written_is_written_with_the_next(
    autotuner: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "later"
    install_launch_log(autotuner, folder)
    kernel = autotuner.Autotuner({SMALL: [1.0], LARGE: [0.5]})
    kernel.run(64)
    folder.mkdir()
    for n in (64, 128, 256):
        kernel.run(n)
    lines = (folder / f"{os.getpid()}.jsonl").read_text().splitlines()
    assert [json.loads(line)["key"][0] for line in lines] == [64, 128, 256]


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(recording, "home", CacheDirs(tmp_path))
    monkeypatch.setattr(recording.atexit, "register", lambda *_: None)
    return Layout(tmp_path)


def events_of(layout: Layout) -> list[Event]:
    (path,) = layout.sessions.glob("*.jsonl")
    return list(read_log(path)[0])[1:]


def test_a_tuning_that_was_timed_has_the_time_of_each_config(
    autotuner: Any, layout: Layout
) -> None:
    install(autotuner, Recorder())
    small, large, failed = SMALL, LARGE, Config(512)
    kernel = autotuner.Autotuner({small: [2.0, 1.9, 2.1], large: 0.5, failed: [math.inf] * 3})
    kernel.times = {small: [2.0, 1.9, 2.1], large: [0.5], failed: [math.inf] * 3}
    kernel.run(64)
    hashes = [described(dict(vars(config)))[0] for config in (small, large, failed)]
    start, benchmark, first, second, third, selected = events_of(layout)
    now = time.time()
    assert isinstance(start, TuningStarted) and isinstance(benchmark, BenchmarkStarted)
    assert (start.n, start.op, start.precision) == (1, "triton", "")
    assert start.inputs == inputs_of("add_kernel", [64, "torch.float32"], DIGEST)
    assert (start.kernel, start.device, start.dtypes) == ("add_kernel", "cuda", ("torch.float32",))
    assert start.shapes == start.strides == ()
    assert [choice.hash for choice in start.choices] == hashes
    assert all(choice.name and choice.description for choice in start.choices)
    assert start.when == benchmark.when and now - 61.5 < start.when <= now - 1.4
    assert (first, second) == (ChoiceTimed(1, hashes[0], 2.0), ChoiceTimed(1, hashes[1], 0.5))
    assert isinstance(third, ChoiceFailed) and (third.hash, third.phase) == (hashes[2], "benchmark")
    assert isinstance(selected, ChoiceSelected) and abs(selected.when - now) < 60
    assert (selected.n, selected.hash, selected.by) == (1, hashes[1], "timing")
    assert (selected.benchmark_seconds, selected.precompile_seconds) == (1.5, None)


def test_a_tuning_that_a_file_had_is_selected_from_the_cache(
    autotuner: Any, layout: Layout
) -> None:
    install(autotuner, Recorder())
    autotuner.Autotuner({SMALL: [2.0], LARGE: [0.5]}, True).run(64)
    start, selected = events_of(layout)
    assert isinstance(start, TuningStarted) and len(start.choices) == 2
    assert isinstance(selected, ChoiceSelected)
    assert (selected.by, selected.benchmark_seconds) == ("cache", None)
    assert start.when == selected.when and abs(start.when - time.time()) < 60


@pytest.mark.parametrize(
    ("seconds", "argv", "wanted"),
    [("2", "program.py", True), ("0", "program.py", False), ("", "program.py", False),
     ("2", "/torch/_inductor/compile_worker/__main__.py", False)],
)  # fmt: skip
def test_kernels_are_measured_in_the_program_alone_and_where_it_is_requested(
    monkeypatch: pytest.MonkeyPatch, seconds: str, argv: str, wanted: bool
) -> None:
    monkeypatch.setenv("ROCM_TUI_MEASURE_KERNELS", seconds)
    monkeypatch.setattr(sys, "argv", [argv])
    assert measuring_wanted() is wanted


def test_the_configs_of_a_tuned_kernel_are_measured_with_its_times(
    autotuner: Any, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCM_TUI_MEASURE_KERNELS", "2")
    measured: list[tuple[Any, ...]] = []
    monkeypatch.setattr(triton_autotune, "measure", lambda *args: measured.append(args))
    recorder = Recorder()
    install(autotuner, recorder)
    failed = Config(512)
    autotuner.Autotuner({SMALL: [2.0], LARGE: [0.5], failed: [math.inf]}).run(64)
    ((its, key, names, times, _),) = measured
    small, large, other = (described(dict(vars(config))) for config in (SMALL, LARGE, failed))
    assert its is recorder
    assert (key.op, key.precision) == ("triton", "")
    assert key.inputs == inputs_of("add_kernel", [64, "torch.float32"], DIGEST)
    assert names == {small[0]: small[1], large[0]: large[1], other[0]: other[1]}
    assert times == {small[0]: 2.0, large[0]: 0.5}
