"""What the key of an op does not tell: recorded by `run`, or in the hash of ATen's choice, which a
job names or the autotune cache has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from backend.cache.autotune import read_caches
from backend.disk.layout import Layout, cache_dir
from backend.model.options import ATEN, TOLD, Options, agree, of_hash, of_text, options, text_of
from backend.model.problem import TuningKey

NEEDED: Mapping[str, tuple[str, str]] = {
    "convolution": ("stride", "stride and padding"),
    "convolution_bwd_weight": ("w_shape", "stride, padding and sizes of the weight"),
    "convolution_bwd_input": ("x_shape", "stride, padding and sizes of the image"),
    "linear_unary": ("attr", "activation"),
    "linear_binary": ("attr", "second operation"),
    "qlinear_unary": ("output_dtype", "activation, result type and scales"),
    "qlinear_binary": ("output_dtype", "activation, result type and scales"),
}
"""Without that name an op cannot be built again, and what it stands for."""


class OptionsUnknown(Exception):
    """Nothing tells what the op was given, or several share the key."""


def options_of(key: TuningKey, hashes: Iterable[str] = (), told: str = "") -> Options:
    """What `hashes` tell, with what was `told`, as `text_of` writes it, where they agree; else what
    was told, else what those in the autotune cache tell. None for an op whose key tells all.
    Raises OptionsUnknown."""
    if key.op not in TOLD:
        return ()
    known = of_text(told)
    name, what = NEEDED.get(key.op, ("", ""))
    found = _of(key.op, hashes) or ({known} if dict(known).get(name) or not name else set())
    found = found - {()} or (_of(key.op, _cached(key)) if key.op in ATEN else set())
    if len(found) > 1 and known:  # the cache has the choices of all that share the key
        found = {one for one in found if agree(one, known)} or found
    if len(found) == 1:
        (one,) = found
        return options(dict(known) | dict(one)) if agree(one, known) else one
    if found:
        texts = " and ".join(sorted(map(text_of, found)))
        raise OptionsUnknown(
            f"several {key.op} ({texts}) share this key: which one is not known; name choices of "
            "one"
        )
    if not name:
        return known
    raise OptionsUnknown(
        f"{key.op} cannot be rebuilt: nothing tells its {what}; run its program once with "
        "`rocm-tui run -- CMD`, which records them"
    )


def _of(op: str, hashes: Iterable[str]) -> set[Options]:
    return {of_hash(op, hash) for hash in hashes} - {()}


def _cached(key: TuningKey) -> Iterable[str]:
    files, _ = read_caches(Layout(cache_dir()))
    return {hash for file in files for hash in file.entries.get(key, ())}
