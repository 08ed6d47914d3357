"""Taking AUTOTUNE tables out of a stream of bytes, without holding up anything else.

A table is the text that torch/_inductor/select_algorithm.py writes to stderr: two lines of
statistics, a header, strides, dtypes, rows, a footer; each may have a launcher's or logger's
prefix and colours. A progress bar may stand before the header on its own line, and stays.
"""

from __future__ import annotations

import re

_PREFIX = re.compile(
    rb"(?:\x1b\[[\d;]*m|\[[\w.:-]{1,40}\]:? ?|\d{4}-\d\d-\d\d[T ][\d:.,]+Z? ?|[ \t])*"
)
_COLOUR = re.compile(rb"\x1b\[[\d;]*m")

# Each begins a line of a table.
_STATS, _AUTOTUNE = b"Autotune Choices Stats:", b"AUTOTUNE "
_JSON, _STRIDES, _DTYPES = b'{"num_choices": ', b"strides: ", b"dtypes: "
_FOOTERS = (b"SingleProcess AUTOTUNE ", b"SubProcess AUTOTUNE ")
_STARTS = (_STATS, _AUTOTUNE, *_FOOTERS)

_HEADER = re.compile(rb"AUTOTUNE [\w.:]+\(.*\)\s*")
_INLINE = re.compile(rb"Autotune Choices Stats:|AUTOTUNE [\w.:]+\(")
_FOOTER = re.compile(rb"(?:SingleProcess|SubProcess) AUTOTUNE (?:benchmarking )?takes .*")
_LIST = re.compile(rb"(?:strides: (?:\[.*|)|dtypes: (?:torch\..*|))")
_ROW = re.compile(rb"(?:# )?[A-Za-z_][^\s]* (?:[\d.]+|inf|nan) ms (?:[\d.]+%|nan%|<DIVIDED BY).*")
_ROW_BEGUN = re.compile(rb"(?:# ?)?(?:[A-Za-z_][^\s\r]*(?: (?:[\d.infa]*(?: m?s?(?: .*)?)?)?)?)?")


class TableFilter:
    """Feed it what was read; it gives back what is not part of a table.

    `held` tells whether the end of what was fed may still turn out to be a table's: feed more, or
    `release` it after a moment.
    """

    def __init__(self) -> None:
        self._pending = b""
        self._mid_line = False
        self._open = 0

    @property
    def held(self) -> bool:
        return bool(self._pending)

    def feed(self, data: bytes) -> bytes:
        lines = (self._pending + data).split(b"\n")
        self._pending = b""
        out = [self._line(line + b"\n") for line in lines[:-1]]
        out.append(self._partial(lines[-1]))
        return b"".join(out)

    def release(self) -> bytes:
        """What is held, as it stands: nothing more came, so it is not a table's."""
        out, self._pending = self._pending, b""
        self._mid_line = self._mid_line or bool(out)
        return out

    def _line(self, line: bytes) -> bytes:
        begun, self._mid_line = self._mid_line, False
        if line == b"\n":
            return line
        text = _COLOUR.sub(b"", line[_match_end(line) :]).rstrip()
        if not begun and self._is_ours(text):
            return b""
        found = _INLINE.search(line)
        if found is not None and self._is_ours(_COLOUR.sub(b"", line[found.start() :]).rstrip()):
            return line[: found.start()]  # the bar goes on, on this line
        return line

    def _is_ours(self, text: bytes) -> bool:
        if text.startswith((_STATS, _JSON)):
            return True
        if _HEADER.fullmatch(text):
            self._open += 1
            return True
        if _FOOTER.fullmatch(text):
            self._open = max(0, self._open - 1)
            return True
        if self._open == 0:
            return False
        return bool(_LIST.fullmatch(text) or _ROW.fullmatch(text))

    def _partial(self, part: bytes) -> bytes:
        """The end of what came, which has no line end yet: pass on what cannot be ours."""
        keep = self._inline_start(part) if self._mid_line else self._line_start(part)
        self._pending = part[keep:]
        self._mid_line = self._mid_line or keep > 0
        return part[:keep]

    def _line_start(self, part: bytes) -> int:
        text = part[_match_end(part) :]
        starts = (*_STARTS, _JSON, *((_STRIDES, _DTYPES) if self._open else ()))
        if any(start.startswith(text) or text.startswith(start) for start in starts):
            return 0
        if self._open and _ROW_BEGUN.fullmatch(text):
            return 0
        return self._inline_start(part)

    def _inline_start(self, part: bytes) -> int:
        """Where, in the middle of a line, a table may begin."""
        found = _INLINE.search(part)
        if found is not None:
            return found.start()
        for at in range(max(0, len(part) - len(_STATS)), len(part)):
            if any(start.startswith(part[at:]) for start in (_STATS, _AUTOTUNE)):
                return at
        return len(part)


def _match_end(line: bytes) -> int:
    found = _PREFIX.match(line)
    return found.end() if found else 0
