"""The dock at the bottom of Watch: how the program does, and the end of its output."""

from __future__ import annotations

from typing import ClassVar, cast

from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical

from rocm_tui.launch.program import Program
from rocm_tui.tui.host import Host
from rocm_tui.tui.keys import key
from rocm_tui.tui.widgets.line_view import LineView
from rocm_tui.tui.widgets.one_line import OneLine
from rocm_tui.tui.widgets.output_view import OutputView, about

_FRAME = 0.4
"""Least seconds between two paintings of what came: it is not what is looked at all the time."""
_CLOCK = 10.0
"""Seconds between two looks at the minutes."""
LEAST = 3
"""Lines: one of the program, two of its output."""


class OutputPane(Vertical):
    """`lines` high, with the line above the output, which follows its end."""

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
        self.call_after_refresh(self._follow)
        self.set_interval(_CLOCK, self._describe)

    def _follow(self) -> None:
        self._place = cast(Host, self.app).programs.place()
        self.view.follow(self._program)
        self._describe()

    def show(self, program: Program) -> None:
        """Show that one from now on."""
        if program is not self._program:
            self._program = program
            self._follow()
            self.view.action_move_to(-1)

    def action_turn(self, by: int) -> None:
        """Show another one of the programs."""
        self.show(cast(Host, self.app).programs.turn(by) or self._program)

    def set_lines(self, lines: int) -> None:
        """Be this high, with the line above the output."""
        self.lines = max(LEAST, lines)
        self.styles.height = self.lines

    def on_resize(self, event: events.Resize) -> None:
        size = self.screen.size
        self._program.resize(size.width - 3, size.height - 3)  # as where it has all of the screen
        self._describe()

    @on(OutputView.Told)
    @on(LineView.CursorMoved)
    def _describe(self) -> None:
        at, of = self._place
        hints = ["G follows"] if not self.view.follows else ["O all of it"]
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
