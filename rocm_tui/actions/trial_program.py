"""Run a person's own program with its pins and without, alternately: is it faster with them?
Or with one tuned table and with another, see `trial_tables`.

Each side has a private cache dir: the autotune caches with the pins as they are, and the same
caches without. So nothing of the person's changes, and both sides compile for themselves, in a
first run that does not count. Then come pairs of runs in random order; the pair is the unit of the
statistics, since a process may be slower all its life.

Pins of Inductor's own kernels hold on each torch where our hooks are, and nowhere else, so both
sides run under the hooks. A pin of `@triton.autotune` is a file of Triton's cache: the side with
the pins has a copy, the other has none and tunes the kernel itself.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median

from backend.cache.autotune import copy_pinned, copy_unpinned
from backend.counted import counted
from backend.disk import safe
from backend.disk.layout import Layout
from backend.disk.sessions import read_log
from backend.errors import CacheUnreadable, StoreError
from backend.measure.trial import (
    BASELINE,
    ERROR,
    LEAST_PROCESSES,
    ArmStanding,
    across_processes,
    clear,
)
from backend.measure.verdict import schedule
from backend.model.choice import is_kernel_time
from backend.model.events import (
    ChoiceSelected,
    Event,
    GraphCalled,
    GraphCompiled,
    SessionStarted,
    TuningStarted,
)
from backend.model.graph import Trial
from backend.model.inductor_kernel import TRITON, is_kernel
from backend.model.session import Session
from backend.pins.file import PinFile, PinRecord, read_pin_file
from backend.pins.holders import kernel_file_of
from rocm_tui.actions.sources import load_model
from rocm_tui.actions.trial import NotTried, private_folder
from rocm_tui.actions.trial_tables import TableSides, read_tables
from rocm_tui.config.settings import config
from rocm_tui.environment import hooked, hooks_forbidden, unhooked
from rocm_tui.errors import UsageError
from rocm_tui.harmless import plain
from rocm_tui.ingest.formats.event_folds import GRAPH_ID
from rocm_tui.jobs.program import (
    SIDES,
    Ended,
    ProgramRun,
    ProgramTrial,
    Side,
    TableUse,
    run_program,
)
from rocm_tui.jobs.run import keep_log
from rocm_tui.launch.run import run_id
from rocm_tui.session.spread import LEAST, ColdTuning, Spread

SKIP = 3
"""Steps that warm up."""
LEAST_STEPS = 3
LOOKS = 4
"""After 3, 6, 12 and 24 pairs."""
PARTS = 20
AT_ONCE = 0.3
"""The share of these parts that may have come all at once."""
SHOWN = 5
ONCE = (
    "Each side was compiled once: the interval does not cover how much compilations of the program "
    "differ, which --spread shows."
)
"""After its first run a side loads its compiled graphs from Inductor's cache."""


@dataclass(frozen=True, slots=True)
class Steps:
    """The definition of a step: the time between two lines that match `marker`, without the first
    `skip`; or a call of the graph whose id is or begins with `graph`, as our hooks record it."""

    marker: re.Pattern[str] | None = None
    graph: str | None = None
    skip: int = SKIP


def steps_of(marker: str | None, graph: str | None, skip: int) -> Steps:
    """Raises UsageError."""
    if (marker is None) == (graph is None):
        raise UsageError(
            "say what a step of the program is: --step REGEX, a line that it prints after each, or "
            "--graph GID, a graph that it calls"
        )
    if skip < 0:
        raise UsageError("--skip is a number of steps, 0 or more")
    try:
        pattern = None if marker is None else re.compile(marker)
    except re.error as error:
        raise UsageError(f"--step is no regular expression: {error}") from error
    return Steps(pattern, None if graph is None else graph.lower(), skip)


Tell = Callable[[ProgramRun], None]


