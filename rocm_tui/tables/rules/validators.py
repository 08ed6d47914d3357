"""What makes a library ignore its own results: validators, versions, indices."""

from __future__ import annotations

import re
from collections.abc import Iterator

from backend.counted import counted
from backend.tables.model import BOM
from backend.tables.tunableop import is_of_layout
from rocm_tui.tables.findings import Given, Hit
from rocm_tui.tables.sheet import Sheet

_OF_VERSION = {
    "PT_VERSION": "torch",
    "HIP_VERSION": "hip",
    "ROCM_VERSION": "rocm",
    "HIPBLASLT_VERSION": "hipblaslt",
    "ROCBLAS_VERSION": "rocblas",
}
"""By validator, the library whose version it tells, as it is given."""


_ROCM = frozenset((*_OF_VERSION, "GCN_ARCH_NAME")) - {"PT_VERSION"}


def _validated(sheet: Sheet) -> bool:
    return sheet.tuner == "tunableop" and sheet.is_tuned


def _all_rows(sheet: Sheet) -> str:
    rows = len(sheet.rows)
    return f"PyTorch ignores {'its row' if rows == 1 else 'all ' + counted(rows, 'row')}"


def validator_missing(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """PyTorch asks for every validator that it has itself."""
    if not _validated(sheet):
        return
    facts = sheet.facts
    missing = [] if "PT_VERSION" in facts else ["PT_VERSION"]
    on_rocm = _ROCM & set(facts) or any(
        row.entry.solution.startswith(("Gemm_Hipblaslt", "Gemm_Rocblas")) for row in sheet.rows
    )
    if on_rocm:
        missing += [name for name in ("HIPBLASLT_VERSION", "ROCBLAS_VERSION") if name not in facts]
        if not {"HIP_VERSION", "ROCM_VERSION"} & set(facts):
            missing.append("HIP_VERSION")
        if "GCN_ARCH_NAME" not in facts and _release(facts.get("PT_VERSION", "")) >= (2, 4):
            missing.append("GCN_ARCH_NAME")
    if missing:
        yield Hit(
            None,
            f"{_all_rows(sheet)}: no {', '.join(missing)} among the validators",
            "take the lines `Validator,...` from a file that this PyTorch wrote",
            subject="",
        )


def _release(version: str) -> tuple[int, ...]:
    found = re.match(r"(\d{1,4})\.(\d{1,4})", version, re.ASCII)
    return (int(found[1]), int(found[2])) if found else (99,)


def validator_twice(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """Two files that were put together: the last line of a name counts."""
    if not _validated(sheet):
        return
    seen: dict[str, str] = {}
    for name, value in sheet.table.facts:
        if seen.setdefault(name, value) != value:
            yield Hit(
                None,
                f"{name} stands there as {seen[name]} and as {value}: the last one counts for all "
                "rows, those of the first are taken for what they are not",
                "keep apart what was tuned with different libraries",
                subject="",
            )


def validator_version(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """A file made with other libraries than those given."""
    if not _validated(sheet):
        return
    for name, library in _OF_VERSION.items():
        wanted, told = given.versions.get(library), sheet.facts.get(name)
        if wanted is not None and told is not None and not _is_version(told, wanted):
            yield Hit(
                None,
                f"{_all_rows(sheet)}: {name} is {told}, not {wanted}",
                "tune again: what an index stands for may have changed",
                subject="",
            )


def _is_version(told: str, wanted: str) -> bool:
    """`2.9` means any 2.9.x; of a commit the first letters do."""
    return told == wanted or (
        told.startswith(wanted) and (len(wanted) >= 7 or told[len(wanted)] in ".-+")
    )


def line_ends(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """Readers in C++ keep the \\r, and what is compared whole differs by it; they, and Python's
    JSON, take a byte order mark for a part of the first word."""
    if sheet.table.data.startswith(BOM):
        yield from _marked(sheet)
    if sheet.tuner not in ("tunableop", "hipblaslt") or b"\r\n" not in sheet.table.data:
        return
    if sheet.tuner == "tunableop":
        validators = [line for line in sheet.table.data.splitlines(True) if line.startswith(b"Val")]
        if sheet.is_tuned and any(line.endswith(b"\r\n") for line in validators):
            what = f"{_all_rows(sheet)}: no validator with \\r, as on Windows, matches"
            yield Hit(1, what, "write it again with \\n alone (dos2unix)", subject="")
    elif sheet.table.data.partition(b"\n")[0].endswith(b"\r"):
        what = "the first line ends as on Windows: a Git Version with \\r matches no library"
        yield Hit(1, what, "write it again with \\n alone (dos2unix)", subject="")


def _marked(sheet: Sheet) -> Iterator[Hit]:
    """pandas leaves the mark out."""
    mark = "behind a byte order mark"
    if sheet.tuner == "tunableop" and sheet.is_tuned:
        if sheet.table.data[len(BOM) :].startswith(b"Validator,"):
            what = f"{_all_rows(sheet)}: the first validator, {mark}, is none to it"
            yield Hit(1, what, _UNMARK, subject="")
    elif sheet.tuner == "hipblaslt":
        what = f"the first line stands {mark}, and is another to the library"
        yield Hit(1, what, _UNMARK, subject="")
    elif sheet.tuner in ("moe", "aiter triton"):
        what = f"the file stands {mark}: json.load fails, and so does the program"
        yield Hit(1, what, _UNMARK, subject="")


_UNMARK = "write it again without the mark (sed -i '1s/^\\xEF\\xBB\\xBF//')"


def other_layout(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """A solution that the op does not have ends the program, where its name tells the layout."""
    if sheet.tuner != "tunableop":
        return
    for row in sheet.rows:
        if not is_of_layout(row.entry.solution, row.entry.op):
            yield Hit(
                row.line,
                "with a solution of another layout than the op's, which ends the program",
                "take the row out",
                f"{row.entry.solution} for {row.entry.op}",
            )


def bare_index(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """hipBLASLt's index is a position in the library that was built."""
    if sheet.tuner == "aiter":
        yield from _borrowed(sheet)
    if sheet.tuner != "hipblaslt" or not sheet.is_tuned:
        return
    told = next((value for name, value in sheet.table.facts if "git" in name.lower()), "")
    wanted = given.versions.get("hipblaslt", "").rpartition("-")[2]
    other = bool(told and wanted) and not (told.startswith(wanted) or wanted.startswith(told))
    for row in sheet.rows:
        if row.cells.get("solution_name", ""):
            continue
        if not told:
            what = "without a solution_name in a file without a Git Version, which a library that "
            yield Hit(row.line, what + "compares versions never uses", _NAME_IT, level="error")
        elif other:
            what = f"without a solution_name, of Git Version {told}: {wanted} never uses them"
            yield Hit(row.line, what, _NAME_IT, level="error")
        else:
            what = "without a solution_name: the index dies when hipBLASLt is built anew"
            yield Hit(row.line, what, _NAME_IT)


_NAME_IT = "tune with a hipBLASLt that writes solution_name"


def _borrowed(sheet: Sheet) -> Iterator[Hit]:
    for row in sheet.rows:
        if row.cells.get("libtype") == "hipblaslt" and row.cells.get("solidx", "-1") != "-1":
            what = "whose solution is an index of the hipBLASLt that it was tuned with"
            yield Hit(row.line, what, "tune them again after an upgrade of ROCm", level="note")
