"""A text of a kernel: line numbers, colours, a search, and scrolling sideways."""

from __future__ import annotations

import re
from textwrap import wrap
from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType

from rocm_tui.render.table import Line, Span
from rocm_tui.tui.keys import key
from rocm_tui.tui.widgets.line_view import LineView

if TYPE_CHECKING:  # a type only: Pygments is loaded in a thread
    from rocm_tui.render.kernel import Code

_SIDEWAYS = 16


class CodeView(LineView):
    """The lines of a `Code`; or lines that are given, without numbers."""

    BINDING_GROUP_TITLE = "Text"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("l,right", "sideways(1)", "code.right", "to the right, in a long line"),
        key("h,left", "sideways(-1)", "code.left", "to the left"),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._code: Code | None = None
        self._lines: list[Line] = []
        self._instead = ""
        self._word = ""
        self._first = 0
        self.found = 0
        """Lines with what is searched for."""

    def put(self, code: Code) -> None:
        """Show this text from its beginning."""
        self._reset(code, [], "")

    def put_lines(self, lines: list[Line]) -> None:
        """Show these instead."""
        self._reset(None, lines, "")

    def say(self, instead: str) -> None:
        """Show a sentence instead."""
        self._reset(None, [], instead)

    def _reset(self, code: Code | None, lines: list[Line], instead: str) -> None:
        self._code, self._lines, self._instead = code, lines, instead
        self.cursor = self.top = self._first = 0
        self.search(self._word)

    @property
    def _texts(self) -> list[str]:
        if self._code is not None:
            return self._code.lines
        return ["".join(text for text, _ in line) for line in self._lines]

    def search(self, word: str) -> None:
        """Let these letters, small or capital, be the ones that are set off; none for none."""
        self._word = word.lower()
        self.found = sum(self._word in line.lower() for line in self._texts) if word else 0
        self.repaint()

    def find(self, step: int, begin: int | None = None) -> bool:
        """Go to the next line with what is searched for, round the end; whether there is one."""
        texts = self._texts
        at = self.cursor if begin is None else begin - step
        for line in ((at + step * by) % len(texts) for by in range(1, len(texts) + 1)):
            if self._word in texts[line].lower():
                self.move_cursor(line)
                return True
        return False

    def count(self) -> int:
        return len(self._code.lines) if self._code else len(self._lines)

    def line(self, index: int, width: int) -> Line:
        if self._code is None:
            return marked(self._lines[index], self._word)
        digits = len(str(len(self._code.lines)))
        number = f"{index + 1:>{digits}}  "
        text = marked(self._code.line(index), self._word)
        return ((number, "rail"), *scrolled(text, self._first))

    def empty(self, width: int) -> list[Line]:
        parts = wrap(self._instead, max(20, width - 4))
        return [(), *(((f"  {part}", "dim"),) for part in parts)]

    def action_sideways(self, way: int) -> None:
        self._first = max(0, self._first + way * _SIDEWAYS)
        self.sync()


def marked(line: Line, word: str) -> Line:
    """The line with each `word`, in small letters, set off."""
    if not word:
        return line
    text = "".join(part for part, _ in line).lower()
    places = [found.start() for found in re.finditer(re.escape(word), text)]
    if not places:
        return line
    cuts = sorted({*places, *(place + len(word) for place in places)})
    spans: list[Span] = []
    begin = 0
    for part, style in line:
        inner = [cut - begin for cut in cuts if begin < cut < begin + len(part)]
        for start, end in zip([0, *inner], [*inner, len(part)], strict=True):
            at = begin + start
            inside = any(place <= at < place + len(word) for place in places)
            spans.append((part[start:end], "found" if inside else style))
        begin += len(part)
    return tuple(spans)


def scrolled(line: Line, by: int) -> Line:
    """The line without its first cells, where one character takes one."""
    spans: list[Span] = []
    for text, style in line:
        if by < len(text):
            spans.append((text[by:], style))
        by = max(0, by - len(text))
    return tuple(spans)
