"""Ladders of M: of JSON tables, whose loaders take the nearest step, or the first that is not
smaller."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from rocm_tui.tables.findings import Given, Hit
from rocm_tui.tables.sheet import Row, Sheet

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


def _steps(sheet: Sheet) -> list[Row]:
    return sorted((row for row in sheet.rows if row.m is not None), key=lambda row: row.m or 0)


def short_ladder(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """Nothing is tuned for many tokens, and no default takes their place."""
    steps = _steps(sheet)
    if sheet.tuner != "moe" or not steps:
        return
    last, first = steps[-1].m or 0, steps[0].m or 0
    if last < PREFILL:
        yield Hit(
            steps[-1].line,
            f"every M above {last} takes the step of M {last}, prompts too: the nearest is taken",
            f"add steps up to {4 * PREFILL}, those of the default config where nothing is tuned",
            subject="",
        )
    if first > 1:
        yield Hit(
            steps[0].line,
            f"every M below {first} takes the step of M {first}",
            "add a step of M 1",
            subject="",
            level=None if first >= DECODE else "note",
        )


def wide_gap(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """Steps far apart: what lies between takes the nearer one."""
    if sheet.tuner != "moe":
        return
    steps = _steps(sheet)
    for before, row in pairwise(steps):
        low, high = before.m or 1, row.m or 1
        if high > _WIDE * low:
            what = f"nothing is tuned between M {low} and M {high}"
            yield Hit(row.line, what, f"add steps; what is near {high} takes its step", subject="")


def _bounds(sheet: Sheet) -> frozenset[int] | None:
    """What a kernel of AITER looks for; None for those that look up in other ways."""
    if sheet.tuner != "aiter triton" or not sheet.rows:
        return None
    op = sheet.rows[0].entry.op
    if "CONV" in op or "MHC" in op or "/gluon/" in sheet.table.path or not _GEMM.fullmatch(op):
        return None
    return _BOUNDS.get(op, _BOUNDS[""])


def unreachable_step(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """A step whose name the kernel never asks for."""
    bounds = _bounds(sheet)
    if bounds is None:
        return
    for row in sheet.rows:
        if row.m is not None and row.others[0] and row.m not in bounds:
            listed = ", ".join(map(str, sorted(bounds)))
            yield Hit(
                row.line,
                f"that the kernel never looks for: it asks for M of {listed}",
                "take the next of these sizes",
                row.cells.get("step", ""),
                "step",
            )


def open_end(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """A ladder that ends without `any` fails for what is larger."""
    if _bounds(sheet) is None:
        return
    names = {row.cells.get("step", "") for row in sheet.rows}
    steps = [row for row in _steps(sheet) if row.others[0] == "LEQ"]
    if steps and "any" not in names and not any(name.startswith("M_GEQ_") for name in names):
        yield Hit(
            steps[-1].line,
            f"no step for M above {steps[-1].m}, where the kernel fails with a KeyError",
            "add a step named any",
            subject="",
        )


def step_name(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """Loaders of MoE configs make a number of each name, and fail where it is none."""
    if sheet.tuner != "moe":
        return
    for row in sheet.rows:
        if row.m is None:
            what = "whose name is no number of tokens: the loader fails, and so does the server"
            yield Hit(row.line, what, "take it out", row.entry.key[0][1], "step")
    if _for_sglang(sheet) and b'"triton_version"' in sheet.table.data:
        what = "SGLang makes a number of triton_version and fails; vLLM alone leaves it out"
        yield Hit(1, what, "take the line out", subject="")


def _for_sglang(sheet: Sheet) -> bool:
    """By its folder, or its name, which SGLang writes with a blank."""
    folders = re.split(r"[/\\]", sheet.table.path)[:-1]
    return bool(folders and re.fullmatch(r"triton_\d+(_\d+)*", folders[-1])) or bool(
        re.search(r"block_shape=\[\d+, \d+\]", sheet.name)
    )


_DTYPES = frozenset("fp8_w8a8 fp8_w8a16 int8_w8a8 int8_w8a16 int4_w4a16 float32".split())
"""What either puts into a name; for fp16 and bf16 it is nothing."""


def file_name(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """A name that a loader never asks for: vLLM writes block shapes without blank, SGLang with."""
    if sheet.tuner != "moe" or sheet.rows[:1] == () or sheet.rows[0].entry.op != "fused_moe":
        return
    folders = re.split(r"[/\\]", sheet.table.path)[:-1]
    in_sglang = bool(folders and re.fullmatch(r"triton_\d+(_\d+)*", folders[-1]))
    dtype = sheet.rows[0].cells.get("dtype", "float32")
    if dtype not in _DTYPES:
        what = f"neither vLLM nor SGLang reads a file of this name: none asks for dtype={dtype}"
        yield Hit(None, what, "for fp16 and bf16 leave dtype out", subject="")
    with_blank = re.search(r"block_shape=\[\d+, \d+\]", sheet.name)
    without = re.search(r"block_shape=\[\d+,\d+\]", sheet.name)
    if in_sglang and without:
        what = "SGLang never reads a file of this name: it asks for block_shape with a blank"
        yield Hit(None, what, f"write {without[0].replace(',', ', ')}", subject="")
    if not in_sglang and with_blank:
        what = "vLLM never reads a file of this name: it asks for block_shape without a blank"
        yield Hit(None, what, f"write {with_blank[0].replace(' ', '')}", subject="", level="note")
    if (
        "H200" in sheet.name
        and re.search(r"device_name=NVIDIA_H200_", sheet.name)
        and not in_sglang
    ):
        what = "vLLM never reads a file of this name: every H200 is NVIDIA_H200 to it"
        yield Hit(None, what, "write device_name=NVIDIA_H200", subject="", level="note")


_NEEDED = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M")


def incomplete_step(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """A step without a size that the kernel has no default for."""
    for row in sheet.rows if sheet.tuner == "moe" else ():
        missing = [name for name in _NEEDED if name not in row.cells]
        if missing and "backend" not in row.cells and row.m is not None:
            what = f"without {', '.join(missing)}: the kernel cannot be started"
            yield Hit(row.line, what, "add it", f"M {row.m}", "step")
