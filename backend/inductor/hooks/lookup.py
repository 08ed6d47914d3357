"""The persistent cache behind the stock `lookup`: same hits, same misses, same timings, but parsed
once, added to instead of rewritten, and with nothing lost where several processes tune at once.

Stock `lookup` asks `get_local_cache` for all timings, and when it had to benchmark gives them back
to `update_local_cache`, its own added. Those two are replaced; what makes a key or a hit is left to
whatever version of torch runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from backend.cache.lookup import TunedCache
from backend.cache.tuned import written
from backend.errors import UnsafePath
from backend.inductor.guard import Entrance, Stock, beside, quietly, say_once
from backend.inductor.torch import tuning as torch_api
from backend.pins.held import pinned_choices

_current: TunedCache | None = None


class TunedLookup(torch_api.LazySystem):
    """`PersistentCache` that keeps its timings in a `TunedCache`."""

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
        if benchmark is None:
            return stock(choices, op, inputs, benchmark, *args, **kwargs)

        def undisturbed(candidates: Any) -> Any:
            return beside(benchmark, self._without_folding, candidates)

        return stock(choices, op, inputs, undisturbed, *args, **kwargs)

    def _without_folding(self, stock: Stock, candidates: Any) -> Any:
        with self._tuned().measuring():
            return stock(candidates)

    get_local_cache = Entrance("_view")

    def _view(self, stock: Stock) -> dict[str, Any]:
        return self._tuned().view()

    def update_local_cache(self, local_cache: dict[str, Any]) -> None:
        # Not the stock method, which replaces the file by what it gets: a view has no more in it
        # than was looked at.
        beside(self._keep_as_stock, self._insert, local_cache)

    def _insert(self, stock: Stock, local_cache: dict[str, Any]) -> None:
        try:
            self._tuned().insert(written(local_cache))
        except UnsafePath as error:
            say_once(f"timings are kept by PyTorch alone, which may lose some: {error}")
            self._keep_as_stock(local_cache)

    def _keep_as_stock(self, local_cache: dict[str, Any]) -> None:
        with quietly("timings are not kept"):
            cached = super().get_local_cache()
            for tuned in written(local_cache):
                by_inputs = cached.setdefault(tuned.op, {})
                by_inputs.setdefault(tuned.inputs, {}).setdefault(tuned.precision, {}).update(
                    tuned.timings
                )
            super().update_local_cache(cached)

    def _tuned(self) -> TunedCache:
        """That of the cache dir in force; all selectors of a process share it."""
        global _current
        path = Path(self.get_local_cache_path())
        if _current is None or _current.path != path:
            _current = TunedCache(path, self.system, say_once, pinned_choices)
        return _current
