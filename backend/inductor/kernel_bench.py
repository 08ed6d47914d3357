"""Configs of one Triton kernel, sampled repeatedly on copies of its launch arguments.

The program's memory is never written: each launch has memory of ours, which before every sample is
reset to the arguments' content. The only observable result of a kernel is what it changes there:
that is compared between the configs bit by bit.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from backend.inductor.sampling import (
    FREE_SHARE,
    OUTPUT_RUNS,
    OUTPUT_SECONDS,
    OutputSample,
    Run,
    Sampler,
    bytes_at_random_offset,
    caches_of_a_model,
    digest_of,
    free_bytes,
    outputs_of,
)
from backend.measure.rounds import ChoiceBroke, Rounds, Sample, measure, measurement_of
from backend.model.choice import Caches, Measurement
from backend.model.problem import TuningKey
from backend.model.session import Session

T = TypeVar("T")

_PLAIN = (bool, int, float, str, type(None), torch.dtype)
_OF_TRITON = ("dtype", "constexpr", "JITFunction", "pointer_type")
"""Constants that a kernel is compiled with."""
_KEPT = 3
"""The minimum number of copies of all arguments: as given, after one run, after another."""


class NotSampled(Exception):
    """A kernel cannot be launched again beside its program; the message is one line."""


@dataclass(frozen=True, slots=True)
class ConfigLaunch:
    """How a config is launched with the kernel's arguments. `prepare` is the tuner's preparation
    before each launch, which is not timed."""

    launch: Callable[..., object]
    prepare: Callable[..., object] | None = None


@dataclass(frozen=True)
class Arguments:
    """The arguments of a kernel's call, with the tensors taken out."""

    positional: Sequence[Any]
    named: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise NotSampled if an argument cannot be copied."""
        for name, value in [*enumerate(self.positional), *self.named.items()]:
            if (why := _why_not_copied(value)) is not None:
                raise NotSampled(f"argument {name} is {why}")
        if not self.tensors:
            raise NotSampled("no argument is a tensor")

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        values = (*self.positional, *self.named.values())
        return tuple(value for value in values if isinstance(value, Tensor))

    def holding(self, tensors: Sequence[Tensor]) -> Arguments:
        """Return the same arguments with these tensors in place of their own."""
        left = iter(tensors)
        positional = [next(left) if isinstance(v, Tensor) else v for v in self.positional]
        named = {k: next(left) if isinstance(v, Tensor) else v for k, v in self.named.items()}
        return Arguments(positional, named)

    def call(self, function: Callable[..., object]) -> None:
        function(*self.positional, **self.named)


def _why_not_copied(value: object) -> str | None:
    if isinstance(value, Tensor):
        if type(value) not in (Tensor, torch.nn.Parameter):
            return f"a {type(value).__name__}"
        if value.device.type == "meta":
            return "on no device"
        return None if value.layout is torch.strided else f"a tensor of layout {value.layout}"
    kind = type(value)
    if isinstance(value, _PLAIN):
        return None
    if kind in (tuple, list) and all(isinstance(each, _PLAIN) for each in value):  # type: ignore[attr-defined]
        return None
    if kind.__module__.partition(".")[0] == "triton" and kind.__name__ in _OF_TRITON:
        return None
    return f"a {kind.__name__}, which may refer to the program's own memory"


@dataclass(frozen=True, slots=True)
class _View:
    """A tensor in one of the memories."""

    place: int
    dtype: torch.dtype
    size: torch.Size
    stride: tuple[int, ...]
    offset: int

    def of(self, memory: Sequence[Tensor]) -> Tensor:
        whole = as_numbers(memory[self.place], self.dtype)
        return whole.as_strided(self.size, self.stride, whole.storage_offset() + self.offset)


def as_numbers(memory: Tensor, dtype: torch.dtype) -> Tensor:
    """Return bytes as numbers, without the rest at their end."""
    size = dtype.itemsize
    return memory[: memory.numel() // size * size].view(dtype)


def views_of(tensors: Sequence[Tensor]) -> tuple[list[_View], list[Tensor]]:
    """Return the view of each tensor, and the memories as bytes, of which tensors may share one."""
    places: dict[tuple[int, int], int] = {}
    memory: list[Tensor] = []
    views: list[_View] = []
    for tensor in tensors:
        storage = tensor.untyped_storage()
        key = storage.data_ptr(), storage.nbytes()
        if key not in places:
            places[key] = len(memory)
            whole: Any = torch.empty(0, dtype=torch.uint8, device=tensor.device)
            memory.append(whole.set_(storage))
        views.append(
            _View(
                places[key], tensor.dtype, tensor.size(), tensor.stride(), tensor.storage_offset()
            )
        )
    return views, memory


class _Copy:
    """The arguments in memory of our own, with the content of `memory`."""

    def __init__(
        self, arguments: Arguments, views: Sequence[_View], memory: Sequence[Tensor]
    ) -> None:
        """Copy the memory. Raises OutOfMemoryError."""
        self.memory = [_aligned_copy(each) for each in memory]
        self.tensors = [view.of(self.memory) for view in views]
        self.arguments = arguments.holding(self.tensors)

    def restore(self, original: _Copy, places: Sequence[int]) -> None:
        for at in places:
            self.memory[at].copy_(original.memory[at])


def _aligned_copy(memory: Tensor) -> Tensor:
    """Copy with the original's distance from a multiple of 64 bytes, which kernels rely on."""
    shift = memory.data_ptr() % 64
    return bytes_at_random_offset(memory.numel() + shift, memory.device)[shift:].copy_(memory)


