"""The output of a program: its lines, the pane with them at the bottom of Watch, and when it is
shown."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable
from contextlib import suppress
from typing import ClassVar, cast

from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.message import Message

from rocm_tui.launch.program import Program, ending
from rocm_tui.render.table import Line, Span
from rocm_tui.session import numbers as fmt
from rocm_tui.tui.base import BaseApp, BaseScreen, after
from rocm_tui.tui.keys import key
from rocm_tui.tui.widgets.line_view import LineView
from rocm_tui.tui.widgets.one_line import OneLine

_FRAME = 0.4
"""The minimum seconds between two paints of new output, which is not looked at all the time."""
_CLOCK = 10.0
"""Seconds between two updates of the minutes."""
LEAST = 3
"""The minimum lines: one about the program, two of its output."""
_SHOWN, _LINES = "output", "output lines"
_TALL = 40
"""The minimum lines of the screen for showing it unasked, until somebody hides it."""
_DEFAULT, _SHORT = 8, 5
"""Its initial lines; on a short screen."""
_REST = 8
"""The lines that the other panes keep."""


class OutputView(LineView):
    """Lines as they came, folded to the width; follows their end while the cursor is there."""

    BINDING_GROUP_TITLE = "Output"

    class Updated(Message):
        """More output is shown, or the program has ended."""

    def __init__(self, frame: float, *, id: str) -> None:
        """`frame` is the minimum number of seconds between two paints of new output."""
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
        """Whether the cursor is at the end."""
        return self.cursor >= self.count() - 1

    def follow(self, source: Program) -> None:
        """Show the program's output so far, and from now on what it writes, painted at
        intervals."""
        host = cast(BaseApp, self.app)
        self._hush()
        self._program = source
        self._hush = source.listen(lambda: host.call_from_any_thread(self._came))
        self._paint()

    def on_unmount(self) -> None:
        self._hush()

    def _came(self) -> None:
        """Something was written: paint it soon, with everything else that arrives until then."""
        if not self._due and self.is_mounted:
            self._due = True
            after(self, self._frame, self._paint)

    def _paint(self) -> None:
        self._due = False
        if self._program is not None and self.is_mounted and self.size.width:
            self.put(self._program)
            self.post_message(self.Updated())

    def on_resize(self) -> None:
        if self._program is not None:
            self.put(self._program)

    def put(self, source: Program) -> None:
        """Show what the program has written by now."""
        follow, width = self.follows, max(20, self.size.width - 3)
        lines = source.lines
        if (source, width) != (self._source, self._width):
            self._source, self._width = source, width
            self._pieces, self._next = [], 0
        start, new = lines.since(self._next)
        for number, text in enumerate(new, start):
            self._pieces += ((number, piece) for piece in folded_text(text, width))
        self._next = start + len(new)
        self._drop(lines.first)
        self._tail = folded_text(lines.begun, width) if lines.begun else []
        if follow:
            self.cursor = max(0, self.count() - 1)
            self.top = self.count()
        self.sync()

    def _drop(self, first: int) -> None:
        """Forget lines that are no longer kept; the cursor stays on its line."""
        gone = bisect_left(self._pieces, first, key=lambda piece: piece[0])
        if gone:
            del self._pieces[:gone]
            self.cursor, self.top = max(0, self.cursor - gone), max(0, self.top - gone)

    def find(self, words: str, step: int) -> bool:
        """Go to the next line (the previous one: -1) that contains `words`; False if there is
        none."""
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
            return []  # it is set as soon as the size is known
        return [(), (("  It has written nothing yet.", "dim"),)] if self._source else []


def folded_text(line: str, width: int) -> list[str]:
    """Cut a line of output into pieces that fit; blanks are meaningful there, so they are kept."""
    return [line[at : at + width] for at in range(0, len(line), width)] or [""]


def about(program: Program, width: int, *, minutes: bool = False) -> Line:
    """Describe the program in `width` cells; in `minutes`, since a ticking clock costs bytes."""
    since = fmt.running(program.age)
    if minutes:
        since = f"{program.age // 60:.0f} min" if program.age >= 60 else ""
    state: Span = (f"running {since}".rstrip(), "title")
    if not program.running:
        sign = "✗" if program.code else "✓"
        state = (f"{sign} {ending(program.code)} after {fmt.seconds(program.age)}", "title")
    wrong = f" · output is lost: {program.lost}" if program.lost else ""
    if program.unread:
        wrong = f" · output cannot be read: {program.unread}"
    lost: Span = (wrong, "warn")
    room = max(12, width - len(state[0]) - len(lost[0]) - 5)
    return ((f" {fmt.shorten(program.title, room)}  ", "head"), state, lost)


class OutputPane(Vertical):
    """`lines` high, with a line above the output, which follows its end."""

    DEFAULT_CSS = "OutputPane { height: auto; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("right_square_bracket", "turn(1)", "output.turn", ""),
        key("left_square_bracket", "turn(-1)", "output.turn_before", ""),
    ]

    def __init__(self, program: Program, lines: int) -> None:
        super().__init__(id="output")
        self._program = program
        self._place = (0, 0)
        self._bar = OneLine(id="output-about")
        self.view = OutputView(_FRAME, id="output-lines")
        self.set_lines(lines)

    def compose(self) -> ComposeResult:
        yield self._bar
        yield self.view

    def on_mount(self) -> None:
        # Not `call_after_refresh`: that is lost where another screen is on top, and then closed.
        self.call_next(self._follow)
        self.set_interval(_CLOCK, self._describe)

    def _follow(self) -> None:
        self._place = cast(BaseApp, self.app).programs.place()
        self.view.follow(self._program)
        self._describe()

    def show(self, program: Program) -> None:
        """Show this program from now on."""
        if program is not self._program:
            self._program = program
            self._follow()
            self.view.action_move_to(-1)

    def action_turn(self, by: int) -> None:
        """Show the program `by` places further."""
        self.show(cast(BaseApp, self.app).programs.turn(by) or self._program)

    def set_lines(self, lines: int) -> None:
        """Set the height, including the line above the output."""
        self.lines = max(LEAST, lines)
        self.styles.height = self.lines

    def on_resize(self, event: events.Resize) -> None:
        size = self.screen.size
        self._program.resize(size.width - 3, size.height - 3)  # as on the whole screen
        self._describe()

    @on(OutputView.Updated)
    @on(LineView.CursorMoved)
    def _describe(self) -> None:
        at, of = self._place
        hints = ["G follows"] if not self.view.follows else ["0 full screen"]
        if self.view.has_focus and self.view.follows:
            hints.insert(0, "< > height")
        if of > 1:
            hints.insert(0, f"{'[ ] ' * self.view.has_focus}program {at:,} of {of:,}")
        hint = " · ".join(hints)
        left = about(self._program, self.size.width - len(hint), minutes=True)
        self._bar.put(left, ((f"{hint} ", "head"),))

    def on_descendant_focus(self) -> None:
        self._describe()

    def on_descendant_blur(self) -> None:
        self._describe()


class Dock:
    """Shows and hides the pane on a screen; the last choice and the height are remembered."""

    def __init__(self, screen: BaseScreen) -> None:
        self._screen = screen
        self._memory = screen.program.memory
        self._workspace = screen.program.workspace
        self._asked = False
        self.has_program = screen.program.launched is not None
        """Whether there is a program whose output could be shown."""

    @property
    def pane(self) -> OutputPane | None:
        """The visible pane, or None."""
        return next(iter(self._screen.query(OutputPane)), None)

    def begin(self) -> None:
        """Show this screen's program unless the pane was hidden; look for others' programs."""
        launched = self._screen.program.launched
        if self._asked:
            return
        if launched is None:
            threading.Thread(target=self._look, name="programs", daemon=True).start()
            return
        last = self._workspace.recall(_SHOWN, "")
        if last == "on" or (last != "off" and self._screen.size.height >= _TALL):
            self._mount(launched)

    def _look(self) -> None:
        shown = self._screen.program.programs.shown  # reads files
        if shown is not None and shown.running:
            with suppress(RuntimeError):  # the program has ended
                self._screen.app.call_from_thread(self._program_found)

    def _program_found(self) -> None:
        self.has_program = True
        if self._screen.has_widgets:  # it may have closed while files were read
            self._screen.update()

    def show(self, program: Program) -> None:
        """Show the pane, and focus it."""
        self.has_program = self._asked = True
        self._workspace.remember(_SHOWN, "on")
        pane = self._mount(program)
        pane.call_after_refresh(self._screen.set_focus, pane.view)

    def hide(self) -> None:
        """Hide the pane."""
        self._workspace.remember(_SHOWN, "off")
        pane = self.pane
        if pane is not None:
            pane.remove()

    def _mount(self, program: Program) -> OutputPane:
        pane = OutputPane(program, self._remembered)
        self._screen.query_one("#body").mount(pane)
        return pane

    @property
    def _first(self) -> int:
        return _DEFAULT if self._screen.size.height >= _TALL else _SHORT

    @property
    def _remembered(self) -> int:
        return self._fitting(self._memory.recall(_LINES, 0) or self._first)

    def _fitting(self, lines: int) -> int:
        return min(lines, max(3, self._screen.size.height - _REST))

    def resized(self) -> None:
        """React to another height of the screen."""
        pane = self.pane
        if pane is not None:
            pane.set_lines(self._remembered)

    def resumed(self) -> None:
        """Follow another program if one was chosen while another screen was on top."""
        pane, shown = self.pane, self._screen.program.programs.shown
        if pane is not None and shown is not None:
            pane.show(shown)

    def grow(self, by: int) -> None:
        """Move the upper border; 0 resets it."""
        pane = self.pane
        if pane is not None:
            pane.set_lines(self._fitting(pane.lines + by if by else self._first))
            self._memory.remember(_LINES, pane.lines if by else 0)
