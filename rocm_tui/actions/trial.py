"""Try other choices in a captured graph: find the graph, ask whether it may run, measure its arms.

A captured graph is a program. A person sees it before it runs for the first time; the hash of the
text that they accepted is kept in a file that nobody else can write. Trials run in private caches,
so nothing of the person's changes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path

import psutil

from backend.cache.autotune import copy_unpinned, discard
from backend.disk import safe
from backend.disk.layout import Layout
from backend.errors import CacheUnreadable, StoreError
from backend.measure.trial import ERROR, across_processes
from backend.model.choice import Choice
from backend.model.graph import RETUNED, Arm, CompileOption, Swap, Trial, TrialArm, control_of
from backend.processes.tree import machine
from backend.wire.captured import HeadInvalid, head_of
from backend.wire.jobs import TrialJob, TrialResult
from rocm_tui.config.settings import config
from rocm_tui.errors import NoSuchChoice, RocmTuiError
from rocm_tui.harmless import plain
from rocm_tui.jobs.limits import JobError
from rocm_tui.jobs.run import RunJob, without_broken
from rocm_tui.search.options import worth_trying
from rocm_tui.search.types import half_width, trouble_of
from rocm_tui.session import stats
from rocm_tui.session.graph_rows import GraphRow, find_graph
from rocm_tui.session.model import Row
from rocm_tui.session.refusals import TRIED, why_not_alone, why_not_hashed, why_not_tried

CAPTURE = "run it with `rocm-tui run --capture -- ...` first"
MOST_TEXT = 32 << 20
"""Bytes of a graph's text. A model of thousands of ops has some hundred KiB."""
MOST_ACCEPTED = 1000


class NotTried(RocmTuiError):
    """No trial was made; one line says why."""


@dataclass(frozen=True, slots=True)
class CapturedGraph:
    """The text of a captured graph, its path, and the hash that a person agrees to."""

    path: Path
    data: bytes

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    @property
    def lines(self) -> list[str]:
        """Made harmless."""
        return [plain(line) for line in self.data.decode(errors="replace").splitlines()]

    @property
    def body(self) -> list[str]:
        """The computation of the graph: the lines from its `forward` on, without blank ones."""
        lines = [line for line in self.lines if line.strip()]
        at = next((at for at, line in enumerate(lines) if "def forward(" in line), 0)
        return lines[at:]


def graph_for(row: Row, graphs: Sequence[GraphRow], wanted: str | None = None) -> GraphRow:
    """The captured graph in which the program spends most time on the tuning, or that whose id is
    or begins with `wanted`. Raises NotTried and NoSuchGraph."""
    key = row.tuning.key
    if key is None:
        raise NotTried(why_not_tried(row.tuning) or "")
    if (alone := why_not_alone(row.tuning, TRIED)) is not None:
        raise NotTried(alone)
    if wanted is not None:
        graphs = [find_graph(graphs, wanted)]
    holding = [graph for graph in graphs if key in graph.tunings]
    if not holding and wanted is not None:
        raise NotTried(f"graph {graphs[0].id} does not contain tuning {row.id}")
    if not holding:
        raise NotTried(f"no graph is known that contains tuning {row.id}: {CAPTURE}")
    kept = [graph for graph in holding if graph.path is not None]
    if not kept:
        why = next((graph.graph.uncaptured for graph in holding if graph.graph.uncaptured), "")
        reason = f"could not be captured: {plain(why)}" if why else f"is not captured: {CAPTURE}"
        raise NotTried(f"graph {holding[0].id}, which contains tuning {row.id}, {reason}")
    return max(kept, key=lambda graph: (graph.share or 0.0) * (graph.tunings[key].share or 0.0))


