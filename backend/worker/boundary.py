"""The boundary of a job: the state that it leaves to the next job, and its choice hashes.

A job finds the state of a fresh process, and leaves no memory occupied. Threads, autotune mode and
selector are set by each job for itself; whoever keeps the worker must know which changes are
irreversible. A worker that cannot continue reports that it is `spent`.

A Triton choice has another hash on each device (`backend.cache.variants`). `run_here` replaces the
hashes of a job by those of this process's device, and replaces them back in the result, so a job is
independent of other devices. Log entries written by a job are converted by `as_asked`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

import torch

from backend.cache.code import digest_in
from backend.cache.variants import ChoiceVariants, DeviceModule, may_differ
from backend.disk.layout import Layout, cache_dir
from backend.inductor import guard
from backend.inductor.hooks.environment import home
from backend.inductor.torch import state
from backend.inductor.torch import tuning as torch_api
from backend.processes.shared import ChoiceMark
from backend.wire.jobs import TrialJob, TuneJob, VerifyJob, WorkerJob
from backend.worker import capture
from backend.worker.protocol import ReportProgress

MOST_JOBS = 100
"""The jobs of a process before another continues: torch keeps all loaded kernels."""

BUSY, SPINNING = 0.1, 1.0
"""The share of a CPU, and the CPU seconds, that a worker may use while it waits."""

_SEED = torch.initial_seed()
_GRAD = torch.is_grad_enabled()
_DTYPE = torch.get_default_dtype()
_jobs = 0
_rested = (0.0, 0.0)
"""When the last job ended, and the CPU seconds of this process until then."""


def _stamp() -> tuple[int, int] | None:
    """Return the stamp of the file that every installation of torch writes."""
    with contextlib.suppress(OSError):
        status = Path(torch.__file__).with_name("version.py").stat()
        return status.st_mtime_ns, status.st_ino
    return None


_STAMP = _stamp()


def begin() -> None:
    """Begin a job: reset random numbers as in a fresh process, so that inputs are the same."""
    global _jobs
    _jobs += 1
    if _jobs == 1:  # excludes torch's half a million objects from later collections
        gc.freeze()
    gc.enable()
    torch.manual_seed(_SEED)
    torch.set_grad_enabled(_GRAD)
    torch.set_default_dtype(_DTYPE)


def stale() -> bool:
    """Return whether this process differs from a new one: torch was reinstalled since it was
    imported, or threads left by a choice are computing."""
    return _stamp() != _STAMP or _busy()


def _busy() -> bool:
    """Return whether the process used a CPU while it waited for this job. OpenMP's threads spin
    while waiting, but not for long."""
    waited, computed = time.monotonic() - _rested[0], time.process_time() - _rested[1]
    return _jobs > 0 and computed > max(SPINNING, BUSY * waited)


def spent() -> bool:
    """Return whether this process can do no more jobs: a lost device, or hooks that are off."""
    return _jobs >= MOST_JOBS or guard.is_aside() or not state.device_works()


def tidy() -> None:
    """Clean up after a job: discard compiled code, free memory."""
    global _rested
    if torch_api.selector() is not None:
        torch_api.set_selector(None)
    capture.forget_tensors()
    state.release()
    if _jobs == 1:
        gc.freeze()
    _rested = time.monotonic(), time.process_time()


T = TypeVar("T")
R = TypeVar("R")

_DIGEST = re.compile(r"(?<=-)c[a-z2-7]{51}(?![a-z2-7])")


@dataclass(frozen=True, slots=True)
class JobHashes:
    """`here` are the digests of the job's hashes on this device, by the job's; `asked` inverts
    it."""

    variants: ChoiceVariants
    here: Mapping[str, str] = field(default_factory=dict)
    asked: Mapping[str, str] = field(default_factory=dict)

    def on_this_device(self, value: T) -> T:
        return cast(T, _replaced(value, self.here))

    def as_asked(self, value: T) -> T:
        return cast(T, _replaced(value, self.asked))


def hashes_of(job: WorkerJob[Any], root: Path) -> JobHashes:
    """Return the hashes of `job` on its GPU, from the modules in the cache dir `root`. Without a
    GPU all hashes stay the same."""
    variants = ChoiceVariants(root)
    modules: dict[str, DeviceModule] = {}
    for name in _texts(job):
        digest = digest_in(name)
        module = None if digest is None else variants.module(name)
        if digest is not None and module is not None and module.index is not None:
            modules[digest] = module
    device = _device_of(job) if modules else None  # a job without such hashes may need no GPU
    if device is None:
        return JobHashes(variants)
    here = {digest: module.key(device) for digest, module in modules.items()}
    named_by_own: dict[str, str] = {}
    for named, own in here.items():
        if own not in here:  # else the job also names this device's hash
            named_by_own.setdefault(own, named)
    return JobHashes(variants, here, named_by_own)


_current: JobHashes | None = None


def run_here(
    run: Callable[[Any, ReportProgress, ChoiceMark], R],
    job: WorkerJob[R],
    progress: ReportProgress,
    mark: ChoiceMark,
) -> R:
    """Run `job` with the hashes of this device, and return its result with the hashes in the job.
    The result of a tuning keeps this device's hashes, under which its times are stored."""
    global _current
    hashes = _current = hashes_of(job, root_of(job))
    mark.named = hashes.as_asked
    result = run(hashes.on_this_device(job), progress, mark)
    return result if isinstance(job, TuneJob) else hashes.as_asked(result)


