"""What can be said of one tuning: its problem in words, winner, gain, lead, throughput, and which
differences its times cannot show.

The times of a tuning are single numbers, each taken once: of five choices that such times showed to
be 1.6 to 2 times as fast as ATen, repeated measurement found all five slower. So single numbers say
at most who is ahead, and inside `TIE_BAND` not even that (in public logs the best two choices lie
that close in 40 % of all tunings). Only a repeated measurement shows who is faster.

Times that are whole ticks are known to a tick only: two that are one tick apart may be of equally
fast kernels, two that are two ticks apart are not. The ticks known here are 1.024 µs, in which
events of several NVIDIA GPUs come (in public logs of an A10G and an L20), and 1 µs, the update
interval of a GPU's global timer. AUTOTUNE rows round to 0.1 µs. On a busy CPU a call waits for its
neighbour's time slice, so that its time is whole milliseconds (8, 10, 12, 16 ms in real logs) and
says nothing of the kernel. A tick is seen from the times of one tuning alone, so it takes three
different ones, or two in full, or two that many choices share. Calls that wait now and then, beside
others that do not, are not recognised.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import comb, isfinite, prod
from sys import intern
from typing import Literal

from backend.model.choice import Choice, MeasuredChoice, Verdict
from backend.model.inductor_kernel import is_inductors, is_kernel, kernel_name, sizes_of
from backend.model.ops import OPS, flops, gemm_sizes, op_row
from backend.model.origin import device_kind, provider
from backend.model.problem import Problem, Shape
from backend.model.tuning import Tuning
from rocm_tui.session import numbers
from rocm_tui.session.numbers import PLACES
from rocm_tui.session.views import is_cache

_SIZES = (("B", "M", "N", "K"), ("b", "m", "n", "k"))
_NAMED_VALUE = re.compile(r"(\w+)=((?:\[[^\]]*\]|[^,\[])*)")
_DTYPES = ("dtype", "q_dtype_a", "q_dtype_w")


def asked_sizes(asked: str) -> str:
    """`64×1280×8192` of a product, `M=64 7168×512 E=384 topk=6` of a mixture of experts (tokens,
    hidden and inner size, experts, those of a token), `M=64 E=128 N=352` of a config for one; else
    all values."""
    named = dict(_NAMED_VALUE.findall(asked))
    for names in _SIZES:
        if all(name in named for name in names[1:]):
            return "×".join(named[name] for name in names if name in named)
    if "token" in named and "model_dim" in named:
        return (
            f"M={named['token']} {named['model_dim']}×{named.get('inter_dim', '?')} "
            f"E={named.get('expert', '?')} topk={named.get('topk', '?')}"
        )
    values = [f"{name}={text}" for name, text in named.items() if name not in _DTYPES]
    return " ".join(values).removeprefix("step=") if named else asked


def asked_dtypes(asked: str) -> tuple[str, ...]:
    """Return the types in a table's key."""
    return tuple([text.strip() for name, text in _NAMED_VALUE.findall(asked) if name in _DTYPES])


_CONVOLUTION = "convolution"


def layout_of(problem: Problem) -> str:
    """How the two factors of a product lie in memory: `NT`, N by rows and T by columns; `NT+` where
    rows, columns or batches do not lie close together. `NHWC` or `NCHW` of a convolution's input.

    Empty if the strides are unknown or say nothing.
    """
    a, b, turned, image = _factors(problem.op)
    if image:
        return _image(problem)
    shapes, strides = problem.shapes, problem.strides
    if len(strides) != len(shapes) or not 0 <= max(a, b) < len(shapes):
        return ""
    first, second = _operand(shapes[a], strides[a]), _operand(shapes[b], strides[b])
    if first is None or second is None:
        return ""
    (left, left_close), (right, right_close) = first, second
    if turned:
        right = "T" if right == "N" else "N"
    return intern(left + right + ("" if left_close and right_close else "+"))


@lru_cache(64)
def _factors(name: str) -> tuple[int, int, bool, bool]:
    """Return the places of the two factors of an op, -1 for one without; whether the second is
    given as (N, K), and multiplied as (K, N); and whether it is a convolution of an image."""
    op, image = op_row(name), name.lstrip("_") == _CONVOLUTION
    if op is None or op.packed:
        return -1, -1, False, image
    return op.place("a"), op.place("b"), op.weight, image


