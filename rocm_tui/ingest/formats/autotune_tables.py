"""Lines of an autotuning log -> tunings and problems, whoever brings the lines.

A log may hold several processes' output. Where a prefix names the process, each has tables of its
own. Where none does, a header ends the table before it, unless what follows shows that two
processes write at once (see `Overlap`): then a line goes to the one open table that it can belong
to by its numbers, and a line that could belong to two, or to none, is a problem and not a guess.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import takewhile

from backend.counted import counted
from backend.model.choice import Choice, sort_choices
from backend.model.problem import Shape
from backend.model.session import Fault
from backend.model.tuning import Seconds, State, Tuning
from rocm_tui.harmless import clean_bytes
from rocm_tui.ingest.formats.autotune_lines import (
    BEFORE,
    ChoiceRow,
    Dots,
    Dtypes,
    Footer,
    Header,
    Origin,
    OutOfResource,
    Part,
    Stats,
    Strides,
    all_known,
    may_matter,
    origin,
    parts,
    segments,
)
from rocm_tui.ingest.formats.reader import Complaints, timed_choice
from rocm_tui.ingest.formats.triton_lines import REACH, AutotunedKernel, KernelLog
from rocm_tui.ingest.records import Dropped, Record, Seen, uid_of

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
    rows: list[ChoiceRow] = field(default_factory=list)
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

    def takes_row(self, row: ChoiceRow) -> bool:
        """Whether `row` can be the next row: sorted, its name new, its share as the times say."""
        if self.footer or self.ended:
            return False
        if not self.rows:
            return row.percent is None or row.percent == 100.0
        if not row.ms >= self.rows[-1].ms or any(r.label == row.label for r in self.rows):
            return False
        return _share_fits(self.rows[0].ms, row)

    def takes(self, part: ChoiceRow | Strides | Dtypes | Footer) -> bool:
        """Whether what a line says can belong to it, by its numbers."""
        if isinstance(part, ChoiceRow):
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
        """The strides of all operands, or none."""
        return all_known(self.strides or ()) or ()

    @property
    def num_choices(self) -> int | None:
        """How many were tried, where its end or its statistics tell."""
        if self.footer and self.footer.num_choices is not None:
            return self.footer.num_choices
        return self.stats.num_choices if self.stats else None

    def _choice(self, row: ChoiceRow) -> Choice:
        description = row.description
        if self.header.quoted:  # inside a CSV cell quotes are doubled
            description = description.replace('""', '"')
        # The same few configs stand in every table.
        return timed_choice(row.ms, row.name or None, None, sys.intern(description))


def _share_fits(best: float, row: ChoiceRow) -> bool:
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
        """Return the tables of one stream, oldest first."""
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
        """Return the tables that nothing was added to for long, now that the log is at `offset`."""
        return list(takewhile(lambda block: offset - block.touched > PATIENCE, self))


TablePart = ChoiceRow | Strides | Dtypes | Footer


@dataclass(slots=True)
class Held:
    """A line since the doubt began: a header's table, or what belongs to some table."""

    what: Block | TablePart
    who: Origin
    end: int
    place: int


@dataclass(slots=True)
class Overlap:
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
    """The problems that were not taken yet, and rows whose table's beginning is missing."""

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


def row_problem(row: ChoiceRow, takers: int) -> str:
    why = "could belong to several tables" if takers else "belongs to no open table"
    return f"the row of {row.label[:100]} ({row.ms:g} ms) {why}"


def _headless(rows: int, choices: int | None) -> str:
    count = f" of {counted(choices, 'choice')}" if choices is not None else ""
    if not rows:
        return f"the end of a table{count} whose beginning is missing"
    return f"{counted(rows, 'row')} of a table{count} whose beginning is missing"


START = 64 << 10
"""Bytes at a file's start that are read line by line: it may begin inside a table."""
GRACE = 256
"""Bytes after a table in which its statistics may begin."""
_BEFORE = re.compile(b"|".join(map(re.escape, BEFORE)))
MAX_OPEN = 64
"""Tables without an end that one stream can have at once: as many processes as write into it."""


