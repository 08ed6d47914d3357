"""What goes to the terminal: how often, how much at once, and nothing but text."""

from __future__ import annotations

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from rocm_tui.harmless import cells

_FRAME, _FIRST = 0.05, 0.25
"""Least seconds between two updates while records keep coming, and while what was there at the
start is still read."""
_HELD = 0.1
"""Seconds for which the first rows wait for all that was there at the start: to paint a part of it
puts off the whole, and nobody sees so short a wait."""
_CELLS = 2700.0
"""Cells a second that updates may repaint: some 9 kB over SSH. What is more waits for its turn."""
_AHEAD = 0.7
"""Seconds of that by which a burst may run ahead."""
_LEISURE = 2.0
"""No update for so many times what the last one took: a big table leaves time for keys."""


class Pace:
    """When the screens may be brought up to date again."""

    def __init__(self) -> None:
        self._next = self._paid_until = 0.0
        self._stage = 0

    def wait(self, now: float, *, rows: bool, settled: bool) -> float:
        """Seconds until the next update; none are left at 0 or below. The first `rows` are held
        for a moment; all that was there at the start is shown at once, when it is `settled`."""
        stage = 2 if settled else 1 if rows else 0
        if stage > self._stage:
            self._stage, self._next = stage, now + _HELD if stage == 1 else 0.0
        return self._next - now

    def updated(self, begun: float, now: float, cells: int) -> None:
        """An update took from `begun` to `now`, and repainted so many cells."""
        self._paid_until = max(self._paid_until, now) + cells / _CELLS
        rest = max(_FRAME if self._stage == 2 else _FIRST, (now - begun) * _LEISURE)
        self._next = max(now + rest, self._paid_until - _AHEAD)


class HarmlessFilter(LineFilter):
    """Takes out what would be a command to the terminal, whatever widget drew it.

    The rows of our own are `plain` before; a toast, a tooltip, the palette and what was pasted into
    a field are Textual's.
    """

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        if all(text.isprintable() for text, _, _ in segments):
            return segments
        return [Segment(cells(text), style, control) for text, style, control in segments]
