"""Lines of an autotuning log -> tunings and problems, whoever brings the lines.

A log may hold several processes' output. Where a prefix names the process, each has tables of its
own. Where none does, a header ends the table before it, unless what follows shows that two
processes write at once (see `Doubt`): then a line goes to the one open table that it can belong to
by its numbers, and a line that could belong to two, or to none, is a problem and not a guess.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from rocm_tui.harmless import clean_bytes
from rocm_tui.ingest.formats.autotune.grammar import (
    Dots,
    Dtypes,
    Footer,
    Header,
    Origin,
    OutOfResource,
    Row,
    Stats,
    Strides,
)
from rocm_tui.ingest.formats.autotune.lines import (
    BEFORE,
    Part,
    may_matter,
    origin,
    parts,
    segments,
)
from rocm_tui.ingest.formats.autotune.tables import (
    SHOWN,
    Block,
    Doubt,
    LogProblems,
    OpenTables,
    TablePart,
    row_problem,
)
from rocm_tui.ingest.formats.triton_lines import REACH, Kernel, KernelLog
from rocm_tui.ingest.records import Dropped, Record, Seen, uid_of

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
        self._doubts: dict[str, Doubt] = {}
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
        if isinstance(part, (Row, Strides, Dtypes, Footer)):
            self._of_a_table(part, who, end, place)
        elif isinstance(part, Header):
            self._header(part, who, end, place)
        elif isinstance(part, Stats):
            self._statistics(part, who)
        elif isinstance(part, Dots):
            self._ellipsis(who)
        elif isinstance(part, Kernel):
            self._kernel(part, who, end)
        elif isinstance(part, OutOfResource):
            self._problems.add("out of resource", place, part.what)

    def _kernel(self, kernel: Kernel, who: Origin, end: int) -> None:
        if kernel.name is not None:
            self._until = max(self._until, end + REACH)
        tuning = self._kernels.take(kernel, who)
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
            self._doubts.setdefault(who.key, Doubt(rivals)).begin(block)

    def _of_a_table(self, part: TablePart, who: Origin, end: int, place: int) -> None:
        stream = self._open.stream(who)
        doubt = self._doubts.get(stream)
        if doubt is not None:
            doubt.hold(part, who, end, place)
            if doubt.refuted_by(part):
                self._deal_out(stream, doubt)
                return
        if isinstance(part, Row):
            self._row(part, who, end, place)
        elif isinstance(part, Footer):
            self._footer(part, who, end, place)
        else:
            self._operands(part, who, end)

    def _deal_out(self, stream: str, doubt: Doubt) -> None:
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

    def _row(self, row: Row, who: Origin, end: int, place: int) -> None:
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

    def _end_doubt(self, doubt: Doubt) -> None:
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
