"""The end of the program that was started with the screen is told, wherever a person is."""

from __future__ import annotations

from textual.notifications import SeverityLevel

from rocm_tui.harmless import plain
from rocm_tui.launch.program import Launched, ending
from rocm_tui.tui.host import Host
from rocm_tui.tui.screens.base import BaseScreen


def follow(host: Host, launched: Launched) -> None:
    """Say when the program has ended, wherever the person is."""
    told = not launched.running  # it may have ended before
    warned = False

    def heard() -> None:
        if not launched.running:
            host.call_from_any_thread(tell)
        if launched.lost and not warned:
            host.call_from_any_thread(warn)

    def warn() -> None:
        nonlocal warned
        if not warned:
            warned = True
            host.warn(f"Output of {launched.title} is lost: {launched.lost}. The program goes on.")

    def tell() -> None:
        nonlocal told
        if not told:
            told = True
            tell_end(host, launched)

    launched.listen(heard)
    if told:
        tell_end(host, launched)
    _update(host)


def tell_end(host: Host, launched: Launched) -> None:
    code = launched.code or 0
    text = f"{launched.title} has ended: {ending(code)} (O shows its output)"
    severity: SeverityLevel = "error" if code else "information"
    host.notify(plain(text), severity=severity, markup=False, timeout=10)
    _update(host)


def _update(host: Host) -> None:
    for screen in host.screen_stack:
        if isinstance(screen, BaseScreen) and screen.is_mounted:
            screen.update()
