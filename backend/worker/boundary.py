"""The boundary of a job: what one leaves to the next, and the hashes by which it names choices.

A job finds what a fresh process has, and leaves no memory that others could use. Threads, autotune
mode and selector are set by each job for itself; whoever keeps the worker has to know what cannot
be taken back. A worker says that it is `spent` where it cannot go on.

A Triton choice has another hash on each device (`backend.cache.variants`). `run_here` replaces the
hashes of a job by those of the device that this process uses, and replaces them back in the result,
so a job knows nothing of other devices. What a job writes into a log meanwhile goes through
`as_asked`.
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
from backend.worker.protocol import TellProgress

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


T = TypeVar("T")
R = TypeVar("R")

_DIGEST = re.compile(r"(?<=-)c[a-z2-7]{51}(?![a-z2-7])")


@dataclass(frozen=True, slots=True)
class JobHashes:
    """`here` are the digests that end the hashes of a job's choices on this device, by those that
    the job names; `asked` is the way back."""

    variants: ChoiceVariants
    here: Mapping[str, str] = field(default_factory=dict)
    asked: Mapping[str, str] = field(default_factory=dict)

    def on_this_device(self, value: T) -> T:
        return cast(T, _replaced(value, self.here))

    def as_asked(self, value: T) -> T:
        return cast(T, _replaced(value, self.asked))


def hashes_of(job: WorkerJob[Any], root: Path) -> JobHashes:
    """The hashes of `job` on the GPU that it runs on, found by the modules below the cache dir
    `root`. Without a GPU no hash is another."""
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
    asked: dict[str, str] = {}
    for named, own in here.items():
        if own not in here:  # else the job names this device's hash too
            asked.setdefault(own, named)
    return JobHashes(variants, here, asked)


_current: JobHashes | None = None


def run_here(
    run: Callable[[Any, TellProgress, ChoiceMark], R],
    job: WorkerJob[R],
    tell: TellProgress,
    mark: ChoiceMark,
) -> R:
    """Run `job` with the hashes of this device, and return its result with those that it names.

    The result of a tuning keeps this device's: they are where its times are.
    """
    global _current
    hashes = _current = hashes_of(job, root_of(job))
    mark.named = hashes.as_asked
    result = run(hashes.on_this_device(job), tell, mark)
    return result if isinstance(job, TuneJob) else hashes.as_asked(result)


def as_asked(value: T) -> T:
    """`value` with the hashes that the job names which runs now."""
    return value if _current is None else _current.as_asked(value)


def root_of(job: WorkerJob[Any]) -> Path:
    """The cache dir that has the modules of the choices which a job names: the person's, also for a
    trial, whose own cache dir is a private one."""
    own = home.current()
    if not isinstance(job, TrialJob):
        return own
    if job.root:
        return Path(job.root)
    outer = own.parents[2] if len(own.parents) > 2 else own
    return outer if Layout(outer).trials == own else own


def why_not_offered(hash: str, offered: Iterable[str]) -> str | None:
    """Why this process does not offer the Triton choice `hash`, as far as that is due to devices;
    None where it is not. `offered` are the hashes of the choices that there are."""
    if not may_differ(hash):
        return None
    named = as_asked(hash)
    variants = ChoiceVariants(cache_dir()) if _current is None else _current.variants
    module = variants.module(named)
    if module is None:
        return "its module is not in the cache dir, so its hash on this device is unknown"
    modules = map(ChoiceVariants(cache_dir()).module, offered)
    here = next((found for found in modules if found is not None), None)
    differences = [] if here is None else _differences(module, here)
    if not differences:
        return None
    return f"it was tuned on another kind of device ({'; '.join(differences)})"


def _differences(tuned: DeviceModule, here: DeviceModule) -> list[str]:
    """`multi_processor_count 304, here 228` for each property of the device that differs."""
    there, own = tuned.properties, here.properties
    return [
        f"{name} {there.get(name, 'unknown')}, here {own.get(name, 'unknown')}"
        for name in {**there, **own}
        if there.get(name) != own.get(name)
    ]


def _device_of(job: WorkerJob[Any]) -> int | None:
    """The GPU that a job runs on; None where this process sees none."""
    if isinstance(job, VerifyJob) and job.gpu is not None:
        return job.gpu
    return int(torch.cuda.current_device()) if torch.cuda.is_available() else None


def _texts(value: object) -> Iterator[str]:
    """All texts in a value of the wire."""
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
    """`value` with each of `digests` replaced in all its texts."""
    if not digests:
        return value
    if isinstance(value, str):
        return _DIGEST.sub(lambda found: digests.get(found[0], found[0]), value)
    if isinstance(value, Mapping):
        return {_replaced(k, digests): _replaced(v, digests) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(_replaced(part, digests) for part in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        old = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
        return dataclasses.replace(value, **_replaced(old, digests))
    return value
