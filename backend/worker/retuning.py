"""Selectors that tune one key again, regardless of the cache and the pins.

The timings are stored like every tuning's. Times of choices that are not offered this time are
kept, and a budget discards no known time: the next compile of the model finds each of its choices
and benchmarks nothing.

A pin gets the new times and continues to hold. The order of the steps never lets it look drifted to
another process: its record is updated first, and the times of its rivals are written raised.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from backend.cache.journal import Tuned, written
from backend.cache.variants import ChoiceVariants, for_devices, write_modules
from backend.disk.layout import Layout
from backend.disk.safe import LOCK_SECONDS
from backend.errors import StoreError, UnsafePath
from backend.inductor.benchmark.errors import is_blameless
from backend.inductor.guard import say_once, shielded
from backend.inductor.hooks.lookup import forget_blameless_failures, without_blameless_failures
from backend.inductor.hooks.pins import PinLookup
from backend.inductor.hooks.recording import Recorder
from backend.inductor.hooks.selector import Selector
from backend.inductor.hooks.templates import TemplateSelector
from backend.inductor.hooks.tuning_watch import note_failure
from backend.inductor.torch import tuning as torch_api
from backend.inductor.torch.tuning import ChoiceCaller
from backend.model.choice import NOT_TIMED, Choice
from backend.model.origin import kind_of
from backend.model.problem import TuningKey
from backend.model.tuning import Pin, PinState
from backend.pins.store import PinStore
from backend.processes.shared import ChoiceMark
from backend.processes.supervisor import ProcessGuard


class Budget:
    """Seconds that a tuning may take, counted from its first choice; None has no end. At least one
    choice is always timed, because one must win."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self.skipped: set[str] = set()
        """Hashes of the choices that were left out."""
        self._end = math.inf
        self._something = False

    def start(self) -> None:
        if self.seconds is not None:
            self._end = time.monotonic() + self.seconds

    @property
    def left(self) -> float | None:
        """Return the seconds left; None without a budget."""
        return None if self.seconds is None else max(0.0, self._end - time.monotonic())

    @property
    def spent(self) -> bool:
        return self._something and time.monotonic() >= self._end

    @property
    def over(self) -> bool:
        """Return whether the time is up, with or without a winner."""
        return time.monotonic() >= self._end

    def timed(self, ms: float) -> None:
        self._something = self._something or math.isfinite(ms)

    def skip(self, choice: ChoiceCaller) -> float:
        """Leave `choice` out; return its time."""
        self.skipped.add(choice.hash_key())
        note_failure(choice, "benchmark", f"{NOT_TIMED}{self}")
        return math.inf

    def __str__(self) -> str:
        return f"the budget of {self.seconds or 0:g} s was spent"


class ChoiceTimings:
    """Marks the choice being timed, which is blamed for processes and damage it leaves. Choices in
    `broken`, by hash, are not timed: they failed before, for the given reason."""

    def __init__(self, mark: ChoiceMark, broken: Mapping[str, str]) -> None:
        self._mark = mark
        self._broken = broken
        self._guard = ProcessGuard(mark)

    def timed(self, choice: ChoiceCaller, timing: Callable[[], float]) -> float:
        """Return the time of a choice. Raises RuntimeError also if it tried to end the process."""
        hash = choice.hash_key()
        if hash in self._broken:
            note_failure(choice, "benchmark", self._broken[hash])
            return math.inf
        try:
            with self._mark.at("timing", hash):
                try:
                    with self._guard.no_leftovers():
                        return timing()
                finally:
                    self._guard.tidy()
        except Exception:
            raise
        except BaseException as error:
            raise RuntimeError(torch_api.describe(error)) from error


@dataclass(frozen=True, slots=True)
class StoredHashes:
    """The hashes under which times are stored: those of the GPU `index`, if the person's
    environment numbers the used GPU differently; and those of the GPUs `others`, which also get the
    times. `variants` are read from the cache dir."""

    variants: ChoiceVariants
    index: int | None = None
    others: tuple[int, ...] = ()

    def hash(self, here: str) -> str:
        """Return the hash under which the choice with the hash `here` is stored."""
        return here if self.index is None else self.variants.on(here, self.index)

    def choice(self, here: Choice) -> Choice:
        """Return `here` with the hash under which it is stored."""
        return here if here.hash is None else replace(here, hash=self.hash(here.hash))

    def write_modules(self, choices: Collection[str]) -> None:
        """Write the modules that show which device the hashes belong to. Raises StoreErrors."""
        devices = self.others if self.index is None else (self.index, *self.others)
        if devices:
            write_modules(self.variants, choices, devices)


