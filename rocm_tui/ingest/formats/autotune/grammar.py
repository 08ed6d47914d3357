"""What Inductor prints of an autotuning: the words, the patterns, and what each part says.

Since torch 2.13 it is this (older versions leave parts out):

    Autotune Choices Stats:
    {"num_choices": 2, ..., "best_kernel": "bmm", "best_time": 0.5696}
    AUTOTUNE bmm(8x128x256, 8x256x192)
    strides: [32768, 256, 1], [49152, 192, 1]
    dtypes: torch.float32, torch.float32
      bmm 0.5696 ms 100.0%
      triton_bmm_3 0.6444 ms 88.4% BLOCK_M=32, num_warps=2
    SingleProcess AUTOTUNE benchmarking takes 3.0 seconds and 0.1 seconds precompiling for 2 choices

Stated here once for all who look for it: line by line (`lines`), the search of a big file, and the
filter of `run --quiet`. Every search is linear in the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from backend.model.problem import Shape
from rocm_tui.harmless import clean

# Words: each tells the part that it stands in.

AUTOTUNE = "AUTOTUNE "
PROCESSES = ("SingleProcess ", "SubProcess ")
"""What stands before the word in a footer."""
TITLE = "Autotune Choices Stats:"
STATS = '{"num_choices"'
STRIDES = "strides: "
DTYPES = "dtypes: torch."
MS = " ms "
NO_SHARE = "<DIVIDED BY ZERO ERROR>"
"""Stands for the share in the rows of a table whose best time is zero."""
OUT_OF_RESOURCE = "out of resource"
DOTS = ("...", "…")

# Patterns, as text: for `str` and, encoded, for `bytes`.

OP = r"[A-Za-z_][\w.:]{0,199}"
NAME = r"[A-Za-z_][\w.:<>-]*"
NUMBER = r"(?:\d{1,15}(?:\.\d{1,15})?|inf|nan)"
ROW = rf"({NAME}) ({NUMBER}) ms ({NUMBER})%(?: ([^\n]*))?"
"""The common row; for others see `lines`."""

_MAX_OPERANDS = 16_384


# The parts: tuples, because a log has more of them than of anything else.


class Header(NamedTuple):
    """`AUTOTUNE op(sizes)`. `shapes` is empty if a size is a symbol."""

    op: str
    shapes: tuple[Shape, ...]
    text: str
    quoted: bool
    when: float | None


class Strides(NamedTuple):
    """One stride tuple an operand; None where an operand's strides hold a symbol."""

    strides: tuple[Shape | None, ...]


class Dtypes(NamedTuple):
    dtypes: tuple[str, ...]


class Row(NamedTuple):
    """`name ms percent description`: a choice, its time, its share of the best one's speed.

    `percent` is None if unknown; `name` is empty in a version that prints a choice's configuration
    and no name.
    """

    name: str
    ms: float
    percent: float | None
    description: str

    @property
    def label(self) -> str:
        """What tells it from the other rows of its table."""
        return self.name or self.description


class Footer(NamedTuple):
    """Seconds, and the number of choices where the version tells it."""

    benchmark: float
    precompile: float | None
    prescreen: float | None
    num_choices: int | None


class Stats(NamedTuple):
    """The JSON line: milliseconds in full."""

    num_choices: int
    best_kernel: str
    best_time: float


class Dots(NamedTuple):
    """A line of dots: the person who pasted the log left rows out."""

    text: str


class OutOfResource(NamedTuple):
    what: str


class Origin(NamedTuple):
    """Who wrote a line, as its prefix tells: `key` tells streams apart, `rank` is known or None."""

    key: str = ""
    rank: int | None = None


# What each part says

_OP = re.compile(rf"[^\w\x21-\x7e]{{0,16}}({OP})\(")
"""An operation; blanks and an emoji may stand before it."""
_PARENTHESIS = re.compile(r"[()]")


