"""How many rows and jobs there are, in the words of a title."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backend.counted import counted

if TYPE_CHECKING:  # types only: the first screen stands before what they need is loaded
    from rocm_tui.jobs.queue import Job
    from rocm_tui.session.model import Row


def of_rows(rows: list[Row]) -> list[str]:
    """`12 tunings, 3 from a cache, 1 running, 2 suspects (M)`."""
    running = sum(row.tuning.state == "running" for row in rows)
    cached = sum(row.tuning.borrowed for row in rows)
    suspects = sum(row.suspect is not None for row in rows)
    tuned = len(rows) - cached
    facts = [counted(tuned, "tuning")]
    facts += [f"{cached:,} from a cache"] if cached else []
    facts += [f"{running:,} running"] if running else []
    return facts + ([f"{counted(suspects, 'suspect')} (M)"] if suspects else [])


def of_jobs(jobs: list[Job]) -> list[str]:
    """`1 job running, 2 queued (J)`; nothing without jobs."""
    if not jobs:
        return []
    running = sum(job.state == "running" for job in jobs)
    queued = len(jobs) - running
    first = running or queued
    text = f"{counted(first, 'job')} {'running' if running else 'queued'}"
    return [f"{text}, {queued} queued (J)" if running and queued else f"{text} (J)"]