class KernelBench(Sampler):
    """The configs by hash, for a kernel with these arguments.

    `given` replaces the current content of tensors by their content at the kernel's call, by tensor
    index. Raises NotSampled if there is too little memory.
    """

    def __init__(
        self,
        launches: Mapping[str, ConfigLaunch],
        arguments: Arguments,
        caches: Caches | None = None,
        given: Mapping[int, Tensor] | None = None,
    ) -> None:
        tensors = arguments.tensors
        device = next((t.device for t in tensors if t.device.type != "cpu"), tensors[0].device)
        self._views, memory = views_of(tensors)
        size = sum(each.numel() for each in memory)
        if size * _KEPT > free_bytes(device) // FREE_SHARE:
            raise NotSampled(
                f"its arguments are {size >> 20:,} MiB, and there is no memory for copies of them"
            )
        super().__init__(device, caches or caches_of_a_model(device, size))
        self._launches = launches
        self._size = size
        self._arguments = arguments
        self._original = _Copy(arguments, self._views, memory)
        for at, values in (given or {}).items():
            self._original.tensors[at].copy_(values)
        self._written: list[int] = []
        self._first: dict[int, Tensor] | None = None
        self.first = ""
        """The config whose output was computed first."""
        self._places: list[_Copy] = []
        self.distances: dict[str, float] = {}
        """The largest difference of each config's numbers from the first config's, relative to the
        largest number, unless the bits are equal."""
        self.set_reference(float(1 << 24))

    @property
    def device(self) -> torch.device:
        return self._device

    @property
    def hashes(self) -> tuple[str, ...]:
        return tuple(self._launches)

    def _copy(self) -> _Copy:
        return _Copy(self._arguments, self._views, self._original.memory)

    def output_of(self, hash: str) -> OutputSample:
        """Return the output of a config. Raises ChoiceBroke."""
        self._places = []
        return self._guarded(hash, lambda: self._output_of(hash))

    def _output_of(self, hash: str) -> OutputSample:
        copy, end = self._copy(), time.monotonic() + OUTPUT_SECONDS
        run, before = self._run(hash, copy), self._before(hash, [copy])
        every = range(len(copy.memory))
        before()
        run()
        self._timer.wait()
        changed = [
            at for at in every if not torch.equal(copy.memory[at], self._original.memory[at])
        ]
        self._written = sorted({*self._written, *changed})
        first = {at: copy.memory[at].clone() for at in changed}
        self._check_steady(hash, run, copy, first)
        runs = same = 1
        while runs < OUTPUT_RUNS and (runs < 2 or time.monotonic() < end):
            copy.restore(self._original, every)
            before()
            run()
            self._timer.wait()
            expected = {**dict(enumerate(self._original.memory)), **first}
            right = all(torch.equal(copy.memory[at], expected[at]) for at in every)
            runs, same = runs + 1, same + right
        if self._first is None:
            self.first, self._first = hash, first
        elif (distance := self._distance(first, self._first)) is not None:
            self.distances[hash] = distance
        return OutputSample(_digest(first), runs, same)

    def _check_steady(self, hash: str, run: Run, copy: _Copy, first: Mapping[int, Tensor]) -> None:
        """Check a kernel whose hot calls repeat in the same memory: integers that change each time
        would leave their bounds. Raises ChoiceBroke."""
        if self._timer.cold:
            return
        run()
        self._timer.wait()
        for view in self._views:
            at = view.place
            if view.dtype.is_floating_point or at not in first:
                continue
            if not torch.equal(copy.memory[at], first[at]):
                what = "it changes whole numbers that it reads: measure it cold"
                raise ChoiceBroke(hash, what)

    def _distance(self, given: Mapping[int, Tensor], other: Mapping[int, Tensor]) -> float | None:
        """Return the largest relative difference; None if the bits are equal, 0 if only they
        differ, NaN if a type has no order."""
        if given.keys() == other.keys() and all(torch.equal(given[at], other[at]) for at in given):
            return None
        worst = 0.0
        for view in self._views:
            if view.dtype.is_complex or str(view.dtype) == "torch.float4_e2m1fn_x2":
                return math.nan  # neither becomes one number
            small = view.dtype.itemsize <= (4 if view.dtype.is_floating_point else 2)
            ours, theirs = (
                as_numbers(state.get(view.place, self._original.memory[view.place]), view.dtype).to(
                    torch.float32 if small else torch.float64
                )
                for state in (given, other)
            )
            worst = max(worst, _relative(ours, theirs))
        return worst

    # The `rounds.Bench` interface

    def _start(self, hashes: Sequence[str]) -> None:
        self._places = []  # frees their memory
        self._places = self._copied(self._copy)
        for hash in hashes:
            self._guarded(hash, functools.partial(self._warmed, hash))

    def _bytes_of(self, hashes: Sequence[str]) -> int:
        return int(self._size)

    def _warmed(self, hash: str) -> None:
        first = self._places[:1]
        run, before = self._run(hash, first[0]), self._before(hash, first)
        before()
        run()
        self._timer.wait()
        if hash not in self._repeats:
            self._repeats[hash] = self._timer.repeat(run, before)

    def sample(self, hash: str) -> Sample:
        return self._guarded(hash, lambda: self._sampled(hash))

    def _sampled(self, hash: str) -> Sample:
        places = self._places[: self._repeat(hash).copies] if self._timer.cold else self._places
        runs = [self._run(hash, place) for place in places]
        return self._sample(hash, runs, self._before(hash, places))

    def _run(self, hash: str, place: _Copy) -> Run:
        given = place.arguments
        return functools.partial(self._launches[hash].launch, *given.positional, **given.named)

    def _before(self, hash: str, places: Sequence[_Copy]) -> Run:
        """Return a function that reverts the kernel's changes, and runs the tuner's preparation."""
        prepare = self._launches[hash].prepare

        def before() -> None:
            for place in places:
                place.restore(self._original, self._written)
                if prepare is not None:
                    place.arguments.call(prepare)

        return before

    def _guarded(self, hash: str, action: Callable[[], T]) -> T:
        try:
            return action()
        except ChoiceBroke:
            raise
        except Exception as error:  # an error ends only this config
            text = " ".join(str(error).split())[:300]
            raise ChoiceBroke(hash, f"{type(error).__name__}: {text}") from error


