"""Output: what the program that `watch -- CMD` started writes to its terminal, and its end."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.events import Resize
from textual.widgets import Input

from backend.counted import counted
from rocm_tui.harmless import plain
from rocm_tui.launch.launched import Launched, ending
from rocm_tui.render.table import Line, Span
from rocm_tui.session import numbers as fmt
from rocm_tui.tui.keys import key
from rocm_tui.tui.screens.base import BaseScreen
from rocm_tui.tui.screens.dialogs import ConfirmScreen
from rocm_tui.tui.widgets.line_view import LineView
from rocm_tui.tui.widgets.one_line import Key, OneLine

_FRAME = 0.15
"""Least seconds between two paintings of what came: a fast program would fill an SSH line."""
_NONE = "No program was started here. To start one and watch it: rocm-tui watch -- CMD"
_PRESSED = {
    "SIGINT": ("Interrupt", "It gets a Ctrl-C, as it would in a terminal of its own."),
    "SIGTERM": ("End", "It had its Ctrl-C and still runs. It is asked to end (SIGTERM)."),
    "SIGKILL": ("Kill", "It was asked to end and still runs. It is killed, with its group."),
}


class OutputView(LineView):
    """Lines as they came, folded to the width; follows their end while the cursor is there."""

    BINDING_GROUP_TITLE = "Output"

    def __init__(self) -> None:
        super().__init__(id="lines")
        self.words = ""
        self._source: Launched | None = None
        self._pieces: list[tuple[int, str]] = []
        self._tail: list[str] = []
        self._next = 0
        self._width = 0

    @property
    def follows(self) -> bool:
        """Whether the cursor stands at the end."""
        return self.cursor >= self.count() - 1

    def put(self, source: Launched) -> None:
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
        words = "It has written nothing yet." if self._source else _NONE
        return [(), ((f"  {words}", "dim"),)]


def _folded(line: str, width: int) -> list[str]:
    """In pieces that fit; blanks stay."""
    return [line[at : at + width] for at in range(0, len(line), width)] or [""]


class OutputScreen(BaseScreen):
    """The program's output; lines around it say how it does, and where all of it is kept."""

    CSS_PATH = "lists.tcss"
    AUTO_FOCUS = "#lines"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("slash", "search", "output.search", "search in the output"),
        key("n", "find(1)", "output.next", "the next line that was searched for"),
        key("N", "find(-1)", "output.previous", "the one before"),
        key("x", "press", "output.press", "interrupt the program, then end it; asks"),
        key("y", "copy", "output.copy", "copy the name of the file with all of the output"),
        key("escape", "back", "output.back", "end the search, else back"),
    ]
    KEYS: ClassVar[tuple[Key, ...]] = (
        ("/", "search", "search"),
        ("n", "next", "find(1)"),
        ("x", "interrupt", "press"),
        ("y", "copy file name", "copy"),
        ("G", "follow", "follow"),
    )

    def compose_body(self) -> ComposeResult:
        yield OneLine(id="about")
        yield OutputView()
        yield OneLine(id="kept")

    def on_mount(self) -> None:
        super().on_mount()
        self._due = False
        self._hush: Callable[[], None] = lambda: None
        self.update()
        launched = self.program.launched
        if launched is not None:
            self._hush = launched.listen(lambda: self.program.call_from_any_thread(self._came))
            self.set_interval(1.0, self._describe)

    def on_unmount(self) -> None:
        self._hush()

    def _came(self) -> None:
        """Something was written: it is painted soon, with what else comes until then."""
        if not self._due and self.is_mounted:
            self._due = True
            self.set_timer(_FRAME, self._paint)

    def _paint(self) -> None:
        self._due = False
        if self.is_mounted:
            self.update()

    def update(self) -> None:
        """Show what the program has written by now."""
        launched = self.program.launched
        if launched is not None and self.view.size.width:
            self.view.put(launched)
        self._describe()

    @property
    def view(self) -> OutputView:
        return self.query_one(OutputView)

    def on_resize(self, event: Resize) -> None:
        super().on_resize(event)
        if self.program.launched is not None:
            self.program.launched.resize(event.size.width - 3, event.size.height - 3)
        self.call_after_refresh(self.update)

    def _describe(self) -> None:
        launched = self.program.launched
        if launched is None:
            self.show_title("Output", [])
            return
        state: Span = (f"running {fmt.running(launched.age)}", "title")
        if launched.code is not None:
            sign = "✗" if launched.code else "✓"
            state = (f"{sign} {ending(launched.code)} after {fmt.seconds(launched.age)}", "title")
        lines, view = launched.lines, self.view
        count = counted(lines.end, "line")
        count += f", the last {lines.end - lines.first:,} here" if lines.first else ""
        notice = "" if view.follows else "not following, G goes to the end"
        self.show_title("Output", [count], notice)
        about = self.query_one("#about", OneLine)
        title = fmt.shorten(launched.title, max(20, self.size.width - 32))
        about.put(((f" {title}  ", "head"), state))
        path = fmt.shorten(plain(str(launched.log)), max(20, self.size.width - 14))
        kept = f" All of it: {path}"
        self.query_one("#kept", OneLine).put(((kept, "head"),))

    # Keys.

    @on(LineView.CursorMoved)
    def _moved(self) -> None:
        self._describe()

    async def action_search(self) -> None:
        if not self.query(Input):
            entry = Input(self.view.words, placeholder="words in a line", compact=True)
            await self.query_one("#body").mount(entry)
            entry.focus()

    @on(Input.Submitted)
    def _searched(self, event: Input.Submitted) -> None:
        event.stop()
        self.view.words = event.value.strip().lower()
        self._close_search()
        self.action_find(-1)

    def _close_search(self) -> None:
        self.query(Input).remove()
        self.view.focus()

    def action_find(self, step: int) -> None:
        """Without words there is nothing to go to."""
        words = self.view.words
        if words and not self.view.find(words, step):
            self.program.warn("No line that is kept holds that.")
        self._describe()

    def action_follow(self) -> None:
        self.view.action_move_to(-1)

    def action_back(self) -> None:
        if self.query(Input):
            self._close_search()
        else:
            self.app.pop_screen()

    def action_copy(self) -> None:
        if self.program.launched is not None:
            self.program.copy(str(self.program.launched.log), "the file of the output")

    def action_press(self) -> None:
        launched = self.program.launched
        if launched is None or not launched.running:
            self.program.warn("No program of this screen runs.")
            return
        verb, words = _PRESSED[launched.next_signal.name]
        question = ConfirmScreen(f"{verb} {launched.title}?", verb, [words])

        def answered(yes: str | None) -> None:
            if yes is not None:
                launched.press()

        self.app.push_screen(question, answered)
