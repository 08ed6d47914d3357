"""Output: everything that a program started by a screen writes to its terminal, and its end."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.events import Resize
from textual.widgets import Input

from backend.counted import counted
from rocm_tui.harmless import plain
from rocm_tui.launch.program import Program
from rocm_tui.session import numbers as fmt
from rocm_tui.tui.base import BaseApp, BaseScreen
from rocm_tui.tui.keys import Key, key
from rocm_tui.tui.screens.dialogs import confirm
from rocm_tui.tui.widgets.line_view import LineView
from rocm_tui.tui.widgets.one_line import OneLine
from rocm_tui.tui.widgets.output import OutputView, about

_FRAME = 0.15
"""The minimum seconds between two paints of new output: a fast program would fill an SSH line."""
_TURN = "another program that a screen started, running or ended"
_PRESSED = {
    "SIGINT": ("Interrupt", "It gets a Ctrl-C, as it would in a terminal of its own."),
    "SIGTERM": ("End", "It had its Ctrl-C and still runs. It is asked to end (SIGTERM)."),
    "SIGKILL": ("Kill", "It was asked to end and still runs. It is killed, with its group."),
}


class OutputScreen(BaseScreen):
    """The program's output, with its state above and the file of the complete output below."""

    PLACE = "Output"
    CSS_PATH = "lists.tcss"
    AUTO_FOCUS = "#lines"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("slash", "search", "output.search", "search in the output"),
        key("n", "find(1)", "output.next", "the next line that was searched for"),
        key("N", "find(-1)", "output.previous", "the one before"),
        key("x", "press", "output.press", "interrupt the program, then end it; asks"),
        key("y", "copy", "output.copy", "copy the name of the file with all of the output"),
        key("right_square_bracket", "turn(1)", "output.turn", _TURN),
        key("left_square_bracket", "turn(-1)", "output.turn_before", _TURN),
        key("escape", "back", "output.back", "end the search, else back"),
    ]

    def compose_body(self) -> ComposeResult:
        yield OneLine(id="about")
        yield OutputView(_FRAME, id="lines")
        yield OneLine(id="kept")

    def on_mount(self) -> None:
        self._place = self.program.programs.place()
        shown = self.program.programs.shown
        if shown is not None:
            self.view.follow(shown)
            self.set_interval(1.0, self._describe)
        self._describe()

    @property
    def view(self) -> OutputView:
        return self.query_one(OutputView)

    def on_resize(self, event: Resize) -> None:
        if self.program.programs.shown is not None:
            self.program.programs.shown.resize(event.size.width - 3, event.size.height - 3)

    @on(OutputView.Updated)
    @on(LineView.CursorMoved)
    def _describe(self) -> None:
        shown = self.program.programs.shown
        if shown is None:
            self.show_title([])
            self.show_keys([])
            return
        lines, view = shown.lines, self.view
        count = counted(lines.end, "line")
        if shown.cut:
            count = f"the last {counted(lines.end - lines.first, 'line')}"
        elif lines.first:
            count += f", the last {lines.end - lines.first:,} here"
        notice = "" if view.follows else "not following, G goes to the end"
        at, of = self._place
        which = [f"program {at:,} of {of:,}"] if of > 1 else []
        self.show_title([*which, count], notice)
        self.query_one("#about", OneLine).put(about(shown, self.size.width))
        label = " Last part:" if shown.dropped else " Complete output:"
        label = f" Incomplete, {shown.lost}:" if shown.lost else label
        path = fmt.shorten(plain(str(shown.log)), max(20, self.size.width - len(label) - 3))
        kept = (label, "warn" if shown.lost else "head"), (f" {path}", "head")
        self.query_one("#kept", OneLine).put(kept)
        self._describe_keys(shown)

    def _describe_keys(self, shown: Program) -> None:
        """Name the keys that do something now."""
        keys: list[Key] = [("/", "search", "search")]
        keys += [("n", "next", "find(1)")] if self.view.words else []
        keys += [("x", "interrupt", "press")] if shown.running else []
        keys += [("[ ]", "other program", "turn(1)")] if self._place[1] > 1 else []
        keys += [("y", "copy file name", "copy")]
        self.show_keys([*keys, *([] if self.view.follows else [("G", "follow", "follow")])])

    # Keys.

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
        """Without words there is nothing to search for."""
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

    def action_turn(self, by: int) -> None:
        """Show the next program, or the previous one."""
        shown = self.program.programs.turn(by)
        self._place = self.program.programs.place()
        if shown is not None:
            self.view.follow(shown)
            self.view.action_move_to(-1)
        self._describe()

    def action_copy(self) -> None:
        if self.program.programs.shown is not None:
            self.program.copy(str(self.program.programs.shown.log), "the file of the output")

    def action_press(self) -> None:
        shown = self.program.programs.shown
        if shown is None or not shown.running:
            self.program.warn("The program does not run any more.")
        else:
            self.program.act(interrupt, shown)


async def interrupt(app: BaseApp, program: Program) -> None:
    """Ask, then send the program the next signal."""
    verb, words = _PRESSED[program.next_signal.name]
    if await confirm(app, f"{verb} {program.title}?", verb, [words]):
        program.press()
