"""Read-only: nothing that a key asks for is written or started."""

from __future__ import annotations

from collections.abc import Callable

from rocm_tui.tui.host import Host
from rocm_tui.tui.screens.base import BaseScreen
from rocm_tui.tui.screens.dialogs import ConfirmScreen
from rocm_tui.tui.watch_keys import READ_ONLY
from rocm_tui.tui.widgets.one_line import TitleBar

_STAYS = "Read-only from the start: `rocm-tui watch --no-read-only` can change something."


class Refusing:
    """Stands in the place of what does `Requests`, those to come too: each is refused."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def __getattr__(self, name: str) -> Callable[..., None]:
        def refuse(*asked: object) -> None:
            self._host.refuse(READ_ONLY)

        return refuse


def turn(host: Host, stays: bool) -> None:
    """Turn it on; or off, after a question, unless it `stays` because the command said so."""
    if not host.read_only:
        _set(host, True)
        running = " Jobs that were asked for before go on." if host.unfinished else ""
        host.notify(f"Read-only: nothing is written or started.{running}", markup=False)
    elif stays:
        host.refuse(_STAYS)
    else:
        lines = ["Keys pin, tune, measure and verify again; drifted pins are applied again."]
        question = ConfirmScreen("Turn read-only off?", "Turn off", lines)
        host.push_screen(question, lambda note: None if note is None else _set(host, False))


def _set(host: Host, read_only: bool) -> None:
    host.read_only = host.feed.read_only = read_only
    host.feed.look()
    for screen in host.screen_stack:
        for title in screen.query(TitleBar):
            title.sync()
        if isinstance(screen, BaseScreen) and screen.is_mounted:
            screen.update()
