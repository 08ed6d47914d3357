"""Rows that say the same, or the opposite, of one key: in a file, and among files that are read as
one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rocm_tui.tables.families import families
from rocm_tui.tables.findings import Given, Hit
from rocm_tui.tables.sheet import Row, Sheet


def _key(sheet: Sheet, row: Row) -> tuple[object, ...]:
    entry = row.entry
    tag = row.cells.get("_tag", "") if sheet.tuner == "aiter" else ""
    return (entry.op, row.device.arch, row.device.units, tag, frozenset(entry.key))


def duplicate(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """The same key twice in a file."""
    if not sheet.is_tuned and sheet.tuner not in ("moe", "aiter triton"):
        return
    first: dict[tuple[object, ...], Row] = {}
    for row in sheet.rows:
        before = first.setdefault(_key(sheet, row), row)
        if before is not row:
            yield _twice(sheet, before, row)


def _twice(sheet: Sheet, before: Row, row: Row) -> Hit:
    same = before.entry.solution == row.entry.solution and before.cells == row.cells
    detail = f"as line {before.line}"
    if sheet.tuner == "aiter":
        what = "with the key of another row of this file: AITER refuses the table"
        if row.entry.op == "grouped_fmoe":
            what = "with the key of another row of this file: one of them is never used"
            return Hit(row.line, what, "keep the faster one", detail, level="warning")
        if row.entry.op == "fused_moe":
            what += " when it merges it, and takes the first row where it reads it alone"
        return Hit(row.line, what, "keep the faster one", detail)
    if sheet.tuner == "tunableop":
        if before.entry.solution == row.entry.solution:
            return Hit(row.line, "written twice, with the same solution", "", detail, level="note")
        what = "with the key of an earlier row and another solution: PyTorch keeps the first one"
        return Hit(row.line, what, "keep the faster one", detail, level="warning")
    if sheet.tuner in ("moe", "aiter triton"):
        what = "written twice: JSON keeps the last one"
        return Hit(row.line, what, "keep one", detail, "step", "note" if same else None)
    if sheet.tuner == "hipblaslt" and before.entry.solution != row.entry.solution:
        what = "with the key of an earlier row, which tells no alpha, beta or leading dimension"
        return Hit(row.line, what, "keep the one that is meant", detail, level="warning")
    if sheet.tuner == "miopen" and not same:
        what = "with the key of an earlier row: MIOpen keeps the first one"
        return Hit(row.line, what, "keep one", detail, level="warning")
    same = same or sheet.tuner == "hipblaslt"
    what = "written twice" if same else "with the key of an earlier row"
    return Hit(row.line, what, "keep one", detail, level="note" if same else None)


def tagged_duplicate(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """Rows of a fused MoE that only their tags tell apart: the loader does not look at tags, but
    for the one that it leaves out."""
    if sheet.tuner != "aiter":
        return
    first: dict[tuple[object, ...], Row] = {}
    for row in sheet.rows:
        tag = row.cells.get("_tag", "")
        if tag == "flydsl_fallback" or "token" not in row.cells:
            continue
        before = first.setdefault((*_key(sheet, row)[:3], frozenset(row.entry.key)), row)
        if before is not row and before.cells.get("_tag", "") != tag:
            what = "that differ from another one in the tag alone: AITER keeps the first one"
            yield Hit(row.line, what, "keep one", f"as line {before.line}")


def merged_duplicate(sheets: Sequence[Sheet], given: Given) -> Iterator[tuple[Sheet, Hit]]:
    """A key in two tables that AITER reads as one: the default one and those of the models."""
    for family in families(sheets):
        if family[0].tuner != "aiter":
            continue
        first: dict[int, tuple[Sheet, int]] = {}  # by hash: a family has many keys
        for sheet in family if len(family) > 1 else ():
            for row in sheet.each_row():
                key = hash(_key(sheet, row))
                other, line = first.setdefault(key, (sheet, row.line))
                if other is sheet:
                    continue
                before = other.row_at(line)
                if _key(other, before) != _key(sheet, row):
                    continue
                differs = before.entry.solution != row.entry.solution
                words = "another" if differs else "the same"
                yield (
                    sheet,
                    Hit(
                        row.line,
                        f"also in {other.name} with {words} solution: AITER stops and writes both "
                        "files anew",
                        "keep the faster one",
                        f"line {before.line} there, {_us(before)} against {_us(row)}",
                    ),
                )


def _us(row: Row) -> str:
    return "no time" if row.entry.ms is None else f"{row.entry.ms * 1e3:g} µs"
