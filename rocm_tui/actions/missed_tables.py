"""What logs missed against the tables that stand beside them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from backend.disk.tables import tuner_at
from backend.errors import StoreError
from rocm_tui.actions.table_files import tables_within
from rocm_tui.ingest.asked.ask import Asked
from rocm_tui.tables.coverage import Covered, Verdict, cover

_NAMED = 3
"""Tables that a command names; of more it names none."""
_MOST_BYTES = 256 << 20
"""Of all tables; those beyond are not looked into."""


def compared(
    told: Sequence[tuple[str, Asked]], paths: Sequence[str], tables: Iterable[str]
) -> Iterator[tuple[str, Asked, int, tuple[str, ...]]]:
    """Of each log that lacks something: how many products none of the tables has, those among
    `paths` and the `tables`, and which these are."""
    given = {path for path in paths if _is_table(path)}
    among = dict.fromkeys((*(path for path in paths if path in given), *tables))
    there, _ = tables_within(_MOST_BYTES, among)
    names = tuple(table.path for table in there)
    for path, asked in told:
        if path in given:
            continue
        rows = cover(asked, there).rows
        missed = sum(row.verdict is Verdict.MISSED and _said(row) for row in rows)
        if missed or asked.nameless:
            yield path, asked, missed, names if len(names) <= _NAMED else ()


def _said(row: Covered) -> bool:
    """What a run tuned itself, it missed once."""
    return bool(row.tally.missed or row.tally.untold)


def _is_table(path: str) -> bool:
    try:
        return tuner_at(Path(path)) is not None
    except StoreError:
        return False
