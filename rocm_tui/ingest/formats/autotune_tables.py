"""Lines of an autotuning log -> tunings and problems, whoever brings the lines.

A log may hold several processes' output. Where the wrappers of lines differ (see `processes`), each
process has tables of its own. Where they do not, a header ends the table before it, unless what
follows shows that two processes write at once (see `Overlap`): then a line goes to the one open
table that it can belong to by its numbers, and a line that could belong to two, or to none, is a
problem and not a guess.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice, takewhile

from backend.counted import counted
from backend.model.choice import Choice, parse_config, sort_choices
from backend.model.problem import Shape
from backend.model.session import Fault
from backend.model.tuning import Seconds, State, Tuning
from rocm_tui.ingest.formats.autotune_lines import (
    BEFORE,
    PROCESSES,
    ChoiceRow,
    Died,
    Dots,
    Dtypes,
    Footer,
    Header,
    OutOfResource,
    Part,
    Stats,
    Strides,
    Torn,
    all_known,
    is_config,
    is_dtype,
    may_matter,
    parts,
)
from rocm_tui.ingest.formats.processes import Key, Origin, Origins, VaryingWords, name_of
from rocm_tui.ingest.formats.reader import Complaints, timed_choice
from rocm_tui.ingest.formats.triton_lines import REACH, KernelLog, KernelTuning, TritonLine
from rocm_tui.ingest.formats.unwrap import REPEATED, HardWraps, shortened, unwrap
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

    `place` is the header's line, `last` that of its last row, `touched` the offset of the last line
    that belonged to it, `crowded` whether another table was open at the same time in the same
    stream; `confirmed` says that the header's wrapper is that of another line of the table,
    `of_several` that other processes wrote while its process did. After dots (`elided`) rows may be
    missing; a row of a `torn` one cannot be read, so the fastest choice may not be among its rows;
    `shown` is whether anyone was given it.
    """

    n: int
    sources: tuple[str, ...]
    header: Header
    origin: Origin
    key: Key
    place: int
    touched: int
    strides: tuple[Shape | None, ...] | None = None
    dtypes: tuple[str, ...] | None = None
    rows: list[ChoiceRow] = field(default_factory=list)
    footer: Footer | None = None
    stats: Stats | None = None
    ended: bool = False
    last: int = 0
    elided: bool = False
    torn: bool = False
    crowded: bool = False
    confirmed: bool = False
    of_several: bool = False
    shown: bool = False

    @property
    def complete(self) -> bool:
        """Nothing more is to come, as far as the text tells."""
        return self.footer is not None or self.ended or self.elided or len(self.rows) >= SHOWN

    def lacks(self, part: Strides | Dtypes) -> bool:
        """Whether strides or dtypes are still to come."""
        present = self.strides if isinstance(part, Strides) else self.dtypes
        return present is None and not self.rows and not self.footer

    def takes_operands(self, part: Strides | Dtypes) -> bool:
        """Whether strides or dtypes are still to come, as many as the header has operands."""
        if not self.lacks(part):
            return False
        shapes = self.header.shapes
        if isinstance(part, Dtypes):
            fit = not shapes or len(part.dtypes) == len(shapes)
            return fit and all(map(is_dtype, part.dtypes))
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
        self.rows, self.ended, self.elided, self.torn = [], False, False, False

    def without_wrapper(self, row: ChoiceRow) -> ChoiceRow:
        """Return the row without what its logger puts at the end of each line."""
        after = self.header.after
        if not after or not row.description:
            return row
        fields = row.description.split(" ")
        count = after.count(" ") + 1
        tail = " ".join(fields[-count:])
        same = _DIGITS.sub("0", tail) == _DIGITS.sub("0", after)
        if not same and tail.endswith(after):  # nothing between them
            return row._replace(description=row.description.removesuffix(after))
        return row._replace(description=" ".join(fields[:-count])) if same else row

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
        whole = self.complete and not self.torn
        state: State = "running" if open_ else "done" if whole else "cut"
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
            process=name_of(self.key) if self.of_several else "",
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
        # The same few configs are in every table.
        return timed_choice(row.ms, row.name or None, None, sys.intern(row.description))