@dataclass(slots=True)
class TuneTask:
    """The problem to tune, and the outcome."""

    wanted: Callable[[TuningKey], bool]
    budget: Budget
    visits: ChoiceTimings
    kept_as: StoredHashes
    same_mode: bool = False
    """Whether to refuse if the cache indicates that the key was tuned in another mode."""
    tuned: list[TuningKey] = field(default_factory=list)
    """Other keys that Inductor tuned."""
    key: TuningKey | None = None
    other_mode: bool = False
    pin: PinState | None = None
    blameless: set[str] = field(default_factory=set)
    """Hashes of the choices that were not compiled ahead for a reason of the machine."""
    written: Mapping[str, float] = field(default_factory=dict)
    """The stored times, by choice hash."""
    taken_over: Mapping[str, float] = field(default_factory=dict)
    """The times also stored for other GPUs."""
    lost: str = ""
    """Why measured times could not be stored."""


class NoPins(PinLookup):
    """A lookup without pins, for tuning again."""

    def find(self, key: TuningKey, system_hash: str) -> Pin | None:
        return None


class Budgeted(torch_api.LazySelector):
    """The stock selector, which leaves out choices after the budget of its `task` is spent."""

    task: TuneTask

    def make_precompile_fn(self, choices: Any, *args: Any, **kwargs: Any) -> Any:
        budget = self.task.budget
        left = budget.left
        if left is not None:
            for choice in choices:
                if hasattr(choice, "precompile"):
                    choice.precompile = _within(budget, choice.precompile)
            kwargs["precompilation_timeout_seconds"] = max(1.0, left)
        return super().make_precompile_fn(choices, *args, **kwargs)

    @classmethod
    def benchmark_choice(cls, choice: ChoiceCaller, *args: Any, **kwargs: Any) -> Any:
        if cls.task.budget.spent:
            return cls.task.budget.skip(choice)
        stock = super().benchmark_choice
        ms = cls.task.visits.timed(choice, lambda: float(stock(choice, *args, **kwargs)))
        cls.task.budget.timed(ms)
        return ms

    @classmethod
    def benchmark_in_sub_process(cls, choices: Any, *args: Any, **kwargs: Any) -> Any:
        budget = cls.task.budget
        if budget.seconds is None:
            return super().benchmark_in_sub_process(choices, *args, **kwargs)
        timings: dict[ChoiceCaller, float] = {}
        for choice in choices:
            if budget.spent:
                timings[choice] = budget.skip(choice)
            else:
                timings |= super().benchmark_in_sub_process([choice], *args, **kwargs)
                budget.timed(timings[choice])
        return timings


def _within(budget: Budget, precompile: Callable[[], Any]) -> Callable[[], Any]:
    """Return `precompile` limited to the budget; benchmarking reports the rest."""

    def compiled() -> Any:
        return None if budget.over else precompile()

    return compiled


