"""Other tuners' tables: each entry is a row of its own, which is no tuning of Inductor's.

A program that tunes appends rows, so a table of lines is read as it grows. Its last line may be
half written: it counts once nothing has come for a while, and what comes then replaces it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import ClassVar
from weakref import WeakSet

from backend.model.choice import Choice
from backend.model.problem import Problem
from backend.model.session import Fault
from backend.model.tuning import TableEntry, Tuning
from backend.tables.model import (
    BOM,
    HIPBLASLT,
    MAX_LINE,
    MIOPEN,
    TOO_LONG,
    Entry,
    NotAProblem,
    NotARow,
    Table,
    Tuner,
)
from backend.tables.registry import tuner_named
from rocm_tui.harmless import clean
from rocm_tui.ingest.formats.reader import (
    DOCUMENTS,
    LOGS,
    TABLES,
    Complaints,
    DocumentRecords,
    Format,
    NotReadable,
    StreamReader,
    WholeLines,
)
from rocm_tui.ingest.records import Record, Seen

MOST_ROWS = 20_000
"""The most entries that are rows, of all files that are followed at once. The screen of entries
reads the files themselves."""
MORE = (
    f"not all of its entries are rows: at most {MOST_ROWS:,} of all tables are; name fewer, or "
    "find all with E on the screen"
)
_LOOK = 256
"""Rows after which a reader looks at how many the others have."""
MOST_PROBLEMS = 20
"""Lines that are no rows, of each kind, that are listed of one file."""


class RowQuota:
    """The number of a source's entries that are rows. It counts among those of all tables as long
    as it lives, but for one of the same source, which takes its place."""

    _all: ClassVar[WeakSet[RowQuota]] = WeakSet()

    def __init__(self, source: str) -> None:
        self._source, self.count = source, 0
        self._all.add(self)

    @property
    def room(self) -> int:
        """Return how many more there may be."""
        others = sum(quota.count for quota in self._all if quota._source != self._source)
        return max(0, MOST_ROWS - others - self.count)


class TableReader:
    """The rows of a table of lines, as they come."""

    def __init__(self, tuner: Tuner, source: str) -> None:
        assert tuner.lines is not None
        self._tuner, self._source = tuner, source
        self._lines = tuner.lines(source, b"")
        self._complaints = Complaints(source, MOST_PROBLEMS)
        self._whole = WholeLines(MAX_LINE)
        self._number = 1
        self._open = self._begun = False
        self._unsaid: list[Record] = []
        self.share, self._full = RowQuota(source), False
        self._last: tuple[bytes, Entry] | None = None

    def feed(self, data: bytes) -> list[Record]:
        """The rows that end in `data`."""
        if self._full:
            return []
        if not self._begun:
            assert self._tuner.lines is not None
            self._lines, self._begun = self._tuner.lines(self._source, data), True
        self._open, self._unsaid = True, []
        records, dropped = list[Record](), self._whole.dropped
        for line in self._whole.feed(data):
            records += self._read(line)
            self._number += 1
            if self._full:  # no more of its rows are shown
                self._whole = WholeLines(MAX_LINE)
                return records
        if self._whole.dropped > dropped:
            records += self._complaints.about(TOO_LONG, self._number, TOO_LONG)
        return records

    def settle(self) -> list[Record]:
        """The row of a last line without an end; one that is none may still be written."""
        self._open = False
        records = self._read(self._whole.open) if self._whole.open.strip() else []
        self._unsaid = [record for record in records if isinstance(record, Fault)]
        return [record for record in records if record not in self._unsaid]

    def close(self) -> list[Record]:
        """The same, and what is wrong with a line that nobody ended."""
        return [*(self.settle() if self._open else ()), *self._unsaid]

    @property
    def waits(self) -> bool:
        return self._open and bool(self._whole.open.strip())

    def _read(self, line: bytes) -> list[Record]:
        if self._full:
            return []
        try:
            if len(line) > MAX_LINE:
                raise NotARow(TOO_LONG)
            line = line.removeprefix(BOM if self._number == 1 else b"").rstrip(b"\r")
            if not self._lines.take(line, self._number):
                return self._seen_below()
        except NotARow as error:
            return list(self._complaints.about(str(error), self._number, str(error)))
        if self.share.count >= MOST_ROWS or not self.share.count % _LOOK:
            self._full = not self.share.room
            if self._full:
                return list(self._complaints.about(MORE))
        self.share.count += 1
        return self._seen(line, self._number)

    def _seen(self, line: bytes, number: int) -> list[Record]:
        entry = self._lines.entry(line, number, 0)
        if self._tuner.below:
            self._last = line, entry
        return [seen(self._tuner.name, entry, self._tuner.problem, self._source)]

    def _seen_below(self) -> list[Record]:
        """Return the last row anew, if a line below it added to it."""
        if self._last is None:
            return []
        line, before = self._last
        same = self._lines.entry(line, before.line, 0) == before
        return [] if same else self._seen(line, before.line)


def records_of(
    table: Table, problem: Callable[[Entry], Problem], backwards: bool
) -> DocumentRecords:
    """Return the rows and problems of a whole table while there is room; `backwards`, because the
    last to be read is listed first."""
    complaints, share = Complaints(table.path, MOST_PROBLEMS), RowQuota(table.path)
    share.count = min(len(table.entries), share.room)
    records: list[Record] = [
        seen(table.tuner, entry, problem, table.path) for entry in table.entries[: share.count]
    ]
    if share.count < len(table.entries):
        records += complaints.about(MORE)
    for fault in table.problems:
        records += complaints.about(fault.what, fault.line, fault.what)
    return DocumentRecords(records[::-1] if backwards else records, share)


def seen(tuner: str, entry: Entry, problem: Callable[[Entry], Problem], source: str) -> Seen:
    """The entry as a row. Two entries of one document may begin on one line."""
    uid = f"{source}#{entry.line}" + (f".{entry.start}" if entry.start else "")
    return Seen(uid, tuning_of(tuner, entry, problem, source))


def tuning_of(tuner: str, entry: Entry, problem: Callable[[Entry], Problem], source: str) -> Tuning:
    """The entry as a tuning of its own kind: of the product in torch's words where it is one, else
    of what the tuner calls it."""
    unread = ""
    try:
        product = problem(entry)
    except NotAProblem as error:
        product, unread = Problem(clean(entry.op)), clean(str(error))
    choices = choices_of(entry)
    alone = len(entry.key) == 1
    key = ",".join(value if alone else f"{name}={value}" for name, value in entry.key)
    return Tuning(
        product.op,
        product.shapes,
        product.strides,
        product.dtypes,
        None,
        product.precision,
        clean(f"{entry.op},{key}"),
        options=product.options,
        choices=choices,
        num_choices=len(choices),
        sources=(source,),
        entry=TableEntry(tuner, entry.line, clean(str(entry.device)), unread),
    )


def choices_of(entry: Entry) -> tuple[Choice, ...]:
    """Return what was taken, and what was timed beside it. Several without a time, as in a perf-db,
    differ in their parameters; which of them is taken is unknown."""
    if not entry.solution:
        return ()
    first = choice_of(entry)
    if entry.ms is None and entry.extra[:1] and entry.extra[0][0] == entry.solution:
        return tuple(
            Choice(clean(name), None, None, clean(f"{name}:{value}")) for name, value in entry.extra
        )
    return (first, *(Choice(clean(name), None, ms) for name, ms in entry.others))


def choice_of(entry: Entry) -> Choice:
    """What was taken. A config goes by its blocks, as `16×128×64, 4 warps, 2 stages`."""
    config = dict(entry.extra)
    sizes = next((names for names in _BLOCKS if names <= config.keys()), None)
    if sizes is None or not entry.solution.startswith(f"{entry.extra[0][0]}="):
        return Choice(clean(entry.solution), None, entry.ms)
    parts = ["×".join(value for name, value in entry.extra if name in sizes)]
    parts += [f"{config[name]} {noun}" for name, noun in _LAUNCH if name in config]
    return Choice(clean(", ".join(parts)), None, entry.ms, clean(entry.solution))


_BLOCKS = tuple(
    frozenset(names.split())
    for names in ("BLOCK_SIZE_M BLOCK_SIZE_N BLOCK_SIZE_K", "tile_m tile_n tile_k")
)
_LAUNCH = (("num_warps", "warps"), ("num_stages", "stages"))


def _reader(tuner: str, source: str) -> StreamReader:
    """Return the reader of a table of lines."""
    return TableReader(tuner_named(tuner), source)


def _document(tuner: str, backwards: bool, data: bytes, source: str) -> list[Record]:
    """Read a table that is one document, or packed in a file that is no text. Raises
    NotReadable."""
    try:
        table = tuner_named(tuner).table(data, source)
    except ValueError as error:
        raise NotReadable(clean(str(error))) from error
    return records_of(table, tuner_named(tuner).problem, backwards)


_LADDER = rb'\s*"(?:M_[LG]EQ_\d+|any|small_M)"\s*:\s*\{'
FORMATS = (
    Format(
        "tunableop",
        begins=re.compile(rb"Validator,|[A-Za-z0-9]{1,40}TunableOp_[^,\n]{1,200},"),
        suffixes=TABLES,
        stream=partial(_reader, "tunableop"),
    ),
    Format(
        "hipblaslt",
        begins=HIPBLASLT,
        suffixes=TABLES | LOGS | {".config"},
        stream=partial(_reader, "hipblaslt"),
    ),
    Format("miopen", begins=MIOPEN, suffixes=LOGS, stream=partial(_reader, "miopen")),
    Format(
        "aiter",
        begins=re.compile(
            rb"(?:\w{1,40},){0,20}(?:M,N,K|m,n,k|token,model_dim,inter_dim,expert"
            rb"|(?:V,BT,H,Hg|H,Hg,V),is_varlen)(?:,|\s|\Z)"
        ),
        suffixes=TABLES,
        stream=partial(_reader, "aiter"),
    ),
    Format(
        "moe",
        begins=re.compile(
            rb'\{\s*(?:"triton_version"[^,]{1,60},\s*)?"\d+"\s*:\s*\{\s*"BLOCK_SIZE_M"'
        ),
        place=re.compile(r"(?:\A|/)(?:E=\d+,N=\d+|N=\d+,K=\d+),device_name=[^/]+\.json\Z"),
        suffixes=DOCUMENTS,
        document=partial(_document, "moe", True),
    ),
    Format(
        "aiter triton",
        begins=re.compile(rb"\{" + _LADDER),
        place=re.compile(r"(?:\A|/)gfx[0-9a-f]{2,6}(?:-|/(?:triton|gluon)/)[^\n]+\.json\Z"),
        suffixes=DOCUMENTS,
        document=partial(_document, "aiter triton", True),
    ),
)
_SQLITE = rb"(?s)SQLite format 3\0.{0,16000}?"
PACKED = (
    Format(
        "miopen db",
        begins=re.compile(_SQLITE + b"perf_db"),
        suffixes=frozenset({".db", ".udb"}),
        document=partial(_document, "miopen", False),
    ),
)
"""Formats of tables that are no text."""
KERNELS = Format(
    "miopen kernels",
    begins=re.compile(_SQLITE + b"kern_db"),
    refused="kernels that MIOpen compiled; its find-db says which is fast",
)
"""A file beside them that is reported only where it is named."""
NAMES = frozenset(format.name for format in (*FORMATS, *PACKED))
