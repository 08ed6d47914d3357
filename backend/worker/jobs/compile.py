"""Compiling our choices of a problem for a GPU that may be absent.

Inductor compiles the problem like a worker on that GPU, with tensors that have no memory, until it
selects: the choices that the templates then offer are those offered there, with the same sources.
torch's own choices are left to the GPU's worker: their texts depend on the device itself.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from backend.counted import counted
from backend.errors import ToolchainError
from backend.inductor.benchmark.errors import ChoiceError
from backend.inductor.benchmark.request import KernelSpec
from backend.inductor.hip.caller import offerable
from backend.inductor.hooks import selector
from backend.inductor.hooks.backends import HIP_LANGUAGE, TRITON_LANGUAGE, compilers_for
from backend.inductor.hooks.recording import Recorder
from backend.inductor.hooks.selector import Selector
from backend.inductor.torch import compiling
from backend.inductor.torch import tuning as torch_api
from backend.model.events import Event
from backend.processes.shared import ChoiceMark
from backend.toolchain import targets
from backend.toolchain.target import amdgpu
from backend.wire.jobs import CompileJob, CompileResult, Gpu, TuneJob
from backend.worker.problem import (
    Recipe,
    asked_problem,
    rebuild_asked,
    set_precision,
    settings_of,
    template_choices,
)
from backend.worker.protocol import ReportProgress
from backend.worker.rebuilt import NotRebuildable, SelectionDone, compile_asking
from backend.worker.retuning import NoPins, untuned

_NICE = 19
_for: list[Gpu] = []
"""The GPU that this process simulates."""


class _NullRecorder(Recorder):
    """A recorder without a session, since nothing is tuned."""

    def write(self, event: Event) -> None:
        """Ignore the event."""


class _OfferCollector(Selector):
    """Collects the choices that our templates offer for the wanted problem."""

    def __init__(self, problem: Recipe) -> None:
        super().__init__(_NullRecorder(), NoPins())
        self._problem = problem
        self.answered = False
        self.offered: list[Any] = []
        self.keys: list[str] = []

    def __call__(
        self, name: str, choices: Any, input_nodes: Any, layout: Any, *args: Any, **kwargs: Any
    ) -> Any:
        key = torch_api.tuning_key(name, input_nodes, layout, kwargs)
        if not self._problem.is_met_by(key):
            self.keys.append(f"{key.op} {key.inputs}")
            return untuned(self, name, choices, input_nodes, layout)
        self.offered = offerable(template_choices(name, choices, input_nodes, layout), choices)
        self.answered = True
        raise SelectionDone


def run(job: CompileJob, progress: ReportProgress, mark: ChoiceMark) -> CompileResult:
    """Compile the choices. Raises JobInvalid for an invalid problem."""
    off = _become(job.gpu)
    if len(off) == len(_LANGUAGES):
        return CompileResult(ok=False, reason="; ".join(off), off=off)
    try:
        with compiling.without_memory():
            offered = _offered(asked_problem(_on_gpu(job.tune)), job)
    except NotRebuildable as error:
        return CompileResult(ok=False, reason=str(error), off=off)
    lost = {line.partition(":")[0] for line in off}
    labels = ("HIP" if isinstance(each.bmreq.spec, KernelSpec) else "Triton" for each in offered)
    wanted = [each for each, label in zip(offered, labels, strict=True) if label not in lost]
    return _compiled(wanted, off, progress)


def _on_gpu(job: TuneJob) -> TuneJob:
    """Return the job for the GPU, unless it names a device or a key."""
    return replace(job, device="cuda") if job.inputs is None and job.device is None else job


_LANGUAGES = {HIP_LANGUAGE: "HIP", TRITON_LANGUAGE: "Triton"}


def _become(gpu: Gpu) -> tuple[str, ...]:
    """Simulate that GPU, at the lowest priority; return a line for each language that is off."""
    if not _for:
        os.nice(_NICE)
        compiling.pretend_gpu(gpu.arch, gpu.compute_units)
        selector.install()
        if gpu.compilers:
            targets.load_nothing()
        _for.append(gpu)
    here, there = compilers_for(gpu.arch), gpu.compilers
    return tuple(
        f"{label}: {_why(label, here.get(name), gpu)}"
        for name, label in _LANGUAGES.items()
        if name not in here or (there and there.get(name) != here[name])
    )


def _why(label: str, here: str | None, gpu: Gpu) -> str:
    if here is None:
        return f"no compiler here for {amdgpu(gpu.arch).arch}"
    return f"the GPU's host has another {label} compiler, or none"


def _offered(problem: Recipe, job: CompileJob) -> list[Any]:
    """Return the offered choices. Raises NotRebuildable."""
    set_precision(problem.key)
    program = rebuild_asked(problem, job.tune.options)
    selector = _OfferCollector(problem)
    try:
        trouble = compile_asking(
            selector, program, {**settings_of(0), **compiling.ABSENT_GPU_SETTINGS}
        )
    finally:
        torch_api.set_selector(None)
    if selector.answered:
        return selector.offered
    trouble = f": {trouble}" if trouble else ""
    keys = "; ".join(selector.keys) or "nothing"
    raise NotRebuildable(f"{problem.op} was not tuned without its GPU, but {keys}{trouble}")


def _compiled(
    offered: Sequence[Any], off: tuple[str, ...], progress: ReportProgress
) -> CompileResult:
    compiled, from_cache, failed = 0, 0, dict[str, str]()
    for number, choice in enumerate(offered):
        progress(
            f"compiling {number + 1} of {counted(len(offered), 'choice')}",
            compiled=compiled + from_cache,
            total=len(offered),
        )
        try:
            there = _compile_ahead(choice.bmreq)
        except (ChoiceError, ToolchainError) as error:
            failed[choice.name] = str(error)
        else:
            from_cache, compiled = from_cache + there, compiled + (not there)
    return CompileResult(ok=True, compiled=compiled, found=from_cache, failed=failed, off=off)


def _compile_ahead(request: Any) -> bool:
    """Compile a choice; return whether the cache had it. Raises ChoiceError, ToolchainErrors."""
    spec = request.spec
    cached: bool = spec.compiled() if isinstance(spec, KernelSpec) else request.compile_ahead()
    return cached
