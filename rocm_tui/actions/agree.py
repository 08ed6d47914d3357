"""Find which choices ranks and hosts took, and pin one choice for all of them.

A choice that has another hash on each device is identified through the Triton modules in the cache
dirs of the tunings: the cache dir of one rank alone may know one device only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from backend.cache.autotune import preferred
from backend.cache.variants import ChoiceVariants
from backend.counted import counted, noun
from backend.disk import safe
from backend.disk.layout import Layout
from backend.errors import CacheUnreadable, StoreError
from backend.model.choice import Choice, Measurement
from backend.model.inductor_kernel import TRITON, is_inductors
from backend.model.problem import TuningKey
from backend.model.session import CACHE_FILES, Fault, Session, systems_of
from backend.model.tuning import Tuning
from backend.pins.file import PinGroup, new_group
from backend.pins.plan import PinPlan
from backend.pins.undo import next_undo, undo
from backend.sharing.share import Machine, PinExport, SharedPin, read_share
from rocm_tui.actions.commands import ShellCommands
from rocm_tui.actions.measure import Measuring
from rocm_tui.actions.pin import Pinnable, Pinned, check_plan, pin_choice, pinnable, plan_pin
from rocm_tui.actions.sources import (
    cache_dir_of,
    entries_left_out,
    is_export,
    load_model,
    require_read,
    tunings_of_export,
)
from rocm_tui.compare.choices import identity_of, is_timed, used
from rocm_tui.compare.comparison import offers
from rocm_tui.errors import NoSuchSource, NotPinnable, RocmTuiError
from rocm_tui.ingest.records import GraphSeen
from rocm_tui.jobs.run import RunJob
from rocm_tui.report.agreement import (
    Agreement,
    Chooser,
    DifferingProblem,
    Proposal,
    Selection,
    System,
    agreement,
    chooser_order,
    own_choice,
    with_identities,
)
from rocm_tui.report.ranks import LogProcesses, choosers_of, jobs_of, system_of
from rocm_tui.session.in_use import device_name
from rocm_tui.session.model import Model, Row
from rocm_tui.session.sessions import (
    NoSuchSession,
    find_sessions,
    is_worker,
    required_sessions,
    short_names,
)
from rocm_tui.session.views import bucket_of, is_cache


class ModuleIdentities:
    """The identities of choices, from the modules in the cache dirs that their tunings are of.

    A module's name is a hash of its content, so it does not matter whose cache dir has it.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._roots: dict[Path, ChoiceVariants] = {}
        self._tunings: dict[int, tuple[Tuning, Tuning]] = {}

    def identified(self, tuning: Tuning) -> Tuning:
        """The tuning with an identity for each choice that has one."""
        cached = self._tunings.get(id(tuning))
        if cached is None:
            roots = dict.fromkeys([*_cache_dirs(tuning.sources), self._home])
            variants = [self._roots.setdefault(root, ChoiceVariants(root)) for root in roots]
            choices = tuple(_with_identity(choice, variants) for choice in tuning.choices)
            cached = self._tunings[id(tuning)] = tuning, replace(tuning, choices=choices)
        return cached[1]


def _with_identity(choice: Choice, variants: Iterable[ChoiceVariants]) -> Choice:
    if choice.hash is None or choice.identity is not None:
        return choice
    knows = next((each for each in variants if each.device(choice.hash) is not None), None)
    return choice if knows is None else replace(choice, identity=knows.identity(choice.hash))


def _cache_dirs(sources: Iterable[str]) -> Iterator[Path]:
    """The cache dirs that cache files and session logs are in."""
    for path in map(Path, sources):
        for root in (path.parent.parent, path.parent.parent.parent):
            if path.parent in (Layout(root).autotune, Layout(root).sessions):
                yield root


@dataclass(frozen=True, slots=True)
class Selections:
    """The choosers that were found, their selections, and the faults of the sources.

    `home` is the model of the cache dir, where pins are made. `running` are the choosers that may
    still select more.
    """

    choosers: tuple[Chooser, ...]
    all: tuple[Selection, ...]
    problems: tuple[Fault, ...]
    home: Model | None = None
    running: tuple[Chooser, ...] = ()


