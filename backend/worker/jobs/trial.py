"""Trials of a captured graph: Inductor's selector with choices put in place by raised numbers, as a
pin does.

A pin that stock PyTorch follows only raises its rivals' times. So the selector sees the same here,
and all decisions by these times, such as fusions, are those of a program with the pin.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from backend.cache.autotune import raise_ms
from backend.counted import counted, noun
from backend.disk.layout import Layout
from backend.disk.trusted import opened_file
from backend.errors import UnsafePath
from backend.inductor.benchmark.request import BenchmarkDevice
from backend.inductor.hooks import recording
from backend.inductor.hooks.environment import home
from backend.inductor.torch import tuning as torch_api
from backend.inductor.torch.captured import option_value, usable_settings
from backend.inductor.torch.compiling import CompiledGraph, FakeTensors, compile_graph
from backend.inductor.torch.tuning import ChoiceCaller
from backend.measure.rounds import ChoiceBroke, disturbances, measure
from backend.model.events import GraphTried
from backend.model.graph import Arm, Trial, TrialArm, hashes_of, options_of, swaps_of
from backend.model.origin import is_own
from backend.model.problem import TuningKey
from backend.processes.shared import ChoiceMark
from backend.wire.captured import MOST_BYTES
from backend.wire.jobs import JobInvalid, TrialJob, TrialResult
from backend.worker.boundary import as_asked, root_of, why_not_offered
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


class SwapSelector(torch_api.LazySelector):
    """A selector; `swaps` are the choices put in place; `offered` receives all choices."""

    def __init__(self, swaps: Mapping[TuningKey, str]) -> None:
        super().__init__()
        self._swaps = swaps
        self._templates = any(map(is_own, swaps.values()))
        self.offered: dict[TuningKey, dict[str, str]] = {}

    def __call__(
        self, name: str, choices: Any, input_nodes: Any, layout: Any, *args: Any, **kwargs: Any
    ) -> Any:
        if len(choices) < 2 and not torch_api.wants_tuning():
            return super().__call__(name, choices, input_nodes, layout, *args, **kwargs)
        key = torch_api.tuning_key(name, input_nodes, layout, kwargs)
        wanted = self._swaps.get(key)
        if self._templates and wanted is not None and is_own(wanted):
            choices = [*choices, *template_choices(name, choices, input_nodes, layout)]
            own = [choice for choice in choices if choice.hash_key() == wanted]
            self._saw(key, choices)
            choices = own or choices
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
        timings = super().lookup(choices, op, inputs, benchmark, **kwargs)
        wanted = self._swaps.get(TuningKey(op, inputs, torch_api.precision()))
        if wanted is None or not any(choice.hash_key() == wanted for choice in timings):
            return timings
        return {
            choice: ms if choice.hash_key() == wanted else raise_ms(ms)
            for choice, ms in timings.items()
        }


class ArmNotCompiled(Exception):
    """The graph cannot be compiled with an arm; the message is one line."""


def compile_arm(
    program: CapturedProgram,
    constants: Mapping[str, Any],
    weights: Sequence[Any],
    arm: Arm,
    *,
    stock: bool,
) -> CompiledGraph:
    """Compile an arm; `weights` are the drawn inputs, some of which may become constants. Raises
    ArmNotCompiled, also if a choice of the arm was not compiled in."""
    try:
        options = {
            option.name: option_value(option.name, option.value) for option in options_of(arm)
        }
    except ValueError as error:
        raise ArmNotCompiled(str(error)) from error
    swaps = hashes_of(arm)
    selector = SwapSelector(swaps)
    torch_api.set_selector(None if stock else selector)
    try:
        compiled = _compiled_arm(program, constants, weights, options, graph_cache=stock)
    except Exception as error:  # a compiler error is this arm's result
        raise ArmNotCompiled(f"it does not compile: {torch_api.describe(error)}") from error
    finally:
        torch_api.set_selector(None)
    for swap in () if stock else swaps_of(arm):
        offered = selector.offered.get(swap.key)
        if offered is None:
            raise ArmNotCompiled(f"the graph does not tune {swap.op} {swap.inputs}")
        if swap.hash not in offered:
            names = ", ".join(sorted(offered.values()))
            line = f"{swap.hash} is none of its {counted(len(offered), 'choice')} here ({names})"
            why = why_not_offered(swap.hash, offered)
            raise ArmNotCompiled(f"{line}; {why}" if why else line)
    return compiled


def _compiled_arm(
    program: CapturedProgram,
    constants: Mapping[str, Any],
    weights: Sequence[Any],
    options: Mapping[str, Any],
    *,
    graph_cache: bool,
) -> CompiledGraph:
    head = program.head
    stand_ins = FakeTensors(head.symbols)
    inputs = [_stand_in(stand_ins, program, given) for given in program.inputs]
    module = program.module(constants)
    settings = {**usable_settings(head.config), **options}
    return compile_graph(
        module, inputs, stand_ins, head, settings, weights, graph_cache=graph_cache
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
LOST_SHARE = 0.1
"""The share of rounds spoiled by other processes from which on that is reported."""


class NothingTried(Exception):
    """There is no trial; the message is one line."""


def run(job: TrialJob, progress: ReportProgress, mark: ChoiceMark) -> TrialResult:
    """Run a trial. Raises JobInvalid if there are no arms."""
    if not job.arms:
        raise JobInvalid("the job's `arms` are empty")
    layout = Layout(root_of(job))
    try:
        program, digest = _program(layout, job.graph)
        with _as_the_program(program, job.threads):
            return _tried(job, layout, _kept_for(program, digest, job), progress, mark)
    except (NothingTried, TextRefused, NotDrawable) as error:
        return TrialResult(ok=False, reason=str(error))


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

    key: tuple[object, ...]
    program: CapturedProgram
    constants: Mapping[str, Any]
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
    caches = Layout(home.current()).autotune
    signs = sorted((p.name, p.stat().st_mtime_ns, p.stat().st_size) for p in caches.glob("*"))
    key = (digest, torch.get_num_threads(), job.stock, tuple(signs))
    if _last is None or _last.key[:3] != key[:3]:
        _last = None
        _last = _Kept(key, program, drawn_constants(program))
    elif _last.key != key:
        _last = replace(_last, key=key, arms={})
    return _last


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
                        kept.program, kept.constants, inputs, arm, stock=job.stock
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


# The trial


def _tried(
    job: TrialJob, layout: Layout, kept: _Kept, progress: ReportProgress, mark: ChoiceMark
) -> TrialResult:
    arms = list(dict.fromkeys(job.arms))
    inputs = drawn_inputs(kept.program)
    compiled, failed = _compiled(kept, inputs, arms, job, progress, mark)
    if "0" in failed:
        raise NothingTried(f"the baseline: {failed['0']}")
    blamed = {str(at): _blamed(arm) for at, arm in enumerate(arms)}
    device = _device(kept.program)
    with BenchmarkDevice(device).current():
        bench = PassBench(inputs, compiled, device, mark, blamed)
        del inputs
        try:
            rounds, differences = _rounds(job, kept.program, bench, compiled, failed, progress)
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
        arms=tuple(_arm(arm, str(at), rounds, differences, kernels) for at, arm in enumerate(arms)),
        rounds=rounds.judged.count,
        seconds=rounds.signs.seconds or 0.0,
        by=bench.clock,
        trouble=(*_trouble(rounds), *([_UNCAPTURED] if uncaptured else [])),
        device=session.device,
        system_hash=session.system_hash,
        session=session.id,
        torch=str(torch.__version__),
    )
    lost = recording.write_alone(log, GraphTried(as_asked(trial)))
    if not lost:
        return TrialResult(True, trial=trial, log=str(log.path))
    return TrialResult(True, trial=replace(trial, trouble=(*trial.trouble, lost)))


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


def _trouble(rounds: ArmRounds) -> tuple[str, ...]:
    sentences = disturbances(rounds.judged.reference, rounds.signs)
    clean, lost = rounds.clean.count, rounds.disturbed.count
    if not clean:
        return (*sentences, "other processes took the CPU in every round, so nothing is proved")
    if lost > LOST_SHARE * (clean + lost):
        of = counted(clean + lost, "round")
        share = f"{lost} of {of} {noun(lost, 'does', 'do')} not count: other processes took the CPU"
        return (*sentences, share)
    return sentences


_UNCAPTURED = "passes could not be captured as CUDA graphs, so gaps of the host are in their times"
