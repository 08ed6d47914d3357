"""How busy, full, hot and fast the devices of this machine are, in a few lines."""

from __future__ import annotations

from collections.abc import Sequence

from backend.measure.machine.devices import Device, Readers
from rocm_tui.render import devices as cells
from rocm_tui.render.devices import Shown
from rocm_tui.render.table import Line
from rocm_tui.tui.widgets.line_view import LineView

EVERY = 2.0
"""Seconds between two readings, while it is seen."""
_SOON = 0.3
"""Seconds after which what was asked for is there, if a driver does not hang."""


class DeviceStrip(LineView, can_focus=False):
    """Reads in threads of its own while its screen is the one that is seen."""

    DEFAULT_CSS = "DeviceStrip { height: 1; width: 1fr; }"

    def __init__(self, devices: Sequence[Device], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._readers = Readers(devices)
        self._cells: list[Shown] = []

    def on_mount(self) -> None:
        self.set_interval(EVERY, self._ask)
        self._ask()

    def on_unmount(self) -> None:
        self._readers.stop()

    def _ask(self) -> None:
        if self.screen.is_current:
            self._readers.ask()
            self.set_timer(_SOON, self._take)

    def _take(self) -> None:
        seen = self._readers.seen()
        before: list[Shown] | list[None] = self._cells or [None] * len(seen)
        self._cells = [cells.shown(one, old) for one, old in zip(seen, before, strict=True)]
        self._fit()
        self.sync()

    def _fit(self) -> None:
        lines = len(self._lines())
        if self.styles.height is None or self.styles.height.value != lines:
            self.styles.height = lines

    def _lines(self) -> list[Line]:
        size = self.screen.size
        return cells.lines(self._cells, size.width, size.height) if self._cells else [()]

    def on_resize(self) -> None:
        self._fit()
        super().on_resize()

    def count(self) -> int:
        return 0

    def heading(self, width: int) -> list[Line]:
        return self._lines()
