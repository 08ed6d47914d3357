"""What a program asked for against what tables have: one row a question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from backend.tables.model import Device, Table
from rocm_tui.ingest.lookups import AITER, INDUCTOR, UNTOLD, Ask, Asked, Tally
from rocm_tui.tables.lookup import BLAS, Hit, find


class Verdict(str, Enum):
    MISSED = "missed"
    """The program missed it, and no given table has it."""
    UNKNOWN = "unknown"
    """Asked for; neither the log nor a given table says whether it is tuned."""
    COVERED = "covered"
    """A given table has it."""
    FOUND = "found"
    """The program found it, in a table that is not given."""


_ORDER = tuple(Verdict)


@dataclass(frozen=True, slots=True)
class Covered:
    """A question with what became of it; `hit` is the entry of a given table."""

    ask: Ask
    tally: Tally
    verdict: Verdict
    hit: Hit | None = None

    @property
    def lacking(self) -> bool:
        return self.verdict in (Verdict.MISSED, Verdict.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Coverage:
    """All rows, what is lacking first, the most often asked first. `device` is what was looked up
    on, `nameless` by tuner the misses whose line does not say of what, `left` those beyond the
    limit."""

    rows: tuple[Covered, ...]
    device: Device = UNTOLD
    nameless: Mapping[str, int] = field(default_factory=dict)
    left: int = 0

    def of(self, *verdicts: Verdict) -> tuple[Covered, ...]:
        return tuple(row for row in self.rows if row.verdict in verdicts)

    @property
    def complete(self) -> bool:
        """Whether all that was asked for is known to be tuned."""
        return not self.nameless and not self.left and not any(row.lacking for row in self.rows)


def times(rows: Sequence[Covered]) -> int:
    """How often these were asked for."""
    return sum(row.tally.times for row in rows)


def cover(asked: Asked, tables: Sequence[Table], device: Device | None = None) -> Coverage:
    """`device` None: the one that the log tells of, where it tells of one."""
    told = told_device(asked)
    hits = find(asked.tallies, tables, device, told)
    given = {table.tuner for table in tables if len(table.entries)}
    rows = [_row(ask, tally, hits, given) for ask, tally in asked.tallies.items()]
    rows.sort(key=lambda row: (_ORDER.index(row.verdict), -row.tally.times, row.ask.key))
    return Coverage(tuple(rows), device or told, asked.nameless, asked.left)


def told_device(asked: Asked) -> Device:
    """Of AITER's lines: the only architecture, the only number of units; unknown where several."""
    of_tables = [device for device in asked.devices if not device.name]
    arches = {device.arch for device in of_tables} - {""}
    units = {device.units for device in of_tables} - {None}
    return Device(
        arches.pop() if len(arches) == 1 else "", units.pop() if len(units) == 1 else None
    )


def _row(ask: Ask, tally: Tally, hits: Mapping[Ask, Hit], given: set[str]) -> Covered:
    hit = hits.get(ask)
    if hit is not None:
        return Covered(ask, tally, Verdict.COVERED, hit)
    if tally.missed or tally.noted:
        return Covered(ask, tally, Verdict.MISSED)
    if tally.found:
        return Covered(ask, tally, Verdict.FOUND)
    asked = BLAS if ask.tuner == INDUCTOR else {ask.tuner}
    return Covered(ask, tally, Verdict.MISSED if asked & given else Verdict.UNKNOWN)


ONCE = frozenset({AITER, "moe"})
"""Tuners whose libraries name a question once a process, however often it is asked."""