def _operand(shape: Shape, strides: Shape) -> tuple[str, bool] | None:
    """By rows or by columns, and whether its elements lie close together."""
    if len(shape) < 2 or len(strides) != len(shape):
        return None
    if len(shape) == 2 and strides[1] == 1:  # as below, for most of them
        return "N", shape[0] == 1 or strides[0] == shape[1]
    by_rows = shape[-1] == 1 or strides[-1] == 1
    if not by_rows and not (shape[-2] == 1 or strides[-2] == 1):
        return None
    order = [*range(len(shape) - 2), -2, -1] if by_rows else [*range(len(shape) - 2), -1, -2]
    step, close = 1, True
    for at in reversed(order):
        close = close and (shape[at] == 1 or strides[at] == step)
        step *= shape[at]
    return ("N" if by_rows else "T"), close


def _image(problem: Problem) -> str:
    place = OPS[_CONVOLUTION].place("a")
    if place >= len(problem.strides) or len(problem.strides[place]) != 4:
        return ""
    shape, strides = problem.shapes[place], problem.strides[place]
    if len(shape) != 4 or shape[1] == 1 or shape[2] * shape[3] == 1:
        return ""  # the same bytes either way
    return "NHWC" if strides[1] == 1 else "NCHW" if strides[3] == 1 else ""


TICKS = (1.024e-3, 1e-3)
"""Milliseconds."""
ROUNDED = 10.0**-PLACES
"""The unit of the last decimal of a time in an AUTOTUNE row."""
APART = 1.5
"""Ticks between one, which says nothing, and two, which do, with room for rounding."""
_TICKS_APART = APART * max(TICKS)
SLICE = 1.0
NEAR_SLICE = 0.02
LONGEST_WAIT = 32.0
"""Milliseconds: what a scheduler counts in, how near to it a time lies that waited, and what two
such times may differ by without a cause in the kernels. Both cases are from logs of busy CPUs."""
LONGEST = 1e4
"""Milliseconds beyond which no tick is looked for: a log may say anything."""
_CHANCE = 0.01
"""How often times that have no tick may look as if they had."""
_FLOAT = 2e-7
"""Relative error of a single-precision number, in which events are given."""


def indistinct(tuning: Tuning, left: float, right: float) -> bool:
    """Whether the clock cannot resolve the difference of two of a tuning's times."""
    gap = abs(left - right)
    if gap >= LONGEST_WAIT or (gap >= _TICKS_APART and min(left, right) < SLICE / 2):
        return False  # neither ticks nor waits: the usual case
    return gap < blur(tuning)


def blur(tuning: Tuning) -> float:
    """Milliseconds below which a difference of two times says nothing; 0 for an exact clock."""
    timed = (c.ms for c in tuning.choices if c.ms is not None and not c.failed and c.offered)
    times = [ms for ms in timed if 0 < ms < LONGEST]
    if len(times) > 1 and device_kind(tuning) == "cpu" and waited(times):
        return LONGEST_WAIT
    rounded = ROUNDED if times and all(round(ms, PLACES) == ms for ms in times) else 0.0
    return APART * max(tick_of(times), rounded)


def tick_of(times: Sequence[float]) -> float:
    """The tick in which times come, in milliseconds; 0 where none is seen."""
    return next((tick for tick in TICKS if _come_in(times, tick)), 0.0)


def _come_in(times: Sequence[float], tick: float) -> bool:
    """A quarter of all times, or of the distinct ones, may lie between ticks: the median of an even
    number of times does. The more choices share a time, the less it is by chance."""
    distinct = {ms for ms in times if tick / 2 < ms < LONGEST}
    fits = [ms for ms in distinct if abs(ms - round(ms / tick) * tick) <= _error(ms) * 1.01]
    if len(fits) < 2:
        return False
    if len(fits) * 4 < len(distinct) * 3:
        counts = Counter(times)
        if sum(counts[ms] for ms in fits) * 4 < len(times) * 3:
            return False
    chance = len(TICKS) * (len(distinct) / len(times)) ** 2
    chance *= prod(min(1.0, 2 * _error(ms) / tick) for ms in fits)
    return comb(len(distinct), len(fits)) * chance <= _CHANCE


def _error(ms: float) -> float:
    """How far a time may lie from the tick that it is."""
    return _FLOAT * ms + (ROUNDED / 2 if round(ms, PLACES) == ms else 0.0)


def waited(times: Sequence[float]) -> bool:
    """Whether all are whole milliseconds, as times of calls that waited for a neighbour are."""
    return all(SLICE / 2 < ms < LONGEST and abs(ms - round(ms)) <= NEAR_SLICE for ms in times)


