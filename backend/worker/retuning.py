"""Selectors that tune one key again, whatever the cache and the pins say of it.

The timings go where every tuning's go. Those of choices that are not offered this time stay there,
and a budget takes no time away that is known: a model that is compiled next finds each of its
choices and benchmarks nothing.

A pin learns the new times and goes on holding. The order of the steps leaves no moment in which it
looks drifted to another process: its record learns first, and the times of its rivals reach the
cache file raised.
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
from backend.errors import StoreError, UnsafePath
from backend.inductor.guard import say_once, shielded
from backend.inductor.hooks.pins import PinLookup
from backend.inductor.hooks.recording import Recorder
from backend.inductor.hooks.selector import Selector
from backend.inductor.hooks.templates import TemplateSelector
from backend.inductor.hooks.tuning_watch import note_failure
from backend.inductor.torch import tuning as torch_api
from backend.inductor.torch.tuning import ChoiceCaller
from backend.model.choice import Choice
from backend.model.origin import kind_of
from backend.model.problem import TuningKey
from backend.model.tuning import Pin, PinState
from backend.pins.store import PinStore
from backend.processes.shared import ChoiceMark
from backend.processes.supervisor import House


class Budget:
    """Seconds that a tuning may take, counted from its first choice; none has no end.

    It is not spent before one choice was timed: something must win.
    """

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
        """Seconds; None without a budget."""
        return None if self.seconds is None else max(0.0, self._end - time.monotonic())

    @property
    def spent(self) -> bool:
        return self._something and time.monotonic() >= self._end

    @property
    def over(self) -> bool:
        """Whether the time is up, be there a winner or not."""
        return time.monotonic() >= self._end

    def timed(self, ms: float) -> None:
        self._something = self._something or math.isfinite(ms)

    def skip(self, choice: ChoiceCaller) -> float:
        """Leave `choice` out; return its time."""
        self.skipped.add(choice.hash_key())
        note_failure(choice, "benchmark", f"not timed: {self}")
        return math.inf

    def __str__(self) -> str:
        return f"the budget of {self.seconds or 0:g} s was spent"


class ChoiceTimings:
    """Marks the choice that is timed; what it leaves behind or damages is its own failure. Those
    that are `broken`, by hash, are not timed: they have failed, for that reason."""

    def __init__(self, mark: ChoiceMark, broken: Mapping[str, str]) -> None:
        self._mark = mark
        self._broken = broken
        self._house = House(mark)

    def timed(self, choice: ChoiceCaller, timing: Callable[[], float]) -> float:
        """Return the time of a choice. Raises RuntimeError too if it tried to end the process."""
        hash = choice.hash_key()
        if hash in self._broken:
            note_failure(choice, "benchmark", self._broken[hash])
            return math.inf
        try:
            with self._mark.at("timing", hash):
                try:
                    with self._house.leaving_nobody():
                        return timing()
                finally:
                    self._house.tidy()
        except Exception:
            raise
        except BaseException as error:
            raise RuntimeError(torch_api.describe(error)) from error


@dataclass(frozen=True, slots=True)
class KeptAs:
    """Under which hashes times are kept: those of the GPU `index`, where the person's environment
    has another number for the one that is used; and those of the GPUs `others`, which take them
    over. `variants` are read below the cache dir."""

    variants: ChoiceVariants
    index: int | None = None
    others: tuple[int, ...] = ()

    def hash(self, here: str) -> str:
        """Return the hash under which the choice with the hash `here` is kept."""
        return here if self.index is None else self.variants.on(here, self.index)

    def choice(self, here: Choice) -> Choice:
        """Return `here` with the hash under which it is kept."""
        return here if here.hash is None else replace(here, hash=self.hash(here.hash))

    def write_modules(self, choices: Collection[str]) -> None:
        """Write the modules that show of which device the hashes are. Raises StoreErrors."""
        devices = self.others if self.index is None else (self.index, *self.others)
        if devices:
            write_modules(self.variants, choices, devices)


@dataclass(slots=True)
class Task:
    """The problem to be tuned, and the outcome."""

    wanted: Callable[[TuningKey], bool]
    budget: Budget
    visits: ChoiceTimings
    kept_as: KeptAs
    same_mode: bool = False
    """Refuse to tune where the cache tells that the key was tuned in another mode."""
    asked: list[TuningKey] = field(default_factory=list)
    """What Inductor asked for beside the wanted key."""
    key: TuningKey | None = None
    other_mode: bool = False
    offered: int = 0
    pin: PinState | None = None
    written: Mapping[str, float] = field(default_factory=dict)
    """The times that were kept, by choice hash."""
    taken_over: Mapping[str, float] = field(default_factory=dict)
    """Those that were also kept for other GPUs."""
    lost: str = ""
    """Why times that were measured could not be kept."""


class NoPins(PinLookup):
    """Nothing is pinned while a tuning is made again."""

    def find(self, key: TuningKey, system_hash: str) -> Pin | None:
        return None


class Budgeted(torch_api.LazySelector):
    """The stock selector, which leaves out choices for which the budget of its `task` is spent."""

    task: Task

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
    """Compiles nothing more once the time is up; benchmarking says why."""

    def compiled() -> Any:
        return None if budget.over else precompile()

    return compiled


class _Again(Selector):
    """Tunes the problem that its `task` wants, even where the cache has it, and nothing else."""

    task: Task
    _choices: tuple[ChoiceCaller, ...] = ()

    def __call__(
        self, name: str, choices: Any, input_nodes: Any, layout: Any, *args: Any, **kwargs: Any
    ) -> Any:
        task = self.task
        key = torch_api.tuning_key(name, input_nodes, layout, kwargs)
        if task.key is not None or not task.wanted(key):
            task.asked.append(key)
            return untuned(self, name, choices, input_nodes, layout)
        task.key = key
        if task.same_mode and _in_another_mode(choices, self._known(key), task.kept_as):
            task.other_mode = True
            return untuned(self, name, choices, input_nodes, layout)
        task.offered = len(choices)
        self._choices = tuple(choices)
        task.budget.start()
        return super().__call__(name, choices, input_nodes, layout, *args, **kwargs)

    def get_local_cache(self) -> dict[str, Any]:
        return {}

    def update_local_cache(self, local_cache: dict[str, Any]) -> None:
        for tuned in written(local_cache):
            try:
                self._keep(tuned)
            except StoreError as error:
                self.task.lost = str(error)

    def _keep(self, tuned: Tuned) -> None:
        layout, cache, kept_as = Layout(_root(self)), self._tuned(), self.task.kept_as
        known = self._known(TuningKey(tuned.op, tuned.inputs, tuned.precision))
        skipped = dict.fromkeys(self.task.budget.skipped, math.inf)
        timings = {
            kept_as.hash(name): ms
            for name, ms in {**skipped, **tuned.timings}.items()
            if name not in skipped or kept_as.hash(name) not in known
        }
        ahead = {each.hash_key() for each in self._choices if torch_api.failed_ahead(each)}
        timings |= dict.fromkeys(map(kept_as.hash, ahead - skipped.keys()), math.inf)
        kept_as.write_modules({*tuned.timings, *skipped, *ahead})
        taken_over = for_devices(timings, kept_as.variants, kept_as.others, known)
        timings |= taken_over
        tuned = replace(tuned, timings=timings)
        PinStore(layout).learn_times(cache.path.name, tuned)
        try:
            cache.insert([tuned])
        except UnsafePath as error:
            say_once(f"timings are kept by PyTorch alone, which may lose some: {error}")
            self._keep_as_stock({tuned.op: {tuned.inputs: {tuned.precision: timings}}})
        cache.fold()  # this process is killed when its job is done, so not at exit
        self.task.written, self.task.taken_over = timings, taken_over
        self.task.pin = PinStore(layout).hold_again(cache.path.name, tuned)

    def _known(self, key: TuningKey) -> Mapping[str, Any]:
        """Return the cache's times of `key`, by choice hash."""
        by_precision = self._tuned().view().get(key.op, {}).get(key.inputs) or {}
        times: Mapping[str, Any] = by_precision.get(key.precision, {})
        return times


