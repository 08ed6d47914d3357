"""Let all take one choice: measure those that were chosen, pin what is proposed, all or nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from backend.counted import counted, noun
from backend.disk.layout import Layout
from backend.errors import StoreError
from backend.model.choice import Caches, Choice, Measurement
from backend.model.inductor_kernel import is_inductors
from backend.model.kernel import TRITON
from backend.model.problem import TuningKey
from backend.model.session import Session
from backend.model.tuning import Tuning
from backend.pins.file import Group, new_group
from backend.pins.plan import PinPlan
from rocm_tui.actions.identities import ModuleIdentities
from rocm_tui.actions.measure import Measuring
from rocm_tui.actions.pin import (
    Pinnable,
    Pinned,
    check_plan,
    next_step_back,
    pin_choice,
    pinnable,
    plan_pin,
    step_back,
)
from rocm_tui.compare.points import offers
from rocm_tui.errors import NotPinnable, RocmTuiError
from rocm_tui.jobs.run import RunJob
from rocm_tui.report.agreement import Differing, Taken, own_choice
from rocm_tui.report.proposals import Proposal
from rocm_tui.session.model import Model, Row


@dataclass(frozen=True, slots=True)
class Step:
    """What pinning a proposal changes here: `wanted` with its `plan`; or `why_not`."""

    proposal: Proposal
    wanted: Pinnable | None = None
    plan: PinPlan | None = None
    why_not: str = ""

    @property
    def held(self) -> bool:
        """Whether it is pinned here already."""
        old = self.plan.replaces if self.plan is not None else None
        return old is not None and self.wanted is not None and self.wanted.hash in old.hashes


def plan_pins(proposals: Iterable[Proposal], model: Model, layout: Layout) -> list[Step]:
    """A step for each; `model` is what the cache dir tells. Changes nothing."""
    rows: dict[TuningKey | None, list[Row]] = {}
    for row in model.rows():
        rows.setdefault(row.tuning.key, []).append(row)
    return [_step(each, rows, model.sessions, layout) for each in proposals]


def _step(
    proposal: Proposal,
    rows: Mapping[TuningKey | None, list[Row]],
    sessions: Mapping[str, Session],
    layout: Layout,
) -> Step:
    choice = proposal.choice
    if choice is None:
        return Step(proposal, why_not=proposal.why_not)
    key = proposal.differing.row.tuning.key
    here = rows.get(key, []) if key is not None else []
    if not here:
        return Step(proposal, why_not=f"it was not tuned in {layout.root}, where pins would go to")
    row = _offering(here, choice, layout) or here[0]
    try:
        wanted = pinnable(row, own_choice(row.tuning, choice), sessions)
        plan = plan_pin(wanted, layout)
    except (RocmTuiError, StoreError) as error:
        return Step(proposal, why_not=str(error))
    systems = {taken.system.hash for taken in proposal.differing.taken if taken.system.hash}
    if _has_system(key) and systems and plan.system_hash not in systems:
        why = "it was tuned on another system than this cache dir's; pin it there"
        return Step(proposal, why_not=why)
    return Step(proposal, wanted, plan)


def _has_system(key: TuningKey | None) -> bool:
    """Whether the file of a pin is named for a system: the configs of Inductor's own kernels and of
    Triton's autotuner are named for a kernel."""
    return key is not None and key.op != TRITON and not is_inductors(key.op)


def _offering(rows: Sequence[Row], choice: Choice, layout: Layout) -> Row | None:
    """The first row that was offered this kernel, under whichever hash."""
    identities = ModuleIdentities(layout.root)
    named = (replace(row, tuning=identities.identified(row.tuning)) for row in rows)
    return next((row for row in chain(rows, named) if offers(row.tuning, choice)), None)


def pin_all(steps: Sequence[Step], notes: Sequence[str], layout: Layout) -> list[Pinned]:
    """Pin them, each with its note. Raises NotPinnable where one cannot be pinned: then those that
    were are as they were before, or the error says that they are not. They are undone as one."""
    made: list[Pinned] = []
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
            made.append(pin_choice(step.wanted, layout, note=note, plan=step.plan, group=group))
        except StoreError as error:
            left = _take_back(group, len(made), layout)
            after = f"; {left}" if left else "; nothing was pinned"
            raise NotPinnable(f"{step.wanted.row.id}: {error}{after}") from error
    return made


def _take_back(group: Group, count: int, layout: Layout) -> str:
    """Undo what was pinned of `group`; what is left where that cannot be done."""
    try:
        last = next_step_back(layout) if count else None
        if last is not None and last.group == group:
            step_back(layout, last)
    except StoreError as error:
        stay = counted(count, "pin that was made stays", "pins that were made stay")
        return f"{stay} ({error}); `rocm-tui undo` takes {noun(count, 'it', 'them')} back"
    return ""


@dataclass(frozen=True, slots=True)
class Measured:
    """What came of measuring the choices that were taken for a problem."""

    differing: Differing
    measurement: Measurement | None
    reason: str = ""


def measure_chosen(
    differing: Iterable[Differing],
    run: RunJob,
    *,
    budget: float | None = None,
    caches: Caches = "cold",
) -> Iterator[Measured]:
    """Measure what was chosen, one problem after another. What cannot be has a reason."""
    for each in differing:
        tuning = _measured_as(each)
        try:
            chosen = [own_choice(tuning, group.choice) for group in each.groups]
            measuring = Measuring(run, tuning, chosen, budget=budget, caches=caches)
            yield Measured(each, measuring.once())
        except RocmTuiError as error:
            yield Measured(each, None, str(error))


def _measured_as(differing: Differing) -> Tuning:
    """The tuning of the rank whose device all of the chosen ones are measured on: one that was
    offered all of them, if there is any."""
    chosen = [group.choice for group in differing.groups]
    known = [taken.tuning for taken in differing.taken if taken.tuning.key is not None]
    has_all = (t for t in known if all(offers(t, choice) for choice in chosen))
    return next(has_all, known[0] if known else differing.row.tuning)


def with_measured(taken: Iterable[Taken], measurements: Iterable[Measurement]) -> list[Taken]:
    """With what was measured just now, where it is of the same key and system."""
    by_key = {measurement.key: measurement for measurement in measurements}
    return [_with(each, by_key.get(_key(each.tuning))) for each in taken]


def _key(tuning: Tuning) -> TuningKey:
    return tuning.key or TuningKey("", "", "")


def _with(taken: Taken, measurement: Measurement | None) -> Taken:
    if measurement is None:
        return taken
    systems = {taken.system.hash, measurement.system_hash} - {"", None}
    if len(systems) > 1:
        return taken
    tuning = replace(taken.tuning, measured=measurement)
    return replace(taken, row=replace(taken.row, tuning=tuning))
