"""A tuned table of any tuner: a table has entries, and an entry is one row.

A table may have a million rows. It keeps its bytes once and where each row begins; an `Entry` is
parsed on each access and not kept.

An entry can be pinned like a tuning of Inductor's, so that all pins have one list, one history and
one undo. Its key there is an op and inputs:

    op `table:tunableop:GemmTunableOp_Half_TN`, inputs `params=tn_32000_64_8192 @ gfx942`

Then its row gets another solution, and every other byte of the file stays. A time belongs to the
solution for which it was measured. Where none is given for the new one, `nan` is written, which the
tuners' own readers take for a number.

What a row means to a BLAS library is a `Gemm`, column by column; `problem_of_gemm` gives the
problem of torch, row by row, that led to it.
"""

from __future__ import annotations

import os
import re
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path, PurePath
from typing import overload

from backend.errors import brief
from backend.model.problem import Problem, Shape, TuningKey
from backend.model.session import Fault

Fields = tuple[tuple[str, str], ...]
"""Names and values in the words of the file and in its order."""
MAX_LINE = 16 << 10
"""Bytes. What is longer is no line of a table of lines."""
BOM = b"\xef\xbb\xbf"
TOO_LONG = "a line that is too long"
TORN = "a torn row, whose solution or end is missing"
SHORTEST_MS, LONGEST_MS = 1e-6, 1e7
"""A nanosecond, and nearly three hours: no kernel takes less or more."""


class NotARow(Exception):
    """A line that is no row of its table. The text is the reason, the same for all such lines."""


@dataclass(frozen=True, slots=True)
class TableDevice:
    """The device that an entry was tuned on, from the file or its name; empty or None if unknown.

    `arch` has no features (`gfx942`), `units` counts compute units, `name` is in the file's own
    words (`AMD_Instinct_MI300X`, `gfx942:sramecc+:xnack-`).
    """

    arch: str = ""
    units: int | None = None
    name: str = ""

    def __str__(self) -> str:
        """`gfx942:304`, as an option is written; empty for none."""
        device = self.arch or self.name
        return device if self.units is None else f"{device}:{self.units}"


@dataclass(frozen=True, slots=True)
class Entry:
    """One row; of a JSON document one step of a ladder.

    It occupies bytes `start` to `end` of its table, without line ends, on `line` (from 1). `key` is
    the tuner's lookup key beside `op`, `extra` all other columns. `solution` is the selected one,
    empty in an untuned list, `ms` its time if recorded. `others` are the other timed solutions,
    with their times.
    """

    line: int
    start: int
    end: int
    op: str
    key: Fields
    solution: str = ""
    ms: float | None = None
    device: TableDevice = TableDevice()
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


class Lines:
    """Reads the table of a file line by line; `head` is its beginning or whole text. The
    meaning of a line may depend on earlier lines."""

    def __init__(self, path: str = "", head: bytes = b"") -> None:
        self._name, self._head = PurePath(path).name, head

    @property
    def facts(self) -> Fields:
        return ()

    @property
    def columns(self) -> tuple[str, ...]:
        return ()

    def take(self, line: bytes, number: int) -> bool:
        """Whether the line of this number, without its end, is a row; what is not is remembered if
        it says something of the rows behind it. Cheap: for each line once, in their order (a last
        one that was not ended again). Raises NotARow."""
        raise NotImplementedError

    def entry(self, line: bytes, number: int, start: int) -> Entry:
        """A line that was taken as a row."""
        raise NotImplementedError


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
    """How the files of one tuner are recognised and read; either of `lines` or as one `document`.

    `knows` gets a file's first bytes, after a BOM, and its name. `lines` makes the reader for a
    path and the beginning of its file; `document` reads a whole file, or raises ValueError.
    `problem` is the problem of torch that an entry solves, and raises `NotAProblem`. Without
    `editing` entries cannot be changed. With `below`, lines below a row belong to the row. `text`
    unpacks the lines of a packed file, and raises ValueError; the table then has these lines.
    """

    name: str
    knows: Callable[[bytes, str], bool]
    problem: Callable[[Entry], Problem]
    lines: Callable[[str, bytes], Lines] | None = None
    document: Callable[[bytes, str], Table] | None = None
    editing: Editing | None = None
    below: bool = False
    text: Callable[[bytes], bytes] | None = None

    def table(self, data: bytes, path: str) -> Table:
        """The table that these bytes are, of the file `path`. Raises ValueError for a document that
        is damaged."""
        if self.document is not None:
            return self.document(data, path)
        assert self.lines is not None
        text = data if self.text is None else self.text(data)
        return table_of(self.name, self.lines(path, text), text, path)


