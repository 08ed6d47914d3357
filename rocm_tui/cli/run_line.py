"""What a program under `run` is doing, in a line on the terminal that its stderr goes to.

Where its stdout goes elsewhere the line is rewritten in place, and gone before the program writes:
all of its stderr passes through us. Where both share the terminal we do not see what it prints, and
a line that is rewritten would stand among it; so a whole line is said, seldom, and only of what
takes long, while the program is quiet.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from backend.disk.layout import Layout
from backend.model.session import ActivityState
from rocm_tui import say
from rocm_tui.ingest.follow.tailer import Tailer
from rocm_tui.render.sessions import state_text
from rocm_tui.session.model import Model
from rocm_tui.session.numbers import running, shorten

BUSY: frozenset[ActivityState] = frozenset(
    ("importing", "compiling", "precompiling", "tuning", "waiting")
)
EVERY = 1.0
"""Seconds between two looks at the logs of the run."""
LONG, LEAST, MOST = 4.0, 15.0, 120.0
"""Seconds that one thing must take to be said in a whole line; least and most between two such."""
_QUIET = 2.0
"""Seconds since the program wrote to stderr."""


class Calm:
    """When a whole line may be said: pauses double as long as there is something to say."""

    def __init__(self) -> None:
        self._state: object = None
        self._since = self._next = 0.0
        self._pause = LEAST

    def due(self, state: object, now: float) -> bool:
        """Whether to speak of this, which is `None` where nothing takes long."""
        if state != self._state:
            self._state, self._since = state, now
        if state is None or now - self._since < LONG or now < self._next:
            return False
        self._next, self._pause = now + self._pause, min(MOST, 2 * self._pause)
        return True


class RunLine:
    """`look` now and then, `wrote` before each piece that the program writes to stderr."""

    def __init__(self, layout: Layout, run: str, *, rewrite: bool) -> None:
        self._folder = layout.sessions
        self._run = run
        self._rewrite = rewrite
        self._model = Model()
        self._tailers: dict[str, Tailer | None] = {}
        self._began = time.time()
        self._due = self._wrote = 0.0
        self._calm = Calm()
        self._shown = ""
        self._at_start = True

    def look(self) -> None:
        """Say what the program does now, if it is time to."""
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + EVERY
        self._read()
        state, text = self._doing()
        if self._rewrite:
            if self._at_start:
                self._show(text)
        elif now - self._wrote > _QUIET and self._at_start and self._calm.due(state, now):
            with contextlib.suppress(OSError, ValueError):
                say.err(text, flush=True)

    def wrote(self, data: bytes) -> None:
        """The program's own comes first."""
        self._show("")
        self._wrote, self._at_start = time.monotonic(), data.endswith(b"\n")

    def clear(self) -> None:
        """The program has ended."""
        self._show("")

    def _show(self, text: str) -> None:
        if text == self._shown:
            return
        self._shown = text
        with contextlib.suppress(OSError, ValueError):
            width = os.get_terminal_size(2).columns or 80
            say.overwrite(shorten(text and f"rocm-tui: {text}", width - 1))

    def _doing(self) -> tuple[str | None, str]:
        """What takes long now; None and nothing where nothing does."""
        busy = [one.activity for one in self._model.processes.live if one.activity.state in BUSY]
        if not busy:
            return None, ""
        first = busy[0]
        if len(busy) > 1:
            counts = Counter(activity.state for activity in busy)
            each = ", ".join(f"{count} {state}" for state, count in counts.items())
            return first.state, f"{len(busy)} processes: {each}"
        since = "" if first.since is None else f" · {running(max(0.0, time.time() - first.since))}"
        return first.state, state_text(first) + since

    def _read(self) -> None:
        for path in self._logs():
            if path not in self._tailers:
                self._tailers[path] = Tailer(path) if self._is_ours(path) else None
            tailer = self._tailers[path]
            if tailer is not None:
                self._model.put(tailer.poll())

    def _logs(self) -> Iterator[str]:
        """The logs that may be of this run: known ones, and those that have come since it began."""
        try:
            with os.scandir(self._folder) as entries:
                for entry in entries:
                    if entry.name.endswith(".jsonl") and (
                        entry.path in self._tailers or entry.stat().st_mtime >= self._began - 1
                    ):
                        yield entry.path
        except OSError:
            return  # not there yet, or gone again

    def _is_ours(self, path: str) -> bool:
        with contextlib.suppress(OSError), Path(path).open("rb") as stream:
            return self._run.encode() in stream.readline(1 << 16)
        return False


def run_line(layout: Layout, run: str, env: Mapping[str, str] = os.environ) -> RunLine | None:
    """None where nobody would see it: stderr is no terminal, or one that takes no commands."""
    if not os.isatty(2) or env.get("TERM", "dumb") == "dumb":
        return None
    stdout = sys.__stdout__
    return RunLine(layout, run, rewrite=stdout is None or not stdout.isatty())
