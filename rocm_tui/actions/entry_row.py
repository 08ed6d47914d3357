"""The row of a table that a tuning was read from, with all of its columns."""

from __future__ import annotations

from pathlib import Path

from backend.disk.tables import read_table
from backend.errors import StoreError
from backend.model.tuning import Tuning
from backend.tables.registry import tuner_named
from rocm_tui.ingest.formats.table_entries import tuning_of
from rocm_tui.tables.shelf import Shelved


def row_of(tuning: Tuning) -> Shelved | None:
    """As the file has it now; None of what is no entry, or is not there any more."""
    if tuning.entry is None:
        return None
    path, line = tuning.sources[0], tuning.entry.line
    try:
        table = read_table(Path(path))
    except StoreError:
        return None
    problem = tuner_named(table.tuner).problem
    for number, at in enumerate(table.numbers):
        if at == line:
            entry = table.entries[number]
            told = tuning_of(table.tuner, entry, problem, path)
            if told.inputs_key == tuning.inputs_key:
                return Shelved(table, entry)
    return None