class _Rows(Sequence[Entry]):
    """The entries of a table of lines, each parsed on access."""

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
            return [self[index] for index in range(*at.indices(len(self)))]
        return self._read(self.starts[at], self.numbers[at])

    def __iter__(self) -> Iterator[Entry]:
        return map(self._read, self.starts, self.numbers)

    def _read(self, start: int, number: int) -> Entry:
        end = self._data.find(b"\n", start)
        line = self._data[start : end if end >= 0 else len(self._data)]
        return self._lines.entry(line.rstrip(b"\r"), number, start)


def milliseconds(text: str, per_ms: int = 1) -> float | None:
    """The time that a cell has in units of which `per_ms` are a millisecond; None for no number,
    and for one that is no kernel's time: 0, below it, infinite, of absurd size."""
    try:
        ms = float(text) / per_ms
    except ValueError:
        return None
    return ms if SHORTEST_MS <= ms < LONGEST_MS else None


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
    """Return the op of a pin for a person."""
    return op.split(":", 2)[2] if is_table_op(op) else op


def entry_key(tuner: str, entry: Entry) -> TuningKey:
    """The same for all entries that the tuner takes for one, in any file."""
    inputs = ", ".join(f"{name}={value}" for name, value in entry.key)
    device = str(entry.device)
    return TuningKey(
        f"{_PREFIX}{tuner}:{entry.op}", f"{inputs} @ {device}" if device else inputs, ""
    )


def table_system(path: Path) -> str:
    """Return the name of the file in pins: a digest of its path."""
    import hashlib  # loads OpenSSL, for which the first screen does not wait

    return _FILE + hashlib.sha256(os.fsencode(path)).hexdigest()[:16]


UNTIMED = "nan"
_WORD = re.compile(r"[\w.%+:-]{1,400}", re.ASCII)
"""No call of a function: AITER and its tuner evaluate cells of their tables as Python. All cells of
the 64,536 public rows have these characters alone."""
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,15})")
_NUMBER = re.compile(r"-?(?:[0-9]{1,17}\.?[0-9]{0,17}|\.[0-9]{1,17})(?:[eE][+-]?[0-9]{1,3})?")
_BOOLEAN = ("True", "False")


class NotEditable(Exception):
    """The entry cannot be changed so. The text is the reason."""


def editable_word(name: str, value: str) -> str:
    """The text of a cell. Raises NotEditable for one that is no number and no name."""
    if not _WORD.fullmatch(value):
        raise NotEditable(f"{brief(value, 60)!r} is not allowed in the column {name}")
    return value


def editable_time(name: str, value: str) -> str:
    """The text of a time. Raises NotEditable."""
    if not _NUMBER.fullmatch(value) or milliseconds(value, 1 if name == "ms" else 1000) is None:
        raise NotEditable(f"{brief(value, 60)!r} is no time ({name})")
    return value


def editable_cell(name: str, value: str, old: str, *, measured: bool = False) -> str:
    """The text of a cell in the place of `old`: another kind of value than a number, or True or
    False, would make pandas read the whole column, and so every row, as that. Whole numbers alone
    unless they are `measured`. Raises NotEditable."""
    old = old.strip()
    if measured and value == UNTIMED:
        return value
    if is_whole_number(old) and not measured and not is_whole_number(value):
        kind = "a whole number"
    elif _NUMBER.fullmatch(old) and not _NUMBER.fullmatch(value):
        kind = "a number"
    elif old in _BOOLEAN and value not in _BOOLEAN:
        kind = "True or False"
    else:
        return editable_word(name, value)
    raise NotEditable(f"{brief(value, 60)!r} is not allowed in the column {name}: it takes {kind}")


def check_names(values: Mapping[str, str], names: Iterable[str]) -> None:
    """Raises NotEditable for a name of `values` that is not among `names`."""
    names = tuple(names)
    unknown = next((name for name in values if name not in names), None)
    if unknown is not None:
        raise NotEditable(f"{brief(unknown, 60)!r} is not set here; there are {', '.join(names)}")


def with_cells(
    cells: Sequence[str], columns: Sequence[str], values: Mapping[str, str], times: Iterable[str]
) -> list[str]:
    """The cells of a row with other `values`; missing `times` become
    `UNTIMED`, unless all stays as it is."""
    new = [values.get(name, cell) for name, cell in zip(columns, cells, strict=False)]
    if new == list(cells):
        return new
    for name in times:
        if name in columns and name not in values and (at := columns.index(name)) < len(new):
            new[at] = UNTIMED
    return new


def is_whole_number(value: str) -> bool:
    """Whether that is the text of a whole number."""
    return _INTEGER.fullmatch(value) is not None