def find_selections(layout: Layout, texts: Sequence[str], run: str = "") -> Selections:
    """Find the selections in each of `texts`, a path or a session.

    If there is none, those of the latest run of the cache dir, or of the run that `run` names.
    Raises NoSuchSession and NoSuchSource for what is not there, ShareInvalid for a damaged export.
    """
    parts: list[Selections] = []
    names = _names(texts)
    home: Model | None = None
    for text in texts or [str(layout.root)]:
        path = Path(text)
        if text != "-" and not path.exists() and texts:
            home = home or _model(layout, str(layout.root))
            ids = required_sessions(home.sessions.values(), text, str(layout.root))
            parts.append(_of_sessions(home, ids, names[text]))
        elif text != "-" and path.is_file() and is_export(path):
            parts.append(_of_export(read_share(path), text, names.get(text, text)))
        else:
            model = _model(layout, text)
            home = model if _same(path, layout.root) else home
            parts.append(_of_model(model, text, names.get(text, ""), run))
    every = tuple(dict.fromkeys(who for part in parts for who in part.choosers))
    twice = Counter(_called(who) for who in every)
    as_shown = {who: replace(who, named=twice[_called(who)] > 1) for who in every}
    return Selections(
        choosers=tuple(as_shown.values()),
        all=tuple(
            replace(selection, by=as_shown[selection.by])
            for selection in _identified(parts, layout)
        ),
        problems=tuple(dict.fromkeys(fault for part in parts for fault in part.problems)),
        home=home,
        running=tuple(as_shown[who] for part in parts for who in part.running),
    )


def _identified(parts: Iterable[Selections], layout: Layout) -> list[Selection]:
    """Return all selections; those of a problem with different hashes get identities."""
    every = [selection for part in parts for selection in part.all]
    names: dict[TuningKey | None, set[str | None]] = {}
    for selection in every:
        names.setdefault(selection.tuning.key, set()).add(identity_of(selection.choice))
    identities = ModuleIdentities(layout.root)
    return [
        with_identities(selection, identities.identified(selection.tuning))
        if len(names[selection.tuning.key]) > 1
        else selection
        for selection in every
    ]


def agreement_in(layout: Layout, logs: Sequence[Path], run: str) -> Agreement:
    """Compare the ranks of the job of this run, as far as these logs show."""
    model = load_model(layout, [str(log) for log in logs])
    ours = [id_ for id_ in model.sessions if id_.startswith(run)]
    selected = _of_sessions(model, _jobs_with(ours, model.sessions), "")
    return agreement(selected.choosers, _identified([selected], layout))


def _names(texts: Sequence[str]) -> dict[str, str]:
    """Short ones; a cache file, whose name is a hash, is called as its cache dir is."""
    in_cache = {t: str(Path(t).parent.parent) for t in texts if Path(t).parent.name == CACHE_FILES}
    folders = [in_cache.get(text, text) for text in texts]
    if len(set(folders)) < len(set(texts)):
        folders = list(texts)
    short = short_names(folder.rstrip("/") or folder for folder in folders)
    return {t: short[f.rstrip("/") or f] for t, f in zip(texts, folders, strict=True)}


def _called(who: Chooser) -> object:
    """Ranks are called by their number."""
    return who.name if who.rank is None else who.rank


def _same(left: Path, right: Path) -> bool:
    return left.exists() and right.exists() and left.samefile(right)


def _model(layout: Layout, text: str) -> Model:
    model = load_model(cache_dir_of(Path(text), layout), [text])
    require_read(model, [text])
    return model


