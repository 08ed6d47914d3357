"""What the logs that are watched say that tuned tables lacked: looked for in a thread, told to the
program."""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from backend.model.session import Fault
from rocm_tui.tui.host import Host
from rocm_tui.tui.screens.base import BaseScreen

if TYPE_CHECKING:  # types only: what looks is loaded in the thread
    from rocm_tui.actions.cover import Missed
    from rocm_tui.ingest.records import SourceStatus

_AFTER, _EVERY = 1.0, 60.0
"""Seconds. The first is when the screen stands."""


class Misses:
    """Looks at the files that were named, as long as the program runs, and again once one of them
    has another size."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._seen: list[tuple[str, int]] = []
        host.set_timer(_AFTER, self._begin)
        host.set_interval(_EVERY, self._begin)

    def _begin(self) -> None:
        if self._host.paths:
            self._host.run_worker(self._look(), group="misses", exclusive=True)

    async def _look(self) -> None:
        host = self._host
        found = await to_thread(self._missed, host.paths, host.feed.watcher.sources())
        if found is not None and found != host.missed:
            host.missed = found
            for screen in host.screen_stack:
                if isinstance(screen, BaseScreen) and screen.is_mounted:
                    screen.update()

    def _missed(self, paths: list[str], sources: Sequence[SourceStatus]) -> list[Missed] | None:
        """None where nothing has changed, or no file was named. In the thread: a path may be one of
        a network that does not answer."""
        if not any(Path(path).is_file() for path in paths):
            return None
        from rocm_tui.actions.cover import missed_in
        from rocm_tui.actions.tables import tables_among

        tables = tables_among(sources)
        sizes = [(path, _size(path)) for path in (*paths, *tables)]
        if sizes == self._seen:
            return None
        self._seen = sizes
        return missed_in(paths, tables)


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:
        return -1


def missed_fact(missed: list[Missed]) -> str:
    """For a title: `2 missed (S)`."""
    return f"{sum(one.products + one.nameless for one in missed):,} missed (S)"


def missed_faults(missed: list[Missed]) -> list[Fault]:
    """For the list of what is wrong with sources."""
    return [Fault(one.path, one.line) for one in missed]
