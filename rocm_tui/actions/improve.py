"""Make a graph faster: search for better choices step by step in workers, and keep the search.

`rocm_tui.search` decides what is tried, kept and believed; this module runs it: the graph's text,
the tunings, the workers, the clock. The search is kept in `rocm_tui/graphs/ID.improve.json`, which
is written whole after each step, so that a killed search can go on. A file that does not hold a
search is refused, and overwritten only with `--restart`.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path

from backend.cache.autotune import cache_paths, read_cache, recorded_pins
from backend.counted import counted
from backend.disk import safe
from backend.disk.layout import Layout
from backend.errors import Busy, CacheUnreadable
from backend.model.choice import Choice
from backend.model.graph import (
    RETUNED,
    TEMPLATES,
    CompileOption,
    Trial,
    TrialArm,
    hashes_of,
    options_of,
)
from backend.model.origin import device_kind, provider
from backend.model.problem import TuningKey
from backend.model.session import Session
from backend.model.tuning import Tuning
from backend.pins.file import new_group
from backend.pins.plan import PinPlan
from backend.wire.codec import WireError, dumps, loads, read, to_json
from rocm_tui.actions.measure import Measuring, NotMeasurable, NotMeasured
from rocm_tui.actions.pin import (
    Pinnable,
    Pinned,
    check_plan,
    pin_choice,
    pinnable,
    plan_pin,
)
from rocm_tui.actions.trial import (
    CAPTURE,
    GraphTrial,
    NotTried,
    options_to_try,
    text_of,
)
from rocm_tui.config.settings import config
from rocm_tui.errors import NoSuchChoice, RocmTuiError, TryAgain
from rocm_tui.harmless import plain
from rocm_tui.jobs.limits import JobError
from rocm_tui.jobs.run import RunJob
from rocm_tui.search.candidates import is_known, to_measure, with_candidates, with_single_times
from rocm_tui.search.steps import (
    Gain,
    best_arm,
    last_said,
    next_step,
    resumed,
    search_status,
)
from rocm_tui.search.types import (
    VERSION,
    Candidate,
    Context,
    MeasureStep,
    Search,
    Step,
    Subject,
    TrialStep,
    Try,
    same_machine,
)
from rocm_tui.session import stats
from rocm_tui.session.graph_rows import GraphRow, GraphTuning, find_graph
from rocm_tui.session.model import Row

Rows = Mapping[TuningKey, Row]
NOT_READ = "its tuning is in no cache that was read"


@dataclass(frozen=True, slots=True)
class SearchProgress:
    """The next step of a search, None at its end, and the seconds that are left.

    `anew` is a sentence why an earlier search does not count.
    """

    search: Search
    step: Step | None
    left: float
    anew: str = ""


@dataclass(frozen=True, slots=True)
class PinProposal:
    """A choice that the search proposes to pin, in the place of what Inductor takes. `graph` is
    what the trial said in which it was found."""

    subject: Subject
    candidate: Candidate
    graph: TrialArm | None = None


def pick_graph(graphs: Sequence[GraphRow], wanted: str | None = None) -> GraphRow:
    """The captured graph in which a program spends most time, or that whose id is or begins with
    `wanted`. `graphs` are sorted by that time. Raises NoSuchGraph and NotTried."""
    meant = graphs if wanted is None else [find_graph(graphs, wanted)]
    captured = next((row for row in meant if row.path is not None), None)
    if captured is not None:
        return captured
    if not meant:
        raise NotTried(f"no graph of a program is known: {CAPTURE}")
    why = next((row.graph.uncaptured for row in meant if row.graph.uncaptured), "")
    reason = f"could not be captured: {plain(why)}" if why else f"is not captured: {CAPTURE}"
    which = f"graph {meant[0].id}" if wanted else f"none of {counted(len(meant), 'graph')}"
    raise NotTried(f"{which} {reason}")


def rows_of(graph: GraphRow) -> Rows:
    """Return the known tunings of a graph."""
    return {key: held.row for key, held in graph.tunings.items() if held.row is not None}


class GraphSearch:
    """One run of a search; `go` makes it, `search` is its present state, `budget` its seconds.

    Without `within`, `options` and `templates`, an earlier search goes on with its own. One that
    confirmed a gain is discarded by `restart` alone. Arms are divided among `gpus`, if any.
    """

    def __init__(
        self,
        run: RunJob,
        layout: Layout,
        graph: GraphRow,
        *,
        budget: float | None = None,
        within: float | None = None,
        restart: bool = False,
        options: bool = False,
        templates: bool = False,
        gpus: tuple[str, ...] = (),
        tell: Callable[[SearchProgress], None] = lambda news: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run = run
        self._layout = layout
        self._graph = graph
        self._rows = rows_of(graph)
        self.budget = config().budgets.improve if budget is None else budget
        self._within = within
        self._restart = restart
        self._options = options
        self._templates = templates
        self._gpus = gpus
        self._tell = tell
        self._clock = clock
        self._end = 0.0
        self._anew = ""
        self.search: Search | None = None

    def go(self) -> Search:
        """Search until the budget is spent or nothing is left to try. Whatever ends it, the steps
        that were made are kept. Raises NotTried, SearchUnreadable, AlreadyRunning, StoreErrors."""
        with only_search(self._layout, self._graph.id):
            search = self._begin()
            self._end = self._clock() + self.budget
            while True:
                self.search = search
                left = self._end - self._clock()
                step = next_step(search, left, self.budget)
                self._tell(SearchProgress(search, step, max(left, 0.0), self._anew))
                if step is None:
                    return search
                if isinstance(step, MeasureStep):
                    search = self._measured(search, step)
                else:
                    search = self._tried(search, step)
                write_search(self._layout, search)

    def _begin(self) -> Search:
        """The search that was left, if it is still about the same; else a new one. Raises NotTried
        where a confirmed gain would be lost."""
        old = None if self._restart else read_search(self._layout, self._graph.id)
        of_old = _options_of(old) if old else set()
        given = self._options or self._templates
        within = self._within
        if within is None:
            within = old.within if old else stats.NEAR
        fresh = new_search(
            self._layout,
            self._graph,
            within,
            options=self._options if given else bool(of_old - {TEMPLATES}),
            templates=self._templates if given else TEMPLATES in of_old,
        )
        if old is None:
            return fresh
        if old.context.text != fresh.context.text:
            why = "the graph's text is another one than in the last search"
        elif old.context.cache != fresh.context.cache:
            why = "its tunings were tuned again since the last search"
        elif old.within != fresh.within:
            why = "the last search had another --within"
        elif given and _options_of(old) != _options_of(fresh):
            why = "the last search tried other options"
        elif result_of(old) is None and any(map(_lacks_control, old.tries)):
            why = "the last search did not compare options with a new tuning"
        else:
            return resumed(old)
        self._begin_anew(old, why)
        return fresh

    def _begin_anew(self, old: Search, why: str) -> None:
        """Raises NotTried if the old search holds a confirmed gain."""
        if result_of(old) is not None:
            raise NotTried(
                f"{why}; that search confirmed a gain, and only "
                f"`rocm-tui improve {old.graph} --restart` discards it"
            )
        self._anew = f"{why}: begun anew"

    def _measured(self, search: Search, step: MeasureStep) -> Search:
        """The subject with its candidates, once its choices were measured alone."""
        subject = search.subjects[step.subject]
        subjects = list(search.subjects)
        subjects[step.subject] = self._ready(search, subject, step.seconds)
        return replace(search, subjects=tuple(subjects))

    def _ready(self, search: Search, subject: Subject, seconds: float) -> Subject:
        row = self._rows.get(subject.key)
        if row is None:  # a search goes on without the --from in which it began
            return replace(subject, unfit=NOT_READ)
        choices = to_measure(row.tuning, search.within, subject.taken)
        try:
            result = Measuring(self._run, row.tuning, choices, budget=seconds).once()
        except (JobError, NotMeasured, NotMeasurable, NoSuchChoice):
            return with_single_times(subject, row.tuning, search.within)
        return with_candidates(subject, row.tuning, result, search.within)

    def _tried(self, search: Search, step: TrialStep) -> Search:
        """The search with one more try, or one of each process, which may have failed."""
        begun = self._clock()
        trials, failed = list[Trial | None]([None]), ""
        processes = step.processes if self._on_gpu else 1
        try:
            trying = GraphTrial(
                self._run,
                self._layout,
                search.graph,
                step.arms,
                budget=step.seconds,
                threads=self._graph.session.threads if self._graph.session else None,
                error=step.error,
                fresh=step.fresh,
                gpus=self._gpus if self._on_gpu else (),
                control=step.kind != "confirm",
            )
            trials = list(trying.several(processes))
        except (JobError, NotTried) as error:
            failed = plain(str(error))
        last = next((t.trial for t in reversed(search.tries) if t.trial is not None), None)
        first = trials[0]
        if first is not None and last is not None and not same_machine(last, first):
            self._begin_anew(search, "the last search was made by another torch or device")
            return replace(search, tries=(), started=time.time())
        seconds = max(0.0, self._clock() - begun) / len(trials)
        tries = (
            Try(step.kind, step.turn, step.arms, step.error, step.subject, seconds, trial, failed)
            for trial in trials
        )
        return replace(search, tries=(*search.tries, *tries))

    @property
    def _on_gpu(self) -> bool:
        """On a CPU, processes that compile would disturb the one that times."""
        return self._graph.graph.device not in (None, "cpu")


def _lacks_control(attempt: Try) -> bool:
    """Whether a trial of an earlier version kept an option that may be no faster than `tuned
    again`."""
    arm, trial = best_arm(attempt), attempt.trial
    if attempt.kind != "screen" or arm is None or trial is None:
        return False
    again = any("benchmarked choices again" in text for text in trial.trouble)
    return again and not any(RETUNED in each.swaps for each in trial.arms)


def _options_of(search: Search) -> set[CompileOption]:
    return {option for subject in search.subjects for option in subject.options}


def _options_subject(graph: GraphRow, id: str, options: tuple[CompileOption, ...]) -> Subject:
    """Return the subject of a search whose candidates are options of the whole graph, such as our
    kernels."""
    candidates = tuple(
        Candidate(option.label, option.label, "kernels" if option == TEMPLATES else "option")
        for option in options
    )
    weight = graph.times.ms or 0.0
    return Subject(
        "", "", "", id, weight=weight, candidates=candidates, ready=True, options=options
    )


def new_search(
    layout: Layout,
    graph: GraphRow,
    within: float,
    *,
    options: bool = False,
    templates: bool = False,
) -> Search:
    """Return a search in which nothing was tried yet: our kernels, if wanted, the tunings, the
    heaviest first, and Inductor's options, if wanted. Options come last because each of them makes
    Inductor benchmark all choices again, where a choice needs no benchmark. Raises NotTried and
    CacheUnreadable."""
    text = text_of(layout, graph.id)
    cached = _cached(layout, graph)
    subjects = [
        _subject(graph, held, cached.get(key, {}), within) for key, held in graph.tunings.items()
    ]
    subjects.sort(key=lambda subject: -subject.weight)
    if templates:
        subjects.insert(0, _options_subject(graph, "kernels", (TEMPLATES,)))
    if options and (worth := options_to_try(text, graph.graph.device)):
        subjects.append(_options_subject(graph, "options", worth))
    if all(subject.unfit for subject in subjects):
        why = subjects[0].unfit if subjects else "it calls no choice of a known tuning"
        raise NotTried(f"nothing can be tried in graph {graph.id}: {why}")
    lines = sorted(f"{key} {sorted(times.items())}" for key, times in cached.items())
    digest = hashlib.sha256("\n".join(lines).encode("utf-8", "surrogatepass")).hexdigest()
    return Search(
        VERSION, graph.id, Context(text.digest, digest), tuple(subjects), within, time.time()
    )


def _cached(layout: Layout, graph: GraphRow) -> dict[TuningKey, dict[str, float]]:
    """Return the times in caches of the graph's tunings without pins, by choice.

    Only the caches of the system that the graph was compiled on count, if that is known. Raises
    CacheUnreadable: without the times of one file, an earlier search would seem out of date, and
    would be overwritten.
    """
    system = graph.session.system_hash if graph.session else None
    paths = [path for path in cache_paths(layout) if system in (None, path.name)]
    cached: dict[TuningKey, dict[str, float]] = {}
    for path in paths:
        entries = read_cache(path, recorded_pins(path)).entries.items()
        cached |= {key: dict(times) for key, times in entries if key in graph.tunings}
    return cached


def _subject(
    graph: GraphRow, held: GraphTuning, cached: Mapping[str, float], within: float
) -> Subject:
    use, row = held.use, held.row
    subject = Subject(use.op, use.inputs, use.precision, use.key.id, use.count)
    if row is None:
        return replace(subject, unfit=NOT_READ)
    tuning = row.tuning
    current = _current(tuning, cached)
    if current is None or current.hash is None:
        return replace(subject, unfit="none of its choices has a time")
    weight = use.count * (stats.time_ms(tuning, current) or 0.0)
    if held.share is not None and graph.times.ms:
        weight = held.share * graph.times.ms
    taken = Candidate(current.hash, current.label, provider(current) or "")
    subject = replace(subject, weight=weight, current=taken)
    if len(to_measure(tuning, within)) < 2:
        return replace(subject, unfit="none of its other choices has a time")
    if is_known(tuning, taken.hash, within, cold=device_kind(tuning) not in (None, "cpu")):
        return with_candidates(subject, tuning, tuning.measured, within)
    return subject


def _current(tuning: Tuning, cached: Mapping[str, float]) -> Choice | None:
    """Return the choice that Inductor takes without pins: the fastest one of its cache."""
    timed = [(ms, hash) for hash, ms in cached.items() if isfinite(ms)]
    fastest = min(timed)[1] if timed else None
    choices = [choice for choice in tuning.choices if choice.hash == fastest]
    return choices[0] if fastest and choices else stats.winner(tuning)


# What came of it.


def result_of(search: Search) -> Gain | None:
    """The gain that is sure; None where there is none."""
    return search_status(search).sure


def proposals(search: Search) -> tuple[PinProposal, ...]:
    """The pins that make up the gain that is sure, the heaviest tuning first."""
    sure = search_status(search).sure
    wanted = hashes_of(sure.arm) if sure is not None else {}
    proposed = []
    for subject in search.subjects:
        candidate = subject.candidate(wanted.get(subject.key, ""))
        if candidate is not None:
            proposed.append(PinProposal(subject, candidate, last_said(search, subject, candidate)))
    return tuple(proposed)


def plan_proposals(
    wanted: Sequence[PinProposal], rows: Rows, sessions: Mapping[str, Session], layout: Layout
) -> list[tuple[Pinnable, PinPlan]]:
    """Plan each pin, changing nothing. Raises NotPinnable, NoSuchChoice and StoreErrors."""
    planned = []
    for proposal in wanted:
        row = rows.get(proposal.subject.key)
        if row is None:
            raise NoSuchChoice(f"tuning {proposal.subject.id} is in no cache that was read")
        choice = next((c for c in row.tuning.choices if c.hash == proposal.candidate.hash), None)
        if choice is None:
            raise NoSuchChoice(f"tuning {row.id} has {proposal.candidate.name} no more")
        pin = pinnable(row, choice, sessions)
        planned.append((pin, plan_pin(pin, layout)))
    return planned


def pin_proposals(
    planned: Sequence[tuple[Pinnable, PinPlan]], layout: Layout, note: str
) -> list[Pinned]:
    """Pin them, with this note, to be undone as one. Raises StoreErrors: before the first pin where
    one would change something else than was planned; else those before the one that cannot be
    pinned are."""
    for wanted, plan in planned:
        check_plan(wanted, plan, layout)
    group = new_group("improve")
    return [pin_choice(pin, layout, note=note, plan=plan, group=group) for pin, plan in planned]


MAX_BYTES = 64 << 20


class SearchUnreadable(RocmTuiError):
    """The file of a search does not hold one; one line says why."""


class AlreadyRunning(TryAgain):
    """Another process searches for the same graph."""


_SEARCH = ".improve.json"


def search_path(layout: Layout, graph: str) -> Path:
    """Raises SearchUnreadable for what is no graph's id."""
    if not (graph.isascii() and graph.isalnum()):
        raise SearchUnreadable("that is no id of a graph")
    return layout.graphs / f"{graph}{_SEARCH}"


