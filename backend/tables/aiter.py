"""AITER's tables: tuned GEMMs and fused mixtures of experts, and the untuned lists that they are
tuned from, which have only the first columns.

    gfx,cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,libtype,solidx,splitK,us,kernelName,...
    gfx,cu_num,M,N,K[,q_dtype_w][,libtype],kernelId,splitK,us,kernelName,tflops,bw,errRatio
    gfx,cu_num,token,model_dim,inter_dim,expert,topk,act_type,dtype,...,us1,kernelName1,...,us,...

Only its name says which op a table of GEMMs is for (`a8w8_blockscale_tuned_gemm.csv`). A GEMM
is the linear layer of an (M, K) input and an (N, K) weight; times are in microseconds.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from backend.model.ops import ITEM_BYTES
from backend.model.problem import Problem
from backend.tables import model
from backend.tables.model import (
    FP8,
    NOT_ITS_FORM,
    TORN,
    Editing,
    Entry,
    Gemm,
    Lines,
    NotAProblem,
    NotARow,
    TableDevice,
    Tuner,
    milliseconds,
    problem_of_gemm,
    unknown_problem,
)

FUSED = "a fused mixture of experts, which is no matrix product"
_FALSE = frozenset({"false", "0", "none", ""})
_TRUE = frozenset({"true", "1"})
_FLOATS = ("float32", "float16", "bfloat16")
_DEVICE = ("gfx", "cu_num")


@dataclass(frozen=True, slots=True)
class _Form:
    """A kind of table: the columns that mark it, and the columns that form a row's lookup key."""

    op: str
    marks: frozenset[str]
    key: frozenset[str]


_FORMS = (
    _Form(
        "fused_moe",
        frozenset("token model_dim inter_dim expert".split()),
        frozenset(
            "token model_dim inter_dim expert topk act_type dtype q_dtype_a q_dtype_w q_type "
            "use_g1u1 doweight_stage1 shared_expert_id hidden_pad intermediate_pad "
            "gate_mode".split()
        ),
    ),
    _Form(
        "chunk_gdn_h",
        frozenset("V H Hg use_h0".split()),
        frozenset(
            "dtype K V BT H Hg is_varlen use_h0 store_fs snapshot_bf16 state_bf16 T_flat N "
            "total_chunks max_seq_chunks".split()
        ),
    ),
    *(
        _Form(
            "gemm",
            frozenset(sizes),
            frozenset((*sizes, *"q_dtype_w bias dtype outdtype scaleAB bpreshuffle".split())),
        )
        for sizes in ("BMNK", "MNK", "bmnk")
    ),
)
_MOE = re.compile(r"tuned_(fhmoe|grouped_fmoe)")
_GEMM = re.compile(
    r"(bf16|a8w8|a4w4|a8w4)((?:_blockscale|_bpreshuffle|_mxscale)*)", re.ASCII | re.IGNORECASE
)


