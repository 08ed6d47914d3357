"""The last look at what a screen draws, whatever widget drew it."""

from __future__ import annotations

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from rocm_tui.harmless import cells


class HarmlessFilter(LineFilter):
    """Takes out what would be a command to the terminal.

    The rows of our own are `plain` before; a toast, a tooltip, the palette and what was pasted into
    a field are Textual's.
    """

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        if all(text.isprintable() for text, _, _ in segments):
            return segments
        return [Segment(cells(text), style, control) for text, style, control in segments]
