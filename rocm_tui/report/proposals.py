"""One choice for all, where ranks or hosts took different ones. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log
from typing import Literal

from backend.model.choice import Choice, MeasuredChoice, Measurement
from rocm_tui.compare.types import identity_of, same_choice, timed
from rocm_tui.report.agreement import (
    Chooser,
    Differing,
    Taken,
    in_measurement,
    measured,
    own_choice,
)
from rocm_tui.session.refusals import why_wrong

By = Literal["measured", "tie", "timings"]
"""Measured to be faster; measured to be as fast as others, of which the times of all tell one; or
the times of all alone, which nobody has measured."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """`choice` is proposed to all, or `why_not` says why none is. `by` says what tells it; where
    something was measured, `measurement`, which may be unclear. `unoffered` were not offered it."""

    differing: Differing
    choice: Choice | None
    by: By = "timings"
    measurement: Measurement | None = None
    unoffered: tuple[Chooser, ...] = ()
    why_not: str = ""


def propose(differing: Differing, *, force: bool = False) -> Proposal:
    """Of what all were offered, and nobody found wrong or failing: what was measured to be the
    fastest, else what is best by the sum of log times over all that timed it.

    With `force` also of what some were not offered, or may not have been.
    """
    taken = differing.taken
    right = [choice for choice in _choices(differing) if not _bad(choice, taken)]
    common = [choice for choice in right if all(each.offered(choice) for each in taken)]
    candidates = common
    if force:
        candidates = [c for c in right if any(same_choice(c, g.choice) for g in differing.groups)]
    if not candidates:
        return Proposal(differing, None, why_not=_why_none(differing, right))
    proposal = _measured(differing, candidates)
    if proposal is None:
        best = _by_times(candidates, taken)
        why_not = "" if best else "no choice that all were offered has a time from each of them"
        unclear = measured(taken, [group.choice for group in differing.groups])
        proposal = Proposal(differing, best, "timings", unclear, why_not=why_not)
    if proposal.choice is None:
        return proposal
    lacking = tuple(each.by for each in taken if not each.offered(proposal.choice))
    return Proposal(
        differing, proposal.choice, proposal.by, proposal.measurement, unoffered=lacking
    )


def _choices(differing: Differing) -> list[Choice]:
    """Every choice that has a hash, the chosen ones first; each kernel once."""
    kernels = {identity_of(group.choice): group.choice for group in differing.groups}
    for each in differing.taken:
        for choice in each.tuning.choices:
            kernels.setdefault(identity_of(choice), choice)
    return [choice for choice in kernels.values() if choice.hash]


def _bad(choice: Choice, taken: Sequence[Taken]) -> bool:
    """Whether it failed somewhere, or its result was found wrong."""
    return any(_is_bad(each, own_choice(each.tuning, choice)) for each in taken)


def _is_bad(taken: Taken, own: Choice) -> bool:
    hashes = {own.hash, identity_of(own)}  # it may have been measured on another device
    return own.failed or any(why_wrong(taken.row, replace(own, hash=name)) for name in hashes)


def _why_none(differing: Differing, right: Sequence[Choice]) -> str:
    if not any(group.choice.hash for group in differing.groups):
        return "no cache and no session tells the hashes of the choices, by which they are pinned"
    if not right:
        return "each choice failed somewhere, or its result was found wrong"
    return "no choice is known to have been offered to all"


def _measured(differing: Differing, candidates: Sequence[Choice]) -> Proposal | None:
    """By the latest measurement that has all of the chosen ones that may be taken; None where there
    is none, or where it is not clear yet."""
    chosen = [c for c in candidates if any(same_choice(c, g.choice) for g in differing.groups)]
    measurement = measured(differing.taken, chosen) if len(chosen) > 1 else None
    if measurement is None:
        return None
    pairs = in_measurement(measurement, candidates, differing.taken)
    best_choice, best = min(pairs, key=lambda pair: pair[1].ratio)
    near = [(c, each) for c, each in pairs if each is best or not _slower(each, best)]
    if len(near) == 1:
        return Proposal(differing, best_choice, "measured", measurement)
    if any(each.verdict == "unclear" for _, each in near):
        return None
    of_tie = _by_times([choice for choice, _ in near], differing.taken)
    return Proposal(differing, of_tie or best_choice, "tie", measurement)


def _slower(choice: MeasuredChoice, best: MeasuredChoice) -> bool:
    """Beyond its interval and that of the best."""
    if best.ratio == 1.0:
        return choice.verdict == "slower"
    return choice.ratio_low > best.ratio_high


def _by_times(candidates: Sequence[Choice], taken: Sequence[Taken]) -> Choice | None:
    """That with the least sum of log milliseconds, each one's own; of those that all have timed who
    timed anything. None where there is none."""
    tables = [dict(_times(each)) for each in taken]
    tables = [times for times in tables if times]
    sums = {
        name: sum(log(times[name]) for times in tables)
        for name in map(identity_of, candidates)
        if tables and all(name in times for times in tables)
    }
    if not sums:
        return None
    best = min(sums, key=sums.__getitem__)
    return next(choice for choice in candidates if identity_of(choice) == best)


def _times(taken: Taken) -> list[tuple[str | None, float]]:
    return [(identity_of(choice), ms) for choice, ms in timed(taken.tuning) if choice.hash]
