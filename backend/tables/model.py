"""What a tuned table is, whoever wrote it: a table has entries, an entry is one row of it.

A table may have a million rows. It keeps its bytes once and where each row begins; an `Entry` is
read when it is asked for, and nothing is kept of it.

An entry can be pinned like a tuning of Inductor's, so that all pins have one list, one history and
one undo. Its key there is an op and inputs:

    op `table:tunableop:GemmTunableOp_Half_TN`, inputs `params=tn_32000_64_8192 @ gfx942`
"""

from __future__ import annotations

import os
import re
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from math import isfinite
from pathlib import Path
from typing import Protocol, overload

from backend.model.problem import Problem, TuningKey
from backend.model.session import Fault

Fields = tuple[tuple[str, str], ...]
"""Names and values in the words of the file and in its order."""
MAX_LINE = 16 << 10
"""Bytes. What is longer is no line of a table of lines."""
BOM = b"\xef\xbb\xbf"
TOO_LONG = "a line that is too long"


class NotARow(Exception):
    """A line that is no row of its table. The text is the reason, the same for all such lines."""


@dataclass(frozen=True, slots=True)
class Device:
    """What an entry was tuned on, as far as the file or its name tells: `arch` without features
    (`gfx942`), `units` compute units, `name` in the file's own words (`AMD_Instinct_MI300X`,
    `gfx942:sramecc+:xnack-`). Empty and None are what is not told."""

    arch: str = ""
    units: int | None = None
    name: str = ""

    def __str__(self) -> str:
        """`gfx942:304`, as an option is written; empty for none."""
        told = self.arch or self.name
        return told if self.units is None else f"{told}:{self.units}"


