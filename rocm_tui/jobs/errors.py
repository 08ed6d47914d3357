"""What can become of a job instead of a result.

JobError
├── WorkerDied      the process ended in the middle of a job
├── JobTimeout      it took too long, or said nothing for too long, and was killed
├── TooMuch         it took or printed more than it may and was killed
└── JobFailed       the job itself raised an error
"""

from __future__ import annotations

from pathlib import Path

from backend.wire.jobs import Progress
from rocm_tui.errors import RocmTuiError


class JobError(RocmTuiError):
    """A job gave no result.

    `blamed` is the hash of the choice that the worker was at when it died or hung, if that may be
    the cause; `last` is its last progress, if it told any; `log` is where the end of its log is
    kept.
    """

    blamed: str | None = None
    last: Progress | None = None
    log: Path | None = None


class WorkerDied(JobError):
    """The worker ended in the middle of a job."""


class JobTimeout(JobError):
    """The job took too long."""


class TooMuch(JobError):
    """The worker took more memory or processes than it may, or printed more."""


class JobFailed(JobError):
    """The job raised an error of its own."""
