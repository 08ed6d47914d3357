"""PyTorch's TunableOp: files of results, `op_sig,params_sig,solution,ms` a line behind lines of
validators, and untuned ones, `op_sig,params_sig` a line.

    Validator,GCN_ARCH_NAME,gfx942:sramecc+:xnack-
    GemmTunableOp_BFloat16_TN,tn_4096_16_1024_ld_1024_1024_4096,Gemm_Hipblaslt_12683,0.182
    GemmStridedBatchedTunableOp_float_NN,nn_64_32_16_B_8_ld_64_16_64

What they say is read as `torch.cuda.tunable` does, which builds the products again to tune them.
Older releases of PyTorch leave out `ld`; with PYTORCH_TUNABLEOP_BLAS_LOG a row ends in
`BLAS_PARAMS: ...`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from backend.errors import brief
from backend.model.problem import Problem
from backend.tables import model
from backend.tables.model import (
    BOM,
    FP8,
    LONGEST_MS,
    NOT_ITS_FORM,
    SHORTEST_MS,
    TORN,
    Editing,
    Entry,
    Fields,
    Gemm,
    Lines,
    NotAProblem,
    NotARow,
    Table,
    TableDevice,
    Tuner,
    milliseconds,
    problem_of_gemm,
    table_of,
    unknown_problem,
)

_BEGINS = re.compile(rb"^(?:[A-Za-z0-9]{1,40}TunableOp_|Validator,)", re.MULTILINE)
"""How a line of such a file begins."""
_BLAS = b"BLAS_PARAMS:"
_VALIDATORS = re.compile(rb"^(?:\xef\xbb\xbf)?Validator,", re.MULTILINE)
_RESULT = re.compile(rb"TunableOp_[^,\n]*,[^,\n]*,(?!BLAS_PARAMS:)")
"""Text that no untuned list of PyTorch has."""
_TIMED = re.compile(rb"TunableOp_[^,\n]*,[^,\n]*,[^,\n]+,[^,\n]*\d")
_OPS = {
    "GemmTunableOp": "mm",
    "GemmStridedBatchedTunableOp": "bmm",
    "GemmAndBiasTunableOp": "addmm",
}
_TYPES = {
    "float": ("float32", "highest"),
    "tf32": ("float32", "high"),
    "double": ("float64", None),
    "BFloat16": ("bfloat16", None),
    "Half": ("float16", None),
}
"""Torch's type, and the precision of float32 products that goes with the name."""
_NAMES = ("solution", "ms")
SOLUTION = re.compile(r"Default|Gemm_[\w-]{1,200}", re.ASCII)
_LAYOUT = re.compile(r"Gemm_(?:Hipblaslt|Rocblas)_([NT]{2})_", re.ASCII)
_PARAMS = re.compile(
    r"([nt])([nt])_(\d{1,15})_(\d{1,15})_(\d{1,15})(?:_B_(\d{1,15}))?"
    r"(?:_ld_(\d{1,15})_(\d{1,15})_(\d{1,15}))?",
    re.ASCII,
)

UNSCALED = "an fp8 product without its scales, as an older PyTorch recorded it"
_FP8 = {
    name: name.lower()
    for name in ("Float8_e4m3fn", "Float8_e4m3fnuz", "Float8_e5m2", "Float8_e5m2fnuz")
}
_RESULTS = {**_FP8, "BFloat16": "bfloat16", "Half": "float16", "float": "float32"}
_SCALED_OP = re.compile(
    r"ScaledGemmTunableOp_(Float8_\w{4,8})_(Float8_\w{4,8})_(Float8_\w{4,8}|[A-Za-z0-9]{2,20})_([NT]{2})",
    re.ASCII,
)
_SCALED_PARAMS = re.compile(
    r"([nt]{2}_\d+_\d+_\d+(?:_ld_\d+_\d+_\d+)?)_rw_([01])_bias_(\w{2,20})", re.ASCII
)


