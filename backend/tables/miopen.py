"""MIOpen's databases of convolutions: find-dbs (`.fdb.txt`, `.ufdb.txt`), which say how long each
solver took, and perf-dbs (`.db.txt`, `.udb.txt`, until 2019 `.pdb.txt`; in SQLite `.db`, `.udb`),
which hold a solver's configuration.

    576-4-4-1x1-192-4-4-8-0x0-1x1-1x1-0-NCHW-FP32-F=GemmFwd1x1_0_1:0.0412,0,miopenConvolution...;...

A find-db's key is channels, height and width, filter, channels, height and width of the result,
images, padding, stride, dilation, bias, layout (of three tensors where they differ), type and
direction; behind it optional parts (`_g` groups). Perf-dbs of 2024 and later write

    2x576x4x4x1x1x1x1x192x8x0x0x0x1x1x0x1x1x0x0x1xNCHWxFP32xF

(dimensions; channels, height, width, depth; height, width, depth of the filter; channels of the
result, images; padding, stride, dilation, each as the filter; bias, groups, layout, type,
direction). Of a backward one the first channels and sizes are those of the gradient. Until 2022 a
solver followed its algorithm, `algorithm:solver,ms,workspace,algorithm,key`.

A table `config` of a perf-db in SQLite (`gfx942130.db`, `gfx942130_1.1.0.udb`) holds the
convolutions, a row of `perf_db` the parameters of one solver for one convolution; it is converted
to the lines that MIOpen's `sqlite2txt` writes. SQLite never sees the file, only a copy of its bytes
in memory: no part of the file is locked, and nothing is written beside it. Rows that are only in
its `-wal` are not seen.

Read in MIOpen 3.3: src/conv/problem_description.cpp, src/include/miopen/{db_record,perf_field,
sqlite_db}.hpp, tools/sqlite2txt/main.cpp. A file is named after its device: `gfx906_60` has 60
compute units, `gfx942130` has 0x130. What MIOpen compiled (`.kdb`, `.ukdb`) is no table.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, groupby

from backend.counted import counted
from backend.model.options import CONVOLUTION_RESULTS, options
from backend.model.problem import Problem, Shape
from backend.tables.model import (
    MIOPEN,
    NOT_ITS_FORM,
    SQLITE,
    TORN,
    Entry,
    Lines,
    NotAProblem,
    NotARow,
    TableDevice,
    Tuner,
    milliseconds,
    unknown_problem,
)

try:
    import sqlite3
except ImportError:  # a Python that was built without it
    _HAS_SQLITE = False
else:
    _HAS_SQLITE = True

MAX_BYTES = 256 << 20
MAX_ROWS = 2_000_000
_ROW_BYTES = 8
"""A row of `perf_db` takes more: where an id of `config` is not unique, a join has more rows than a
file can hold."""
_STEPS_A_BYTE = 50
"""Instructions of SQLite: far more than any file needs."""
_MAX_TEXT = 8 << 10
_COLUMNS = (
    *("spatial_dim", "in_channels", "in_h", "in_w", "in_d", "fil_h", "fil_w", "fil_d"),
    *("out_channels", "batchsize", "pad_h", "pad_w", "pad_d"),
    *("conv_stride_h", "conv_stride_w", "conv_stride_d"),
    *("dilation_h", "dilation_w", "dilation_d", "bias", "group_count"),
    *("layout", "data_type", "direction"),
)
"""The columns in the order of a key."""
_QUERY = (
    f"SELECT {', '.join(f'config.{name}' for name in _COLUMNS)}, perf_db.solver, perf_db.params"
    " FROM perf_db INNER JOIN config ON perf_db.config = config.id"
    " ORDER BY perf_db.config, perf_db.id LIMIT ?"
)
_Row = tuple[object, ...]


def text_of(data: bytes) -> bytes:
    """The lines of a perf-db. Raises ValueError."""
    if len(data) > MAX_BYTES:
        raise ValueError(f"larger than {MAX_BYTES >> 20} MiB")
    most = min(MAX_ROWS, len(data) // _ROW_BYTES)
    try:
        with _opened(data) as database:
            rows = list(_bounded(database.execute(_QUERY, (most + 1,)), len(data)))
    except (sqlite3.Error, UnicodeDecodeError, OverflowError, MemoryError) as error:
        raise ValueError(f"no perf-db of MIOpen that can be read: {error}") from error
    if len(rows) > most:
        raise ValueError(f"more than {counted(most, 'row')}, too many for a file of its size")
    return b"".join(_lines(rows))


def _bounded(rows: Iterable[_Row], size: int) -> Iterator[_Row]:
    """Yield rows whose solvers and parameters can all be in a file of `size` bytes: a join repeats
    them where an id of `config` is not unique. Raises ValueError."""
    for row in rows:
        size -= len(str(row[-2])) + len(str(row[-1]))
        if size < 0:
            raise ValueError("more text than its size allows: an id of `config` is not unique")
        yield row


@contextmanager
def _opened(data: bytes) -> Iterator[sqlite3.Connection]:
    """Open a database in memory, read-only and without extras.

    Triggers and views of the file are not run, and endless queries are ended. A file in WAL mode
    is opened without its log.
    """
    database = sqlite3.connect(":memory:")
    try:
        at = len(SQLITE) + 2  # write version, read version
        if sys.version_info < (3, 11):
            raise ValueError("a database in memory takes Python 3.11")
        database.deserialize(data[:at] + b"\x01\x01" + data[at + 2 :])
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_TEXT)
        database.execute("PRAGMA query_only = ON")
        database.execute("PRAGMA trusted_schema = OFF")
        database.execute("PRAGMA cell_size_check = ON")
        database.set_authorizer(_allowed)
        steps, most = count(1), 1000 + len(data) * _STEPS_A_BYTE // 1000
        database.set_progress_handler(lambda: next(steps) > most, 1000)
        yield database
    finally:
        database.close()


def _allowed(action: int, *_: object) -> int:
    fine = action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ)
    return sqlite3.SQLITE_OK if fine else sqlite3.SQLITE_DENY


def _lines(rows: Sequence[_Row]) -> Iterator[bytes]:
    for key, same in groupby(rows, lambda row: row[: len(_COLUMNS)]):
        solvers = ";".join(f"{row[-2]}:{row[-1]}" for row in same)
        line = f"{'x'.join(map(str, key))}={solvers}"
        yield " ".join(line.splitlines()).encode("utf-8", "replace") + b"\n"


DIRECTIONS = {
    "F": "convolution",
    "B": "convolution_bwd_input",
    "W": "convolution_bwd_weight",
}
"""Inductor's names."""
_FOUND = re.compile(
    r"(\d{1,9}(?:-\d{1,9}){2,3})-(\d{1,9}(?:x\d{1,9}){1,2})-(\d{1,9}(?:-\d{1,9}){2,3})-(\d{1,9})"
    r"-(\d{1,9}(?:x\d{1,9})*)-(\d{1,9}(?:x\d{1,9})*)-(\d{1,9}(?:x\d{1,9})*)-(\d{1,2})"
    r"-([A-Zc]{3,6}\d?)((?:-[A-Zc]{3,6}\d?){2})?-([A-Z][A-Z0-9x]{2,40})-([FBW])((?:_\w{1,40})?)",
    re.ASCII,
)
_TUNED = re.compile(
    r"([23]x(?:\d{1,9}x){20})([A-Zc]{3,6}\d?)x([A-Z][A-Z0-9x]{2,40})x([FBW])", re.ASCII
)
_TYPES = {"FP32": "float32", "FP16": "float16", "BF16": "bfloat16", "INT8": "int8"}
_GROUPS = re.compile(r"_g(\d{1,9})\Z", re.ASCII)
_LAST = {"NHWC", "NDHWC"}
_CASTS = "a convolution with casts"


