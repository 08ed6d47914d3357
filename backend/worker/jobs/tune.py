"""Inductor's own autotuning of one op, made again and kept where every tuning is kept.

The op is rebuilt from its inputs and compiled with autotuning on and without graph caches, by the
selector that `rocm-tui run` uses: so the tuning is recorded in a session's log while it runs, and
its times go into the persistent cache under the key that a model's own tuning has. Pins do not
decide here; a pinned tuning stays pinned and learns the new times.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from backend.inductor.hooks import retuning, selector
from backend.inductor.hooks.retuning import Budget, Task
from backend.inductor.torch import tuning as torch_api
from backend.inductor.torch import versions
from backend.records import Choice
from backend.store.autotune_cache import read_cache
from backend.store.errors import CacheUnreadable
from backend.store.paths import Layout, cache_dir
from backend.worker.house import House
from backend.worker.mark import Mark, mark_argument
from backend.worker.problem import Problem, problem_argument
from backend.worker.protocol import Arguments, BadJob, Progress
from backend.worker.rebuild import NotRebuildable, rebuild
from backend.worker.settings import broken_argument, mode_argument, set_precision, set_threads
from backend.worker.story import Story

SPACES = ("DEFAULT", "EXHAUSTIVE")


class NotTuned(Exception):
    """Nothing was tuned; one line says why."""


class OtherMode(NotTuned):
    """The cache tells that this key was tuned in another mode."""


@dataclass(frozen=True, slots=True)
class Options:
    """What Inductor shall try; None is what it would do by itself."""

    backends: tuple[str, ...] | None
    search_space: str | None
    templates: bool
    budget: float | None
    mode: int
    any_mode: bool
    broken: Mapping[str, str]

    @property
    def settings(self) -> dict[str, object]:
        """The names and values of Inductor's own options."""
        found: dict[str, object] = dict(torch_api.MODES[self.mode])
        if self.backends is not None:
            found["max_autotune_gemm_backends"] = ",".join(self.backends)
        if self.search_space is not None:
            found["max_autotune_gemm_search_space"] = self.search_space
        return found


def run(arguments: Arguments, progress: Progress) -> dict[str, Any]:
    """Arguments: the problem, see `problem_argument`; and, all optional, `backends` (Inductor's
    `max_autotune_gemm_backends`, a list), `search_space` (one of `SPACES`), `templates` (offer
    ours too), `budget` (seconds from the first choice on), `mode` (an index of the `MODES`),
    `any_mode` (tune in this mode even if the cache tells of another), `threads` (see
    `set_threads`), `broken` (see `broken_argument`; these have failed), `mark` (see
    `mark_argument`).

    The result: `ok`; `reason`, why it is not; `conclusive`, false where another of the `modes` is
    to be tried, in a process of its own; the key; `choices` with their times in ms, fastest first;
    `seconds`; `skipped`, how many the budget left out; `pin`, its state; `trouble`, what went
    wrong after the tuning; `log`, where the session is recorded.
    """
    options = _options(arguments)
    set_threads(arguments)
    try:
        visits = Visits(mark_argument(arguments), options.broken)
        return _Tuning(problem_argument(arguments), options, visits, progress).result()
    except OtherMode as error:
        return _failed(str(error), conclusive=False)
    except (NotTuned, NotRebuildable) as error:
        return _failed(str(error))


class Visits(retuning.Visits):
    """The mark says which choice is timed; what it leaves behind or damages is its own failure."""

    def __init__(self, mark: Mark, broken: Mapping[str, str]) -> None:
        super().__init__(broken)
        self._mark = mark
        self._house = House(mark)

    @contextlib.contextmanager
    def of(self, hash: str) -> Iterator[None]:
        with self._mark.at("timing", hash):
            try:
                with self._house.leaving_nobody():
                    yield
            finally:
                self._house.tidy()


def _options(arguments: Arguments) -> Options:
    backends, budget = arguments.get("backends"), arguments.get("budget")
    space = arguments.get("search_space")
    if backends is not None and not (
        isinstance(backends, list) and backends and all(isinstance(b, str) for b in backends)
    ):
        raise BadJob("the job's `backends` is a list of names")
    if space is not None and space not in SPACES:
        raise BadJob(f"the job's `search_space` is one of {', '.join(SPACES)}")
    if budget is not None and not (
        type(budget) in (int, float) and math.isfinite(budget) and budget > 0
    ):
        raise BadJob("the job's `budget` is a number of seconds above 0")
    return Options(
        backends=None if backends is None else tuple(name.upper() for name in backends),
        search_space=space,
        templates=bool(arguments.get("templates", False)),
        budget=budget,
        mode=mode_argument(arguments),
        any_mode=bool(arguments.get("any_mode", False)),
        broken=broken_argument(arguments),
    )