TIE_BAND = 0.02
"""Relative difference within which single times show no difference between two choices."""
NEAR = 0.10
"""Relative distance from the best, up to which a choice is compared or measured unasked."""

Standing = Literal["clear", "ahead", "tied", "unclear", "behind", "slower"]
"""How one choice compares with others. `clear` and `slower` are verdicts of repeated measurement:
it is faster, a rival is. `ahead` and `behind` say the same of times that were taken once, which is
no verdict. `tied` and `unclear`: no difference, or none shown yet."""

_SHORT = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16",
    "int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8", "uint8": "u8",
    "float8_e4m3fn": "f8e4m3", "float8_e4m3fnuz": "f8e4m3", "float4_e2m1fn_x2": "f4e2m1",
    "float8_e5m2": "f8e5m2", "float8_e5m2fnuz": "f8e5m2",
}  # fmt: skip


def ranked(tuning: Tuning) -> tuple[Choice, ...]:
    """The choices with a time that were put up together, fastest first."""
    return tuple([c for c in tuning.choices if c.ms is not None and not c.failed and c.offered])


def tried(tuning: Tuning) -> int:
    """Return how many choices were put up together: as the source says, at least the known ones."""
    return max(tuning.num_choices or 0, sum(choice.offered for choice in tuning.choices))


def total(tuning: Tuning) -> int | None:
    """How many choices a running one will have timed; None if that is not known."""
    count = tried(tuning)
    return count if tuning.num_choices is not None or count > tuning.timed else None


def tried_text(tuning: Tuning) -> str:
    """`34`; `10 shown` if nobody says how many there were: a log lists its best ones alone."""
    return str(tried(tuning)) if tuning.num_choices is not None else f"{tried(tuning)} shown"


def chosen(tuning: Tuning) -> Choice | None:
    """Return the choice of a tuning that has one and no time: of Triton's own autotuning the
    winner, else what had no rival."""
    if tuning.state != "done" or len(tuning.choices) != 1:
        return None
    (only,) = tuning.choices
    return only if only.ms is None and not only.failed else None


def single(tuning: Tuning) -> bool:
    """Whether there was nothing to choose: one choice was put up, and no more."""
    if tuning.entry is not None:
        return False  # it is not known what that tuner tried
    alone = tuning.num_choices == 1 or tuning.selected_by == "only" or is_cache(tuning)
    return alone and tuning.state == "done" and len(tuning.choices) == 1


def winner(tuning: Tuning) -> Choice | None:
    """The choice with the smallest time, which is the one Inductor takes."""
    timed = ranked(tuning)
    return timed[0] if timed else None


def fastest(tuning: Tuning) -> Choice | None:
    """Return the winner; if measuring found it beaten, the best of the measured choices."""
    best = winner(tuning)
    if best is None or tuning.measured is None or standing(tuning) != "slower":
        return best
    hash = tuning.measured.choices[0].hash
    return next((c for c in ranked(tuning) if c.hash == hash), best)


def aten(tuning: Tuning) -> Choice | None:
    """The fastest choice that calls ATen (rocBLAS, hipBLASLt, MKL, ... behind it)."""
    return next((c for c in ranked(tuning) if provider(c) == "aten"), None)


def gain(tuning: Tuning, choice: Choice | None = None) -> float | None:
    """ATen's time over that of the winner, or of another choice: 1.25 is 1.25 times as fast."""
    best, rival = choice or winner(tuning), aten(tuning)
    return None if best is None or rival is None else ratio(tuning, rival, best)


def lead(tuning: Tuning, choice: Choice | None = None) -> float | None:
    """How far the nearest rival lies behind the winner, or another choice, relative: 0.03 is 3 %.

    It is negative where a rival is faster, as a winner's may be found to be by a measurement.
    """
    return lead_over(tuning, choice or winner(tuning), nearest(tuning, choice))


def lead_over(tuning: Tuning, own: Choice | None, rival: Choice | None) -> float | None:
    """How far one choice lies behind another."""
    over = None if own is None or rival is None else ratio(tuning, rival, own)
    return None if over is None else over - 1.0