def text_of(layout: Layout, graph: str) -> CapturedGraph:
    """Raises NotTried where it is not kept any more, or is no file to read."""
    if not (graph.isascii() and graph.isalnum()):
        raise NotTried(f"{plain(graph)!r} is no id of a graph")
    path = layout.graphs / f"{graph}.py"
    try:
        with safe.open_regular(path) as stream:
            data = stream.read(MOST_TEXT + 1)
    except FileNotFoundError as error:
        raise NotTried(f"the text of graph {graph} is not kept: {CAPTURE}") from error
    except OSError as error:
        raise NotTried(f"cannot read {path}: {error.strerror or error}") from error
    if len(data) > MOST_TEXT:
        raise NotTried(f"{path} has more than {MOST_TEXT >> 20} MiB, which is no graph's text")
    return CapturedGraph(path, data)


def accepted_path(layout: Layout) -> Path:
    return layout.graphs / "accepted.json"


def is_accepted(layout: Layout, text: CapturedGraph) -> bool:
    """Whether this person has agreed to run just this text. No, where that cannot be read or
    somebody else could have written it."""
    try:
        safe.check_file(layout.root, accepted_path(layout))
    except StoreError:
        return False
    return text.digest in _accepted(layout)


def accept(layout: Layout, text: CapturedGraph) -> None:
    """Remember that a person agreed to run it. Raises StoreErrors, also where earlier agreements
    cannot be read now, which writing would lose; a damaged file is replaced."""
    path = accepted_path(layout)
    safe.make_folder(layout.root, path.parent)
    safe.check_file(layout.root, path)
    with safe.locked(layout.root, path):
        data = safe.read_bytes(path) if safe.exists(path) else b""
        accepted = {**_agreements(path, data), text.digest: time.time()}
        newest = sorted(accepted, key=lambda digest: accepted[digest])[-MOST_ACCEPTED:]
        document = {"accepted": {digest: accepted[digest] for digest in newest}}
        safe.write_atomic(path, json.dumps(document, indent=1).encode())


def _accepted(layout: Layout) -> dict[str, float]:
    path = accepted_path(layout)
    try:
        return _agreements(path, safe.read_bytes(path))
    except CacheUnreadable:
        return {}


def _agreements(path: Path, data: bytes) -> dict[str, float]:
    """Return the digests that a person agreed to, with their times; none if the file is damaged."""
    try:
        values = safe.load_json(path, data).get("accepted")
    except CacheUnreadable:
        return {}
    if not isinstance(values, dict):
        return {}
    return {digest: float(w) for digest, w in values.items() if isinstance(w, (int, float))}


def private_cache(layout: Layout) -> Layout:
    """Make or update the cache dir of trials, and return it.

    It has the autotune caches of `layout` without pins, and no compiled graphs. Raises StoreErrors.
    """
    private = Layout(layout.trials)
    copy_unpinned(layout, private)
    return private


@contextmanager
def private_folder(layout: Layout) -> Iterator[Layout]:
    """Yield the path of a folder that no other process uses, which is removed afterwards."""
    begin = private_name()
    _remove_left(layout, begin)
    folder = Layout(layout.graphs / f"{begin}{os.getpid()}-{secrets.token_hex(4)}")
    try:
        yield folder
    finally:
        discard(layout, folder)


def private_name() -> str:
    """Return how the names of our private folders begin; a process id and 8 hex digits follow.

    Hosts and containers that share a cache directory do not see each other's processes.
    """
    host = "".join(c if c.isalnum() or c in ".-" else "_" for c in socket.gethostname())[:64]
    return f"trial-{host}-{hashlib.sha256(machine().encode()).hexdigest()[:8]}-"


def _remove_left(layout: Layout, begin: str) -> None:
    """Remove the folders of processes that were killed."""
    ours = re.compile(rf"{re.escape(begin)}(\d+)-[0-9a-f]{{8}}")
    for path in layout.graphs.glob("trial-*"):
        match = ours.fullmatch(path.name)
        if match and not psutil.pid_exists(int(match[1])):
            discard(layout, Layout(path))


BASELINE: Arm = ()
UNASKED = 3
"""Choices that are tried where none is named: each is compiled into the whole graph."""


