"""Whole passes of a compiled graph, arm by arm, to be timed in rounds.

On a GPU a pass is replayed from a CUDA graph where it can be captured, so that no gap between two
kernels is the host's; before each the caches are emptied, as the rest of a model would. On a CPU a
pass is a call.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, TypeVar

import torch
from torch import Tensor

from backend.inductor.sampling.machine import sensor_of
from backend.inductor.sampling.timer import Repeat, timer_for
from backend.inductor.torch import tuning as torch_api
from backend.inductor.torch.choices import Run
from backend.inductor.torch.compiling import CompiledGraph
from backend.measure.rounds import ChoiceBroke, Rounds, Sample
from backend.measure.sensors import DeviceState, SensorWatch
from backend.measure.trial import judge_arms
from backend.model.choice import MeasuredChoice
from backend.model.graph import Clock
from backend.processes.shared import Mark

SEED = 1234
TRIES = 4
"""Samples that are taken until one is clean."""
MOVED_BYTES = 64 << 20
"""Inputs that are together no larger are put elsewhere in memory from block to block."""
COLD_MS, MOST_PARTS = 0.3, 8
"""On a GPU a sample is so many passes that they take about that long, each from empty caches."""
_REFERENCE = ""

T = TypeVar("T")


@dataclass
class ArmRounds(Rounds):
    """Rounds of arms, by number, all compared with arm 0."""

    error: float = 0.05

    def judge(self, look: int, looks: int) -> None:
        """Raises ChoiceBroke where arm 0 is gone: there is nothing to compare with."""
        self.looked = (look, looks)
        if "0" not in self.hashes:
            raise ChoiceBroke("0", self.failed.get("0", "it cannot be run"))
        series = self.judged
        samples = {int(arm): times for arm, times in series.times.items()}
        arms = judge_arms(samples, series.blocks, look=look, looks=looks, error=self.error)
        standings = (
            MeasuredChoice(
                hash=str(arm.arm),
                ms=arm.ms,
                low=arm.low,
                high=arm.high,
                spread=0.0,
                rounds=arm.passes,
                ratio=arm.ratio,
                ratio_low=arm.ratio_low,
                ratio_high=arm.ratio_high,
                verdict=arm.verdict,
            )
            for arm in arms
        )
        if series is self.disturbed:
            standings = (
                replace(arm, verdict="unclear") if arm.hash != "0" else arm for arm in standings
            )
        self.standings = tuple(standings)


class PassBench:
    """Arms by number, as text. `blamed` is what the mark says while an arm runs."""

    def __init__(
        self,
        inputs: Sequence[Any],
        arms: Mapping[str, CompiledGraph],
        device: torch.device,
        mark: Mark,
        blamed: Mapping[str, str],
    ) -> None:
        self._inputs = list(inputs)
        self._arms = arms
        self._device = device
        self._mark, self._blamed = mark, blamed
        self._timer = timer_for(device, "hot" if device.type == "cpu" else "cold")
        self._watch = SensorWatch(sensor_of(device))
        mutated = sorted(set().union(*(arm.mutated for arm in arms.values())))
        self._before = [(at, _memory(self._inputs[at]).clone()) for at in mutated]
        self._runs: dict[str, Run] = {}
        self._repeats: dict[str, Repeat] = {}
        self._captured: dict[str, Run | None] = {}
        self._reference = _product(device)
        self._repeats[_REFERENCE] = self._timer.repeat(self._reference)

    @property
    def clock(self) -> Clock:
        return "host" if self._device.type == "cpu" else "device"

    @property
    def uncaptured(self) -> list[str]:
        """Arms whose passes are no CUDA graphs."""
        return [arm for arm, run in self._captured.items() if run is None]

    def outputs(self, arm: str) -> list[Any]:
        """What a call leaves, its changed inputs behind it. Raises ChoiceBroke."""
        return self._guarded(arm, functools.partial(self._outputs, arm))

    def _outputs(self, arm: str) -> list[Any]:
        self._restore()
        torch.manual_seed(SEED)
        with torch.no_grad():
            results = list(self._arms[arm].call(list(self._inputs)))
        self._timer.wait()
        kept = [value.clone() if isinstance(value, Tensor) else value for value in results]
        del results
        donated = self._arms[arm].donated
        changed = [self._inputs[at].clone() for at, _ in self._before if at not in donated]
        self._restore()
        return [*kept, *changed]

    def renew(self, hashes: Sequence[str]) -> None:
        self._restore()
        if self._device.type == "cpu":
            self._move()
        for arm in hashes:
            self._runs[arm] = self._guarded(arm, functools.partial(self._started, arm))
        if self.uncaptured and len(self.uncaptured) < len(self._captured):
            for arm in hashes:  # all alike: a replayed pass has no gaps
                self._captured[arm] = None
                self._runs[arm] = self._plain(arm)

    def sample(self, hash: str) -> Sample:
        return self._guarded(hash, lambda: self._sample(hash, self._runs[hash]))

    def reference(self) -> Sample:
        return self._sample(_REFERENCE, self._reference)

    def state(self) -> DeviceState:
        return self._watch.state()

    def resolution_ms(self, hash: str) -> float:
        repeat = self._repeats[hash]
        return self._timer.tick_ms / (repeat.parts if self._timer.cold else repeat.calls)

    def close(self) -> None:
        """Give all memory back."""
        self._runs.clear()
        self._captured.clear()
        self._inputs, self._before = [], []
        gc.collect()
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()

    def _started(self, arm: str) -> Run:
        run = self._runs.get(arm) if self._device.type != "cpu" else None
        run = run or self._run_of(arm)
        run()
        self._timer.wait()
        if arm not in self._repeats:
            self._repeats[arm] = self._repeat_of(run)
        return run

    def _run_of(self, arm: str) -> Run:
        run = self._plain(arm)
        if self._device.type == "cpu":
            return run
        call, inputs = self._arms[arm].call, self._inputs
        self._captured[arm] = captured = _captured(run, lambda: call(list(inputs)))
        return captured or run

    def _plain(self, arm: str) -> Run:
        call, inputs = self._arms[arm].call, self._inputs

        def run() -> None:
            with torch.no_grad():
                call(list(inputs))

        return run

    def _repeat_of(self, run: Run) -> Repeat:
        if not self._timer.cold:
            return self._timer.repeat(run)
        once = min(self._timer.sample([run], Repeat()) for _ in range(3))
        return Repeat(parts=max(1, min(MOST_PARTS, ceil(COLD_MS / max(once, 1e-3)))))

    def _sample(self, name: str, run: Run) -> Sample:
        for _ in range(TRIES):
            ms, clean = self._once(name, run)
            if not self._timer.cold and not self._repeats[name].enough(ms):
                self._repeats[name] = self._timer.repeat(run)
            elif clean:
                return Sample(ms)
        return Sample(ms, clean=False)

    def _once(self, name: str, run: Run) -> tuple[float, bool]:
        """Milliseconds of a pass, and whether nobody else took the CPU meanwhile."""
        repeat = self._repeats[name]
        if not self._timer.cold or name == _REFERENCE:
            return self._timer.sample([run], repeat), self._timer.clean
        times, clean = [], True
        for _ in range(repeat.parts):
            times.append(self._timer.sample([run], Repeat()))
            clean = clean and self._timer.clean
        return sum(times) / len(times), clean

    def _restore(self) -> None:
        """Give the inputs that passes write to what they had."""
        for at, before in self._before:
            _memory(self._inputs[at]).copy_(before)

    def _move(self) -> None:
        """Put the inputs elsewhere, all arms' alike; what a pass allocates lies elsewhere too."""
        tensors = {
            value.untyped_storage()._cdata: _memory(value)
            for value in self._inputs
            if isinstance(value, Tensor)
        }
        if sum(memory.numel() for memory in tensors.values()) > MOVED_BYTES:
            return
        moved = {name: memory.clone() for name, memory in tensors.items()}
        for at, value in enumerate(self._inputs):
            if isinstance(value, Tensor):
                memory = moved[value.untyped_storage()._cdata]
                whole = memory[: memory.numel() // value.itemsize * value.itemsize]
                place = (value.size(), value.stride(), value.storage_offset())
                self._inputs[at] = whole.view(value.dtype).as_strided(*place)

    def _guarded(self, arm: str, action: Callable[[], T]) -> T:
        try:
            with self._mark.at("running", self._blamed.get(arm, "")):
                return action()
        except BaseException as error:  # whatever a kernel raises is the end of this arm alone
            raise ChoiceBroke(arm, torch_api.describe(error)) from error


def _memory(tensor: Tensor) -> Tensor:
    """All bytes that a tensor's storage has."""
    whole = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return whole.set_(tensor.untyped_storage())


def _captured(run: Run, call: Callable[[], Any]) -> Run | None:
    """The pass as a CUDA graph; None where it does what cannot be captured."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.no_grad(), torch.cuda.graph(graph, capture_error_mode="thread_local"):
            held = call()
    except Exception:  # an op that waits for the device, or allocates in a way of its own
        return None

    def replay(_: object = held) -> None:
        graph.replay()

    return replay


def _product(device: torch.device) -> Run:
    """A kernel that is the same in every round."""
    size = 96 if device.type == "cpu" else 1024
    dtype = torch.float32 if device.type == "cpu" else torch.float16
    left = torch.ones(size, size, dtype=dtype, device=device)
    out = torch.empty_like(left)
    return lambda: torch.mm(left, left, out=out)
