"""The torch versions that the hooks support, and what they use of torch before Inductor is
imported.

Importing this does not import torch.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

OLDEST, NEWEST = (2, 8), (2, 15)
"""The versions covered by the smoke suite: see docs/limits.md."""


def is_supported(version: str) -> bool:
    """Return whether the hooks support the torch `version`, such as `2.13.0+cpu`."""
    match = re.match(r"(\d+)\.(\d+)", version)
    return match is not None and OLDEST <= (int(match[1]), int(match[2])) <= NEWEST


def range_text() -> str:
    """Return `2.8 to 2.15`."""
    return " to ".join(".".join(map(str, version)) for version in (OLDEST, NEWEST))


SELECTOR = "torch._inductor.select_algorithm"
"""The module that has the stock selector."""

GRAPH = "torch._inductor.graph"
"""The module that lowers graphs; it imports the selector's."""

COMPILER = "torch._inductor.compile_fx"
"""The module that compiles graphs."""

CALLBACKS = "torch._dynamo.callback"
"""The module that reports when torch compiles."""

UTILS = "torch._inductor.utils"
"""The module that has `fresh_cache`."""

AUTOTUNER = "torch._inductor.runtime.triton_heuristics"
"""The module that tunes Triton kernels for Inductor; compile-only processes load it too."""

TRITON_AUTOTUNER = "triton.runtime.autotuner"
"""Triton's module with `@triton.autotune`."""

CHOICES_LOG = "torch._inductor.rocm_tui"
"""The logger of each choice's source: below Inductor's, so that TORCH_LOGS=+inductor has it."""

KERNELS_LOG = "torch._inductor.async_compile.__kernel_code"
"""The logger of TORCH_LOGS=kernel_code, which has the source of each kernel that a graph loads."""

_TAG = "cache_key_tag"


def watch_fresh_caches(cache: Any) -> None:
    """Make torch call `cache.cache_clear()` before and after each temporary cache dir."""
    from torch._inductor import utils  # heavy, but torch has imported it already

    names = ("clear_on_fresh_cache", "clear_on_fresh_inductor_cache")
    register = next(function for name in names if (function := getattr(utils, name, None)))
    register(cache)


def tag_graphs(tag: str) -> None:
    """Add `tag` to the key of each compiled graph from now on. The program's own tag, set now or
    later, in this or another thread, stays in front of ours."""
    import torch.compiler.config  # heavy: torch

    config: Any = torch.compiler.config
    kind = type(config)  # used by this settings module only

    def with_ours(self: Any) -> str:
        own = kind.__getattr__(self, _TAG)
        return own if tag in own else f"{own}{tag}"

    if tag not in config.cache_key_tag:
        # A property comes before the `__getattr__` by which torch reads its settings; what is set
        # goes where it always went. (torch keeps settings separately for each thread.)
        setattr(kind, _TAG, property(with_ours))


def watch_compiles(begun: Callable[..., None], ended: Callable[..., None]) -> None:
    """Call these, which must not raise, when torch begins to compile, and when no compile is
    left."""
    from torch._dynamo.callback import callback_handler  # heavy: after torch imported it itself

    def begins(args: object = None) -> None:
        if getattr(getattr(args, "callback_trigger", None), "name", "") != "CUDAGRAPH_RECORDING":
            begun()

    callback_handler.register_start_callback(begins)
    callback_handler.register_end_callback(lambda args=None: ended())
