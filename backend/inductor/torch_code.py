"""The code that Inductor generates, seen before any of it is compiled or run.

Read in torch 2.8 to 2.15 (`torch/_inductor/graph.py`, `codecache.py`): `save_output_code` is called
with the wrapper as soon as it is written, and as soon as a graph is taken from the graph cache.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import torch
from torch._inductor.graph import GraphLowering


class _Known(BaseException):
    """Ends the compile. No Exception: the graph caches take one for a miss and compile again."""


def generated_code(compiles: Callable[[], object]) -> str:
    """The Python source of the first graph that `compiles` compiles or takes from the graph cache.

    The compile ends there: no kernel is built, nothing is run, no cache entry is written. Empty if
    no graph is compiled; raises what the compile raises before.
    """
    found: list[str] = []

    def known(code: str) -> None:
        found.append(code)
        raise _Known

    before = GraphLowering.save_output_code
    GraphLowering.save_output_code = staticmethod(known)
    try:
        with contextlib.suppress(_Known), torch.no_grad():
            compiles()
    finally:
        GraphLowering.save_output_code = before
    return found[0] if found else ""
