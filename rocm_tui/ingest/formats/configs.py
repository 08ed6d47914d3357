"""What `@triton.autotune` timed: each file of Triton's cache is a tuning of one kernel."""

from __future__ import annotations

import re
from array import array
from dataclasses import fields
from math import inf, isfinite, nan
from pathlib import Path

from backend.cache.configs import SUFFIX, TunedKernel, is_spread, parse
from backend.errors import CacheUnreadable
from backend.model.choice import Choice
from backend.model.kernel import TRITON, dtypes_of, is_digest
from backend.model.tuning import Tuning
from rocm_tui.harmless import clean
from rocm_tui.ingest.formats.reader import DOCUMENTS, Format, NotReadable
from rocm_tui.ingest.packed import Column, Maybes, PackedTuning, Pairs
from rocm_tui.ingest.records import Record, Seen, uid_of


def read(data: bytes, source: str) -> list[Record]:
    """The tuning of a file. Raises NotReadable."""
    try:
        return [Seen(uid_of(source, 0), tuning_of(data, source))]
    except CacheUnreadable as error:
        raise NotReadable(clean(str(error))) from error


def tuning_of(data: bytes, source: str, when: float | None = None) -> Tuning:
    """The same, as the tuning alone; `when` it was written, Unix time. Raises CacheUnreadable.

    Outside of Triton's cache the key is not known whole, so there it cannot be pinned."""
    path = Path(source)
    kernel = parse(path, data)
    tuning = Tuning(
        op=TRITON,
        dtypes=dtypes_of(kernel.key),
        precision="" if is_digest(path.parent.name) else None,
        inputs_key=kernel.inputs,
        num_choices=len(kernel.described),
        when=when,
        sources=(source,),
    )
    return PackedTuning.of(tuning, _columns(kernel), len(kernel.described))


def _columns(kernel: TunedKernel) -> list[Column]:
    """Those of its choices, fastest first, what failed last: few of them are ever asked for."""
    if not kernel.described:
        return []
    medians, low, high = kernel.times[0::3], kernel.times[1::3], kernel.times[2::3]
    order = sorted(range(len(medians)), key=medians.__getitem__)
    hashes, names, texts = zip(*[kernel.described[at] for at in order], strict=True)
    lost = medians.count(inf)
    timed = order[: len(order) - lost]
    pairs = [each for at in timed for each in (low[at], high[at])]
    if not isfinite(sum(pairs)):
        spreads = (is_spread(medians[at], low[at], high[at]) for at in timed for _ in range(2))
        pairs = [each if told else nan for each, told in zip(pairs, spreads, strict=True)]
    filled: dict[str, Column] = {
        "name": (False, names),
        "hash": (False, hashes),
        "ms": (False, Maybes(array("d", [*[medians[at] for at in timed], *[nan] * lost]))),
        "description": (False, texts),
        "failed": (False, [False] * len(timed) + [True] * lost) if lost else (True, False),
        "quantiles": (False, Pairs(array("d", [*pairs, *[nan] * (2 * lost)]))),
    }
    return [filled.get(name, column) for name, column in _UNTOLD]


_UNTOLD: list[tuple[str, Column]] = [
    (field.name, (True, field.default)) for field in fields(Choice)
]
"""What a choice says of which the file tells nothing."""

FORMAT = Format(
    "triton configs",
    place=re.compile(re.escape(SUFFIX) + r"\Z"),
    suffixes=DOCUMENTS,
    document=read,
)
"""Known by its name alone; a whole cache of Triton is one source, see `follow.configs`."""
