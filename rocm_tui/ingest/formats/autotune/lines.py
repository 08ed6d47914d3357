"""What one line of a log says of an autotuning: the careful way, for text in any disguise.

Anything may stand before it on the line: a time stamp, a rank, a logger's name, a test's id, a
comment sign. So each part is found by what it is, not by where it begins. A progress bar puts
several texts on one line, with carriage returns between; a log inside of JSON (a notebook, what
Docker keeps of a container) has its line ends as backslash and n.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime

from rocm_tui.ingest.formats.autotune.grammar import (
    AUTOTUNE,
    DOTS,
    DTYPES,
    MS,
    NAME,
    NO_SHARE,
    NUMBER,
    OUT_OF_RESOURCE,
    PROCESSES,
    STATS,
    STRIDES,
    Dots,
    Dtypes,
    Footer,
    Header,
    Origin,
    OutOfResource,
    Row,
    Stats,
    Strides,
    footer_at,
    header_at,
    parse_dtypes,
    parse_strides,
    row_of,
    stats_at,
)
from rocm_tui.ingest.formats.triton_lines import LINES, Kernel, find_kernel

Part = Header | Strides | Dtypes | Row | Footer | Stats | Dots | OutOfResource | Kernel

_MAX_TRIES = 8
"""Headers without an end, or rows that are none, that are looked at on one line."""


# The pieces of a line's bytes

AUTOTUNE_MARK = AUTOTUNE.encode()
_TRITON = tuple(line.encode() for line in LINES)
MARKERS = ((AUTOTUNE_MARK, 1), (_TRITON[0], 0))
"""What a line holds that matters wherever it stands; and the place in it of a letter that few logs
are full of: U and T."""
BEFORE = (STATS[1:-1].encode(), OUT_OF_RESOURCE.encode())
"""What may stand before a table and belongs to it."""
_WORDS = (MS, AUTOTUNE, STATS[1:-1], STRIDES, DTYPES, *DOTS, OUT_OF_RESOURCE, *LINES)
_TELLING = re.compile("|".join(map(re.escape, _WORDS)).encode())
_LONG = 64 << 10
_ESCAPE = re.compile(rb"""\\(["'\\/bfrt]|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2})""")
_PLAIN = {b"b": b"", b"f": b"", b"r": b"", b"t": b" "}


def may_matter(line: bytes) -> bool:
    """Whether `parts` could find anything. It is asked of every line."""
    return _TELLING.search(line) is not None


def segments(line: bytes) -> Iterable[bytes]:
    """The texts of a line, one after another; the first one always, others if they may matter."""
    escaped = b"\\n" in line
    if not escaped and b"\r" not in line:
        return (_window(line),)
    return _split(line, escaped)


def _split(line: bytes, escaped: bool) -> Iterator[bytes]:
    if escaped:
        line = line.replace(b"\\n", b"\r").replace(b"\\r", b"\r")
    first = True
    for text in line.split(b"\r"):
        if first or (text and may_matter(text)):
            piece = _window(text)
            yield _ESCAPE.sub(_unescaped, piece) if escaped and b"\\" in piece else piece
        first = False


def _unescaped(match: re.Match[bytes]) -> bytes:
    what = match[1]
    if what[0] in b"ux":
        return chr(int(what[1:], 16)).encode("utf-8", "replace")
    return _PLAIN.get(what, what)


def _window(text: bytes) -> bytes:
    """What matters of a text; all of it unless it is very long."""
    if len(text) <= _LONG:
        return text
    at = max(0, text.find(AUTOTUNE_MARK) - 4096)
    return text[at : at + _LONG]


# What a clean text says


def parts(text: str) -> Iterator[tuple[int, Part]]:
    """Each thing that one clean line says, with the column where it begins."""
    if AUTOTUNE in text:
        yield from _headers_and_footers(text)
        return
    at = text.find(STATS)
    if at >= 0:
        stats = stats_at(text, at)
        if stats:
            yield at, stats
        return
    if MS in text:
        row = _find_row(text)
        if row:
            yield row
            return
    at = text.find(STRIDES)
    if at >= 0:
        strides = parse_strides(text[at + len(STRIDES) :])
        if strides:
            yield at, strides
        return
    at = text.find(DTYPES)
    if at >= 0:
        yield at, parse_dtypes(text[at:])
        return
    at = text.find(OUT_OF_RESOURCE)
    if at >= 0:
        yield at, OutOfResource(_reason(text, at))
        return
    kernel = find_kernel(text)
    if kernel:
        yield kernel
    elif text.strip(" #|") in DOTS:
        yield 0, Dots(text)


def single_part(text: str) -> tuple[int, Part] | None:
    """The one thing that a line says; None if that is nothing, or more."""
    several = list(parts(text))
    return several[0] if len(several) == 1 else None


def only_part(text: str) -> Part | None:
    """The part that a clean text is: nothing stands before it, nor behind what the part holds."""
    at, part = single_part(text) or (0, None)
    before = text[:at]
    if isinstance(part, Footer):
        whole = before in PROCESSES
    elif isinstance(part, Row):
        whole = before in ("", "# ")
    else:
        whole = not before and (text.endswith(")") or not isinstance(part, Header))
    return part if whole else None


def _reason(text: str, at: int) -> str:
    """The message without the logger's prefix."""
    start = text.rfind("] ", 0, at)
    return text[start + 2 :] if start >= 0 else text


def _headers_and_footers(text: str, at: int = 0) -> Iterator[tuple[int, Header | Footer]]:
    at = text.find(AUTOTUNE, at)
    tries = _MAX_TRIES
    while at >= 0 and tries:
        end = at + len(AUTOTUNE)
        if at == 0 or not (text[at - 1].isalnum() or text[at - 1] == "_"):
            part = footer_at(text, at) or header_at(text, at, _when(text))
            if part:
                yield at, part[0]
                end = part[1]
            else:
                tries -= 1
        at = text.find(AUTOTUNE, end)


# Rows

_NAME = re.compile(rf"{NAME}\Z")
_NUMBER = re.compile(rf"{NUMBER}\Z")
# Early in 2024 a row began with what `str` makes of a choice.
_EXTERN = re.compile(r"ExternKernelCaller\((?:extern_kernels\.)?([A-Za-z_][\w.]*)\)\Z")
_TEMPLATE = "TritonTemplateCaller("
_SETTING = re.compile(r"[A-Za-z_]\w*=")
_LAST_SETTING = re.compile(r"(?<!\w)[A-Za-z_]\w*=[^ ]*\Z")  # not tried again within a word


def _find_row(text: str) -> tuple[int, Row] | None:
    """The row that a clean line holds, and the column where it begins."""
    at = text.find(MS)
    for _ in range(_MAX_TRIES):
        if at < 0:
            return None
        row = _row_at(text, at)
        if row:
            return row
        at = text.find(MS, at + 1)
    return None


def _row_at(text: str, at: int) -> tuple[int, Row] | None:
    """The row whose ` ms ` stands at `at`."""
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
    """The choice that `before` ends with: its column, its name, and its configuration if it stands
    in place of the name."""
    at = before.rfind(" ") + 1
    # `[rank0]:mm`, `"mm`: what is glued to an unindented name is no part of it.
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


# Who says it, and when

_TAG = re.compile(
    r"\[[A-Za-z_]{1,40}(?P<torchrun>\d{1,6})\]:"
    r"|\[\d{1,6},(?P<mpirun>\d{1,6})\]<std(?:err|out)>"
    r"|(?P<ray>\bpid=\d{1,9}\b)"
    r"|^ *(?P<srun>\d{1,6}): "
)
_MAX_PREFIX = 512
_NOBODY = Origin()


def origin(prefix: str) -> Origin:
    """Who wrote a line, by the text before what it says."""
    if not prefix or prefix.isspace():
        return _NOBODY
    match = _TAG.search(prefix[:_MAX_PREFIX])
    if not match:
        return _NOBODY
    number = match["torchrun"] or match["mpirun"] or match["srun"]
    return Origin(match[0].strip(), int(number) if number else None)


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
