"""What a search does next.

1. The tunings of the graph come by their weight, the heaviest first. Those whose choices were never
   measured alone, as the model calls them, are measured first.
2. *Screening*: one trial a tuning, whose baseline is the graph with all that is kept so far, and
   whose arms each add one candidate. The best of those that are `faster` is kept. Products in a
   graph change what is fused around them, and the next tuning is tried in that graph.
3. What was kept changes the others: those that were tried before it are tried again, in another
   sweep, without the candidates that were clearly slower.
4. *Pruning*: each kept choice is taken out in turn. One without which the graph is no slower goes.
5. *Confirming*: the untouched graph against what is kept, in several new processes; see `errors`.

The budget ends the screening while there is time left for 4 and 5.
"""

from __future__ import annotations

from itertools import takewhile
from statistics import fmean

from backend.model.graph import Arm
from rocm_tui.search.errors import LOOKS, PRUNING, confirming_error, screening_error
from rocm_tui.search.standing import Standing, best_arm, last_said, standing, with_swap
from rocm_tui.search.types import (
    Candidate,
    MeasureStep,
    Search,
    Step,
    Subject,
    TrialStep,
    Try,
    agrees,
)

SWEEPS = 3
RESERVE, MOST_RESERVE = 0.3, 0.7
"""Shares of the budget that are kept for pruning and confirming: by what trials have taken so far,
at least and at most."""
LEAST = 3.0
MOST = 30.0
"""Seconds of measuring of one trial."""
ALONE = 8.0
"""Seconds of measuring choices alone."""


def next_step(search: Search, left: float, budget: float) -> Step | None:
    """The next step with so many seconds `left` of the run's `budget`; None at either's end."""
    if left <= 0:
        return None
    now = standing(search)
    if now.stopped:
        return None
    if _confirming(search, now):
        return _confirm(search, now, left)
    after = left - _reserve(search, now, budget)
    step = _screen(search, now, after) if after > 0 else None
    if step is not None:
        return step
    return _finish(search, now, left)


def _reserve(search: Search, now: Standing, budget: float) -> float:
    """Seconds for the end: each process of a confirmation starts and compiles two arms."""
    tries = [(attempt, attempt.trial) for attempt in search.tries if attempt.trial is not None]
    each = [max(0.0, t.seconds - trial.seconds) / len(t.arms) for t, trial in tries]
    an_arm = fmean(each) if each else 0.0
    confirming = LOOKS[0] * (2 * an_arm + LEAST)
    pruning = (len(now.kept) + 1) * an_arm + LEAST
    return min(max(confirming + pruning, RESERVE * budget), MOST_RESERVE * budget)


def finished(search: Search) -> bool:
    """Whether nothing is left to do, whatever time there is."""
    return next_step(search, 1e9, 1e9) is None


def open_subjects(search: Search) -> int:
    """How many tunings are still to be looked at in this sweep."""
    now = standing(search)
    return sum(1 for at, _ in enumerate(search.subjects) if _turn_of(search, now, at) is not None)


def _confirming(search: Search, now: Standing) -> bool:
    """Whether a confirmation has begun of what is kept now, and is not settled."""
    last = search.tries[-1] if search.tries else None
    return last is not None and last.kind == "confirm" and not now.settled


# Screening.


def _screen(search: Search, now: Standing, left: float) -> Step | None:
    turns = [_turn_of(search, now, at) for at in range(len(search.subjects))]
    waiting = [(turn, at) for at, turn in enumerate(turns) if turn is not None]
    if not waiting:
        return None
    turn, at = min(waiting)
    subject = search.subjects[at]
    seconds = min(max(left / len(waiting) / 2, LEAST), MOST)
    if not subject.ready:
        return MeasureStep(at, min(ALONE, seconds))
    batch, parts = _batch(search, now, at, turn)
    arms = (now.kept, *(with_swap(now.kept, subject.swap(choice)) for choice in batch))
    error = screening_error(turn, len(search.subjects), parts)
    return TrialStep("screen", turn, at, arms, error, seconds)


