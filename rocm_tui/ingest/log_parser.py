"""Lines of an autotuning log -> tunings and problems, whoever brings the lines.

A log may hold several processes' output. Where a prefix names the process, each has tables of its
own. Where none does, a line goes to the one open table that it can belong to by its numbers; a
line that could belong to two, or to none, is a problem and not a guess.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from backend.records import Problem
from rocm_tui.ingest.block import Block
from rocm_tui.ingest.clean import clean_bytes
from rocm_tui.ingest.log_lines import (
    Dtypes,
    Ellipsis,
    Footer,
    Header,
    Origin,
    Part,
    Row,
    Stats,
    Strides,
    origin,
    parts,
)
from rocm_tui.ingest.markers import find_all
from rocm_tui.ingest.plain_table import plain_table
from rocm_tui.ingest.records import Record, Seen, uid_of

START = 64 << 10
"""Bytes at a file's start that are read line by line: it may begin inside a table."""
GRACE = 256
"""Bytes after a table in which its statistics may begin."""
PATIENCE = 256 << 10
"""Bytes after its last line that a table without a footer stays open."""
LOOK_BACK = 16 << 10
"""Bytes before a header in which its statistics, and choices that failed, may stand."""
MAX_PROBLEMS = 50
"""Problems of one kind that are reported one by one; the rest is counted at the end."""
_LONG = 64 << 10
AUTOTUNE = b"AUTOTUNE "
"""A line with it matters wherever it stands."""
RARE = 1
"""The place of `U` in it, a letter that few logs are full of."""
_BEFORE = (b'{"num_choices"', b"out of resource")