def choices_to_try(row: Row, wanted: Sequence[Choice] = ()) -> Sequence[Choice]:
    """Return the choices that a person named or marked, else the ones that may beat Inductor's.

    These are the pinned choice, the best by measurement, the second, and ATen's best. Raises
    NotTried if there are none.
    """
    if wanted:
        return wanted
    tuning, timed = row.tuning, stats.ranked(row.tuning)
    pinned = row.pin.pin.hash if row.pin else None
    best = tuning.measured.choices[0].hash if tuning.measured else None
    named = [choice for hash in (pinned, best) if hash for choice in timed if choice.hash == hash]
    others = [*named, *timed[1:2], stats.aten(tuning)]
    rivals = [c for c in others if c is not None and c.hash and c is not timed[0]]
    unique = list({choice.hash: choice for choice in rivals}.values())
    if not unique:
        raise NotTried(f"tuning {row.id} has no other choice to try than the one Inductor takes")
    return unique[:UNASKED]


def options_to_try(text: CapturedGraph, device: str | None) -> tuple[CompileOption, ...]:
    """Return the options that often help on this device, except the ones the program has set."""
    try:
        config = head_of(text.data.decode(errors="replace")).config
    except HeadInvalid:
        config = {}
    program = [CompileOption(name, str(value)) for name, value in config.items()]
    return worth_trying(device, program)


def swap_of(row: Row, choice: Choice) -> Swap:
    """Raises NotTried and NoSuchChoice."""
    key = row.tuning.key
    if key is None:
        raise NotTried(why_not_tried(row.tuning) or "")
    if (alone := why_not_alone(row.tuning, TRIED)) is not None:
        raise NotTried(alone)
    if choice.hash is None:
        raise NoSuchChoice(why_not_hashed(row.id, [choice]) or "")
    return Swap(key.op, key.inputs, key.precision, choice.hash, choice.label)


def arms_for(
    row: Row, graph_rows: Sequence[GraphRow], choices: Sequence[Choice]
) -> tuple[Arm, ...]:
    """The baseline, and one arm for each choice of a tuning that these graphs contain. Raises
    NotTried and NoSuchChoice."""
    for graph in graph_rows:
        if row.tuning.key not in graph.tunings:
            raise NotTried(f"graph {graph.id} does not contain tuning {row.id}")
    return (BASELINE, *((swap_of(row, choice),) for choice in choices))


class GraphTrial:
    """Tries arms of a captured graph, the first of which is the baseline, each time in a worker,
    which `run` gives the private cache dir of trials.

    Arms that once ended their worker have failed, and the others are tried. `fresh`: in a new
    process, which compiles anew. `gpus`: GPUs among which arms or processes are divided. `control`:
    with the baseline tuned again, see `TrialJob`.
    """

    def __init__(
        self,
        run: RunJob,
        layout: Layout,
        graph: str,
        arms: Sequence[Arm],
        *,
        budget: float | None = None,
        rounds: int = 0,
        threads: int | None = None,
        error: float = ERROR,
        fresh: bool = False,
        gpus: tuple[str, ...] = (),
        control: bool = True,
    ) -> None:
        self._run = run
        self._layout = layout
        self._arms = tuple(arms)
        self._control = control_of(self._arms[0])
        self._job = TrialJob(
            graph=graph,
            arms=self._arms,
            budget=config().budgets.trial if budget is None else budget,
            rounds=rounds,
            error=error,
            threads=threads,
            fresh=fresh,
            gpus=gpus,
            control=control,
        )
        self.budget = self._job.budget
        self._broken: dict[Arm, str] = {}

    def once(self) -> Trial:
        """Raises JobError, NotTried and StoreErrors."""
        return self.several(1)[0]

    def several(self, processes: int) -> list[Trial]:
        """Run that number of trials. Several run in processes of their own, which compile side by
        side; some may be missing. Raises what `once` raises."""
        private_cache(self._layout)
        result = self._do(replace(self._job, processes=processes))
        if result.trial is None or not result.ok:
            raise NotTried(plain(result.reason or "the worker gave no trial"))
        failed = tuple(TrialArm(arm, failed=reason) for arm, reason in self._broken.items())
        return [
            replace(trial, arms=(*trial.arms, *failed)) for trial in (result.trial, *result.others)
        ]

    def _do(self, job: TrialJob) -> TrialResult:
        """An arm that ends its worker is left out from then on, within what is left of the
        budget."""

        def ask(budget: float) -> TrialResult:
            arms = tuple(arm for arm in self._arms if arm not in self._broken)
            control = job.control and self._control not in self._broken
            return self._run(replace(job, budget=budget, arms=arms, control=control))

        return without_broken(ask, self._blame, job.budget)

    def _blame(self, error: JobError) -> None:
        """Raises `error` if no single arm is to blame for it, or no other arm is left to try."""
        if error.blamed == RETUNED.identity and self._control not in self._broken:
            self._broken[self._control] = str(error)
            return
        arms = [
            arm
            for arm in self._arms[1:]
            if arm not in self._broken and any(change.identity == error.blamed for change in arm)
        ]
        if error.blamed is None or not arms:
            raise error
        self._broken.update({arm: str(error) for arm in arms})
        if self._broken.keys() >= {*self._arms[1:]}:
            reason = f"none of the choices can be run in the graph; {plain(str(error))}"
            raise NotTried(reason) from error


