"""The output of the program below the panes of Watch: when it is shown, and how high it is."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from rocm_tui.tui.screens.base import BaseScreen

if TYPE_CHECKING:  # types only: most screens start no program
    from rocm_tui.launch.program import Program
    from rocm_tui.tui.widgets.output_pane import OutputPane

_SHOWN, _LINES = "output", "output lines"
_TALL = 40
"""Lines of the screen from which on it is shown until somebody puts it away."""
_DEFAULT, _SHORT = 8, 5
"""Lines that it has at first; on a short screen."""
_REST = 8
"""Lines that the others keep."""


class Dock:
    """Shows and hides the pane on a screen; the last choice and its height are remembered."""

    def __init__(self, screen: BaseScreen) -> None:
        self._screen = screen
        self._memory = screen.program.memory
        self._asked = False
        self.known = screen.program.launched is not None
        """Whether there is a program whose output could be shown."""

    @property
    def pane(self) -> OutputPane | None:
        """What is shown; None where nothing is."""
        return cast("OutputPane | None", next(iter(self._screen.query("#output")), None))

    def begin(self) -> None:
        """Show the program of this screen, where it was not put away; look for another's."""
        launched = self._screen.program.launched
        if self._asked:
            return
        if launched is None:
            threading.Thread(target=self._look, name="programs", daemon=True).start()
            return
        last = self._memory.recall(_SHOWN, "")
        if last == "on" or (last != "off" and self._screen.size.height >= _TALL):
            self._mount(launched)

    def _look(self) -> None:
        found = self._screen.program.programs.shown  # reads files
        if found is not None and found.running:
            with suppress(RuntimeError):  # the program has ended
                self._screen.app.call_from_thread(self._found)

    def _found(self) -> None:
        self.known = True
        self._screen.update()

    def show(self, program: Program) -> None:
        """Show it, and go there."""
        self.known = self._asked = True
        self._memory.remember(_SHOWN, "on")
        pane = self._mount(program)
        pane.call_after_refresh(self._screen.set_focus, pane.view)

    def hide(self) -> None:
        """Put it away."""
        self._memory.remember(_SHOWN, "off")
        pane = self.pane
        if pane is not None:
            pane.remove()

    def _mount(self, program: Program) -> OutputPane:
        from rocm_tui.tui.widgets.output_pane import OutputPane  # with the first program

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
        """The screen has another height."""
        pane = self.pane
        if pane is not None:
            pane.set_lines(self._remembered)

    def resumed(self) -> None:
        """Its screen is on top again: another program may have been chosen meanwhile."""
        pane, shown = self.pane, self._screen.program.programs.shown
        if pane is not None and shown is not None:
            pane.show(shown)

    def grow(self, by: int) -> None:
        """Move its upper border; 0 puts it where it was at first."""
        pane = self.pane
        if pane is not None:
            pane.set_lines(self._fitting(pane.lines + by if by else self._first))
            self._memory.remember(_LINES, pane.lines if by else 0)
