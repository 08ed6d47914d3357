"""The lines of a list of tunings: what distinguishes rows, group headings, one line in the place
of the rows that had nothing to choose, and which rows came while a person looked elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress, count
from operator import is_not
from typing import TypeVar

from backend.model.inductor_kernel import is_kernel
from rocm_tui.session import stats
from rocm_tui.session.graphs import DOUBT, ShareBasis
from rocm_tui.session.in_use import device_name, in_use
from rocm_tui.session.model import Row
from rocm_tui.session.sessions import short_names
from rocm_tui.session.views import is_reuse, is_selection

_Thing = TypeVar("_Thing")


def difference(
    before: Sequence[_Thing], after: Sequence[_Thing]
) -> tuple[Sequence[_Thing], Sequence[_Thing]]:
    """Return what went and what came, between the beginning and the end that both have in common.

    What is equal and another object has changed. Of ten thousand rows this takes 0.4 ms.
    """
    if before is after:
        return (), ()
    most = min(len(before), len(after))
    start = _common(before, after, most)
    end = _common(reversed(before), reversed(after), most - start)
    return before[start : len(before) - end], after[start : len(after) - end]


def _common(left: Iterable[object], right: Iterable[object], most: int) -> int:
    """How many at the beginning are the same."""
    return min(next(compress(count(), map(is_not, left, right)), most), most)


def rank_of(row: Row) -> str:
    return "" if row.tuning.rank is None else str(row.tuning.rank)


def source_of(row: Row) -> str:
    """Return the session that tuned it, else the file that has it, of kernels the whole cache."""
    source = row.tuning.session or next(iter(row.tuning.sources), "")
    return source.rsplit("/", 2)[0] if is_kernel(row.tuning.op) else source


def differing(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return those of tuner, device, devices, layout, rank and source with more than one value
    among the rows; of entries of tables tuner and device always, devices where a row has several.
    """
    return DifferingFacets().of(rows)


def tuner_of(row: Row) -> str:
    """Whose table has it; empty for Inductor's own."""
    return row.tuning.entry.tuner if row.tuning.entry else ""


_FACETS: Mapping[str, Callable[[Iterable[Row]], Iterable[str]]] = {
    "tuner": lambda rows: map(tuner_of, rows),
    "device": lambda rows: (row.device for row in rows),
    "devices": lambda rows: map(device_name, rows),
    "layout": lambda rows: (row.layout for row in rows),
    "rank": lambda rows: map(rank_of, rows),
    "source": lambda rows: map(source_of, rows),
}


class DifferingFacets:
    """The same for rows of which most stay as they were: only new rows are read, unless a known
    value may have gone with an old one."""

    def __init__(self) -> None:
        self._rows: Sequence[Row] = ()
        self._known = dict.fromkeys(_FACETS, frozenset[str]())

    def of(self, rows: Sequence[Row]) -> tuple[str, ...]:
        """The facets that differ among rows, which are not changed afterwards."""
        gone, came = difference(self._rows, rows)
        self._rows = rows
        for name, read in _FACETS.items():
            values, new = self._known[name], _two(read(came))
            if values.intersection(read(gone)) - new:
                values, new = frozenset(), _two(read(rows))
            self._known[name] = _two([*values, *new])
        also = ("tuner", "device") if self._known["tuner"] else ()
        several = any(not name.rpartition(":")[2].isdecimal() for name in self._known["devices"])
        also = (*also, "devices") if several else also
        return tuple([n for n, values in self._known.items() if len(values) > 1 - (n in also)])


class SourceNames:
    """The short names of the sources of rows, of which most stay as they were."""

    def __init__(self) -> None:
        self._rows: Sequence[Row] = ()
        self._counts: dict[str, int] = {}
        self._names: Mapping[str, str] = {}

    def of(self, rows: Sequence[Row]) -> Mapping[str, str]:
        """By source; of rows that are not changed afterwards."""
        gone, came = difference(self._rows, rows)
        self._rows = rows
        change = Counter(map(source_of, came))
        change.subtract(map(source_of, gone))
        before = self._counts.keys() & change.keys()
        for source, more in change.items():
            self._counts[source] = self._counts.get(source, 0) + more
            if not self._counts[source]:
                del self._counts[source]
        if before != self._counts.keys() & change.keys():
            self._names = short_names(self._counts)
        return self._names


def _two(texts: Iterable[str]) -> frozenset[str]:
    """Return the first two that differ; an empty one does not count."""
    first = ""
    for text in texts:
        if text != first and text:
            if first:
                return frozenset((first, text))
            first = text
    return frozenset((first,)) if first else frozenset()


GROUPS: Mapping[str, Callable[[Row], str]] = {
    "session": source_of,
    "op": lambda row: row.tuning.op,
    "device": lambda row: row.device,
}
"""What rows can be grouped by: what all of a group have in common."""


