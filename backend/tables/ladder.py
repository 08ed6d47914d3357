"""JSON documents of configs, each under its step: `{"64": {"BLOCK_SIZE_M": 16, ...}, ...}`.

They are read with the place of each step in the file, twice a name that is written twice, and
numbers as they are written. No time is in them. Two kinds are known.

AITER's Triton kernels: a document a kernel and, where it was tuned for them, sizes; a step for each
range of M.

    gfx942-GEMM-A8W8_BLOCKSCALE-N=3072-K=1536.json
    {"M_LEQ_64": {"BLOCK_SIZE_M": 64, ..., "num_warps": 4}, ..., "any": {...}}

In the newer layout the arch is a folder (`gfx950/triton/gemm/gemm_afp4wfp4/DEFAULT.json`). Kernels
that are no products have steps of other names.

The fused mixtures of experts of vLLM and SGLang, and their products of blocks of fp8: a document a
shape and device, a step for each number of tokens that was tuned.

    E=128,N=1024,device_name=AMD_Instinct_MI300X,dtype=fp8_w8a8,block_shape=[128,128].json
    {"triton_version": "3.4.0", "1": {"BLOCK_SIZE_M": 16, ..., "num_warps": 4}, "2": ...}

All but the tokens is in the file's name. E is the number of experts, N the size between their two
products, on one rank. SGLang keeps a folder for each version of Triton.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from backend.model.problem import Problem
from backend.tables import model
from backend.tables.aiter import FUSED
from backend.tables.model import (
    BOM,
    FP8,
    Editing,
    Entry,
    Fields,
    NotAProblem,
    Table,
    TableDevice,
    Tuner,
)

MAX_DOCUMENT = 4 << 20
"""Bytes. The largest public ones have 40 kB."""
_DEEPEST = 16
_BLANK = re.compile(r"[ \t\r\n]*")
_SPACES = re.compile(r"\s+")
_DECODER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)


@dataclass(frozen=True, slots=True)
class LadderStep:
    """A config, `config` in the order of the file. It lies from byte `start`, where its name
    begins, to `end`, on `line` (from 1). `path` is its name, behind those of the objects it is in.
    """

    path: tuple[str, ...]
    config: Fields
    line: int
    start: int
    end: int

    @property
    def text(self) -> str:
        """`BLOCK_SIZE_M=16, BLOCK_SIZE_N=32`."""
        return ", ".join(f"{name}={value}" for name, value in self.config)


@dataclass(frozen=True, slots=True)
class Ladder:
    """`facts` is what the document says of all its steps."""

    facts: Fields
    steps: tuple[LadderStep, ...]


def ladder_of(data: bytes) -> Ladder:
    """An object with a value that is none, below the document itself, is a step; one of objects
    alone holds steps. Raises ValueError for what is no JSON object, too large or too deep."""
    if len(data) > MAX_DOCUMENT:
        raise ValueError(f"larger than {MAX_DOCUMENT >> 20} MiB")
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is no UTF-8") from error
    text = data.decode("latin-1")  # a character a byte: places in the text are places in the file
    at = _skip(text, len(BOM) if data.startswith(BOM) else 0)
    if text[at : at + 1] != "{":
        raise ValueError(_damaged(text, at))
    try:
        members, end = _members(text, at, 0)
    except RecursionError as error:
        raise ValueError("too deep") from error
    if _skip(text, end) != len(text):
        raise ValueError(_damaged(text, end))
    facts = tuple((each.name, each.text) for each in members if each.members is None)
    return Ladder(facts, tuple(_steps(text, members)))


@dataclass(frozen=True, slots=True)
class _Member:
    """`text` is its value, `members` those of a value that is an object."""

    name: str
    text: str
    members: tuple[_Member, ...] | None
    start: int
    end: int


def _members(text: str, at: int, depth: int) -> tuple[tuple[_Member, ...], int]:
    """Return the members of the object that begins at `at`, and its end."""
    if depth > _DEEPEST:
        raise ValueError("too deep")
    members: list[_Member] = []
    at = _skip(text, at + 1)
    while text[at : at + 1] == '"':
        start = at
        name, at = _scalar(text, at)
        at = _skip(text, at)
        if text[at : at + 1] != ":":
            raise ValueError(_damaged(text, at))
        at = _skip(text, at + 1)
        within = None
        if text[at : at + 1] == "{":
            within, end = _members(text, at, depth + 1)
            value = _written(text, at, end)
        else:
            value, end = _scalar(text, at)
        members.append(_Member(name, value, within, start, end))
        at = end
        at = _skip(text, at)
        if text[at : at + 1] != ",":
            break
        at = _skip(text, at + 1)
        if text[at : at + 1] != '"':
            raise ValueError(_damaged(text, at))
    if text[at : at + 1] != "}":
        raise ValueError(_damaged(text, at))
    return tuple(members), at + 1


def _scalar(text: str, at: int) -> tuple[str, int]:
    """A value that is no object, and its end: a text without its quotes, all else as written."""
    try:
        value, end = _DECODER.raw_decode(text, at)
    except ValueError as error:
        raise ValueError(_damaged(text, at)) from error
    if text[at] == '"':
        return _in_utf8(value), end
    return _written(text, at, end), end


def _written(text: str, start: int, end: int) -> str:
    return _in_utf8(_SPACES.sub(" ", text[start:end]))


def _in_utf8(text: str) -> str:
    try:
        return text.encode("latin-1").decode()
    except UnicodeError:  # something of it was escaped
        return text


def _steps(text: str, members: tuple[_Member, ...]) -> Iterator[LadderStep]:
    line, counted = 1, 0
    for path, step in _objects(members, ()):
        line += text.count("\n", counted, step.start)
        counted = step.start
        config = tuple((each.name, each.text) for each in step.members or ())
        yield LadderStep(path, config, line, step.start, step.end)


def _objects(
    members: tuple[_Member, ...], above: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], _Member]]:
    for each in members:
        if each.members is None:
            continue
        path = (*above, each.name)
        if not each.members or any(within.members is None for within in each.members):
            yield path, each
        else:
            yield from _objects(each.members, path)


def _skip(text: str, at: int) -> int:
    blanks = _BLANK.match(text, at)
    assert blanks is not None
    return blanks.end()


def _damaged(text: str, at: int) -> str:
    line = text.count("\n", 0, at) + 1
    return f"line {line} is no JSON" if at < len(text) else f"cut off on line {line}"


def _values(entry: Entry) -> dict[str, str]:
    return {name: value for name, value in entry.extra if model.is_whole_number(value)}


def _edit(columns: Sequence[str], text: bytes, values: Mapping[str, str]) -> bytes:
    return model.with_json_members(text, values)


EDITING = Editing(_values, _edit)
"""Changes numbers of a step; a number that the step lacks is not added."""


_SIZES = r"((?:-[A-Za-z0-9]{1,20}=\w{1,40})*)\.json"
_NAME = re.compile(r"(gfx[0-9a-f]{2,6})-([A-Za-z][\w-]{0,200}?)" + _SIZES, re.ASCII)
_NESTED = re.compile(r"([A-Z][\w-]{0,200}?)" + _SIZES, re.ASCII)
_ARCH = re.compile(r"gfx[0-9a-f]{2,6}", re.ASCII)
_STEP = re.compile(rb'"(?:M_[LG]EQ_\d+|any|small_M|large_M)"\s*:\s*\{')
_CONFIG = re.compile(rb'"(?:BLOCK_\w+|num_warps|num_stages|waves_per_eu)"\s*:')


def _aiter_table(data: bytes, path: str) -> Table:
    ladder = ladder_of(data)
    arch, op, sizes = _aiter_name(PurePath(path))
    entries = _entries(ladder, op, "step", sizes, TableDevice(arch))
    return Table(AITER_TRITON.name, path, data, ladder.facts, (), entries)


def _entries(
    ladder: Ladder, op: str, step_name: str, sizes: Fields, device: TableDevice
) -> list[Entry]:
    """Return an entry for each step, whose first field `step_name` is the path of the step."""
    return [
        Entry(
            step.line,
            step.start,
            step.end,
            op,
            ((step_name, "/".join(step.path)), *sizes),
            step.text,
            device=device,
            extra=step.config,
        )
        for step in ladder.steps
    ]


def _aiter_name(path: PurePath) -> tuple[str, str, tuple[tuple[str, str], ...]]:
    """Return architecture, kernel and sizes from the name and the folders."""
    match = _NAME.fullmatch(path.name)
    if match is not None:
        return match[1], match[2], _sizes(match[3])
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


def _aiter_problem(entry: Entry) -> Problem:
    raise NotAProblem("a config for a range of sizes, which is no single product")


def _knows_aiter(head: bytes, name: str) -> bool:
    if not name.endswith(".json") or _CONFIG.search(head) is None:
        return False
    named = _NAME.fullmatch(name) is not None or name == "DEFAULT.json"
    return named or _STEP.search(head) is not None


AITER_TRITON = Tuner(
    "aiter triton", _knows_aiter, _aiter_problem, document=_aiter_table, editing=EDITING
)


MOE_OP = "fused_moe"
BLOCKS = "block_scaled_mm"
_PAIR = re.compile(r"(\w{1,40})=((?:(?!,\w{1,40}=).){1,200})", re.ASCII)
_HEAD = re.compile(
    rb'\s*\{\s*(?:"triton_version"\s*:\s*"[^"]*"\s*,\s*)?"\d+"\s*:\s*\{\s*"BLOCK_SIZE_M"'
)
_FOLDER = re.compile(r"triton_(\d+(?:_\d+)*)", re.ASCII)


def _moe_table(data: bytes, path: str) -> Table:
    ladder = ladder_of(data)
    name = PurePath(path)
    parts = moe_name(name.name)
    op = BLOCKS if "K" in parts else MOE_OP
    device = TableDevice(name=parts.pop("device_name", ""))
    facts = dict(ladder.facts)
    folder = _FOLDER.fullmatch(name.parent.name)
    if folder is not None and "triton_version" not in facts:
        facts["triton_version"] = folder[1].replace("_", ".")
    entries = _entries(ladder, op, "M", tuple(parts.items()), device)
    return Table(MOE.name, path, data, tuple(facts.items()), (), entries)


def moe_name(name: str) -> dict[str, str]:
    """Return the parts of a file's name; none for the name of another kind of file."""
    stem, _, suffix = name.rpartition(".")
    whole = stem.removesuffix("_down")
    pairs = _PAIR.findall(whole)
    if suffix != "json" or ",".join(f"{key}={value}" for key, value in pairs) != whole:
        return {}
    parts: dict[str, str] = dict(pairs)
    if list(parts)[:3] not in (["E", "N", "device_name"], ["N", "K", "device_name"]):
        return {}
    return parts if whole == stem else {**parts, "projection": "down"}


def _moe_problem(entry: Entry) -> Problem:
    raise NotAProblem(FP8 if entry.op == BLOCKS else FUSED)


def _knows_moe(head: bytes, name: str) -> bool:
    if moe_name(name):
        return head.removeprefix(BOM).lstrip()[:1] == b"{"
    return _HEAD.match(head) is not None


MOE = Tuner("moe", _knows_moe, _moe_problem, document=_moe_table, editing=EDITING)
