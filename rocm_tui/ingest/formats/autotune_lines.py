"""What one line of a log says of an autotuning: the words, the patterns, and what each part says.

Since torch 2.13 Inductor prints this (older versions leave parts out):

    Autotune Choices Stats:
    {"num_choices": 2, ..., "best_kernel": "bmm", "best_time": 0.5696}
    AUTOTUNE bmm(8x128x256, 8x256x192)
    strides: [32768, 256, 1], [49152, 192, 1]
    dtypes: torch.float32, torch.float32
      bmm 0.5696 ms 100.0%
      triton_bmm_3 0.6444 ms 88.4% BLOCK_M=32, num_warps=2
    SingleProcess AUTOTUNE benchmarking takes 3.0 seconds and 0.1 seconds precompiling for 2 choices

Stated here once for all who look for it: line by line, the search of a big file, and the filter of
`run --quiet`. Every search is linear in the text.

Anything may precede it on the line: a time stamp, a rank, a logger's name, a test's id, a comment
sign. So each part is found by what it is, not by where it begins. A progress bar puts
several texts on one line, with carriage returns between: `unwrap` takes them apart.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from backend.model.choice import bare_pairs
from backend.model.problem import Shape
from rocm_tui.harmless import clean
from rocm_tui.ingest.formats.triton_lines import (
    FAILED,
    KERNEL,
    LINES,
    TRIED,
    TritonLine,
    find_kernel,
)

# Words: each shows what a line is part of.

AUTOTUNE = "AUTOTUNE "
PROCESSES = ("SingleProcess ", "SubProcess ")
"""The words before it in a footer."""
TITLE = "Autotune Choices Stats:"
STATS = '{"num_choices"'
STRIDES = "strides: "
DTYPES = "dtypes: torch."
MS = " ms "
NO_SHARE = "<DIVIDED BY ZERO ERROR>"
"""The share in the rows of a table whose best time is zero."""
OUT_OF_RESOURCE = "out of resource"
DOTS = ("...", "…")

# Patterns, as text: for `str` and, encoded, for `bytes`.

OP = r"[A-Za-z_][\w.:]{0,199}"
NAME = r"[A-Za-z_][\w.:<>-]*"
NUMBER = r"(?:\d{1,15}(?:\.\d{1,15})?|inf|nan)"

_MAX_OPERANDS = 16_384
_MAX_AFTER = 200


# The parts: tuples, because a log has more of them than of anything else.


class Header(NamedTuple):
    """`AUTOTUNE op(sizes)`. `shapes` is empty if a size is a symbol; `after` is the end of the
    line, which a logger puts behind rows, too."""

    op: str
    shapes: tuple[Shape, ...]
    text: str
    quoted: bool
    when: float | None
    after: str = ""


class Strides(NamedTuple):
    """One stride tuple an operand; None where an operand's strides hold a symbol."""

    strides: tuple[Shape | None, ...]


class Dtypes(NamedTuple):
    dtypes: tuple[str, ...]


class ChoiceRow(NamedTuple):
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
        """Return what no other row of its table has."""
        return self.name or self.description


class Footer(NamedTuple):
    """Seconds, and the number of choices where the version prints it."""

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
    """The message without the logger's prefix."""

    what: str


class Died(NamedTuple):
    """What the GPU's driver, the allocator or the shell printed when a process ended early."""

    what: str


class Torn(NamedTuple):
    """A part with a value that cannot be read: a row or operands, which only a table has, or what
    is sure to be of Inductor."""

    what: str
    kind: Literal["row", "operands", "any"] = "any"


# What each part says

_OP = re.compile(rf"[^\w\x21-\x7e]{{0,16}}({OP})\(")
"""An operation; blanks and an emoji may precede it."""
_PARENTHESIS = re.compile(r"[()]")


def header_at(text: str, at: int, when: float | None) -> tuple[Header, int] | None:
    """Return the header whose first word is at `at`, and where it ends."""
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
        after=text[close + 1 :].strip()[:_MAX_AFTER],
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


