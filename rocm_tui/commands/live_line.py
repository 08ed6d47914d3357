"""One line on stderr that says how far a job is, only where stderr is a terminal."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING

from rocm_tui import say

if TYPE_CHECKING:
    from backend.wire.jobs import Progress


class LiveLine:
    """Overwrites itself; an empty text clears it."""

    def __init__(self, title: str = "") -> None:
        self.title = title
        self._live = sys.stderr.isatty()

    def show(self, text: str) -> None:
        if self._live:
            with contextlib.suppress(OSError):  # the terminal is gone; the job's end is still ours
                self._show(text)

    def _show(self, text: str) -> None:
        from rocm_tui.harmless import plain
        from rocm_tui.session.numbers import shorten

        width = (os.get_terminal_size(sys.stderr.fileno()).columns or 80) - 1
        line = shorten(plain(f"{self.title}: {text}"), width) if text else ""
        say.overwrite(line)

    def progressed(self, progress: Progress) -> None:
        """Show how far a worker is."""
        from rocm_tui.render.jobs import progress_text

        self.show(progress_text(progress))
