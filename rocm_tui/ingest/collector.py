"""Python's search for cycles, put off."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collector() -> Iterator[None]:
    """Without Python's search for cycles, of which records have none.

    While they pile up it would look through all of them again and again; and once more at the end.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.freeze()
            gc.enable()


class Pile:
    """Puts the search off while a great many records come in, and then counts them as settled:
    with a million objects one search takes a tenth of a second, in which no key works."""

    def __init__(self, big: int = 10_000) -> None:
        self._big = big
        self._high = 0

    def grown(self, size: int, more: bool) -> None:
        """So many records are held now; whether more is waiting."""
        if more:
            if size > self._high + self._big and gc.isenabled():
                gc.disable()
        elif not gc.isenabled():
            self._high = size
            gc.freeze()
            gc.enable()
