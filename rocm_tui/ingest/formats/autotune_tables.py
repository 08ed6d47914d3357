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
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice, takewhile

from backend.counted import counted
from backend.model.choice import parse_config, sort_choices
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
from rocm_tui.ingest.formats.processes import (
    Form,
    HeardWords,
    Key,
    Origin,
    Origins,
    VaryingWords,
    name_of,
)
from rocm_tui.ingest.formats.reader import Complaints, is_silent, timed_choice
from rocm_tui.ingest.formats.triton_lines import REACH, KernelLog, KernelTuning, TritonLine
from rocm_tui.ingest.formats.unwrap import REPEATED, HardWraps, shortened, unwrap
from rocm_tui.ingest.records import Dropped, Record, Seen, uid_of

SHOWN = 10
"""Rows that Inductor prints by default."""
PATIENCE = 256 << 10
"""Bytes after its last line that a table without a footer stays open."""
MAX_PROBLEMS = 50
"""Problems of one kind that are reported one by one; that there are more is said once."""


@dataclass(slots=True, eq=False)
class Block:
    """A table whose header was seen.

    `place` is the header's line, `last` that of its last row, `touched` the offset of the last line
    that belonged to it, `lines` its header and what came for it, while it is open, `crowded`
    whether another table was open at the same time in the same stream; `confirmed` says that the
    header's wrapper is that of another line of the table, `of_several` that other processes wrote
    while its process did. After dots (`elided`) rows may be missing; a row of a `torn` one cannot
    be read, so the fastest choice may not be among its rows; `shown` is whether anyone was given
    it.
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
    lines: list[Held] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether nothing more is to come, as far as the text shows."""
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

    def takes_row(self, row: ChoiceRow) -> bool:
        """Whether `row` can be the next row: sorted, its name new, its share as the times say."""
        if self.footer or self.ended:
            return False
        if not self.rows:
            return row.percent is None or row.percent == 100.0
        if not row.ms >= self.rows[-1].ms or any(r.label == row.label for r in self.rows):
            return False
        return _share_fits(self.rows[0].ms, row)

    def is_over_before(self, row: ChoiceRow) -> bool:
        """Return whether a row is of another table, whose header is missing: behind dots a row that
        does not fit, elsewhere one that is faster than the last, or that has all of the best one's
        speed and not its time. Others may have odd numbers."""
        if not self.rows:
            return False
        faster = row.ms < self.rows[-1].ms
        best = row.percent == 100.0 and not _share_fits(self.rows[0].ms, row)
        return faster or best or (self.elided and not self.takes_row(row))

    def is_over_before_operands(self, part: Strides | Dtypes) -> bool:
        """Return whether strides or dtypes are of another table, whose header is missing."""
        own = self.strides if isinstance(part, Strides) else self.dtypes
        return not self.crowded and (bool(self.rows) or (own is not None and own != part[0]))

    def takes(self, part: ChoiceRow | Strides | Dtypes | Footer) -> bool:
        """Whether what a line says can belong to it, by its numbers."""
        if isinstance(part, ChoiceRow):
            return self.takes_row(part)
        return self.takes_footer(part) if isinstance(part, Footer) else self.takes_operands(part)

    def restart(self) -> None:
        """As it was when its header was seen."""
        self.strides = self.dtypes = self.footer = self.stats = None
        self.rows, self.ended, self.elided, self.torn = [], False, False, False
        del self.lines[1:]

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
        """Return the tuning as read so far; `open_` if more may come."""
        footer = self.footer
        kept = sys.intern  # the same few configs are in every table
        choices = [timed_choice(r.ms, r.name or None, None, kept(r.description)) for r in self.rows]
        whole = self.complete and not self.torn
        state: State = "running" if open_ else "done" if whole else "cut"
        return Tuning(
            op=self.header.op,
            shapes=self.header.shapes,
            strides=all_known(self.strides or ()) or (),
            dtypes=self.dtypes or (),
            choices=sort_choices(choices),
            num_choices=self.num_choices,
            seconds=Seconds(*footer[:3]) if footer else Seconds(),
            state=state,
            timed=len(self.rows) if state == "running" else 0,
            rank=self.origin.rank,
            process=name_of(self.key) if self.of_several else "",
            when=self.header.when,
            sources=self.sources,
        )

    @property
    def num_choices(self) -> int | None:
        """The number of choices that were tried, if the table's end or statistics give it."""
        if self.footer and self.footer.num_choices is not None:
            return self.footer.num_choices
        return self.stats.num_choices if self.stats else None


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
    """The tables whose end has not come, by stream.

    A lookup costs as much as its stream has tables, however many streams there are.
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
    fits an older table and not the newest refutes that; then what came since is dealt out again,
    each line to the one table that it fits.

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
        self.held.append(block.lines[0])


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
        """Report the rows that wait for their table's end: of one stream, or of all."""
        for stream in list(self._orphans) if key is None else [key]:
            lost = self._orphans.pop(stream, None)
            if lost:
                self._headless(lost[0], len(lost), None)

    def _headless(self, place: int, rows: int, choices: int | None) -> None:
        self.headless += 1
        lost = counted(rows, "row") if rows else "the end"
        count = "" if choices is None else f" of {counted(choices, 'choice')}"
        self.add("headless", place, f"{lost} of a table{count} whose beginning is missing")

    def take(self) -> list[Fault]:
        problems, self._problems = self._problems, []
        return problems