class TunableOpReader(Lines):
    """The lines of one file."""

    def __init__(self, path: str = "", head: bytes = b"") -> None:
        super().__init__(path, head)
        self._facts: list[tuple[str, str]] = []
        self._device = TableDevice()
        self._untuned = "untuned" in self._name  # as PyTorch calls its lists
        validators = not self._untuned and _VALIDATORS.search(self._head) is not None
        self._results = validators or _RESULT.search(self._head) is not None
        self._timed = self._results and _TIMED.search(self._head) is not None

    @property
    def facts(self) -> Fields:
        """The validators."""
        return tuple(self._facts)

    def take(self, line: bytes, number: int) -> bool:
        cells = line.split(b",", 4)
        if b"TunableOp_" in cells[0] and len(cells) > 1:
            if self._is_torn(line, cells):
                raise NotARow(TORN)
            if len(cells) == 2 or cells[2].startswith(_BLAS):
                return True
            self._results = True
            if len(cells) > 3 and cells[2] and _is_time(cells[3]):
                self._timed = True
                return True
            if SOLUTION.fullmatch(_text(cells[2])):
                return True  # PyTorch takes it too, with a time of 0
        elif cells[0] == b"Validator" and len(cells) > 2:
            self._validate(*_text(line).split(",", 2)[1:])
            return False
        elif not line.strip():
            return False
        raise NotARow(NOT_ITS_FORM)

    def _is_torn(self, line: bytes, cells: Sequence[bytes]) -> bool:
        """Whether a row ends early, or is followed by the next one on its line.

        Beside rows with a time, a row without one is cut, and its last word may be cut, too.
        """
        if line.count(b"TunableOp_") > 1:
            return True
        if len(cells) == 2 or cells[2].startswith(_BLAS):
            return self._results
        return len(cells) == 3 and (self._timed or not SOLUTION.fullmatch(_text(cells[2])))

    def _validate(self, name: str, value: str) -> None:
        self._results = self._results or not self._untuned
        self._facts.append((name, value))
        if name == "GCN_ARCH_NAME":
            self._device = TableDevice(value.partition(":")[0], None, value)

    def entry(self, line: bytes, number: int, start: int) -> Entry:
        cells = _text(line).split(",", 4)
        op, params = cells[:2]
        solution, ms, behind = "", None, ""
        if len(cells) > 2 and not cells[2].startswith("BLAS_PARAMS:"):
            solution, behind = cells[2], "".join(cells[4:])
            ms = milliseconds(cells[3]) if len(cells) > 3 else None
        elif len(cells) > 2:
            behind = ",".join(cells[2:])
        blas = behind.removeprefix("BLAS_PARAMS:").strip() if behind else ""
        return Entry(
            number,
            start,
            start + len(line),
            op,
            (("params", params),),
            solution,
            ms,
            self._device,
            (("BLAS_PARAMS", blas),) if blas else (),
        )


def _is_time(cell: bytes) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return b"_" not in cell


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace")


def is_of_layout(solution: str, op: str) -> bool:
    """Whether an op may have the solution.

    A solution for another layout than the op's ends the program that looks it up.
    """
    match = _LAYOUT.match(solution)
    return match is None or op.endswith(f"_{match[1]}")


def _scaled(op: str, params: str) -> Problem:
    """Return a product of fp8 with scales, in torch's order of the factors.

    Scales of rows are marked `rw`; other scales are one number, for which PyTorch's own tuner uses
    a tensor without dimensions.
    """
    named, sizes = _SCALED_OP.fullmatch(op), _SCALED_PARAMS.fullmatch(params.strip())
    if sizes is None and _PARAMS.fullmatch(params.strip()):
        raise NotAProblem(UNSCALED)
    if named is None or sizes is None:
        raise NotAProblem(NOT_ITS_FORM)
    for name in (named[1], named[2]):
        if name not in _FP8:
            raise unknown_problem("the type", name)
    if named[3] not in _RESULTS or sizes[3] not in (*_RESULTS, "None"):
        raise unknown_problem("the type", named[3] if named[3] not in _RESULTS else sizes[3])
    product = product_of(f"GemmTunableOp_Half_{named[4]}", sizes[1])
    plain = problem_of_gemm(product)
    rows = sizes[2] == "1"
    scales = ((product.n, 1), (1, product.m)) if rows else ((), ())
    steps = ((1, 1), (product.m, 1)) if rows else ((), ())
    bias = sizes[3] != "None"
    return Problem(
        "scaled_mm",
        (*plain.shapes, *scales, *(((product.m,),) if bias else ())),
        (*plain.strides, *steps, *(((1,),) if bias else ())),
        (
            *(f"torch.{_FP8[name]}" for name in (named[1], named[2])),
            *("torch.float32", "torch.float32"),
            *((f"torch.{_RESULTS[sizes[3]]}",) if bias else ()),
        ),
        options=(("out_dtype", (_RESULTS[named[3]],)),),
    )


