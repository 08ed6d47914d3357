"""What a program wrote to its terminal, as lines: made harmless, the last ones kept.

A carriage return begins the line again, as progress bars have it. Cursor moves and colours are
taken out; the bytes as they came are in a file.
"""

from __future__ import annotations

import codecs
import threading

from rocm_tui.harmless import clean

MOST_LINES = 10_000
MOST_CHARACTERS = 4_000
"""Of one line; what is longer goes on in the next."""
_SLACK = 1_000
"""Lines that are dropped in one go."""


class OutputLines:
    """The lines are numbered from 0 on; of those, `first` and later are kept. Safe to use from two
    threads."""

    def __init__(self, most: int = MOST_LINES) -> None:
        self.first = 0
        self._most = most
        self._lines: list[str] = []
        self._begun = ""
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._lock = threading.Lock()

    def feed(self, data: bytes) -> None:
        """Take what was read next; pieces may be cut anywhere."""
        *whole, begun = (self._begun + self._decode(data)).split("\n")
        with self._lock:
            for text in whole:
                self._lines += _pieces(_last_writing(text))
            self._begun = begun
            if len(begun) > MOST_CHARACTERS:
                self._begun = _last_writing(begun)[:MOST_CHARACTERS]
                if "\r" not in begun:
                    self._lines += _pieces(begun)
                    self._begun = ""
            beyond = len(self._lines) - self._most
            if beyond >= min(_SLACK, self._most):
                del self._lines[:beyond]
                self.first += beyond

    @property
    def end(self) -> int:
        """How many lines have ended so far."""
        return self.first + len(self._lines)

    @property
    def begun(self) -> str:
        """The line that has not ended; empty where there is none."""
        return clean(_last_writing(self._begun))

    def since(self, number: int) -> tuple[int, list[str]]:
        """The lines from `number` on that are kept, and the number of the first of them."""
        with self._lock:
            start = max(number, self.first)
            return start, self._lines[start - self.first :]

    def last(self, count: int) -> list[str]:
        """The last lines that say something, the begun one too."""
        with self._lock:
            tail = self._lines[-4 * count :]
        told = [line for line in (*tail, self.begun) if line.strip()]
        return told[-count:]


def _last_writing(text: str) -> str:
    """What stands in a line that was begun anew with each carriage return."""
    return text.rstrip("\r").rpartition("\r")[2]


def _pieces(text: str) -> list[str]:
    text = clean(text)
    ends = range(0, max(1, len(text)), MOST_CHARACTERS)
    return [text[at : at + MOST_CHARACTERS] for at in ends]
