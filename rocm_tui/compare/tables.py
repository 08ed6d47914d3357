"""Two of another tuner's tables compared: what both are asked by, and what each took there.

Their times were taken by other programs at other hours, so no verdict is made of them. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from backend.model.choice import Choice
from rocm_tui.compare.choices import LONGEST, SHORTEST
from rocm_tui.compare.types import TuningSet
from rocm_tui.session.in_use import taken
from rocm_tui.session.model import Row
from rocm_tui.session.numbers import rounding

Asked = tuple[str, ...]
"""What an entry is looked up by, and on which device."""
_DIGITS = re.compile(r"(\d+)")


@dataclass(frozen=True, slots=True)
class SameKey:
    """The entries of two tables with the same key."""

    a: Row
    b: Row

    @property
    def same_solution(self) -> bool:
        return solution(self.a) == solution(self.b)

    @property
    def ratio(self) -> float | None:
        """B's time over A's, if both are known."""
        a, b = entry_ms(self.a), entry_ms(self.b)
        return None if a is None or b is None else b / a

    @property
    def error(self) -> float:
        """The relative error of the ratio by the digits of both times."""
        return rounding(entry_ms(self.a), entry_ms(self.b))


@dataclass(frozen=True, slots=True)
class TableComparison:
    """Table B compared with table A.

    `common` has other solutions first, the greatest loss first, then by key. `a_twice` and
    `b_twice` count entries whose key occurs before in the same table: the fastest of them is
    compared, and if none has a time the last.
    """

    a: str
    b: str
    common: tuple[SameKey, ...]
    only_a: tuple[Row, ...]
    only_b: tuple[Row, ...]
    a_twice: int = 0
    b_twice: int = 0

    @property
    def other(self) -> tuple[SameKey, ...]:
        """Keys of both with another solution."""
        return tuple(same for same in self.common if not same.same_solution)

    @property
    def ratios(self) -> list[float]:
        return [same.ratio for same in self.common if same.ratio is not None]

    @property
    def median(self) -> float | None:
        """The median of the ratios."""
        return median(self.ratios) if self.ratios else None


def chosen(row: Row) -> Choice | None:
    """Return the solution of an entry; None in an untuned list."""
    return row.tuning.choices[0] if row.tuning.choices else None


def solution(row: Row) -> str:
    """Return the full solution of an entry.

    A config has a shorter label. Of several without times all are joined, since their order means
    nothing.
    """
    own = taken(row.tuning)
    choices = (own,) if own else row.tuning.choices
    return "; ".join(sorted(choice.description or choice.label for choice in choices))


def entry_ms(row: Row) -> float | None:
    choice = chosen(row)
    ms = choice.ms if choice else None
    return ms if ms is not None and SHORTEST < ms < LONGEST else None


def are_tables(*parts: TuningSet) -> bool:
    """Whether all that these hold are entries of tables."""
    return all(part.rows and all(row.tuning.entry for row in part.rows) for part in parts)


def compare_tables(a: TuningSet, b: TuningSet) -> TableComparison:
    """Entries are the same by tuner, key and device; of two tables of one device each by tuner and
    key."""
    by_device = any(len({device_of(row) for row in part.rows}) > 1 for part in (a, b))
    ours, a_twice = _by_key(a.rows, by_device)
    theirs, b_twice = _by_key(b.rows, by_device)
    common = [SameKey(row, theirs[key]) for key, row in ours.items() if key in theirs]
    return TableComparison(
        a.label,
        b.label,
        tuple(sorted(common, key=lambda s: (s.same_solution, -(s.ratio or 0.0), _key_order(s.a)))),
        tuple(sorted((row for key, row in ours.items() if key not in theirs), key=_key_order)),
        tuple(sorted((row for key, row in theirs.items() if key not in ours), key=_key_order)),
        a_twice,
        b_twice,
    )


def slower(comparison: TableComparison, per_cent: float) -> tuple[SameKey, ...]:
    """Return the keys whose time in B is more than `per_cent` per cent above A's."""
    worse = 1 + per_cent / 100
    return tuple(same for same in comparison.common if (same.ratio or 0.0) > worse)


def device_of(row: Row) -> str:
    return row.tuning.entry.device if row.tuning.entry else ""


def _by_key(rows: Sequence[Row], by_device: bool) -> tuple[dict[Asked, Row], int]:
    """The row of each key, and how many others there are."""
    by_key: dict[Asked, Row] = {}
    for row in rows:
        tuning = row.tuning
        tuner = tuning.entry.tuner if tuning.entry else ""
        asked = (tuning.inputs_key or "").replace(" ", "")  # as in `block_shape=[128, 128]`
        key = (tuner, asked, device_of(row) if by_device else "")
        before = by_key.get(key)
        if before is None or _taken_before(row, before):
            by_key[key] = row
    return by_key, len(rows) - len(by_key)


def _taken_before(row: Row, other: Row) -> bool:
    ms, other_ms = entry_ms(row), entry_ms(other)
    if ms is None or other_ms is None:
        mine, others = (each.tuning.entry for each in (row, other))
        later = (mine.line if mine else 0) > (others.line if others else 0)
        return other_ms is None and (ms is not None or later)
    return ms < other_ms


def _key_order(row: Row) -> list[tuple[int, str]]:
    """Numbers as numbers: 16 before 128."""
    parts: Iterable[str] = _DIGITS.split(f"{row.tuning.inputs_key} {device_of(row)}")
    return [(int(part), "") if part.isdigit() and len(part) < 16 else (-1, part) for part in parts]