def _turn_of(search: Search, now: Standing, at: int) -> int | None:
    """The sweep in which the subject is to be tried next; None where it is done with."""
    subject = search.subjects[at]
    if subject.unfit:
        return None
    if not subject.ready:
        return 1
    tries = [attempt for attempt in search.tries if _is_of(attempt, at)]
    if not tries:
        return 1 if subject.candidates else None
    turn = tries[-1].turn
    if _batch(search, now, at, turn)[0]:
        return turn  # its trial broke; its choices come one by one
    if turn >= SWEEPS or not _kept_since(search, tries[-1]):
        return None
    return turn + 1 if _batch(search, now, at, turn + 1)[0] else None


def _is_of(attempt: Try, at: int) -> bool:
    return attempt.kind == "screen" and attempt.subject == at


def _kept_since(search: Search, last: Try) -> bool:
    """Whether another choice was kept after this try."""
    since = takewhile(lambda attempt: attempt is not last, reversed(search.tries))
    return any(attempt.kind == "screen" and best_arm(attempt) for attempt in since)


def _batch(search: Search, now: Standing, at: int, turn: int) -> tuple[tuple[Candidate, ...], int]:
    """The candidates of the subject's next trial in this sweep, and among how many trials its error
    is shared. Empty if the sweep has tried them."""
    subject = search.subjects[at]
    wanted = [choice for choice in subject.candidates if _worth(search, now, subject, choice, turn)]
    done = [attempt for attempt in search.tries if _is_of(attempt, at) and attempt.turn == turn]
    if not done:
        return tuple(wanted), 1
    whole = done[0]
    if whole.trial is not None or len(whole.arms) <= 2:
        return (), 1
    alone = [attempt.arms[1] for attempt in done[1:]]
    hashes = [swap.hash for arm in whole.arms[1:] for swap in arm if swap.key == subject.key]
    tried = {swap.hash for arm in alone for swap in arm if swap.key == subject.key}
    left = [hash for hash in hashes if hash not in tried]
    choice = subject.candidate(left[0]) if left else None
    return ((choice,) if choice else ()), len(hashes) + 1


def _worth(
    search: Search, now: Standing, subject: Subject, candidate: Candidate, turn: int
) -> bool:
    """Whether the candidate is to be tried in this sweep."""
    if subject.swap(candidate) in now.kept:
        return False
    if turn == 1:
        return True
    before = last_said(search, subject, candidate)
    return before is None or (before.verdict != "slower" and not before.failed and agrees(before))


# The end.


def _finish(search: Search, now: Standing, left: float) -> Step | None:
    """Prune what is kept, then confirm it; nothing where that was done."""
    if not now.kept or now.settled:
        return None
    if len(now.kept) > 1 and not now.pruned:
        turns = [attempt.turn for attempt in search.tries if attempt.kind == "prune"]
        arms = (now.kept, *(_without(now.kept, at) for at in range(len(now.kept))))
        seconds = min(max(left / 4, LEAST), MOST)
        return TrialStep("prune", max(turns, default=0) + 1, 0, arms, PRUNING, seconds)
    return _confirm(search, now, left)


def _without(arm: Arm, at: int) -> Arm:
    return (*arm[:at], *arm[at + 1 :])


def _confirm(search: Search, now: Standing, left: float) -> Step:
    turns = [attempt.turn for attempt in search.tries if attempt.kind == "confirm"]
    last = search.tries[-1]
    going_on = last.kind == "confirm" and not now.settled
    turn = last.turn if going_on else max(turns, default=0) + 1
    done = sum(attempt.kind == "confirm" and attempt.turn == turn for attempt in search.tries)
    rest = max(1, next((count for count in LOOKS if count > done), done + 1) - done)
    seconds = min(max(left / rest / 2, LEAST), MOST)
    arms = last.arms if going_on else ((), now.kept)
    return TrialStep("confirm", turn, 0, arms, confirming_error(turn), seconds, fresh=True)
