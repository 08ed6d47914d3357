"""Tuning on the devices of this machine: the queue of jobs, with one worker a device.

The workers write their times into the cache dir themselves, as in every other tuning.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from backend.counted import counted
from backend.disk.layout import Layout
from backend.wire.jobs import CompileJob, CompileResult, Environment, EnvironmentJob, Gpu
from rocm_tui.environment import CPU, device_env, find_python, without_gpus
from rocm_tui.errors import UsageError
from rocm_tui.fleet.facts import OTHERS_SECONDS, FleetOptions, NoTuningDevice, facts_of, host_name
from rocm_tui.fleet.results import Results
from rocm_tui.fleet.units import Unit
from rocm_tui.jobs.limits import Limits
from rocm_tui.jobs.queue import Job, JobQueue, Order, QueueRun
from rocm_tui.jobs.tune import tuned
from rocm_tui.jobs.warm import MOST, Workers
from rocm_tui.jobs.worker import visible_gpus

MOST_CPUS = 256
_LOOK = 0.5
THREADS = "TORCHINDUCTOR_COMPILE_THREADS"


def local_devices(words: Sequence[str], there: int | None = None) -> tuple[list[str], int]:
    """Read `local`, `local:4`, `local:cpu`, `local:cpu:8`: the indices of GPUs, and how many CPU
    workers. Of a machine with `there` visible GPUs; without one `local:N` are CPU workers.

    Raises UsageError and NoTuningDevice.
    """
    there = len(visible_gpus(os.environ)) if there is None else there
    most_gpus, cpus = 0, 0
    for word in words:
        scheme, *parts = word.split(":")
        cpu = parts[:1] == [CPU] or not there
        count = parts[1:] if parts[:1] == [CPU] else parts
        if scheme != "local" or len(count) > 1 or not all(map(_is_count, count)):
            raise UsageError(
                f"{word} is not a fleet; write local, local:4, local:cpu, local:cpu:4 or ray"
            )
        many = int(count[0]) if count else (1 if cpu else there)
        if many > (MOST_CPUS if cpu else there):
            limit = f"{MOST_CPUS} at most" if cpu else f"{there} visible here"
            raise NoTuningDevice(f"{word} needs {many} devices; there are {limit}")
        if cpu:
            cpus += many
        else:
            most_gpus = max(most_gpus, many)
    return list(map(str, range(most_gpus))), cpus


def _is_count(word: str) -> bool:
    return word.isascii() and word.isdecimal() and int(word) > 0


@dataclass(slots=True)
class CompiledAhead:
    """Results of compiling ahead, and reasons for failures, by problem: its id, since
    several may have one title, and its title."""

    results: dict[str, CompileResult] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def reasons(self) -> dict[str, str]:
        """Why problems were not compiled."""
        not_ok = {name: r.reason for name, r in self.results.items() if not r.ok}
        return {**not_ok, **self.failures}

    @property
    def languages_off(self) -> set[str]:
        """Which languages were not compiled at all, and why, in a line each."""
        return {line for result in self.results.values() for line in result.off}

    @property
    def counts(self) -> dict[str, int]:
        """How many choices were compiled, were found compiled, and failed."""
        done = list(self.results.values())
        return {
            "compiled": sum(result.compiled for result in done),
            "found": sum(result.found for result in done),
            "failed": sum(len(result.failed) for result in done),
        }


class LocalDevices:
    """The devices that `words` name, each a lane of one queue. Use it in a `with` statement: its
    end ends all workers."""

    def __init__(self, layout: Layout, words: Sequence[str], python: str | None) -> None:
        """Raises UsageError, NoTuningDevice and NoTorchPython."""
        env = dict(os.environ)
        indices, cpus = local_devices(words)
        tuners = len(indices) or cpus
        if tuners > 1:  # each would start compilers for all cores of the machine
            env.setdefault(THREADS, str(max(1, len(os.sched_getaffinity(0)) // tuners)))
        self.gpus: Mapping[str, Mapping[str, str]] = {i: device_env(env, i) for i in indices}
        self.cpus: Mapping[str, Mapping[str, str]] = {f"cpu{n}": env for n in range(cpus)}
        self._layout = layout
        self._changed = threading.Event()
        self._queue = JobQueue(
            layout,
            self._changed.set,
            python=find_python(python, env),
            limits=Limits.of_this_machine(len(indices) + cpus),
            workers=Workers(layout.root, most=max(MOST, cpus)),
        )

    def __enter__(self) -> LocalDevices:
        return self

    def __exit__(self, *error: object) -> None:
        self._queue.stop()

    def tune(self, results: Results, wanted: FleetOptions) -> None:
        """Tune what is open until each problem has a result or a reason. Raises NoTuningDevice."""
        environments = self._examine(self.gpus or self.cpus, results, wanted)
        lanes = {
            lane: env
            for lane, env in (self.gpus or self.cpus).items()
            if _name(lane) in results.devices
        }
        results.skip_unfit(bool(self.gpus), wanted)
        if len(lanes) < wanted.repeat:
            wanted.tell(f"each problem is tuned on {counted(len(lanes), 'device')}, all there are")
        units = results.open()
        ahead = self._compile_ahead(units, environments) if self.gpus else {}
        orders = {
            self._submit(unit.title, self._tuning(unit, results, ahead), group): unit
            for group in _groups(lanes, wanted.repeat)
            for unit in units
        }
        for job in self._ended(orders, wanted.look):
            if job.state == "failed":
                results.failed(orders[job.id].id, _name(job.device), job.reason)

    def compile_only(self, units: Sequence[Unit], gpu: Gpu) -> CompiledAhead:
        """Compile our choices for such a GPU, and tune nothing. Raises NoTuningDevice."""
        if not self.cpus:
            raise NoTuningDevice("compiling needs workers without a GPU: --fleet local:cpu:8")
        compiled = CompiledAhead()
        lanes = {lane: self._without_gpus(env) for lane, env in self.cpus.items()}
        orders = {
            self._submit(unit.title, self._compiling(unit, gpu, compiled), lanes): unit
            for unit in units
        }
        for job in self._ended(orders, lambda: None):
            if job.state == "failed":
                compiled.failures[_problem(orders[job.id])] = job.reason
        return compiled

    def _examine(
        self, lanes: Mapping[str, Mapping[str, str]], results: Results, wanted: FleetOptions
    ) -> dict[str, Environment]:
        """Ask a worker of each device what it is, and choose the class that counts; devices that do
        not answer, or are of another class, get no work. Raises NoTuningDevice."""
        environments: dict[str, Environment] = {}
        job = EnvironmentJob(compilers=bool(self.gpus and self.cpus))

        def work(run: QueueRun) -> str:
            environments[run.lane] = run(job)
            return ""

        orders = {
            self._submit(f"look at {lane}", work, {lane: env}): lane for lane, env in lanes.items()
        }
        why = dict.fromkeys(lanes, f"it did not answer within {OTHERS_SECONDS:.0f} s")
        for ended in self._ended(orders, wanted.look, patience=OTHERS_SECONDS):
            why[orders[ended.id]] = ended.reason
        answered = dict(environments)  # a device that answers late still adds itself there
        for lane, environment in answered.items():
            if lane in self.gpus and not environment.gpu:
                why[lane] = f"torch sees no GPU {lane}"
            else:
                results.devices[_name(lane)] = facts_of(environment, lane in self.cpus)
        missing = {_name(lane): why[lane] for lane in lanes if _name(lane) not in results.devices}
        results.choose(wanted, missing)
        return answered

    def _compile_ahead(
        self, units: Sequence[Unit], environments: Mapping[str, Environment]
    ) -> dict[str, int]:
        """Compile on CPU workers what the GPUs will tune, at the lowest priority; the jobs by
        problem, which end when a GPU begins with it."""
        gpu = next(
            (
                Gpu(e.arch, e.compute_units, e.compilers)
                for e in environments.values()
                if e.arch and e.compute_units and e.compilers
            ),
            None,
        )
        lanes = {lane: self._without_gpus(env) for lane, env in self.cpus.items()}
        if gpu is None or not lanes:
            return {}
        ours, compiled = [unit for unit in units if unit.job.templates], CompiledAhead()
        return {
            unit.id: self._submit(unit.title, self._compiling(unit, gpu, compiled), lanes)
            for unit in ours
        }

    def _without_gpus(self, env: Mapping[str, str]) -> dict[str, str]:
        """For a worker that compiles for a GPU: Triton's kernels go where the GPU's worker, which
        sees one, looks for them."""
        folder = str(self._layout.root / "triton" / "0")
        return {"TRITON_CACHE_DIR": folder, **without_gpus(env)}

    def _tuning(
        self, unit: Unit, results: Results, ahead: Mapping[str, int]
    ) -> Callable[[QueueRun], str]:
        def work(run: QueueRun) -> str:
            if unit.id in ahead:
                self._queue.cancel(ahead[unit.id], wait=True)
            job = unit.job
            if run.lane in self.cpus and job.inputs is None and job.device is None:
                job = replace(job, device=CPU)  # GPUs stay visible to it: it would take one
            result = tuned(run, job)
            name = _name(run.lane)
            results.came(unit.id, name, results.devices[name], result)
            return ""

        return work

    def _compiling(
        self, unit: Unit, gpu: Gpu, compiled: CompiledAhead
    ) -> Callable[[QueueRun], str]:
        def work(run: QueueRun) -> str:
            compiled.results[_problem(unit)] = run(CompileJob(unit.job, gpu))
            return ""

        return work

    def _submit(
        self, title: str, work: Callable[[QueueRun], str], lanes: Mapping[str, Mapping[str, str]]
    ) -> int:
        first, *others = lanes
        other_lanes = {lane: lanes[lane] for lane in others}
        order = Order("tune", title, first, work, env=lanes[first], other_lanes=other_lanes)
        return self._queue.submit(order).id

    def _ended(
        self, ids: Collection[int], look: Callable[[], None], patience: float | None = None
    ) -> Iterator[Job]:
        """The jobs as they end, until all have; not later than `patience` seconds after the first
        that was done."""
        open_, end = set(ids), math.inf
        while open_ and time.monotonic() < end:
            self._changed.wait(_LOOK)
            self._changed.clear()
            for job in self._queue.look()[1]:
                if job.id in open_:
                    open_.remove(job.id)
                    if patience is not None and job.state == "done":
                        end = min(end, time.monotonic() + patience)
                    yield job
            look()


def _problem(unit: Unit) -> str:
    return f"{unit.id} {unit.title}"


def _name(lane: str) -> str:
    return f"{host_name()}:{lane}"


def _groups(
    lanes: Mapping[str, Mapping[str, str]], repeat: int
) -> list[dict[str, Mapping[str, str]]]:
    """Divide the lanes, so that each problem is tuned once in each of `repeat` groups."""
    groups: list[dict[str, Mapping[str, str]]] = [{} for _ in range(min(repeat, len(lanes)))]
    for number, (lane, env) in enumerate(lanes.items()):
        groups[number % len(groups)][lane] = env
    return groups
