"""What a search does next, what its tries show, and how its error is kept.

1. The tunings of the graph come by their weight, the heaviest first. Those whose choices were never
   measured alone, as the model calls them, are measured first.
2. *Screening*: one trial a tuning, whose baseline is the graph with all that is kept so far, and
   whose arms each add one candidate. The best of the `faster` arms is kept. Products in a
   graph change what is fused around them, and the next tuning is tried in that graph.
3. What was kept changes the others: tunings that were tried earlier are tried again, in another
   sweep, without the candidates that were clearly slower, and without options that were tied:
   they are combined if they helped alone.
4. *Pruning*: kept choices are taken out singly. One without which the graph is no slower goes.
5. *Confirming*: the untouched graph against what is kept, in several new processes.

The budget ends the screening while there is time left for 4 and 5.

Whoever tries a hundred choices at 5 % finds five that are "faster" and are not. So the whole search
has one error, `ERROR`: the chance that it proposes any pin, or states any gain, that is none.

- One half is for the screening. It is assigned before any data is seen, so that by Bonferroni's
  inequality (Dunn 1961) the sum holds, however the tries depend on each other: sweep `s` over the
  tunings gets 2^-s of that half (so that the sum holds however many follow; Foster and Stine 2008
  on such sequences), each tuning the same part of its sweep. Within a trial all arms and all looks
  share that, see `backend.measure.trial`.
- One half is for the confirmation. Of many tries the best one looks better than it is (the winner's
  curse: Lohmueller et al. 2003; Zoellner and Pritchard 2007), so what the screening measured is
  never stated. What it kept is compared with the untouched graph on new data, in processes of their
  own, and only that interval counts. The `n`-th confirmation of one search, if it went on after the
  first, gets the 2^-n part, each of its looks the same part of that.

Dropping a choice that brings nothing proposes no pin, so it spends nothing. A try that failed, or
was interrupted, showed nothing, and may be made again. A search that is begun anew is another one,
with an error of its own: of twenty searches without any gain one may propose something.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from statistics import fmean, median

from backend.measure.trial import across_processes
from backend.model.graph import Arm, CompileOption, Swap, TrialArm
from rocm_tui.search.types import (
    Candidate,
    GraphGain,
    MeasureStep,
    Search,
    Step,
    Subject,
    TrialStep,
    Try,
    agrees,
    best_result,
    differs,
    half_width,
    results,
)

ERROR = 0.05
SCREENING = ERROR / 2
CONFIRMING = ERROR / 2
PRUNING = 0.05
"""The error of the comparison that drops a choice; see above for why it is not of the same sum."""

LOOKS = (5, 10)
"""Processes after which a confirmation is looked at."""


def screening_error(sweep: int, subjects: int, parts: int = 1) -> float:
    """Return the error that a trial of one of `subjects` may spend in this sweep, from 1 on.

    One subject's part is shared among `parts` trials.
    """
    return SCREENING * 0.5**sweep / subjects / parts


def confirming_error(turn: int) -> float:
    """Return the error that one look of the `turn`-th confirmation may spend, from 1 on."""
    return CONFIRMING * 0.5**turn / len(LOOKS)


MOST_FAILURES = 3
"""Tries in a row that may fail before a run stops; another run makes them again, see `resumed`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain(GraphGain):
    """The gain by the changes of an arm, and how far the outputs differ."""

    arm: Arm
    processes: int
    error: float | None = None


@dataclass(frozen=True, slots=True)
class SearchStatus:
    """The state of a search, derived from its tries.

    `kept` are the choices that made the graph faster, in the order in which they were kept;
    `pruned` means that each of them is needed. `gain` is the result of their confirmation so far,
    which is `settled` if no more processes are needed. `sure` is the last gain that was confirmed
    as faster: its choices are proposed. `stopped` says why nothing more is tried.
    """

    kept: Arm = ()
    pruned: bool = False
    gain: Gain | None = None
    settled: bool = False
    sure: Gain | None = None
    stopped: str = ""


def search_status(search: Search) -> SearchStatus:
    """Derive the state of a search from its tries, in their order."""
    now = SearchStatus()
    for turn in _turns(search.tries):
        now = _after(now, turn)
    return replace(now, stopped=_stopped(search.tries))


def _after(now: SearchStatus, turn: Sequence[Try]) -> SearchStatus:
    first = turn[0]
    if first.kind == "confirm":
        gain = combined(turn)
        sure = gain if gain is not None and gain.verdict == "faster" else now.sure
        return replace(now, gain=gain, settled=_settled(turn, gain), sure=sure)
    if first.kind == "screen":
        better = best_arm(first)
        return now if better is None else SearchStatus(better, sure=now.sure)
    if first.trial is None:
        return now
    kept = _pruned(first)
    if kept != now.kept:
        return SearchStatus(kept, sure=now.sure)
    return replace(now, pruned=True)


def _turns(tries: Sequence[Try]) -> Iterator[tuple[Try, ...]]:
    """Each try alone, but those of one confirmation together."""
    turn: list[Try] = []
    for attempt in tries:
        same = turn and (turn[0].kind, turn[0].turn) == ("confirm", attempt.turn)
        if turn and not (same and attempt.kind == "confirm"):
            yield tuple(turn)
            turn = []
        turn.append(attempt)
    if turn:
        yield tuple(turn)


