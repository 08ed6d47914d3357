"""A part as bytes for another process of ours: its rows go column by column."""

from __future__ import annotations

import pickle
from collections.abc import Sequence

from backend.model.session import Fault
from rocm_tui.compare.types import Part
from rocm_tui.ingest.follow.packing import columns_of, tunings_of
from rocm_tui.ingest.packed import Table, told, values
from rocm_tui.session.row import Row

_ROWS = Table(Row, apart=("tuning",))
_TUNING = _ROWS.place("tuning")


def packed_part(part: Part, problems: Sequence[Fault]) -> bytes:
    """What `unpacked_part` makes again."""
    order, runs = columns_of([row.tuning for row in part.rows])
    rows = order, runs, told(_ROWS.columns(part.rows))
    document = (part.label, rows, part.sessions, part.measured, part.took, list(problems))
    return pickle.dumps(document, pickle.HIGHEST_PROTOCOL)


def unpacked_part(data: bytes) -> tuple[Part, Sequence[Fault]]:
    """The part that was packed, its tunings packed still, and what could not be read."""
    label, (order, runs, columns), sessions, measured, took, problems = pickle.loads(data)
    filled = values(columns)
    if filled:
        filled[_TUNING] = tunings_of(order, runs)
    rows = tuple(_ROWS.things(len(order), filled))
    return Part(label, rows, sessions, measured, took), problems