_OPEN = "a backward convolution with a stride, whose result size is not recorded"


@dataclass(frozen=True, slots=True)
class _Convolution:
    """`image` is the size of the input, `result` that of the output, None if unrecorded.

    For a backward convolution these are the gradient and the input of the forward one.
    """

    direction: str
    images: int
    channels: int
    image: Shape
    features: int
    result: Shape | None
    filter: Shape
    padding: Shape
    stride: Shape
    dilation: Shape
    groups: int
    bias: bool
    layouts: frozenset[str]
    type: str


def direction_of(key: str) -> str:
    """Return the letter of a key's direction; for other keys the text in its place."""
    return re.split(r"[-x]", key.partition("_")[0])[-1]


def is_key(key: str) -> bool:
    """Whether that is how MIOpen writes a convolution."""
    return (_FOUND.fullmatch(key) or _TUNED.fullmatch(key)) is not None


def problem_of_key(key: str) -> Problem:
    """The convolution in torch's words. Raises NotAProblem."""
    if (match := _FOUND.fullmatch(key)) is not None:
        conv = _found(match)
    elif (match := _TUNED.fullmatch(key)) is not None:
        conv = _tuned(match)
    else:
        raise NotAProblem(NOT_ITS_FORM)
    _check(conv)
    op = DIRECTIONS[conv.direction]
    shapes, result = _operands(conv)
    given = {
        "padding": conv.padding,
        "stride": conv.stride,
        "dilation": conv.dilation,
        "transposed": (0,),
        "output_padding": (0,) * len(conv.image),
        "groups": (conv.groups,),
    }
    if op in CONVOLUTION_RESULTS:
        given[CONVOLUTION_RESULTS[op]] = result
    last = conv.layouts <= _LAST
    strides = tuple(_strides(shape, last) for shape in shapes)
    dtypes = (f"torch.{_TYPES[conv.type]}",) * 2
    return Problem(op, shapes, strides, dtypes, options=options(given))