def _settled(turn: Sequence[Try], gain: Gain | None) -> bool:
    """Whether a confirmation needs no further process; none does where outputs differ."""
    if len(_pairs(turn)) >= LOOKS[-1] or _differed(turn):
        return True
    return gain is not None and gain.verdict != "unclear"


def _stopped(tries: Sequence[Try]) -> str:
    last = [failure(attempt) for attempt in tries[-MOST_FAILURES:]]
    return last[-1] if len(last) == MOST_FAILURES and all(last) else ""


def failure(attempt: Try) -> str:
    """Say why a try showed nothing; empty if it showed something.

    A confirmation shows something if both of its arms were timed, or if their outputs differ.
    """
    if attempt.failed or attempt.kind != "confirm" or attempt.trial is None:
        return attempt.failed
    arms = attempt.trial.arms
    if _pair(arms) is not None or any(map(differs, arms[1:])):
        return ""
    return next((arm.failed for arm in arms if arm.failed), "it was not timed")


def _differed(turn: Sequence[Try]) -> bool:
    """Whether outputs differed in a process of a confirmation."""
    return any(differs(arm) for attempt in turn if attempt.trial for arm in attempt.trial.arms[1:])


def best_arm(attempt: Try) -> Arm | None:
    """Return the arm with the best result of its trial; None if no arm is better."""
    best = None if attempt.trial is None else best_result(attempt.trial)
    return next((arm for arm, result in results(attempt) if result is best), None)


def _pruned(attempt: Try) -> Arm:
    """The kept choices without the one whose absence costs nothing, and makes the graph fastest.

    One at a time: of two that do the same, each is idle beside the other.
    """
    idle = [
        (result.ratio, at)
        for at, (_, result) in enumerate(results(attempt))
        if result.verdict in ("tied", "faster") and result.ratio is not None
    ]
    return results(attempt)[min(idle)[1]][0] if idle else attempt.arms[0]


def combined(turn: Sequence[Try]) -> Gain | None:
    """Combine the processes of one confirmation, each with its own ratio.

    None before the first look, and if outputs differ.
    """
    pairs = _pairs(turn)
    count = max((count for count in LOOKS if count <= len(pairs)), default=0)
    sound = pairs[:count]
    if not count or _differed(turn):
        return None
    _, result = across_processes(
        [{0: 1.0, 1: pair.ratio} for pair in sound],
        halves=[{0: 0.0, 1: pair.half} for pair in sound],
        error=confirming_error(turn[0].turn),
    )
    last = sound[-1]
    return Gain(
        arm=turn[0].arms[1],
        ratio=result.ratio,
        low=result.ratio_low,
        high=result.ratio_high,
        verdict=result.verdict,
        before=median(pair.before for pair in sound),
        after=median(pair.after for pair in sound),
        processes=count,
        kernels_before=last.baseline.kernels,
        kernels_after=last.arm.kernels,
        error=max(pair.arm.error or 0.0 for pair in sound),
    )


@dataclass(frozen=True, slots=True)
class _Pair:
    """The result of one process of a confirmation: medians in milliseconds, the ratio, half the
    width of the interval of its log."""

    baseline: TrialArm
    arm: TrialArm
    before: float
    after: float
    ratio: float
    half: float


def _pair(arms: Sequence[TrialArm]) -> _Pair | None:
    """The two arms of a confirmation, if both were timed and their outputs agree."""
    if len(arms) != 2:
        return None
    before, after = arms
    if not before.ms or not after.ms or not after.ratio or not agrees(after):
        return None
    return _Pair(before, after, before.ms, after.ms, after.ratio, half_width(after))


def _pairs(turn: Sequence[Try]) -> list[_Pair]:
    pairs = (_pair(attempt.trial.arms) for attempt in turn if attempt.trial is not None)
    return [pair for pair in pairs if pair is not None]


def with_change(arm: Arm, change: Swap | CompileOption) -> Arm:
    """Return the arm with the change in the place of that of the same tuning or option."""
    return (*(other for other in arm if other.key != change.key), change)


def last_said(search: Search, subject: Subject, candidate: Candidate) -> TrialArm | None:
    """Return the result of the last trial that had the choice among its arms."""
    change = subject.change(candidate)
    for attempt in reversed(search.tries):
        if attempt.kind != "screen":
            continue
        for arm, result in results(attempt):
            if change in arm and change not in attempt.arms[0]:
                return result
    return None


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
    """Return the next step with `left` seconds of the run's `budget`; None at the end of either."""
    if left <= 0:
        return None
    now = search_status(search)
    if now.stopped:
        return None
    if _confirming(search, now):
        return _confirm(search, now, left)
    after = left - _reserve(search, now, budget)
    step = _screen(search, now, after) if after > 0 else None
    if step is not None:
        return step
    return _finish(search, now, left)


