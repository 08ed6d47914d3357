"""Jobs in words and numbers: titles, progress, time left, outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backend.counted import counted, noun
from backend.errors import InputsKeyInvalid
from backend.model.inductor_kernel import is_kernel
from backend.model.problem import Problem, parse_inputs_key
from backend.model.tuning import Pin, Tuning
from backend.wire.jobs import Progress, VerifyResult
from rocm_tui.harmless import plain
from rocm_tui.render.plot import bar
from rocm_tui.session import numbers as fmt
from rocm_tui.session import stats

if TYPE_CHECKING:  # types only: the table of tunings stands before there are jobs
    from rocm_tui.jobs.queue import Job


def problem_title(problem: Problem) -> str:
    """`bmm 8×128×256 · 8×256×192 f32`."""
    return plain(f"{problem.op} {stats.all_sizes(problem)} {stats.dtype_of(problem)}")


def key_title(op: str, inputs: str) -> str:
    """The same from an op and its inputs key; the op alone where the key cannot be read."""
    if is_kernel(op):
        return problem_title(Problem(op, inputs_key=inputs))
    try:
        specs = parse_inputs_key(inputs).specs
    except InputsKeyInvalid:
        return plain(op)
    shapes, dtypes = tuple(spec.sizes for spec in specs), tuple(spec.dtype for spec in specs)
    return problem_title(Problem(op, shapes=shapes, dtypes=dtypes))


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
        error = stats.rounding(tuned, best, stats.nearest(tuned))
        lead = fmt.once(fmt.percent(stats.lead(tuned), error))
        undecided = {"tied": "a tie with", "unclear": "not known to be faster than"}
        ahead = undecided.get(stats.standing(tuned) or "", f"{lead} ahead of")
        text += f", {ahead} {timed[1].label}"
    return plain(text + (f"; {lost} of {len(tuned.choices)} without a time" if lost else ""))


def skipped_text(tuned: Tuning) -> str:
    """Say how many choices a budget left out; empty where it left out none."""
    count = sum(choice.skipped for choice in tuned.choices)
    if not count:
        return ""
    return (
        f"{count:,} of {counted(len(tuned.choices), 'choice')} not timed, the budget was spent: "
        f"the cache has {noun(count, 'it', 'them')} as failed until the next tuning"
    )


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


_BAR = 8
_SURE = 2
"""Parts that must be done before the time of the others is estimated from theirs."""


def counts(job: Job) -> tuple[int, int] | None:
    """Parts that are done, of all: choices compiled or timed, clear verdicts, processes."""
    progress = job.progress
    if job.total:
        return job.done, job.total
    if progress.total:
        return progress.timed or progress.compiled, progress.total
    if progress.choices > 1:
        return min(progress.settled, progress.choices - 1), progress.choices - 1
    return None


def progress_cell(job: Job) -> str:
    """`━━━╸     3/12`; what it does, in a word, where it counts nothing."""
    pair = counts(job)
    if job.state != "running" and not (pair and job.over):
        return ""
    if pair is None:
        first, _, _ = job.step.partition(",")
        return first or job.progress.what.partition(" ")[0]
    done, total = pair
    return f"{bar(done / total, _BAR)} {done}/{total}"


def mark(job: Job, own: str = "") -> str:
    """The same in a few cells, for a row that the job is about; `own` is how far that is itself."""
    pair = counts(job)
    if job.state == "queued":
        return "queued"
    return f"▶ {own or (f'{pair[0]}/{pair[1]}' if pair else 'runs')}"


def left(job: Job, now: float) -> tuple[float, bool] | None:
    """Return the seconds that a running job still takes, and whether they are estimated from its
    pace; else they are what is left of its budget."""
    if job.state != "running" or job.started is None:
        return None
    progress = job.progress
    if job.total and job.done >= _SURE:
        return (now - job.started) / job.done * (job.total - job.done), True
    if progress.total and progress.timed >= _SURE and progress.seconds_left is not None:
        return progress.seconds_left, True
    if job.until is not None:
        return max(0.0, job.until - now), False
    return None if progress.seconds_left is None else (progress.seconds_left, False)


def left_cell(job: Job, now: float) -> str:
    """`8.0 s`, `≤ 12 s` of the budget, `–` as long as nothing is known."""
    estimate = left(job, now)
    if estimate is None:
        return "" if job.over else fmt.NONE
    seconds, measured = estimate
    return fmt.seconds(seconds) if measured else f"≤ {fmt.seconds(seconds)}"


def took(job: Job, now: float) -> float | None:
    """Seconds since it began, to its end; None for one that waits."""
    return None if job.started is None else (job.ended or now) - job.started
