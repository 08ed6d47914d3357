"""What one line of an autotuning log says. Pure functions; every search is linear in the line.

Inductor writes, since torch 2.13 (older versions leave parts out):

    Autotune Choices Stats:
    {"num_choices": 2, ..., "best_kernel": "bmm", "best_time": 0.5696}
    AUTOTUNE bmm(8x128x256, 8x256x192)
    strides: [32768, 256, 1], [49152, 192, 1]
    dtypes: torch.float32, torch.float32
      bmm 0.5696 ms 100.0%
      triton_bmm_3 0.6444 ms 88.4% BLOCK_M=32, num_warps=2
    SingleProcess AUTOTUNE benchmarking takes 3.0 seconds and 0.1 seconds precompiling for 2 choices

Anything may stand before that on the line: a time stamp, a rank, a logger's name, a test's id, a
progress bar, a comment sign. So each part is found by what it is, not by where it begins.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from backend.model.problem import Shape
from rocm_tui.ingest.clean import clean
from rocm_tui.ingest.log_row import MS, Row, find_row
from rocm_tui.ingest.triton_lines import Kernel, find_kernel

WORD = "AUTOTUNE "
OUT_OF_RESOURCE = "out of resource"
_STATS = '{"num_choices"'
_MAX_OPERANDS = 16_384
_MAX_TRIES = 8
"""Headers without an end that are looked at on one line: each costs a search for its end."""


@dataclass(frozen=True, slots=True)
class Header:
    """`AUTOTUNE op(sizes)`. `known` is False if a size is a symbol; `shapes` is empty then."""

    op: str
    shapes: tuple[Shape, ...]
    text: str
    quoted: bool
    when: float | None


@dataclass(frozen=True, slots=True)
class Strides:
    """One stride tuple an operand; None where an operand's strides hold a symbol."""

    strides: tuple[Shape | None, ...]


@dataclass(frozen=True, slots=True)
class Dtypes:
    dtypes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Footer:
    """Seconds, and the number of choices where the version tells it."""

    benchmark: float
    precompile: float | None
    prescreen: float | None
    num_choices: int | None


@dataclass(frozen=True, slots=True)
class Stats:
    """The JSON line: milliseconds in full."""

    num_choices: int
    best_kernel: str
    best_time: float


@dataclass(frozen=True, slots=True)
class Ellipsis:
    """A line of dots: the person who pasted the log left rows out."""


@dataclass(frozen=True, slots=True)
class OutOfResource:
    what: str


Part = Header | Strides | Dtypes | Row | Footer | Stats | Ellipsis | OutOfResource | Kernel


@dataclass(frozen=True, slots=True)
class Origin:
    """Who wrote a line, as its prefix tells: `key` tells streams apart, `rank` is known or None."""

    key: str = ""
    rank: int | None = None


NOBODY = Origin()


def parts(text: str) -> Iterator[tuple[int, Part]]:
    """Each thing that one clean line says, with the column where it begins."""
    if WORD in text:
        yield from _autotune_parts(text)
        return
    at = text.find(_STATS)
    if at >= 0:
        stats = _parse_stats(text, at)
        if stats:
            yield at, stats
        return
    if MS in text:
        row = find_row(text)
        if row:
            yield row
            return
    at = text.find("strides: ")
    if at >= 0:
        strides = _parse_strides(text[at + 9 :])
        if strides:
            yield at, strides
        return
    at = text.find("dtypes: torch.")
    if at >= 0:
        yield at, Dtypes(tuple(text[at + 8 :].rstrip(' ",').split(", ")))
        return
    at = text.find(OUT_OF_RESOURCE)
    if at >= 0:
        yield at, OutOfResource(_reason(text, at))
        return
    kernel = find_kernel(text)
    if kernel:
        yield kernel
    elif text.strip(" #|") in ("...", "…"):
        yield 0, Ellipsis()


def _reason(text: str, at: int) -> str:
    """The message without the logger's prefix."""
    start = text.rfind("] ", 0, at)
    return text[start + 2 :] if start >= 0 else text


def _autotune_parts(text: str) -> Iterator[tuple[int, Part]]:
    at = text.find(WORD)
    tries = _MAX_TRIES
    while at >= 0 and tries:
        end = at + len(WORD)
        if at == 0 or not (text[at - 1].isalnum() or text[at - 1] == "_"):
            footer = _FOOTER.match(text, end)
            if footer:
                yield at, _footer(footer)
                end = footer.end()
            else:
                header, end = _parse_header(text, at)
                if header:
                    yield at, header
                else:
                    tries -= 1
        at = text.find(WORD, end)


_OP = re.compile(r"[^\w\x21-\x7e]{0,16}([A-Za-z_][\w.:]{0,199})\(")
"""An operation; blanks and an emoji may stand before it."""
_PARENTHESIS = re.compile(r"[()]")