_SIZES = re.compile(r"[0-9]{1,19}(?:x[0-9]{1,19})*(?:, [0-9]{1,19}(?:x[0-9]{1,19})*)*")


@lru_cache(4096)
def _shape(sizes: str) -> Shape:
    """Kept once: the operands of a model's tunings are often the same."""
    return tuple(map(int, sizes.split("x")))


def parse_shapes(text: str) -> tuple[Shape, ...] | None:
    """`4x8, , 1` is ((4, 8), (), (1,)): an empty operand is 0-dim; None if a size is a symbol."""
    if _SIZES.fullmatch(text):  # most of them
        return tuple(map(_shape, text.split(", ")))
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
    """Return the shapes, or None if one of them is not known."""
    numbers = tuple(shape for shape in shapes if shape is not None)
    return numbers if len(numbers) == len(shapes) else None


_INTEGER = re.compile(r"-?[0-9]{1,19}")


def parse_numbers(text: str) -> Shape | None:
    """`32, 1` is (32, 1); None if one of them is a symbol."""
    if not text.strip():
        return ()
    items = [item.strip() for item in text.rstrip(", ").split(",")]
    if not all(map(_INTEGER.fullmatch, items)):
        return None
    return tuple(int(item) for item in items)


_TYPES = re.compile(r"[\w.]{1,99}(?:, [\w.]{1,99})*+")


def parse_dtypes(text: str) -> Dtypes:
    """What a text that begins with `dtypes: torch.` says."""
    match = _TYPES.match(text, len("dtypes: "))
    return Dtypes(tuple(match[0].split(", ")) if match else ())


_DTYPE = re.compile(
    r"torch\.(?:bool|bfloat16|float(?:16|32|64)|complex(?:32|64|128)|u?int(?:[1-7]|8|16|32|64)"
    r"|bits\d{1,2}(?:x\d)?|qu?int\d{1,2}(?:x\d)?|float\d_e\dm\d[a-z0-9_]{0,9})"
)


def is_dtype(text: str) -> bool:
    """Whether the text is how torch prints a dtype."""
    return _DTYPE.fullmatch(text) is not None


_BARE = r"""[^\s,'"()\[\]{}=]*"""
_VALUE = rf"""(?=[^\s,]){_BARE}(?:(?:'[^']*'|"[^"]*"|\([^()]*\)|\[[^\[\]]*\]){_BARE})*"""
_SETTINGS = re.compile(rf"[A-Za-z_]\w*={_VALUE}(?:, [A-Za-z_]\w*={_VALUE})*")
_HALF_WORD = re.compile(r"=(?:T|Tr|Tru|F|Fa|Fal|Fals|N|No|Non)(?:,|\Z)")


def is_config(text: str) -> bool:
    """Whether the text is a whole configuration, `BLOCK_M=32, num_warps=2`, or the name of one."""
    if "=" not in text:
        return True
    text = bare_pairs(text)
    return _SETTINGS.fullmatch(text) is not None and _HALF_WORD.search(text) is None


def row_of(name: str, ms: str, percent: str, description: str) -> ChoiceRow:
    """The parts of a row that match `NAME`, `NUMBER`, `NUMBER`, and the rest."""
    share = None if percent == "nan" else float(percent)
    return ChoiceRow(name, float(ms), share, description.strip(" "))


_SECONDS = r"(\d{1,12}(?:\.\d{1,20})?) seconds"
_FOOTER = re.compile(
    rf" *(?:benchmarking )?takes +{_SECONDS}(?: +and +{_SECONDS} precompiling)?"
    rf"(?: +for +(\d{{1,9}}) choices)?(?: +and +{_SECONDS} prescreening)?"
)


def footer_at(text: str, at: int) -> tuple[Footer, int] | None:
    """Return the footer in which `AUTOTUNE ` is at `at`, and where it ends."""
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
    if bool in (type(count), type(time)) or count < 1 or not time >= 0:
        return None
    try:
        return Stats(count, clean(name), float(time))
    except OverflowError:
        return None