@dataclass(frozen=True, slots=True)
class Entry:
    """One row; of a JSON document one step of a ladder.

    It lies from byte `start` to `end` of its table, line ends left out, on `line` (from 1). `key`
    is what the tuner looks up by beside `op`, `extra` all that is told besides. `solution` is what
    was taken, empty in an untuned list; `ms` how long it took there, where that is told. `others`
    are the solutions that were timed beside it, with their times.
    """

    line: int
    start: int
    end: int
    op: str
    key: Fields
    solution: str = ""
    ms: float | None = None
    device: Device = Device()
    extra: Fields = ()
    others: tuple[tuple[str, float | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """A file. `facts` is what it says of all its entries (validators, versions), `columns` the
    names of its header, `problems` the lines that could not be read, and why."""

    tuner: str
    path: str
    data: bytes
    facts: Fields
    columns: tuple[str, ...]
    entries: Sequence[Entry]
    problems: tuple[Fault, ...] = ()

    def text(self, entry: Entry) -> bytes:
        """The entry as it is written."""
        return self.data[entry.start : entry.end]

    def at_line(self, line: int) -> Entry | None:
        """The first entry that begins on a line; None for none."""
        if isinstance(self.entries, _Rows):
            return self.entries.at_line(line)
        return next((entry for entry in self.entries if entry.line == line), None)

    @property
    def starts(self) -> Sequence[int]:
        """Where each entry begins, ascending."""
        if isinstance(self.entries, _Rows):
            return self.entries.starts
        return [entry.start for entry in self.entries]

    @property
    def numbers(self) -> Sequence[int]:
        """The line of each entry."""
        if isinstance(self.entries, _Rows):
            return self.entries.numbers
        return [entry.line for entry in self.entries]

    def rewritten(self, texts: Mapping[Entry, bytes]) -> bytes:
        """The file with other texts in the places of these entries, and nothing else touched."""
        parts: list[bytes] = []
        at = 0
        for entry in sorted(texts, key=lambda entry: entry.start):
            parts += self.data[at : entry.start], texts[entry]
            at = entry.end
        return b"".join((*parts, self.data[at:]))


class Lines(Protocol):
    """Reads a table line by line. What a line means may hang on those before it."""

    @property
    def facts(self) -> Fields: ...

    @property
    def columns(self) -> tuple[str, ...]: ...

    def take(self, line: bytes, number: int) -> bool:
        """Whether the line of this number, without its end, is a row; what is not is remembered if
        it says something of the rows behind it. Cheap: for each line once, in their order (a last
        one that was not ended again). Raises NotARow."""
        ...

    def entry(self, line: bytes, number: int, start: int) -> Entry:
        """A line that was taken as a row."""
        ...


@dataclass(frozen=True, slots=True)
class Editing:
    """How an entry is given another solution. `values` are those of its solution, by their names;
    `edit` gives the text of an entry of a table with these columns others of them, and raises
    `NotEditable`. A word without a name is the value `bare`. Of several entries with one key the
    tuner takes the `first`, or they are a fault.
    """

    values: Callable[[Entry], Mapping[str, str]]
    edit: Callable[[Sequence[str], bytes, Mapping[str, str]], bytes]
    bare: str = ""
    first: bool = False


@dataclass(frozen=True, slots=True)
class Tuner:
    """How the files of one tuner are known and read; either of `lines` or as one `document`.

    `knows` is asked with a file's first bytes, behind a BOM, and its name. `lines` makes the reader
    for a file of that path, `document` reads a whole one; it raises ValueError for what is none.
    `problem` is what an entry is to torch, and raises `NotAProblem`. Without `editing` no entry is
    changed. Of some, lines `below` a row tell more of it. `text` gives the lines of a file that is
    packed, and raises ValueError; the table is of these then.
    """

    name: str
    knows: Callable[[bytes, str], bool]
    problem: Callable[[Entry], Problem]
    lines: Callable[[str], Lines] | None = None
    document: Callable[[bytes, str], Table] | None = None
    editing: Editing | None = None
    below: bool = False
    text: Callable[[bytes], bytes] | None = None


class _Rows(Sequence[Entry]):
    """The entries of a table of lines, each made when it is asked for."""

    __slots__ = ("_data", "_lines", "numbers", "starts")

    def __init__(self, data: bytes, lines: Lines) -> None:
        self._data = data
        self._lines = lines
        self.starts = array("Q")
        self.numbers = array("I")

    def add(self, number: int, start: int) -> None:
        self.numbers.append(number)
        self.starts.append(start)

    def at_line(self, line: int) -> Entry | None:
        at = bisect_left(self.numbers, line)
        return self[at] if at < len(self) and self.numbers[at] == line else None

    def __len__(self) -> int:
        return len(self.starts)

    @overload
    def __getitem__(self, at: int) -> Entry: ...
    @overload
    def __getitem__(self, at: slice) -> list[Entry]: ...
    def __getitem__(self, at: int | slice) -> Entry | list[Entry]:
        if isinstance(at, slice):
            return [self[one] for one in range(*at.indices(len(self)))]
        return self._read(self.starts[at], self.numbers[at])

    def __iter__(self) -> Iterator[Entry]:
        return map(self._read, self.starts, self.numbers)

    def _read(self, start: int, number: int) -> Entry:
        end = self._data.find(b"\n", start)
        line = self._data[start : end if end >= 0 else len(self._data)]
        return self._lines.entry(line.rstrip(b"\r"), number, start)


def finite(text: str) -> float | None:
    """The number; None where it is none, or infinite."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if isfinite(number) else None


def table_of(tuner: str, lines: Lines, data: bytes, path: str) -> Table:
    """All of a file that is read line by line."""
    rows = _Rows(data, lines)
    problems: list[Fault] = []
    start = 0
    for number, line in enumerate(BytesIO(data), 1):
        skipped = len(BOM) if number == 1 and line.startswith(BOM) else 0
        try:
            if len(line) > MAX_LINE:
                raise NotARow(TOO_LONG)
            if lines.take(line[skipped:].rstrip(b"\r\n"), number):
                rows.add(number, start + skipped)
        except NotARow as error:
            problems.append(Fault(path, str(error), number))
        start += len(line)
    return Table(tuner, path, data, lines.facts, lines.columns, rows, tuple(problems))


HIPBLASLT = re.compile(
    rb"Git Version:[^\n]{0,200}\n|hipBLASLt version: \d|(?:\[\d{1,6}\]:?)?\s*transA,transB,"
)
MIOPEN = re.compile(
    rb"\d{1,9}(?:-\d{1,9}){2,3}-\d{1,9}(?:x\d{1,9}){1,2}-[\dx-]{5,120}-N[A-Zc]{2,5}[^=\n]{4,80}="
    rb"|[23]x(?:-?\d{1,9}x){20}N[A-Zc]{2,5}\d?x[A-Z0-9x]{2,40}x[FBW]="
)
SQLITE = b"SQLite format 3\0"


_PREFIX = "table:"
_FILE = "table-"


def is_table_op(op: str) -> bool:
    """Whether an op is that of an entry; no op of PyTorch has a colon."""
    return op.startswith(_PREFIX)


def op_label(op: str) -> str:
    """What a person calls the op of a pin."""
    return op.split(":", 2)[2] if is_table_op(op) else op


def entry_key(tuner: str, entry: Entry) -> TuningKey:
    """The same for all entries that the tuner takes for one, in any file."""
    inputs = ", ".join(f"{name}={value}" for name, value in entry.key)
    device = str(entry.device)
    return TuningKey(
        f"{_PREFIX}{tuner}:{entry.op}", f"{inputs} @ {device}" if device else inputs, ""
    )


def table_system(path: Path) -> str:
    """What pins call the file: a digest of where it lies."""
    import hashlib  # loads OpenSSL, for which the first screen does not wait

    return _FILE + hashlib.sha256(os.fsencode(path)).hexdigest()[:16]


def is_table_system(system: str) -> bool:
    """Whether that is a table, and no cache file."""
    return system.startswith(_FILE)