def _parse_header(text: str, at: int) -> tuple[Header | None, int]:
    start = at + len(WORD)
    match = _OP.match(text, start)
    if not match:
        return None, start
    close = _closing(text, match.end())
    if close < 0:
        return None, start
    operands = text[match.end() : close]
    before = text[:at]
    header = Header(
        op=match[1],
        shapes=_shapes(operands),
        text=text[match.start(1) : min(close + 1, match.start(1) + 300)],
        quoted=before.count('"') % 2 == 1,
        when=_when(before),
    )
    return header, close + 1


def _closing(text: str, start: int) -> int:
    """Where the parenthesis before `start` is closed, or -1."""
    depth = 1
    for match in _PARENTHESIS.finditer(text, start, start + _MAX_OPERANDS):
        depth += 1 if match[0] == "(" else -1
        if not depth:
            return match.start()
    return -1


def _shapes(operands: str) -> tuple[Shape, ...]:
    """`4x8, , 1` is ((4, 8), (), (1,)); empty if any size is not a number."""
    return parse_shapes(operands) or ()


def parse_shapes(text: str) -> tuple[Shape, ...] | None:
    """Sizes as Inductor prints them, an empty operand being 0-dim; None if one is a symbol."""
    if not text.strip():
        return ()
    found: list[Shape] = []
    for operand in text.split(","):
        bare = operand.strip()
        sizes = bare.split("x") if bare else []
        if not all(size.isascii() and size.isdigit() and len(size) < 20 for size in sizes):
            return None
        found.append(tuple(int(size) for size in sizes))
    return tuple(found)


_FOOTER = re.compile(
    r" *(?:benchmarking )?takes +(\d{1,12}(?:\.\d{1,12})?) seconds"
    r"(?: +and +(\d{1,12}(?:\.\d{1,12})?) seconds precompiling)?"
    r"(?: +for +(\d{1,9}) choices)?"
    r"(?: +and +(\d{1,12}(?:\.\d{1,12})?) seconds prescreening)?"
)


def _footer(match: re.Match[str]) -> Footer:
    benchmark, precompile, choices, prescreen = match.groups()
    return Footer(
        benchmark=float(benchmark),
        precompile=float(precompile) if precompile else None,
        prescreen=float(prescreen) if prescreen else None,
        num_choices=int(choices) if choices else None,
    )


def _parse_strides(text: str) -> Strides | None:
    found: list[Shape | None] = []
    at = 0
    while text.startswith("[", at) or text.startswith("(", at):
        close = text.find("]" if text[at] == "[" else ")", at)
        if close < 0:
            return None
        found.append(parse_numbers(text[at + 1 : close]))
        at = close + 1
        if not text.startswith(", ", at):
            break
        at += 2
    return Strides(tuple(found)) if found else None


_INTEGER = re.compile(r"-?[0-9]{1,19}")


def parse_numbers(text: str) -> Shape | None:
    """`32, 1` is (32, 1); None if one of them is a symbol."""
    if not text.strip():
        return ()
    items = [item.strip() for item in text.rstrip(", ").split(",")]
    if not all(map(_INTEGER.fullmatch, items)):
        return None
    return tuple(int(item) for item in items)


def parse_stride_list(text: str) -> tuple[Shape, ...] | None:
    """`[32, 1], [1, 32]`; None if one of them is a symbol or the text is another."""
    strides = _parse_strides(text)
    if strides is None:
        return None
    known = tuple(stride for stride in strides.strides if stride is not None)
    return known if len(known) == len(strides.strides) else None


_DECODER = json.JSONDecoder()


def _parse_stats(text: str, at: int) -> Stats | None:
    try:
        document, _ = _DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):
        return None
    return stats_of(document)


def stats_of(document: Any) -> Stats | None:
    """What a stats object says, if it is one."""
    if not isinstance(document, dict):
        return None
    count, name = document.get("num_choices"), document.get("best_kernel")
    time = document.get("best_time")
    if not (isinstance(count, int) and isinstance(name, str) and isinstance(time, int | float)):
        return None
    try:
        return Stats(count, clean(name), float(time))
    except OverflowError:
        return None


_TAG = re.compile(
    r"\[[A-Za-z_]{1,40}(?P<torchrun>\d{1,6})\]:"
    r"|\[\d{1,6},(?P<mpirun>\d{1,6})\]<std(?:err|out)>"
    r"|(?P<ray>\bpid=\d{1,9}\b)"
    r"|^ *(?P<srun>\d{1,6}): "
)
_MAX_PREFIX = 512


def origin(prefix: str) -> Origin:
    """Who wrote a line, by the text before what it says."""
    if not prefix or prefix.isspace():
        return NOBODY
    match = _TAG.search(prefix[:_MAX_PREFIX])
    if not match:
        return NOBODY
    number = match["torchrun"] or match["mpirun"] or match["srun"]
    return Origin(match[0].strip(), int(number) if number else None)


_ISO = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,9})?Z")


def _when(prefix: str) -> float | None:
    """Unix time of an ISO time stamp in UTC at the line's start."""
    match = _ISO.match(prefix.lstrip(" "))
    if not match:
        return None
    try:
        whole = datetime.fromisoformat(match[1] + "+00:00").timestamp()
    except (ValueError, OverflowError):
        return None
    return whole + float(match[2] or 0)
