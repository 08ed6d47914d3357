"""The rows of one problem: what its sources tell, joined anew when one of them tells more."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from backend.model.pin import PinState
from backend.model.tuning import Tuning
from rocm_tui.session.join import Member, group
from rocm_tui.session.merge import merge

if TYPE_CHECKING:
    from backend.pins.state import PinStatus


@dataclass(frozen=True, slots=True)
class Row:
    """One tuning as it is shown.

    `key` is stable while the row lives; `seen` is Unix time; `seq` counts arrivals. `aliases` are
    the ids under which the single sources know it: a log, which tells no precision, gives it
    another than the cache. `asked` holds the session of each time that a session log tells of it,
    reuses included.
    """

    key: str
    id: str
    occurrence: int
    tuning: Tuning
    pin: PinStatus | None = None
    seen: float | None = None
    aliases: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    seq: int = 0

    @property
    def when(self) -> float | None:
        """When it was tuned, else when it was first seen, if either is known."""
        return self.tuning.when if self.tuning.when is not None else self.seen

    @property
    def age(self) -> tuple[float, int]:
        """Older ones are less; of those whose time is not known, the ones that came first."""
        return self.when or 0.0, self.seq

    @property
    def pin_state(self) -> PinState | None:
        return self.pin.state if self.pin else None


class Place:
    """The members of one problem and the rows that they make. There are tens of thousands."""

    __slots__ = ("_merged", "members", "rows")

    def __init__(self) -> None:
        self.members: list[Member] = []
        self.rows: list[Row] = []
        self._merged: list[tuple[tuple[Member, ...], Tuning]] = []

    def tells(self, uid: str, tuning: Tuning) -> bool:
        """Whether a member says just this already."""
        return any(member.uid == uid and member.tuning == tuning for member in self.members)

    def remove(self, uids: Collection[str]) -> None:
        """Drop these members."""
        self.members = [member for member in self.members if member.uid not in uids]

    def join(
        self,
        shown: Callable[[Member], Member],
        finish: Callable[[Tuning], tuple[Tuning, PinStatus | None]],
        seen: Mapping[str, float | None],
    ) -> list[Row]:
        """Make the rows; one whose members are the same stays the same. Returns those before.

        `shown` is a member as it is to be joined; `finish` adds to a joined tuning what is known
        besides; `seen` is when members arrived.
        """
        before = self.rows
        known = {views[0].uid: (views, tuning) for views, tuning in self._merged}
        old = {row.key: row for row in before}
        members = sorted(map(shown, self.members), key=lambda member: member.seq)
        merged, rows = [], []
        for views in group(members):
            one = known.get(views[0].uid)
            if one is None or not _same(one[0], views):
                one = tuple(views), merge([view.tuning for view in views])
            merged.append(one)
            rows.append(_row(*one, finish, seen, old))
        self._merged, self.rows = merged, _numbered(rows)
        return before


def _same(one: Sequence[Member], two: Sequence[Member]) -> bool:
    return len(one) == len(two) and all(a is b for a, b in zip(one, two, strict=True))


def _row(
    views: tuple[Member, ...],
    joined: Tuning,
    finish: Callable[[Tuning], tuple[Tuning, PinStatus | None]],
    seen: Mapping[str, float | None],
    old: Mapping[str, Row],
) -> Row:
    tuning, pin = finish(joined)
    first = min(views, key=lambda view: view.seq)
    before = old.get(first.uid)
    if before is not None and before.tuning is tuning and before.pin == pin:
        return before
    told = {view.tuning.id: None for view in views}
    id_ = next(iter(told)) if len(views) == 1 else joined.id
    asked = tuple([view.tuning.session for view in views if view.tuning.session])
    return Row(first.uid, id_, 1, tuning, pin, seen[first.uid], tuple(told), asked, first.seq)


def _numbered(rows: list[Row]) -> list[Row]:
    """With the occurrences of each id counted, oldest first."""
    if len(rows) == 1 and rows[0].occurrence == 1:
        return rows
    counts: dict[str, int] = {}
    place: dict[str, int] = {}
    for row in sorted(rows, key=lambda row: row.age):
        place[row.key] = counts[row.id] = counts.get(row.id, 0) + 1
    return [
        row if row.occurrence == place[row.key] else replace(row, occurrence=place[row.key])
        for row in rows
    ]
