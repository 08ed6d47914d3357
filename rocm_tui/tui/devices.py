"""The strip of devices: found in a thread, shown where there are GPUs or by its key."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rocm_tui.tui.screens.base import BaseScreen

if TYPE_CHECKING:  # types only: what asks drivers is loaded in the thread
    from backend.measure.devices import Device

_MEMORY = "devices"
_QUIET = "ROCM_TUI_DEVICES"
"""`0`: no strip until somebody asks for it."""
_CARDS = Path("/sys/class/drm")
_NVIDIA = Path("/proc/driver/nvidia")


class Devices:
    """Shows and hides the strip on a screen; the last choice is remembered."""

    def __init__(self, screen: BaseScreen) -> None:
        self._screen = screen
        self._memory = screen.program.memory
        self._looking = False

    def begin(self) -> None:
        """Show it, where it was not put away: the GPUs, and the CPU where it was asked for."""
        last = self._memory.recall(_MEMORY, "")
        wanted = os.environ.get(_QUIET) != "0" and may_have_gpus()
        if last == "on" or (last != "off" and wanted):
            self._find(asked=last == "on")

    def toggle(self) -> None:
        """Put it away, or show it: the CPU where there is no GPU."""
        strips = self._screen.query("#devices")
        self._memory.remember(_MEMORY, "off" if strips else "on")
        if strips:
            strips.remove()
        else:
            self._find(asked=True)

    def _find(self, asked: bool) -> None:
        if not self._looking:
            self._looking = True
            threading.Thread(target=self._look, args=(asked,), name="devices", daemon=True).start()

    def _look(self, asked: bool) -> None:
        from backend.measure import devices

        try:
            found = devices.gpus()
        except Exception:  # a library or a driver of any kind
            found = []
        found = found or ([devices.processor()] if asked else [])
        with suppress(RuntimeError):  # the program has ended
            self._screen.app.call_from_thread(self._show, found)

    def _show(self, found: Sequence[Device]) -> None:
        from rocm_tui.tui.widgets.device_strip import DeviceStrip  # with the first device

        self._looking = False
        if found and self._screen.is_mounted and not self._screen.query("#devices"):
            self._screen.mount(DeviceStrip(found, id="devices"), after="#title")


def may_have_gpus() -> bool:
    """Whether it is worth a look: that asks no driver."""
    return _NVIDIA.exists() or any(_CARDS.glob("card[0-9]*"))
