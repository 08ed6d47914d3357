"""How far a job is, in numbers, and when it will be done, where that can be told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocm_tui.render.bars import bar
from rocm_tui.session import numbers as fmt

if TYPE_CHECKING:  # types only: the table of tunings stands before there are jobs
    from rocm_tui.jobs.queue import Job

_BAR = 8
_SURE = 2
"""Parts that must be done before the time of the others is told from theirs."""


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
    found = counts(job)
    if job.state != "running" and not (found and job.over):
        return ""
    if found is None:
        first, _, _ = job.step.partition(",")
        return first or job.progress.what.partition(" ")[0]
    done, total = found
    return f"{bar(done / total, _BAR)} {done}/{total}"


def mark(job: Job, own: str = "") -> str:
    """The same in a few cells, for a row that the job is about; `own` is how far that is itself."""
    found = counts(job)
    if job.state == "queued":
        return "queued"
    return f"▶ {own or (f'{found[0]}/{found[1]}' if found else 'runs')}"


def left(job: Job, now: float) -> tuple[float, bool] | None:
    """Seconds that a running job still takes, and whether that is told from what is done so far;
    else it is what its budget leaves at most."""
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
    found = left(job, now)
    if found is None:
        return "" if job.over else fmt.NONE
    seconds, measured = found
    return fmt.seconds(seconds) if measured else f"≤ {fmt.seconds(seconds)}"


def took(job: Job, now: float) -> float | None:
    """Seconds since it began, to its end; None for one that waits."""
    return None if job.started is None else (job.ended or now) - job.started