def try_program(
    command: Sequence[str],
    layout: Layout,
    steps: Steps,
    *,
    tables: Sequence[Path] = (),
    pairs: int | None = None,
    budget: float | None = None,
    error: float = ERROR,
    env: Mapping[str, str] = os.environ,
    begun: Callable[[int, str], None] = lambda pair, label: None,
    tell: Tell = lambda run: None,
) -> ProgramTrial:
    """Run `pairs` of runs, or until the result is clear or the budget is spent.

    One of `tables` is compared with none, two with each other; without them, the pins are tried.
    Raises NotTried where nothing is pinned, or a run ended badly or had no steps; UsageError for
    tables that cannot be compared; StoreErrors.
    """
    pins = read_pin_file(layout.pins)
    compared = read_tables(tables) if tables else None
    if compared is None and not pins.pins:
        raise NotTried("nothing is pinned, so the program would be compared with itself")
    with _private_layouts(layout) as layouts:
        sides: _PinSides | TableSides
        if compared is None:
            copy_unpinned(layout, layouts["without"])
            copy_pinned(layout, layouts["with"])
            sides = _PinSides(layouts, pinned_kernels(pins))
        else:
            for private in layouts.values():
                copy_pinned(layout, private)
            sides = TableSides(compared, layouts)
        runner = _Runner(command, layout, layouts, steps, sides, env, begun, tell)
        budget = config().budgets.program if budget is None else budget
        return runner.until_clear(pairs, budget, error)


def tune_cold(
    command: Sequence[str],
    layout: Layout,
    steps: Steps,
    count: int,
    *,
    env: Mapping[str, str] = os.environ,
    begun: Callable[[int, str], None] = lambda number, label: None,
    tell: Callable[[int, ColdTuning], None] = lambda number, tuning: None,
) -> Spread:
    """Run the program `count` times, each time with empty caches of Inductor and Triton.

    The times of calls of a graph are kept for `read_spread`; the result says if that fails. Raises
    NotTried where a run ended badly or had no steps, and StoreErrors.
    """
    tunings: list[ColdTuning] = []
    trouble: tuple[str, ...] = ()
    session: Session | None = None
    for number in range(1, count + 1):
        with _private_layouts(layout) as layouts:
            private = layouts["without"]
            safe.make_folder(layout.root, private.root)
            own = {**env, "TRITON_CACHE_DIR": str(private.root / "triton")}
            sides = _PinSides(layouts, ())
            runner = _Runner(command, layout, layouts, steps, sides, own, begun, lambda run: None)
            run = runner.run(number, "without")
            steps, session = runner.steps, runner.session
            if not code_of(private):
                trouble = (
                    "A run compiled nothing in the cache dir that it was given: the program may "
                    "have its own, and then its tunings are not cold.",
                )
            rows = tuple(load_model(private).rows())
        tunings.append(ColdTuning(run.ms, run.steps, run.seconds, rows))
        tell(number, tunings[-1])
    spread = Spread(tuple(command), tuple(tunings), trouble)
    if steps.graph is not None and session is not None:
        times = {**_machine(session), "ms": spread.times}
        try:
            _write_spread(layout, steps.graph, json.dumps(times).encode())
        except StoreError as error:  # the tunings took hours, so no error may hide their result
            kept = f"The times of graph {steps.graph} are not kept for `improve`: {error}."
            spread = replace(spread, trouble=(*trouble, kept))
    return spread


def _write_spread(layout: Layout, graph: str, data: bytes) -> None:
    """Raises StoreErrors."""
    path = _spread_path(layout, graph)
    safe.make_folder(layout.root, path.parent)
    with safe.locked(layout.root, path):
        safe.write_atomic(path, data)


def _spread_path(layout: Layout, graph: str) -> Path:
    """The caller checks that the graph's id is one."""
    return layout.graphs / f"{graph}.spread.json"


def _machine(made_by: Session | Trial) -> dict[str, str | None]:
    """Return what must be equal for a spread to say something about a trial on this host."""
    return {
        "host": socket.gethostname(),
        "torch": made_by.torch,
        "device": made_by.device,
        "system": made_by.system_hash,
    }