def combined(trials: Sequence[Trial], *, error: float = ERROR) -> Trial:
    """Combine trials of the same arms, each in its own process.

    The verdicts and ratios come from how the processes differ. An arm that failed in one of them
    has failed, and its outputs differ as much as in the worst of them. A control that some of them
    lack has no times. Raises ValueError if there are no trials.
    """
    if not trials:
        raise ValueError("no trials to combine")
    last = trials[-1]
    failed = {arm.swaps: arm for trial in trials for arm in trial.arms if arm.failed}
    every = [{arm.swaps: arm for arm in trial.arms} for trial in trials]
    timed = [arm for arm in last.arms if all(arm.swaps in its for its in every)]
    alive = [arm for arm in timed if arm.swaps not in failed]
    # A process in which others took the CPU all the time has no times, and is left out of them.
    knowing = [its for its in every if all(isfinite(half_width(its[a.swaps])) for a in alive)]
    by_process = knowing or every
    ratios, times, halves = (
        [{at: number(its[arm.swaps]) for at, arm in enumerate(alive)} for its in by_process]
        for number in (_ratio, _ms, half_width)
    )
    control = control_of(last.arms[0].swaps)
    lacking = sum(control not in its for its in every)
    if 0 < lacking < len(every):  # without a trace of it, retuned arms would count as faster
        failed.setdefault(control, TrialArm(control))
    arms = tuple(
        replace(
            arm,
            ms=time.ms,
            low=time.low,
            high=time.high,
            ratio=ratio.ratio,
            ratio_low=ratio.ratio_low,
            ratio_high=ratio.ratio_high,
            verdict=ratio.verdict,
            passes=sum(its[arm.swaps].passes for its in by_process),
            error=_worst([its[arm.swaps].error for its in every]),
            same=all(its[arm.swaps].same for its in every),
            retuned=any(its[arm.swaps].retuned for its in every),
        )
        for arm, ratio, time in zip(
            alive,
            across_processes(ratios, halves=halves, error=error),
            across_processes(times, error=error),
            strict=True,
        )
    )
    return replace(
        last,
        arms=(*arms, *failed.values()),
        rounds=sum(trial.rounds for trial in trials),
        seconds=sum(trial.seconds for trial in trials),
        trouble=trouble_of(trials),
    )


def _worst(errors: Sequence[float | None]) -> float | None:
    """The largest one; None if the outputs of a process were not compared."""
    compared = [error for error in errors if error is not None]
    return max(compared) if len(compared) == len(errors) else None


def _ratio(arm: TrialArm) -> float:
    return 1.0 if arm.ratio is None else arm.ratio


def _ms(arm: TrialArm) -> float:
    return 0.0 if arm.ms is None else arm.ms
