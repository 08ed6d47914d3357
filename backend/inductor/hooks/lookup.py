"""Inductor's persistent cache as the hooks manage it: parsed once, appended to instead of
rewritten, and without losses if several processes tune at once.

Stock `lookup` calls `get_local_cache` for all timings, and after a benchmark passes them with new
ones to `update_local_cache`. Those two are replaced (`TunedLookup`); keys and hits are left to the
running version of torch.

Infinity is not stored for choices of ours that failed through no fault of their own: stock `lookup`
would keep it forever. The next process that tunes the problem tries them again; this one does not.
Times may also be stored for the other GPUs of the same kind.
"""

from __future__ import annotations

import contextlib
import functools
import math
import threading
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from backend.cache.journal import Tuned, written
from backend.cache.lookup import TunedCache
from backend.cache.variants import ChoiceVariants, for_devices, write_modules
from backend.errors import UnsafePath
from backend.inductor.guard import Entrance, Stock, beside, quietly, say_once
from backend.inductor.hooks.environment import ALL_DEVICES, is_on
from backend.inductor.torch import tuning as torch_api
from backend.inductor.torch.tuning import ChoiceCaller, Timings
from backend.pins.holders import pinned_choices

_blameless: weakref.WeakSet[ChoiceCaller] = weakref.WeakSet()
_failed_by_problem: dict[Hashable, frozenset[str]] = {}
_lookup_of_thread = threading.local()


def note_blameless_failure(choice: ChoiceCaller) -> None:
    """Note a choice of ours whose failure says nothing about its kernel."""
    _blameless.add(choice)


@contextlib.contextmanager
def looking_up(problem: Hashable) -> Iterator[Callable[[Timings], None]]:
    """A context of a lookup of the times of `problem`. It yields a function for reporting measured
    times: noted failures are left out of everything written within the context."""
    _lookup_of_thread.hashes = frozenset[str]()

    def measured(timings: Timings) -> None:
        lost = (c for c, ms in timings.items() if c in _blameless and not math.isfinite(ms))
        _lookup_of_thread.hashes = frozenset(str(choice.hash_key()) for choice in lost)
        if _lookup_of_thread.hashes:
            _failed_by_problem[problem] = failed_blamelessly(problem) | _lookup_of_thread.hashes

    try:
        yield measured
    finally:
        _lookup_of_thread.hashes = frozenset[str]()


def failed_blamelessly(problem: Hashable) -> frozenset[str]:
    """Return the hashes of the choices that failed this way in this process."""
    return _failed_by_problem.get(problem, frozenset())


def forget_blameless_failures() -> None:
    """Let the next lookups of this process try all choices again."""
    _failed_by_problem.clear()


def without_blameless_failures(news: Iterable[Tuned]) -> Sequence[Tuned]:
    """Return the times of a lookup that may be written."""
    hashes: frozenset[str] = getattr(_lookup_of_thread, "hashes", frozenset())
    if not hashes:
        return list(news)
    left = (replace(tuned, timings=_without(tuned.timings, hashes)) for tuned in news)
    return [tuned for tuned in left if tuned.timings]


def _without(timings: Mapping[str, float], hashes: frozenset[str]) -> dict[str, float]:
    return {name: ms for name, ms in timings.items() if name not in hashes}


@functools.lru_cache(maxsize=8)
def variants_below(root: Path) -> ChoiceVariants:
    """Return the hashes of choices on other devices, from the modules in a cache dir."""
    return ChoiceVariants(root)


def identities(choices: Iterable[ChoiceCaller], root: Path) -> dict[str, str]:
    """Return the device-independent name of each choice, by its hash on this device."""
    variants = variants_below(root)
    hashes = [str(choice.hash_key()) for choice in choices]
    return {name: variants.identity(name) for name in hashes}


class TakenOver(NamedTuple):
    """Times measured on the GPU `device`, by the hashes of the same choices on `devices`."""

    device: int
    devices: tuple[int, ...]
    timings: Mapping[str, float]


_taken_over_by_thread = threading.local()


