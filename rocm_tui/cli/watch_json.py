"""`rocm-tui watch --json`: a line of JSON for each tuning, and for each change of one."""

from __future__ import annotations

import select
import threading
from collections.abc import Sequence
from typing import Literal

from backend.disk.layout import Layout
from rocm_tui import say
from rocm_tui.json_output import Document, builtins_of, fill
from rocm_tui.render.problems import trouble_lines
from rocm_tui.render.tuning_json import TuningJson
from rocm_tui.session.feed import Feed
from rocm_tui.session.model import Row


class WatchJson(TuningJson, Document, tag="rocm-tui/watch/1"):
    """A tuning as it is now; `gone` shows it as it was, where its source was removed."""

    event: Literal["present", "new", "changed", "gone"]


_LOOK = 1.0
"""Seconds between two looks whether the reader of our lines is there."""


def stream(paths: Sequence[str], layout: Layout, *, polling: bool) -> None:
    """Print until Ctrl-C, or until the reader (`| head`) has gone.

    Nothing is written, not even a pin that has drifted.
    """
    reader = select.poll()
    reader.register(1, 0)  # reports errors alone: that nobody reads
    arrived = threading.Event()
    feed = Feed(paths, layout, arrived.set, polling=polling)
    feed.reconciler.read_only = True
    feed.start()
    printer = _Printer()
    try:
        while not reader.poll(0):
            state = feed.take()
            if feed.read and not state.more:
                printer.show(feed.model.listed())
                printer.complain(list(trouble_lines(feed.model.problems)))
            if not state.more:
                arrived.wait(_LOOK)
                arrived.clear()
    finally:
        feed.stop()


class _Printer:
    """Remembers what was printed, so that only changes follow."""

    def __init__(self) -> None:
        self._rows: dict[str, Row] = {}
        self._began = False
        self._complaints: set[str] = set()

    def show(self, rows: Sequence[Row]) -> None:
        now = {row.key: row for row in reversed(rows)}
        for key, row in now.items():
            before = self._rows.get(key)
            if before is None:
                self._print(row, "new" if self._began else "present")
            elif before is not row and _content(before) != _content(row):
                self._print(row, "changed")
        for key in self._rows.keys() - now.keys():
            self._print(self._rows[key], "gone")
        self._rows, self._began = now, True

    def complain(self, lines: Sequence[str]) -> None:
        for line in lines:
            if line not in self._complaints:
                say.err(line, flush=True)
        self._complaints.update(lines)

    def _print(self, row: Row, event: Literal["present", "new", "changed", "gone"]) -> None:
        say.out_json(fill(WatchJson, TuningJson.of(row), event=event), flush=True)


def _content(row: Row) -> object:
    return builtins_of(TuningJson.of(row))
