"""Taking AUTOTUNE tables out of a stream of bytes, without holding up anything else.

What a table is, the grammar of the log's readers says; here each line of it must be a part of one
and nothing else, behind a launcher's or logger's prefix and colours. A progress bar may stand
before the header on its own line, and stays.
"""

from __future__ import annotations

import re

from rocm_tui.harmless import clean_bytes
from rocm_tui.ingest.formats.autotune import grammar
from rocm_tui.ingest.formats.autotune.grammar import Dtypes, Footer, Header, Row, Strides
from rocm_tui.ingest.formats.autotune.lines import AUTOTUNE_MARK, only_part

_PREFIX = re.compile(
    rb"(?:\x1b\[[\d;]*m|\[[\w.:-]{1,40}\]:? ?|\d{4}-\d\d-\d\d[T ][\d:.,]+Z? ?|[ \t])*"
)
_TITLE, _STATS = grammar.TITLE.encode(), grammar.STATS.encode()
_OPERANDS = (grammar.STRIDES.encode(), grammar.DTYPES.encode())
_STARTS = (
    _TITLE,
    AUTOTUNE_MARK,
    *(process.encode() + AUTOTUNE_MARK for process in grammar.PROCESSES),
)
"""Each begins a line of a table."""
_INLINE = re.compile(rf"{grammar.TITLE}|{grammar.AUTOTUNE}{grammar.OP}\(".encode())
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
        if not begun and self._is_ours(line[_prefix_end(line) :]):
            return b""
        inline = _INLINE.search(line)
        if inline is not None and self._is_ours(line[inline.start() :]):
            return line[: inline.start()]  # the bar goes on, on this line
        return line

    def _is_ours(self, line: bytes) -> bool:
        if line.startswith((_TITLE, _STATS)):
            return True
        if not self._open and AUTOTUNE_MARK not in line:
            return False
        part = only_part(clean_bytes(line).rstrip())
        if isinstance(part, Header):
            self._open += 1
        elif isinstance(part, Footer):
            self._open = max(0, self._open - 1)
        else:
            return self._open > 0 and isinstance(part, (Row, Strides, Dtypes))
        return True

    def _partial(self, part: bytes) -> bytes:
        """The end of what came, which has no line end yet: pass on what cannot be ours."""
        keep = self._inline_start(part) if self._mid_line else self._line_start(part)
        self._pending = part[keep:]
        self._mid_line = self._mid_line or keep > 0
        return part[:keep]

    def _line_start(self, part: bytes) -> int:
        text = part[_prefix_end(part) :]
        starts = (*_STARTS, _STATS, *(_OPERANDS if self._open else ()))
        if any(start.startswith(text) or text.startswith(start) for start in starts):
            return 0
        if self._open and _ROW_BEGUN.fullmatch(text):
            return 0
        return self._inline_start(part)

    def _inline_start(self, part: bytes) -> int:
        """Where, in the middle of a line, a table may begin."""
        inline = _INLINE.search(part)
        if inline is not None:
            return inline.start()
        for at in range(max(0, len(part) - len(_TITLE)), len(part)):
            if any(start.startswith(part[at:]) for start in (_TITLE, AUTOTUNE_MARK)):
                return at
        return len(part)


def _prefix_end(line: bytes) -> int:
    prefix = _PREFIX.match(line)
    return prefix.end() if prefix else 0
