"""A tuning as it runs in a worker: recorded in the session log, and told as progress."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from backend.events import (
    ChoiceCompiled,
    ChoiceFailed,
    ChoiceSelected,
    ChoiceTimed,
    Event,
    TuningStarted,
)
from backend.inductor.hooks.recording import Recorder
from backend.records import Choice, sort_choices
from backend.worker.protocol import Progress


class Story(Recorder):
    """Records one tuning. `left` gives the seconds of its budget that are left, if it has one."""

    def __init__(self, progress: Progress, left: Callable[[], float | None]) -> None:
        super().__init__()
        self.selected: ChoiceSelected | None = None
        self._progress = progress
        self._left = left
        self._telling = threading.Lock()
        self._op = ""
        self._choices: dict[str, Choice] = {}
        self._compiled = 0
        self._timed = 0
        self._since = 0.0

    @property
    def choices(self) -> tuple[Choice, ...]:
        """What is known of each choice, fastest first."""
        return sort_choices(list(self._choices.values()))

    @property
    def log(self) -> str:
        """The session's log; empty before the tuning."""
        return "" if self._writer is None else str(self._writer.path)

    def end(self) -> None:
        """End the session: a worker is killed, so it cannot wait for its exit."""
        self._end(os.getpid())

    def write(self, event: Event) -> None:
        super().write(event)
        with self._telling:
            if self._take(event):
                self._tell()

    def _take(self, event: Event) -> bool:
        """Whether `event` is worth a word."""
        if isinstance(event, TuningStarted):
            self._op = event.op
            self._choices = {choice.hash or "": choice for choice in event.choices}
        elif isinstance(event, ChoiceCompiled):
            self._compiled += 1
        elif isinstance(event, ChoiceTimed):
            self._ends(event.hash, ms=event.ms)
        elif isinstance(event, ChoiceFailed):
            self._ends(event.hash, reason=event.reason)
        elif isinstance(event, ChoiceSelected):
            self.selected = event
        else:
            return False
        return True

    def _ends(self, hash: str, ms: float | None = None, reason: str | None = None) -> None:
        choice = self._choices.get(hash, Choice(hash=hash))
        self._choices[hash] = replace(choice, ms=ms, failed=ms is None, reason=reason)
        self._since = self._since or time.monotonic()
        self._timed += 1

    def _tell(self) -> None:
        best = next((choice for choice in self.choices if choice.ms is not None), None)
        total = len(self._choices)
        self._progress(
            f"tuning {self._op}: {self._timed} of {total} choices timed",
            compiled=self._compiled,
            timed=self._timed,
            total=total,
            best=best.label if best else None,
            best_ms=best.ms if best else None,
            seconds_left=self._seconds_left(total),
            log=self.log,
        )

    def _seconds_left(self, total: int) -> float | None:
        """At the pace since the first choice was timed, but no more than the budget."""
        budget = self._left()
        if self._timed < 2:
            return budget
        pace = (time.monotonic() - self._since) / (self._timed - 1)
        guess = pace * (total - self._timed)
        return guess if budget is None else min(guess, budget)