class RetuneSelector(Selector):
    """Tunes the problem of its `task`, even if the cache has it, and nothing else."""

    task: TuneTask
    _choices: tuple[ChoiceCaller, ...] = ()

    def __call__(
        self, name: str, choices: Any, input_nodes: Any, layout: Any, *args: Any, **kwargs: Any
    ) -> Any:
        task = self.task
        key = torch_api.tuning_key(name, input_nodes, layout, kwargs)
        if task.key is not None or not task.wanted(key):
            task.tuned.append(key)
            return untuned(self, name, choices, input_nodes, layout)
        task.key = key
        if task.same_mode and _in_another_mode(choices, self._cached_times(key), task.kept_as):
            task.other_mode = True
            return untuned(self, name, choices, input_nodes, layout)
        self._choices = tuple(choices)
        forget_blameless_failures()  # of earlier jobs of this worker
        task.budget.start()
        return super().__call__(name, choices, input_nodes, layout, *args, **kwargs)

    def get_local_cache(self) -> dict[str, Any]:
        return {}

    def update_local_cache(self, local_cache: dict[str, Any]) -> None:
        for tuned in without_blameless_failures(written(local_cache)):
            try:
                self._keep(tuned)
            except StoreError as error:
                self.task.lost = str(error)

    def _keep(self, tuned: Tuned) -> None:
        layout, cache, kept_as = Layout(_root(self)), self._tuned(), self.task.kept_as
        cached = self._cached_times(TuningKey(tuned.op, tuned.inputs, tuned.precision))
        skipped = dict.fromkeys(self.task.budget.skipped, math.inf)
        timings = {
            kept_as.hash(name): ms
            for name, ms in {**skipped, **tuned.timings}.items()
            if name not in skipped or kept_as.hash(name) not in cached
        }
        ahead = {each.hash_key() for each in self._choices if torch_api.failed_ahead(each)}
        ahead -= skipped.keys() | self.task.blameless
        timings |= dict.fromkeys(map(kept_as.hash, ahead), math.inf)
        kept_as.write_modules({*tuned.timings, *skipped, *ahead})
        taken_over = for_devices(timings, kept_as.variants, kept_as.others, cached)
        timings |= taken_over
        tuned = replace(tuned, timings=timings)
        PinStore(layout).learn_times(cache.path.name, tuned)
        try:
            cache.insert([tuned])
        except UnsafePath as error:
            say_once(f"timings are kept by PyTorch alone, which may lose some: {error}")
            self._keep_as_stock({tuned.op: {tuned.inputs: {tuned.precision: timings}}})
        cache.fold(LOCK_SECONDS)  # this process is killed after its job, so not at exit
        self.task.written, self.task.taken_over = timings, taken_over
        try:
            self.task.pin = PinStore(layout).hold_again(cache.path.name, tuned)
        except StoreError as error:  # the next program that reads the pins applies it
            say_once(f"the times are kept, and the pin was not applied again: {error}")

    def _cached_times(self, key: TuningKey) -> Mapping[str, Any]:
        """Return the cache's times of `key`, by choice hash."""
        by_precision = self._tuned().view().get(key.op, {}).get(key.inputs) or {}
        times: Mapping[str, Any] = by_precision.get(key.precision, {})
        return times


class TuneSelector(RetuneSelector, Budgeted):
    """Tunes this torch's choices."""


class TuneTemplateSelector(RetuneSelector, TemplateSelector, Budgeted):
    """Tunes this torch's choices and ours."""


def selector(task: TuneTask, recorder: Recorder, templates: bool) -> RetuneSelector:
    """Return the selector for one task; one at a time per process."""
    Budgeted.task = task
    kind = TuneTemplateSelector if templates else TuneSelector
    return kind(recorder, NoPins())


def watch_timeouts() -> None:
    """Report the budget as the reason for choices whose compiling it cut off, and note choices that
    the machine failed to compile; once a process."""

    def failed(choice: ChoiceCaller, error: BaseException) -> None:
        task = Budgeted.task
        if isinstance(error, TimeoutError) and task.budget.over:
            task.budget.skip(choice)
        elif is_blameless(error):
            task.blameless.add(choice.hash_key())

    torch_api.watch_precompile_errors(shielded("what failed to compile is not recorded", failed))


def _root(selector: RetuneSelector) -> Path:
    return Path(selector.get_local_cache_path()).parent.parent


def untuned(
    selector: Any, name: str, choices: Sequence[ChoiceCaller], input_nodes: Any, layout: Any
) -> Any:
    """Take the first choice, which is ATen's if there is one. Nothing is recorded."""
    return torch_api.StockSelector.__call__(selector, name, choices[:1], input_nodes, layout)


def _in_another_mode(
    choices: Sequence[ChoiceCaller], cached: Mapping[str, Any], kept_as: StoredHashes
) -> bool:
    """Return whether `cached` has Triton choices of torch, and none of those offered is one of
    them. Only their hashes depend on the mode, not those of ours."""
    offered, stored = (
        {kept_as.variants.identity(name) for name in names if kind_of(name) == "triton"}
        for names in ([choice.hash_key() for choice in choices], cached)
    )
    return bool(offered) and bool(stored) and offered.isdisjoint(stored)