def nearest(tuning: Tuning, choice: Choice | None = None) -> Choice | None:
    """The rival that lies least behind the winner, or another choice."""
    timed = ranked(tuning)
    own = choice or (timed[0] if timed else None)
    if own is None:
        return None
    if (
        tuning.measured is None and own.ms and own.ms > 0
    ):  # by single numbers it is the first of the others
        return next((rival for rival in timed if rival is not own), None)
    ratios = ((ratio(tuning, rival, own), rival) for rival in timed if rival is not own)
    rivals = [(over, rival) for over, rival in ratios if over is not None]
    return min(rivals, key=lambda pair: pair[0])[1] if rivals else None


def ratio(tuning: Tuning, left: Choice, right: Choice) -> float | None:
    """Time of `left` over that of `right`, as measured where both were, else of single numbers."""
    if tuning.measured is not None:
        ours, theirs = measured(tuning, left), measured(tuning, right)
        if ours is not None and theirs is not None:
            return ours.ratio / theirs.ratio if theirs.ratio else None
    return left.ms / right.ms if left.ms is not None and right.ms else None


def measured(tuning: Tuning, choice: Choice | None) -> MeasuredChoice | None:
    """What repeated measurement says of a choice, if it was measured."""
    if tuning.measured is None or choice is None or choice.hash is None:
        return None
    return tuning.measured.of(choice.hash)


def time_ms(tuning: Tuning, choice: Choice | None) -> float | None:
    """Milliseconds of one call: the measured median where there is one, else `single_ms`."""
    its = measured(tuning, choice)
    return single_ms(tuning, choice) if its is None else its.ms


def single_ms(tuning: Tuning, choice: Choice | None) -> float | None:
    """Milliseconds of one call as they were taken once, when it was tuned.

    None for a kernel that Inductor launches itself: its benchmark mostly shows the cost of a launch
    (112 µs for 6,400 elements), which ranks the configs of a kernel and does not time it.
    """
    return None if choice is None or is_inductors(tuning.op) else choice.ms


def standing(tuning: Tuning, choice: Choice | None = None) -> Standing | None:
    """Return how the winner, or another choice, compares with its rivals; None without two timed
    choices."""
    timed = ranked(tuning)
    own = choice or (timed[0] if timed else None)
    if own is None or len(timed) < 2:
        return None
    its = None if tuning.measured is None else measured(tuning, own)
    if its is None or tuning.measured is None or len(tuning.measured.choices) < 2:
        rival = timed[1] if own is timed[0] else timed[0]
        if own.ms is None or own.failed:
            return None
        return _of_single_times(tuning, own, rival)
    if its.verdict != "faster":
        return its.verdict
    rivals = (rival for rival in timed if rival is not own and measured(tuning, rival) is None)
    against = {_of_single_times(tuning, own, rival) for rival in rivals}
    if against & {"unclear", "behind"}:
        return "unclear"
    return "tied" if "tied" in against else "clear"


def faster(tuning: Tuning, choice: Choice | None = None) -> tuple[int, Choice] | None:
    """What was measured to be faster than the winner, or another choice, and its place, counted
    from 1; None where nothing was."""
    if tuning.measured is None or standing(tuning, choice) != "slower":
        return None
    best = tuning.measured.choices[0].hash
    places = enumerate(tuning.choices, start=1)
    return next(((place, other) for place, other in places if other.hash == best), None)


def near(tuning: Tuning, left: Choice, right: Choice) -> bool:
    """Whether single numbers of a tuning show no difference between these two."""
    less, more = left.ms, right.ms
    if not less or not more:
        return False
    if less > more:
        less, more = more, less
    if less < 0:
        return False
    return more / less - 1.0 <= TIE_BAND or _overlap(left, right) or indistinct(tuning, less, more)


def _overlap(left: Choice, right: Choice) -> bool:
    """Whether the middle of what was timed of one lies among that of the other."""
    if left.quantiles is None or right.quantiles is None:
        return False
    return left.quantiles[0] <= right.quantiles[1] and right.quantiles[0] <= left.quantiles[1]


AGAINST_BEST: dict[Verdict, Standing] = {
    "faster": "clear",
    "tied": "tied",
    "slower": "slower",
    "unclear": "unclear",
}
"""How a choice that has this verdict compares with the best, and the best with all others."""
_OF_BEST: dict[Verdict, Standing] = {**AGAINST_BEST, "slower": "clear"}
"""How the best compares with the choice that has this verdict."""