def as_asked(value: T) -> T:
    """Return `value` with the hashes of the current job."""
    return value if _current is None else _current.as_asked(value)


def root_of(job: WorkerJob[Any]) -> Path:
    """Return the cache dir with the modules of a job's choices: the person's, also for a trial,
    whose own cache dir is private."""
    own = home.current()
    if not isinstance(job, TrialJob):
        return own
    if job.root:
        return Path(job.root)
    outer = own.parents[2] if len(own.parents) > 2 else own
    return outer if Layout(outer).trials == own else own


def why_not_offered(hash: str, offered: Iterable[str]) -> str | None:
    """Return why this process does not offer the Triton choice `hash`, if the cause is a device;
    else None. `offered` are the hashes of the offered choices."""
    if not may_differ(hash):
        return None
    named = as_asked(hash)
    variants = ChoiceVariants(cache_dir()) if _current is None else _current.variants
    own_module = variants.module(named)
    if own_module is None:
        return "its module is not in the cache dir, so its hash on this device is unknown"
    modules = map(ChoiceVariants(cache_dir()).module, offered)
    here = next((module for module in modules if module is not None), None)
    differences = [] if here is None else _differences(own_module, here)
    if not differences:
        return None
    return f"it was tuned on another kind of device ({'; '.join(differences)})"


def _differences(tuned: DeviceModule, here: DeviceModule) -> list[str]:
    """Return `multi_processor_count 304, here 228` for each property of the device that differs."""
    there, own = tuned.properties, here.properties
    return [
        f"{name} {there.get(name, 'unknown')}, here {own.get(name, 'unknown')}"
        for name in {**there, **own}
        if there.get(name) != own.get(name)
    ]


def _device_of(job: WorkerJob[Any]) -> int | None:
    """Return the GPU of a job; None if this process sees none."""
    if isinstance(job, VerifyJob) and job.gpu is not None:
        return job.gpu
    return int(torch.cuda.current_device()) if torch.cuda.is_available() else None


def _texts(value: object) -> Iterator[str]:
    """Yield all texts in a value of the wire."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for pair in value.items():
            yield from _texts(pair)
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _texts(part)
    elif dataclasses.is_dataclass(value):
        for each in dataclasses.fields(value):
            yield from _texts(getattr(value, each.name))


def _replaced(value: Any, digests: Mapping[str, str]) -> Any:
    """Return `value` with each of `digests` replaced in all its texts."""
    if not digests:
        return value
    if isinstance(value, str):
        return _DIGEST.sub(lambda match: digests.get(match[0], match[0]), value)
    if isinstance(value, Mapping):
        return {_replaced(k, digests): _replaced(v, digests) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(_replaced(part, digests) for part in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        old = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
        return dataclasses.replace(value, **_replaced(old, digests))
    return value
