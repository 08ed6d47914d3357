"""What Inductor found to be the best config of a kernel of its own: each file is a tuning of it."""

from __future__ import annotations

import re
from pathlib import Path

from backend.cache.best_config import SUFFIX, Beside, parse
from backend.errors import CacheUnreadable
from backend.model.choice import Choice
from backend.model.inductor_kernel import PRECISION
from backend.model.tuning import Seconds, Tuning
from rocm_tui.harmless import clean
from rocm_tui.ingest.devices import device_index_in
from rocm_tui.ingest.formats.reader import Format, NotReadable
from rocm_tui.ingest.records import Record, Seen, uid_of


def read(data: bytes, source: str) -> list[Record]:
    """The tuning of a file. Raises NotReadable."""
    try:
        return [Seen(uid_of(source, 0), tuning_of(data, source))]
    except CacheUnreadable as error:
        raise NotReadable(clean(str(error))) from error


def tuning_of(
    data: bytes, source: str, when: float | None = None, beside: Beside | None = None
) -> Tuning:
    """The same, as the tuning alone; `when` it was written, Unix time; `beside` what its folder
    holds, if that is known. Its one choice is what was taken; nothing tells its time, nor its
    rivals. Raises CacheUnreadable."""
    path = Path(source)
    config = parse(path, data)
    code = (beside or Beside(path.parent)).source_of(path, config)
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


FORMAT = Format(
    "best config",
    place=re.compile(re.escape(SUFFIX) + r"\Z"),
    suffixes=frozenset((SUFFIX,)),
    document=read,
)
"""Known by its name alone; all of a cache dir are one source, see `follow.kernel_files`."""
