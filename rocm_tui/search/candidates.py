"""Which choices of a tuning a graph is tried with: what measuring alone cannot rule out.

A choice that is slower alone can still be faster in the graph, because more is fused around it or
because its neighbours leave it other caches; but not by any amount. So a choice stays unless its
interval lies `within` above the choice that Inductor takes. The fastest of each maker (ATen,
Triton, C++, ...) stays in any case: a template takes its neighbours into its own kernel, and ATen
does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from backend.model.choice import Choice, MeasuredChoice, Measurement
from backend.model.origin import provider
from backend.model.tuning import Tuning
from rocm_tui.search.types import Alone, Candidate, Subject
from rocm_tui.session import stats

MOST = 6
"""Candidates of one tuning that are tried; each is compiled into the graph."""


def to_measure(tuning: Tuning, within: float, taken: str = "") -> tuple[Choice, ...]:
    """The timed choices at most twice `within` slower than the best (one number each is noise), the
    fastest of each maker, and the one that Inductor takes; some twice `MOST` at the most."""
    timed = stats.ranked(tuning)
    if not timed:
        return ()
    most = (timed[0].ms or 0.0) * (1 + 2 * within)
    near = [choice for choice in timed if (choice.ms or 0.0) <= most]
    champions = _champions(timed)
    rest = [choice for choice in near if choice not in champions]
    chosen = (*champions, *rest)[: 2 * MOST]
    return tuple(c for c in timed if c.hash and (c in chosen or c.hash == taken))


def _champions(timed: Sequence[Choice]) -> list[Choice]:
    """Return the fastest choice of each maker."""
    first: dict[str | None, Choice] = {}
    for choice in timed:
        first.setdefault(provider(choice), choice)
    return list(first.values())


def is_known(tuning: Tuning, taken: str, within: float, cold: bool) -> bool:
    """Whether each choice that would be measured has been measured, in the way it would be."""
    measured = tuning.measured
    if measured is None or (cold and measured.caches != "cold"):
        return False
    hashes: set[str | None] = {choice.hash for choice in measured.choices}
    hashes |= {choice.hash for choice in measured.failed}
    return all(choice.hash in hashes for choice in to_measure(tuning, within, taken))


def with_candidates(
    subject: Subject, tuning: Tuning, measured: Measurement | None, within: float
) -> Subject:
    """Return the subject with its final candidates by a measurement; without one it is unfit."""
    if measured is None:
        return replace(subject, unfit="its choices were not measured")
    base = measured.of(subject.taken)
    names = {choice.hash: choice for choice in tuning.choices}
    candidates = [
        Candidate(
            hash=result.hash,
            name=names[result.hash].label if result.hash in names else result.name or "",
            maker=provider(names.get(result.hash) or Choice(result.name, result.hash)) or "",
            alone=_alone(result, base),
        )
        for result in measured.choices
    ]
    taken = next((choice for choice in candidates if choice.hash == subject.taken), None)
    others = [choice for choice in candidates if choice.hash != subject.taken]
    stays = _staying(others, within)
    return replace(
        subject,
        ready=True,
        current=taken or subject.current,
        candidates=tuple(stays),
        ruled_out=len(others) - len(stays),
    )


def with_single_times(subject: Subject, tuning: Tuning, within: float) -> Subject:
    """Return the subject with candidates of which only single times are known.

    They cannot be run alone: what their times cannot rule out, only the graph can decide.
    """
    choices = to_measure(tuning, within, subject.taken)
    candidates = [Candidate(c.hash or "", c.label, provider(c) or "") for c in choices]
    others = [choice for choice in candidates if choice.hash != subject.taken]
    stays = _staying(others, within)
    timed = sum(1 for choice in stats.ranked(tuning) if choice.hash != subject.taken)
    return replace(
        subject, ready=True, candidates=tuple(stays), ruled_out=max(0, timed - len(stays))
    )


def _alone(result: MeasuredChoice, base: MeasuredChoice | None) -> Alone | None:
    """Against the choice that Inductor takes. A measurement compares all with its best one; the
    intervals hold together, so that their quotient does."""
    if base is None:
        return None
    if base.ratio_low == base.ratio_high == 1.0:  # it is the best one
        low, high = result.ratio_low, result.ratio_high
    elif result.ratio_low == result.ratio_high == 1.0:
        low, high = 1 / base.ratio_high, _inverse(base.ratio_low)
    else:
        low, high = result.ratio_low / base.ratio_high, result.ratio_high * _inverse(base.ratio_low)
    return Alone(result.ms, result.ratio / base.ratio, low, high)


def _inverse(value: float) -> float:
    return 1 / value if value > 0 else float("inf")


def _staying(others: Iterable[Candidate], within: float) -> list[Candidate]:
    """Fastest first, at most `MOST`; those of another maker before more of the same one."""
    ordered = sorted(others, key=lambda choice: choice.alone.ratio if choice.alone else 1.0)
    first: dict[str, Candidate] = {}
    for choice in ordered:
        first.setdefault(choice.maker, choice)
    champions = list(first.values())
    possible = (c for c in ordered if c.alone is None or c.alone.low <= 1 + within)
    chosen = [*champions, *(choice for choice in possible if choice not in champions)][:MOST]
    return [choice for choice in ordered if choice in chosen]
