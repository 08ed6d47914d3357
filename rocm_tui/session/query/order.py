"""The order of rows. What is not known stands last, whichever way; equal ones stay newest first."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rocm_tui.session.model import Row
from rocm_tui.session.query.fields import Facts, QueryField, Value


def ordered(rows: Sequence[Row], field: QueryField, facts: Facts, reverse: bool) -> list[Row]:
    """`rows`, newest first, by a field: as it says, or `reverse`."""
    place = placer(field, facts)
    known = [(at, row) for row in rows if (at := place(row)) is not None]
    unknown = [row for row in rows if place(row) is None] if len(known) < len(rows) else []
    if field.moving and reverse:  # of an unknown age the place in the source tells as much
        known.reverse()
        unknown.reverse()
    known.sort(key=lambda pair: pair[0], reverse=field.largest != reverse)
    return [row for _, row in known] + unknown


def placer(field: QueryField, facts: Facts) -> Callable[[Row], float | str | None]:
    """Where a row stands by a field: its number, or its first word; None where it has none."""
    if field.place is not None:
        return field.place
    read = facts.reader(field)
    if field.kind == "number":
        return lambda row: _number(read(row))
    return lambda row: _first(read(row))


def _number(value: Value) -> float | None:
    return value if isinstance(value, (int, float)) else None


def _first(value: Value) -> str | None:
    return value[0] if isinstance(value, tuple) and value else None
