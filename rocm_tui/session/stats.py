"""What can be said of one tuning: winner, gain, lead, arithmetic throughput. Pure functions.

The times of a tuning are single numbers, so a difference inside `TIE_BAND` says nothing about who
is faster (in public logs the best two choices lie that close in 40 % of all tunings). Where a
repeated measurement is known, its verdict counts instead.
"""

from __future__ import annotations

from math import isfinite
from typing import Literal

from backend.model.choice import Choice
from backend.model.measurement import MeasuredChoice
from backend.model.ops import flops
from backend.model.origin import provider
from backend.model.problem import Problem
from backend.model.tuning import Tuning
from rocm_tui.session.clock_tick import indistinct

TIE_BAND = 0.02
"""Relative difference within which single measurements cannot tell two choices apart."""

Standing = Literal["clear", "tied", "unclear", "slower"]
"""How the winner stands: ahead of all rivals, tied with one, not told yet, or beaten by one."""

_SHORT = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "uint8": "u8",
    "bool": "bool",
    "float8_e4m3fn": "f8e4m3",
    "float8_e4m3fnuz": "f8e4m3",
    "float8_e5m2": "f8e5m2",
    "float8_e5m2fnuz": "f8e5m2",
}


def ranked(tuning: Tuning) -> tuple[Choice, ...]:
    """The choices with a time that were put up together, fastest first."""
    return tuple(c for c in tuning.choices if c.ms is not None and not c.failed and c.offered)


def tried(tuning: Tuning) -> int:
    """How many choices were put up together: what the source says, or those that are known."""
    return max(tuning.num_choices or 0, sum(choice.offered for choice in tuning.choices))


def total(tuning: Tuning) -> int | None:
    """How many choices a running one will have timed; None if that is not known."""
    count = tried(tuning)
    return count if tuning.num_choices is not None or count > tuning.timed else None


def tried_text(tuning: Tuning) -> str:
    """`34`; `10 shown` if nobody says how many there were: a log lists its best ones alone."""
    return str(tried(tuning)) if tuning.num_choices is not None else f"{tried(tuning)} shown"


def chosen(tuning: Tuning) -> Choice | None:
    """The winner where its source tells which it is and no time, as Triton's own autotuning."""
    if tuning.state != "done" or tuning.selected_by != "timing" or len(tuning.choices) != 1:
        return None
    (only,) = tuning.choices
    return only if only.ms is None and only.hash is None and not only.failed else None


def winner(tuning: Tuning) -> Choice | None:
    """The choice with the smallest time, which is the one Inductor takes."""
    timed = ranked(tuning)
    return timed[0] if timed else None


def aten(tuning: Tuning) -> Choice | None:
    """The fastest choice that calls ATen (rocBLAS, hipBLASLt, MKL, ... behind it)."""
    return next((c for c in ranked(tuning) if provider(c) == "aten"), None)


def gain(tuning: Tuning) -> float | None:
    """ATen's time over the winner's: 1.25 means that tuning made the op 1.25 times as fast."""
    best, rival = winner(tuning), aten(tuning)
    return None if best is None or rival is None else _ratio(tuning, rival, best)


def lead(tuning: Tuning) -> float | None:
    """How far the nearest rival lies behind the winner, relative: 0.03 is 3 %.

    It is negative where a measurement found a rival to be faster.
    """
    timed = ranked(tuning)
    ratios = [_ratio(tuning, rival, timed[0]) for rival in timed[1:]]
    return min((ratio - 1.0 for ratio in ratios if ratio is not None), default=None)


def _ratio(tuning: Tuning, one: Choice, two: Choice) -> float | None:
    """Time of `one` over that of `two`, as measured where both were, else of single numbers."""
    first, second = measured(tuning, one), measured(tuning, two)
    if first is not None and second is not None:
        return first.ratio / second.ratio if second.ratio else None
    return one.ms / two.ms if one.ms is not None and two.ms else None


def measured(tuning: Tuning, choice: Choice | None) -> MeasuredChoice | None:
    """What repeated measurement says of a choice, if it was measured."""
    if tuning.measured is None or choice is None or choice.hash is None:
        return None
    return tuning.measured.of(choice.hash)


def time_ms(tuning: Tuning, choice: Choice | None) -> float | None:
    """Milliseconds of one call: the measured median where there is one, else the single number."""
    again = measured(tuning, choice)
    if again is not None:
        return again.ms
    return choice.ms if choice is not None else None


def standing(tuning: Tuning) -> Standing | None:
    """How the winner stands against its rivals; None where there are no two timed choices."""
    timed = ranked(tuning)
    if len(timed) < 2:
        return None
    again = measured(tuning, timed[0])
    if again is None or tuning.measured is None or len(tuning.measured.choices) < 2:
        return "tied" if near(tuning, timed[0], timed[1]) else "clear"
    if again.verdict != "faster":
        return again.verdict
    rivals = (choice for choice in timed[1:] if measured(tuning, choice) is None)
    return "tied" if any(near(tuning, timed[0], rival) for rival in rivals) else "clear"


def near(tuning: Tuning, one: Choice, two: Choice) -> bool:
    """Whether single numbers of a tuning cannot tell these two apart."""
    if not one.ms or not two.ms or min(one.ms, two.ms) < 0:
        return False
    apart = max(one.ms, two.ms) / min(one.ms, two.ms) - 1.0
    return apart <= TIE_BAND or indistinct(tuning, one.ms, two.ms)


def tied(tuning: Tuning) -> bool | None:
    """Whether the winner is not known to be faster than each rival; None without two choices."""
    stands = standing(tuning)
    return None if stands is None else stands != "clear"


def saved_ms(tuning: Tuning) -> float | None:
    """Milliseconds a call that the winner saves against ATen."""
    best, rival = winner(tuning), aten(tuning)
    ours, theirs = measured(tuning, best), measured(tuning, rival)
    if ours is not None and theirs is not None:
        return theirs.ms - ours.ms
    if best is None or rival is None or best.ms is None or rival.ms is None:
        return None
    return rival.ms - best.ms


def tflops(problem: Problem, ms: float | None) -> float | None:
    """Achieved 10^12 operations a second at `ms` a call."""
    work = flops(problem)
    rate = None if work is None or not ms else work / ms / 1e9
    return rate if rate is not None and isfinite(rate) else None


def dtype_of(problem: Problem) -> str:
    """The operands' dtype, short (`bf16`); several are joined by `·`, none is empty."""
    names: list[str] = []
    for dtype in problem.dtypes:
        bare = dtype.removeprefix("torch.")
        short = _SHORT.get(bare, bare)
        if short not in names:
            names.append(short)
    return "·".join(names)


def differing_keys(choices: tuple[Choice, ...]) -> list[str]:
    """Configuration keys whose value is not the same in all choices that have a configuration."""
    configs = [config for choice in choices if (config := choice.config)]
    order = {key: None for config in configs for key in config}
    return [key for key in order if len({config.get(key) for config in configs}) > 1]