def header_at(text: str, at: int, when: float | None) -> tuple[Header, int] | None:
    """The header whose first word stands at `at`, and where it ends."""
    match = _OP.match(text, at + len(AUTOTUNE))
    close = _closing(text, match.end()) if match else -1
    if not match or close < 0:
        return None
    start = match.start(1)
    header = Header(
        op=match[1],
        shapes=parse_shapes(text[match.end() : close]) or (),
        text=text[start : min(close + 1, start + 300)],
        quoted=text.count('"', 0, at) % 2 == 1,
        when=when,
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


_SIZES = r"[0-9]{1,19}(?:x[0-9]{1,19})*(?:, [0-9]{1,19}(?:x[0-9]{1,19})*)*"
_ALL_SIZES = re.compile(_SIZES)


def _shapes(sizes: str) -> tuple[Shape, ...]:
    return tuple(map(_shape, sizes.split(", ")))


@lru_cache(4096)
def _shape(sizes: str) -> Shape:
    """Kept once: the operands of a model's tunings are often the same."""
    return tuple(map(int, sizes.split("x")))


def parse_shapes(text: str) -> tuple[Shape, ...] | None:
    """`4x8, , 1` is ((4, 8), (), (1,)): an empty operand is 0-dim; None if a size is a symbol."""
    if _ALL_SIZES.fullmatch(text):  # most of them
        return _shapes(text)
    if not text.strip():
        return ()
    shapes: list[Shape] = []
    for operand in text.split(","):
        bare = operand.strip()
        sizes = bare.split("x") if bare else []
        if not all(size.isascii() and size.isdigit() and len(size) < 20 for size in sizes):
            return None
        shapes.append(tuple(int(size) for size in sizes))
    return tuple(shapes)


def parse_strides(text: str) -> Strides | None:
    """What follows `strides: `."""
    strides: list[Shape | None] = []
    at = 0
    while text.startswith(("[", "("), at):
        close = text.find("]" if text[at] == "[" else ")", at)
        if close < 0:
            return None
        strides.append(parse_numbers(text[at + 1 : close]))
        at = close + 1
        if not text.startswith(", ", at):
            break
        at += 2
    return Strides(tuple(strides)) if strides else None


def parse_stride_list(text: str) -> tuple[Shape, ...] | None:
    """`[32, 1], [1, 32]`; None if one of them is a symbol or the text is another."""
    part = parse_strides(text)
    return part and all_known(part.strides)


def all_known(shapes: Sequence[Shape | None]) -> tuple[Shape, ...] | None:
    """The same, unless one of them is not known."""
    known = tuple(shape for shape in shapes if shape is not None)
    return known if len(known) == len(shapes) else None


_INTEGER = re.compile(r"-?[0-9]{1,19}")


def parse_numbers(text: str) -> Shape | None:
    """`32, 1` is (32, 1); None if one of them is a symbol."""
    if not text.strip():
        return ()
    items = [item.strip() for item in text.rstrip(", ").split(",")]
    if not all(map(_INTEGER.fullmatch, items)):
        return None
    return tuple(int(item) for item in items)


def parse_dtypes(text: str) -> Dtypes:
    """What a text that begins with `dtypes: torch.` says."""
    _, _, dtypes = text.partition(" ")
    return Dtypes(tuple(dtypes.rstrip(' ",').split(", ")))


def row_of(name: str, ms: str, percent: str, description: str) -> Row:
    """The parts of a row that match `NAME`, `NUMBER`, `NUMBER`, and the rest."""
    share = None if percent == "nan" else float(percent)
    return Row(name, float(ms), share, description.strip(" "))


_SECONDS = r"(\d{1,12}(?:\.\d{1,12})?) seconds"
_FOOTER = re.compile(
    rf" *(?:benchmarking )?takes +{_SECONDS}(?: +and +{_SECONDS} precompiling)?"
    rf"(?: +for +(\d{{1,9}}) choices)?(?: +and +{_SECONDS} prescreening)?"
)


def footer_at(text: str, at: int) -> tuple[Footer, int] | None:
    """The footer in which `AUTOTUNE ` stands at `at`, and where it ends."""
    match = _FOOTER.match(text, at + len(AUTOTUNE))
    if not match:
        return None
    benchmark, precompile, choices, prescreen = match.groups()
    footer = Footer(
        benchmark=float(benchmark),
        precompile=float(precompile) if precompile else None,
        prescreen=float(prescreen) if prescreen else None,
        num_choices=int(choices) if choices else None,
    )
    return footer, match.end()


_DECODER = json.JSONDecoder()


def stats_at(text: str, at: int) -> Stats | None:
    """The statistics whose JSON begins at `at`."""
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
