"""What choices compute from equal inputs: which give the very same bits, and always the same."""

from __future__ import annotations

import ctypes
import hashlib
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from backend.model.choice import Output

if TYPE_CHECKING:  # loads Inductor
    from backend.inductor.truth.rounding import Distance, Exact

RUNS = 10
"""Of each choice on the same inputs, to see whether it gives the same each time."""
SECONDS = 1.0
"""A choice that is slower is run less often, but twice."""
_CHUNK = 16 << 20
"""Elements that are hashed at once."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What `runs` runs of a choice gave: `same` of them the bits of the first, which `digest`
    stands for."""

    digest: bytes
    runs: int
    same: int
    distance: Distance | None = None


def seen(run: Callable[[], Tensor], exact: Exact | None) -> Seen:
    """`run` gives a result that the next run may overwrite. Raises what it raises."""
    end = time.monotonic() + SECONDS
    first = run().clone()
    bits = _bits(first)
    runs = same = 1
    while runs < RUNS and (runs < 2 or time.monotonic() < end):
        runs, same = runs + 1, same + torch.equal(bits, _bits(run()))
    return Seen(digest_of(first), runs, same, _distance(first, exact))


def _distance(result: Tensor, exact: Exact | None) -> Distance | None:
    try:
        return None if exact is None else exact.distance(result)
    except torch.OutOfMemoryError:  # which is not the fault of the choice
        return None


_WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Whole numbers by their bytes."""


def _bits(result: Tensor) -> Tensor:
    """Zeros have a sign there, and a NaN is what it is."""
    parts = torch.view_as_real(result) if result.is_complex() else result
    return parts.view(_WORDS[parts.element_size()])


def digest_of(result: Tensor) -> bytes:
    """Of the sizes and the bits of all elements, wherever they lie."""
    digest = hashlib.blake2b(repr((tuple(result.shape), result.dtype)).encode(), digest_size=16)
    for part in _bits(result).reshape(-1).split(_CHUNK):
        here = part.cpu()
        size = here.numel() * here.element_size()
        digest.update((ctypes.c_char * size).from_address(here.data_ptr()) if size else b"")
    return digest.digest()


def outputs_of(found: Mapping[str, Seen], order: Iterable[str]) -> dict[str, Output]:
    """By hash; the letters are given in the order `order`."""
    letters: dict[bytes, str] = {}
    outputs = {}
    for hash in order:
        if (one := found.get(hash)) is not None:
            letter = letters.setdefault(one.digest, letter_of(len(letters)))
            output = Output(letter, one.runs, one.same)
            if (known := one.distance) is not None:
                told = known.compared, known.beyond, known.excess
                output = Output(letter, one.runs, one.same, *told)
            outputs[hash] = output
    return outputs


def letter_of(number: int) -> str:
    """A to Z, then AA, as columns of a sheet are named."""
    before, at = divmod(number, 26)
    return (letter_of(before - 1) if before else "") + chr(ord("A") + at)