def product_of(op: str, params: str) -> Gemm:
    """Return the product of two signatures. Raises NotAProblem."""
    kind, _, behind = op.partition("_")
    if not kind.endswith("TunableOp"):
        raise NotAProblem(NOT_ITS_FORM)
    if kind.startswith("Scaled"):
        raise NotAProblem(FP8)
    if kind not in _OPS:
        raise unknown_problem("the op", kind)
    type, _, layout = behind.rpartition("_")
    if type not in _TYPES:
        raise unknown_problem("the type", type)
    match = _PARAMS.fullmatch(params.strip())
    if match is None or (match[1] + match[2]).upper() != layout:
        raise NotAProblem(NOT_ITS_FORM)
    if (match[6] is not None) is not (_OPS[kind] == "bmm"):
        raise NotAProblem(NOT_ITS_FORM)
    m, n, k = (int(match[at]) for at in (3, 4, 5))
    batch, lda, ldb = (None if match[at] is None else int(match[at]) for at in (6, 7, 8))
    dtype, precision = _TYPES[type]
    return Gemm(
        trans_a=match[1] == "t",
        trans_b=match[2] == "t",
        m=m,
        n=n,
        k=k,
        dtype=f"torch.{dtype}",
        lda=lda,
        ldb=ldb,
        batch=batch,
        bias=_OPS[kind] == "addmm",
        precision=precision,
    )


def _problem(entry: Entry) -> Problem:
    op, params = entry.op, entry.key[0][1]
    if op.startswith("ScaledGemmTunableOp"):
        return _scaled(op, params)
    return problem_of_gemm(product_of(op, params))


def _knows(head: bytes, name: str) -> bool:
    return _BEGINS.search(head) is not None  # the first line may be damaged


def _edit(columns: Sequence[str], text: bytes, values: Mapping[str, str]) -> bytes:
    """The time that PyTorch reads for a row that it never compares; its `atof` accepts `nan`."""
    model.check_names(values, _NAMES)
    op, params, *rest = text.split(b",")
    if len(rest) < 2 or rest[0].startswith(_BLAS):
        raise model.NotEditable("an untuned entry has no solution yet; tune it")
    if not SOLUTION.fullmatch(values.get("solution", "Default")):
        raise model.NotEditable(
            f"{brief(values['solution'], 60)!r} is no solution; Default, Gemm_Hipblaslt_12683, ..."
        )
    if not is_of_layout(values.get("solution", ""), op.decode("utf-8", "replace")):
        raise model.NotEditable(
            f"{brief(values['solution'], 60)} is of another layout than the row; PyTorch ends the "
            "program that takes it"
        )
    if "ms" in values:
        model.editable_time("ms", values["ms"])
    cells = [cell.decode("utf-8", "surrogateescape") for cell in rest[:2]]
    new = model.with_cells(cells, _NAMES, values, ("ms",))
    written = (cell.encode("utf-8", "surrogateescape") for cell in new)
    return b",".join((op, params, *written, *rest[2:]))


def _values(entry: Entry) -> dict[str, str]:
    columns = {"solution": entry.solution}
    return columns if entry.ms is None else columns | {"ms": repr(entry.ms)}


_EDITING = Editing(_values, _edit, bare="solution", first=True)
TUNER = Tuner("tunableop", _knows, _problem, lines=TunableOpReader, editing=_EDITING)


_OP = re.compile(r"[A-Za-z0-9]{1,40}TunableOp_[\w:<>]{1,100}", re.ASCII)
_NAMED_PARAMS = re.compile(r"[nt]{2}_\w{1,200}", re.ASCII)
_NAME = re.compile(r"\w{1,60}", re.ASCII)
_VALUE = re.compile(r"[!-~](?:[ -~]{0,298}[!-~])?")