def taken_over() -> list[TakenOver]:
    """Return the times that this thread wrote for other devices since the last call."""
    copied: list[TakenOver] = _taken_over_by_thread.__dict__.pop("taken", [])
    return copied


def for_all_devices(
    tuned: Sequence[Tuned], cached: Mapping[str, object], root: Path
) -> list[Tuned]:
    """Return `tuned` with the times of each problem also under the hashes of the other devices of
    its kind. `cached` is the content of the cache so far. Raises StoreErrors."""
    variants = variants_below(root)
    return [_of_all(each, cached, variants) for each in tuned]


def _of_all(tuned: Tuned, cached: Mapping[str, object], variants: ChoiceVariants) -> Tuned:
    index = next((i for i in map(variants.device, tuned.timings) if i is not None), None)
    others = [] if index is None else torch_api.devices_alike(index)
    if index is None or not others:
        return tuned
    times = for_devices(tuned.timings, variants, others, _timings(cached, tuned))
    write_modules(variants, tuned.timings, others)
    _taken_over_by_thread.__dict__.setdefault("taken", []).append(
        TakenOver(index, tuple(others), times)
    )
    return replace(tuned, timings={**tuned.timings, **times})


def _timings(cached: Mapping[str, object], tuned: Tuned) -> Mapping[str, float]:
    node: object = cached
    for name in (tuned.op, tuned.inputs, tuned.precision):
        node = node.get(name) if isinstance(node, Mapping) else None
    return node if isinstance(node, Mapping) else {}


_current: TunedCache | None = None


class TunedLookup(torch_api.LazySystem):
    """`PersistentCache` that stores its timings in a `TunedCache`."""

    lookup = Entrance("_undisturbed")

    def _undisturbed(
        self,
        stock: Stock,
        choices: Any,
        op: Any,
        inputs: Any,
        benchmark: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        problem = (op, inputs, args, *kwargs.values())
        tried = failed_blamelessly(problem)
        untried = [choice for choice in choices if tried and choice.hash_key() not in tried]
        with looking_up(problem) as measured:

            def undisturbed(candidates: Any) -> Any:
                timings = beside(benchmark, self._without_folding, candidates)
                measured(timings)
                return timings

            asking = None if benchmark is None else undisturbed
            timings = stock(untried or choices, op, inputs, asking, *args, **kwargs)
        if not untried or len(timings) < len(untried):
            return timings
        return {choice: timings.get(choice, math.inf) for choice in choices}

    def _without_folding(self, stock: Stock, candidates: Any) -> Any:
        with self._tuned().measuring():
            return stock(candidates)

    get_local_cache = Entrance("_view")

    def _view(self, stock: Stock) -> dict[str, Any]:
        return self._tuned().view()

    def update_local_cache(self, local_cache: dict[str, Any]) -> None:
        # Not the stock method, which replaces the file by its argument: a view only contains what
        # was accessed.
        beside(self._keep_as_stock, self._insert, local_cache)

    def _insert(self, stock: Stock, local_cache: dict[str, Any]) -> None:
        cache, news = self._tuned(), without_blameless_failures(written(local_cache))
        if is_on(ALL_DEVICES):
            with quietly("times are not taken over for other devices"):
                news = for_all_devices(news, cache.view(), cache.path.parent.parent)
        try:
            cache.insert(news)
        except UnsafePath as error:
            say_once(f"timings are kept by PyTorch alone, which may lose some: {error}")
            self._keep_as_stock(local_cache)

    def _keep_as_stock(self, local_cache: dict[str, Any]) -> None:
        with quietly("timings are not kept"):
            cached = super().get_local_cache()
            for tuned in without_blameless_failures(written(local_cache)):
                by_inputs = cached.setdefault(tuned.op, {})
                by_inputs.setdefault(tuned.inputs, {}).setdefault(tuned.precision, {}).update(
                    tuned.timings
                )
            super().update_local_cache(cached)

    def _tuned(self) -> TunedCache:
        """Return the cache of the cache dir in force, shared by all selectors of the process."""
        global _current
        path = Path(self.get_local_cache_path())
        if _current is None or _current.path != path:
            _current = TunedCache(path, self.system, say_once, pinned_choices)
        return _current