class LogParser:
    """Folds lines into tunings. `take` gives what changed since it was last called.

    `place` of a line is what its problems shall carry as their line.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self._sources = (source,)
        self._open: list[Block] = []
        self._closed: dict[str, Block] = {}
        self._stats: dict[str, list[Stats]] = {}
        self._changed: dict[int, Block] = {}
        self._seen: list[Seen] = []
        self._problems: list[Problem] = []
        self._counts: dict[str, int] = {}
        self._orphans: dict[str, list[tuple[int, Row]]] = {}
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
            before.rfind(b"\n", 0, at) + 1
            for part in _BEFORE
            for at in find_all(before, part, size)
        }
        for start in sorted(starts):
            end = before.find(b"\n", start)
            self.line(before[start:end], 0, place_of(start))

    def line(self, data: bytes, offset: int, place: int) -> None:
        """Take one line, without its end; `offset` is where it begins."""
        if not _may_matter(data):
            return
        segments = _window(data).split(b"\r")
        for at_segment, segment in enumerate(segments):
            text = clean_bytes(segment)
            for at, part in parts(text):
                who = origin(text[:at])
                if at_segment and not who.key:  # the prefix stands before the progress bar
                    who = origin(clean_bytes(segments[0][:512]))
                self._take(part, who, offset + len(data), place)

    def table(self, data: bytes, at: int, offset: int, place: int) -> int:
        """Take the whole table that begins at `data[at]`, which is `offset` in the file.

        Returns where it ends in `data`; 0 if it is not one for this way, and nothing was taken.
        """
        if self._open:
            return 0
        plain = plain_table(data, at)
        if plain is None:
            return 0
        who = origin(plain.prefix)
        end = offset + plain.end - 1 - at
        self._report_orphans(who.key)
        block = self._begin(plain.header, who, end, place)
        for operands in plain.operands:
            if block.takes_operands(operands):
                block.put_operands(operands)
        block.rows, block.footer = plain.rows, plain.footer
        self._close(block)
        self._until = max(self._until, end + GRACE)
        self._make_tunings()
        return plain.end

    # What a line does

    def _take(self, part: Part, who: Origin, end: int, place: int) -> None:
        if isinstance(part, Row):
            self._row(part, who, end, place)
        elif isinstance(part, Header):
            self._header(part, who, end, place)
        elif isinstance(part, (Strides, Dtypes)):
            self._operands(part, who, end)
        elif isinstance(part, Footer):
            self._footer(part, who, end, place)
        elif isinstance(part, Stats):
            self._statistics(part, who)
        elif isinstance(part, Ellipsis):
            self._ellipsis(who)
        else:
            self._problem("out of resource", place, part.what)

    def _header(self, header: Header, who: Origin, end: int, place: int) -> None:
        self._report_orphans(who.key)
        for other in [b for b in self._open if b.origin.key == who.key]:
            if other.complete:
                self._close(other)
        rivals = [b for b in self._open if b.origin.key == who.key]
        block = self._begin(header, who, end, place)
        for other in rivals:
            other.crowded = block.crowded = True

    def _begin(self, header: Header, who: Origin, end: int, place: int) -> Block:
        self._n += 1
        block = Block(self._n, self._sources, header, who, place, end)
        self._open.append(block)
        return block

    def _operands(self, part: Strides | Dtypes, who: Origin, end: int) -> None:
        takers = [b for b in self._reachable(who) if b.takes_operands(part)]
        if len(takers) == 1:
            takers[0].put_operands(part)
            self._touch(takers[0], end)

    def _row(self, row: Row, who: Origin, end: int, place: int) -> None:
        near = self._reachable(who)
        if not near:
            self._orphans.setdefault(who.key, []).append((place, row))
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
            self._problem("row", place, f"the row of {row.name} ({row.ms:g} ms) {why}")
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
            self._problem("footer", place, "the end of a table could belong to several tables")
            self._ambiguous_end(who.key, takers)
            return
        if takers:
            takers[0].footer = footer
            self._touch(takers[0], end)
            self._close(takers[0])
            self._until = max(self._until, end + GRACE)
            return
        rows = len(self._orphans.pop(who.key, ()))
        self._problem("headless", place, _headless(rows, footer.num_choices))

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
            near[0].ended = True
            self._close(near[0])

    # Which table a line can belong to

    def _reachable(self, who: Origin) -> list[Block]:
        """The open tables of the same stream; failing that, the only one there is.

        Some loggers put their prefix on some lines alone.
        """
        same = [b for b in self._open if b.origin.key == who.key]
        if same:
            return same
        if len(self._open) == 1 and (not who.key or not self._open[0].origin.key):
            return list(self._open)
        return []

    def _touch(self, block: Block, end: int) -> None:
        block.touched = end
        self._changed[block.n] = block

    def _close(self, block: Block) -> None:
        self._open.remove(block)
        self._closed[block.origin.key] = block
        pending = self._stats.get(block.origin.key, [])
        fitting = [stats for stats in pending if block.fits_stats(stats)]
        if len(set(fitting)) == 1:
            block.stats = fitting[0]
            pending.remove(fitting[0])
        if not any(b.origin.key == block.origin.key for b in self._open):
            pending.clear()
            self._ends.pop(block.origin.key, None)
        if block.rows:
            self._changed[block.n] = block
        else:
            self._changed.pop(block.n, None)
            self._problem("empty", block.place, f"no rows follow AUTOTUNE {block.header.text}")

    def _expire(self, offset: int) -> None:
        for block in [b for b in self._open if offset - b.touched > PATIENCE]:
            self._close(block)

    # Problems

    def _report_orphans(self, key: str) -> None:
        lost = self._orphans.pop(key, None)
        if lost:
            self._problem("headless", lost[0][0], _headless(len(lost), None))

    def _problem(self, kind: str, place: int, what: str) -> None:
        self._counts[kind] = self._counts.get(kind, 0) + 1
        if self._counts[kind] <= MAX_PROBLEMS:
            short = what if len(what) <= 300 else what[:299] + "…"
            self._problems.append(Problem(self.source, short, place))
        elif self._counts[kind] == MAX_PROBLEMS + 1:
            more = f"more problems of this kind follow and are not listed: {kind}"
            self._problems.append(Problem(self.source, more, place))

    # Results

    def take(self) -> list[Record]:
        """What changed since the last call: tunings as they are now, then problems."""
        self._make_tunings()
        found: list[Record] = [*self._seen, *self._problems]
        self._seen = []
        self._problems = []
        return found

    def _make_tunings(self) -> None:
        """Make tunings of the tables that changed: what a tuning is made from takes more memory."""
        self._seen += [
            Seen(uid_of(self.source, block.n), block.tuning(open_=block in self._open))
            for block in self._changed.values()
            if block.rows
        ]
        self._changed = {}

    @property
    def places(self) -> list[int]:
        """The places that problems still to come may carry."""
        lost = [place for rows in self._orphans.values() for place, _ in rows]
        return [block.place for block in self._open] + lost

    def replace_places(self, numbers: Mapping[int, int]) -> None:
        """Call the places so far by other numbers."""
        for block in self._open:
            block.place = numbers[block.place]
        self._orphans = {
            key: [(numbers[place], row) for place, row in rows]
            for key, rows in self._orphans.items()
        }

    def cut(self) -> list[Record]:
        """The tables that are still open, as they would be if nothing more came."""
        return [
            Seen(uid_of(self.source, block.n), block.tuning(open_=False))
            for block in self._open
            if block.rows
        ]

    def finish(self) -> None:
        """The log has ended: what is open stays as it is."""
        for block in list(self._open):
            self._close(block)
        for key in list(self._orphans):
            self._report_orphans(key)


def _may_matter(line: bytes) -> bool:
    """Whether `parts` could find anything; written out because it is asked of every line."""
    return (
        b" ms " in line
        or AUTOTUNE in line
        or b'{"num_choices"' in line
        or b"strides: " in line
        or b"dtypes: " in line
        or b"..." in line
        or b"out of resource" in line
    )


def _is_full(block: Block, footer: Footer) -> bool:
    """Whether a footer would be due after the rows that `block` has."""
    if footer.num_choices is None:
        return len(block.rows) >= 10
    return len(block.rows) == min(10, footer.num_choices)


def _headless(rows: int, choices: int | None) -> str:
    told = f" of {choices} choices" if choices is not None else ""
    if not rows:
        return f"the end of a table{told} whose beginning is missing"
    plural = "row" if rows == 1 else "rows"
    return f"{rows} {plural} of a table{told} whose beginning is missing"


def _window(line: bytes) -> bytes:
    """What matters of a line; all of it unless it is very long."""
    if len(line) <= _LONG:
        return line
    at = line.find(AUTOTUNE)
    if at < 0:
        return line[:_LONG]
    return line[max(0, at - 4096) : at + _LONG - 4096]