def _check(conv: _Convolution) -> None:
    if conv.bias or len(conv.layouts) > 1:
        raise NotAProblem("a convolution with a bias, or of tensors in several layouts")
    if conv.type not in _TYPES:
        raise unknown_problem("the type", conv.type)
    sizes = (conv.filter, conv.padding, conv.stride, conv.dilation, conv.result or conv.image)
    if any(len(each) != len(conv.image) for each in sizes):
        raise NotAProblem(NOT_ITS_FORM)
    if conv.groups < 1 or conv.channels % conv.groups or conv.features % conv.groups:
        raise NotAProblem(NOT_ITS_FORM)
    (layout,) = conv.layouts
    if layout not in _LAST and layout not in ("NCHW", "NCDHW"):
        raise unknown_problem("the layout", layout)


def _operands(conv: _Convolution) -> tuple[tuple[Shape, ...], Shape]:
    """The tensors that are given, in the order of Inductor's choices (PyTorch 2.13,
    kernel/conv.py), and the sizes of the result of a backward one."""
    given = (conv.images, conv.channels, *conv.image)
    if conv.direction == "F":
        weight = (conv.features, conv.channels // conv.groups, *conv.filter)
        return (given, weight), ()
    image = (conv.images, conv.features, *(conv.result or _folded_from(conv)))
    weight = (conv.channels, conv.features // conv.groups, *conv.filter)
    return ((given, weight), image) if conv.direction == "B" else ((image, given), weight)


def _folded_from(conv: _Convolution) -> Shape:
    """The image that a forward convolution without steps was given. Raises NotAProblem."""
    if set(conv.stride) != {1}:
        raise NotAProblem(_OPEN)
    dimensions = zip(conv.image, conv.filter, conv.padding, conv.dilation, strict=True)
    return tuple(
        size + dilation * (filter - 1) - 2 * pad for size, filter, pad, dilation in dimensions
    )


def _found(found: re.Match[str]) -> _Convolution:
    channels, *image = _numbers(found[1], "-")
    features, *result = _numbers(found[3], "-")
    groups = _GROUPS.fullmatch(found[13])
    if found[13] and groups is None:
        raise NotAProblem(_CASTS)
    padding, stride, dilation = (_numbers(found[at], "x") for at in (5, 6, 7))
    return _Convolution(
        direction=found[12],
        images=int(found[4]),
        channels=channels,
        image=tuple(image),
        features=features,
        result=tuple(result),
        filter=_numbers(found[2], "x"),
        padding=padding,
        stride=stride,
        dilation=dilation,
        groups=int(groups[1]) if groups else 1,
        bias=found[8] != "0",
        layouts=frozenset((found[9], *(found[10] or "").split("-")[1:])),
        type=found[11],
    )


def _tuned(found: re.Match[str]) -> _Convolution:
    dims, channels, *rest = _numbers(found[1][:-1], "x")

    def sizes(at: int) -> Shape:
        height, width, depth = rest[at : at + 3]
        return (height, width) if dims == 2 else (depth, height, width)

    return _Convolution(
        direction=found[4],
        images=rest[7],
        channels=channels,
        image=sizes(0),
        features=rest[6],
        result=None,
        filter=sizes(3),
        padding=sizes(8),
        stride=sizes(11),
        dilation=sizes(14),
        groups=rest[18],
        bias=rest[17] != 0,
        layouts=frozenset((found[2],)),
        type=found[3],
    )


def _numbers(text: str, between: str) -> Shape:
    return tuple(map(int, text.split(between)))


def _strides(shape: Shape, channels_last: bool) -> Shape:
    """Return the strides of a tensor without gaps."""
    order = [0, *range(2, len(shape)), 1] if channels_last else list(range(len(shape)))
    strides, step = [0] * len(shape), 1
    for at in reversed(order):
        strides[at] = step
        step *= shape[at]
    return tuple(strides)


_NAME = re.compile(r"\.(?:u?fdb|u?db|(?:cd\.)?pdb)\.txt\Z")
_DEVICE = re.compile(
    r"(gfx(?:[789][0-9a-f]{2}|1[0-9a-f]{3}))(?:_(\d{1,4})|([0-9a-f]{2,3}))?(?=[._])"
)
_ALGORITHM = "miopen"
"""How all algorithms are called."""
_TIMES = re.compile(r"\.u?fdb\.txt\Z")
_TIMED = re.compile(rb"[=;](?:miopen[^:;\n]*:[^,;\n]*,[^,;\n]*,|[^:;\n]*:[^,;\n]*,[^,;\n]*,miopen)")
"""A solver with its time, whose end is the algorithm's name."""
_HEAD = 64 << 10


class MiopenReader(Lines):
    """Reads the lines of a file, whose name contains the device."""

    def __init__(self, path: str = "", head: bytes = b"") -> None:
        super().__init__(path, head)
        self._device = device_of(self._name)
        timed = _TIMES.search(self._name) or _TIMED.search(self._head[:_HEAD])
        self._times = timed is not None

    def take(self, line: bytes, number: int) -> bool:
        _, equals, values = line.partition(b"=")
        if not equals and not line.strip():
            return False
        if b":" not in values:
            raise NotARow(NOT_ITS_FORM)
        if self._times and not _TIMED.match(b";" + values.rstrip(b"; \t").rpartition(b";")[2]):
            raise NotARow(TORN)
        return True

    def entry(self, line: bytes, number: int, start: int) -> Entry:
        key, _, values = line.decode("utf-8", "replace").partition("=")
        solvers = [_solver(part) for part in values.split(";") if part]
        ranked = sorted(solvers, key=lambda solver: (solver[1] is None, solver[1]))
        direction = direction_of(key)
        return Entry(
            number,
            start,
            start + len(line),
            DIRECTIONS.get(direction, direction),
            (("problem", key),),
            ranked[0][0] if ranked else "",
            ranked[0][1] if ranked else None,
            self._device,
            tuple((solver, cells) for solver, _, cells in ranked),
            others=tuple((solver, ms) for solver, ms, _ in ranked[1:]),
        )


def device_of(name: str) -> TableDevice:
    """Return the device in the name of a file."""
    match = _DEVICE.search(name)
    if match is None:
        return TableDevice()
    units = int(match[2]) if match[2] else int(match[3], 16) if match[3] else None
    return TableDevice(match[1], units, match[0])


def _solver(part: str) -> tuple[str, float | None, str]:
    """A solver, its milliseconds, and its other cells; a time that is none is among these."""
    id, _, text = part.partition(":")
    cells = text.split(",")
    if id.startswith(_ALGORITHM) and len(cells) > 2:
        id, *cells = cells
    if len(cells) > 2 and cells[2].startswith(_ALGORITHM):
        ms = milliseconds(cells[0])
        return id, ms, ",".join(cells if ms is None else cells[1:])
    return id, None, ",".join(cells)


def _problem(entry: Entry) -> Problem:
    return problem_of_key(entry.key[0][1])


def _text(data: bytes) -> bytes:
    """A perf-db in SQLite as text, what is text as it is."""
    if not data.startswith(SQLITE):
        return data
    if not _HAS_SQLITE:
        raise ValueError("this Python has no sqlite3")
    return text_of(data)


def _knows(head: bytes, name: str) -> bool:
    if head.startswith(SQLITE):
        return b"perf_db" in head
    return MIOPEN.match(head) is not None or (_NAME.search(name) is not None and b"=" in head)


TUNER = Tuner("miopen", _knows, _problem, lines=MiopenReader, text=_text)