def read_spread(layout: Layout, graph: str, trial: Trial) -> tuple[float, ...]:
    """Return the times of a call of the graph in cold tunings on this host, by the torch and on
    the device of a trial; empty if unknown."""
    path = _spread_path(layout, graph)
    try:
        document = safe.load_json(path, safe.read_bytes(path))
    except CacheUnreadable:
        return ()
    times = document.get("ms")
    machine = _machine(trial)
    if {name: document.get(name) for name in machine} != machine or not isinstance(times, list):
        return ()
    known = tuple(ms for ms in times if isinstance(ms, int | float) and is_kernel_time(ms))
    return known if len(known) >= LEAST else ()


@contextmanager
def _private_layouts(layout: Layout) -> Iterator[dict[Side, Layout]]:
    """Yield a private cache dir for each side, removed afterwards."""
    with private_folder(layout) as folder:
        yield {side: Layout(folder.root / side) for side in SIDES}


class _PinSides:
    """A side without the pins, and one with them."""

    labels: Mapping[Side, str] = {"without": "without the pins", "with": "with the pins"}
    tables: tuple[TableUse, ...] = ()

    def __init__(self, layouts: Mapping[Side, Layout], kernels: Sequence[PinRecord]) -> None:
        self._layouts = layouts
        self._kernels = kernels
        self.hooks = bool(kernels)
        copy_times(kernels, layouts["with"])

    def environment(self, side: Side, pair: int) -> Mapping[str, str | None]:
        return environment(self._kernels, self._layouts[side])

    def hear(self, side: Side, pair: int, line: str) -> None:
        pass

    def doubts(self, code: Mapping[Side, frozenset[bytes]]) -> tuple[str, ...]:
        graphs = (layout.fxgraph.exists() for layout in self._layouts.values())
        return (*self._code_doubts(code), *([ONCE] if any(graphs) else []))

    def _code_doubts(self, code: Mapping[Side, frozenset[bytes]]) -> tuple[str, ...]:
        triton = any(record.op == TRITON for record in self._kernels)
        if not any(code.values()) and not triton:
            return (
                "The program compiled nothing in the cache dir that it was given: it may have its "
                "own, and then both sides are the same.",
            )
        if self._kernels:
            return tuple(
                plain(
                    f"The pinned {record.label} of {record.op} {record.inputs} was not launched on "
                    "the side with the pins."
                )
                for record in not_launched(self._kernels, self._layouts["with"])[:SHOWN]
            )
        if code["with"] == code["without"]:
            return (
                "The pins change nothing in what the program compiles: both sides run the same "
                "code.",
            )
        return ()