class LogParser:
    """Folds lines into tunings. `take` gives what changed since it was last called.

    `place` of a line is what its problems shall carry as their line.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self._sources = (source,)
        self._open = OpenTables()
        self._doubts: dict[str, Overlap] = {}
        self._closed: dict[str, Block] = {}
        self._stats: dict[str, list[Stats]] = {}
        self._changed: dict[int, Block] = {}
        self._records: list[Record] = []
        self._problems = LogProblems(source)
        self._kernels = KernelLog(source)
        self._ends: dict[str, int] = {}
        self._until = START
        self._n = 0

    # Which lines matter

    def busy(self, offset: int) -> bool:
        """Whether the line at `offset` matters even without a marker in it."""
        if offset < self._until:
            return True
        if self._open:
            self._expire(offset)
        return bool(self._open)

    def look_back(self, before: bytes, place_of: Callable[[int], int]) -> None:
        """Read what belongs to a table in skipped text that ends where its header's line begins.

        `place_of` gives the place of the line that begins at an index of `before`.
        """
        size = len(before)
        starts = {
            before.rfind(b"\n", 0, at) + 1 for at in map(re.Match.start, _BEFORE.finditer(before))
        }
        for start in sorted(starts):
            end = before.find(b"\n", start)
            self.line(before[start : end if end >= 0 else size], 0, place_of(start))

    def line(self, data: bytes, offset: int, place: int, cut: bool = False) -> None:
        """Take one line, without its end; `offset` is where it begins. `cut` tells that it is a
        piece of a longer one, and that what it says may be cut with it."""
        if not may_matter(data):
            return
        if cut:
            what = "the line is too long: it is read in pieces, and what is cut in two is lost"
            self._problems.once("long line", place, what)
        first = ""
        for at_segment, segment in enumerate(segments(data)):
            text = clean_bytes(segment)
            for at, part in parts(text):
                who = origin(text[:at])
                if first and not who.key:  # the prefix stands before the progress bar
                    who = origin(first)
                self._take(part, who, offset + len(data), place)
            first = text[:512] if at_segment == 0 else first

    # What a line does

    def _take(self, part: Part, who: Origin, end: int, place: int) -> None:
        if isinstance(part, (ChoiceRow, Strides, Dtypes, Footer)):
            self._of_a_table(part, who, end, place)
        elif isinstance(part, Header):
            self._header(part, who, end, place)
        elif isinstance(part, Stats):
            self._statistics(part, who)
        elif isinstance(part, Dots):
            self._ellipsis(who)
        elif isinstance(part, AutotunedKernel):
            self._kernel(part, who, end)
        elif isinstance(part, OutOfResource):
            self._problems.add("out of resource", place, part.what)

    def _kernel(self, kernel: AutotunedKernel, who: Origin, end: int) -> None:
        if kernel.name is not None:
            self._until = max(self._until, end + REACH)
        tuning = self._kernels.take(kernel, who.key, who.rank)
        if tuning is not None:
            self._tell_changed()  # tables before it in the log come before it
            self._n += 1
            self._records.append(Seen(uid_of(self.source, self._n), tuning))

    def _header(self, header: Header, who: Origin, end: int, place: int) -> None:
        self._problems.report_orphans(who.key)
        tables = self._open.of(who.key)
        doubt = self._doubts.get(who.key)
        if doubt is not None and doubt.newest.rows:  # a whole table, and nothing spoke against it
            self._end_doubt(doubt)
        over = len(tables) >= MAX_OPEN
        for other in [block for block in tables if over or block.complete]:
            self._close(other)
        rivals = list(self._open.of(who.key))
        block = self._begin(header, who, end, place)
        if rivals:
            self._doubts.setdefault(who.key, Overlap(rivals)).begin(block)

    def _of_a_table(self, part: TablePart, who: Origin, end: int, place: int) -> None:
        stream = self._open.stream(who)
        doubt = self._doubts.get(stream)
        if doubt is not None:
            doubt.hold(part, who, end, place)
            if doubt.refuted_by(part):
                self._deal_out(stream, doubt)
                return
        if isinstance(part, ChoiceRow):
            self._row(part, who, end, place)
        elif isinstance(part, Footer):
            self._footer(part, who, end, place)
        else:
            self._operands(part, who, end)

    def _deal_out(self, stream: str, doubt: Overlap) -> None:
        """Two processes write into this stream: give each line since then to whom it fits."""
        del self._doubts[stream]
        for block in doubt.newer:
            self._open.remove(block)
            self._changed.pop(block.n, None)
            if block.stats is not None:
                self._stats.setdefault(stream, []).append(block.stats)
            block.restart()
        for held in doubt.held:
            if isinstance(held.what, Block):
                self._open.add(held.what)
                for block in self._open.of(stream):
                    block.crowded = True
            else:
                self._of_a_table(held.what, held.who, held.end, held.place)
        for block in doubt.newer:
            if block.shown and not block.rows:
                self._records.append(Dropped(uid_of(self.source, block.n)))
                block.shown = False

    def _begin(self, header: Header, who: Origin, end: int, place: int) -> Block:
        self._n += 1
        block = Block(self._n, self._sources, header, who, place, end)
        self._open.add(block)
        return block

    def _operands(self, part: Strides | Dtypes, who: Origin, end: int) -> None:
        takers = [b for b in self._reachable(who) if b.takes_operands(part)]
        if len(takers) == 1:
            takers[0].put_operands(part)
            self._touch(takers[0], end)

    def _row(self, row: ChoiceRow, who: Origin, end: int, place: int) -> None:
        near = self._reachable(who)
        if len(near) == 1 and near[0].elided and not near[0].takes_row(row):
            self._close(near[0])  # the dots hid the beginning of another table
            near = []
        if not near:
            self._problems.orphan(who.key, place)
            return
        if len(near) == 1 and not near[0].crowded:
            takers = near
        else:
            takers = [b for b in near if b.takes_row(row)]
            # A process prints a table's dtypes before its rows.
            ready = [b for b in takers if b.dtypes is not None]
            takers = ready or takers
        if len(takers) != 1:
            self._problems.add("row", place, row_problem(row, len(takers)))
            return
        takers[0].rows.append(row)
        self._touch(takers[0], end)

    def _footer(self, footer: Footer, who: Origin, end: int, place: int) -> None:
        near = self._reachable(who)
        takers = [b for b in near if b.takes_footer(footer)]
        if len(takers) > 1:
            full = [b for b in takers if _is_full(b, footer)]
            takers = full if len(full) == 1 else takers
        if len(takers) > 1:
            what = "the end of a table could belong to several tables"
            self._problems.add("footer", place, what)
            self._ambiguous_end(who.key, takers)
            return
        if takers:
            takers[0].footer = footer
            self._touch(takers[0], end)
            self._close(takers[0])
            self._until = max(self._until, end + GRACE)
            return
        self._problems.end_of_orphans(who.key, place, footer.num_choices)

    def _ambiguous_end(self, key: str, takers: list[Block]) -> None:
        """As many ends as open tables: all have ended, whichever was whose."""
        self._ends[key] = self._ends.get(key, 0) + 1
        if self._ends[key] < len(takers):
            return
        for block in takers:
            block.ended = True
            self._close(block)

    def _statistics(self, stats: Stats, who: Origin) -> None:
        last = self._closed.get(who.key)
        if last is not None and last.fits_stats(stats):
            last.stats = stats
            self._changed[last.n] = last
            return
        pending = self._stats.setdefault(who.key, [])
        pending.append(stats)
        del pending[:-16]

    def _ellipsis(self, who: Origin) -> None:
        near = [b for b in self._reachable(who) if b.rows]
        if len(near) == 1:
            near[0].elided = True
            self._changed[near[0].n] = near[0]

    # Which table a line can belong to

    def _reachable(self, who: Origin) -> list[Block]:
        """The open tables that it may speak of: the newest of the stream, as long as no line
        tells that an older one goes on."""
        stream = self._open.stream(who)
        doubt = self._doubts.get(stream)
        tables = self._open.of(stream)
        if doubt is not None:
            tables = [block for block in tables if block is doubt.newest]
        return list(tables) if stream == who.key or len(tables) == 1 else []

    def _touch(self, block: Block, end: int) -> None:
        self._open.touch(block, end)
        self._changed[block.n] = block

    def _close(self, block: Block) -> None:
        self._open.remove(block)
        key = block.origin.key
        doubt = self._doubts.get(key)
        if doubt is not None and not any(other in self._open for other in doubt.rest):
            del self._doubts[key]
        self._closed[key] = block
        pending = self._stats.get(key)
        if pending:
            fitting = [stats for stats in pending if block.fits_stats(stats)]
            if len(set(fitting)) == 1:
                block.stats = fitting[0]
                pending.remove(fitting[0])
        if not self._open.of(key):
            if pending:
                pending.clear()
            self._ends.pop(key, None)
        if block.rows:
            self._changed[block.n] = block
        else:
            self._changed.pop(block.n, None)
            what = f"no rows follow AUTOTUNE {block.header.text}"
            self._problems.add("empty", block.place, what)

    def _end_doubt(self, doubt: Overlap) -> None:
        """Its older tables are over."""
        for block in doubt.rest:
            if block in self._open:
                self._close(block)

    def _expire(self, offset: int) -> None:
        for block in self._open.expired(offset):
            doubt = self._doubts.get(block.origin.key)
            if doubt is not None:
                self._end_doubt(doubt)
            if block in self._open:
                self._close(block)

    # Results

    def take(self) -> list[Record]:
        """What changed since the last call: tunings as they are now, then problems."""
        self._tell_changed()
        records, self._records = self._records, []
        return [*records, *self._problems.take()]

    def _tell_changed(self) -> None:
        """Make tunings of the tables that changed."""
        for block in self._changed.values():
            if block.rows:
                self._records.append(self._seen(block, block in self._open))
                block.shown = True
        self._changed = {}

    def _seen(self, block: Block, open_: bool = False) -> Seen:
        return Seen(uid_of(self.source, block.n), block.tuning(open_))

    def cut(self) -> list[Record]:
        """The tables that are still open, as they would be if nothing more came."""
        return [self._seen(b) for b in self._open if b.rows]

    def finish(self) -> None:
        """The log has ended: what is open stays as it is."""
        for block in list(self._open):
            self._close(block)
        self._problems.report_orphans()


def _is_full(block: Block, footer: Footer) -> bool:
    """Whether a footer would be due after the rows that `block` has."""
    if footer.num_choices is None:
        return len(block.rows) >= SHOWN
    return len(block.rows) == min(SHOWN, footer.num_choices)
