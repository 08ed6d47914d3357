"""What follows from the tries of a search: what is kept, what is sure, what was ruled out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf, log
from statistics import median

from backend.measure.trial import across_processes
from backend.model.choice import Verdict
from backend.model.graph import Arm, Swap, TrialArm
from rocm_tui.search.errors import LOOKS, confirming_error
from rocm_tui.search.types import Candidate, Search, Subject, Try, agrees, results

MOST_FAILURES = 3
"""Tries in a row that may fail before the search stops."""


@dataclass(frozen=True, slots=True)
class Gain:
    """The graph's time with choices over that without, as several processes tell it: `low` to
    `high` is its interval, `before` and `after` are medians in milliseconds."""

    arm: Arm
    ratio: float
    low: float
    high: float
    verdict: Verdict
    before: float
    after: float
    processes: int
    kernels_before: int | None = None
    kernels_after: int | None = None
    error: float | None = None
    allowed: float | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a search is.

    `kept` are the choices that made the graph faster, in the order in which they were kept;
    `pruned` tells that each of them is needed. `gain` is what the confirmation of them says so far,
    and `settled` that it says no more. `sure` is the last one that found the graph to be faster:
    what that holds is proposed. `stopped` says why nothing more is tried.
    """

    kept: Arm = ()
    pruned: bool = False
    gain: Gain | None = None
    settled: bool = False
    sure: Gain | None = None
    stopped: str = ""


def standing(search: Search) -> Standing:
    """What the tries come to, in their order."""
    now = Standing()
    for turn in _turns(search.tries):
        now = _after(now, turn)
    return replace(now, stopped=_stopped(search.tries))


def _after(now: Standing, turn: Sequence[Try]) -> Standing:
    first = turn[0]
    if first.kind == "confirm":
        gain = combined(turn)
        sure = gain if gain is not None and gain.verdict == "faster" else now.sure
        return replace(now, gain=gain, settled=_settled(turn, gain), sure=sure)
    if first.kind == "screen":
        better = best_arm(first)
        return now if better is None else Standing(better, sure=now.sure)
    kept = _pruned(first)
    if kept != now.kept:
        return Standing(kept, sure=now.sure)
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
    trials = [attempt.trial for attempt in turn if attempt.trial is not None]
    if len(trials) >= LOOKS[-1] or not all(_pair(trial.arms) for trial in trials):
        return True
    return gain is not None and gain.verdict != "unclear"


def _stopped(tries: Sequence[Try]) -> str:
    last = tries[-MOST_FAILURES:]
    if len(last) == MOST_FAILURES and all(attempt.failed for attempt in last):
        return last[-1].failed
    return ""


def best_arm(attempt: Try) -> Arm | None:
    """The arm that makes the graph faster than the first one does, with the same outputs, and most
    so; None where none does."""
    better = [
        (result.ratio, at)
        for at, (_, result) in enumerate(results(attempt))
        if result.verdict == "faster" and result.ratio is not None and agrees(result)
    ]
    return results(attempt)[min(better)[1]][0] if better else None


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
    """What the processes of one confirmation say together: of each the ratio that it found itself.

    None before the first look, and where outputs differ.
    """
    trials = [attempt.trial for attempt in turn if attempt.trial is not None]
    count = max((count for count in LOOKS if count <= len(trials)), default=0)
    pairs = [_pair(trial.arms) for trial in trials]
    sound = [pair for pair in pairs[:count] if pair is not None]
    if not count or None in pairs:
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
        allowed=last.arm.allowed,
    )


@dataclass(frozen=True, slots=True)
class _Pair:
    """What one process of a confirmation says: medians in milliseconds, the ratio, half the width
    of the interval of its log."""

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
    half = inf
    if after.ratio_low and after.ratio_high:
        half = log(after.ratio_high / after.ratio_low) / 2
    return _Pair(before, after, before.ms, after.ms, after.ratio, half)


def with_swap(arm: Arm, swap: Swap) -> Arm:
    """The arm, with the swap in the place of that of the same key."""
    return (*(other for other in arm if other.key != swap.key), swap)


def last_said(search: Search, subject: Subject, candidate: Candidate) -> TrialArm | None:
    """What the last trial that had the choice among its arms says of the graph with it."""
    swap = subject.swap(candidate)
    for attempt in reversed(search.tries):
        if attempt.kind != "screen":
            continue
        for arm, result in results(attempt):
            if swap in arm and swap not in attempt.arms[0]:
                return result
    return None
