"""The texts of a log line, without what a logger, a container or a terminal put around them.

A line may be JSON of any shape, logfmt, a Python `repr`, a cell of CSV, or all of them in each
other. What they have in common is a string in double quotes, so the texts of interest are the
strings that hold words of an autotuning, however deep and under whatever key. Everything else on
the line is the wrapper: it says which process wrote the line (see `processes`).

A line of plain text may hold several texts: a progress bar puts carriage returns between them, and
line ends may be written as backslash and n.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from rocm_tui.harmless import clean
from rocm_tui.ingest.formats.autotune_lines import AUTOTUNE, STATS, TELLING

MAX_DEPTH = 4
"""Strings inside of strings that are looked into."""
_LONG = 64 << 10
_AROUND = 512
"""Characters at either end of a wrapper that are looked at."""

# Escapes outside of a string are consumed, so that no string begins at an escaped quote, and a
# string without an end is consumed whole: the search is linear.
_STRING = re.compile(r'\\.|"([^"\\]*+(?:\\.[^"\\]*+)*+)("|\Z)', re.DOTALL)
_ESCAPE = re.compile(
    r"""\\(?:u([dD][89abAB]\w\w)\\u([dD][c-fC-F]\w\w)|(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2}))"""
    r"""|(033)|(.))""",
    re.DOTALL,
)
_PLAIN = {"b": "\b", "f": "\f", "r": "\r", "n": "\n", "t": "\t", "e": "\x1b"}
_COLOURS = re.compile(
    r"(?:\x1b|#033|\^\[|\\x1[bB]|\\u001[bB]|\\033|\\e|␛)\[[\d;?]*[A-Za-z]"
    r"|\[\d{1,3}(?:;\d{1,3})*m"
)
"""Escape sequences as rsyslog, `cat -v` and others spell them, or without their first byte."""


class Unwrapped(NamedTuple):
    """A clean text, and the wrapper around it."""

    text: str
    around: str


def unwrap(line: bytes) -> Iterator[Unwrapped]:
    """Yield the texts of a line: the first of a plain line always, others if they may matter."""
    return _texts(line.decode("utf-8", "replace"), "", 0)


def _texts(text: str, around: str, depth: int) -> Iterator[Unwrapped]:
    if depth < MAX_DEPTH and '"' in text and STATS not in text:
        strings = [m for m in _STRING.finditer(text) if m[2] and TELLING.search(m[1])]
        if strings:
            yield from _strings(text, strings, around, depth)
            return
    yield from _segments(text, around)


def _strings(
    text: str, strings: list[re.Match[str]], around: str, depth: int
) -> Iterator[Unwrapped]:
    """Yield what the strings of a text say. A logger may write a text twice, once with a prefix."""
    outside, end = [around], 0
    kept: list[str] = []
    for match in strings:
        outside.append(text[end : match.start()])
        end = match.end()
        content = unescaped(match[1])
        if kept and (rest := _without(kept[-1], content)) is not None:
            outside.append(rest)
            kept[-1] = min(kept[-1], content, key=len)
        else:
            kept.append(content)
    outside.append(text[end:])
    wrapper = shortened(" ".join(filter(None, outside)))
    for content in kept:
        lines = content.split("\n")
        for line in lines:
            if len(lines) == 1 or TELLING.search(line):
                yield from _texts(line, wrapper, depth + 1)


def _without(left: str, right: str) -> str | None:
    """Return what the longer text has before the shorter one; None if it does not end with it."""
    shorter, longer = sorted((right.strip(), left.strip()), key=len)
    before = longer.removesuffix(shorter)
    glued = before[-1:].isalnum() or before[-1:] == "_"
    return None if glued or len(before) == len(longer) else before


def _segments(text: str, around: str) -> Iterator[Unwrapped]:
    """Yield the texts between carriage returns and written line ends. The wrapper of all of them is
    what the first begins with."""
    escaped = "\\n" in text
    if not escaped and "\r" not in text:
        yield Unwrapped(_cleaned(_window(text)), around)
        return
    if escaped:
        text = text.replace("\\n", "\r").replace("\\r", "\r")
    first, *others = re.split("[\r\n]", text)
    yield Unwrapped(_cleaned(_unescaped_window(first, escaped)), around)
    begins = TELLING.search(first)
    prefix = first[: begins.start() if begins else _AROUND]
    around = shortened(f"{around} {_cleaned(_unescaped_window(prefix, escaped))}".strip())
    for segment in others:
        if segment and TELLING.search(segment):
            yield Unwrapped(_cleaned(_unescaped_window(segment, escaped)), around)


def _unescaped_window(text: str, escaped: bool) -> str:
    text = _window(text)
    return unescaped(text) if escaped and "\\" in text else text


def _window(text: str) -> str:
    """Return the whole text, or the part around a table's header if it is very long."""
    if len(text) <= _LONG:
        return text
    at = max(0, text.find(AUTOTUNE) - 4096)
    return text[at : at + _LONG]


def shortened(text: str) -> str:
    """Return the ends of a long wrapper: it is looked at for each thing that its line says."""
    return text if len(text) <= 2 * _AROUND else f"{text[:_AROUND]} {text[-_AROUND:]}"


def _cleaned(text: str) -> str:
    return clean(_COLOURS.sub("", text) if "[" in text else text)


