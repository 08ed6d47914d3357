"""The tables of a log while they arrive: what can belong to one, and what belongs to none."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile

from backend.counted import counted
from backend.model.choice import Choice, sort_choices
from backend.model.problem import Shape
from backend.model.session import Fault
from backend.model.tuning import Seconds, State, Tuning
from rocm_tui.ingest.formats.autotune.grammar import (
    Dtypes,
    Footer,
    Header,
    Origin,
    Row,
    Stats,
    Strides,
    all_known,
)
from rocm_tui.ingest.formats.reader import Complaints, timed_choice

SHOWN = 10
"""Rows that Inductor prints unless it is told otherwise."""
PATIENCE = 256 << 10
"""Bytes after its last line that a table without a footer stays open."""
MAX_PROBLEMS = 50
"""Problems of one kind that are reported one by one; that there are more is said once."""


@dataclass(slots=True, eq=False)
class Block:
    """A table whose header was seen.

    `place` is the header's line, `touched` the offset of the last line that belonged to it,
    `crowded` whether another table was open at the same time under the same prefix. After dots
    (`elided`) rows may be missing; `shown` is whether anyone was given it.
    """

    n: int
    sources: tuple[str, ...]
    header: Header
    origin: Origin
    place: int
    touched: int
    strides: tuple[Shape | None, ...] | None = None
    dtypes: tuple[str, ...] | None = None
    rows: list[Row] = field(default_factory=list)
    footer: Footer | None = None
    stats: Stats | None = None
    ended: bool = False
    elided: bool = False
    crowded: bool = False
    shown: bool = False

    @property
    def complete(self) -> bool:
        """Nothing more is to come, as far as the text tells."""
        return self.footer is not None or self.ended or self.elided or len(self.rows) >= SHOWN

    def takes_operands(self, part: Strides | Dtypes) -> bool:
        """Whether strides or dtypes are still to come, as many as the header has operands."""
        known = self.strides if isinstance(part, Strides) else self.dtypes
        if known is not None or self.rows or self.footer:
            return False
        shapes = self.header.shapes
        if isinstance(part, Dtypes):
            return not shapes or len(part.dtypes) == len(shapes)
        return not shapes or (
            len(part.strides) == len(shapes)
            and all(
                stride is None or len(stride) == len(shape)
                for stride, shape in zip(part.strides, shapes, strict=True)
            )
        )

    def put_operands(self, part: Strides | Dtypes) -> None:
        if isinstance(part, Strides):
            self.strides = part.strides
        else:
            self.dtypes = part.dtypes

    def takes_row(self, row: Row) -> bool:
        """Whether `row` can be the next row: sorted, its name new, its share as the times say."""
        if self.footer or self.ended:
            return False
        if not self.rows:
            return row.percent is None or row.percent == 100.0
        if not row.ms >= self.rows[-1].ms or any(r.label == row.label for r in self.rows):
            return False
        return _share_fits(self.rows[0].ms, row)

    def takes(self, part: Row | Strides | Dtypes | Footer) -> bool:
        """Whether what a line says can belong to it, by its numbers."""
        if isinstance(part, Row):
            return self.takes_row(part)
        if isinstance(part, Footer):
            return self.takes_footer(part)
        return self.takes_operands(part)

    def restart(self) -> None:
        """As it was when its header was seen."""
        self.strides = self.dtypes = self.footer = self.stats = None
        self.rows, self.ended, self.elided = [], False, False

    def takes_footer(self, footer: Footer) -> bool:
        return self.footer is None and (
            footer.num_choices is None or len(self.rows) <= footer.num_choices
        )

    def fits_stats(self, stats: Stats) -> bool:
        """Whether the JSON line speaks of this table: same winner, same time after rounding."""
        if not self.rows or self.stats is not None:
            return False
        best = self.rows[0]
        return best.name == stats.best_kernel and math.isclose(
            best.ms, stats.best_time, rel_tol=0.005, abs_tol=6e-5
        )

    def tuning(self, open_: bool) -> Tuning:
        """What is known of it now; `open_` if more may come."""
        footer = self.footer
        state: State = "running" if open_ else "done" if self.complete else "cut"
        return Tuning(
            op=self.header.op,
            shapes=self.header.shapes,
            strides=self.known_strides,
            dtypes=self.dtypes or (),
            choices=sort_choices([self._choice(row) for row in self.rows]),
            num_choices=self.num_choices,
            seconds=Seconds(footer.benchmark, footer.precompile, footer.prescreen)
            if footer
            else Seconds(),
            state=state,
            timed=len(self.rows) if state == "running" else 0,
            rank=self.origin.rank,
            when=self.header.when,
            sources=self.sources,
        )

    @property
    def known_strides(self) -> tuple[Shape, ...]:
        """Those of all operands, or none."""
        return all_known(self.strides or ()) or ()

    @property
    def num_choices(self) -> int | None:
        """How many were tried, where its end or its statistics tell."""
        if self.footer and self.footer.num_choices is not None:
            return self.footer.num_choices
        return self.stats.num_choices if self.stats else None

    def _choice(self, row: Row) -> Choice:
        description = row.description
        if self.header.quoted:  # inside a CSV cell quotes are doubled
            description = description.replace('""', '"')
        # The same few configs stand in every table.
        return timed_choice(row.ms, row.name or None, None, sys.intern(description))


def _share_fits(best: float, row: Row) -> bool:
    """Whether best / row is the printed share, given that both times were rounded to 4 places."""
    if row.percent is None or not math.isfinite(row.ms):
        return row.percent is None or row.percent == 0.0
    if row.ms <= 5e-5:
        return True
    low = (best - 5e-5) / (row.ms + 5e-5) * 100 - 0.051
    high = (best + 5e-5) / (row.ms - 5e-5) * 100 + 0.051
    return low <= row.percent <= high


class OpenTables:
    """The tables whose end has not come, by the stream that they stand in.

    Each look costs the tables of one stream, however many streams there are.
    """

    def __init__(self) -> None:
        self._streams: dict[str, list[Block]] = {}
        self._by_age: dict[int, Block] = {}

    def __bool__(self) -> bool:
        return bool(self._by_age)

    def __iter__(self) -> Iterator[Block]:
        """The one that was touched last comes last."""
        return iter(self._by_age.values())

    def __contains__(self, block: Block) -> bool:
        return block.n in self._by_age

    def of(self, key: str) -> list[Block]:
        """Those of one stream, oldest first."""
        return self._streams.get(key, [])

    def stream(self, who: Origin) -> str:
        """The stream that a line of `who` belongs to: its own, else the only one there is.

        Some loggers put their prefix on some lines alone.
        """
        if who.key not in self._streams and len(self._streams) == 1:
            (only,) = self._streams
            if not who.key or not only:
                return only
        return who.key

    def add(self, block: Block) -> None:
        self._streams.setdefault(block.origin.key, []).append(block)
        self._by_age[block.n] = block

    def touch(self, block: Block, end: int) -> None:
        """The line that ends at `end` belonged to it; later lines end later."""
        block.touched = end
        del self._by_age[block.n]
        self._by_age[block.n] = block  # the youngest is last

    def remove(self, block: Block) -> None:
        """Take it out, if it is there."""
        if self._by_age.pop(block.n, None) is not None:
            blocks = self._streams[block.origin.key]
            blocks.remove(block)
            if not blocks:
                del self._streams[block.origin.key]

    def expired(self, offset: int) -> list[Block]:
        """Those of which nothing came for long, now that the log is at `offset`."""
        return list(takewhile(lambda block: offset - block.touched > PATIENCE, self))


TablePart = Row | Strides | Dtypes | Footer


@dataclass(slots=True)
class Held:
    """A line since the doubt began: a header's table, or what belongs to some table."""

    what: Block | TablePart
    who: Origin
    end: int
    place: int