def with_json_members(text: bytes, values: Mapping[str, str]) -> bytes:
    """An object of JSON with other whole numbers as the values of members that it has. Raises
    NotEditable."""
    for name, value in values.items():
        if not is_whole_number(value):
            raise NotEditable(f"{brief(value, 60)!r} is no whole number ({brief(name, 60)})")
        member = rb'("' + re.escape(name.encode()) + rb'"\s*:\s*)-?\d+(?=\s*[,}\]])'
        text, count = re.subn(member, rb"\g<1>" + value.encode(), text)
        if count != 1:
            raise NotEditable(f"{brief(name, 60)!r} is no number of this entry")
    return text


def assignments_text(values: Mapping[str, str]) -> str:
    """Return the text that `assignments` parses."""
    return ",".join(f"{name}={value}" for name, value in values.items())


def assignments(text: str) -> dict[str, str]:
    """`NAME=VALUE,NAME=VALUE`. Raises NotEditable."""
    values: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not (name and equals and value):
            raise NotEditable(f"{brief(text, 80)!r} is not of the form NAME=VALUE,NAME=VALUE")
        if values.setdefault(name, value) != value:
            raise NotEditable(f"{brief(name, 60)!r} is set twice")
    return values


class NotAProblem(Exception):
    """The line has no op of Inductor's tuning, or too few details.

    The text is the reason, the same for all such lines.
    """


FP8 = "an fp8 or int8 product with scales"
NOT_ITS_FORM = "not in the form of its table"
_LARGEST = 1 << 40
"""The largest size or stride of a real program."""


@dataclass(frozen=True, slots=True)
class Gemm:
    """op(A) · op(B), `m` by `n`, over `k`; matrices lie column by column, `lda` and `ldb` elements
    from one column to the next, `stride_a` and `stride_b` from one of the `batch` to the next.
    None is unknown. With `trans_a`, A is stored as k by m; with `trans_b`, B as n by k.

    `dtype` is torch's name of the operands' and the result's type, `bias` a vector of m added to
    each column, `precision` torch's of float32 products.
    """

    trans_a: bool
    trans_b: bool
    m: int
    n: int
    k: int
    dtype: str
    lda: int | None = None
    ldb: int | None = None
    batch: int | None = None
    stride_a: int | None = None
    stride_b: int | None = None
    bias: bool = False
    precision: str | None = None


def problem_of_gemm(gemm: Gemm) -> Problem:
    """The op of torch whose call becomes this one; raises NotAProblem.

    What lies column by column is the transpose of what lies row by row, and (A · B)ᵀ = Bᵀ · Aᵀ: the
    library's B is torch's first factor, n by k, its A the second one, k by m. Unknown strides are
    those of matrices without gaps.
    """
    m, n, k = gemm.m, gemm.n, gemm.k
    batch = 1 if gemm.batch is None else gemm.batch
    if not all(0 < size <= _LARGEST for size in (m, n, k, batch)):
        raise NotAProblem("a size of 0, or beyond all bounds")
    a_rows, b_rows = (k if gemm.trans_a else m), (n if gemm.trans_b else k)
    lda, ldb = _step(gemm.lda, a_rows), _step(gemm.ldb, b_rows)
    first, second = (n, k), (k, m)
    first_steps = (1, ldb) if gemm.trans_b else (ldb, 1)
    second_steps = (1, lda) if gemm.trans_a else (lda, 1)
    if gemm.batch is None:
        if not gemm.bias:
            return _problem(gemm, "mm", (first, second), (first_steps, second_steps))
        return _problem(gemm, "addmm", ((m,), first, second), ((1,), first_steps, second_steps))
    if gemm.bias:
        raise NotAProblem("a bias on a batch of products")
    gaps = (lda, ldb) != (a_rows, b_rows)
    if gaps and (gemm.stride_a is None or gemm.stride_b is None):
        raise NotAProblem("a batch of matrices with gaps, whose distance is unknown")
    between_a = lda * (m if gemm.trans_a else k) if gemm.stride_a is None else gemm.stride_a
    between_b = ldb * (k if gemm.trans_b else n) if gemm.stride_b is None else gemm.stride_b
    if max(between_a, between_b) > _LARGEST:
        raise NotAProblem("a size of 0, or beyond all bounds")
    shapes = (gemm.batch, *first), (gemm.batch, *second)
    steps = (between_b, *first_steps), (between_a, *second_steps)
    return _problem(gemm, "bmm", shapes, steps)


def _step(leading: int | None, rows: int) -> int:
    if leading is None:
        return rows
    if not rows <= leading <= _LARGEST:
        raise NotAProblem("a leading dimension that its matrix cannot have")
    return leading


def _problem(gemm: Gemm, op: str, shapes: tuple[Shape, ...], steps: tuple[Shape, ...]) -> Problem:
    dtypes = (gemm.dtype,) * len(shapes)
    return Problem(op, shapes, steps, dtypes, precision=gemm.precision)


def unknown_problem(what: str, name: str) -> NotAProblem:
    """`what` is none that is known: the op, the type."""
    return NotAProblem(f"{what} {brief(name, 60)}, which is not known")
