"""Jobs in words: what they are about, how far they are, what came of them."""

from __future__ import annotations

from backend.errors import InputsKeyInvalid
from backend.model.inductor_kernel import is_kernel
from backend.model.pin import Pin
from backend.model.problem import Problem, parse_inputs_key
from backend.model.tuning import Tuning
from backend.wire.jobs import Progress, VerifyResult
from rocm_tui.harmless import plain
from rocm_tui.session import numbers as fmt
from rocm_tui.session import stats


def problem_title(problem: Problem) -> str:
    """`bmm 8×128×256 · 8×256×192 f32`."""
    return plain(f"{problem.op} {stats.all_sizes(problem)} {stats.dtype_of(problem)}")


def pin_title(pin: Pin) -> str:
    """The same of what is pinned; the op alone where its inputs key cannot be read."""
    if is_kernel(pin.op):
        return problem_title(Problem(pin.op, inputs_key=pin.inputs))
    try:
        specs = parse_inputs_key(pin.inputs).specs
    except InputsKeyInvalid:
        return plain(pin.op)
    shapes, dtypes = tuple(spec.sizes for spec in specs), tuple(spec.dtype for spec in specs)
    return problem_title(Problem(pin.op, shapes=shapes, dtypes=dtypes))


def progress_text(progress: Progress) -> str:
    """`3/14 timed, best triton_mm_4 ~12.3 µs, 8 s left`; what it does where it counts none."""
    if not progress.total:
        return progress.what
    parts = [f"{progress.timed}/{progress.total} timed"]
    if progress.best:
        parts.append(f"best {progress.best} {fmt.once(fmt.duration(progress.best_ms))}")
    if progress.seconds_left is not None and progress.timed < progress.total:
        parts.append(f"{fmt.seconds(progress.seconds_left)} left")
    return ", ".join(parts)


def outcome(tuned: Tuning) -> str:
    """What came out of a tuning, of times that were taken once: `x, ~12.3 µs, ~33 % ahead of y`."""
    timed = stats.ranked(tuned)
    if not timed:
        return "no choice could be timed"
    best, lost = timed[0], sum(choice.failed for choice in tuned.choices)
    text = f"{best.label}, {fmt.once(fmt.duration(best.ms))}"
    if len(timed) > 1:
        near = stats.tied(tuned)
        lead = fmt.once(fmt.percent(stats.lead(tuned)))
        ahead = "a tie with" if near else f"{lead} ahead of"
        text += f", {ahead} {timed[1].label}"
    return plain(text + (f"; {lost} of {len(tuned.choices)} without a time" if lost else ""))


def verified_text(pin: Pin, result: VerifyResult) -> str:
    """Whether the generated code calls what is pinned, and what to do where that is not known."""
    if result.ok:
        return plain(f"the generated code calls {pin.label} ({result.kernel or pin.hash})")
    reason = result.reason
    if pin.label != pin.hash:  # a worker knows its hash alone
        reason = reason.replace(pin.hash, f"{pin.label} ({pin.hash})")
    line = f"not verified: {reason}"
    if not result.rebuilt:
        line += f"; use: rocm-tui verify {pin.id} -- python your_program.py"
    return plain(line)