START = 64 << 10
"""Bytes at a file's start that are read line by line: it may begin inside a table."""
GRACE = 256
"""Bytes after a table in which its statistics may begin."""
_BEFORE = re.compile(b"|".join(map(re.escape, BEFORE)))
MAX_OPEN = 64
"""Tables without an end that one stream can have at once: as many processes as write into it."""


_PROCESS = re.compile(rf"(?:{'|'.join(PROCESSES)})\Z")
_MOST_HEARD = 10_000
_MOST_STRAYS = 64
_FEW_LINES = 5
"""The fewest lines of a table that prove a word on each of them to vary: as many processes would
not make up a table by chance."""
_MANY_RISES = 3
"""Values of a number that never fell: processes that write at once come back to theirs."""
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
        self._words = HeardWords()
        self._wraps = HardWraps()
        self._heard: dict[Key, None] = {}
        self._strays: dict[int, list[Held]] = {}
        self._lost: list[Held] = []
        self._losses: dict[Key, int] = {}
        self._fruitless = 0
        self._lasting: set[Form] = set()
        self._with_strides = False
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
        self._latest_stats: dict[Key, int] = {}
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
        for block in self._open.expired(offset) if self._open else ():
            if block.key in self._doubts:
                self._end_doubt(self._doubts[block.key])
            if block in self._open:
                self._close(block)
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
        """Take one line, without its end; `offset` is where it begins. With `cut` it is a piece
        of a longer one, and what it says may be cut with it."""
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
        self._words.hear(who)
        self._with_strides = self._with_strides or isinstance(part, Strides)
        if isinstance(part, (ChoiceRow, Strides, Dtypes, Footer)):
            self._of_a_table(Held(part, who, end, place))
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
        changed = self._kernels.take(line, who, place)
        self._changed |= {kernel.n: kernel for kernel in changed}
        if changed or line.name is not None:
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
        self._only_table()
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
        if self._strays:
            own = self._open.of(key)
            self._refute_strays([b for b in own if not self._is_whole(self._strays.get(b.n, []))])
        self._hear(key)
        self._problems.report_orphans(key)
        self._unshown = max(0, self._unshown - 1)
        self._latest_stats.pop(key, None)
        block = Block(self._next_number(), self._sources, header, who, key, place, end)
        block.lines.append(Held(block, who, end, place))
        self._enter(block)

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
        self._close_damaged(tables)
        for other in [each for each in tables if over or each.complete]:
            if other in self._open:
                self._close(other)
        rivals = list(self._open.of(key))
        self._open.add(block)
        self._speaker = block
        if rivals:
            self._doubts.setdefault(key, Overlap(rivals)).begin(block)

    def _of_a_table(self, line: Held) -> None:
        stream = self._stream(line)
        if stream is not None:
            self._in_stream(line, stream)

    def _in_stream(self, line: Held, stream: Key) -> None:
        part = line.what
        assert not isinstance(part, Block)
        doubt = self._doubts.get(stream)
        if doubt is not None:
            doubt.held.append(line)
            if doubt.refuted_by(part):
                self._deal_out(stream, doubt)
                return
        if isinstance(part, ChoiceRow):
            self._row(part, line, stream)
        elif isinstance(part, Footer):
            self._footer(part, line, stream)
        else:
            self._operands(part, line, stream)

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
            if who.words and len(self._lasting) < _MOST_HEARD:
                self._lasting.add(who.form)
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

        Where that is not certain the line waits: if the table goes on under its own words, or
        ends, the line was another process's.
        """
        nearest = self._nearest(line)
        self._fruitless += 1
        if nearest is None:
            if len(self._lost) >= _MOST_STRAYS or not self._open_of_form(line.who.form):
                return key
            self._lost.append(line)
            return None
        block, places = nearest
        strays = self._strays.setdefault(block.n, [])
        strays.append(line)
        varying = (
            self._counting(block, places)
            or self._ever_new(block, places)
            or self._twice_elsewhere(block)
        )
        if varying:
            self._vary(block.origin, varying)
        elif len(strays) >= _MOST_STRAYS:
            self._refute_strays([block])
        return None

    def _counting(self, block: Block, places: frozenset[int]) -> frozenset[int]:
        """Return the places of numbers that rise within a whole table, and never fell."""
        numbers = self._words.rising(block.origin, _MANY_RISES)
        if places <= numbers and self._is_whole([*block.lines, *self._like(block, places)]):
            return places
        return frozenset()

    def _ever_new(self, block: Block, places: frozenset[int]) -> frozenset[int]:
        """Return the places of the words that are new on each line of a table, or of two that are
        whole, where no table has its header's words on another line."""
        form = block.origin.form
        tables = [b for b in self._open.newest() if b.origin.form == form]
        tables = [b for b in tables if self._is_whole(self._like(b, places))]
        return self._all_differ(tables, places) if block in tables else frozenset()

    def _all_differ(self, tables: list[Block], places: frozenset[int]) -> frozenset[int]:
        """Return those of the places where all lines of the tables have other words."""
        origins = [table.origin for table in tables]
        origins += [line.who for table in tables for line in self._like(table, places)]
        if len(origins) < _FEW_LINES or tables[0].origin.form in self._lasting:
            return frozenset()
        again, varying = self._words.again, places | self._varying.places(tables[0].origin)
        return frozenset(at for at in places if not any(again(who, at, varying) for who in origins))

    def _only_table(self) -> None:
        """The log, or its process, has ended within the only table of its form: words that are new
        on each of its lines vary."""
        blocks = [block for block in self._open if block.n in self._strays]
        heard = Counter(Origin(*key).form for key in self._heard) if blocks else {}
        for block in blocks:
            strays = self._strays.get(block.n, [])
            if heard.get(block.origin.form) == 1 and strays:
                places = self._varying.differing(block.origin, strays[-1].who)
                varying = self._all_differ([block], places)
                if varying:
                    self._vary(block.origin, varying)

    def _is_whole(self, lines: list[Held]) -> bool:
        """Whether lines are all that follows a header, to its end."""
        rows = sum(isinstance(line.what, ChoiceRow) for line in lines)
        end = lines[-1].what if rows else None
        if not isinstance(end, Footer) or rows < min(SHOWN, end.num_choices or 1):
            return False
        return not self._with_strides or any(isinstance(line.what, Strides) for line in lines)

    def _like(self, block: Block, places: frozenset[int]) -> list[Held]:
        """Return the lines that may be a table's, whose words differ at some of these places."""
        differing = self._varying.differing
        strays = self._strays.get(block.n, [])
        return [line for line in strays if differing(block.origin, line.who) <= places]

    def _twice_elsewhere(self, block: Block) -> frozenset[int]:
        """Return the places of the words that are others behind the header, in all of two tables:
        its process would have begun two tables without a line of them."""
        lines: list[Held] = []
        tables = [b for b in self._open.of(block.key) if not b.confirmed]
        for strays in (self._strays.get(table.n, []) for table in tables):
            lines += strays if self._is_whole(strays) else []
        if sum(isinstance(line.what, Footer) for line in lines) < 2:
            return frozenset()
        differing = (self._varying.differing(block.origin, line.who) for line in lines)
        return frozenset[int].intersection(*differing)

    def _nearest(self, line: Held) -> tuple[Block, frozenset[int]] | None:
        """Return the table that a line continues but for the fewest words, and their places. What
        may be a counter differs first."""
        nearest: tuple[Block, frozenset[int]] | None = None
        least = math.inf
        part = line.what
        assert not isinstance(part, Block)
        counters = self._words.rising(line.who, 2)
        for block in self._open.newest():
            places = self._varying.differing(block.origin, line.who)
            others = len(places - counters)
            if places and others < least:
                strays = self._strays.get(block.n)
                if line.follows(strays[-1]) if strays else block.takes(part):
                    nearest, least = (block, places), others
        return nearest

    def _vary(self, who: Origin, places: frozenset[int]) -> None:
        """Learn that words at these places do not name a process: deal out anew what came for
        tables that are open."""
        self._varying.vary(who, places)
        self._lasting.discard(who.form)
        blocks = [b for b in self._open if {b.origin.form, Origin(*b.key).form} & {who.form}]
        lines: list[Held] = []
        lines += [line for line in self._lost if line.who.form == who.form]
        self._lost = [line for line in self._lost if line.who.form != who.form]
        for block in blocks:
            lines += [*block.lines, *self._strays.pop(block.n, ())]
            self._doubts.pop(block.key, None)
            self._open.remove(block)
            self._changed.pop(block.n, None)
            block.restart()
            block.confirmed = block.crowded = False
        key_of = self._varying.key_of
        self._closed = {key_of(key): closed for key, closed in self._closed.items()}
        self._ends = {key_of(key): ends for key, ends in self._ends.items()}
        self._heard = {key_of(key): None for key in self._heard}
        self._several = {key_of(key) for key in self._several}
        self._single = {}
        losses = sorted(self._losses.items(), key=lambda item: item[1])
        self._losses = {key_of(key): end for key, end in losses}
        stats, self._stats = self._stats, {}
        for key, pending in stats.items():
            self._stats.setdefault(key_of(key), []).extend(pending)
        for line in sorted(lines, key=lambda line: line.end):
            if isinstance(line.what, Block):
                line.what.key = key_of(line.what.key)
                self._enter(line.what)
            else:
                self._of_a_table(line)
        self._close_damaged(blocks)
        self._drop_shown(blocks)

    def _close_damaged(self, blocks: list[Block]) -> None:
        """Close the tables whose process lost a row or an end since: what follows may be another
        table's."""
        for block in list(blocks):
            if block in self._open and self._losses.get(block.key, 0) > block.lines[0].end:
                block.torn = True
                self._close(block)

    def _drop_shown(self, blocks: list[Block]) -> None:
        """Withdraw the tunings of tables that turned out to have no rows."""
        for block in blocks:
            if block.shown and not block.rows:
                self._records.append(Dropped(uid_of(self.source, block.n)))
                block.shown = False

    def _refute_strays(self, blocks: list[Block]) -> None:
        """The lines that wait for these tables are another process's."""
        for block in blocks if self._strays else ():
            self._report_lost(self._strays.pop(block.n, []))

    def _report_lost(self, lines: list[Held]) -> None:
        """Report the lines of a table whose beginning is missing."""
        for line in lines:
            key = self._varying.key(line.who)
            self._hear(key)
            self._lose(line, key)

    def _lose(self, line: Held, key: Key) -> None:
        """Report a row or an end of a process that has no table for it."""
        if isinstance(line.what, ChoiceRow):
            self._problems.orphan(key, line.place)
        elif isinstance(line.what, Footer):
            self._problems.end_of_orphans(key, line.place, line.what.num_choices)
        else:
            return
        if key in self._losses or len(self._losses) < _MOST_HEARD:
            self._losses[key] = line.end

    def _open_of_form(self, form: Form) -> bool:
        """Whether a table is open whose lines may vary in words alone from those of a form."""
        return any(block.origin.form == form for block in self._open.newest())

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
                self._in_stream(held, stream)
        self._drop_shown(doubt.newer)

    def _operands(self, part: Strides | Dtypes, line: Held, stream: Key) -> None:
        near = self._reachable(stream)
        takers = [b for b in near if b.takes_operands(part)]
        if len(takers) == 1:
            if isinstance(part, Strides):
                takers[0].strides = part.strides
            else:
                takers[0].dtypes = part.dtypes
            self._touch(takers[0], line)
        elif len(near) == 1 and near[0].lacks(part):
            what = (
                f"do not fit AUTOTUNE {near[0].header.text}: {', '.join(map(str, part[0]))[:100]}"
            )
            kind = "strides" if isinstance(part, Strides) else "dtypes"
            self._problems.add("torn", line.place, f"these {kind} {what}")
        elif len(near) == 1 and near[0].is_over_before_operands(part):
            if not near[0].rows:
                what = f"no rows of AUTOTUNE {near[0].header.text} before another table's operands"
                self._problems.add("torn", line.place, what)
            near[0].torn = True
            self._close(near[0])

    def _row(self, row: ChoiceRow, line: Held, stream: Key) -> None:
        near = self._reachable(stream)
        if len(near) == 1 and near[0].is_over_before(row):
            near[0].torn |= not near[0].elided  # its end is missing
            self._close(near[0])
            near = []
        if not near:
            self._lose(line, stream)
            return
        if len(near) == 1 and not near[0].crowded:
            takers = near
        else:
            takers = [b for b in near if b.takes_row(row)]
            # A process prints a table's dtypes before its rows.
            ready = [b for b in takers if b.dtypes is not None]
            takers = ready or takers
        if len(takers) != 1:
            why = "could belong to several tables" if takers else "belongs to no open table"
            what = f"the row of {row.label[:100]} ({row.ms:g} ms) {why}"
            self._problems.add("row", line.place, what)
            return
        if not takers[0].rows and row.percent is not None and row.percent < 100.0:
            if not takers[0].torn:
                what = f"the fastest row of AUTOTUNE {takers[0].header.text} is missing"
                self._problems.add("torn", line.place, what)
            takers[0].torn = True
        row = takers[0].without_wrapper(row)
        takers[0].rows.append(self._readable(row, takers[0], line.place))
        takers[0].last = line.place
        self._touch(takers[0], line)

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

    def _footer(self, footer: Footer, line: Held, stream: Key) -> None:
        near = self._reachable(stream)
        takers = [b for b in near if b.takes_footer(footer)]
        if len(takers) > 1:
            full = [b for b in takers if _is_full(b, footer)]
            takers = full if len(full) == 1 else takers
        if len(takers) > 1:
            what = "the end of a table could belong to several tables"
            self._problems.add("footer", line.place, what)
            self._ends[stream] = self._ends.get(stream, 0) + 1
            # After as many ends as open tables all have ended, whichever was whose.
            for block in takers if self._ends[stream] >= len(takers) else ():
                block.ended = True
                self._close(block)
            return
        if takers:
            takers[0].footer = footer
            self._touch(takers[0], line)
            self._close(takers[0])
            self._until = max(self._until, line.end + GRACE)
            return
        self._lose(line, stream)

    def _statistics(self, stats: Stats, key: Key, place: int) -> None:
        last = self._closed.get(key)
        if last is not None and last.fits_stats(stats):
            last.stats = stats
            self._changed[last.n] = last
            return
        self._first_stats = self._first_stats if self._unshown else place
        self._unshown += 1
        if len(self._latest_stats) < _MOST_HEARD:
            self._latest_stats[key] = place
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
        """Return the open tables that a line of the stream may belong to: the newest, until a line
        shows that an older one goes on."""
        doubt = self._doubts.get(stream)
        return [b for b in self._open.of(stream) if doubt is None or b is doubt.newest]

    def _touch(self, block: Block, line: Held) -> None:
        last, self._speaker = self._speaker, block
        if last is not None and last.key != block.key and last.touched > block.touched:
            self._prove((last, block))
        block.of_several = block.key in self._several
        self._open.touch(block, line.end)
        block.lines.append(line)
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
        self._refute_strays([block])
        self._open.remove(block)
        del block.lines[1:]  # the header stays: the lines of a doubt may be dealt out later
        if self._lost and not self._open_of_form(block.origin.form):
            over = [line for line in self._lost if line.who.form == block.origin.form]
            self._lost = [line for line in self._lost if line.who.form != block.origin.form]
            self._report_lost(over)
        key = block.key
        doubt = self._doubts.get(key)
        if doubt is not None and not any(other in self._open for other in doubt.rest):
            del self._doubts[key]
        self._closed[key] = block
        if block.footer:
            left = self._kernels.passed(block.origin, block.place)
            self._changed |= {kernel.n: kernel for kernel in left}
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
                what = f"no readable rows follow AUTOTUNE {block.header.text}"
                self._problems.add("empty", block.place, what)

    def _drop_half_configuration(self, block: Block) -> None:
        """Report a table that ends within its last row: settings are missing which each has."""
        if block.footer or len(block.rows) < 2:
            return
        *others, last = block.rows
        names = list(parse_config(last.description))
        whole = [list(parse_config(row.description)) for row in others]
        if names and any(names == each[: len(names)] and names != each for each in whole):
            what = f"the configuration of {last.label[:100]} ends at {last.description[-100:]}"
            self._problems.add("torn", block.last, what)
            block.rows[-1] = last._replace(description="")

    def _end_doubt(self, doubt: Overlap) -> None:
        """Its older tables are over."""
        for block in doubt.rest:
            if block in self._open:
                self._close(block)

    # Results

    def take(self) -> list[Record]:
        """Return what changed since the last call: tunings as they are now, then problems."""
        for block in self._changed.values():
            if isinstance(block, KernelTuning):
                self._records.append(self._seen(block, not self._finished))
            elif block.rows:
                self._records.append(self._seen(block, block in self._open))
                block.shown = True
        records, self._records, self._changed = self._records, [], {}
        return [*records, *self._problems.take()]

    def _seen(self, block: Block | KernelTuning, open_: bool = False) -> Seen:
        return Seen(uid_of(self.source, block.n), block.tuning(open_))

    def cut(self) -> list[Record]:
        """Return the tables that are still open as they would be if nothing more came, and what is
        certain of statistics whose tables did not come: the last of a process are waited for."""
        self._report_unshown(list(self._latest_stats.values()))
        tunings: list[Block | KernelTuning] = [block for block in self._open if block.rows]
        if (running := self.running) and is_silent(self.source):
            for kernel in running:
                kernel.dead = True
            tunings += running
        return [*map(self._seen, tunings), *self._problems.take()]

    @property
    def running(self) -> list[KernelTuning]:
        """The tunings of kernels that may go on, as far as the text shows."""
        return [kernel for kernel in self._kernels.unfinished() if not kernel.dead]

    def finish(self) -> None:
        """Close what is open: the log has ended."""
        for line, place in self._wraps.rest():
            self._whole_line(line, self._until, place)
        self._only_table()
        for block in list(self._open):
            if block in self._open:
                self._close(block)
        self._finished = True
        self._changed |= {kernel.n: kernel for kernel in self._kernels.unfinished()}
        self._kernels.finish()
        self._problems.report_orphans()
        self._report_unshown([])

    def _report_unshown(self, waiting: list[int]) -> None:
        """Report the statistics whose tables did not come, but for those at places `waiting`."""
        unshown = self._unshown - self._problems.headless - len(waiting)
        if unshown > 0:
            what = counted(
                unshown,
                "statistic reports a tuning whose table was",
                "statistics report tunings whose tables were",
            )
            hidden = "not shown (TORCHINDUCTOR_AUTOTUNE_NUM_CHOICES_DISPLAYED=0 leaves them out)"
            self._problems.add("unshown", self._first_stats, f"{what} {hidden}")
            self._unshown -= unshown
            self._first_stats = min(waiting, default=0)


def _is_full(block: Block, footer: Footer) -> bool:
    """Return whether a footer would be due after the rows that `block` has."""
    rows, choices = len(block.rows), footer.num_choices
    return rows >= SHOWN if choices is None else rows == min(SHOWN, choices)
