"""A log that is a file, read by its markers."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from backend.model.session import Fault
from rocm_tui.ingest.formats.stderr_log import of_file
from rocm_tui.ingest.records import Dropped, Record, Seen
from tests.support.log_lab import Result

FILLER = "[titan] 2026-05-19 21:15:50,375 - root - INFO - step 12 loss 3.14 took 5 ms CUDA AUTO\n"


def scanned(data: bytes, more: bytes = b"") -> Result:
    """Read a file that holds `data`, then go on with `more`."""
    with tempfile.NamedTemporaryFile(delete=False) as file:
        file.write(data)
    try:
        log = of_file(file.name)
        records = log.feed(data)
        if more:
            with open(file.name, "ab") as stream:  # noqa: PTH123
                stream.write(more)
        records += log.feed(more) + log.close()
    finally:
        Path(file.name).unlink()
    return Result([_renamed(record, file.name) for record in records])


def _renamed(record: Record, path: str) -> Record:
    """As if the file were called what `read` calls it."""
    if isinstance(record, Seen):
        tuning = replace(record.tuning, sources=("x.log",))
        return Seen(record.uid.replace(path, "x.log"), tuning)
    if isinstance(record, Fault):
        return replace(record, source="x.log")
    if isinstance(record, Dropped):
        return Dropped(record.uid.replace(path, "x.log"))
    return record