def _failed(reason: str, conclusive: bool = True) -> dict[str, Any]:
    modes = len(torch_api.MODES)
    return {"ok": False, "reason": reason, "conclusive": conclusive, "modes": modes}


class _Tuning:
    def __init__(
        self, problem: Problem, options: Options, visits: Visits, progress: Progress
    ) -> None:
        self._problem = problem
        self._options = options
        self._progress = progress
        budget = Budget(options.budget)
        self._task = Task(problem.is_met_by, budget, not options.any_mode, visits)
        self._story = Story(progress, lambda: budget.left)

    def result(self) -> dict[str, Any]:
        version = str(torch.__version__)
        if not versions.known(version):
            raise NotTuned(
                f"torch {version} is not known to the hooks ({versions.range_text()} are), so "
                "nothing can be recorded"
            )
        set_precision(self._problem.key)
        program = rebuild(self._problem.op, self._problem.specs)
        retuning.watch_timeouts(self._task.budget)
        selector.install()  # watches for failures; its selector gives way to one for this task
        torch_api.set_selector(retuning.selector(self._task, self._story, self._options.templates))
        self._progress(f"compiling {self._problem.op}")
        settings = torch_api.compile_settings(
            self._options.settings, freezing=program.freezing, graph_cache=False
        )
        begin, trouble = time.monotonic(), ""
        try:
            with settings, torch.no_grad():
                torch.compile(program.function, dynamic=False)(*program.arguments)
        except Exception as error:  # whatever the compiler raises is the job's answer
            trouble = torch_api.describe(error)
        finally:
            self._story.end()
        self._check(trouble)
        return self._told(time.monotonic() - begin, trouble)

    def _check(self, trouble: str) -> None:
        """Raises NotTuned or NotRebuildable where no time was measured and kept."""
        task, op = self._task, self._problem.op
        if task.other_mode:
            raise OtherMode(f"{op} was tuned in another mode: its choices are others")
        if task.lost:
            raise NotTuned(f"the times were measured but not kept: {task.lost}")
        if task.written:
            return
        if trouble:
            raise NotTuned(f"it does not compile: {trouble}")
        if task.key is None:
            asked = "; ".join(f"{key.op} {key.inputs}" for key in task.asked) or "nothing"
            raise NotRebuildable(
                f"{op} cannot be rebuilt from its inputs: Inductor was asked for {asked}"
            )
        by = self._story.selected.by if self._story.selected else None
        if by == "deterministic":
            raise NotTuned("deterministic mode is on, in which Inductor measures nothing")
        names = ", ".join(choice.label for choice in self._story.choices)
        raise NotTuned(f"there is nothing to choose from: Inductor offers {names or 'no choice'}")

    def _told(self, seconds: float, trouble: str) -> dict[str, Any]:
        task, key = self._task, self._task.key
        assert key is not None
        path = Layout(cache_dir()).autotune / torch_api.system_hash()
        try:
            kept = read_cache(path).entries.get(key, {})
        except CacheUnreadable as error:
            raise NotTuned(f"the times were measured but not kept: {error}") from error
        lost = task.written.keys() - kept.keys()
        if lost:
            raise NotTuned(f"{len(lost)} times were measured but are not in {path}")
        return {
            "ok": True,
            "reason": "",
            "conclusive": True,
            "modes": len(torch_api.MODES),
            "op": key.op,
            "inputs": key.inputs,
            "precision": key.precision,
            "system_hash": path.name,
            "choices": [_choice(choice) for choice in self._story.choices],
            "seconds": seconds,
            "skipped": len(task.budget.skipped),
            "pin": task.pin,
            "trouble": trouble,
            "log": self._story.log,
        }


def _choice(choice: Choice) -> dict[str, Any]:
    return {
        "name": choice.name,
        "hash": choice.hash,
        "ms": choice.ms,
        "failed": choice.failed,
        "reason": choice.reason,
    }