class TunedRow(NamedTuple):
    """The solution of a product, and its time."""

    op: str
    params: str
    solution: str
    ms: float

    @property
    def key(self) -> tuple[str, str]:
        return self.op, self.params


class NotMergeable(Exception):
    """The file, or what is to be put into it, is not what it should be. The text says why."""


def is_product(line: str) -> bool:
    """Whether that is `op,params`, as an untuned list has it."""
    op, _, params = line.partition(",")
    return bool(_OP.fullmatch(op) and _NAMED_PARAMS.fullmatch(params))


def check_row(row: TunedRow) -> None:
    """Raises NotMergeable for what would be no row of such a file."""
    if not (is_product(f"{row.op},{row.params}") and SOLUTION.fullmatch(row.solution)):
        raise NotMergeable(f"{brief(','.join(row[:3]), 200)!r} is no row of TunableOp's")
    if not SHORTEST_MS <= row.ms < LONGEST_MS:
        raise NotMergeable("no candidate ran")


def keys_in(data: bytes, validators: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    """Return the products of a file of results with these `validators`; none for an empty file.

    Raises NotMergeable for any other file.
    """
    return frozenset(_taken(_table(data, validators))) if data else frozenset()


def merged(
    data: bytes, validators: Mapping[str, str], rows: Iterable[TunedRow], *, force: bool = False
) -> bytes:
    """The file with `rows` behind its own; of a product that it has its own row stays, with `force`
    that row has the new solution and time. An empty file gets `validators` first. Raises
    NotMergeable."""
    _check(validators)
    new: dict[tuple[str, str], TunedRow] = {}
    for row in rows:
        check_row(row)
        new.setdefault(row.key, row)
    if not data:
        head = "".join(f"Validator,{name},{value}\n" for name, value in validators.items())
        return head.encode() + b"".join(map(_line, new.values()))
    table = _table(data, validators)
    taken = _taken(table)
    texts: dict[Entry, bytes] = {}
    for key in new.keys() & taken.keys() if force else ():
        texts[taken[key]] = _replaced(table.text(taken[key]), new[key])
    content = table.rewritten(texts) if texts else data
    lines = b"".join(_line(row) for key, row in new.items() if key not in taken)
    return content + (b"\n" if lines and not content.endswith(b"\n") else b"") + lines


def _line(row: TunedRow) -> bytes:
    """Return a row as PyTorch writes it, with six digits of the time."""
    return f"{row.op},{row.params},{row.solution},{row.ms:g}\n".encode()


def _replaced(text: bytes, row: TunedRow) -> bytes:
    editing = TUNER.editing
    assert editing is not None
    return editing.edit((), text, {"solution": row.solution, "ms": f"{row.ms:g}"})


def _table(data: bytes, validators: Mapping[str, str]) -> Table:
    """A file of results for these validators. Raises NotMergeable."""
    _check(validators)
    if b"\0" in data or not TUNER.knows(data, ""):
        raise NotMergeable("it is no file of TunableOp's results")
    if data.startswith(BOM) or b"\r" in data:
        raise NotMergeable("PyTorch ignores it, for its line ends or its byte order mark")
    table = table_of(TUNER.name, TunableOpReader(head=data), data, "")
    there = dict(table.facts)  # of two of one name PyTorch takes the last
    for name in sorted({*there, *validators}):
        if there.get(name) != validators.get(name):
            theirs, here = there.get(name, "missing"), validators.get(name, "missing")
            raise NotMergeable(f"its {brief(name, 60)} is {brief(theirs, 80)}, here it is {here}")
    return table


def _taken(table: Table) -> dict[tuple[str, str], Entry]:
    """Return the entry of each product; of several rows PyTorch uses the first."""
    taken: dict[tuple[str, str], Entry] = {}
    for entry in table.entries:
        if entry.solution:
            taken.setdefault((entry.op, entry.key[0][1]), entry)
    return taken


def _check(validators: Mapping[str, str]) -> None:
    """Raises NotMergeable."""
    if "PT_VERSION" not in validators:
        raise NotMergeable("PyTorch has no validators of its own")
    for name, value in validators.items():
        if not (_NAME.fullmatch(name) and _VALUE.fullmatch(value)):
            raise NotMergeable(f"{brief(f'{name},{value}', 200)!r} is no validator")