def _reserve(search: Search, now: SearchStatus, budget: float) -> float:
    """Seconds for the end: each process of a confirmation starts and compiles two arms."""
    tries = [(attempt, attempt.trial) for attempt in search.tries if attempt.trial is not None]
    each = [max(0.0, t.seconds - trial.seconds) / len(t.arms) for t, trial in tries]
    an_arm = fmean(each) if each else 0.0
    confirming = LOOKS[0] * (2 * an_arm + LEAST)
    pruning = (len(now.kept) + 1) * an_arm + LEAST
    return min(max(confirming + pruning, RESERVE * budget), MOST_RESERVE * budget)


def finished(search: Search) -> bool:
    """Whether nothing is left to do, whatever time there is. A search that stopped is not."""
    return not search_status(search).stopped and next_step(search, 1e9, 1e9) is None


def resumed(search: Search) -> Search:
    """Return the search as another run goes on with it: the failed tries at the end of one that is
    not finished are left out, so that they are made again."""
    if finished(search):
        return search
    tries = list(search.tries)
    while tries and failure(tries[-1]):
        tries.pop()
    return replace(search, tries=tuple(tries))


def _confirming(search: Search, now: SearchStatus) -> bool:
    """Whether a confirmation has begun of what is kept now, and is not settled."""
    last = search.tries[-1] if search.tries else None
    return last is not None and last.kind == "confirm" and not now.settled


# Screening.


def _screen(search: Search, now: SearchStatus, left: float) -> Step | None:
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
    arms = (now.kept, *(with_change(now.kept, subject.change(choice)) for choice in batch))
    error = screening_error(turn, len(search.subjects), parts)
    return TrialStep("screen", turn, at, arms, error, seconds)


def _turn_of(search: Search, now: SearchStatus, at: int) -> int | None:
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
    beside = bool(subject.options) and best_arm(tries[-1]) is not None  # options go together
    if turn >= SWEEPS or not (beside or _kept_since(search, tries[-1])):
        return None
    return turn + 1 if _batch(search, now, at, turn + 1)[0] else None


def _is_of(attempt: Try, at: int) -> bool:
    return attempt.kind == "screen" and attempt.subject == at


def _kept_since(search: Search, last: Try) -> bool:
    """Whether another choice was kept after this try."""
    since = takewhile(lambda attempt: attempt is not last, reversed(search.tries))
    return any(attempt.kind == "screen" and best_arm(attempt) for attempt in since)


def _batch(
    search: Search, now: SearchStatus, at: int, turn: int
) -> tuple[tuple[Candidate, ...], int]:
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
    hashes = [added for arm in whole.arms[1:] for added in _added(whole.arms[0], arm)]
    tried = {added for attempt in done[1:] for added in _added(attempt.arms[0], attempt.arms[1])}
    left = [hash for hash in hashes if hash not in tried]
    choice = subject.candidate(left[0]) if left else None
    return ((choice,) if choice else ()), len(hashes) + 1


def _added(baseline: Arm, arm: Arm) -> list[str]:
    """Return the identities of what an arm changes and the baseline does not."""
    return [change.identity for change in arm if change not in baseline]


def _worth(
    search: Search, now: SearchStatus, subject: Subject, candidate: Candidate, turn: int
) -> bool:
    """Whether the candidate is to be tried in this sweep."""
    if subject.change(candidate) in now.kept:
        return False
    if turn == 1:
        return True
    before = last_said(search, subject, candidate)
    if before is None:
        return True
    verdicts = ("faster", "unclear") if subject.options else ("faster", "unclear", "tied")
    return before.verdict in verdicts and not before.failed and agrees(before)


# The end.


def _finish(search: Search, now: SearchStatus, left: float) -> Step | None:
    """Prune what is kept, then confirm it; nothing where that was done."""
    if not now.kept or now.settled:
        return None
    if len(now.kept) > 1 and not now.pruned:
        turns = [attempt.turn for attempt in search.tries if attempt.kind == "prune"]
        kept = now.kept
        arms = (kept, *((*kept[:at], *kept[at + 1 :]) for at in range(len(kept))))
        seconds = min(max(left / 4, LEAST), MOST)
        return TrialStep("prune", max(turns, default=0) + 1, 0, arms, PRUNING, seconds)
    return _confirm(search, now, left)


def confirmed_by(search: Search, turn: int) -> int:
    """Count the processes of the `turn`-th confirmation that showed something."""
    tries = (t for t in search.tries if t.kind == "confirm" and t.turn == turn)
    return sum(not failure(attempt) for attempt in tries)


def _confirm(search: Search, now: SearchStatus, left: float) -> Step:
    turns = [attempt.turn for attempt in search.tries if attempt.kind == "confirm"]
    last = search.tries[-1]
    going_on = last.kind == "confirm" and not now.settled
    turn = last.turn if going_on else max(turns, default=0) + 1
    done = confirmed_by(search, turn)
    rest = max(1, next((count for count in LOOKS if count > done), done + 1) - done)
    seconds = min(max(left / rest / 2, LEAST), MOST)
    arms = last.arms if going_on else ((), now.kept)
    error = confirming_error(turn)
    return TrialStep("confirm", turn, 0, arms, error, seconds, fresh=True, processes=rest)
