"""The lines of a list of tunings: headings of groups, rows, and one line in the place of those that
had nothing to choose. Pure functions; a list says how it is grouped by `Arrangement`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rocm_tui.session import facets, stats
from rocm_tui.session.in_use import in_use
from rocm_tui.session.model import Row
from rocm_tui.session.shares import DOUBT, Told

GROUPS: Mapping[str, Callable[[Row], str]] = {
    "session": facets.source_of,
    "op": lambda row: row.tuning.op,
    "device": lambda row: row.device,
}
"""What rows can be grouped by: what all of a group have in common."""


@dataclass(frozen=True, slots=True)
class Arrangement:
    """`by` is one of GROUPS, or empty. `closed` are the groups of which the heading alone is shown.
    `fold` puts rows of a single choice into one line. `opened` are the keys of the rows below which
    each of their devices has a line."""

    by: str = ""
    closed: frozenset[str] = frozenset()
    fold: bool = True
    opened: frozenset[str] = frozenset()

    @property
    def next(self) -> Arrangement:
        """Grouped by the next of GROUPS, after the last one not at all; all groups open."""
        names = ["", *GROUPS]
        by = names[(names.index(self.by) + 1) % len(names)]
        return replace(self, by=by, closed=frozenset())

    def turned(self, group: str) -> Arrangement:
        """With this group closed if it was open, and open if it was closed."""
        return replace(self, closed=self.closed ^ {group})

    def with_devices(self, key: str) -> Arrangement:
        """With the devices of the row of this `key` shown if they were not, and the other way."""
        return replace(self, opened=self.opened ^ {key})


@dataclass(frozen=True, slots=True)
class Heading:
    """The line above a group's rows. `group` is what they have in common."""

    group: str
    rows: tuple[Row, ...] = field(repr=False)
    open: bool = True


@dataclass(frozen=True, slots=True)
class Folded:
    """The line in the place of a group's rows of a single choice."""

    group: str
    rows: tuple[Row, ...] = field(repr=False)


Entry = Row | Heading | Folded


def arrange(rows: Sequence[Row], how: Arrangement) -> Sequence[Entry]:
    """Groups come in the order of their first rows, rows in theirs, what is folded last.

    A single row is not folded, nor are all there are: a line that stands for one row or for
    everything says less than these.
    """
    entries = _grouped(rows, how)
    if not how.opened:
        return entries
    opened = (e.devices if isinstance(e, Row) and e.key in how.opened else () for e in entries)
    return [
        shown for entry, devices in zip(entries, opened, strict=True) for shown in (entry, *devices)
    ]


def _grouped(rows: Sequence[Row], how: Arrangement) -> Sequence[Entry]:
    if how.by:
        tell = GROUPS[how.by]
        groups: dict[str, list[Row]] = {}
        for row in rows:
            groups.setdefault(tell(row), []).append(row)
        entries: list[Entry] = []
        for group, its in groups.items():
            is_open = group not in how.closed
            entries.append(Heading(group, tuple(its), is_open))
            entries += _folded(its, group) if is_open and how.fold else its if is_open else ()
        return entries
    return _folded(rows, "") if how.fold else rows


def _folded(rows: Sequence[Row], group: str) -> Sequence[Entry]:
    alone: list[Row] = []
    others: list[Entry] = []
    for row in rows:
        (alone if folds(row) else others).append(row)
    return [*others, Folded(group, tuple(alone))] if others and len(alone) > 1 else rows


def folds(row: Row) -> bool:
    """Whether there was nothing to choose, and nobody has pinned or measured it."""
    return row.pin is None and row.tuning.measured is None and stats.single(row.tuning)


@dataclass(frozen=True, slots=True)
class Sums:
    """What is known of a group in all: counts, those of entries of tables apart; the seconds that
    its tunings took, None where none tells; its share of the program's time, None unless all that
    have one are of one program, and how it is known: as that of its parts that is known worst."""

    tunings: int
    entries: int
    pinned: int
    running: int
    faster: int
    measured: int
    seconds: float | None
    share: float | None
    told: Told = "seen"


def sums(rows: Sequence[Row]) -> Sums:
    """`faster` counts what was measured to be faster than ATen, of those `measured`."""
    entries = sum(row.tuning.entry is not None for row in rows)
    spent = [
        part
        for row in rows
        for part in (row.tuning.seconds.benchmark, row.tuning.seconds.precompile)
        if part is not None
    ]
    shares = [row.share for row in rows if row.share is not None and row.share.share is not None]
    one = len({share.program for share in shares}) == 1
    share = sum(share.share or 0.0 for share in shares)
    doubts = [DOUBT.index(share.told) for share in shares]
    told = DOUBT[-1] if share > 1 else DOUBT[max(doubts, default=0)]
    return Sums(
        tunings=len(rows) - entries,
        entries=entries,
        pinned=sum(row.pin is not None for row in rows),
        running=sum(row.tuning.state == "running" for row in rows),
        faster=sum(_faster(row) for row in rows),
        measured=sum(row.tuning.measured is not None for row in rows),
        seconds=sum(spent) if spent else None,
        share=min(share, 1.0) if one else None,
        told=told,
    )


def _faster(row: Row) -> bool:
    own, rival = in_use(row), stats.aten(row.tuning)
    if row.tuning.measured is None or own is None or rival is None or own is rival:
        return False
    return stats.versus(row.tuning, own, rival) == "clear"
