"""What a program writes, as lines that follow their end; and the line above them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import cast

from textual.message import Message

from rocm_tui.launch.program import Program, ending
from rocm_tui.render.table import Line, Span
from rocm_tui.session import numbers as fmt
from rocm_tui.tui.host import Host
from rocm_tui.tui.widgets.line_view import LineView


class OutputView(LineView):
    """Lines as they came, folded to the width; follows their end while the cursor is there."""

    BINDING_GROUP_TITLE = "Output"

    class Told(Message):
        """It shows more than before, or the program has ended."""

    def __init__(self, frame: float, *, id: str) -> None:
        """`frame` is the least time in seconds between two paintings of what came."""
        super().__init__(id=id)
        self.words = ""
        self._frame = frame
        self._due = False
        self._hush: Callable[[], None] = lambda: None
        self._program: Program | None = None
        self._source: Program | None = None
        self._pieces: list[tuple[int, str]] = []
        self._tail: list[str] = []
        self._next = 0
        self._width = 0

    @property
    def follows(self) -> bool:
        """Whether the cursor stands at the end."""
        return self.cursor >= self.count() - 1

    def follow(self, source: Program) -> None:
        """Show what it has written, and from now on what it writes, painted every so often."""
        host = cast(Host, self.app)
        self._hush()
        self._program = source
        self._hush = source.listen(lambda: host.call_from_any_thread(lambda: self._came(source)))
        self._paint(source)

    def on_unmount(self) -> None:
        self._hush()

    def _came(self, source: Program) -> None:
        """Something was written: it is painted soon, with what else comes until then."""
        if not self._due and self.is_mounted:
            self._due = True
            self.set_timer(self._frame, lambda: self._paint(source))

    def _paint(self, source: Program) -> None:
        self._due = False
        if self.is_mounted and self.size.width:
            self.put(source)
            self.post_message(self.Told())

    def on_resize(self) -> None:
        if self._program is not None:
            self.put(self._program)

    def put(self, source: Program) -> None:
        """Show what it has written by now."""
        follow, width = self.follows, max(20, self.size.width - 3)
        lines = source.lines
        if (source, width) != (self._source, self._width):
            self._source, self._width = source, width
            self._pieces, self._next = [], 0
        start, new = lines.since(self._next)
        for number, text in enumerate(new, start):
            self._pieces += ((number, piece) for piece in _folded(text, width))
        self._next = start + len(new)
        self._drop(lines.first)
        self._tail = _folded(lines.begun, width) if lines.begun else []
        if follow:
            self.cursor = max(0, self.count() - 1)
            self.top = self.count()
        self.sync()

    def _drop(self, first: int) -> None:
        """Forget what is no longer kept; the cursor stays on its line."""
        gone = bisect_left(self._pieces, first, key=lambda piece: piece[0])
        if gone:
            del self._pieces[:gone]
            self.cursor, self.top = max(0, self.cursor - gone), max(0, self.top - gone)

    def find(self, words: str, step: int) -> bool:
        """Go to the next line (the one before: -1) that holds `words`; False if none does."""
        self.words = words.lower()
        count = self.count()
        for away in range(1, count + 1):
            at = (self.cursor + step * away) % count
            if self.words in self._text(at).lower():
                self.move_cursor(at)
                self.repaint()
                return True
        self.repaint()
        return False

    def _text(self, index: int) -> str:
        done = len(self._pieces)
        return self._pieces[index][1] if index < done else self._tail[index - done]

    def count(self) -> int:
        return len(self._pieces) + len(self._tail)

    def line(self, index: int, width: int) -> Line:
        text = self._text(index)
        at = text.lower().find(self.words) if self.words else -1
        if at < 0 or len(text.lower()) != len(text):
            return ((text, ""),)
        end = at + len(self.words)
        return ((text[:at], ""), (text[at:end], "title"), (text[end:], ""))

    def empty(self, width: int) -> list[Line]:
        if self._program is not None and self._source is None:
            return []  # it is put as soon as the size is known
        return [(), (("  It has written nothing yet.", "dim"),)] if self._source else []


def _folded(line: str, width: int) -> list[str]:
    """In pieces that fit; blanks stay."""
    return [line[at : at + width] for at in range(0, len(line), width)] or [""]


def about(program: Program, width: int, *, minutes: bool = False) -> Line:
    """Its name, and how it does, in so many cells; in `minutes`, a clock that ticks costs less."""
    since = fmt.running(program.age)
    if minutes:
        since = f"{program.age // 60:.0f} min" if program.age >= 60 else ""
    state: Span = (f"running {since}".rstrip(), "title")
    if not program.running:
        sign = "✗" if program.code else "✓"
        state = (f"{sign} {ending(program.code)} after {fmt.seconds(program.age)}", "title")
    lost: Span = (f" · output is lost: {program.lost}" if program.lost else "", "warn")
    room = max(12, width - 34 - len(lost[0]))
    return ((f" {fmt.shorten(program.title, room)}  ", "head"), state, lost)
