"""hipBLASLt's tuning files (HIPBLASLT_TUNING_FILE), and what `hipblaslt-bench` prints: a header and
rows, in a file behind a line `Git Version: ...`, on a console behind `[0]:` and indented.

The last column is `soulution_index` (so spelt), `solution_index` in newer releases, which have
`kernel_name`, `solution_name`, `gcnArchName` and `CUs` too, where asked for. A file may have
several headers: each run writes its own. Releases of 2024 wrote files without one, and read rows
of 37 cells by their places. On a console, name and index may stand on lines below their row.
What the library looks up by is read in its tensile_host's UserDrivenTuningParser.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping

from backend.model.problem import Problem
from backend.tables.begins import HIPBLASLT
from backend.tables.gemm import NOT_ITS_FORM, NotAProblem, problem_of
from backend.tables.hipblaslt import gemm_of_words
from backend.tables.model import Device, Entry, Fields, NotARow, Tuner, finite

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


class Reader:
    """The lines of one file."""

    def __init__(self, path: str = "") -> None:
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
            told = self._printed.setdefault(self._row, {})
            told[f"solution_{printed[1].decode()}"] = printed[2].decode("utf-8", "replace")
            return False
        if self._git is None and not line.startswith((b"N,", b"T,", b"C,")):
            return False  # what else a console shows
        raise NotARow(NOT_ITS_FORM)

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
        us = finite(row.get("us", ""))
        return Entry(
            number,
            start,
            start + len(line),
            "gemm",
            tuple((name, row.get(name, "")) for name in KEY),
            row.get("solution_name") or index,
            None if us is None else us / 1000,
            _device(row),
            tuple((name, told) for name, told in row.items() if name not in KEY),
        )


def _is_row(line: bytes, columns: tuple[str, ...]) -> bool:
    if columns:
        return line.count(b",") + 1 == len(columns)
    return line.count(b",") + 1 == len(_NO_HEADER) and line.startswith((b"N,", b"T,", b"C,"))


def _device(row: Mapping[str, str]) -> Device:
    """Newer releases say on which device each row was timed."""
    name, units = row.get("gcnArchName", ""), row.get("CUs", "")
    told = units.isascii() and units.isdigit() and len(units) < 6
    return Device(name.partition(":")[0], int(units) if told else None, name)


def _problem(entry: Entry) -> Problem:
    row = {**dict(entry.key), **dict(entry.extra)}
    words = {f"-{name}" if len(name) == 1 else f"--{name}": told for name, told in row.items()}
    if row.get("bias_vector", "0") == "0":
        words.pop("--bias_vector", None)
    gemm = gemm_of_words(words)
    if gemm is None:
        raise NotAProblem(NOT_ITS_FORM)
    return problem_of(gemm)


def _knows(head: bytes, name: str) -> bool:
    return HIPBLASLT.match(head) is not None


TUNER = Tuner("hipblaslt", _knows, _problem, lines=Reader, below=True)
