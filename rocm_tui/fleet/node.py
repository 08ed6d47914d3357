"""The task that Ray runs on a node: one tuning, in a worker of the node's own torch.

A node needs Ray, torch and nothing of ours: Ray brings `rocm_tui` and `backend` there, and has
psutil and filelock itself. The worker's cache dir is private, so that nothing that others wrote
decides what is tuned; its times go back as plain data.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import psutil

from backend import VISIBLE
from backend.cache.journal import Journal, Tuned, line_of
from backend.disk.layout import Layout
from backend.errors import StoreError
from backend.wire.codec import dumps, loads, read, to_json
from backend.wire.jobs import EnvironmentJob, TuneJob, TuneResult, WorkerJob
from rocm_tui.environment import CPU, find_python
from rocm_tui.fleet.facts import Facts, facts_of
from rocm_tui.jobs.limits import Limits
from rocm_tui.jobs.run import run_watched
from rocm_tui.jobs.tune import tuned
from rocm_tui.jobs.warm import Workers

R = TypeVar("R")
_PREFIX = "rocm-tui-ray-"


@dataclass(frozen=True, slots=True)
class NodeTask:
    """One tuning on a node; without a `job`, only the device is described.

    `cached_ms` are times of the problem by choice hash; `workers` share the memory of that host.
    """

    job: TuneJob | None = None
    cached_ms: Mapping[str, float] | None = None
    python: str | None = None
    workers: int = 1


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """The result of a node. `gpu` is Ray's name of the GPU, None if a CPU tuned."""

    node: str
    gpu: str | None
    facts: Facts
    result: TuneResult | None = None


def remote_task() -> Callable[[str], str]:
    """Return the function that Ray runs: from a `NodeTask` to a `NodeAnswer`, both in JSON. Each of
    Ray's processes has a copy, whose worker stays warm from one task to the next."""
    warm: list[NodeWorker] = []

    def run_task(text: str) -> str:
        import ray  # optional, and there is one where this runs

        context = ray.get_runtime_context()
        task, gpus = read(NodeTask, loads(text)), context.get_accelerator_ids().get("GPU") or [None]
        if warm and warm[0].gpu != gpus[0]:
            warm.pop().end()
        if not warm:
            warm.append(NodeWorker(gpus[0], task))
        return dumps(to_json(warm[0].do(task, context.get_node_id())))

    return run_task


class NodeWorker:
    """A worker for the GPU that Ray gave; without one, for the CPU."""

    def __init__(self, gpu: str | None, task: NodeTask) -> None:
        """Raises NoTorchPython."""
        self.gpu = gpu
        self._env = node_env(first_environment(), gpu)
        self._python = find_python(task.python or sys.executable, self._env)
        self._limits = Limits.of_this_machine(task.workers)
        _remove_left()
        self._folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
        self._layout = Layout(self._folder)
        self._workers = Workers(self._layout.root)
        self._facts: Facts | None = None

    def end(self) -> None:
        self._workers.end()
        shutil.rmtree(self._folder, ignore_errors=True)

    def do(self, task: NodeTask, node: str) -> NodeAnswer:
        """Raises JobError, which lets Ray try again."""
        if self._facts is None:
            self._facts = facts_of(self._run(EnvironmentJob()), self.gpu is None)
        answer, job = NodeAnswer(node, self.gpu, self._facts), task.job
        if job is None:
            return answer
        if self.gpu is not None and self._facts.device == CPU:
            reason = f"torch sees no GPU {self.gpu} on {self._facts.host}"
            return replace(answer, result=TuneResult(ok=False, reason=reason))
        if self.gpu is None and job.inputs is None and job.device is None:
            job = replace(job, device=CPU)  # GPUs stay visible to it: it would take one
        try:
            self._seed(job, task.cached_ms or {})
        except StoreError as error:
            return replace(answer, result=TuneResult(ok=False, reason=str(error)))
        return replace(answer, result=tuned(self._run, job))

    def _run(self, job: WorkerJob[R]) -> R:
        return run_watched(
            job,
            python=self._python,
            layout=self._layout,
            env=self._env,
            limits=self._limits,
            on_progress=lambda progress: None,
            workers=self._workers,
        )

    def _seed(self, job: TuneJob, known: Mapping[str, float]) -> None:
        """Let this cache dir show in which mode the problem was tuned, as the driver's does."""
        assert self._facts is not None
        if known and job.inputs is not None and job.precision is not None:
            line = line_of(Tuned(job.op, job.inputs, job.precision, known, time.time()))
            path = self._layout.cache_file(self._facts.system_hash)
            Journal(self._layout.root, path).append(line)


def _remove_left() -> None:
    """Remove the cache dirs of Ray's processes that have ended: Ray kills them at the end of a
    run."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*-*"):
        pid = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if pid.isdecimal() and not psutil.pid_exists(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)


def first_environment() -> dict[str, str]:
    """The environment that this process began with, before Ray changed it: not `OMP_NUM_THREADS`,
    with which the choices of a CPU have other hashes than in a program beside Ray, and no empty
    list of GPUs, with which PyTorch's cache file has another name."""
    text = os.fsdecode(Path("/proc/self/environ").read_bytes())
    pairs = (part.partition("=") for part in text.split("\0") if part)
    return {name: value for name, _, value in pairs}


def node_env(env: Mapping[str, str], gpu: str | None) -> dict[str, str]:
    """`env` with the one GPU that Ray gave. Of the two variables of GPUs Ray sets one, or none
    (RAY_EXPERIMENTAL_NOSET_...); both are set, and alike."""
    return dict(env) if gpu is None else {**env, **dict.fromkeys(VISIBLE, gpu)}
