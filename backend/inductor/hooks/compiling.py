"""Which graph a thread compiles, and the tunings that it asked for meanwhile.

Loads nothing of Inductor: the selector, which is there before the compiler, tells it of tunings.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from backend.model.graph import TuningUse

if TYPE_CHECKING:
    from backend.inductor.hooks.tuning_watch import TuningWatch  # loads Inductor


@dataclass(eq=False)
class Compile:
    """A graph that a thread compiles: the tunings so far, and what became of it."""

    tunings: list[TuningWatch] = field(default_factory=list)
    graph: Any = None
    selecting: bool = False


_local = threading.local()


def _stack() -> list[Compile]:
    stack: list[Compile] = _local.__dict__.setdefault("compiles", [])
    return stack


def current() -> Compile | None:
    """What this thread compiles; of nested ones the innermost."""
    stack = _stack()
    return stack[-1] if stack else None


@contextlib.contextmanager
def compiling() -> Iterator[Compile]:
    """While this thread compiles a graph, or finds it in FxGraphCache."""
    this, stack = Compile(), _stack()
    stack.append(this)
    try:
        yield this
    finally:
        stack.remove(this)


@contextlib.contextmanager
def selecting(tuning: TuningWatch | None) -> Iterator[None]:
    """While the selector is asked: the graph that this thread compiles, if any, calls what `tuning`
    selects, unless it fails. What is asked meanwhile belongs to one of the choices."""
    this = current()
    if this is None or this.selecting:
        yield
        return
    this.selecting = True
    try:
        yield
    finally:
        this.selecting = False
    if tuning is not None:
        this.tunings.append(tuning)


def uses_of(tunings: Sequence[TuningWatch]) -> tuple[TuningUse, ...]:
    """What they selected, equal ones counted; None where torch did not tell what it took."""
    counts = Counter((tuning.key, tuning.hash) for tuning in tunings)
    return tuple(
        TuningUse(key.op, key.inputs, key.precision, count, hash_)
        for (key, hash_), count in counts.items()
    )
