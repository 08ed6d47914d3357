"""How many rows and jobs there are, in the words of a title."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backend.counted import counted
from rocm_tui.session.difference import Tally

if TYPE_CHECKING:  # types only: the first screen stands before what they need is loaded
    from rocm_tui.jobs.queue import Job
    from rocm_tui.session.model import Row


def tally() -> Tally[Row]:
    """Counts what `of_rows` tells."""
    return Tally(
        lambda row: row.tuning.state == "running",
        lambda row: row.tuning.borrowed,
        lambda row: row.tuning.entry is not None,
        lambda row: row.suspect is not None,
    )


def of_rows(rows: list[Row], known: Tally[Row]) -> list[str]:
    """`12 tunings, 3 from a cache, 1 running, 2 suspects (M)`. `known` is the `tally` before."""
    running, cached, entries, suspects = known.of(rows)
    tuned = len(rows) - cached - entries
    facts = [counted(tuned, "tuning")] if tuned or not entries else []
    facts += [f"{cached:,} from a cache"] if cached else []
    facts += [f"{counted(entries, 'entry of a table', 'entries of tables')}"] if entries else []
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
