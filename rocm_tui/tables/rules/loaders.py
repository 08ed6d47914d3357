"""Rows and columns at which a library's own reader stops, or which it never uses."""

from __future__ import annotations

import re
from collections.abc import Iterator

from backend.tables.hipblaslt import INDEX
from rocm_tui.tables.findings import Given, Hit, Level
from rocm_tui.tables.sheet import UNITS_ARCH, Sheet

_LARGEST_TIER = 131072
_LARGEST_POWER = 32768


def unreadable(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """A line that is no row of its table."""
    fails = sheet.tuner == "aiter"
    for fault in sheet.table.problems:
        level: Level | None = None if fails or sheet.tuner == "moe" else "warning"
        todo = "AITER's reader may stop at it; mend it or take it out" if fails else "mend it"
        yield Hit(fault.line, f"unreadable: {fault.what}", todo, subject="line", level=level)


def unused_row(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """Rows that no call comes to."""
    if sheet.tuner == "hipblaslt" and sheet.is_tuned:
        yield from _unread_by_hipblaslt(sheet)
    if sheet.tuner != "aiter" or not sheet.is_tuned:
        return
    for row in sheet.rows:
        cells = row.cells
        if row.entry.op != "fused_moe" or row.m is None:
            continue
        if cells.get("_tag") == "flydsl_fallback":
            what = "tagged flydsl_fallback, which the loader leaves out"
            yield Hit(row.line, what, level="note")
        elif not _is_tier(row.m):
            what = "for a number of tokens that no call is rounded to"
            todo = "powers of two up to 32768 are looked up, and 131072"
            yield Hit(row.line, what, todo, f"token {row.m}")


def _unread_by_hipblaslt(sheet: Sheet) -> Iterator[Hit]:
    """Its reader takes one row below each line of names, by the column `solution_index`."""
    data = sheet.table.data
    headed = bool(sheet.table.columns)
    for row in sheet.rows:
        index = next((row.cells[name] for name in INDEX if name in row.cells), "")
        above = data[: row.entry.start].rstrip().rpartition(b"\n")[2]
        if re.fullmatch(r"0+|-\d+", index, re.ASCII):
            yield Hit(row.line, "of index 0 or below, which hipBLASLt leaves out", "tune again")
        elif "soulution_index" in sheet.table.columns:
            what = "below a column soulution_index, as consoles have it: hipBLASLt leaves them out"
            yield Hit(row.line, what, "write solution_index")
        elif not headed:
            what = "in a file without names, as hipBLASLt of 2024 wrote it: newer ones take no row"
            yield Hit(row.line, what, "tune again with the one in use")
        elif b"transA" not in above:
            what = "without a line of names right above: hipBLASLt reads one row below each"
            yield Hit(row.line, what, "write the names above each row")


def _is_tier(tokens: int) -> bool:
    power = tokens > 0 and tokens & (tokens - 1) == 0
    return (power and tokens <= _LARGEST_POWER) or tokens == _LARGEST_TIER


_NEEDED = {
    "gemm_a16w16": "gfx cu_num M N K bias dtype outdtype scaleAB bpreshuffle".split(),
}
"""Columns without which AITER's loader fails, of a table that is read alone."""


def missing_column(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """Columns that a lookup needs."""
    columns = sheet.table.columns
    if sheet.tuner != "aiter" or not sheet.rows or not sheet.is_tuned:
        return
    needed = _NEEDED.get(sheet.rows[0].entry.op, [])
    missing = [name for name in needed if name not in columns]
    if missing:
        what = f"no column {', '.join(missing)}: read alone, the table fails with a KeyError"
        yield Hit(1, what, "let AITER's tuner write it again", subject="")
    elif "gfx" not in columns and "cu_num" in columns and not _is_inferred(sheet):
        what = "no column gfx: devices are told apart by compute units alone"
        todo = "gfx950 and gfx1250 both have 256: let AITER's tuner write it again"
        yield Hit(1, what, todo, subject="", level="note")


def _is_inferred(sheet: Sheet) -> bool:
    """Whether the loader fills the column in, from compute units that stand for one."""
    moe = sheet.rows[0].entry.op == "fused_moe"
    return moe and all(row.entry.device.units in UNITS_ARCH for row in sheet.rows)


def mixed_words(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """A column of True and False with a number in it is read as texts, and no text is True."""
    if sheet.tuner != "aiter":
        return
    for name in ("bias", "scaleAB", "bpreshuffle"):
        if name not in sheet.table.columns:
            continue
        words = [(row, row.cells.get(name, "").strip()) for row in sheet.rows]
        odd = [row for row, word in words if word.lower() not in ("true", "false", "")]
        if odd and len(odd) < len(words):
            what = f"with a {name} that is neither True nor False: pandas reads the column as texts"
            detail = f"{name} {odd[0].cells.get(name, '')}"
            yield Hit(odd[0].line, what, "write True or False; else no row matches", detail)