Part = (
    Header
    | Strides
    | Dtypes
    | ChoiceRow
    | Footer
    | Stats
    | Dots
    | OutOfResource
    | Died
    | Torn
    | TritonLine
)

_MAX_TRIES = 8
"""Headers without an end, or rows that are none, that are looked at on one line."""


# How a process ends: ROCm's runtime, the allocator of the C library, Python, the shell

_BY_GPU = " by GPU node-"
_DEATH = (
    r" by GPU node-|GPU Hang|HSA_STATUS_ERROR_\w|(?:free|malloc|realloc|munmap_chunk)\(\): "
    r"|double free or corruption|corrupted (?:size|double-linked)|terminate called after throwing"
    r"|Fatal Python error: |Segmentation fault|\(core dumped\)"
)
_DIED = re.compile(
    r"(?:Memory access fault|HW Exception)(?= by GPU)|:\d:\w{1,99}\.cpp *:.{0,400}HSA_"
    rf"|(?<!\w)\w{{1,99}} \(core|{_DEATH}"
)
"""The same with the words before it, as far as they are of the message. Bounded, and tried at the
beginning of a word alone: a long word would else cost the square of its length."""

_OLD_UNIT = r"\d\.\d{4}s \d"
_OLD_ROW = re.compile(r"(?<=\d\.\d{4})s (?=\d{1,3}\.\d% *\Z)")
"""The unit that torch 2.0 printed behind a time: what it measured was milliseconds then too."""


# The pieces of a line's bytes

AUTOTUNE_MARK = AUTOTUNE.encode()
MARKERS = (
    (AUTOTUNE_MARK, 1),
    (KERNEL.encode(), 0),
    (TRIED.encode(), 0),
    (STATS[1:-1].encode(), 0),
    (_BY_GPU.encode(), 4),
)
"""What a line holds that matters wherever it is; and the index of a letter in it that few logs are
full of: U, T, A, a quote and G."""
BEFORE = (OUT_OF_RESOURCE.encode(),)
"""What may be before a table and belongs to it."""
_WORDS = (MS, AUTOTUNE, STATS[1:-1], STRIDES, DTYPES, *DOTS, OUT_OF_RESOURCE, *LINES)
TELLING = re.compile("|".join([*map(re.escape, _WORDS), _OLD_UNIT, _DEATH]))
_TELLING = re.compile(TELLING.pattern.encode())


def may_matter(line: bytes) -> bool:
    """Whether `parts` could find anything. It is asked of every line."""
    return _TELLING.search(line) is not None


# What a clean text says


def parts(text: str) -> Iterator[tuple[int, Part]]:
    """Each thing that one clean line says, with the column where it begins."""
    ends = list(_headers_and_footers(text)) if AUTOTUNE in text else []
    if ends:
        yield from _row_before(text, ends[0][0])
        yield from ends
        return
    at = text.find(STATS)
    if at >= 0:
        torn = Torn(f"these statistics cannot be read: {text[at : at + 100]}")
        yield at, stats_at(text, at) or torn
        return
    if MS not in text:
        text = _OLD_ROW.sub(MS, text)
    if MS in text:
        row = _find_row(text) or _torn_row(text)
        if row:
            yield row
            return
    at = text.find(STRIDES)
    if at >= 0:
        strides = parse_strides(text[at + len(STRIDES) :])
        if strides:
            yield at, strides
        elif text.startswith(("[", "("), at + len(STRIDES)):
            what = f"these strides cannot be read: {text[at + len(STRIDES) :][:100]}"
            yield at, Torn(what, "operands")
        return
    at = text.find(DTYPES)
    if at >= 0:
        yield at, parse_dtypes(text[at:])
        return
    at = text.find(OUT_OF_RESOURCE)
    if at >= 0 and FAILED not in text:
        yield at, OutOfResource(text[:at].rpartition("] ")[2] + text[at:])
        return
    kernel = find_kernel(text)
    death = None if kernel else _DIED.search(text)
    if kernel:
        yield kernel
    elif death:
        yield death.start(), Died(text.strip())
    elif text.strip(" #|") in DOTS:
        yield 0, Dots(text)