class AiterReader(Lines):
    """The lines of one file."""

    def __init__(self, path: str = "", head: bytes = b"") -> None:
        super().__init__(path, head)
        self._columns: tuple[str, ...] = ()
        self._key: tuple[str, ...] = ()
        self._extra: tuple[str, ...] = ()
        self._op = ""
        self._needed = 0
        self._solved = False

    @property
    def columns(self) -> tuple[str, ...]:
        return self._columns

    def take(self, line: bytes, number: int) -> bool:
        if not line.strip(b", \t"):
            return False
        if not self._columns:
            self._begin(_cells(line))
            return False
        cells = len(_cells(line)) if b'"' in line else line.count(b",") + 1
        if cells < min(self._needed, len(self._columns)):
            raise NotARow(TORN if self._solved else NOT_ITS_FORM)
        if cells > len(self._columns):
            raise NotARow("more cells than columns")
        if line.startswith(self._columns[0].encode()) and tuple(_cells(line)) == self._columns:
            raise NotARow("the names of the columns once more")
        if self._solved and b",," in line and not _solution(self._row(line)):
            raise NotARow(TORN)
        return True

    def _row(self, line: bytes) -> dict[str, str]:
        return dict(zip(self._columns, _cells(line), strict=False))

    def _begin(self, columns: Sequence[str]) -> None:
        form = _form_of(columns)
        if form is None:
            raise NotARow(NOT_ITS_FORM)
        self._columns = tuple(columns)
        self._key = tuple(name for name in columns if name in form.key)
        apart = form.key.union(_DEVICE)
        self._extra = tuple(name for name in columns if name not in apart)
        self._op = _op_of(form, columns, self._name)
        self._needed = 1 + max(at for at, name in enumerate(columns) if name in form.key)
        solved = [at for at, name in enumerate(columns) if name in _SOLVED]
        self._solved = bool(solved)
        # A row that ends early may be cut: its last cell is none to rely on.
        self._needed = max(self._needed, *(at + 2 for at in solved)) if solved else self._needed

    def entry(self, line: bytes, number: int, start: int) -> Entry:
        """A row with fewer cells than columns lacks the last ones, as for AITER's own reader."""
        row = self._row(line)
        ms = milliseconds(row.get("us", ""), 1000)  # 0 stands where nothing was timed
        units = row.get("cu_num", "").strip()
        return Entry(
            number,
            start,
            start + len(line),
            self._op,
            tuple([(name, _told(row[name])) for name in self._key]),
            _solution(row),
            ms,
            TableDevice(row.get("gfx", "").strip(), int(units) if _is_size(units) else None),
            tuple(
                [
                    (name, row[name])
                    for name in self._extra
                    if name in row and not (ms is not None and name == "us")
                ]
            ),
        )


def _form_of(columns: Sequence[str]) -> _Form | None:
    names = frozenset(columns)
    return next((form for form in _FORMS if form.marks <= names), None)


def op_of(columns: Sequence[str], name: str) -> str:
    """Return the op of a table with these columns and this name, in AITER's words; else ``""``."""
    form = _form_of(columns)
    return _op_of(form, columns, name) if form else ""


def _op_of(form: _Form, columns: Sequence[str], name: str) -> str:
    """Return the op in AITER's words, as precisely as the file says it."""
    if form.op == "fused_moe":
        match = _MOE.search(name)
        return match[1] if match else form.op
    if form.op != "gemm":
        return form.op
    batched = "batched_" if "B" in columns or "b" in columns else ""
    if "dtype" in columns:
        return f"{batched}gemm_a16w16"
    kinds = [match[0].lower() for match in _GEMM.finditer(name)]
    kind = max(kinds, key=len, default="")
    return f"{batched}gemm_{kind}" if kind else f"{batched}gemm"


def _solution(row: Mapping[str, str]) -> str:
    """`ck a8w8_256x..., splitK 2`: the library, the kernel or its index, and over how many parts
    of K; empty in an untuned list."""
    kernels = [row[name].strip() for name in _KERNELS if name in row]
    kernel = " + ".join([kernel for kernel in kernels if kernel.lower() not in _UNNAMED])
    if not kernel:
        kernel = row.get("solidx", "").strip() or row.get("kernelId", "").strip()
    parts = [f"{row.get('libtype', '').strip()} {kernel}".strip()]
    for name, usual in _PARTS:
        if name in row and (value := row[name].strip()) not in ("", usual):
            parts.append(f"{name} {value}")
    return ", ".join(parts) if parts[0] else ", ".join(parts[1:])


_KERNELS = ("kernelName", "kernelName1", "kernelName2")
_PARTS = (("block_m", ""), ("BV", ""), ("ksplit", "0"), ("splitK", "0"))
_UNNAMED = frozenset({"", "nan", "none", "null"})
_SOLVED = frozenset(
    (*_KERNELS, *(name for name, _ in _PARTS), "libtype", "solidx", "kernelId", "us")
)
"""Columns without which a row says neither which solution was taken nor how fast it is."""


def _told(cell: str) -> str:
    """Blanks around a number do no harm; around a word they make it another one."""
    bare = cell.strip()
    return bare if bare != cell and _is_size(bare) else cell


