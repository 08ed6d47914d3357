"""What one job leaves to the next: what a fresh process has, and no memory that others could use.

Threads, autotune mode and selector are set by each job for itself; what cannot be taken back is for
those who keep the worker to know. A worker says that it is `spent` where it cannot go on.
"""

from __future__ import annotations

import contextlib
import gc
import time
from pathlib import Path

import torch

from backend.inductor import guard
from backend.inductor.torch import state
from backend.inductor.torch import tuning as torch_api
from backend.worker import capture

MOST_JOBS = 100
"""Then another process goes on: torch keeps each kernel that it has loaded."""

BUSY, SPINNING = 0.1, 1.0
"""The share of a CPU, and the seconds of one, that a worker may take while it waits."""

_SEED = torch.initial_seed()
_GRAD = torch.is_grad_enabled()
_DTYPE = torch.get_default_dtype()
_jobs = 0
_rested = (0.0, 0.0)
"""When the last job was over, and the CPU seconds of this process by then."""


def _stamp() -> tuple[int, int] | None:
    """Of the file that every installation of torch writes anew."""
    with contextlib.suppress(OSError):
        status = Path(torch.__file__).with_name("version.py").stat()
        return status.st_mtime_ns, status.st_ino
    return None


_STAMP = _stamp()


def begin() -> None:
    """A job begins: random numbers as in a fresh process, so that inputs are the same."""
    global _jobs
    _jobs += 1
    if _jobs == 1:  # torch itself is half a million objects, which nobody need look through again
        gc.freeze()
    gc.enable()
    torch.manual_seed(_SEED)
    torch.set_grad_enabled(_GRAD)
    torch.set_default_dtype(_DTYPE)


def stale() -> bool:
    """Whether this process is not what a new one would be: torch was installed anew since it was
    imported, or threads that a choice has left compute on."""
    return _stamp() != _STAMP or _busy()


def _busy() -> bool:
    """Whether it took a CPU while it waited for this job. OpenMP's threads wait by spinning, but
    not for long."""
    waited, computed = time.monotonic() - _rested[0], time.process_time() - _rested[1]
    return _jobs > 0 and computed > max(SPINNING, BUSY * waited)


def spent() -> bool:
    """Whether this process can do no further job: the device is lost, or the hooks are off."""
    return _jobs >= MOST_JOBS or guard.is_aside() or not state.device_works()


def tidy() -> None:
    """After a job: forget what was compiled, give back what memory there is."""
    global _rested
    if torch_api.selector() is not None:
        torch_api.set_selector(None)
    capture.forget_tensors()
    state.release()
    if _jobs == 1:
        gc.freeze()
    _rested = time.monotonic(), time.process_time()
