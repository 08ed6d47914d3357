"""Which torch versions the hooks know, and what they touch of torch before Inductor is imported.

Importing this imports none of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

OLDEST, NEWEST = (2, 8), (2, 15)
"""All that the smoke suite has run, and none else: see docs/limits.md."""


def known(version: str) -> bool:
    """Whether the hooks fit the torch `version`, such as `2.13.0+cpu`."""
    match = re.match(r"(\d+)\.(\d+)", version)
    return match is not None and OLDEST <= (int(match[1]), int(match[2])) <= NEWEST


def range_text() -> str:
    """`2.8 to 2.15`."""
    return " to ".join(".".join(map(str, version)) for version in (OLDEST, NEWEST))


SELECTOR = "torch._inductor.select_algorithm"
"""The module that has the stock selector."""

GRAPH = "torch._inductor.graph"
"""The module that lowers graphs; it imports the selector's."""

COMPILER = "torch._inductor.compile_fx"
"""The module that compiles graphs."""

CALLBACKS = "torch._dynamo.callback"
"""The module that tells when torch compiles."""

UTILS = "torch._inductor.utils"
"""The module that has `fresh_cache`."""

AUTOTUNER = "torch._inductor.runtime.triton_heuristics"
"""The module that tunes the Triton kernels that Inductor launches; processes that only compile load
it too."""

TRITON_AUTOTUNER = "triton.runtime.autotuner"
"""Triton's module with `@triton.autotune`."""

_TAG = "cache_key_tag"


def watch_fresh_caches(cache: Any) -> None:
    """Let torch call `cache.cache_clear()` before and after each temporary cache dir."""
    from torch._inductor import utils  # heavy: after torch has imported it itself

    names = ("clear_on_fresh_cache", "clear_on_fresh_inductor_cache")
    register = next(function for name in names if (function := getattr(utils, name, None)))
    register(cache)


def tag_graphs(tag: str) -> None:
    """Put `tag` into the key of each compiled graph from now on.

    What the program itself has as its tag, now or later, in this thread or another one, stays in
    front of ours.
    """
    import torch.compiler.config  # heavy: torch

    config: Any = torch.compiler.config
    kind = type(config)  # of this module of settings alone

    def with_ours(self: Any) -> str:
        own = kind.__getattr__(self, _TAG)
        return own if tag in own else f"{own}{tag}"

    if tag not in config.cache_key_tag:
        # A property comes before the `__getattr__` by which torch reads its settings; what is set
        # goes where it always went. (torch keeps what is set for each thread by itself.)
        setattr(kind, _TAG, property(with_ours))


def watch_compiles(begun: Callable[..., None], ended: Callable[..., None]) -> None:
    """Call these when torch begins to compile, forward or backward, and when no compile is left.
    They must not raise."""
    from torch._dynamo.callback import callback_handler  # heavy: after torch imported it itself

    def begins(args: object = None) -> None:
        if getattr(getattr(args, "callback_trigger", None), "name", "") != "CUDAGRAPH_RECORDING":
            begun()

    callback_handler.register_start_callback(begins)
    callback_handler.register_end_callback(lambda args=None: ended())
