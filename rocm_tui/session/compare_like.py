"""Like is compared with like: the same choice, or the winners of the same offered set.

A problem may have been tuned several times, with other choices each time: ATen alone in one
program, Triton beside it in the next. What one of them takes says nothing of the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from backend.model.choice import Choice
from backend.model.origin import provider
from backend.model.tuning import Tuning
from rocm_tui.session import stats
from rocm_tui.session.compare_choices import same_choice, text_key, timed, used
from rocm_tui.session.compare_pairs import ProblemRows
from rocm_tui.session.model import Row


@dataclass(frozen=True, slots=True)
class Use:
    """A tuning, the choice that is in use since, and the time that it gave it."""

    row: Row
    choice: Choice
    ms: float


def uses(problem: ProblemRows) -> Iterator[Use]:
    """What its tunings came to, latest first; without those that tell no time."""
    for row in problem.rows:
        found = used(row.tuning)
        if found is not None:
            yield Use(row, *found)


def alike(one: ProblemRows, two: ProblemRows) -> Iterator[tuple[Use, Use]]:
    """What of two problems may be compared, the latest of both first."""
    other_torch = bool(one.torch and two.torch and not one.torch & two.torch)
    ours, theirs = uses(one), uses(two)
    a, b = next(ours, None), next(theirs, None)
    if a is None or b is None:
        return
    if like(a, b, other_torch):
        yield a, b
    befores = _variants(chain([a], ours))
    for after in _variants(chain([b], theirs)):
        for before in befores:
            if (before, after) != (a, b) and like(before, after, other_torch):
                yield before, after


def _variants(found: Iterator[Use]) -> list[Use]:
    """The latest of each choice and offered set: what is like one of them is like all."""
    kept: dict[object, Use] = {}
    for use in found:
        offer = frozenset(_key(choice) for choice in _offered(use.row.tuning))
        kept.setdefault((_key(use.choice), offer, use.row.tuning.num_choices), use)
    return list(kept.values())


def _key(choice: Choice) -> str:
    return choice.hash or text_key(choice)


def like(a: Use, b: Use, other_torch: bool = False) -> bool:
    """Whether what one use takes may be compared with what the other takes."""
    one, two = a.row.tuning, b.row.tuning
    return (
        same_choice(a.choice, b.choice)
        or same_offer(one, two, other_torch)
        or (offers(one, b.choice) and offers(two, a.choice))
    )


def offers(tuning: Tuning, choice: Choice) -> bool:
    """Whether a choice was put up in a tuning, as far as its source shows."""
    return any(same_choice(choice, other) for other in _offered(tuning))


def same_offer(one: Tuning, two: Tuning, other_torch: bool = False) -> bool:
    """Whether two tunings put up the same choices, as far as both tell.

    Two versions of torch give one kernel two hashes: of those, and where one tuning tells hashes
    and the other names, as many choices of each backend are the same set. So are as many choices
    where not all of them are shown.
    """
    if not (_complete(one) and _complete(two)):
        return one.num_choices is not None and one.num_choices == two.num_choices
    ours, theirs = _offered(one), _offered(two)
    if len(ours) != len(theirs):
        return False
    both = (*ours, *theirs)
    if not other_torch and all(choice.hash for choice in both):
        return {choice.hash for choice in ours} == {choice.hash for choice in theirs}
    if not other_torch and all(choice.name or choice.description for choice in both):
        return Counter(map(text_key, ours)) == Counter(map(text_key, theirs))
    return Counter(map(provider, ours)) == Counter(map(provider, theirs))


def _offered(tuning: Tuning) -> list[Choice]:
    return [choice for choice in tuning.choices if choice.offered]


def _complete(tuning: Tuning) -> bool:
    return stats.tried(tuning) == sum(choice.offered for choice in tuning.choices)


def why_not(a: Use, b: Use) -> str:
    """What keeps two uses from being compared."""
    missing = [
        f"{choice.label} was not {'offered' if _complete(other.row.tuning) else 'shown'} in {where}"
        for choice, other, where in ((a.choice, b, "B"), (b.choice, a, "A"))
        if not offers(other.row.tuning, choice)
    ]
    return f"other choices were put up: {', '.join(missing)}" if missing else "other choices"


def times(problem: ProblemRows, use: Use) -> list[float]:
    """What all tunings of a problem took with the choice of a use."""
    if len(problem.rows) == 1:
        return [use.ms]
    found = (_time(row.tuning, use) for row in problem.rows)
    return [ms for ms in found if ms is not None]


def _time(tuning: Tuning, use: Use) -> float | None:
    if tuning is use.row.tuning:
        return use.ms
    same = [ms for choice, ms in timed(tuning) if same_choice(choice, use.choice)]
    return same[0] if len(same) == 1 else None