def _of_model(model: Model, text: str, name: str, run: str) -> Selections:
    """Return the selections of a run's ranks if there are sessions, else those of a cache or of
    logs."""
    sessions = {id_: s for id_, s in model.sessions.items() if not is_worker(s)}
    if run:
        ids = find_sessions(sessions.values(), run)
        if not ids:
            raise NoSuchSession(f"no run of {text} begins {run!r}; `rocm-tui sessions` lists them")
        return _of_sessions(model, _jobs_with(ids, sessions), name)
    spoke = {id_ for row in model.rows() for id_ in row.asked}
    spoke |= {seen.session or "" for seen in _graphs(model)}
    ranks = {id_ for id_, s in sessions.items() if id_ in spoke or s.rank is not None}
    if spoke & ranks:
        latest = max(ranks, key=lambda id_: sessions[id_].started)
        ids = _jobs_with([latest], sessions) if Path(text).is_dir() else list(sessions)
        return _of_sessions(model, ids, name)
    selections = list(_of_files(model, text, name))
    problems = (*model.problems, *entries_left_out(model, text))
    return Selections(_choosers(selections), tuple(selections), problems, model)


def _jobs_with(ids: Collection[str], sessions: Mapping[str, Session]) -> list[str]:
    """Return all sessions of the jobs that these sessions belong to."""
    jobs = jobs_of(sessions, sessions)
    wanted = {jobs[id_] for id_ in ids if id_ in jobs}
    return [id_ for id_, job in jobs.items() if job in wanted]


def _of_sessions(model: Model, ids: Iterable[str], name: str) -> Selections:
    """Return what each process selected last according to its own log.

    A rank that selected nothing is a chooser, too.
    """
    sessions = {id_: model.sessions[id_] for id_ in ids if id_ in model.sessions}
    choosers = choosers_of(sessions.values(), name)
    rows = _rows_by_asker(model, sessions)
    selections = []
    for tuning in _members(model):
        id_ = tuning.session or ""
        choice = next((c for c in tuning.choices if c.hash and c.hash == tuning.selected), None)
        if id_ in choosers and choice is not None and tuning.state == "done":
            row = rows.get((id_, tuning.key))
            view = _view(tuning, row)
            system = system_of(sessions[id_], tuning, model.sessions)
            selections.append(Selection(choosers[id_], view, choice, system))
    selections += _of_warm_graphs(model, sessions, choosers, selections)
    spoke = {each.by for each in selections}
    kept = [who for who in choosers.values() if who.rank is not None or who in spoke]
    kept.sort(key=chooser_order)
    live = {process.session.id for process in model.processes.live}
    running = tuple(who for who in kept if who.session in live)
    return Selections(tuple(kept), tuple(selections), tuple(model.problems), model, running)


def _of_warm_graphs(
    model: Model,
    sessions: Mapping[str, Session],
    choosers: Mapping[str, Chooser],
    selected: Iterable[Selection],
) -> Iterator[Selection]:
    """Yield the choices of compiled graphs that a process found in a cache, where nothing was
    tuned."""
    recorded = {(each.by.session, each.tuning.key) for each in selected}
    rows = {row.tuning.key: row for row in reversed(model.rows())}
    for seen in _graphs(model):
        id_ = seen.session or ""
        for use in seen.graph.tunings if id_ in choosers else ():
            if use.hash is None or (id_, use.key) in recorded:
                continue
            row = rows.get(use.key) or _row_of(use.key, seen.source)
            choice = next((c for c in row.tuning.choices if c.hash == use.hash), None)
            row = replace(row, tuning=replace(row.tuning, when=seen.when))
            system = system_of(sessions[id_], row.tuning, model.sessions)
            yield Selection(choosers[id_], row, choice or Choice(hash=use.hash), system, warm=True)


def _row_of(key: TuningKey, source: str) -> Row:
    """Return a row of a tuning of which only the key is known."""
    pin = SharedPin(key.op, key.inputs, key.precision, "", "", Machine())
    (seen,) = tunings_of_export(PinExport((pin,)), source)
    return Row(seen.uid, key.id, 1, replace(seen.tuning, selected=None))


def _graphs(model: Model) -> list[GraphSeen]:
    """The compiled graphs that processes called, the latest first."""
    graphs = [seen for program in model.graphs.programs() for seen in program.graphs]
    return sorted(graphs, key=lambda seen: -(seen.when or 0.0))