class _Runner:
    def __init__(
        self,
        command: Sequence[str],
        layout: Layout,
        layouts: Mapping[Side, Layout],
        steps: Steps,
        sides: _PinSides | TableSides,
        env: Mapping[str, str],
        begun: Callable[[int, str], None],
        tell: Tell,
    ) -> None:
        self._command = tuple(command)
        self._layout = layout
        self._layouts = layouts
        self.steps = steps
        self.session: Session | None = None
        self._sides = sides
        self._env = env
        self._begun = begun
        self._tell = tell
        self._runs: list[ProgramRun] = []
        self._dice = random.Random()

    def until_clear(self, pairs: int | None, budget: float, error: float) -> ProgramTrial:
        for side in SIDES:
            self.run(0, side)
        trouble = self._sides.doubts({side: code_of(self._layouts[side]) for side in SIDES})
        if pairs is None and any(use.unseen for use in self._sides.tables):
            pairs = 1  # no number of pairs gives a verdict
        looks = (pairs,) if pairs is not None else schedule(LOOKS, LEAST_PROCESSES)
        began = time.monotonic()
        values: list[dict[int, float]] = []
        standings: tuple[ArmStanding, ...] = ()
        for look, count in enumerate(looks, 1):
            last = False
            while len(values) < count and not last:
                values.append(self._pair(len(values) + 1))
                spent = time.monotonic() - began
                last = pairs is None and spent * (len(values) + 1) / len(values) > budget
            standings = across_processes(values, look=look, looks=len(looks), error=error)
            if last or clear(standings):
                break
        seconds = time.monotonic() - began
        runs = tuple(self._runs)
        tables = self._sides.tables
        return ProgramTrial(self._command, runs, standings, len(values), seconds, trouble, tables)

    def _pair(self, pair: int) -> dict[int, float]:
        order = list(SIDES)
        self._dice.shuffle(order)
        times = {side: self.run(pair, side).ms for side in order}
        return {BASELINE: times["without"], BASELINE + 1: times["with"]}

    def run(self, pair: int, side: Side) -> ProgramRun:
        """Run the program once. Raises NotTried."""
        self._begun(pair, self._sides.labels[side])
        private = self._layouts[side]
        env = {**unhooked(self._env), "TORCHINDUCTOR_CACHE_DIR": str(private.root)}
        given = {**env, **self._sides.environment(side, pair)}
        env = {name: value for name, value in given.items() if value is not None}
        run = run_id()
        if self.steps.graph is not None or self._sides.hooks:
            forbidden = hooks_forbidden(env)
            if forbidden:
                raise NotTried(forbidden)
            env = hooked(env, run)
        marks: list[float] = []

        def hear(line: str, when: float) -> None:
            self._sides.hear(side, pair, line)
            if self.steps.marker is not None and self.steps.marker.search(line):
                marks.append(when)

        try:
            ended = run_program(self._command, env, hear)
        except OSError as error:
            raise NotTried(f"{self._command[0]}: {error.strerror or error}") from error
        if ended.status:
            raise self._failed(side, ended, f"ended {_ending(ended.status)}")
        if self.steps.graph is None:
            ms, count = self._between(marks, side, ended)
        else:
            ms, count = self._calls(private, run, self.steps.graph, side, ended)
        done = ProgramRun(pair, side, self._sides.labels[side], ms, count, ended.seconds)
        self._runs.append(done)
        self._tell(done)
        return done

    def _between(self, marks: Sequence[float], side: Side, ended: Ended) -> tuple[float, int]:
        assert self.steps.marker is not None
        pattern, skip = self.steps.marker.pattern, self.steps.skip
        if not marks:
            raise self._failed(side, ended, f"printed no line that matches {pattern!r}")
        steps = marks[skip:]
        count = len(steps) - 1
        if count < LEAST_STEPS:
            needed = skip + LEAST_STEPS + 1
            match = counted(len(marks), "line that matches", "lines that match")
            what = f"printed {match} {pattern!r}, and {needed} are needed"
            raise self._failed(side, ended, what)
        times = step_times(steps)
        if sum(seconds <= 0 for seconds in times) > AT_ONCE * len(times):
            what = (
                f"prints lines that match {pattern!r} several at once: let it flush each of them, "
                "or make a step longer, a line for 100 of them"
            )
            raise self._failed(side, ended, what)
        return median(times) * 1e3, count

    def _calls(
        self, private: Layout, run: str, graph: str, side: Side, ended: Ended
    ) -> tuple[float, int]:
        """The mean of the recorded calls of the graph, in all processes of the run. Raises
        NotTried."""
        total, timed, ids = 0.0, 0, set[str]()
        for path in sorted(private.sessions.glob("*.jsonl")):
            for session, id, call in _called(path, run, graph):
                ids.add(id)
                self.session = session
                if call.ms is not None:
                    total, timed = total + call.ms * call.timed, timed + call.timed
        if len(ids) > 1:
            several = f"calls several graphs whose ids begin with {graph}: {', '.join(sorted(ids))}"
            raise self._failed(side, ended, f"{several}; give more digits")
        if not timed:
            what = f"has no call of graph {graph} that was timed"
            raise self._failed(side, ended, what if ids else f"did not call graph {graph}")
        self.steps = replace(self.steps, graph=ids.pop())
        return total / timed, timed

    def _failed(self, side: Side, ended: Ended, what: str) -> NotTried:
        path = keep_log(self._layout, "trial", ended.lines)
        last = [plain(line, 200) for line in ended.lines if line.strip()][-SHOWN:]
        said = f": {' | '.join(last)}" if last else ""
        where = f"; the end of its output: {path}" if path else ""
        return NotTried(plain(f"the program {self._sides.labels[side]} {what}{said}{where}"))


