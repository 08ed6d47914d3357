"""Trials of a captured graph: Inductor's selector with choices put in place by raised numbers, as a
pin does.

A pin that stock PyTorch follows only raises its rivals' times. So the selector sees the same here,
and all decisions by these times, such as fusions, are those of a program with the pin.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf, isfinite
from pathlib import Path
from typing import Any

import torch

from backend.cache.autotune import cache_paths, raise_ms
from backend.counted import counted
from backend.disk import safe
from backend.disk.layout import Layout
from backend.disk.trusted import opened_file
from backend.errors import CacheUnreadable, StoreError, UnsafePath
from backend.inductor.benchmark.request import BenchmarkDevice
from backend.inductor.hooks import recording
from backend.inductor.hooks.environment import home, kernels_version
from backend.inductor.sampling import free_bytes, pci_address
from backend.inductor.torch import tuning as torch_api
from backend.inductor.torch.captured import option_value, usable_settings
from backend.inductor.torch.compiling import CompiledGraph, FakeTensors, compile_graph
from backend.inductor.torch.tuning import ChoiceCaller
from backend.measure.rounds import ChoiceBroke, measure, trouble_of
from backend.model.events import GraphTried
from backend.model.graph import (
    RETUNED,
    TEMPLATES,
    Arm,
    CompileOption,
    Swap,
    Trial,
    TrialArm,
    control_of,
    hashes_of,
    offers_templates,
    options_of,
    swaps_of,
)
from backend.model.origin import is_own
from backend.model.problem import TuningKey
from backend.processes.shared import ChoiceMark
from backend.wire.captured import MOST_BYTES
from backend.wire.jobs import JobInvalid, TrialJob, TrialResult
from backend.worker.boundary import as_asked, root_of, why_not_offered
from backend.worker.children import run_children
from backend.worker.problem import set_threads, template_choices
from backend.worker.protocol import ReportProgress, rounds_reporter
from backend.worker.trial.drawn import NotDrawable, drawn_constants, drawn_inputs
from backend.worker.trial.passes import (
    ArmRounds,
    OutputDifference,
    OutputsDiffer,
    PassBench,
    allowed_error,
    changed,
    kernels_of,
    output_difference,
)
from backend.worker.trial.program import CapturedProgram, TensorInput, program_of
from backend.worker.trial.text import TextRefused


@dataclass(frozen=True, slots=True)
class ArmCache:
    """What the processes of one search share about compiled arms, in the folder `home/arms`.

    `state` is a digest of the graph, the system and the times that all arms find. For an arm of
    that state, one file has the times that only its options needed, another the name of the graph
    that Inductor has in its cache. `device` names the device on which one process at a time may
    time. `ours` has the times that this process kept, by file, in case they cannot be written.
    """

    layout: Layout
    state: str
    device: str
    ours: dict[Path, dict[str, Mapping[str, float]]] = field(
        default_factory=dict, compare=False, repr=False
    )

    def file(self, arm: Arm, kind: str) -> Path:
        words = sorted(change.identity for change in arm)
        if kind == "times":
            words = sorted(option.label for option in options_of(arm))
            words += [change.label for change in (TEMPLATES, RETUNED) if change in arm]
        name = hashlib.sha256("\n".join([self.state, *words]).encode()).hexdigest()[:32]
        return self.layout.home / "arms" / f"{name}.{kind}"

    def load(self, arm: Arm, kind: str) -> Mapping[str, Any]:
        try:
            return safe.load_json(path := self.file(arm, kind), safe.read_bytes(path))
        except CacheUnreadable:
            return {}

    def times(self, arm: Arm) -> dict[str, dict[str, float]]:
        times = {key: dict(own) for key, own in self.ours.get(self.file(arm, "times"), {}).items()}
        for key, kept in _times_in(self.load(arm, "times")).items():
            times[key] = {**times.get(key, {}), **kept}
        return times

    def keep_times(self, arm: Arm, key: str, times: Mapping[str, float]) -> None:
        """Keep times of one tuning; times that another process has kept stay. Raises StoreErrors
        if other processes do not find them, also rather than overwrite times that cannot be
        read."""
        self.ours.setdefault(self.file(arm, "times"), {})[key] = times
        with self._locked(arm, "times") as path:
            there = safe.load_json(path, safe.read_bytes(path)) if safe.exists(path) else {}
            known = _times_in(there)
            known[key] = {**times, **known.get(key, {})}
            safe.write_atomic(path, json.dumps(known).encode())

    def keep_graph(self, arm: Arm, document: Mapping[str, Any]) -> None:
        """Keep the name of a compiled graph. Raises StoreErrors."""
        with self._locked(arm, "graph") as path:
            safe.write_atomic(path, json.dumps(document).encode())

    @contextlib.contextmanager
    def _locked(self, arm: Arm, kind: str) -> Iterator[Path]:
        path = self.file(arm, kind)
        safe.make_folder(self.layout.root, path.parent)
        with safe.locked(self.layout.root, path):
            yield path

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other processes from timing trials on the device."""
        path = self.layout.home / "arms" / f"{self.device}.lock"
        safe.make_folder(self.layout.root, path.parent)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _times_in(document: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    return {
        key: {hash: ms for hash, ms in times.items() if isinstance(ms, float)}
        for key, times in document.items()
        if isinstance(times, dict)
    }


class ArmSelector(torch_api.LazySelector):
    """The selector of an arm; `offered` receives all choices. `shared` is whether other processes
    find the times that it needed.

    If an option offers one more choice, Inductor benchmarks all choices of that tuning again and
    writes the times to its cache. The next arms would be faster or slower by that, not by what they
    change. So these times stay with the arm, on the scale of the cache's: what the cache has stays,
    and the others are compared with the choice that is the fastest there.
    """

    def __init__(self, arm: Arm, cache: ArmCache | None) -> None:
        super().__init__()
        self._arm = arm
        self._swaps = hashes_of(arm)
        self._templates = offers_templates(arm)
        self._retuned = RETUNED in arm
        has_own = bool(options_of(arm)) or self._templates or self._retuned
        self._cache = cache if has_own else None
        self._own: dict[str, dict[str, float]] = {}
        if self._cache is not None:
            self._own = self._cache.times(arm)
        self.offered: dict[TuningKey, dict[str, str]] = {}
        self.unbenchmarked: set[TuningKey] = set()
        self.shared = True

    def __call__(
        self, name: str, choices: Any, input_nodes: Any, layout: Any, *args: Any, **kwargs: Any
    ) -> Any:
        if len(choices) < 2 and not torch_api.wants_tuning():
            return super().__call__(name, choices, input_nodes, layout, *args, **kwargs)
        key = torch_api.tuning_key(name, input_nodes, layout, kwargs)
        wanted = self._swaps.get(key)
        if self._templates or (wanted is not None and is_own(wanted)):
            choices = [*choices, *template_choices(name, choices, input_nodes, layout)]
            self._saw(key, choices)
            if not self._templates:
                choices = [c for c in choices if c.hash_key() == wanted] or choices
        self._saw(key, choices)
        return super().__call__(name, choices, input_nodes, layout, *args, **kwargs)

    def _saw(self, key: TuningKey, choices: Any) -> None:
        names = self.offered.setdefault(key, {})
        names.update({choice.hash_key(): str(choice.name) for choice in choices})

    def lookup(
        self,
        choices: list[ChoiceCaller],
        op: str,
        inputs: str,
        benchmark: Callable[..., Any] | None,
        **kwargs: Any,
    ) -> Any:
        key = TuningKey(op, inputs, torch_api.precision())
        if self._cache is not None and not kwargs.get("hint_override"):
            timings = self._looked_up(choices, key, benchmark)
        else:
            timings = super().lookup(choices, op, inputs, benchmark, **kwargs)
        wanted = self._swaps.get(key)
        own = [ms for choice, ms in timings.items() if choice.hash_key() == wanted]
        if not own:
            return timings
        if not all(map(isfinite, own)):  # Inductor would take another one
            self.unbenchmarked.add(key)
        return {
            choice: ms if choice.hash_key() == wanted else raise_ms(ms)
            for choice, ms in timings.items()
        }

    def _looked_up(
        self,
        choices: list[ChoiceCaller],
        key: TuningKey,
        benchmark: Callable[..., Any] | None,
    ) -> Mapping[ChoiceCaller, float]:
        assert self._cache is not None
        known = dict(self._own.get(str(key), {}))
        if not self._retuned:
            cached = super().get_local_cache().get(key.op, {}).get(key.inputs, {})
            known |= cached.get(key.precision, {})
        if benchmark and any(choice.hash_key() not in known for choice in choices):
            fresh = {choice.hash_key(): ms for choice, ms in benchmark(choices).items()}
            known = {**known, **_on_scale(fresh, known)}
            try:
                self._cache.keep_times(self._arm, str(key), known)
            except StoreError:  # Inductor would take it for an error of the arm
                self.shared = False
            self._own = self._cache.times(self._arm)
            known |= self._own[str(key)]
        hashes = ((choice, choice.hash_key()) for choice in choices)
        return {choice: known[hash] for choice, hash in hashes if hash in known}


def _on_scale(fresh: Mapping[str, float], known: Mapping[str, float]) -> dict[str, float]:
    """Return the times of choices that are not known: relative to the fastest known choice, which
    was benchmarked with them."""
    both = [(ms, hash) for hash, ms in known.items() if isfinite(fresh.get(hash, inf))]
    ms, fastest = min(both, default=(0.0, ""))
    scale = ms / fresh[fastest] if isfinite(ms) and ms > 0 and fresh[fastest] > 0 else 1.0
    return {hash: ms * scale for hash, ms in fresh.items() if hash not in known}


class ArmNotCompiled(Exception):
    """The graph cannot be compiled with an arm; the message is one line."""


def compile_arm(
    program: CapturedProgram,
    constants: Mapping[str, Any],
    weights: Sequence[Any],
    arm: Arm,
    *,
    stock: bool,
    cache: ArmCache | None = None,
    anew: bool = False,
) -> CompiledGraph:
    """Compile an arm, or load it if another process compiled it, unless `anew`.

    `weights` are the drawn inputs, some of which may become constants. Raises ArmNotCompiled, also
    if a choice of the arm was not compiled in.
    """
    try:
        options = {
            option.name: option_value(option.name, option.value) for option in options_of(arm)
        }
    except ValueError as error:
        raise ArmNotCompiled(str(error)) from error
    known = identity = ""
    if cache is not None and not anew:
        known = str(cache.load(arm, "graph").get("identity", ""))
        identity = known or secrets.token_hex(16)
    selector = ArmSelector(arm, cache)
    torch_api.set_selector(None if stock else selector)
    timing = torch_api.benchmarks_within(cache.alone) if cache else contextlib.nullcontext()
    try:
        with timing:
            compiled = _compiled_arm(
                program,
                constants,
                weights,
                options,
                graph_cache=(stock and not anew) or bool(identity),
                name=identity,
            )
    except Exception as error:  # a compiler error is this arm's result
        raise ArmNotCompiled(f"it does not compile: {torch_api.describe(error)}") from error
    finally:
        torch_api.set_selector(None)
    loaded = known and not selector.offered  # checked when it was compiled first
    for swap in () if stock or loaded else swaps_of(arm):
        offered = selector.offered.get(swap.key)
        if offered is None:
            raise ArmNotCompiled(f"the graph does not tune {swap.op} {swap.inputs}")
        if swap.hash not in offered:
            names = ", ".join(sorted(offered.values()))
            line = f"{swap.hash} is none of its {counted(len(offered), 'choice')} here ({names})"
            why = why_not_offered(swap.hash, offered)
            raise ArmNotCompiled(f"{line}; {why}" if why else line)
        if swap.key in selector.unbenchmarked:
            raise ArmNotCompiled(f"Inductor could not benchmark {offered[swap.hash]}")
    # Without its times, a process that loads the graph would not notice that it was tuned again.
    if cache is not None and identity != known and selector.shared:
        with contextlib.suppress(StoreError):  # other processes compile it again
            cache.keep_graph(arm, {"identity": identity})
    return compiled


def _compiled_arm(
    program: CapturedProgram,
    constants: Mapping[str, Any],
    weights: Sequence[Any],
    options: Mapping[str, Any],
    *,
    graph_cache: bool,
    name: str,
) -> CompiledGraph:
    head = program.head
    stand_ins = FakeTensors(head.symbols)
    inputs = [_stand_in(stand_ins, program, given) for given in program.inputs]
    module = program.module(constants)
    settings = {**usable_settings(head.config), **options}
    return compile_graph(
        module, inputs, stand_ins, head, settings, weights, graph_cache=graph_cache, identity=name
    )


def _stand_in(stand_ins: FakeTensors, program: CapturedProgram, given: Any) -> Any:
    symbols = stand_ins.symbols
    if not isinstance(given, TensorInput):
        return given.value(symbols)
    return stand_ins.tensor(
        [size(symbols) for size in given.sizes],
        [stride(symbols) for stride in given.strides],
        given.dtype,
        program.storages[given.storage].device,
        given.offset(symbols),
    )


KEPT_ARMS = 16
"""The number of compiled arms of the last graph kept for another trial."""
KEPT_BYTES = 256 << 20
"""A graph whose arms have larger constants, each with its own, is compiled again."""


class NothingTried(Exception):
    """There is no trial; the message is one line."""


def run(job: TrialJob, progress: ReportProgress, mark: ChoiceMark) -> TrialResult:
    """Run a trial. Raises JobInvalid if there are no arms."""
    if not job.arms:
        raise JobInvalid("the job's `arms` are empty")
    layout = Layout(root_of(job))
    try:
        program, digest = _program(layout, job.graph)
        if job.processes > 1:
            return _several(job, program, progress)
        with _as_the_program(program, job.threads), _compile_threads(job.compilers):
            kept = _kept_for(program, digest, job)
            if job.untimed:
                return _compiled_for_others(kept, job, progress, mark)
            return _tried(job, layout, kept, progress, mark)
    except (NothingTried, TextRefused, NotDrawable) as error:
        return TrialResult(ok=False, reason=str(error))


def _compile_threads(compilers: int) -> contextlib.AbstractContextManager[None]:
    """A context with one process's part of the cores for compiling; all if it is the only one."""
    if not compilers:
        return contextlib.nullcontext()
    return torch_api.compile_threads(max(1, len(os.sched_getaffinity(0)) // compilers))


def _program(layout: Layout, graph: str) -> tuple[CapturedProgram, str]:
    if not (graph.isascii() and graph.isalnum() and len(graph) <= 64):
        raise NothingTried("that is not an id of a graph")
    path = layout.graphs / f"{graph}.py"
    try:
        with opened_file(layout.root, path) as descriptor:
            data = os.pread(descriptor, MOST_BYTES + 1, 0)
    except (OSError, UnsafePath) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise NothingTried(f"the text of graph {graph} cannot be read: {reason}") from error
    try:
        program = program_of(_for_this_gpu(data.decode()))
    except (TextRefused, UnicodeDecodeError) as error:
        raise NothingTried(f"{path.name} is not a captured graph of ours: {error}") from error
    return program, hashlib.sha256(data).hexdigest()


_GPU = re.compile(r"(\bdevice\(type='cuda', index=|'cuda:)(\d{1,3})(?=[)'])")


def _for_this_gpu(text: str) -> str:
    """Return the text of a graph captured on one GPU, for the GPU of this process."""
    if len({match[2] for match in _GPU.finditer(text)}) != 1 or not torch.cuda.is_available():
        return text
    return _GPU.sub(rf"\g<1>{torch.cuda.current_device()}", text)


@contextlib.contextmanager
def _as_the_program(program: CapturedProgram, threads: int | None) -> Iterator[None]:
    """A context with a program's threads and precision of products."""
    precision = torch_api.precision()
    try:
        torch_api.set_precision(program.head.precision)
    except (RuntimeError, ValueError) as error:
        raise NothingTried(torch_api.describe(error)) from error
    set_threads(threads or program.head.threads)
    try:
        yield
    finally:
        torch_api.set_precision(precision)
        set_threads(None)


# Compiled arms, of which the last are kept


@dataclass
class _Kept:
    """The compiled arms of one graph in this process, under circumstances `key`."""

    key: tuple[str, int, ArmCache | None]
    program: CapturedProgram
    constants: Mapping[str, Any]
    cache: ArmCache | None
    arms: dict[Arm, CompiledGraph] = field(default_factory=dict)

    @property
    def constant_bytes(self) -> int:
        """The bytes of the weights that each arm packs for itself."""
        storages = self.program.storages
        return sum(int(storage.size(self.program.head.symbols)) for storage in storages) * bool(
            self.program.head.freezing
        )


_last: _Kept | None = None


def _kept_for(program: CapturedProgram, digest: str, job: TrialJob) -> _Kept:
    global _last
    cache = None if job.stock else ArmCache(Layout(home.current()), _state(digest), _gpu(program))
    key = (digest, torch.get_num_threads(), cache)
    if _last is None or _last.key[:2] != key[:2]:
        _last = None
        _last = _Kept(key, program, drawn_constants(program), cache)
    elif _last.key != key:
        _last = replace(_last, key=key, cache=cache, arms={})
    return _last


def _state(digest: str) -> str:
    """Return a digest of all that the code of an arm of the graph `digest` depends on."""
    caches = list[tuple[str, bytes]]()
    for path in cache_paths(Layout(home.current())):
        with contextlib.suppress(FileNotFoundError):  # it has been replaced
            caches.append((path.name, path.read_bytes()))
    ours = kernels_version(), str(torch.__version__), torch_api.system_hash()
    state = (digest, torch.get_num_threads(), ours, caches)
    return hashlib.sha256(repr(state).encode()).hexdigest()


def _with_new_times(kept: _Kept, arm: Arm) -> _Kept:
    """Return what is kept, with `arm`, whose compilation may have added times to the cache."""
    global _last
    if kept.cache is None or (state := _state(kept.key[0])) == kept.cache.state:
        return kept
    cache = replace(kept.cache, state=state)
    with contextlib.suppress(StoreError):  # it is compiled again
        cache.keep_graph(arm, kept.cache.load(arm, "graph"))
    _last = replace(kept, key=(*kept.key[:2], cache), cache=cache, arms={arm: kept.arms[arm]})
    return _last


def _gpu(program: CapturedProgram) -> str:
    device = _device(program)
    if device.type == "cpu":
        return "cpu"
    return pci_address(torch.cuda.get_device_properties(device)) or str(device.index)


def _compiled(
    kept: _Kept,
    inputs: Sequence[Any],
    arms: Sequence[Arm],
    job: TrialJob,
    progress: ReportProgress,
    mark: ChoiceMark,
) -> tuple[dict[str, CompiledGraph], dict[str, str]]:
    """Return the compiled arms by number, and why others cannot be compiled."""
    compiled: dict[str, CompiledGraph] = {}
    failed: dict[str, str] = {}
    for at, arm in enumerate(arms):
        progress(f"compiling arm {at + 1} of {len(arms)}", compiled=at, total=len(arms))
        if arm not in kept.arms:
            try:
                with mark.at("compiling", _blamed(arm)):
                    compiled_arm = compile_arm(
                        kept.program,
                        kept.constants,
                        inputs,
                        arm,
                        stock=job.stock,
                        cache=kept.cache,
                        anew=job.fresh,
                    )
            except ArmNotCompiled as error:
                failed[str(at)] = str(error)
                continue
            while len(kept.arms) >= KEPT_ARMS:
                del kept.arms[next(iter(kept.arms))]
            kept.arms[arm] = compiled_arm
        compiled[str(at)] = kept.arms[arm]
    return compiled, failed


def _blamed(arm: Arm) -> str:
    return arm[-1].identity if arm else ""


def _compiled_for_others(
    kept: _Kept, job: TrialJob, progress: ReportProgress, mark: ChoiceMark
) -> TrialResult:
    """Compile the arms, for a process that loads them; why one does not compile is seen there."""
    inputs = drawn_inputs(kept.program) if kept.program.head.freezing else ()
    _compiled(kept, inputs, job.arms, job, progress, mark)
    return TrialResult(True)


_CPU = torch.device("cpu")
MOST_COMPILERS = 8
COMPILING_SECONDS = 600.0
"""After which processes that still compile are ended."""
ARM_BYTES = 4 << 30
"""Memory that is set aside for each process that compiles."""


def _compilers(wanted: int) -> int:
    """Return how many of the processes compile at once: two cores and some memory for each."""
    cores, memory = len(os.sched_getaffinity(0)), free_bytes(_CPU)
    return max(1, min(wanted, cores // 2, memory // ARM_BYTES, MOST_COMPILERS))


def _compile_side_by_side(
    kept: _Kept, arms: Sequence[Arm], job: TrialJob, progress: ReportProgress
) -> bool:
    """Let other processes compile the arms that are in no cache yet; the baseline is. What they
    leave out, or fail with, is compiled here afterwards. Return whether others compiled any."""
    cache = kept.cache
    if cache is None or job.fresh or _device(kept.program).type == "cpu":
        return False  # a CPU would be benchmarked while it compiles
    left = [arm for arm in arms[1:] if arm not in kept.arms and not cache.load(arm, "graph")]
    if _compilers(len(left)) < 2:
        return False
    for group in filter(None, _by_times(cache, arms[0], left)):
        count = _compilers(len(group))
        own = replace(job, root=str(root_of(job)), compilers=count, untimed=True, gpus=())
        jobs = [as_asked(replace(own, arms=tuple(group[at::count]))) for at in range(count)]
        of = counted(count, "process", "processes")
        what = f"compiling {counted(len(group), 'arm')} in {of}"
        with contextlib.suppress(OSError):  # no process could be started
            tell = partial(progress, what, total=len(group))
            run_children(jobs, COMPILING_SECONDS, tell, gpus=job.gpus)
    return True


def _by_times(cache: ArmCache, first: Arm, arms: Sequence[Arm]) -> tuple[list[Arm], list[Arm]]:
    """Split the arms into two groups, of which the second finds all times that its options need:
    else two processes would each benchmark, and choose by other noise."""
    known, early, late = {cache.file(first, "times")}, list[Arm](), list[Arm]()
    for arm in arms:
        (late if (path := cache.file(arm, "times")) in known else early).append(arm)
        known.add(path)
    return early, late


def _several(job: TrialJob, program: CapturedProgram, progress: ReportProgress) -> TrialResult:
    """Run the trial in several processes, and return the trials that succeeded."""
    # Weights that become constants are drawn before they are packed: one process has the memory.
    at_once = 1 if program.head.freezing else _compilers(job.processes)
    own = replace(job, root=str(root_of(job)), processes=0, fresh=True, compilers=at_once, gpus=())
    seconds = COMPILING_SECONDS * -(-job.processes // at_once) + job.processes * job.budget
    gpus = min(len(job.gpus), job.processes)
    where = f" on each of {gpus} GPUs" if gpus > 1 else ""
    what = f"{counted(job.processes, 'process', 'processes')}, which time one after another{where}"
    jobs = [as_asked(own)] * job.processes
    answers = run_children(jobs, seconds, lambda: progress(what), at_once, job.gpus)
    results = [answer for answer in answers if not isinstance(answer, str)]
    trials = [result.trial for result in results if result.trial is not None]
    if not trials:
        reasons = [each if isinstance(each, str) else each.reason for each in answers]
        raise NothingTried(next(filter(None, reasons), "none of the processes gave a trial"))
    alike = [trial for trial in trials[1:] if trial.device == trials[0].device]
    return TrialResult(True, trial=trials[0], others=tuple(alike))


# The trial


def _tried(
    job: TrialJob, layout: Layout, kept: _Kept, progress: ReportProgress, mark: ChoiceMark
) -> TrialResult:
    arms = list(dict.fromkeys(job.arms))
    inputs = drawn_inputs(kept.program) if kept.program.head.freezing else []
    _, failed = _compiled(kept, inputs, arms[:1], job, progress, mark)
    if failed:
        raise NothingTried(f"the baseline: {failed['0']}")
    kept = _with_new_times(kept, arms[0])
    with_control = job.control and any(_may_retune(arm, arms[0]) for arm in arms)
    wanted = [*arms, *([control_of(arms[0])] if with_control else [])]
    if _compile_side_by_side(kept, wanted, job, progress):
        kept.arms.pop(arms[0], None)  # it is loaded like the others, not compiled here
    elsewhere = _tried_on_gpus(job, arms, progress) if job.gpus[1:] and arms[2:] else ()
    tried = {arm.swaps for trial in elsewhere for arm in trial.arms[1:]}
    left = [arm for arm in arms[1:] if as_asked(arm) not in tried]
    if elsewhere and not left:
        return TrialResult(True, trial=merged(elsewhere, as_asked(tuple(arms))))
    part = replace(job, error=job.error * len(left) / max(1, len(arms) - 1))
    here: list[Trial] = []
    trouble = ""
    try:
        tried_here = _tried_here(part, [arms[0], *left], layout, kept, inputs, progress, mark)
        here.append(as_asked(tried_here))
    except NothingTried as error:
        if not elsewhere:
            raise
        trouble = f"{counted(len(left), 'arm')} could not be tried: {error}"
    trial = merged([*here, *elsewhere], as_asked(tuple(arms)))
    if trouble:
        trial = replace(trial, trouble=(*trial.trouble, trouble))
    return TrialResult(True, trial=trial)


def _tried_on_gpus(
    job: TrialJob, arms: Sequence[Arm], progress: ReportProgress
) -> tuple[Trial, ...]:
    """Time the arms in one process a GPU, each beside the baseline, and return the trials. The arms
    of a process that died, and of a GPU of another kind than this one's, are missing."""
    rivals = arms[1:]
    count = min(len(job.gpus), len(rivals))
    own = replace(job, root=str(root_of(job)), compilers=count, gpus=())
    parts = [tuple(rivals[at::count]) for at in range(count)]
    jobs = [
        as_asked(replace(own, arms=(arms[0], *part), error=job.error * len(part) / len(rivals)))
        for part in parts
    ]
    what = f"{counted(len(rivals), 'arm')} on {count} GPUs"
    seconds = COMPILING_SECONDS + job.budget
    try:
        answers = run_children(jobs, seconds, lambda: progress(what), gpus=job.gpus)
    except OSError:  # no process could be started
        return ()
    trials = [a.trial for a in answers if not isinstance(a, str) and a.trial is not None]
    here = recording.session_without_tunings().session.device
    return tuple(trial for trial in trials if trial.device == here)


def merged(trials: Sequence[Trial], arms: Sequence[Arm]) -> Trial:
    """Return one trial of `arms` and their control from trials with the same baseline on several
    GPUs of a kind. The baseline's times are those of the first, the control is the fastest one."""
    of_arm = {arm.swaps: arm for trial in trials for arm in trial.arms[1:]}
    controls = [control for trial in trials if (control := trial.control) is not None]
    if controls:
        fastest = min(controls, key=lambda control: control.ratio_low or 0.0)
        of_arm[fastest.swaps] = fastest
    ordered = dict.fromkeys([*(arm for arm in arms[1:] if arm in of_arm), *of_arm])
    return replace(
        trials[0],
        arms=(trials[0].arms[0], *(of_arm[arm] for arm in ordered)),
        rounds=min(trial.rounds for trial in trials),
        seconds=max(trial.seconds for trial in trials),
        trouble=tuple(dict.fromkeys(text for trial in trials for text in trial.trouble)),
    )


def _tried_here(
    job: TrialJob,
    arms: Sequence[Arm],
    layout: Layout,
    kept: _Kept,
    inputs: list[Any],
    progress: ReportProgress,
    mark: ChoiceMark,
) -> Trial:
    arms = list(arms)
    compiled, failed = _compiled(kept, inputs, arms, job, progress, mark)
    if "0" in failed:
        raise NothingTried(f"the baseline: {failed['0']}")
    retuned = _retuned(kept.cache, [arms[int(at)] for at in compiled])
    control = control_of(arms[0])
    if retuned and control not in arms and job.control:
        arms.append(control)
        more, broken = _compiled(kept, inputs, [control], job, progress, mark)
        at = str(len(arms) - 1)
        if broken:
            failed[at] = broken["0"]
        else:
            compiled[at] = more["0"]
    rivals = {at: graph for at, graph in compiled.items() if at != "0"}
    same = {at for at, graph in rivals.items() if _is_same(arms[int(at)], graph, compiled["0"])}
    timed = {at: graph for at, graph in compiled.items() if at not in same}
    blamed = {str(at): _blamed(arm) for at, arm in enumerate(arms)}
    device = _device(kept.program)
    alone = kept.cache.alone() if kept.cache else contextlib.nullcontext()
    with alone, BenchmarkDevice(device).current():
        inputs = inputs or drawn_inputs(kept.program)
        bench = PassBench(inputs, timed, device, mark, blamed)
        del inputs
        try:
            rounds, differences = _rounds(job, kept.program, bench, timed, failed, progress)
            uncaptured = bench.uncaptured
        except ChoiceBroke as broken:
            raise NothingTried(f"the baseline cannot be run: {broken.reason}") from broken
        finally:
            bench.close()
            if kept.constant_bytes * len(kept.arms) > KEPT_BYTES:
                kept.arms.clear()
    rounds.failed.update(failed)
    kernels = {arm: kernels_of(graph.code) for arm, graph in compiled.items()}
    log = recording.session_without_tunings(layout.root)
    session = log.session
    trial = Trial(
        graph=job.graph,
        when=time.time(),
        arms=tuple(
            replace(
                _arm(arm, "0" if str(at) in same else str(at), rounds, differences, kernels),
                same=str(at) in same,
                retuned=arm in retuned,
            )
            for at, arm in enumerate(arms)
        ),
        rounds=rounds.judged.count,
        seconds=rounds.signs.seconds or 0.0,
        by=bench.clock,
        trouble=(
            *trouble_of(rounds),
            *_benchmarked_again([arm for arm in retuned if str(arms.index(arm)) in timed], job),
            *([_UNCAPTURED] if uncaptured else []),
        ),
        device=session.device,
        system_hash=session.system_hash,
        session=session.id,
        torch=str(torch.__version__),
    )
    if lost := recording.write_alone(log, GraphTried(as_asked(trial))):
        trial = replace(trial, trouble=(*trial.trouble, lost))
    return trial


def _is_same(arm: Arm, graph: CompiledGraph, first: CompiledGraph) -> bool:
    """Return whether an arm's code is the baseline's. The text does not say with which flags it is
    compiled, which options of a backend (`cpp.simdlen`) may change. The control is always timed: it
    also shows how equal code differs."""
    if RETUNED in arm or any("." in option.name for option in options_of(arm)):
        return False
    return bool(first.code) and graph.code == first.code


def _may_retune(arm: Arm, first: Arm) -> bool:
    """Return whether an arm sets what the first does not, so that Inductor may benchmark again."""
    return any(isinstance(change, CompileOption) and change not in first for change in arm)


def _retuned(cache: ArmCache | None, arms: Sequence[Arm]) -> list[Arm]:
    """Return the arms for which Inductor benchmarked choices that it did not for the first: an
    option that is a part of the kernels' source gives every choice another hash."""
    if cache is None:
        return []
    set_more = (arm for arm in arms if _may_retune(arm, arms[0]))
    return [arm for arm in set_more if cache.times(arm)]


def _benchmarked_again(arms: Sequence[Arm], job: TrialJob) -> list[str]:
    """Return a sentence on the arms for which choices were benchmarked again."""
    labels = (
        " with ".join(change.label for change in arm if not isinstance(change, Swap))
        for arm in arms
    )
    again = list(dict.fromkeys(labels))
    if not again:
        return []
    names = f"{', '.join(again[:-1])} and {again[-1]}" if again[1:] else again[0]
    part = "which can be a part of the difference"
    if job.control:
        part = "and `tuned again` is the graph with nothing else changed"
    return [f"Inductor benchmarked choices again for {names}, {part}"]


def _device(program: CapturedProgram) -> torch.device:
    devices = [storage.device for storage in program.storages]
    devices += [constant.device for constant in program.constants]
    return next((device for device in devices if device.type != "cpu"), torch.device("cpu"))


def _rounds(
    job: TrialJob,
    program: CapturedProgram,
    bench: PassBench,
    compiled: Mapping[str, CompiledGraph],
    failed: dict[str, str],
    progress: ReportProgress,
) -> tuple[ArmRounds, dict[str, OutputDifference]]:
    """Return the rounds of arms with outputs like the first's. Raises ChoiceBroke for the first."""
    first = bench.outputs("0")
    allowed = allowed_error(program)
    differences: dict[str, OutputDifference] = {}
    for arm in compiled:
        try:
            differences[arm] = output_difference(first, bench.outputs(arm), allowed)
        except ChoiceBroke as broken:
            if arm == "0":
                raise
            failed[arm] = broken.reason
        except OutputsDiffer as error:
            failed[arm] = str(error)
    if "0" in failed:
        raise ChoiceBroke("0", f"it computes something else each time: {failed['0']}")
    del first
    able = [arm for arm in compiled if arm not in failed]
    rounds = ArmRounds(able, error=job.error)
    deadline = time.monotonic() + job.budget
    measure(bench, able, deadline, rounds_reporter(progress, of=" of passes"), job.rounds, rounds)
    if "0" not in rounds.hashes:
        raise ChoiceBroke("0", rounds.failed.get("0", "it cannot be run"))
    if bench.clock != "host":  # the thread sleeps until the device is done
        rounds.signs = replace(rounds.signs, cpu_seconds=None)
    return rounds, differences


def _arm(
    arm: Arm,
    at: str,
    rounds: ArmRounds,
    differences: Mapping[str, OutputDifference],
    kernels: Mapping[str, tuple[str, ...]],
) -> TrialArm:
    if at in rounds.failed:
        return TrialArm(arm, failed=rounds.failed[at])
    standing = next(each for each in rounds.standings if each.hash == at)
    gone, added = changed(kernels["0"], kernels[at])
    return TrialArm(
        swaps=arm,
        ms=standing.ms,
        low=standing.low,
        high=standing.high,
        ratio=standing.ratio,
        ratio_low=standing.ratio_low,
        ratio_high=standing.ratio_high,
        verdict=standing.verdict,
        passes=standing.rounds,
        kernels=len(kernels[at]),
        gone=gone,
        added=added,
        error=differences[at].error,
        allowed=differences[at].allowed,
    )


_UNCAPTURED = "passes could not be captured as CUDA graphs, so gaps of the host are in their times"
