"""The strip of devices: how busy, full, hot and fast this machine's are, in a few lines."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from backend.measure import devices
from backend.measure.devices import MachineDevice, Readers
from backend.model.session import Fault
from rocm_tui.render import devices as cells
from rocm_tui.render.table import Line
from rocm_tui.session.device_readings import DeviceReading, settled_reading, troubles
from rocm_tui.tui.base import BaseScreen, after
from rocm_tui.tui.widgets.line_view import LineView

EVERY = 2.0
"""Seconds between two readings while the strip is visible."""
SELDOM = 5.0
"""Seconds between two readings while nothing changes."""
_QUIET = 4
"""Consecutive unchanged readings after which the strip reads less often."""
_SOON = 0.3
"""Seconds after which a reading has arrived, unless the driver hangs."""
_MEMORY = "devices"
_NO_STRIP = "ROCM_TUI_DEVICES"
"""`0` hides the strip until a person shows it."""
_CARDS = Path("/sys/class/drm")
_NVIDIA = Path("/proc/driver/nvidia")


class DeviceStrip(LineView, can_focus=False):
    """Read the devices in threads of their own while the screen is the current one."""

    DEFAULT_CSS = "DeviceStrip { height: 1; width: 1fr; }"

    def __init__(self, devices: Sequence[MachineDevice], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._readers = Readers(devices)
        self._cells: list[DeviceReading] = []
        self._same = 0

    def on_mount(self) -> None:
        self._ask()

    def troubles(self) -> list[Fault]:
        """Return why some values of some devices are missing."""
        return troubles(self._readers.seen())

    def on_unmount(self) -> None:
        self._readers.stop()

    def _ask(self) -> None:
        if self.screen.is_current:
            self._readers.ask()
        after(self, _SOON, self._take)

    def _take(self) -> None:
        """Show the latest readings; read less often while they stay the same."""
        seen = self._readers.seen()
        before: list[DeviceReading] | list[None] = self._cells or [None] * len(seen)
        now = [settled_reading(reading, old) for reading, old in zip(seen, before, strict=True)]
        self._same = self._same + 1 if now == self._cells else 0
        if not self._same:
            self._cells = now
            self._fit()
            self.sync()
        after(self, (EVERY if self._same < _QUIET else SELDOM) - _SOON, self._ask)

    def _fit(self) -> None:
        lines = len(self._lines())
        if self.styles.height is None or self.styles.height.value != lines:
            self.styles.height = lines

    def _lines(self) -> list[Line]:
        size = self.screen.size
        return cells.lines(self._cells, size.width, size.height) if self._cells else [()]

    def on_resize(self) -> None:
        self._fit()

    def heading(self, width: int) -> list[Line]:
        return self._lines()


class Devices:
    """Show and hide the strip on a screen; the last choice is remembered for these sources.

    The devices are found in a thread."""

    def __init__(self, screen: BaseScreen) -> None:
        self._screen = screen
        self._workspace = screen.program.workspace
        self._looking = False

    def begin(self) -> None:
        """Show the strip unless it was hidden: the GPUs, and the CPU where it was shown before."""
        last = self._workspace.recall(_MEMORY, "")
        wanted = os.environ.get(_NO_STRIP) != "0" and may_have_gpus()
        if last == "on" or (last != "off" and wanted):
            self._find(asked=last == "on")

    def toggle(self) -> None:
        """Hide or show the strip: the CPU's if there is no GPU."""
        strips = self._screen.query("#devices")
        self._workspace.remember(_MEMORY, "off" if strips else "on")
        if strips:
            strips.remove()
        else:
            self._find(asked=True)

    def _find(self, asked: bool) -> None:
        if not self._looking:
            self._looking = True
            threading.Thread(target=self._look, args=(asked,), name="devices", daemon=True).start()

    def _look(self, asked: bool) -> None:
        try:
            shown = devices.gpus()
        except Exception:  # a library or a driver of any kind
            shown = []
        shown = shown or ([devices.processor()] if asked else [])
        with suppress(RuntimeError):  # the program has ended
            self._screen.app.call_from_thread(self._show, shown)

    def _show(self, shown: Sequence[MachineDevice]) -> None:
        self._looking = False
        if shown and self._screen.has_widgets and not self._screen.query("#devices"):
            self._screen.mount(DeviceStrip(shown, id="devices"), after="#title")


def may_have_gpus() -> bool:
    """Return whether a GPU is likely, without asking a driver."""
    return _NVIDIA.exists() or any(_CARDS.glob("card[0-9]*"))
