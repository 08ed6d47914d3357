"""Choices on the other devices of this box: their identities, and times taken over for them."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from backend.cache.journal import Tuned
from backend.cache.variants import ChoiceVariants, for_devices, write_modules
from backend.inductor.torch import tuning as torch_api
from backend.inductor.torch.tuning import ChoiceCaller


@functools.lru_cache(maxsize=8)
def variants_below(root: Path) -> ChoiceVariants:
    """The hashes of choices on other devices, from the modules below a cache dir."""
    return ChoiceVariants(root)


def identities(choices: Iterable[ChoiceCaller], root: Path) -> dict[str, str]:
    """What names each choice on all devices of a kind, by its hash on this one."""
    variants = variants_below(root)
    hashes = [str(choice.hash_key()) for choice in choices]
    return {name: variants.identity(name) for name in hashes}


class TakenOver(NamedTuple):
    """Times that the GPU `device` measured, by the hashes of the same choices on `devices`."""

    device: int
    devices: tuple[int, ...]
    timings: Mapping[str, float]


_here = threading.local()


def taken_over() -> list[TakenOver]:
    """What this thread wrote for other devices since the last call."""
    taken: list[TakenOver] = _here.__dict__.pop("taken", [])
    return taken


def for_all_devices(tuned: Sequence[Tuned], known: Mapping[str, object], root: Path) -> list[Tuned]:
    """`tuned` with the times of each problem under the hashes of the other devices of its kind too.
    `known` is the content of the cache so far. Raises StoreErrors."""
    variants = variants_below(root)
    return [_of_all(each, known, variants) for each in tuned]


def _of_all(tuned: Tuned, known: Mapping[str, object], variants: ChoiceVariants) -> Tuned:
    index = next((i for i in map(variants.device, tuned.timings) if i is not None), None)
    others = [] if index is None else torch_api.devices_alike(index)
    if index is None or not others:
        return tuned
    taken = for_devices(tuned.timings, variants, others, _timings(known, tuned))
    write_modules(variants, tuned.timings, others)
    _here.__dict__.setdefault("taken", []).append(TakenOver(index, tuple(others), taken))
    return replace(tuned, timings={**tuned.timings, **taken})


def _timings(known: Mapping[str, object], tuned: Tuned) -> Mapping[str, float]:
    node: object = known
    for name in (tuned.op, tuned.inputs, tuned.precision):
        node = node.get(name) if isinstance(node, Mapping) else None
    return node if isinstance(node, Mapping) else {}
