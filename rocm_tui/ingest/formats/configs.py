"""What `@triton.autotune` timed: each file of Triton's cache is a tuning of one kernel."""

from __future__ import annotations

import re
from math import isfinite
from pathlib import Path

from backend.cache.configs import SUFFIX, TunedKernel, parse
from backend.errors import CacheUnreadable
from backend.model.choice import Choice, sort_choices
from backend.model.inductor_kernel import TRITON, dtypes_of, is_digest
from backend.model.tuning import Tuning
from rocm_tui.harmless import clean
from rocm_tui.ingest.formats.reader import DOCUMENTS, Format, NotReadable
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
    return Tuning(
        op=TRITON,
        dtypes=dtypes_of(kernel.key),
        precision="" if is_digest(path.parent.name) else None,
        inputs_key=kernel.inputs,
        choices=_choices(kernel),
        num_choices=len(kernel.configs),
        when=when,
        sources=(source,),
    )


def _choices(kernel: TunedKernel) -> tuple[Choice, ...]:
    return sort_choices(
        [
            Choice(config.name, config.hash, config.ms, config.text, quantiles=config.quantiles)
            if isfinite(config.ms)
            else Choice(config.name, config.hash, None, config.text, failed=True)
            for config in kernel.configs
        ]
    )


FORMAT = Format(
    "triton configs",
    place=re.compile(re.escape(SUFFIX) + r"\Z"),
    suffixes=DOCUMENTS,
    document=read,
)
"""Known by its name alone; a whole cache of Triton is one source, see `follow.kernel_files`."""