def _rows_by_asker(model: Model, ids: Collection[str]) -> dict[tuple[str, TuningKey | None], Row]:
    """Return the latest row of each session and key, preferring rows that it timed itself."""
    latest: dict[tuple[str, TuningKey | None], Row] = {}
    for row in reversed(model.rows()):
        for id_ in row.asked:
            place = id_, row.tuning.key
            if id_ in ids and (place not in latest or row.tuning.session == id_):
                latest[place] = row
    return latest


def _members(model: Model) -> Iterator[Tuning]:
    """Yield the tunings of the single sources, before they are joined."""
    for rows in {bucket_of(row.tuning): row for row in model.rows()}.values():
        for member in model.members(rows.tuning):
            yield member.tuning


def _view(own: Tuning, row: Row | None) -> Row:
    """Return the session's own tuning, completed from all sources.

    These add times from a cache, measurements, and its share of the program.
    """
    if row is None:
        return Row("", own.id, 1, own)
    choices = own.choices
    if not is_timed(own):
        times = {choice.hash: choice for choice in row.tuning.choices}
        choices = tuple(replace(times.get(c.hash, c), offered=True) for c in choices)
    tuning = replace(own, choices=choices, measured=row.tuning.measured)
    return replace(row, tuning=tuning)


def _of_files(model: Model, text: str, name: str) -> Iterator[Selection]:
    """Yield the selections in sources without processes.

    If there is a cache among them, it alone counts: logs beside it are of the programs that wrote
    it.
    """
    tunings = [row for row in model.rows() if row.tuning.entry is None]
    caches = [row for row in tunings if _kept(row.tuning)]
    if caches:
        order = _preferred(source for row in caches for source in row.tuning.sources)
        several = len({row.tuning.device_index for row in caches} - {None}) > 1
        for row in caches:
            choice = _from_cache(row.tuning, order)
            if choice is not None:
                hashes = systems_of(row.tuning, model.sessions)
                system = System(min(hashes) if len(hashes) == 1 else "")
                device = f" {device_name(row)}".rstrip() if several else ""
                yield Selection(Chooser(f"{name or text}{device}", name), row, choice, system)
        return
    logs = LogProcesses(tunings)
    processes: dict[str, set[str]] = {}
    for row in tunings:
        for source in row.tuning.sources[:1]:
            processes.setdefault(source, set()).add(logs.name(row.tuning))
    for row in tunings:
        tuning = row.tuning
        use = used(tuning)
        if use is not None and tuning.state == "done":
            source = next(iter(tuning.sources), text)
            named = Path(source).name
            rank = logs.rank(tuning)
            if rank is not None or len(processes.get(source, ())) > 1:
                named = logs.name(tuning) or named
            yield Selection(Chooser(named, name, rank), row, use[0])


def _kept(tuning: Tuning) -> bool:
    """Whether a file of Inductor's or Triton's cache has it."""
    return is_cache(tuning) or (tuning.session is None and tuning.selected is not None)


def _preferred(sources: Iterable[str]) -> dict[tuple[str, TuningKey], list[str]]:
    """The choices in the order of Inductor's preference, by cache file and key. The numbers are
    read as they are, because a pin that was made where a file comes from is in no other place.
    Raises NoSuchSource for a file that cannot be read now."""
    order: dict[tuple[str, TuningKey], list[str]] = {}
    for source in dict.fromkeys(sources):
        try:
            order.update({(source, key): names for key, names in preferred(Path(source)).items()})
        except CacheUnreadable as error:
            if not _is_read_error(error):
                continue  # no such file, or no cache: its own reader has reported that
            # Without this order, a pinned tuning would seem to take its fastest choice.
            raise NoSuchSource(str(error)) from error
    return order


def _is_read_error(error: CacheUnreadable) -> bool:
    """Return whether a regular file that is there could not be read."""
    cause = error.__cause__
    read = isinstance(cause, OSError) and not isinstance(cause, safe.NotRegular)
    return read and not error.is_absent