_DIGITS = re.compile(r"\d+")


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
        self._streams: dict[Key, list[Block]] = {}
        self._by_age: dict[int, Block] = {}

    def __len__(self) -> int:
        return len(self._by_age)

    def __iter__(self) -> Iterator[Block]:
        """The one that was touched last comes last."""
        return iter(self._by_age.values())

    def __contains__(self, block: Block) -> bool:
        return block.n in self._by_age

    def of(self, key: Key) -> list[Block]:
        """Return the tables of one stream, oldest first."""
        return self._streams.get(key, [])

    def newest(self) -> list[Block]:
        """Return the tables that were touched last, those first; not more than a few."""
        return list(islice(reversed(self._by_age.values()), MAX_OPEN))

    def add(self, block: Block) -> None:
        self._streams.setdefault(block.key, []).append(block)
        self._by_age[block.n] = block

    def sort_into(self, key_of: Callable[[Key], Key]) -> list[list[Block]]:
        """Give each table its key anew; return the streams that became one."""
        before = {block.n: block.key for block in self}
        self._streams = {}
        for n in sorted(before):
            block = self._by_age[n]
            block.key = key_of(block.key)
            self._streams.setdefault(block.key, []).append(block)
        return [b for b in self._streams.values() if len({before[each.n] for each in b}) > 1]

    def touch(self, block: Block, end: int) -> None:
        """The line that ends at `end` belonged to it; later lines end later."""
        block.touched = end
        del self._by_age[block.n]
        self._by_age[block.n] = block  # the youngest is last

    def remove(self, block: Block) -> None:
        """Take it out, if it is there."""
        if self._by_age.pop(block.n, None) is not None:
            blocks = self._streams[block.key]
            blocks.remove(block)
            if not blocks:
                del self._streams[block.key]

    def expired(self, offset: int) -> list[Block]:
        """Return the tables that nothing was added to for long, now that the log is at `offset`."""
        return list(takewhile(lambda block: offset - block.touched > PATIENCE, self))


TablePart = ChoiceRow | Strides | Dtypes | Footer


@dataclass(slots=True)
class Held:
    """A line that waits: since the doubt began, a header's table, or what belongs to some table."""

    what: Block | TablePart
    who: Origin
    end: int
    place: int

    def follows(self, earlier: Held) -> bool:
        """Whether two lines can be of one table, in this order."""
        mine, other = self.what, earlier.what
        if isinstance(mine, ChoiceRow) and isinstance(other, ChoiceRow):
            return mine.ms >= other.ms and mine.label != other.label
        return _ORDER.index(type(mine)) > _ORDER.index(type(other))


_ORDER = (Block, Strides, Dtypes, ChoiceRow, Footer)


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
        self._orphans: dict[Key, list[int]] = {}
        self.headless = 0

    def add(self, kind: str, place: int, what: str) -> None:
        self._problems += self._complaints.about(what, place, kind)

    def once(self, kind: str, place: int, what: str) -> None:
        """Say it the first time only."""
        self._problems += self._complaints.once(what, place, kind)

    def orphan(self, key: Key, place: int) -> None:
        """A row of the stream `key` belongs to no table."""
        self._orphans.setdefault(key, []).append(place)

    def end_of_orphans(self, key: Key, place: int, choices: int | None) -> None:
        """Report the end of a table whose beginning is missing."""
        self._headless(place, len(self._orphans.pop(key, ())), choices)

    def report_orphans(self, key: Key | None = None) -> None:
        """Tell of the rows that wait for their table's end: of one stream, or of all."""
        for stream in list(self._orphans) if key is None else [key]:
            lost = self._orphans.pop(stream, None)
            if lost:
                self._headless(lost[0], len(lost), None)

    def _headless(self, place: int, rows: int, choices: int | None) -> None:
        self.headless += 1
        self.add("headless", place, _headless(rows, choices))

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


_PROCESS = re.compile(rf"(?:{'|'.join(PROCESSES)})\Z")
_MOST_HEARD = 10_000
_MOST_STRAYS = 16
_FRUITLESS = 2000
"""Lines, one after another, whose table is not there, after which nobody looks for it under other
words."""


