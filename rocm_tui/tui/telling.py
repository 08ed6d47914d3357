"""What a person is told of jobs that ended and pins that drifted; the log of what they did."""

from __future__ import annotations

from asyncio import to_thread
from textwrap import shorten
from typing import TYPE_CHECKING

from backend.errors import StoreError
from rocm_tui.harmless import plain
from rocm_tui.tui import later
from rocm_tui.tui.host import Host

if TYPE_CHECKING:  # types only; see `later`
    from backend.pins.state import PinStatus
    from rocm_tui.jobs.queue import Job

_DONE = {
    "tune": "Tuned",
    "measure": "Measured",
    "verify": "Verified",
    "trial": "Tried",
    "improve": "Improved",
    "prove": "Proved",
}


_ROOM = 160
"""Characters of a reason in a notice: at 80 columns it hides no more than a few lines."""


def brief(reason: str) -> str:
    """Its first words; all of it stands in Jobs."""
    return shorten(reason, _ROOM, placeholder=" …")


def tell_drift(host: Host, status: PinStatus) -> None:
    """Say that a pin had drifted, and what became of it."""
    after = "Applied again." if status.state == "active" else f"It is {status.state} now."
    why = status.detail.partition(": ")[2] or "another process wrote over it"
    text = f"The pin of {status.pin.op} had drifted: {why}. {after}"
    host.notify(plain(text), severity="warning", markup=False)


def tell_job(host: Host, job: Job) -> None:
    """Say what became of a job, and log it."""
    if job.command:
        outcome = job.reason or job.outcome or job.state
        host.log_done(job.command, outcome, ok=job.state == "done")
    if job.state == "failed":
        text = f"Failed: {job.kind} {job.title}: {brief(job.reason)} (J)"
        host.notify(plain(text), severity="error", markup=False, timeout=10)
    elif job.state == "done":
        what = f"{_DONE[job.kind]} {job.title}"
        host.notify(plain(f"{what}: {brief(job.outcome)}"), markup=False, timeout=8)
    else:
        host.notify(plain(f"Cancelled: {job.kind} {job.title}"), markup=False)


async def log_done(host: Host, command: str, outcome: str, ok: bool) -> None:
    """Add to the log of what was done, off the event loop."""
    try:
        await to_thread(later.note_done, host.layout, command, outcome, ok)
    except (StoreError, OSError) as error:
        host.refuse(f"not logged: {error}")
