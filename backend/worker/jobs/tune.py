"""Inductor's own autotuning of one op, repeated and stored like every tuning.

The op is rebuilt from its inputs and compiled with autotuning on and without graph caches, with the
selector of `rocm-tui run`: so the tuning is recorded in a session's log while it runs, and its
times go into the persistent cache under the key of a model's own tuning. Pins do not decide here; a
pinned tuning stays pinned and gets the new times.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

import torch

from backend.cache.autotune import read_cache
from backend.cache.journal import Journal
from backend.cache.variants import ChoiceVariants
from backend.counted import counted
from backend.disk.layout import Layout, cache_dir
from backend.errors import CacheUnreadable, StoreError
from backend.inductor.hooks import selector
from backend.inductor.hooks.recording import Recorder
from backend.inductor.torch import tuning as torch_api
from backend.inductor.torch import versions
from backend.model.choice import Choice, sort_choices
from backend.model.events import (
    ChoiceCompiled,
    ChoiceFailed,
    ChoiceSelected,
    ChoiceTimed,
    Event,
    TimesTakenOver,
    TuningStarted,
)
from backend.processes.shared import ChoiceMark
from backend.wire.jobs import TuneJob, TuneResult
from backend.worker import retuning
from backend.worker.problem import (
    Recipe,
    asked_problem,
    rebuild_asked,
    set_precision,
    set_threads,
    settings_of,
)
from backend.worker.protocol import ReportProgress
from backend.worker.rebuilt import NotRebuildable, compile_asking
from backend.worker.retuning import Budget, ChoiceTimings, StoredHashes, TuneTask


class NothingTuned(Exception):
    """Nothing was tuned; the message is one line."""


class OneChoiceOffered(NothingTuned):
    """There is only one choice, which Inductor takes without timing it."""


class OtherMode(NothingTuned):
    """The cache shows that this key was tuned in another mode."""


def run(job: TuneJob, progress: ReportProgress, mark: ChoiceMark) -> TuneResult:
    """Tune. Raises JobInvalid for an invalid problem or mode."""
    settings: dict[str, object] = dict(settings_of(job.mode))
    if job.backends is not None:
        settings["max_autotune_gemm_backends"] = ",".join(job.backends).upper()
    if job.search_space is not None:
        settings["max_autotune_gemm_search_space"] = job.search_space
    set_threads(job.threads)
    modes = len(torch_api.MODES)
    try:
        return _Tuning(asked_problem(job), job, settings, progress, mark).result()
    except OtherMode as error:
        return TuneResult(ok=False, reason=str(error), conclusive=False, modes=modes)
    except (NothingTuned, NotRebuildable) as error:
        single = isinstance(error, OneChoiceOffered)
        return TuneResult(ok=False, reason=str(error), modes=modes, single=single)


class _Tuning:
    def __init__(
        self,
        problem: Recipe,
        job: TuneJob,
        settings: Mapping[str, object],
        progress: ReportProgress,
        mark: ChoiceMark,
    ) -> None:
        self._problem = problem
        self._job = job
        self._settings = settings
        self._progress = progress
        budget = Budget(job.budget)
        visits = ChoiceTimings(mark, job.broken)
        kept_as = StoredHashes(ChoiceVariants(cache_dir()), job.kept_as, job.others)
        self._task = TuneTask(problem.is_met_by, budget, visits, kept_as, not job.any_mode)
        self._story = TuningRecorder(progress, lambda: budget.left, kept_as)

    def result(self) -> TuneResult:
        version = str(torch.__version__)
        if not versions.is_supported(version):
            raise NothingTuned(
                f"torch {version} is not supported by the hooks ({versions.range_text()} are), so "
                "nothing can be recorded"
            )
        set_precision(self._problem.key)
        program = rebuild_asked(self._problem, self._job.options)
        _watch_failures()
        selector = retuning.selector(self._task, self._story, self._job.templates)
        self._progress(f"compiling {self._problem.op}")
        begin = time.monotonic()
        try:
            trouble = compile_asking(selector, program, self._settings)
        finally:
            self._story.taken_over(self._task.taken_over)
            self._story.end()
        self._check(trouble)
        return self._kept(time.monotonic() - begin, trouble)

    def _check(self, trouble: str) -> None:
        """Raise NothingTuned or NotRebuildable if no time was measured and stored."""
        task, op = self._task, self._problem.op
        if task.other_mode:
            raise OtherMode(f"{op} was tuned in another mode: its choices differ")
        if task.lost:
            raise NothingTuned(f"the times were measured but not kept: {task.lost}")
        if task.written:
            return
        if trouble:
            raise NothingTuned(f"it does not compile: {trouble}")
        if task.key is None:
            tuned = "; ".join(f"{key.op} {key.inputs}" for key in task.tuned) or "nothing"
            raise NotRebuildable(f"{op} cannot be rebuilt from its inputs: Inductor tuned {tuned}")
        by = self._story.selected.by if self._story.selected else None
        if by == "deterministic":
            raise NothingTuned("deterministic mode is on, in which Inductor measures nothing")
        labels = [choice.label for choice in self._story.choices]
        names = ", ".join(labels) or "no choice"
        kind = OneChoiceOffered if len(labels) == 1 else NothingTuned
        raise kind(f"there is nothing to choose from: Inductor offers {names}")

    def _kept(self, seconds: float, trouble: str) -> TuneResult:
        task, key = self._task, self._task.key
        assert key is not None
        path = Layout(cache_dir()).autotune / torch_api.system_hash()
        # Times stay in the journal while another process holds the file's lock.
        unfolded = Journal(cache_dir(), path).choices(key)
        try:
            file = read_cache(path)
        except CacheUnreadable as error:
            raise NothingTuned(f"the times were measured but not kept: {error}") from error
        lost = task.written.keys() - file.entries.get(key, {}).keys() - unfolded
        if lost:
            raise NothingTuned(
                f"{counted(len(lost), 'time was', 'times were')} measured but not kept in {path}"
            )
        return TuneResult(
            ok=True,
            modes=len(torch_api.MODES),
            op=key.op,
            inputs=key.inputs,
            precision=key.precision,
            system_hash=path.name,
            choices=tuple(map(task.kept_as.choice, self._story.choices)),
            seconds=seconds,
            skipped=len(task.budget.skipped),
            pin=task.pin,
            trouble=trouble,
            log=self._story.log,
            times=task.written,
            system=file.system,
            taken_over=task.kept_as.others if task.taken_over else (),
        )


@functools.cache
def _watch_failures() -> None:
    """Watch the failures of all tunings of this process, each in its own session."""
    retuning.watch_timeouts()
    selector.install()  # replaced by the task's selector


class TuningRecorder(Recorder):
    """Records one tuning. `left` returns the seconds left of its budget, if it has one. The log has
    the hashes under which times are stored; `choices` has those of this process's GPU."""

    def __init__(
        self, progress: ReportProgress, left: Callable[[], float | None], kept_as: StoredHashes
    ) -> None:
        super().__init__()
        self._kept_as = kept_as
        self._n = 0
        self.selected: ChoiceSelected | None = None
        self._tell_progress = progress
        self._left = left
        self._telling = threading.Lock()
        self._op = ""
        self._choices: dict[str, Choice] = {}
        self._compiled = 0
        self._timed = 0
        self._since = 0.0

    @property
    def choices(self) -> tuple[Choice, ...]:
        """The choices as recorded so far, fastest first."""
        return sort_choices(list(self._choices.values()))

    @property
    def log(self) -> str:
        """The session's log; empty before the tuning."""
        return "" if self._writer is None else str(self._writer.path)

    def end(self) -> None:
        """End the session here, since a worker is killed and cannot wait for its exit."""
        self.end_in(os.getpid())

    def taken_over(self, timings: Mapping[str, float]) -> None:
        """Record that other GPUs also get these times."""
        kept_as = self._kept_as
        if timings:
            device = kept_as.index if kept_as.index is not None else torch.cuda.current_device()
            self.write(TimesTakenOver(self._n, time.time(), int(device), kept_as.others, timings))

    def write(self, event: Event) -> None:
        super().write(self._renamed(event))
        with self._telling:
            if self._take(event):
                self._report()

    def _renamed(self, event: Event) -> Event:
        """Return `event` with the hashes under which times are stored."""
        if isinstance(event, TuningStarted):
            with contextlib.suppress(StoreError):  # raised again when the times are stored
                self._kept_as.write_modules([choice.hash or "" for choice in event.choices])
            return replace(event, choices=tuple(map(self._kept_as.choice, event.choices)))
        if isinstance(event, ChoiceCompiled | ChoiceTimed | ChoiceFailed | ChoiceSelected):
            return replace(event, hash=self._kept_as.hash(event.hash))
        return event

    def _take(self, event: Event) -> bool:
        """Process `event`; return whether it is reported as progress."""
        if isinstance(event, TuningStarted):
            self._op, self._n = event.op, event.n
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

    def _report(self) -> None:
        best = next((choice for choice in self.choices if choice.ms is not None), None)
        total = len(self._choices)
        self._tell_progress(
            f"tuning {self._op}: {self._timed} of {counted(total, 'choice')} timed",
            compiled=self._compiled,
            timed=self._timed,
            total=total,
            best=best.label if best else "",
            best_ms=best.ms if best else None,
            seconds_left=self._seconds_left(total),
            log=self.log,
        )

    def _seconds_left(self, total: int) -> float | None:
        """Return the seconds left at the pace since the first choice, at most the budget."""
        budget = self._left()
        if self._timed < 2:
            return budget
        pace = (time.monotonic() - self._since) / (self._timed - 1)
        guess = pace * (total - self._timed)
        return guess if budget is None else min(guess, budget)