def _is_size(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 16


def _cells(line: bytes) -> list[str]:
    text = line.decode("utf-8", "replace")
    if '"' not in text:
        return text.split(",")
    try:
        return next(csv.reader([text]), [])
    except csv.Error as error:
        raise NotARow(NOT_ITS_FORM) from error


def _problem(entry: Entry) -> Problem:
    return problem_of_gemm(_gemm(entry.op, dict(entry.key)))


def _gemm(op: str, row: Mapping[str, str]) -> Gemm:
    if "token" in row:
        raise NotAProblem(FUSED)
    if "Hg" in row:
        raise NotAProblem("a chunk of gated delta nets, which is no matrix product")
    if "dtype" not in row and op != "batched_gemm_bf16":
        raise NotAProblem("a quantized product, whose table does not name the types")
    dtype = row.get("dtype", "bfloat16").removeprefix("torch.")
    if "q_dtype_w" in row or _is(row, "scaleAB"):
        raise NotAProblem(FP8)
    if dtype not in _FLOATS:
        raise NotAProblem(FP8) if ITEM_BYTES.get(dtype) == 1 else unknown_problem("the type", dtype)
    if row.get("outdtype", row.get("dtype")) != row.get("dtype"):
        raise NotAProblem("a result of another type than its operands")
    if _is(row, "bpreshuffle"):
        raise NotAProblem("a weight in an order of AITER's own (bpreshuffle)")
    sizes = [row[name] for upper in "MNKB" for name in (upper, upper.lower()) if name in row]
    if not all(map(_is_size, sizes)):
        raise NotAProblem(NOT_ITS_FORM)
    rows, features, inner, *batch = map(int, sizes)
    return Gemm(
        trans_a=True,
        trans_b=False,
        m=features,
        n=rows,
        k=inner,
        dtype=f"torch.{dtype}",
        batch=batch[0] if batch else None,
        bias=_is(row, "bias"),
    )


def _is(row: Mapping[str, str], name: str) -> bool:
    """Whether a column that may be missing says yes."""
    word = row.get(name, "").strip().lower()
    if word not in _FALSE | _TRUE:
        raise NotAProblem(NOT_ITS_FORM)
    return word in _TRUE


def _knows(head: bytes, name: str) -> bool:
    line = next((line for line in head.splitlines() if line.strip()), b"")
    try:
        return _form_of(_cells(line)) is not None
    except NotARow:
        return False


_MEASURED = ("us", "us1", "us2", "err1", "err2", "errRatio", "err_ratio", "tflops", "bw")
"""Columns with measurements of the solution."""
_STAGES = ("us1", "us2")
"""Times of the stages; 0 for a stage that the other one includes."""


def _edit(columns: Sequence[str], text: bytes, values: Mapping[str, str]) -> bytes:
    form = _form_of(columns)
    looked_up = (*(form.key if form else ()), *_DEVICE)
    settable = [name for name in columns if name not in looked_up]
    if "us" not in columns:
        raise model.NotEditable("an untuned entry has no solution yet; tune it")
    model.check_names(values, settable)
    if b'"' in text:
        raise model.NotEditable("a row with quotes in it is not changed")
    cells = text.decode("utf-8", "surrogateescape").split(",")
    if any(columns.index(name) >= len(cells) for name in values):
        raise model.NotEditable("the row is shorter than its columns")
    for name, value in values.items():
        if name == "us" or (name in _STAGES and value not in ("0", model.UNTIMED)):
            model.editable_time(name, value)
        else:
            model.editable_cell(name, value, cells[columns.index(name)], measured=name in _MEASURED)
    new = model.with_cells(cells, columns, values, _MEASURED)
    return ",".join(new).encode("utf-8", "surrogateescape")


def _values(entry: Entry) -> dict[str, str]:
    columns = {name: value for name, value in entry.extra if name != "us"}
    return columns if entry.ms is None else {**columns, "us": f"{entry.ms * 1000:.10g}"}


TUNER = Tuner("aiter", _knows, _problem, lines=AiterReader, editing=Editing(_values, _edit))
