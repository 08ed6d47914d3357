"""A convolution as a program again. Its key tells the tensors; the rest is told by what `run` has
recorded, or by the hash of ATen's choice, which a job names or the autotune cache has.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from backend.cache.autotune import read_caches
from backend.disk.layout import Layout, cache_dir
from backend.model import convolution
from backend.model.convolution import Options, text_of
from backend.model.problem import TuningKey

__all__ = ["SETTINGS", "OptionsUnknown", "function_of", "options_of", "text_of"]

SETTINGS = {"layout_optimization": False}
"""The inputs stay in the memory format of the key; what a program's other convolutions made of it
is not known."""


class OptionsUnknown(Exception):
    """Nothing tells the stride and the padding, or several convolutions share the key."""


def options_of(key: TuningKey, hashes: Iterable[str] = (), told: str = "") -> Options:
    """What `hashes` tell, else what was `told`, as `text_of` writes it, else what those in the
    autotune cache tell. None for other ops. Raises OptionsUnknown."""
    if key.op != "convolution":
        return ()
    found = _of(hashes) or {convolution.of_text(told)} - {()} or _of(_cached(key))
    if len(found) == 1:
        return found.pop()
    if found:
        texts = " and ".join(sorted(map(text_of, found)))
        raise OptionsUnknown(
            f"convolutions with {texts} share this key: which one is not known; name choices of one"
        )
    raise OptionsUnknown(
        "convolution cannot be rebuilt: nothing tells its stride and padding; run its program once "
        "with `rocm-tui run -- CMD`, which records them"
    )


def _of(hashes: Iterable[str]) -> set[Options]:
    return {convolution.of_hash(hash) for hash in hashes} - {()}


def _cached(key: TuningKey) -> Iterable[str]:
    files, _ = read_caches(Layout(cache_dir()))
    return {hash for file in files for hash in file.entries.get(key, ())}


def function_of(given: Options) -> Any:
    """The convolution of an image, a weight and maybe a bias."""
    values: dict[str, Any] = {name: list(numbers) for name, numbers in given}
    values |= {"transposed": any(values["transposed"]), "groups": values["groups"][0]}

    def function(x: Any, weight: Any, bias: Any = None) -> Any:
        return torch.convolution(x, weight, bias, **values)

    return function
