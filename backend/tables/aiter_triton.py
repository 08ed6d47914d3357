"""The configs of AITER's Triton kernels: a JSON document a kernel and, where it was tuned for
them, sizes; a step for each range of M.

    gfx942-GEMM-A8W8_BLOCKSCALE-N=3072-K=1536.json
    {"M_LEQ_64": {"BLOCK_SIZE_M": 64, ..., "num_warps": 4}, ..., "any": {...}}

In the newer layout the arch is a folder (`gfx950/triton/gemm/gemm_afp4wfp4/DEFAULT.json`). Kernels
that are no products have steps of other names. No time is told.
"""

from __future__ import annotations

import re
from pathlib import PurePath

from backend.model.problem import Problem
from backend.tables.gemm import NotAProblem
from backend.tables.ladder import EDITING, ladder_of
from backend.tables.model import Device, Entry, Table, Tuner

_SIZES = r"((?:-[A-Za-z0-9]{1,20}=\w{1,40})*)\.json"
_NAME = re.compile(r"(gfx[0-9a-f]{2,6})-([A-Za-z][\w-]{0,200}?)" + _SIZES, re.ASCII)
_NESTED = re.compile(r"([A-Z][\w-]{0,200}?)" + _SIZES, re.ASCII)
_ARCH = re.compile(r"gfx[0-9a-f]{2,6}", re.ASCII)
_STEP = re.compile(rb'"(?:M_[LG]EQ_\d+|any|small_M|large_M)"\s*:\s*\{')
_CONFIG = re.compile(rb'"(?:BLOCK_\w+|num_warps|num_stages|waves_per_eu)"\s*:')


def _table(data: bytes, path: str) -> Table:
    ladder = ladder_of(data)
    arch, op, sizes = _told(PurePath(path))
    device = Device(arch)
    entries = [
        Entry(
            step.line,
            step.start,
            step.end,
            op,
            (("step", "/".join(step.path)), *sizes),
            step.text,
            device=device,
            extra=step.config,
        )
        for step in ladder.steps
    ]
    return Table(TUNER.name, path, data, ladder.facts, (), entries)


def _told(path: PurePath) -> tuple[str, str, tuple[tuple[str, str], ...]]:
    """Arch, kernel and sizes, as far as name and folders tell them."""
    found = _NAME.fullmatch(path.name)
    if found is not None:
        return found[1], found[2], _sizes(found[3])
    folders = [part for part in path.parent.parts if _ARCH.fullmatch(part)]
    arch = folders[-1] if folders else ""
    nested = _NESTED.fullmatch(path.name)
    if nested is None or nested[1] == "DEFAULT":
        folder = path.parent.name
        kernel = folder.upper().replace("_", "-", 1) if folder.startswith("gemm_") else folder
        return arch, (kernel if folders else path.stem), ()
    return arch, nested[1], _sizes(nested[2])


def _sizes(text: str) -> tuple[tuple[str, str], ...]:
    """`-N=3072-K=1536`."""
    pairs = (part.partition("=") for part in text.split("-") if part)
    return tuple((name, size) for name, _, size in pairs)


def _problem(entry: Entry) -> Problem:
    raise NotAProblem("a config for a range of sizes, which is no single product")


def _knows(head: bytes, name: str) -> bool:
    if not name.endswith(".json") or _CONFIG.search(head) is None:
        return False
    named = _NAME.fullmatch(name) is not None or name == "DEFAULT.json"
    return named or _STEP.search(head) is not None


TUNER = Tuner("aiter triton", _knows, _problem, document=_table, editing=EDITING)