@dataclass(frozen=True, slots=True)
class Arrangement:
    """`by` is one of GROUPS, or empty. `closed` are the groups of which the heading alone is shown.
    `fold` puts rows of a single choice into one line. `opened` are the keys of the rows below which
    each of their devices has a line. `others` shows the rows that `is_other` hides."""

    by: str = ""
    closed: frozenset[str] = frozenset()
    fold: bool = True
    opened: frozenset[str] = frozenset()
    others: bool = False

    @property
    def next(self) -> Arrangement:
        """Grouped by the next of GROUPS, after the last one not at all; all groups open."""
        names = ["", *GROUPS]
        by = names[(names.index(self.by) + 1) % len(names)]
        return replace(self, by=by, closed=frozenset())

    def turned(self, group: str) -> Arrangement:
        """Return the arrangement with this group closed if it was open, and the other way."""
        return replace(self, closed=self.closed ^ {group})

    def with_devices(self, key: str) -> Arrangement:
        """Return the arrangement with the devices of the row `key` shown, or hidden again."""
        return replace(self, opened=self.opened ^ {key})


@dataclass(frozen=True, slots=True)
class Heading:
    """The line above a group's rows. `group` is what they have in common."""

    group: str
    rows: tuple[Row, ...]
    open: bool


@dataclass(frozen=True, slots=True)
class Folded:
    """The line in the place of a group's rows of a single choice."""

    group: str
    rows: tuple[Row, ...]


Entry = Row | Heading | Folded


def arrange(rows: Sequence[Row], how: Arrangement) -> Sequence[Entry]:
    """Groups come in the order of their first rows, rows in theirs, what is folded last.

    A single row is not folded, nor are all rows: a line in place of one row or of everything
    says less than these.
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
        group_of = GROUPS[how.by]
        groups: dict[str, list[Row]] = {}
        for row in rows:
            groups.setdefault(group_of(row), []).append(row)
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


def is_other(row: Row) -> bool:
    """Whether it is an entry of another tuner's table or a kernel without times, which nobody
    pinned and no profile has."""
    tuning = row.tuning
    if tuning.entry is None and not is_kernel(tuning.op):
        return False  # most rows
    if row.pin is not None or row.awaits_pin or row.share is not None or tuning.state != "done":
        return False
    untimed = tuning.measured is None and all(choice.ms is None for choice in tuning.choices)
    return tuning.entry is not None or untimed


@dataclass(frozen=True, slots=True)
class GroupTotals:
    """What is known of a group in all: counts, those of entries of tables apart; the seconds that
    its tunings took, None if unknown; its share of the program's time, None unless all that
    have one are of one program, and how it is known: as that of its parts that is known worst."""

    tunings: int
    entries: int
    pinned: int
    running: int
    faster: int
    measured: int
    seconds: float | None
    share: float | None
    basis: ShareBasis = "seen"


def sums(rows: Sequence[Row]) -> GroupTotals:
    """`faster` counts what was measured to be faster than ATen, of those `measured`."""
    entries = sum(row.tuning.entry is not None for row in rows)
    spent = [
        part
        for row in rows
        for part in (row.tuning.seconds.benchmark, row.tuning.seconds.precompile)
        if part is not None
    ]
    shares = [row.share for row in rows if row.share is not None and row.share.share is not None]
    single_program = len({share.program for share in shares}) == 1
    share = sum(share.share or 0.0 for share in shares)
    doubts = [DOUBT.index(share.basis) for share in shares]
    worst = DOUBT[max(doubts, default=0)]
    return GroupTotals(
        tunings=len(rows) - entries,
        entries=entries,
        pinned=sum(row.pin is not None for row in rows),
        running=sum(row.tuning.state == "running" for row in rows),
        faster=sum(_faster(row) for row in rows),
        measured=sum(row.tuning.measured is not None for row in rows),
        seconds=sum(spent) if spent else None,
        share=min(share, 1.0) if single_program else None,
        basis=worst,
    )


def _faster(row: Row) -> bool:
    own, rival = in_use(row), stats.aten(row.tuning)
    if own is None or rival is None or own is rival:
        return False
    return stats.versus(row.tuning, own, rival) == "clear"


class UnseenRows:
    """The keys of the rows that came since `clear`.

    A program that takes a choice from the cache requests it first: its row is alone for a moment,
    then it joins the row of the tuning that timed the choices. That is no news, and neither is a
    row without a time.
    """

    def __init__(self) -> None:
        self._keys: set[str] = set()

    def take(self, before: Sequence[Row], rows: Sequence[Row]) -> None:
        """Replace the rows `before` by these; the very first rows are no news."""
        went, came = difference(before, rows)
        old_keys, there = {row.key for row in went}, {row.key for row in came}
        new = [row for row in came if row.key not in old_keys]
        self._keys -= old_keys - there
        if before and new:
            ids = {alias for row in new for alias in row.ids}
            with_ids = (row for row in before if not ids.isdisjoint(row.ids))
            names = {name for row in with_ids for name in names_of(row)}
            self._keys |= {row.key for row in new if names.isdisjoint(names_of(row))}

    def clear(self) -> None:
        """They have been seen."""
        self._keys.clear()

    def count(self, rows: Iterable[object]) -> int:
        """How many of these are news."""
        if not self._keys:
            return 0
        return sum(isinstance(row, Row) and row.key in self._keys and _is_news(row) for row in rows)


def names_of(row: Row) -> set[str]:
    """What a row is known by: its key changes while a source is written anew, its ids do not."""
    return {row.key} | {f"{alias} {row.occurrence}" for alias in row.ids}


def _is_news(row: Row) -> bool:
    tuning = row.tuning
    return tuning.state != "running" and (is_selection(tuning) or not is_reuse(tuning))
