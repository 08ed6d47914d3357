"""hipBLASLt's calls in a program's output, and its tuning files.

A call is a `hipblaslt-bench ...` line, as HIPBLASLT_LOG_MASK=32 prints it: the words with which its
benchmark makes that call again.

A tuning file (HIPBLASLT_TUNING_FILE), or what `hipblaslt-bench` prints, is a header and rows, in a
file behind a line `Git Version: ...`, on a console behind `[0]:` and indented. The last column is
`soulution_index` (so spelt), `solution_index` in newer releases, which have `kernel_name`,
`solution_name`, `gcnArchName` and `CUs` too, if requested. A file may have several headers: each
run writes its own. Releases of 2024 wrote files without one, and read rows of 37 cells by their
places. On a console, name and index may be on lines below their row. What the library looks up by
is read in its tensile_host's UserDrivenTuningParser.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping

from backend.model.problem import Problem
from backend.tables.model import (
    FP8,
    HIPBLASLT,
    NOT_ITS_FORM,
    TORN,
    Entry,
    Fields,
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

WORD = "hipblaslt-bench"

_TYPES = {
    "f64_r": "float64",
    "f32_r": "float32",
    "f16_r": "float16",
    "bf16_r": "bfloat16",
}
_COMPUTED = {"f32_r": "highest", "c_f32_r": "highest", "xf32_r": "high", "f32_xf32_r": "high"}
"""Torch's precision of a float32 product, by what it is computed in."""
_SCALES = ("--scaleA", "--scaleB", "--scaleC", "--scaleD", "--scaleAlpha_vector")
_FALSE = ("0", "0.0", "none", "")


def gemm_of(line: str) -> Gemm | None:
    """Return the product of a line; None for a line without a call. Raises NotAProblem."""
    _, word, behind = line.partition(f"{WORD} ")
    if not word:
        return None
    return gemm_of_words(_words(behind))


def gemm_of_words(words: Mapping[str, str]) -> Gemm | None:
    """Return the product of a call with these options; None without options. Raises NotAProblem."""
    if "-m" not in words or "-n" not in words:
        return None  # a sentence about it
    if "--grouped_gemm" in words and _on(words, "--grouped_gemm"):
        raise NotAProblem("a group of products of unlike sizes")
    if any(_on(words, name) for name in _SCALES):
        raise NotAProblem(FP8)
    types = {words.get(f"--{name}_type", "") for name in "abcd"}
    if any(type.startswith(("f8", "bf8", "i8", "f4", "f6")) for type in types):
        raise NotAProblem(FP8)
    if len(types) != 1:
        raise NotAProblem("a result of another type than its operands")
    type = types.pop()
    if type not in _TYPES:
        raise unknown_problem("the type", type)
    if _on(words, "--activation_type") or _on(words, "--use_e") or _on(words, "--gradient"):
        raise NotAProblem("a product with an activation or a gradient in it")
    if _factor(words, "--alpha", 1.0) != 1.0 or _factor(words, "--beta", 0.0) != 0.0:
        raise NotAProblem(
            "a product that is scaled, or added to what its result held (alpha, beta)"
        )
    bias = "--bias_vector" in words
    if bias and words.get("--bias_type", type) != type:
        raise NotAProblem("a bias of another type than the product")
    computed = words.get("--compute_type", "f32_r")
    if type == "f32_r" and computed not in _COMPUTED:
        raise unknown_problem("the type that it computes in,", computed)
    return _gemm(words, _TYPES[type], bias, _COMPUTED[computed] if type == "f32_r" else None)


def _gemm(words: Mapping[str, str], dtype: str, bias: bool, precision: str | None) -> Gemm:
    batch = _number(words, "--batch_count", 1)
    return Gemm(
        trans_a=_transposed(words, "--transA"),
        trans_b=_transposed(words, "--transB"),
        m=_number(words, "-m") or 0,
        n=_number(words, "-n") or 0,
        k=_number(words, "-k") or 0,
        dtype=f"torch.{dtype}",
        lda=_number(words, "--lda", None),
        ldb=_number(words, "--ldb", None),
        batch=batch if batch != 1 else None,
        stride_a=_number(words, "--stride_a", None),
        stride_b=_number(words, "--stride_b", None),
        bias=bias,
        precision=precision,
    )


def _words(text: str) -> dict[str, str]:
    """The options, each with the word behind it unless that is an option too."""
    options: dict[str, str] = {}
    last = ""
    for word in text.split():
        if word.startswith("-") and not word[1:2].isdigit():
            last = word
            options[last] = ""
        elif last:
            options[last] = word
            last = ""
    return options


def _on(words: Mapping[str, str], name: str) -> bool:
    """Named, and not with a word that says no; a switch has no word."""
    return name in words and (words[name] not in _FALSE or _is_switch(name, words[name]))


def _is_switch(name: str, word: str) -> bool:
    return not word and name in ("--use_e", "--gradient", "--grouped_gemm", "--scaleAlpha_vector")


def _factor(words: Mapping[str, str], name: str, usual: float) -> float:
    try:
        return float(words.get(name, usual))
    except ValueError:
        raise NotAProblem(NOT_ITS_FORM) from None


def _number(words: Mapping[str, str], name: str, usual: int | None = 0) -> int | None:
    word = words.get(name)
    if word is None:
        return usual
    if not (word.isascii() and word.isdigit() and len(word) < 16):
        raise NotAProblem(NOT_ITS_FORM)
    return int(word)