def unescaped(text: str) -> str:
    """Return what a string of JSON, Go or Python means by its backslashes."""
    return _ESCAPE.sub(_character, text) if "\\" in text else text


def _character(match: re.Match[str]) -> str:
    high, low, wide, short, octal, other = match.groups()
    code = wide or short
    if high:
        try:
            pair = (int(high, 16), int(low, 16))
        except ValueError:
            return "\ufffd"
        return chr(0x10000 + ((pair[0] - 0xD800) << 10) + (pair[1] - 0xDC00))
    if code:
        number = int(code, 16)
        return "\ufffd" if 0xD800 <= number < 0xE000 else chr(number)
    return "\x1b" if octal else _PLAIN.get(other, other)


_REST_OF_STRING = re.compile(r'[^"\\]*+(?:\\.[^"\\]*+)*+(?=")', re.DOTALL)


def rest_of_text(line: str) -> str:
    """Return the rest of the text in which `line` begins: up to the end of its string, if it is in
    one."""
    for _ in range(MAX_DEPTH):
        string = _REST_OF_STRING.match(line)
        if string is None:
            break
        line = unescaped(string[0])
    return _cleaned(line).strip()


REPEATED = re.compile(r"(?<! ) *\[repeated (\d{1,9})x across [a-z ]{1,20}\].*")
"""What Ray adds to a line when it left out the same line of other processes."""


# Lines that a terminal cut at its width

_NARROW, _WIDE = 60, 2000
_MAX_PIECES = 64
_UNWRAPPED = 500
"""Rows that could have been cut and were not, after which no more are looked at."""
_SETTING = r"""[A-Za-z_]\w*=(?:'[^']*+'|"[^"]*+"|\[[^\]]*+\]|\([^)]*+\)|[^\s,='"\[(]++)"""
_SETTINGS = re.compile(rf"{_SETTING}(?:, ?{_SETTING})*+")
_BEGUN = re.compile(r" ms +[\d.]{1,16}% +([A-Za-z_]\w*=[^\r]*)\r?\Z")
CUT = re.compile(r"=.*(?:[=,]|, [A-Za-z_]\w*)\Z")
"""A description that ends in the middle of a setting."""


class HardWraps:
    """Joins lines that were cut at the width of a terminal, as PowerShell does in a file.

    A row, or statistics, that may go on waits for the next line. As soon as one was joined the
    width is proven, and every line of just that width may go on.
    """

    def __init__(self) -> None:
        self.width = 0
        self._held: list[tuple[bytes, int]] = []
        self._unwrapped = 0

    @property
    def holding(self) -> bool:
        return bool(self._held)

    def feed(self, line: bytes, place: int) -> list[tuple[bytes, int]]:
        """Return the lines that are complete, each with its place."""
        if self._held:
            if self._goes_on(line):
                self._held.append((line, place))
                return []
            done = self.rest()
            return done + self.feed(line, place)
        if self._may_be_cut(line):
            self._held.append((line, place))
            return []
        return [(line, place)]

    def rest(self) -> list[tuple[bytes, int]]:
        """Return what waits: joined if that is complete, else line by line."""
        held, self._held = self._held, []
        if len(held) < 2:
            self._unwrapped += len(held)
            return held
        joined = b"".join(line.rstrip(b"\r") for line, _ in held)
        if STATS.encode() in joined and not joined.rstrip().endswith(b"}"):
            self._unwrapped += 1
            return held
        self.width = _width(held[0][0])
        return [(joined, held[0][1])]

    def _may_be_cut(self, line: bytes) -> bool:
        if not _NARROW <= len(line) <= _WIDE or self._unwrapped > _UNWRAPPED:
            return False
        if self.width:
            return _width(line) == self.width and TELLING.search(_text(line)) is not None
        if STATS.encode() in line:
            return not line.rstrip().endswith(b"}") and b'\\"' not in line
        return b" ms " in line and _BEGUN.search(_text(line)) is not None

    def _goes_on(self, line: bytes) -> bool:
        """Whether `line` is the rest of the line that waits."""
        text = _text(line)
        first, last = _text(self._held[0][0]), _text(self._held[-1][0])
        full = len(self._held) == 1 or len(last) == len(first)
        if not (text and full) or len(text) > len(first) or len(self._held) >= _MAX_PIECES:
            return False
        joined = "".join(_text(held) for held, _ in self._held)
        if STATS in joined:
            return not joined.rstrip().endswith("}") and not _begins(text)
        if _begins(text):
            return False
        row = _BEGUN.search(joined)
        if row is None:
            return len(first) == self.width
        proven = len(first) == self.width or "=" in text or CUT.search(row[1])
        together = (row[1] + text).rstrip().rstrip(",")
        return bool(proven) and _is_settings(together, len(text) == len(first))


def _is_settings(text: str, cut: bool) -> bool:
    """Return whether a text consists of settings; the last may end in its middle if it is `cut`."""
    match = _SETTINGS.match(text)
    if match is None:
        return False
    rest = text[match.end() :]
    return not rest or (cut and re.fullmatch(r", ?(?:[A-Za-z_]\w*=?\S{0,200})?", rest) is not None)


def _begins(text: str) -> bool:
    """Whether a line says something of its own."""
    return TELLING.search(text) is not None and "=" not in text.partition(" ms ")[0]


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").rstrip("\r")


def _width(line: bytes) -> int:
    return len(_text(line))
