"""The configs of vLLM's and SGLang's fused mixtures of experts, and of their products of blocks of
fp8: a JSON document a shape and device, a step for each number of tokens that was tuned.

    E=128,N=1024,device_name=AMD_Instinct_MI300X,dtype=fp8_w8a8,block_shape=[128,128].json
    {"triton_version": "3.4.0", "1": {"BLOCK_SIZE_M": 16, ..., "num_warps": 4}, "2": ...}

All but the tokens stands in the file's name, and no time is told. E is the number of experts, N
the size between their two products, on one rank. SGLang keeps a folder a version of Triton.
"""

from __future__ import annotations

import re
from pathlib import PurePath

from backend.model.problem import Problem
from backend.tables.aiter import FUSED
from backend.tables.gemm import FP8, NotAProblem
from backend.tables.ladder import EDITING, ladder_of
from backend.tables.model import BOM, Device, Entry, Table, Tuner

OP = "fused_moe"
BLOCKS = "block_scaled_mm"
_PAIR = re.compile(r"(\w{1,40})=((?:(?!,\w{1,40}=).){1,200})", re.ASCII)
_HEAD = re.compile(
    rb'\s*\{\s*(?:"triton_version"\s*:\s*"[^"]*"\s*,\s*)?"\d+"\s*:\s*\{\s*"BLOCK_SIZE_M"'
)
_FOLDER = re.compile(r"triton_(\d+(?:_\d+)*)", re.ASCII)


def _table(data: bytes, path: str) -> Table:
    ladder = ladder_of(data)
    name = PurePath(path)
    told = told_of(name.name)
    op = BLOCKS if "K" in told else OP
    device = Device(name=told.pop("device_name", ""))
    facts = dict(ladder.facts)
    folder = _FOLDER.fullmatch(name.parent.name)
    if folder is not None and "triton_version" not in facts:
        facts["triton_version"] = folder[1].replace("_", ".")
    entries = [
        Entry(
            step.line,
            step.start,
            step.end,
            op,
            (("M", "/".join(step.path)), *told.items()),
            step.text,
            device=device,
            extra=step.config,
        )
        for step in ladder.steps
    ]
    return Table(TUNER.name, path, data, tuple(facts.items()), (), entries)


def told_of(name: str) -> dict[str, str]:
    """What a file's name tells; nothing if it is none of such a file."""
    stem, _, suffix = name.rpartition(".")
    whole = stem.removesuffix("_down")
    pairs = _PAIR.findall(whole)
    if suffix != "json" or ",".join(f"{key}={value}" for key, value in pairs) != whole:
        return {}
    told: dict[str, str] = dict(pairs)
    if list(told)[:3] not in (["E", "N", "device_name"], ["N", "K", "device_name"]):
        return {}
    return told if whole == stem else {**told, "projection": "down"}


def _problem(entry: Entry) -> Problem:
    raise NotAProblem(FP8 if entry.op == BLOCKS else FUSED)


def _knows(head: bytes, name: str) -> bool:
    if told_of(name):
        return head.removeprefix(BOM).lstrip()[:1] == b"{"
    return _HEAD.match(head) is not None


TUNER = Tuner("moe", _knows, _problem, document=_table, editing=EDITING)
