"""Private names of torch for temporary cache dirs. Imports no more of Inductor than its `utils`."""

from __future__ import annotations

from typing import Any

UTILS = "torch._inductor.utils"
"""The module that has `fresh_cache`."""


def watch_fresh_caches(cache: Any) -> None:
    """Let torch call `cache.cache_clear()` before and after each temporary cache dir."""
    from torch._inductor import utils

    names = ("clear_on_fresh_cache", "clear_on_fresh_inductor_cache")
    register = next(found for name in names if (found := getattr(utils, name, None)))
    register(cache)
