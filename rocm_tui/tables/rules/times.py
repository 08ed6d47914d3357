"""Times that cannot be, times that neighbours contradict, numbers that contradict each other."""

from __future__ import annotations

from collections.abc import Iterator

from rocm_tui.session.devices import Peak, devices
from rocm_tui.tables.findings import Given, Hit
from rocm_tui.tables.sheet import Row, Sheet

ROUNDING = 0.05
"""By how much two numbers may differ that tell the same, or a time be better than the peak."""
SLOWER = 2.0
"""Times the row of a larger product takes, from which on a row is one to tune again."""
ODD = 1.2
"""Times the row of the next larger M, of which another solution is the choice."""
COPIED_MS = 0.1
"""From here on, with twice the work, no two measurements are the same."""
_FLOOR_MS = 0.005
"""What is closer together is noise of launching."""


def no_time(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """A time of 0, below it, or that is no number."""
    if not sheet.is_tuned:
        return
    for row in sheet.rows:
        told = _told(sheet, row)
        if told is None:
            if sheet.tuner == "tunableop" and row.entry.solution:
                what = "without a time that can be read: PyTorch takes the solution all the same"
                yield Hit(row.line, what, "mend them, or tune them again")
            continue
        if told <= 0:
            aiter = sheet.tuner == "aiter"
            todo = (
                "a merge keeps the smallest time of a key, so they win; tune them" if aiter else ""
            )
            yield Hit(row.line, f"with a time of {told:g}", todo or "tune them again")
        elif told != told:
            what = "whose time is nan, as a pin leaves it: none was taken of the solution"
            yield Hit(row.line, what, level="note")
        elif told == float("inf"):
            yield Hit(row.line, "with a time that is inf", "nothing ran there; tune them again")


def _told(sheet: Sheet, row: Row) -> float | None:
    """The time as it is written, in any unit; None where none has to be."""
    if row.entry.ms is not None and row.entry.ms > 0:
        return row.entry.ms
    if sheet.tuner == "tunableop":
        word = sheet.table.text(row.entry).decode("utf-8", "replace").split(",")[3:4]
    else:
        word = [row.cells["us"]] if "us" in row.cells else []
    try:
        return float(word[0]) if word and word[0].strip() else None
    except ValueError:
        return None


def above_peak(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """Faster than the arithmetic, or the memory, of the fastest such device."""
    for row in sheet.rows:
        rate = impossible(row)
        if rate:
            device = str(row.device)
            yield Hit(
                row.line,
                f"faster than any {device} can be",
                "a placeholder, a copy, or a measurement that failed; tune them again",
                rate,
            )


def impossible(row: Row) -> str:
    """What the row claims and the device cannot do; empty if it can, or nobody knows."""
    ms, work = row.entry.ms, row.work
    if ms is None or ms <= 0 or work is None:
        return ""
    peaks = _peaks(row)
    if not peaks:
        return ""
    kind = work.kind
    roofs = [peak.tflops[kind] for peak in peaks if kind is not None and kind in peak.tflops]
    tflops = work.flops / ms / 1e9
    if len(roofs) == len(peaks) and tflops > max(roofs) * (1 + ROUNDING):
        return f"{tflops:,.0f} TFLOP/s in {ms * 1e3:g} µs, the peak is {max(roofs):,.0f}"
    if work.moved is None:
        return ""
    gbs = max(peak.gbs for peak in peaks)
    cached = max((level.bytes for peak in peaks for level in peak.caches), default=0)
    rate = (work.moved - 2 * cached) / ms / 1e6
    if rate > gbs * (1 + ROUNDING):
        return f"{rate:,.0f} GB/s in {ms * 1e3:g} µs, its memory gives {gbs:,.0f}"
    return ""


def _peaks(row: Row) -> list[Peak]:
    """Of all devices that the row may be of; of one that is not known, those of its architecture
    that have more compute units."""
    own = row.device
    known = [device for device in devices() if device.arch == own.arch]
    same = [device.peak for device in known if own.units is None or own.units in device.units]
    return same or [device.peak for device in known if max(device.units) > (own.units or 0)]


def slower_than_larger(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """A product that takes much longer than a larger one of its kind, which could stand for it."""
    for ladder in ladders(sheet):
        best: Row | None = None
        for row in reversed(ladder):
            ms = row.entry.ms or 0.0
            if best is not None and (best.m or 0) > (row.m or 0):
                fast = best.entry.ms or 0.0
                if ms > SLOWER * fast and ms - fast > _FLOOR_MS:
                    yield Hit(
                        row.line,
                        f"more than {SLOWER:g} times as slow as a row of larger M",
                        "tune them again, or take the solution of the larger one",
                        f"M {row.m} takes {ms * 1e3:,.4g} µs, M {best.m} {fast * 1e3:,.4g} µs, "
                        f"line {best.line}",
                        level=None if sheet.tuner == "aiter" else "note",
                    )
            if best is None or ms < (best.entry.ms or 0.0):
                best = row


def odd_one_out(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """A solution at one M between two that share another one, and are as fast or faster."""
    for ladder in ladders(sheet):
        for before, row, after in zip(ladder, ladder[1:], ladder[2:], strict=False):
            if before.entry.solution == after.entry.solution != row.entry.solution and (
                (row.entry.ms or 0.0) > ODD * (after.entry.ms or 0.0)
            ):
                yield Hit(
                    row.line,
                    "with a solution that no neighbour in M has, slower than the next larger M",
                    "tune them again",
                    f"M {row.m} between {before.m} and {after.m}",
                )


def copied(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """The time of a smaller M to its last digit, with its solution: nobody timed this one."""
    first: dict[tuple[object, ...], Row] = {}
    for row in sorted((row for row in sheet.rows if row.m), key=lambda row: row.m or 0):
        if row.entry.ms and row.entry.ms >= COPIED_MS:
            alike = (row.others, row.entry.ms, row.entry.solution)
            before = first.setdefault(alike, row)
            if (row.m or 0) >= 2 * (before.m or 0):
                what = "with the very time of an M that is half as large or less"
                detail = f"M {row.m} as M {before.m}, line {before.line}"
                yield Hit(row.line, what, "a copy: tune them", detail)


def ladders(sheet: Sheet) -> list[list[Row]]:
    """Rows that differ in M alone, with times that can be, by M."""
    found: dict[tuple[object, ...], list[Row]] = {}
    for row in sheet.rows:
        if row.m is not None and row.entry.ms and not impossible(row) and not _contradiction(row):
            found.setdefault(row.others, []).append(row)
    return [sorted(rows, key=lambda row: row.m or 0) for rows in found.values() if len(rows) > 1]


def contradiction(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """Columns of one row that cannot all be true."""
    for row in sheet.rows:
        for what, detail in _contradiction(row):
            moe = "token" in row.cells  # whose tuner has counted operations in several ways
            todo = "one of them was edited, or is of another run: tune them again"
            yield Hit(row.line, what, "" if moe else todo, detail, level="note" if moe else None)


def _contradiction(row: Row) -> list[tuple[str, str]]:
    """Not where a number is 0: tuners write it for what they did not work out."""
    ms, cells = row.entry.ms, row.cells
    if ms is None or ms <= 0:
        return []
    found = []
    tflops, gflops = _number(cells, "tflops"), _number(cells, "hipblaslt-Gflops")
    rate = tflops or (gflops or 0.0) / 1e3
    if rate and row.work is not None:
        true = row.work.flops / ms / 1e9
        if abs(rate - true) > ROUNDING * true + 0.011:  # two decimals
            found.append(
                (
                    "whose rate is not its operations by its time",
                    f"{rate:g} TFLOP/s, not {true:.4g}",
                )
            )
    first, second = _number(cells, "us1"), _number(cells, "us2")
    if first is not None and second is not None and "token" in cells:
        both = first + second
        if both > 0 and abs(both - ms * 1e3) > ROUNDING * both + 0.1:
            found.append(
                ("whose two stages do not add up to its time", f"{both:g} µs, not {ms * 1e3:g}")
            )
    return found


def _number(cells: object, name: str) -> float | None:
    assert isinstance(cells, dict)
    try:
        return float(cells.get(name, ""))
    except ValueError:
        return None
