"""Samples of choices and of a reference kernel on one device, in whatever memory they run."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from backend.inductor.sampling.machine import sensor_of
from backend.inductor.sampling.memory import product
from backend.inductor.sampling.timer import Repeat, Run, nothing, timer_for
from backend.measure.rounds import Sample
from backend.measure.sensors import DeviceState, SensorWatch
from backend.model.choice import Caches

TRIES = 4
"""Samples that are taken until one is clean."""

_REFERENCE = ""
"""Its place among the hashes."""


class Sampler:
    """What `rounds.Bench` asks for, but for the choices: `_repeats` has how often each is called
    for a sample. Where it is cold, each of these calls has one of `_copies` copies of all that a
    choice reads."""

    def __init__(self, device: torch.device, caches: Caches) -> None:
        self.caches: Caches = caches
        self._timer = timer_for(device, caches)
        self._watch = SensorWatch(sensor_of(device))
        self._device = device
        self._copies = 1
        self._repeats: dict[str, Repeat] = {}
        self._reference: Run = nothing

    def set_reference(self, operations: float) -> None:
        """Let a square product of about so many multiplications be the reference kernel."""
        self._reference = product(operations, self._device)
        self._repeats[_REFERENCE] = self._timer.repeat(self._reference)

    def reference(self) -> Sample:
        return self._sample(_REFERENCE, [self._reference])

    def state(self) -> DeviceState:
        return self._watch.state()

    def resolution_ms(self, hash: str) -> float:
        """The smallest difference of two calls' times that a sample can show."""
        return self._timer.tick_ms / self._repeat(hash).calls

    def _repeat(self, name: str) -> Repeat:
        """The reference reads the same in all calls."""
        repeat = self._repeats[name]
        cold = self._timer.cold and name != _REFERENCE
        return repeat.within(self._copies) if cold else repeat

    def _sample(self, name: str, runs: Sequence[Run], before: Run = nothing) -> Sample:
        """Again and again, each time after `before`, until it is long enough and no thread of ours
        had to wait for a CPU."""
        for _ in range(TRIES):
            before()
            ms = self._timer.sample(runs, self._repeat(name))
            if not self._timer.cold and not self._repeats[name].enough(ms):
                self._repeats[name] = self._timer.repeat(runs[0], before)
            elif self._timer.clean:
                return Sample(ms)
        return Sample(ms, clean=False)