def _from_cache(
    tuning: Tuning, order: Mapping[tuple[str, TuningKey], Sequence[str]]
) -> Choice | None:
    """Return the choice that a program on the device of this tuning takes."""
    by_hash = {choice.hash: choice for choice in tuning.choices if choice.hash}
    names = [tuning.selected] if tuning.selected else _order_of(tuning, order)
    named = next((by_hash[name] for name in names if name in by_hash), None)
    use = used(tuning)
    return named or (use[0] if use else None)


def _order_of(
    tuning: Tuning, order: Mapping[tuple[str, TuningKey], Sequence[str]]
) -> Sequence[str]:
    """Inductor's order of its choices in the first of its sources that has one."""
    if tuning.key is None:
        return ()
    orders = (order.get((source, tuning.key)) for source in tuning.sources)
    return next((names for names in orders if names), ())


def _of_export(share: PinExport, text: str, name: str) -> Selections:
    """Return the pins of another host as its selections."""
    selections = []
    for seen, machine in zip(tunings_of_export(share, text), _machines(share), strict=True):
        tuning = seen.tuning
        choice = next((c for c in tuning.choices if c.hash == tuning.selected), None)
        host = machine.host or ""
        system = System(machine.system_hash or "", machine.arch or "", machine.compute_units or 0)
        row = Row(seen.uid, tuning.id, 1, tuning)
        bare = Choice(hash=tuning.selected)
        selections.append(Selection(Chooser(name, name, host=host), row, choice or bare, system))
    return Selections(_choosers(selections), tuple(selections), ())


def _machines(share: PinExport) -> Iterator[Machine]:
    """Yield the machine of each tuning of the pins."""
    for pin in share.pins:
        for _ in pin.timings or (pin.precision,):
            yield pin.machine


def _choosers(selections: Iterable[Selection]) -> tuple[Chooser, ...]:
    return tuple(sorted({each.by for each in selections}, key=chooser_order))


@dataclass(frozen=True, slots=True)
class PinStep:
    """The changes that pinning a proposal makes: `wanted` with its `plan`, or `why_not`."""

    proposal: Proposal
    wanted: Pinnable | None = None
    plan: PinPlan | None = None
    why_not: str = ""

    @property
    def held(self) -> bool:
        """Whether it is pinned here already."""
        old = self.plan.replaces if self.plan is not None else None
        return old is not None and self.wanted is not None and self.wanted.hash in old.hashes


def plan_pins(proposals: Iterable[Proposal], model: Model, layout: Layout) -> list[PinStep]:
    """Plan a pin for each proposal, changing nothing; `model` is that of the cache dir."""
    rows: dict[TuningKey | None, list[Row]] = {}
    for row in model.rows():
        rows.setdefault(row.tuning.key, []).append(row)
    return [_step(each, rows, model.sessions, layout) for each in proposals]


def _step(
    proposal: Proposal,
    rows: Mapping[TuningKey | None, list[Row]],
    sessions: Mapping[str, Session],
    layout: Layout,
) -> PinStep:
    choice = proposal.choice
    if choice is None:
        return PinStep(proposal, why_not=proposal.why_not)
    key = proposal.differing.row.tuning.key
    here = rows.get(key, []) if key is not None else []
    if not here:
        return PinStep(
            proposal, why_not=f"it was not tuned in {layout.root}, where pins would go to"
        )
    row = _offering(here, choice, layout) or here[0]
    try:
        wanted = pinnable(row, own_choice(row.tuning, choice), sessions)
        plan = plan_pin(wanted, layout)
    except (RocmTuiError, StoreError) as error:
        return PinStep(proposal, why_not=str(error))
    systems = {
        selection.system.hash
        for selection in proposal.differing.selections
        if selection.system.hash
    }
    if _has_system(key) and systems and plan.system_hash not in systems:
        why = "it was tuned on another system than this cache dir's; pin it there"
        return PinStep(proposal, why_not=why)
    return PinStep(proposal, wanted, plan)


def _has_system(key: TuningKey | None) -> bool:
    """Whether the file of a pin is named for a system: the configs of Inductor's own kernels and of
    Triton's autotuner are named for a kernel."""
    return key is not None and key.op != TRITON and not is_inductors(key.op)