def versus(tuning: Tuning, choice: Choice, rival: Choice) -> Standing | None:
    """Return how `choice` compares with `rival`, as measured if both were, else by single times.

    None where a time is not known.
    """
    if tuning.measured is not None:
        ours, theirs = measured(tuning, choice), measured(tuning, rival)
        if ours is not None and theirs is not None:
            return _judged(tuning.measured.choices[0], ours, theirs)
    if choice.ms is None or not rival.ms or choice.failed or rival.failed:
        return None
    return _of_single_times(tuning, choice, rival)


def _of_single_times(tuning: Tuning, own: Choice, rival: Choice) -> Standing:
    """How two choices compare by times that were taken once: tied within the tie band, unclear
    where they differ by more but the timer is too coarse or the samples overlap."""
    ours, theirs = own.ms or 0.0, rival.ms or 0.0
    less, more = sorted((ours, theirs))
    if waited((less, more)) and more - less < LONGEST_WAIT <= blur(tuning):
        return "unclear"  # both waited for another process
    if 0 < more <= less * (1 + TIE_BAND):
        return "tied"
    if near(tuning, own, rival):
        return "unclear"
    return "ahead" if ours < theirs else "behind"


def _judged(best: MeasuredChoice, choice: MeasuredChoice, rival: MeasuredChoice) -> Standing:
    """Judge two measured choices: by the verdict against the best, others by their intervals."""
    if rival.hash == best.hash:
        return AGAINST_BEST[choice.verdict]
    if choice.hash == best.hash:
        return _OF_BEST[rival.verdict]
    if choice.ratio_high < rival.ratio_low:
        return "clear"
    if rival.ratio_high < choice.ratio_low:
        return "slower"
    low = min(choice.ratio_low, rival.ratio_low)
    high = max(choice.ratio_high, rival.ratio_high)
    return "tied" if 0 < high <= low * (1 + TIE_BAND) else "unclear"


def wins_clearly(tuning: Tuning) -> bool:
    """Whether the winner may be shown as one: finished, and measured to be faster."""
    return tuning.state == "done" and standing(tuning) == "clear"


def once(tuning: Tuning, *choices: Choice | None) -> bool:
    """Whether what is made of the times of these choices is made of one that was taken once."""
    if tuning.measured is None:  # most of them
        return any(choice is not None for choice in choices)
    return any(choice is not None and measured(tuning, choice) is None for choice in choices)


def rounding(tuning: Tuning, *choices: Choice | None) -> float:
    """Return the relative error of what is made of the times of these choices, by the digits of
    their source; 0 where they were measured."""
    if not once(tuning, *choices):
        return 0.0
    return numbers.rounding(*(choice.ms for choice in choices if choice is not None))


def saved_ms(tuning: Tuning, choice: Choice | None = None) -> float | None:
    """Milliseconds a call that the winner, or another choice, saves against ATen; of times that
    were taken once where not both were measured, see `once`."""
    best, rival = choice or winner(tuning), aten(tuning)
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


def sizes_text(problem: Problem) -> str:
    """The problem's size: `8×128×192×256` (batch, M, N, K) of a product, else each operand's; of a
    Triton kernel its name and what it was tuned for."""
    if is_kernel(problem.op):
        return all_sizes(problem)
    if (asked := _asked(problem)) is not None:
        return asked_sizes(asked)
    sizes = gemm_sizes(problem)
    if sizes is not None:
        batch, *rest = sizes
        return "×".join(str(size) for size in ([batch] if batch != 1 else []) + rest)
    return operands_text(problem.shapes)


def _asked(problem: Problem) -> str | None:
    """Return the key of another tuner's entry that is no product of torch, else None."""
    if problem.shapes or not isinstance(problem, Tuning) or problem.entry is None:
        return None
    return (problem.inputs_key or "").removeprefix(f"{problem.op},")


def all_sizes(problem: Problem) -> str:
    """Each operand's sizes, of a Triton kernel its name and what it was tuned for."""
    if is_kernel(problem.op):
        inputs = problem.inputs_key or ""
        return f"{kernel_name(inputs)} {sizes_of(inputs)}".strip()
    return operands_text(problem.shapes) if _asked(problem) is None else sizes_text(problem)


def operands_text(shapes: Iterable[Shape]) -> str:
    """Every operand's sizes: `8×128×256 · 8×256×192`."""
    return " · ".join("×".join(map(str, shape)) or "()" for shape in shapes)


def dtype_of(problem: Problem) -> str:
    """The operands' dtype, short (`bf16`); several are joined by `·`, none is empty."""
    names: list[str] = []
    asked = _asked(problem)
    for dtype in problem.dtypes if asked is None else asked_dtypes(asked):
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
