"""Files with the configs of a Triton kernel: what Inductor found best for a kernel of its own, and
what `@triton.autotune` timed. Each is a tuning of one kernel.

They are known by their names alone; all files of a cache are one source, see `follow.kernel_files`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from math import isfinite
from pathlib import Path

from backend.cache import best_config as cache_best_config
from backend.cache import configs as cache_configs
from backend.cache.configs import TunedKernel
from backend.errors import CacheUnreadable
from backend.model.choice import Choice, sort_choices
from backend.model.inductor_kernel import PRECISION, TRITON, dtypes_of, is_digest
from backend.model.tuning import Seconds, Tuning
from rocm_tui.harmless import clean
from rocm_tui.ingest.devices import device_index_in
from rocm_tui.ingest.formats.reader import DOCUMENTS, Format, NotReadable
from rocm_tui.ingest.records import Record, Seen, uid_of


def best_config_tuning(
    data: bytes,
    source: str,
    when: float | None = None,
    beside: cache_best_config.FolderKernels | None = None,
) -> Tuning:
    """Return the tuning of a file; `when` it was written, Unix time; `beside` what its folder
    holds, if that is known. Its one choice is what was taken; its time and its rivals are
    unknown. Raises CacheUnreadable."""
    path = Path(source)
    config = cache_best_config.parse(path, data)
    code = (beside or cache_best_config.FolderKernels(path.parent)).source_of(path, config)
    kernel = code.kernel
    return Tuning(
        op=kernel.op,
        inputs_key=kernel.inputs,
        precision=PRECISION,
        dtypes=tuple(dict.fromkeys(kernel.dtypes)),
        device=kernel.device_type or None,
        choices=(Choice(config.name, config.hash, None, config.text),),
        seconds=Seconds(benchmark=config.seconds),
        selected=config.hash,
        selected_by="timing",
        when=when,
        sources=(source,),
        kernel=kernel.name,
        code=str(code.path),
        device_index=device_index_in(code.text),
    )


def triton_tuning(data: bytes, source: str, when: float | None = None) -> Tuning:
    """Return the tuning of a file; `when` it was written, Unix time. Raises CacheUnreadable.

    Outside of Triton's cache the key is not known whole, so there it cannot be pinned."""
    path = Path(source)
    kernel = cache_configs.parse(path, data)
    return Tuning(
        op=TRITON,
        dtypes=dtypes_of(kernel.key),
        precision="" if is_digest(path.parent.name) else None,
        inputs_key=kernel.inputs,
        choices=_triton_choices(kernel),
        num_choices=len(kernel.configs),
        when=when,
        sources=(source,),
    )


def _triton_choices(kernel: TunedKernel) -> tuple[Choice, ...]:
    return sort_choices(
        [
            Choice(config.name, config.hash, config.ms, config.text, quantiles=config.quantiles)
            if isfinite(config.ms)
            else Choice(config.name, config.hash, None, config.text, failed=True)
            for config in kernel.configs
        ]
    )


def _read(tuning_of: Callable[[bytes, str], Tuning], data: bytes, source: str) -> list[Record]:
    """Return the tuning of a file. Raises NotReadable."""
    try:
        return [Seen(uid_of(source, 0), tuning_of(data, source))]
    except CacheUnreadable as error:
        raise NotReadable(clean(str(error))) from error


BEST_CONFIG = Format(
    "best config",
    place=re.compile(re.escape(cache_best_config.SUFFIX) + r"\Z"),
    suffixes=frozenset((cache_best_config.SUFFIX,)),
    document=partial(_read, best_config_tuning),
)
TRITON_CONFIGS = Format(
    "triton configs",
    place=re.compile(re.escape(cache_configs.SUFFIX) + r"\Z"),
    suffixes=DOCUMENTS,
    document=partial(_read, triton_tuning),
)