class TuneSelector(_Again, Budgeted):
    """Tunes the choices of this torch."""


class TuneTemplateSelector(_Again, TemplateSelector, Budgeted):
    """Tunes the choices of this torch and ours."""


def selector(task: Task, recorder: Recorder, templates: bool) -> _Again:
    """Return the selector for one task; one at a time a process."""
    Budgeted.task = task
    kind = TuneTemplateSelector if templates else TuneSelector
    return kind(recorder, NoPins())


def watch_timeouts() -> None:
    """Say of choices whose compiling was cut off by the budget that it was the budget; once a
    process, for all its tasks."""

    def failed(choice: ChoiceCaller, error: BaseException) -> None:
        budget = Budgeted.task.budget
        if isinstance(error, TimeoutError) and budget.over:
            budget.skip(choice)

    torch_api.watch_precompile_errors(shielded("what failed to compile is not recorded", failed))


def _root(selector: _Again) -> Path:
    return Path(selector.get_local_cache_path()).parent.parent


def untuned(
    selector: Any, name: str, choices: Sequence[ChoiceCaller], input_nodes: Any, layout: Any
) -> Any:
    """Take the first choice, which is ATen's where there is one. Nothing is recorded of it."""
    return torch_api.StockSelector.__call__(selector, name, choices[:1], input_nodes, layout)


def _in_another_mode(
    choices: Sequence[ChoiceCaller], known: Mapping[str, Any], kept_as: KeptAs
) -> bool:
    """Whether `known` has Triton choices of torch, and none of those offered is one. Only their
    hashes depend on the mode; those of ours do not."""
    offered, cached = (
        {kept_as.variants.identity(name) for name in names if kind_of(name) == "triton"}
        for names in ([choice.hash_key() for choice in choices], known)
    )
    return bool(offered) and bool(cached) and offered.isdisjoint(cached)
