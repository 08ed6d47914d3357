"""Choices of ours that failed for no fault of their own: the persistent cache is not told.

Stock `lookup` keeps infinity for whatever failed, for ever. What is left out there is tried again
by the next process that tunes the problem; this one does not ask again.
"""

from __future__ import annotations

import contextlib
import math
import threading
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from backend.cache.journal import Tuned
from backend.inductor.torch.tuning import ChoiceCaller, Timings

_failed: weakref.WeakSet[ChoiceCaller] = weakref.WeakSet()
_known: dict[Hashable, frozenset[str]] = {}
_here = threading.local()


def note(choice: ChoiceCaller) -> None:
    """That it failed says nothing of its kernel."""
    _failed.add(choice)


@contextlib.contextmanager
def looking_up(problem: Hashable) -> Iterator[Callable[[Timings], None]]:
    """A lookup of the times of `problem`. Give what is in the block the times that were measured:
    nothing that it writes has those of failures that were noted."""
    _here.hashes = frozenset[str]()

    def measured(timings: Timings) -> None:
        lost = (c for c, ms in timings.items() if c in _failed and not math.isfinite(ms))
        _here.hashes = frozenset(str(choice.hash_key()) for choice in lost)
        if _here.hashes:
            _known[problem] = tried(problem) | _here.hashes

    try:
        yield measured
    finally:
        _here.hashes = frozenset[str]()


def tried(problem: Hashable) -> frozenset[str]:
    """The hashes of those that failed in this process."""
    return _known.get(problem, frozenset())


def kept(news: Iterable[Tuned]) -> Sequence[Tuned]:
    """What may be written of a lookup's times."""
    hashes: frozenset[str] = getattr(_here, "hashes", frozenset())
    if not hashes:
        return list(news)
    left = (replace(tuned, timings=_without(tuned.timings, hashes)) for tuned in news)
    return [tuned for tuned in left if tuned.timings]


def _without(timings: Mapping[str, float], hashes: frozenset[str]) -> dict[str, float]:
    return {name: ms for name, ms in timings.items() if name not in hashes}