def single_part(text: str) -> tuple[int, Part] | None:
    """The one thing that a line says; None if that is nothing, or more."""
    several = list(parts(text))
    return several[0] if len(several) == 1 else None


def only_part(text: str) -> Part | None:
    """Return the part that a clean text is, if there is nothing before it, nor behind it."""
    at, part = single_part(text) or (0, None)
    if isinstance(part, (Torn, Died)):
        return None
    before = text[:at]
    if isinstance(part, Footer):
        whole = before in PROCESSES
    elif isinstance(part, ChoiceRow):
        whole = before in ("", "# ")
    else:
        whole = not before and (text.endswith(")") or not isinstance(part, Header))
    return part if whole else None


def _headers_and_footers(text: str) -> Iterator[tuple[int, Part]]:
    at = text.find(AUTOTUNE)
    tries = _MAX_TRIES
    while at >= 0 and tries:
        end = at + len(AUTOTUNE)
        if at == 0 or not (text[at - 1].isalnum() or text[at - 1] == "_"):
            part = footer_at(text, at) or header_at(text, at, _when(text))
            if part:
                yield at, part[0]
                end = part[1]
            elif text.endswith(PROCESSES, 0, at):
                yield at, Torn(f"the end of a table cannot be read: {text[at : at + 100]}")
            else:
                tries -= 1
                if _OP.match(text, end):
                    what = f"the beginning of a table cannot be read: {text[at : at + 100]}"
                    yield at, Torn(what)
        at = text.find(AUTOTUNE, end)


# Rows

_WHOLE_SETTING = re.compile(r"=(?:-?\d+(?:\.\d+)?|True|False|None|'[^']*'|\"[^\"]*\")\Z")


def _row_before(text: str, end: int) -> Iterator[tuple[int, ChoiceRow | Torn]]:
    """Yield the row, if any, whose newline was lost before the part at `end`. Behind its last
    setting the wrapper of the next line may be, which is dropped if it is that of the row."""
    text = text[:end]
    for process in PROCESSES:
        text = text.removesuffix(process)
    row_at = _find_row(text)
    if row_at is None:
        return
    at, row = row_at
    wrapper = text[:at].strip(" ")
    settings = row.description.removesuffix(wrapper).rstrip(" ") if wrapper else row.description
    if "=" in settings and not _WHOLE_SETTING.search(settings):
        what = f"the row of {row.label[:100]} cannot be read: {text[at : at + 100]}"
        yield at, Torn(what, "row")
    else:
        yield at, row._replace(description=settings if "=" in settings else "")


_NAME = re.compile(rf"{NAME}\Z")
_NUMBER = re.compile(rf"{NUMBER}\Z")
# Early in 2024 a row began with what `str` makes of a choice.
_EXTERN = re.compile(r"ExternKernelCaller\((?:extern_kernels\.)?([A-Za-z_][\w.]*)\)\Z")
_TEMPLATE = "TritonTemplateCaller("
_SETTING = re.compile(r"[A-Za-z_]\w*=")
_LAST_SETTING = re.compile(r"(?<!\w)[A-Za-z_]\w*=[^ ]*\Z")  # not tried again within a word


def _find_row(text: str) -> tuple[int, ChoiceRow] | None:
    """Return the row that a clean line holds, and the column where it begins."""
    at = text.find(MS)
    for _ in range(_MAX_TRIES):
        if at < 0:
            return None
        row = _row_at(text, at)
        if row:
            return row
        at = text.find(MS, at + 1)
    return None


_HALF_SHARE = re.compile(r"\d{0,3}\.?\d?\Z")
_WHOLE_TIME = re.compile(r"\d{1,15}\.\d{4}\Z")


