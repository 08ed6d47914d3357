"""The program that was started with the screen: that it has ended, and the question that comes
before leaving."""

from __future__ import annotations

from collections.abc import Sequence

from textual.notifications import SeverityLevel

from rocm_tui.harmless import plain
from rocm_tui.jobs.queue import Job
from rocm_tui.launch.launched import Launched, ending
from rocm_tui.session import numbers as fmt
from rocm_tui.tui.host import Host
from rocm_tui.tui.screens.base import BaseScreen
from rocm_tui.tui.screens.dialogs import ConfirmScreen


def follow(host: Host, launched: Launched) -> None:
    """Say when the program has ended, wherever the person is."""
    told = not launched.running  # it may have ended before

    def heard() -> None:
        if not launched.running:
            host.call_from_any_thread(tell)

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


def quit_question(launched: Launched | None, jobs: Sequence[Job]) -> ConfirmScreen:
    """What leaving would end."""
    told = [f"{job.state}: {job.kind} {job.title}" for job in jobs]
    if launched is None:
        return ConfirmScreen("Quit? It ends the jobs of this screen.", "Quit", told)
    since = fmt.seconds(launched.age)
    what = [
        f"{launched.title} has been running for {since}, and ends with the screen.",
        "It is asked to end (SIGTERM), and killed after 10 s.",
        f"Its output is kept: {launched.log}",
    ]
    title = "Quit, and end the program?"
    return ConfirmScreen(title, "End it and quit", [*what, *told])
