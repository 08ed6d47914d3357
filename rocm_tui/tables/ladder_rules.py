"""Rules of `lint` about ladders of M: steps missing or never looked up, impossible times.

Loaders of JSON tables take the nearest step, or the first that is not smaller.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise

from rocm_tui.session.devices import Peak, devices
from rocm_tui.tables.findings import Given, Hit, Level, sentence
from rocm_tui.tables.sheet import Sheet, SheetRow

PREFILL = 1024
"""The largest step of a ladder has to reach it: a prompt has more tokens than a batch has."""
DECODE = 64
"""A ladder that begins here gives a single token the config of a batch."""
_WIDE = 8
"""From one step to the next."""
_BOUNDS: dict[str, frozenset[int]] = {
    "": frozenset((1, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)),
    "GEMM-AFP4WFP4_PRESHUFFLED": frozenset(
        (4, 8, 16, 31, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
    ),
    "BATCHED_GEMM-AFP4WFP4": frozenset(
        (4, 8, 16, 32, 64, 128, 256, 320, 512, 1024, 2048, 4096, 8192)
    ),
    "FF-A16W16-fused": frozenset((4, 8, 64, 4096)),
    "GEMM-A16W16-gated": frozenset((64, 128, 256, 512, 2048)),
}
"""The sizes that AITER looks for in a file of a kernel, where the kernel names others than all
kernels have."""
_GEMM = re.compile(r"(?:\w+_)?(?:GEMM|FF)-[\w-]+|FUSED-GEMM-[\w-]+", re.ASCII)


def _steps(sheet: Sheet) -> list[SheetRow]:
    return sorted((row for row in sheet.rows if row.m is not None), key=lambda row: row.m or 0)


def short_ladder(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """Nothing is tuned for many tokens, and no default takes their place."""
    steps = _steps(sheet)
    if not steps:
        return
    last, first = steps[-1].m or 0, steps[0].m or 0
    if last < PREFILL:
        what = f"every M above {last} takes the step of M {last}, prompts too: the nearest is taken"
        todo = f"add steps up to {4 * PREFILL}, those of the default config where nothing is tuned"
        yield sentence(steps[-1].line, what, todo)
    if first > 1:
        what = f"every M below {first} takes the step of M {first}"
        yield sentence(
            steps[0].line, what, "add a step of M 1", None if first >= DECODE else "note"
        )


def wide_gap(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """Find steps far apart: sizes between them take the nearer one."""
    for before, row in pairwise(_steps(sheet)):
        low, high = before.m or 1, row.m or 1
        if high > _WIDE * low:
            what = f"nothing is tuned between M {low} and M {high}"
            yield sentence(row.line, what, f"add steps: sizes near {high} use its step")


def _bounds(sheet: Sheet) -> frozenset[int]:
    """Return the sizes that a kernel of AITER looks up; none for kernels with another lookup."""
    op = sheet.rows[0].entry.op if sheet.rows else ""
    if "CONV" in op or "MHC" in op or "/gluon/" in sheet.table.path or not _GEMM.fullmatch(op):
        return frozenset()
    return _BOUNDS.get(op, _BOUNDS[""])


def unreachable_step(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """Find steps that the kernel never looks up."""
    bounds = _bounds(sheet)
    listed = ", ".join(map(str, sorted(bounds)))
    for row in sheet.rows if bounds else ():
        if row.m is not None and row.others[0] and row.m not in bounds:
            what = f"that the kernel never looks up: it uses only M of {listed}"
            todo = "use the next of these sizes"
            yield Hit(row.line, what, todo, row.cells.get("step", ""), "step")


def open_end(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """Find ladders that end without `any`, which fail for larger sizes."""
    names = {row.cells.get("step", "") for row in sheet.rows} if _bounds(sheet) else {"any"}
    steps = [row for row in _steps(sheet) if row.others[0] == "LEQ"]
    if steps and "any" not in names and not any(name.startswith("M_GEQ_") for name in names):
        what = f"no step for M above {steps[-1].m}, where the kernel fails with a KeyError"
        yield sentence(steps[-1].line, what, "add a step named any")


def step_name(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """Find names that are not numbers, on which loaders of MoE configs fail."""
    for row in sheet.rows:
        if row.m is None:
            what = "whose name is not a number of tokens: the loader fails, and so does the server"
            yield Hit(row.line, what, "remove it", row.entry.key[0][1], "step")
    for_sglang = _in_sglang(sheet) or _WITH_BLANK.search(sheet.name)
    if for_sglang and b'"triton_version"' in sheet.table.data:
        what = "SGLang converts triton_version to a number and fails; only vLLM ignores it"
        yield sentence(1, what, "remove the line")


_WITH_BLANK = re.compile(r"block_shape=\[\d+, \d+\]")
_DTYPES = frozenset("fp8_w8a8 fp8_w8a16 int8_w8a8 int8_w8a16 int4_w4a16 float32".split())
"""The dtypes in file names of vLLM and SGLang; fp16 and bf16 have none."""


def _in_sglang(sheet: Sheet) -> bool:
    folder = re.split(r"[/\\]", sheet.table.path)[-2:-1]
    return bool(folder and re.fullmatch(r"triton_\d+(_\d+)*", folder[0]))


def file_name(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """Find file names that no loader reads: block shapes have a space in SGLang, none in vLLM."""
    if not sheet.rows or sheet.rows[0].entry.op != "fused_moe":
        return
    dtype = sheet.rows[0].cells.get("dtype", "float32")
    never = "never reads a file with this name:"
    if dtype not in _DTYPES:
        what = f"neither vLLM nor SGLang reads a file with this name: no dtype={dtype}"
        yield sentence(None, what, "for fp16 and bf16, omit dtype")
    with_blank = _WITH_BLANK.search(sheet.name)
    without = re.search(r"block_shape=\[\d+,\d+\]", sheet.name)
    if _in_sglang(sheet):
        if without:
            what = f"SGLang {never} it writes block_shape with a space"
            yield sentence(None, what, f"write {without[0].replace(',', ', ')}")
        return
    if with_blank:
        what = f"vLLM {never} it writes block_shape without a space"
        yield sentence(None, what, f"write {with_blank[0].replace(' ', '')}", "note")
    if "device_name=NVIDIA_H200_" in sheet.name:
        what = f"vLLM {never} it calls every H200 NVIDIA_H200"
        yield sentence(None, what, "write device_name=NVIDIA_H200", "note")


_NEEDED = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M")


def incomplete_step(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """Find steps without a size for which the kernel has no default."""
    for row in sheet.rows:
        missing = [name for name in _NEEDED if name not in row.cells]
        if missing and "backend" not in row.cells and row.m is not None:
            what = f"without {', '.join(missing)}: the kernel cannot be started"
            yield Hit(row.line, what, "add it", f"M {row.m}", "step")


ROUNDING = 0.05
"""Relative tolerance between two equal numbers, and of a time better than the peak."""
SLOWER = 2.0
"""A row is tuned again if it takes this many times as long as one of a larger product."""
ODD = 1.2
"""A solution of its own is odd if it takes this many times as long as the next larger M."""
COPIED_MS = 0.1
"""From this time on, two measurements with twice the work are never equal."""
_FLOOR_MS = 0.005
"""Smaller differences are launch noise."""


def no_time(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """Find impossible times: 0, negative, infinite, absurd, or not a number."""
    for row in sheet.rows:
        word = _time_as_written(sheet, row)
        if word is None:
            continue
        try:
            written = float(word)
        except ValueError:
            what = "without a time that can be read"
            if sheet.tuner == "tunableop":
                what += ": PyTorch uses the solution anyway"
            yield Hit(row.line, what, "correct them, or tune them again")
            continue
        if math.isnan(written):
            what = "whose time is nan, as a pin writes it: the solution was not timed"
            yield Hit(row.line, what, level="note")
        elif written <= 0:
            aiter = sheet.tuner == "aiter"
            todo = "a merge keeps the smallest time of a key, so they win; tune them again"
            yield Hit(row.line, f"with a time of {written:g}", todo if aiter else _AGAIN)
        elif math.isinf(written):
            yield Hit(row.line, "with a time that is inf", f"nothing ran; {_AGAIN}")
        else:
            yield Hit(row.line, f"with a time of {written:g}, which is impossible", _AGAIN)


_AGAIN = "tune them again"


def _time_as_written(sheet: Sheet, row: SheetRow) -> str | None:
    """Return the text of a time that is not one, or None where no time is required."""
    entry = row.entry
    if sheet.tuner == "miopen":
        solvers = (values.split(",") for _, values in entry.extra)
        return next(
            (words[0] for words in solvers if words[2:] and words[2].startswith("miopen")), None
        )
    if not entry.solution or entry.ms is not None:
        return None
    if sheet.tuner == "tunableop":
        cells = sheet.table.text(entry).decode("utf-8", "replace").split(",")
        return cells[3] if len(cells) > 3 else ""
    return row.cells.get("us")


def above_peak(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """Find times beyond the peak arithmetic or bandwidth of the fastest such device."""
    for row in sheet.rows:
        if rate := impossible(row):
            todo = "a placeholder, a copy, or a failed measurement: tune them again"
            yield Hit(row.line, f"faster than any {row.device} can be", todo, rate)


def impossible(row: SheetRow) -> str:
    """Return what the row claims and the device cannot do; empty if it can, or if that is
    unknown."""
    ms, work, peaks = row.entry.ms, row.work, _peaks(row)
    if ms is None or work is None or not peaks:
        return ""
    roofs = [peak.tflops[work.kind] for peak in peaks if work.kind and work.kind in peak.tflops]
    tflops = work.flops / ms / 1e9
    if len(roofs) == len(peaks) and tflops > max(roofs) * (1 + ROUNDING):
        return f"{tflops:,.0f} TFLOP/s in {ms * 1e3:g} µs, the peak is {max(roofs):,.0f}"
    if work.moved is None:
        return ""
    gbs = max(peak.gbs for peak in peaks)
    cached = max((level.bytes for peak in peaks for level in peak.caches), default=0)
    rate = (work.moved - 2 * cached) / ms / 1e6
    if rate > gbs * (1 + ROUNDING):
        return f"{rate:,.0f} GB/s in {ms * 1e3:g} µs, the peak is {gbs:,.0f}"
    return ""


def _peaks(row: SheetRow) -> list[Peak]:
    """Return the peaks of all devices that the row may be for.

    For an unknown device those of its architecture that have more compute units.
    """
    own = row.device
    kin = [device for device in devices() if device.arch == own.arch]
    same = [device.peak for device in kin if own.units is None or own.units in device.units]
    return same or [device.peak for device in kin if max(device.units) > (own.units or 0)]


def slower_than_larger(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """Find products that take much longer than a larger one of the same kind."""
    for ladder in ladders(sheet):
        best: SheetRow | None = None
        for row in reversed(ladder):
            ms = row.entry.ms or 0.0
            if best is not None and (best.m or 0) > (row.m or 0):
                fast = best.entry.ms or 0.0
                if ms > SLOWER * fast and ms - fast > _FLOOR_MS:
                    what = f"more than {SLOWER:g} times as slow as a row of larger M"
                    todo = "tune them again, or take the solution of the larger one"
                    level: Level | None = None if sheet.tuner == "aiter" else "note"
                    other = f"M {best.m} {fast * 1e3:,.4g} µs, line {best.line}"
                    detail = f"M {row.m} takes {ms * 1e3:,.4g} µs, {other}"
                    yield Hit(row.line, what, todo, detail, level=level)
            if best is None or ms < (best.entry.ms or 0.0):
                best = row


def odd_one_out(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """Find a slow solution at one M between two neighbours that share another solution."""
    for ladder in ladders(sheet):
        for before, row, after in zip(ladder, ladder[1:], ladder[2:], strict=False):
            alike = before.entry.solution == after.entry.solution != row.entry.solution
            if alike and (row.entry.ms or 0.0) > ODD * (after.entry.ms or 0.0):
                what = "with a solution that no neighbour in M has, and slower than the next M"
                yield Hit(row.line, what, _AGAIN, f"M {row.m} between {before.m} and {after.m}")


def copied(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """Find rows with exactly the time and solution of a smaller M: they were copied."""
    first: dict[tuple[object, ...], SheetRow] = {}
    for row in sorted((row for row in sheet.rows if row.m), key=lambda row: row.m or 0):
        if row.entry.ms and row.entry.ms >= COPIED_MS:
            alike = (row.others, row.entry.ms, row.entry.solution)
            before = first.setdefault(alike, row)
            if (row.m or 0) >= 2 * (before.m or 0):
                what = "with exactly the time of an M at most half as large"
                detail = f"M {row.m} as M {before.m}, line {before.line}"
                yield Hit(row.line, what, "copied: tune them", detail)


def ladders(sheet: Sheet) -> list[list[SheetRow]]:
    """Group rows with possible times that differ only in M, sorted by M."""
    groups: dict[tuple[object, ...], list[SheetRow]] = {}
    for row in sheet.rows:
        if row.m is not None and row.entry.ms and not impossible(row) and not _contradiction(row):
            groups.setdefault(row.others, []).append(row)
    return [sorted(rows, key=lambda row: row.m or 0) for rows in groups.values() if len(rows) > 1]


def contradiction(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """Find columns of a row that contradict each other."""
    for row in sheet.rows:
        for what, detail in _contradiction(row):
            moe = "token" in row.cells  # AITER has counted its operations in several ways
            todo = "edited, or merged from different runs: tune them again"
            yield Hit(row.line, what, "" if moe else todo, detail, level="note" if moe else None)


def _contradiction(row: SheetRow) -> list[tuple[str, str]]:
    """Compare a row's numbers; a 0 is skipped, since tuners write it for unknown values."""
    ms, cells = row.entry.ms, row.cells
    if ms is None:
        return []
    wrong = []
    rate = _number(cells, "tflops") or (_number(cells, "hipblaslt-Gflops") or 0.0) / 1e3
    true = 0.0 if row.work is None else row.work.flops / ms / 1e9
    if rate and row.work is not None and abs(rate - true) > ROUNDING * true + 0.011:  # two decimals
        what = "whose rate is not its operations divided by its time"
        wrong.append((what, f"{rate:g} TFLOP/s, not {true:.4g}"))
    first, second = _number(cells, "us1"), _number(cells, "us2")
    if first is not None and second is not None and "token" in cells:
        both = first + second
        if both > 0 and abs(both - ms * 1e3) > ROUNDING * both + 0.1:
            what = "whose two stages do not sum to its time"
            wrong.append((what, f"{both:g} µs, not {ms * 1e3:g}"))
    return wrong


def _number(cells: Mapping[str, str], name: str) -> float | None:
    try:
        return float(cells.get(name, ""))
    except ValueError:
        return None