def _torn_row(text: str) -> tuple[int, Torn] | None:
    """Return a row that has no name, whose time is no number, or whose share is cut off."""
    before, _, rest = text.partition(MS)
    name_and_time = before.split()[-2:]
    share = rest.lstrip(" ").partition(" ")[0]
    if not name_and_time:
        return None
    name, time = name_and_time if len(name_and_time) == 2 else ("", name_and_time[0])
    named = _NAME.match(name) is not None
    whole_share = share.endswith("%") and _NUMBER.match(share[:-1])
    half_row = _WHOLE_TIME.match(time) and _HALF_SHARE.match(rest.strip(" "))
    if not named:
        if not (whole_share and _WHOLE_TIME.match(time)):
            return None
        at = before.rfind(time)
        return at, Torn(f"a row without a name cannot be read: {text[at : at + 100]}", "row")
    if not whole_share and not half_row:
        return None
    at = before.rfind(name, 0, before.rfind(time))
    return at, Torn(f"the row of {name[:100]} cannot be read: {text[at : at + 100]}", "row")


def _row_at(text: str, at: int) -> tuple[int, ChoiceRow] | None:
    """Return the row whose ` ms ` is at `at`."""
    share, _, description = text[at + len(MS) :].lstrip(" ").partition(" ")
    if not share.endswith("%"):
        share = share.rstrip('",')  # the last string of a list in JSON
    if text.startswith(NO_SHARE, at + len(MS)):
        share, description = "nan%", ""
    if not share.endswith("%") or not _NUMBER.match(share[:-1]):
        return None
    before = text[:at].rstrip(" ")
    value_at = before.rfind(" ") + 1
    if value_at == 0 or not _NUMBER.match(before[value_at:]):
        return None
    choice = _choice(before[: value_at - 1].rstrip(" "))
    if choice is None:
        return None
    name_at, name, config = choice
    description = ", ".join(filter(None, (config, description.strip(" "))))
    return name_at, row_of(name, before[value_at:], share[:-1], description)


def _choice(before: str) -> tuple[int, str, str] | None:
    """Return the choice that `before` ends with: its column, its name, and its configuration where
    that takes the place of the name."""
    at = before.rfind(" ") + 1
    # `[rank0]:mm`, `"mm`: text glued to an unindented name does not belong to the name.
    at = max(at, before.rfind("]:") + 2 if "]:" in before else 0)
    at = max(at, before.rfind('"') + 1, before.rfind("#") + 1)
    name = before[at:]
    if _NAME.match(name):
        return at, name, ""
    extern = _EXTERN.match(name)
    if extern:
        return at, extern[1], ""
    if before.endswith(")") and _TEMPLATE in before:
        at = before.rfind(_TEMPLATE)
        config = before[at + len(_TEMPLATE) : -1].partition(", ")[2]
        return (at, "", config) if _SETTING.match(config) else None
    return _settings(before)


def _settings(before: str) -> tuple[int, str, str] | None:
    """`A='x', B=2` at the end of `before`, behind whatever prefix."""
    start = end = len(before)
    while True:
        comma = before.rfind(", ", 0, end)
        item = before[comma + 2 if comma >= 0 else 0 : end]
        if comma >= 0 and _SETTING.match(item):
            start = end = comma
            continue
        last = _LAST_SETTING.search(item[item.rfind(" ") + 1 :])
        if last is None:
            return None if start == len(before) else (start + 2, "", before[start + 2 :])
        at = end - len(last[0])
        return at, "", before[at:]


# When

_ISO = re.compile(r" *(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,9})?Z")


def _when(text: str) -> float | None:
    """Unix time of an ISO time stamp in UTC at the line's start."""
    match = _ISO.match(text)
    if not match:
        return None
    try:
        whole = datetime.fromisoformat(match[1] + "+00:00").timestamp()
    except (ValueError, OverflowError):
        return None
    return whole + float(match[2] or 0)