class LogParser:
    """Folds lines into tunings. `take` gives what changed since it was last called.

    `place` of a line is what its problems shall carry as their line.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self._sources = (source,)
        self._open = OpenTables()
        self._origins = Origins()
        self._varying = VaryingWords()
        self._wraps = HardWraps()
        self._heard: dict[Key, None] = {}
        self._strays: dict[int, list[Held]] = {}
        self._fruitless = 0
        self._speaker: Block | None = None
        self._several: set[Key] = set()
        self._single: dict[Key, list[Block]] = {}
        self._doubts: dict[Key, Overlap] = {}
        self._closed: dict[Key, Block] = {}
        self._stats: dict[Key, list[Stats]] = {}
        self._changed: dict[int, Block | KernelTuning] = {}
        self._records: list[Record] = []
        self._problems = LogProblems(source)
        self._kernels = KernelLog(source, self._next_number, self._problems.add)
        self._unshown = self._first_stats = 0
        self._finished = False
        self._died = -REACH
        self._ends: dict[Key, int] = {}
        self._until = START
        self._n = 0

    # Which lines matter

    def busy(self, offset: int) -> bool:
        """Whether the line at `offset` matters even without a marker in it."""
        if offset < self._until or self._wraps.holding:
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
        read = 0
        for start in sorted(starts):
            at = max(start, read)
            while at == start or (self._wraps.holding and at < size):
                end = before.find(b"\n", at)
                end = end if end >= 0 else size
                self.line(before[at:end], 0, place_of(at))
                at = read = end + 1

    def line(self, data: bytes, offset: int, place: int, cut: bool = False) -> None:
        """Take one line, without its end; `offset` is where it begins. `cut` tells that it is a
        piece of a longer one, and that what it says may be cut with it."""
        if cut:
            what = "the line is too long: it is read in pieces, and what is cut in two is lost"
            if may_matter(data):
                self._problems.once("long line", place, what)
            self._whole_line(data, offset + len(data), place)
        elif self._wraps.holding or may_matter(data):
            for line, at in self._wraps.feed(data, place):
                self._whole_line(line, offset + len(data), at)

    def _whole_line(self, data: bytes, end: int, place: int) -> None:
        if not may_matter(data):
            return
        for text, around in unwrap(data):
            repeated = REPEATED.search(text)
            if repeated:
                text = text[: repeated.start()]
                what = (
                    f"Ray merged {counted(int(repeated[1]), 'line')} of its workers into this one,"
                    " so their tables have gaps; set RAY_DEDUP_LOGS=0 to keep all lines"
                )
                self._problems.add("lines that Ray merged", place, what)
            for at, part in parts(text):
                before = shortened(text[:at])
                if isinstance(part, Footer):
                    before = _PROCESS.sub("", before)
                who = self._origins.of(f"{around} {before}" if around else before)
                self._take(part, who, end, place)

    # What a line does

    def _take(self, part: Part, who: Origin, end: int, place: int) -> None:
        if isinstance(part, (ChoiceRow, Strides, Dtypes, Footer)):
            self._of_a_table(part, who, end, place)
        elif isinstance(part, Header):
            self._header(part, who, end, place)
        elif isinstance(part, Stats):
            self._statistics(part, self._varying.key(who), place)
        elif isinstance(part, Dots):
            self._ellipsis(who)
        elif isinstance(part, TritonLine):
            self._kernel(part, who, end, place)
        elif isinstance(part, OutOfResource):
            self._problems.add("out of resource", place, part.what)
        elif isinstance(part, Torn):
            self._torn(part, who, place)
        elif isinstance(part, Died):
            self._death(part, who, end, place)

    def _kernel(self, line: TritonLine, who: Origin, end: int, place: int) -> None:
        kernel = self._kernels.take(line, who, place)
        if kernel is not None:
            self._changed[kernel.n] = kernel
        if kernel is not None or line.name is not None:
            self._until = max(self._until, end + REACH)

    def _torn(self, torn: Torn, who: Origin, place: int) -> None:
        """Report a part that cannot be read; one that only a table has, where a table lacks it."""
        near = [block for block in self._reachable(self._nearby(who)) if not block.complete]
        if torn.kind == "row" and len(near) == 1:
            near[0].torn = True
            self._changed[near[0].n] = near[0]
        if torn.kind == "operands":
            near = [block for block in near if not block.rows]
        if near or torn.kind == "any":
            self._problems.add("torn", place, torn.what)

    def _death(self, died: Died, who: Origin, end: int, place: int) -> None:
        """Report what ended a process, with the tuning that it left behind. What the shell says
        after it is about the same end."""
        if "(core dumped)" not in died.what or end - self._died >= REACH:
            left = self._left_behind(who, self._nearby(who))
            self._problems.add("end", place, left + died.what)
        self._died = end

    def _left_behind(self, who: Origin, stream: Key) -> str:
        """Return the words that name the tuning which a process had begun."""
        block = next((b for b in reversed(self._reachable(stream)) if not b.complete), None)
        if block is None:
            kernel = next(iter(reversed(self._kernels.unfinished(who))), None)
            if kernel is None:
                return ""
            kernel.dead = True
            self._changed[kernel.n] = kernel
            return f"after {kernel.name} began {kernel.last}: "
        block.torn = block.torn or not block.rows
        rows = counted(len(block.rows), "row") if block.rows else ""
        before = f"after {rows} of" if rows else "no rows follow"
        return f"{before} AUTOTUNE {block.header.text}: "

    def _next_number(self) -> int:
        self._n += 1
        return self._n

    def _header(self, header: Header, who: Origin, end: int, place: int) -> None:
        key = self._varying.key(who)
        for block in list(self._open.of(key)) if self._strays else ():
            if block.n in self._strays:
                self._settle_strays(block)
        key = self._varying.key(who)
        self._hear(key)
        self._problems.report_orphans(key)
        self._unshown = max(0, self._unshown - 1)
        self._enter(Block(self._next_number(), self._sources, header, who, key, place, end))

    def _hear(self, key: Key) -> None:
        """Remember that a process writes tables."""
        if len(self._heard) < _MOST_HEARD:
            self._heard[key] = None

    def _enter(self, block: Block) -> None:
        """Put a table into its stream, as the newest."""
        key = block.key
        tables = self._open.of(key)
        doubt = self._doubts.get(key)
        if doubt is not None and doubt.newest.rows:  # a whole table, and nothing spoke against it
            self._end_doubt(doubt)
        over = len(tables) >= MAX_OPEN
        for other in [each for each in tables if over or each.complete]:
            if other in self._open:
                self._close(other)
        rivals = list(self._open.of(key))
        self._open.add(block)
        self._speaker = block
        if rivals:
            self._doubts.setdefault(key, Overlap(rivals)).begin(block)

    def _of_a_table(self, part: TablePart, who: Origin, end: int, place: int) -> None:
        stream = self._stream(Held(part, who, end, place))
        if stream is not None:
            self._in_stream(part, who, stream, end, place)

    def _in_stream(self, part: TablePart, who: Origin, stream: Key, end: int, place: int) -> None:
        doubt = self._doubts.get(stream)
        if doubt is not None:
            doubt.hold(part, who, end, place)
            if doubt.refuted_by(part):
                self._deal_out(stream, doubt)
                return
        if isinstance(part, ChoiceRow):
            self._row(part, stream, end, place)
        elif isinstance(part, Footer):
            self._footer(part, stream, end, place)
        else:
            self._operands(part, stream, end, place)

    # Which process wrote a line

    def _stream(self, line: Held) -> Key | None:
        """Return the stream of the table that a line belongs to; None if the line has to wait until
        others show which."""
        who, part = line.who, line.what
        assert not isinstance(part, Block)
        key = self._varying.key(who)
        own = self._open.of(key)
        if own:
            self._fruitless = 0
            self._refute_strays(own)
            if len(self._open) > len(own) and not any(block.takes(part) for block in own):
                self._rejoin(key, who, part)
            for block in self._open.of(key):
                block.confirmed = True
            return key
        if (who.words and key in self._heard) or self._fruitless > _FRUITLESS:
            return key
        akin = [block for block in self._open.newest() if block.origin.akin(who)]
        newest = max(akin, key=lambda block: block.n, default=None)
        if newest is None:
            return self._stray(key, line)
        alone = len({block.key for block in akin}) == 1
        takes = any(block.takes(part) for block in (akin if alone else [newest]))
        more = not newest.confirmed and len(newest.origin.words) > len(who.words)
        if more and takes and (alone or newest.origin.rank is None):
            self._move(newest, key)
            return key
        return newest.key if alone and (takes or not who.words) else self._stray(key, line)

    def _rejoin(self, key: Key, who: Origin, part: TablePart) -> None:
        """Take a table into the stream that it belongs to: its header alone has more before it."""
        for block in self._open.newest():
            akin = block.key != key and not block.confirmed and block.origin.akin(who)
            if akin and block.takes(part):
                self._move(block, key)
                return

    def _move(self, block: Block, key: Key) -> None:
        self._open.remove(block)
        block.key = key
        self._enter(block)

    def _stray(self, key: Key, line: Held) -> Key | None:
        """Return the stream of a line whose words no table has. Either its process began a table
        that is not in the log, or words vary within a process.

        Words that differ in the header and in two later lines vary. Otherwise the line waits: if
        the table goes on under its own words, the line was another process's.
        """
        found = self._nearest(line)
        self._fruitless += 1
        if found is None:
            return key
        block, places = found
        places -= self._naming(block)
        strays = self._strays.setdefault(block.n, [])
        for stray in strays:
            varying = places & self._varying.differing(line.who, stray.who)
            varying &= self._varying.differing(block.origin, stray.who)
            if varying:
                self._vary(block, varying, line)
                return None
        if len(strays) < _MOST_STRAYS:
            strays.append(line)
        return None

    def _naming(self, block: Block) -> frozenset[int]:
        """Return the places of the words that name processes: tables that have lines under words of
        their own differ in them."""
        tables = [table.origin for table in self._open.newest() if table.confirmed]
        tables = [who for who in tables if who.differing(block.origin) is not None]
        places = (self._varying.differing(tables[0], who) for who in tables[1:])
        return frozenset[int]().union(*places)

    def _nearest(self, line: Held) -> tuple[Block, frozenset[int]] | None:
        """Return the table that a line continues but for the fewest words, and their places."""
        found: tuple[Block, frozenset[int]] | None = None
        part = line.what
        assert not isinstance(part, Block)
        for block in self._open.newest():
            places = self._varying.differing(block.origin, line.who)
            if places and (found is None or len(places) < len(found[1])):
                strays = self._strays.get(block.n)
                if line.follows(strays[-1]) if strays else block.takes(part):
                    found = block, places
        return found

    def _vary(self, block: Block, places: frozenset[int], last: Held | None = None) -> None:
        """Learn that words at these places do not name a process."""
        self._varying.vary(block.origin, places)
        waiting = [line for strays in self._strays.values() for line in strays]
        self._strays = {}
        key_of = self._varying.key_of
        merged = self._open.sort_into(key_of)
        self._doubts = {key_of(key): doubt for key, doubt in self._doubts.items()}
        self._closed = {key_of(key): closed for key, closed in self._closed.items()}
        self._ends = {key_of(key): ends for key, ends in self._ends.items()}
        self._heard = {key_of(key): None for key in self._heard}
        self._several = {key_of(key) for key in self._several}
        self._single = {}
        stats, self._stats = self._stats, {}
        for key, pending in stats.items():
            self._stats.setdefault(key_of(key), []).extend(pending)
        for blocks in merged:
            newest = blocks[-1]
            if newest.key not in self._doubts:
                self._doubts[newest.key] = Overlap(blocks[:-1])
                self._doubts[newest.key].begin(newest)
        for line in sorted(waiting, key=lambda line: line.end) + ([last] if last else []):
            assert not isinstance(line.what, Block)
            self._of_a_table(line.what, line.who, line.end, line.place)

    def _settle_strays(self, block: Block) -> None:
        """A table is over, or another begins in its stream. What waits is its rest, if it ends as a
        table does and no header has other words there."""
        strays = self._strays.get(block.n, [])
        heard = any(self._varying.key(line.who) in self._heard for line in strays)
        places = [self._varying.differing(block.origin, line.who) for line in strays]
        varying = frozenset[int].intersection(*places) if places else frozenset[int]()
        for key in islice(self._heard, MAX_OPEN) if varying else ():
            varying -= self._varying.differing(block.origin, Origin(*key))
        if varying and not heard and len(strays) > 1 and isinstance(strays[-1].what, Footer):
            self._vary(block, varying)
        else:
            self._refute_strays([block])

    def _refute_strays(self, blocks: list[Block]) -> None:
        """The lines that wait for these tables are another process's."""
        for block in blocks if self._strays else ():
            for line in self._strays.pop(block.n, ()):
                key = self._varying.key(line.who)
                self._hear(key)
                if isinstance(line.what, ChoiceRow):
                    self._problems.orphan(key, line.place)
                elif isinstance(line.what, Footer):
                    self._problems.end_of_orphans(key, line.place, line.what.num_choices)

    def _deal_out(self, stream: Key, doubt: Overlap) -> None:
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
                self._in_stream(held.what, held.who, stream, held.end, held.place)
        for block in doubt.newer:
            if block.shown and not block.rows:
                self._records.append(Dropped(uid_of(self.source, block.n)))
                block.shown = False

    def _operands(self, part: Strides | Dtypes, stream: Key, end: int, place: int) -> None:
        near = self._reachable(stream)
        takers = [b for b in near if b.takes_operands(part)]
        if len(takers) == 1:
            takers[0].put_operands(part)
            self._touch(takers[0], end)
        elif len(near) == 1 and near[0].lacks(part):
            what = (
                f"do not fit AUTOTUNE {near[0].header.text}: {', '.join(map(str, part[0]))[:100]}"
            )
            kind = "strides" if isinstance(part, Strides) else "dtypes"
            self._problems.add("torn", place, f"these {kind} {what}")

    def _row(self, row: ChoiceRow, stream: Key, end: int, place: int) -> None:
        near = self._reachable(stream)
        if len(near) == 1 and near[0].elided and not near[0].takes_row(row):
            self._close(near[0])  # the dots hid the beginning of another table
            near = []
        if not near:
            self._problems.orphan(stream, place)
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
        row = takers[0].without_wrapper(row)
        takers[0].rows.append(self._readable(row, takers[0], place))
        takers[0].last = place
        self._touch(takers[0], end)

    def _readable(self, row: ChoiceRow, block: Block, place: int) -> ChoiceRow:
        """Return the row without its configuration if a part of that is missing or no setting."""
        text = row.description
        if block.header.quoted:  # inside a CSV cell quotes are doubled
            text = text.replace('""', '"')
        if text.count('"') % 2:  # the end of a string in JSON
            text = text.rstrip(",").removesuffix('"')
        if not is_config(text):
            parts = text.split(", ")
            wrong = next((part for part in parts if "=" not in part or not is_config(part)), text)
            what = f"the configuration of {row.label[:100]} cannot be read: {wrong[:100]}"
            self._problems.add("torn", place, what)
            text = ""
        return row._replace(description=text)

    def _footer(self, footer: Footer, stream: Key, end: int, place: int) -> None:
        near = self._reachable(stream)
        takers = [b for b in near if b.takes_footer(footer)]
        if len(takers) > 1:
            full = [b for b in takers if _is_full(b, footer)]
            takers = full if len(full) == 1 else takers
        if len(takers) > 1:
            what = "the end of a table could belong to several tables"
            self._problems.add("footer", place, what)
            self._ambiguous_end(stream, takers)
            return
        if takers:
            takers[0].footer = footer
            self._touch(takers[0], end)
            self._close(takers[0])
            self._until = max(self._until, end + GRACE)
            return
        self._problems.end_of_orphans(stream, place, footer.num_choices)

    def _ambiguous_end(self, key: Key, takers: list[Block]) -> None:
        """As many ends as open tables: all have ended, whichever was whose."""
        self._ends[key] = self._ends.get(key, 0) + 1
        if self._ends[key] < len(takers):
            return
        for block in takers:
            block.ended = True
            self._close(block)

    def _statistics(self, stats: Stats, key: Key, place: int) -> None:
        last = self._closed.get(key)
        if last is not None and last.fits_stats(stats):
            last.stats = stats
            self._changed[last.n] = last
            return
        self._first_stats = self._first_stats if self._unshown else place
        self._unshown += 1
        pending = self._stats.setdefault(key, [])
        pending.append(stats)
        del pending[:-16]

    def _ellipsis(self, who: Origin) -> None:
        near = [b for b in self._reachable(self._nearby(who)) if b.rows]
        if len(near) == 1:
            near[0].elided = True
            self._changed[near[0].n] = near[0]

    # Which table a line can belong to

    def _nearby(self, who: Origin) -> Key:
        """Return the stream of a line that has no numbers of a table in it."""
        stream = self._varying.key(who)
        if not self._open.of(stream):
            akin = {block.key for block in self._open.newest() if block.origin.akin(who)}
            stream = akin.pop() if len(akin) == 1 else stream
        return stream

    def _reachable(self, stream: Key) -> list[Block]:
        """The open tables that it may speak of: the newest of the stream, as long as no line
        tells that an older one goes on."""
        doubt = self._doubts.get(stream)
        tables = self._open.of(stream)
        if doubt is not None:
            return [block for block in tables if block is doubt.newest]
        return list(tables)

    def _touch(self, block: Block, end: int) -> None:
        last, self._speaker = self._speaker, block
        if last is not None and last.key != block.key and last.touched > block.touched:
            self._prove((last, block))
        block.of_several = block.key in self._several
        self._open.touch(block, end)
        self._changed[block.n] = block

    def _prove(self, blocks: Iterable[Block]) -> None:
        """The lines of these tables are between each other's: their processes are two. Without that
        the words may differ from one table to the next, as the number of a graph does."""
        for block in blocks:
            if block.key not in self._several:
                self._several.add(block.key)
                for earlier in (block, *self._single.pop(block.key, ())):
                    earlier.of_several = True
                    self._changed[earlier.n] = earlier

    def _close(self, block: Block) -> None:
        if block.n in self._strays:
            self._settle_strays(block)
            if block not in self._open:
                return
        self._open.remove(block)
        key = block.key
        doubt = self._doubts.get(key)
        if doubt is not None and not any(other in self._open for other in doubt.rest):
            del self._doubts[key]
        self._closed[key] = block
        self._drop_half_configuration(block)
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
            if len(self._single) < MAX_OPEN and key not in self._several:
                self._single[key] = [*self._single.get(key, ())[-MAX_OPEN:], block]
        else:
            self._changed.pop(block.n, None)
            if not block.torn:  # else the reason was reported
                what = f"no rows follow AUTOTUNE {block.header.text}"
                self._problems.add("empty", block.place, what)

    def _drop_half_configuration(self, block: Block) -> None:
        """Report a table that ends within its last row: settings are missing which each has."""
        if block.footer or len(block.rows) < 2:
            return
        *others, last = block.rows
        names = list(parse_config(last.description))
        if any(_is_start(names, list(parse_config(row.description))) for row in others):
            what = f"the configuration of {last.label[:100]} ends at {last.description[-100:]}"
            self._problems.add("torn", block.last, what)
            block.rows[-1] = last._replace(description="")

    def _end_doubt(self, doubt: Overlap) -> None:
        """Its older tables are over."""
        for block in doubt.rest:
            if block in self._open:
                self._close(block)

    def _expire(self, offset: int) -> None:
        for block in self._open.expired(offset):
            doubt = self._doubts.get(block.key)
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
            if isinstance(block, KernelTuning):
                self._records.append(self._seen(block, not self._finished))
            elif block.rows:
                self._records.append(self._seen(block, block in self._open))
                block.shown = True
        self._changed = {}

    def _seen(self, block: Block | KernelTuning, open_: bool = False) -> Seen:
        return Seen(uid_of(self.source, block.n), block.tuning(open_))

    def cut(self) -> list[Record]:
        """The tables that are still open, as they would be if nothing more came."""
        return [self._seen(b) for b in self._open if b.rows]

    def finish(self) -> None:
        """Close what is open: the log has ended."""
        for line, place in self._wraps.rest():
            self._whole_line(line, self._until, place)
        for block in list(self._open):
            if block in self._open:
                self._close(block)
        self._finished = True
        self._changed |= {kernel.n: kernel for kernel in self._kernels.unfinished()}
        self._kernels.finish()
        self._problems.report_orphans()
        unshown = self._unshown - self._problems.headless
        if unshown > 0:
            what = counted(
                unshown,
                "statistic reports a tuning whose table was",
                "statistics report tunings whose tables were",
            )
            hidden = "not shown (TORCHINDUCTOR_AUTOTUNE_NUM_CHOICES_DISPLAYED=0 leaves them out)"
            self._problems.add("unshown", self._first_stats, f"{what} {hidden}")


def _is_start(names: list[str], others: list[str]) -> bool:
    return 0 < len(names) < len(others) and others[: len(names)] == names


def _is_full(block: Block, footer: Footer) -> bool:
    """Whether a footer would be due after the rows that `block` has."""
    if footer.num_choices is None:
        return len(block.rows) >= SHOWN
    return len(block.rows) == min(SHOWN, footer.num_choices)