@contextlib.contextmanager
def only_search(layout: Layout, graph: str) -> Iterator[None]:
    """Keep other processes from improving this graph. Raises AlreadyRunning and StoreErrors."""
    path = search_path(layout, graph)
    safe.make_folder(layout.root, path.parent)
    try:
        with safe.locked(layout.root, path, seconds=0.0):
            yield
    except Busy as error:
        raise AlreadyRunning(
            f"graph {graph} is being improved by another process; let it end, or end it"
        ) from error


def read_search(layout: Layout, graph: str) -> Search | None:
    """The search as it was left; None if there was none. Raises SearchUnreadable."""
    path = search_path(layout, graph)
    advice = "move it away, or begin anew with --restart"
    try:
        if not safe.exists(path):
            return None
        search = read(Search, loads(safe.read_bytes(path, MAX_BYTES)))
    except (WireError, CacheUnreadable, RecursionError) as error:
        raise SearchUnreadable(f"{path} does not hold a search ({error}); {advice}") from error
    if search.version != VERSION or search.graph != graph or not _sound(search):
        raise SearchUnreadable(f"{path} does not hold a search of graph {graph}; {advice}")
    return search


def confirmed_options(layout: Layout) -> dict[CompileOption, list[str]]:
    """Return the options that searches confirmed, and for which graphs. An unreadable search
    confirms nothing."""
    confirmed: dict[CompileOption, list[str]] = {}
    for path in sorted(layout.graphs.glob(f"*{_SEARCH}")):
        with contextlib.suppress(SearchUnreadable):
            search = read_search(layout, path.name.removesuffix(_SEARCH))
            if search is not None and (gain := result_of(search)) is not None:
                for option in options_of(gain.arm):
                    confirmed.setdefault(option, []).append(search.graph)
    return confirmed


def _sound(search: Search) -> bool:
    """Whether its parts fit each other."""
    return all(_fits(attempt, len(search.subjects)) for attempt in search.tries)


def _fits(attempt: Try, subjects: int) -> bool:
    if attempt.subject >= max(1, subjects) or not attempt.arms or not 0 < attempt.error <= 1:
        return False
    if attempt.kind == "confirm" and len(attempt.arms) != 2:
        return False
    times = [arm.ms for arm in attempt.trial.arms] if attempt.trial else []
    times += [arm.ratio for arm in attempt.trial.arms] if attempt.trial else []
    return all(value is None or (isfinite(value) and value > 0) for value in times)


def write_search(layout: Layout, search: Search) -> None:
    """Keep a search; the caller holds `only_search`. Raises StoreErrors."""
    path = search_path(layout, search.graph)
    safe.check_file(layout.root, path)
    safe.write_atomic(path, (dumps(to_json(search)) + "\n").encode())
