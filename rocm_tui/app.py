"""Start the screen and leave it: the terminal, the signals, the exit code."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rocm_tui import terminal


def run_watch(
    paths: Sequence[Path | str],
    *,
    cache_dir: Path,
    polling: bool = False,
    python: str | None = None,
) -> int:
    """Show the screen until the person leaves; return the exit code.

    Without `paths` the cache dir is watched. `-` is what is piped into stdin. `python` is the
    interpreter for workers.

    Raises:
        NoTerminal: there is no terminal that a screen can be drawn on.
    """
    terminal.require_terminal()
    if any(str(path) == "-" for path in paths) or not terminal.keyboard_is_stdin():
        terminal.keyboard_apart_from_stdin()
    # Start-up makes much and drops nothing: collecting then takes a tenth of it. The program turns
    # collecting on once its first screen stands.
    gc.disable()
    from backend.disk.layout import Layout
    from rocm_tui.screens.program import RocmTui

    app = RocmTui(paths, Layout(cache_dir), polling=polling, python=python)

    def leave(code: int) -> None:
        app.call_from_any_thread(partial(app.exit, code, code))

    with terminal.leaving(leave):
        try:
            app.run()
        finally:
            app.stop_feed()
    return app.return_code or 0
