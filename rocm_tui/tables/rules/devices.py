"""Rows that cannot match a device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from backend.counted import counted
from backend.tables.model import Device
from rocm_tui.tables.device import may_be
from rocm_tui.tables.families import BY_NAME, families
from rocm_tui.tables.findings import Given, Hit
from rocm_tui.tables.sheet import Sheet

_TUNE = "tune for this device, or leave the table out"


def other_device(sheets: Sequence[Sheet], given: Given) -> Iterator[tuple[Sheet, Hit]]:
    """Rows for other devices than the given one. Where others of what is read as one table match,
    that is as it should be, unless a file has rows of the architecture, and of these none."""
    device = given.device
    if device is None:
        return
    for family in families(sheets):
        fits = any(may_be(row.device, device) for one in family for row in one.each_row())
        for sheet in family:
            if sheet.tuner in BY_NAME and sheet.rows and not fits:
                own = sheet.rows[0].device
                what = f"a table for {own}, which {device} never reads"
                yield sheet, Hit(None, what, _TUNE, subject="")
            elif sheet.tuner not in ("tunableop", *BY_NAME):
                warned = fits or len(family) > 1
                yield from ((sheet, hit) for hit in _of_others(sheet, device, warned))
        if not fits and len(family) > 1 and family[0].tuner == "aiter":
            rows = counted(sum(len(one.table.entries) for one in family), "row")
            what = f"none of the {rows} of these {len(family)} tables can match {device}"
            yield family[0], Hit(None, what, _TUNE, subject="")


def _of_others(sheet: Sheet, device: Device, noted: bool) -> Iterator[Hit]:
    """`noted`: those of other architectures are no more than a note."""
    of_arch = {row.device for row in sheet.each_row() if row.device.arch == device.arch}
    lost = of_arch and not any(may_be(own, device) for own in of_arch)
    for row in sheet.each_row():
        own = row.device
        if may_be(own, device):
            continue
        what = f"for {own} can never match {device}"
        if lost and own.arch == device.arch:
            all_lost = f"{what}, nor can any other row of {own.arch} in this file"
            yield Hit(row.line, all_lost, _units_todo(own, device))
        else:
            yield Hit(row.line, what, "" if noted else _TUNE, level="note" if noted else None)


def _units_todo(own: Device, device: Device) -> str:
    if (
        own.units
        and device.units
        and 2 * min(own.units, device.units) == max(own.units, device.units)
    ):
        return (
            "is one a count of pairs? AITER takes rocminfo's units, PyTorch tells a Radeon's pairs"
        )
    return "compare with `rocminfo`: a partitioned device has fewer compute units, tune again on it"


def validator_device(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """The architecture that a file of TunableOp was made on."""
    told = sheet.facts.get("GCN_ARCH_NAME")
    if sheet.tuner != "tunableop" or given.device is None or told is None or not sheet.is_tuned:
        return
    own = told.strip()
    wanted = given.device.name or given.device.arch
    if (own if ":" in wanted else own.partition(":")[0]) != wanted:
        yield Hit(
            None,
            f"PyTorch on {wanted} ignores all {counted(len(sheet.rows), 'row')}: GCN_ARCH_NAME is "
            f"{own}",
            "tune again on that device",
            subject="",
        )