@dataclass(slots=True)
class Doubt:
    """A header came while tables of its stream had no end yet.

    Either those are over and their ends are missing, or two processes write into one stream without
    a prefix. The first is taken to be so: whatever follows belongs to the newest table. A line that
    the newest table cannot have said, but an older one can, tells that it is not so; then what came
    since is dealt out again, each line to the one table that it fits.

    The `older` were open when the first of the `newer` began; neither is empty.
    """

    older: list[Block]
    newer: list[Block] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)

    @property
    def newest(self) -> Block:
        return self.newer[-1]

    @property
    def rest(self) -> list[Block]:
        """All but the newest."""
        return self.older + self.newer[:-1]

    def refuted_by(self, part: TablePart) -> bool:
        """Whether the older tables cannot all be over, now that a line says this."""
        newest = self.newest
        if newest.takes(part) and (newest.rows or not isinstance(part, Footer)):
            return False
        return any(block.takes(part) for block in self.rest)

    def begin(self, block: Block) -> None:
        self.newer.append(block)
        self.held.append(Held(block, block.origin, block.touched, block.place))

    def hold(self, part: TablePart, who: Origin, end: int, place: int) -> None:
        self.held.append(Held(part, who, end, place))


class LogProblems:
    """Those that were not taken yet; and rows whose table's beginning is missing."""

    def __init__(self, source: str) -> None:
        self._complaints = Complaints(source, MAX_PROBLEMS)
        self._problems: list[Fault] = []
        self._orphans: dict[str, list[int]] = {}

    def add(self, kind: str, place: int, what: str) -> None:
        self._problems += self._complaints.about(what, place, kind)

    def once(self, kind: str, place: int, what: str) -> None:
        """Say it the first time only."""
        self._problems += self._complaints.once(what, place, kind)

    def orphan(self, key: str, place: int) -> None:
        """A row of the stream `key` belongs to no table."""
        self._orphans.setdefault(key, []).append(place)

    def end_of_orphans(self, key: str, place: int, choices: int | None) -> None:
        """The end of a table whose beginning is missing."""
        self.add("headless", place, _headless(len(self._orphans.pop(key, ())), choices))

    def report_orphans(self, key: str | None = None) -> None:
        """Tell of the rows that wait for their table's end: of one stream, or of all."""
        for stream in list(self._orphans) if key is None else [key]:
            lost = self._orphans.pop(stream, None)
            if lost:
                self.add("headless", lost[0], _headless(len(lost), None))

    def take(self) -> list[Fault]:
        problems, self._problems = self._problems, []
        return problems


def row_problem(row: Row, takers: int) -> str:
    why = "could belong to several tables" if takers else "belongs to no open table"
    return f"the row of {row.label[:100]} ({row.ms:g} ms) {why}"


def _headless(rows: int, choices: int | None) -> str:
    count = f" of {counted(choices, 'choice')}" if choices is not None else ""
    if not rows:
        return f"the end of a table{count} whose beginning is missing"
    return f"{counted(rows, 'row')} of a table{count} whose beginning is missing"