def _offering(rows: Sequence[Row], choice: Choice, layout: Layout) -> Row | None:
    """The first row that was offered this kernel, under whichever hash."""
    identities = ModuleIdentities(layout.root)
    named = (replace(row, tuning=identities.identified(row.tuning)) for row in rows)
    return next((row for row in chain(rows, named) if offers(row.tuning, choice)), None)


def pin_all(steps: Sequence[PinStep], notes: Sequence[str], layout: Layout) -> list[Pinned]:
    """Pin them as one step of the history, each with its note.

    Raises NotPinnable if one cannot be pinned; the others are then restored, or the error says that
    they are not.
    """
    pinned: list[Pinned] = []
    group = new_group("agree --pin")
    for step in steps:
        if step.wanted is not None and step.plan is not None and not step.held:
            try:
                check_plan(step.wanted, step.plan, layout)
            except StoreError as error:
                raise NotPinnable(f"{step.wanted.row.id}: {error}") from error
    for step, note in zip(steps, notes, strict=True):
        if step.wanted is None or step.held:
            continue
        try:
            pinned.append(pin_choice(step.wanted, layout, note=note, plan=step.plan, group=group))
        except StoreError as error:
            left = _take_back(group, len(pinned), layout)
            after = f"; {left}" if left else "; nothing was pinned"
            raise NotPinnable(f"{step.wanted.row.id}: {error}{after}") from error
    return pinned


def _take_back(group: PinGroup, count: int, layout: Layout) -> str:
    """Undo what was pinned of `group`; what is left where that cannot be done."""
    if not count:
        return ""
    stay = counted(count, "pin that was made stays", "pins that were made stay")
    try:
        last = next_undo(layout)
        if last is None or last.group != group:
            listed = ShellCommands(layout).line("pin")
            return f"{stay}, since others changed pins meanwhile; `{listed}` lists them"
        undo(layout, last)
    except StoreError as error:
        return (
            f"{stay} ({error}); `{ShellCommands(layout).undo()}` undoes {noun(count, 'it', 'them')}"
        )
    return ""


@dataclass(frozen=True, slots=True)
class Measured:
    """The measurement of the choices that were selected for a problem, or the reason why there is
    none."""

    measurement: Measurement | None
    reason: str = ""


def measure_chosen(
    differing: Iterable[DifferingProblem],
    run: RunJob,
    *,
    budget: float | None = None,
) -> Iterator[Measured]:
    """Measure what was chosen, one problem after another. What cannot be has a reason."""
    for each in differing:
        tuning = _measured_as(each)
        try:
            chosen = [own_choice(tuning, group.choice) for group in each.groups]
            measuring = Measuring(run, tuning, chosen, budget=budget, caches="cold")
            yield Measured(measuring.once())
        except RocmTuiError as error:
            yield Measured(None, str(error))


def _measured_as(differing: DifferingProblem) -> Tuning:
    """The tuning of the rank whose device all of the chosen ones are measured on: one that was
    offered all of them, if there is any."""
    chosen = [group.choice for group in differing.groups]
    tunings = [
        selection.tuning for selection in differing.selections if selection.tuning.key is not None
    ]
    has_all = (t for t in tunings if all(offers(t, choice) for choice in chosen))
    return next(has_all, tunings[0] if tunings else differing.row.tuning)


def with_measured(
    selections: Iterable[Selection], measurements: Iterable[Measurement]
) -> list[Selection]:
    """Add the new measurements to the selections with the same key and system."""
    by_key = {measurement.key: measurement for measurement in measurements}
    return [_with_measurement(each, by_key.get(_key_or_empty(each.tuning))) for each in selections]


def _key_or_empty(tuning: Tuning) -> TuningKey:
    return tuning.key or TuningKey("", "", "")


def _with_measurement(selection: Selection, measurement: Measurement | None) -> Selection:
    if measurement is None:
        return selection
    systems = {selection.system.hash, measurement.system_hash} - {"", None}
    if len(systems) > 1:
        return selection
    tuning = replace(selection.tuning, measured=measurement)
    return replace(selection, row=replace(selection.row, tuning=tuning))