def _relative(first: Tensor, second: Tensor) -> float:
    """Return the largest difference over the largest number of both; infinite if others than the
    finite numbers differ."""
    finite = first.isfinite() & second.isfinite()
    odd = ~finite
    if not torch.allclose(first[odd], second[odd], equal_nan=True):
        return float("inf")
    first, second = first[finite], second[finite]
    largest = max((float(one.abs().max()) for one in (first, second) if one.numel()), default=0.0)
    return float((first - second).abs().max()) / largest if largest else 0.0


def _digest(changed: Mapping[int, Tensor]) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for at, memory in sorted(changed.items()):
        digest.update(at.to_bytes(4, "little") + digest_of(memory))
    return digest.digest()


NEAR = 0.1
"""A config may have been slower than the best by this share and still be worth measuring."""
MOST = 8


def worth_measuring(times: Mapping[str, float]) -> list[str]:
    """Return the hashes of configs that may be the fastest, judging by single times: those near the
    best, at least two, at most MOST."""
    ranked = sorted(times, key=times.__getitem__)
    least = times[ranked[0]] if ranked else 0.0
    near = [hash for hash in ranked if times[hash] <= least * (1 + NEAR)]
    return ranked[: max(2, min(len(near), MOST))]


class NoConfigRuns(Exception):
    """No config can be launched; the message is one line."""


def measure_kernel(
    key: TuningKey,
    bench: KernelBench,
    names: Mapping[str, str],
    session: Session,
    budget: float,
    failed: Mapping[str, str],
) -> Measurement:
    """Measure the configs of `bench` for about `budget` seconds; `names` by hash, including those
    in `failed`. Raises NoConfigRuns."""
    samples: dict[str, OutputSample] = {}
    broken = dict(failed)
    gpu = bench.device.type != "cpu"
    with torch.cuda.device(bench.device) if gpu else contextlib.nullcontext():
        for hash in bench.hashes:
            try:
                samples[hash] = bench.output_of(hash)
            except ChoiceBroke as error:
                broken[hash] = error.reason
        rounds = Rounds([])
        if samples:
            end = time.monotonic() + budget
            rounds = measure(bench, list(samples), end, lambda rounds, seconds: None)
    rounds.failed.update(broken)
    if not rounds.standings:
        hash, reason = next(iter(rounds.failed.items()))
        raise NoConfigRuns(f"none of the configs can be run; {names.get(hash, hash)}: {reason}")
    if gpu:  # on a GPU the thread sleeps until the device is done
        rounds.signs = replace(rounds.signs, cpu_seconds=None)
    outputs = outputs_of(samples, [standing.hash for standing in rounds.standings])
    differing = tuple(_differing_results(bench, names, rounds.hashes))
    return measurement_of(key, rounds, names, session, outputs, bench.caches, differing)


def _differing_results(
    bench: KernelBench, names: Mapping[str, str], hashes: Sequence[str]
) -> list[str]:
    """Return sentences about configs with different results; which is more exact is unknown."""
    first = names.get(bench.first, "")
    sentences = []
    for hash in hashes:
        if (distance := bench.distances.get(hash)) is not None:
            far = f"by up to {distance:.1e} of the largest number" if distance else "in bits alone"
            if math.isinf(distance):
                far = "by numbers that are not finite"
            elif math.isnan(distance):
                far = "in numbers of a type that is not compared"
            sentences.append(f"{names[hash]} differs from {first} {far}")
    return sentences