def step_times(marks: Sequence[float]) -> list[float]:
    """Seconds a step, one value for each of at most `PARTS` parts of the row: a line that we hear
    a little late spoils no part of many steps, and one slow step spoils one part alone."""
    count = len(marks) - 1
    parts = min(count, PARTS)
    bounds = [count * part // parts for part in range(parts + 1)]
    return [(marks[b] - marks[a]) / (b - a) for a, b in pairwise(bounds)]


def code_of(layout: Layout) -> frozenset[bytes]:
    """Return digests of the code that Inductor wrote in a cache dir, independent of its path."""
    own = os.fsencode(layout.root)
    digests: set[bytes] = set()
    for path in layout.root.glob("??/*.py"):
        try:
            text = path.read_bytes()
        except OSError:
            continue
        digests.add(hashlib.sha256(text.replace(own, b"")).digest())
    return frozenset(digests)


def _called(path: Path, run: str, graph: str) -> Iterator[tuple[Session, str, GraphCalled]]:
    """Yield the session, the id and the last count of each graph whose id begins with `graph`, if
    the log is one of the run. Raises NotTried."""
    events = _events_of(path)
    sessions = [event.session for event in events if isinstance(event, SessionStarted)]
    if not sessions or not sessions[-1].id.startswith(run):
        return
    compiled = (event for event in events if isinstance(event, GraphCompiled))
    ids = {e.g: e.graph.id for e in compiled if e.graph.id.startswith(graph)}
    last = {e.g: e for e in events if isinstance(e, GraphCalled) and e.g in ids}
    for g, call in last.items():
        if GRAPH_ID.fullmatch(ids[g]):
            yield sessions[-1], ids[g], call


def _events_of(path: Path) -> list[Event]:
    """Return the events of a log. Raises NotTried if it cannot be read, because a mean over the
    other ranks would give a false verdict."""
    events, faults = read_log(path)
    unread = next((fault for fault in faults if fault.line is None), None)
    if unread is not None:
        raise NotTried(f"{path}: {unread.what}")
    return events


def _ending(status: int) -> str:
    return f"with exit code {status}" if status > 0 else f"by signal {-status}"


def pinned_kernels(pins: PinFile) -> tuple[PinRecord, ...]:
    return tuple(record for record in pins.pins if is_kernel(record.op))


def environment(kernels: Sequence[PinRecord], private: Layout) -> dict[str, str]:
    """Return the environment that a side needs besides its cache dir."""
    if not any(record.op == TRITON for record in kernels):
        return {}
    folder = str(private.root / "autotuned")
    return {"TRITON_CACHE_DIR": folder, "TRITON_CACHE_AUTOTUNING": "1"}


def copy_times(kernels: Sequence[PinRecord], private: Layout) -> None:
    """Copy what Triton reads of the pins to the side with the pins.

    A pin whose file is gone is left out; `not_launched` reports it. Raises UnsafePath and
    NotWritable.
    """
    for record in kernels:
        if record.op != TRITON:
            continue
        try:
            path = kernel_file_of(record)
            content = safe.read_bytes(path)
        except CacheUnreadable:
            continue
        copy = private.root / "autotuned" / path.parent.name / path.name
        safe.make_folder(private.root, copy.parent)
        safe.write_atomic(copy, content)


def not_launched(kernels: Sequence[PinRecord], private: Layout) -> list[PinRecord]:
    """Return the pins whose config no process of the side with the pins took. Raises NotTried."""
    taken: set[tuple[str, str, str]] = set()
    for path in sorted(private.sessions.glob("*.jsonl")):
        events = _events_of(path)
        keys = {e.n: (e.op, e.inputs) for e in events if isinstance(e, TuningStarted)}
        taken |= {
            (*keys[event.n], event.hash)
            for event in events
            if isinstance(event, ChoiceSelected) and event.by != "timing" and event.n in keys
        }
    return [record for record in kernels if (record.op, record.inputs, record.hash) not in taken]