def _transposed(words: Mapping[str, str], name: str) -> bool:
    word = words.get(name, "N")
    if word not in ("N", "T"):
        raise NotAProblem(NOT_ITS_FORM)
    return word == "T"


KEY = (
    *("transA", "transB", "batch_count", "m", "n", "k"),
    *("a_type", "b_type", "c_type", "compute_type"),
)
"""The columns by which the library finds a row."""
INDEX = ("soulution_index", "solution_index")
_GIT = b"Git Version:"
_CONSOLE = re.compile(rb"\A\[\d{1,6}\]:?\s*")
_PRINTED = re.compile(rb"--Solution (index|name):\s*(\S{1,4000})\Z")
_NO_HEADER = (
    *("transA", "transB", "grouped_gemm", "batch_count", "m", "n", "k", "alpha", "lda", "stride_a"),
    *("beta", "ldb", "stride_b", "ldc", "stride_c", "ldd", "stride_d", "a_type", "b_type"),
    *("c_type", "d_type", "compute_type", "scaleA", "scaleB", "scaleC", "scaleD", "amaxD"),
    *("activation_type", "bias_vector", "bias_type", "", "hipblaslt-Gflops", "hipblaslt-GB/s"),
    *("us", "solution_index", "gcnArchName", "CUs"),
)
"""The places of a row without a header. The one without a name is of two options of the run."""
_OPTION = _NO_HEADER.index("")
_ROW = (b"N,", b"T,", b"C,")
"""How a row begins."""


class HipblasltReader(Lines):
    """The lines of one file."""

    def __init__(self, path: str = "", head: bytes = b"") -> None:
        super().__init__(path, head)
        self._git: str | None = None
        self._lines: list[int] = []
        self._headers: list[tuple[str, ...]] = []
        self._printed: dict[int, dict[str, str]] = {}
        self._row = 0

    @property
    def facts(self) -> Fields:
        return () if self._git is None else (("Git Version", self._git),)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the last header."""
        return self._headers[-1] if self._headers else ()

    def take(self, line: bytes, number: int) -> bool:
        line = line.strip()
        if not line or line.startswith(_GIT):
            if line:
                self._git = line[len(_GIT) :].strip().decode("utf-8", "replace")
            return False
        head = _CONSOLE.sub(b"", line)
        if head.startswith(b"transA,"):
            names = tuple(head.decode("utf-8", "replace").split(","))
            if names != self.columns:
                self._lines.append(number)
                self._headers.append(names)
            return False
        if _is_row(line, self.columns):
            self._row = number
            return True
        printed = _PRINTED.match(line)
        if printed is not None and self._row:
            columns = self._printed.setdefault(self._row, {})
            columns[f"solution_{printed[1].decode()}"] = printed[2].decode("utf-8", "replace")
            return False
        if self._git is None and not line.startswith(_ROW):
            return False  # what else a console shows
        cut = line.startswith(_ROW) and line.count(b",") + 1 < len(self.columns or _NO_HEADER)
        raise NotARow(TORN if cut else NOT_ITS_FORM)

    def _header(self, number: int, cells: list[str]) -> tuple[str, ...]:
        """The names above a row."""
        if at := bisect_right(self._lines, number):
            return self._headers[at - 1]
        option = "rotating_buffer" if cells[_OPTION].strip().isdigit() else "aux_type"
        return (*_NO_HEADER[:_OPTION], option, *_NO_HEADER[_OPTION + 1 :])

    def entry(self, line: bytes, number: int, start: int) -> Entry:
        cells = line.decode("utf-8", "replace").strip().split(",")
        row = dict(zip(self._header(number, cells), (cell.strip() for cell in cells), strict=False))
        row |= self._printed.get(number, {})
        index = next((row[name] for name in INDEX if name in row), "")
        return Entry(
            number,
            start,
            start + len(line),
            "gemm",
            tuple((name, row.get(name, "")) for name in KEY),
            row.get("solution_name") or index,
            milliseconds(row.get("us", ""), 1000),
            _device(row),
            tuple((name, text) for name, text in row.items() if name not in KEY),
        )


def _is_row(line: bytes, columns: tuple[str, ...]) -> bool:
    if columns:
        return line.count(b",") + 1 == len(columns)
    return line.count(b",") + 1 == len(_NO_HEADER) and line.startswith(_ROW)


def _device(row: Mapping[str, str]) -> TableDevice:
    """Newer releases say on which device each row was timed."""
    name, units = row.get("gcnArchName", ""), row.get("CUs", "")
    is_count = units.isascii() and units.isdigit() and len(units) < 6
    return TableDevice(name.partition(":")[0], int(units) if is_count else None, name)


def _problem(entry: Entry) -> Problem:
    row = {**dict(entry.key), **dict(entry.extra)}
    words = {f"-{name}" if len(name) == 1 else f"--{name}": text for name, text in row.items()}
    if row.get("bias_vector", "0") == "0":
        words.pop("--bias_vector", None)
    gemm = gemm_of_words(words)
    if gemm is None:
        raise NotAProblem(NOT_ITS_FORM)
    return problem_of_gemm(gemm)


def _knows(head: bytes, name: str) -> bool:
    return HIPBLASLT.match(head) is not None


TUNER = Tuner("hipblaslt", _knows, _problem, lines=HipblasltReader, below=True)
