"""Whole passes of a compiled graph, arm by arm: timed in rounds, with compared outputs and listed
kernels.

On a GPU a pass is replayed from a CUDA graph if it can be captured, so that the host causes no gaps
between kernels; before each pass the caches are flushed, as the rest of a model would. On a CPU a
pass is a call.
"""

from __future__ import annotations

import functools
import gc
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, TypeVar

import torch
from torch import Tensor

from backend.counted import counted
from backend.inductor.sampling import REFERENCE, Repeat, Sampler
from backend.inductor.torch import tuning as torch_api
from backend.inductor.torch.choices import Run
from backend.inductor.torch.compiling import CompiledGraph
from backend.measure.rounds import ChoiceBroke, Rounds, Sample
from backend.measure.trial import judge_arms
from backend.model.choice import MeasuredChoice
from backend.model.graph import Clock
from backend.processes.shared import ChoiceMark
from backend.worker.trial.program import CapturedProgram, TensorInput

_CALL = re.compile(
    r"""^\s*(?:[\w, ]+\ =\ )?(?:
        (?P<kernel>(?:triton|cpp|ck|cutlass|rocm|pallas|multi_kernel|combo|mps|halide)_\w+)
            (?:\.run)?\(
      | (?P<extern>extern_kernels\.\w+)\(
      | torch\.ops\.(?P<op>\w+\.\w+)(?:\.\w+)?\(
      | aoti_torch_(?P<shim>\w+)\(
    )""",
    re.VERBOSE,
)
_CHECKED = re.compile(r"^\s*AOTI_TORCH_ERROR_CODE_CHECK\((.*)$")
_CPP_CALL = re.compile(r"^\s*(?P<kernel>cpp_\w+|call_triton_\w+)\(")
_START = re.compile(
    r"^(?:class Runner|\s*def (?:call|partition_\d+)\(|void (?:inductor_entry_impl|run_impl)\()"
)
_NUMBER = re.compile(r"_\d+$")
_NO_KERNEL = re.compile(
    r"\w*(?:empty|reinterpret|assert|get_|delete|create_tensor|new_tensor_handle|"
    r"alloc_from_pool|device_type|dtype|grad_mode|data_ptr|alias|as_strided)\w*"
)
"""Calls in a wrapper that run nothing."""


def kernels_of(code: str) -> tuple[str, ...]:
    """Return the names of a pass's kernels, in order, without the numbers at their ends, which only
    count kernels of one kind."""
    return tuple(_called(code.splitlines()))


def _called(lines: Iterable[str]) -> Iterable[str]:
    inside = False
    for line in lines:
        if _START.match(line):
            inside = True
        elif line and not line[0].isspace() and not line.startswith(("}", "#")):
            inside = False
        if not inside:
            continue
        checked = _CHECKED.match(line)
        match = _CALL.match(checked[1] if checked else line) or _CPP_CALL.match(line)
        if match is None:
            continue
        named = match.groupdict()
        if named.get("kernel"):
            yield plain_name(named["kernel"])
        elif named.get("extern"):
            yield named["extern"]
        else:
            name = named.get("op") or named.get("shim") or ""
            if not _NO_KERNEL.fullmatch(name.rpartition(".")[2]):
                yield name


def plain_name(kernel: str) -> str:
    """Return `poi fused add gelu` of `triton_poi_fused_add_gelu_3`."""
    name = _NUMBER.sub("", kernel.removeprefix("call_")).removeprefix("triton_")
    return " ".join(part for part in name.split("_") if part)


def changed(first: Sequence[str], other: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the kernels that only `first` and only `other` call; `name x3` for three more."""
    before, after = Counter(first), Counter(other)
    return _listed(before - after), _listed(after - before)


def _listed(counts: Counter[str]) -> tuple[str, ...]:
    return tuple(name if count == 1 else f"{name} x{count}" for name, count in counts.items())


WALK = 4.0
"""Standard deviations of a random walk of roundings that are allowed."""
_COARSE = {"high": 2.0**-10, "medium": 2.0**-7}
"""The rounding of float32 products on a GPU with that precision."""


class OutputsDiffer(Exception):
    """An arm has other outputs; the message is one line."""


@dataclass(frozen=True, slots=True)
class OutputDifference:
    """The largest difference, over the largest value there; 0: the same bits."""

    error: float
    allowed: float


def allowed_error(program: CapturedProgram) -> float:
    """Return the error that roundings explain, relative to the largest value: one per node in the
    coarsest type, as a random walk, and one of float32 per summed number."""
    tensors = [given for given in program.inputs if isinstance(given, TensorInput)]
    symbols = program.head.symbols
    kinds = {t.dtype for t in tensors if t.dtype.is_floating_point}
    kinds |= {c.dtype for c in program.constants if c.dtype.is_floating_point}
    coarsest = max((torch.finfo(kind).eps for kind in kinds), default=2.0**-23)
    if any(storage.device.type != "cpu" for storage in program.storages):
        coarsest = max(coarsest, _COARSE.get(program.head.precision, 0.0))
    longest = max((int(n(symbols)) for t in tensors for n in t.sizes), default=1)
    steps = len(program.forward.body)
    return WALK * (coarsest * math.sqrt(steps) + 2.0**-23 * math.sqrt(max(longest, 1)))


def output_difference(
    first: Sequence[Any], other: Sequence[Any], allowed: float
) -> OutputDifference:
    """Return the difference. Raises OutputsDiffer if the outputs have different kinds, or are not
    finite at different positions."""
    if len(first) != len(other):
        raise OutputsDiffer(f"wrong result: {counted(len(other), 'output')}, not {len(first)}")
    worst = 0.0
    for at, (expected, given) in enumerate(zip(first, other, strict=True)):
        if isinstance(expected, Tensor) and isinstance(given, Tensor):
            worst = max(worst, _difference(at, expected, given))
        elif isinstance(expected, Tensor) or isinstance(given, Tensor) or expected != given:
            raise OutputsDiffer(f"wrong result: output {at} is of another kind")
    return OutputDifference(worst, allowed)


def _difference(at: int, expected: Tensor, given: Tensor) -> float:
    if expected.shape != given.shape or expected.dtype != given.dtype:
        raise OutputsDiffer(f"wrong result: output {at} has another shape or type")
    if not expected.numel() or torch.equal(expected, given):
        return 0.0
    if expected.is_complex():
        expected, given = torch.view_as_real(expected), torch.view_as_real(given)
    wide = torch.float64 if expected.device.type == "cpu" else torch.float32
    a, b = expected.to(wide), given.to(wide)
    finite = a.isfinite()
    if not bool((finite == b.isfinite()).all()):
        raise OutputsDiffer(f"wrong result: output {at} is not finite at other places")
    odd = ~finite
    if not bool(((a[odd] == b[odd]) | (a[odd].isnan() & b[odd].isnan())).all()):
        raise OutputsDiffer(f"wrong result: output {at} is not finite in another way")
    a, b = a[finite], b[finite]
    if not a.numel():
        return 0.0
    largest = float(a.abs().max())
    off = float((a - b).abs().max())
    return off / largest if largest else (math.inf if off else 0.0)


SEED = 1234
MOVED_BYTES = 64 << 20
"""Inputs up to this total size are moved in memory from block to block."""
COLD_MS, MOST_PARTS = 0.3, 8
"""On a GPU a sample is as many passes as take about that long, each from empty caches."""

T = TypeVar("T")


@dataclass
class ArmRounds(Rounds):
    """Rounds of arms, by number, all compared with arm 0."""

    error: float = 0.05

    def judge(self, look: int, looks: int) -> None:
        """Judge the arms. Raises ChoiceBroke if arm 0 is gone, since nothing can be compared."""
        self.looked = (look, looks)
        if "0" not in self.hashes:
            raise ChoiceBroke("0", self.failed.get("0", "it cannot be run"))
        series = self.judged
        samples = {int(arm): times for arm, times in series.times.items()}
        arms = judge_arms(samples, series.blocks, look=look, looks=looks, error=self.error)
        standings = (
            MeasuredChoice(
                hash=str(arm.arm),
                ms=arm.ms,
                low=arm.low,
                high=arm.high,
                spread=0.0,
                rounds=arm.passes,
                ratio=arm.ratio,
                ratio_low=arm.ratio_low,
                ratio_high=arm.ratio_high,
                verdict=arm.verdict,
            )
            for arm in arms
        )
        if series is self.disturbed:
            standings = (
                replace(arm, verdict="unclear") if arm.hash != "0" else arm for arm in standings
            )
        self.standings = tuple(standings)


class PassBench(Sampler):
    """A bench of arms by number, as text. `blamed` is the text of the mark while an arm runs."""

    def __init__(
        self,
        inputs: Sequence[Any],
        arms: Mapping[str, CompiledGraph],
        device: torch.device,
        mark: ChoiceMark,
        blamed: Mapping[str, str],
    ) -> None:
        super().__init__(device, "hot" if device.type == "cpu" else "cold")
        self._inputs = list(inputs)
        self._arms = arms
        self._mark, self._blamed = mark, blamed
        mutated = sorted(set().union(*(arm.mutated for arm in arms.values())))
        self._before = [(at, _memory(self._inputs[at]).clone()) for at in mutated]
        self._runs: dict[str, Run] = {}
        self._captured: dict[str, Run | None] = {}
        self.set_reference(96.0**3 if device.type == "cpu" else 1024.0**3)

    @property
    def clock(self) -> Clock:
        return "host" if self._device.type == "cpu" else "device"

    @property
    def uncaptured(self) -> list[str]:
        """The arms whose passes could not be captured as CUDA graphs."""
        return [arm for arm, run in self._captured.items() if run is None]

    def outputs(self, arm: str) -> list[Any]:
        """Return the outputs of a call, then the inputs that it changed. Raises ChoiceBroke."""
        return self._guarded(arm, functools.partial(self._outputs, arm))

    def _outputs(self, arm: str) -> list[Any]:
        self._restore()
        torch.manual_seed(SEED)
        with torch.no_grad():
            results = list(self._arms[arm].call(list(self._inputs)))
        self._timer.wait()
        kept = [value.clone() if isinstance(value, Tensor) else value for value in results]
        del results
        donated = self._arms[arm].donated
        changed = [self._inputs[at].clone() for at, _ in self._before if at not in donated]
        self._restore()
        return [*kept, *changed]

    def renew(self, hashes: Sequence[str]) -> None:
        self._restore()
        if self._device.type == "cpu":
            self._move()
        for arm in hashes:
            self._runs[arm] = self._guarded(arm, functools.partial(self._started, arm))
        if self.uncaptured and len(self.uncaptured) < len(self._captured):
            for arm in hashes:  # all or none, since a replayed pass has no gaps
                self._captured[arm] = None
                self._runs[arm] = self._plain(arm)

    def sample(self, hash: str) -> Sample:
        return self._guarded(hash, lambda: self._sample(hash, [self._runs[hash]]))

    def resolution_ms(self, hash: str) -> float:
        repeat = self._repeats[hash]
        return self._timer.tick_ms / (repeat.parts if self._timer.cold else repeat.calls)

    def close(self) -> None:
        """Free all memory."""
        self._runs.clear()
        self._captured.clear()
        self._inputs, self._before = [], []
        gc.collect()
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()

    def _started(self, arm: str) -> Run:
        run = self._runs.get(arm) if self._device.type != "cpu" else None
        run = run or self._run_of(arm)
        run()
        self._timer.wait()
        if arm not in self._repeats:
            self._repeats[arm] = self._repeat_of(run)
        return run

    def _run_of(self, arm: str) -> Run:
        run = self._plain(arm)
        if self._device.type == "cpu":
            return run
        call, inputs = self._arms[arm].call, self._inputs
        self._captured[arm] = captured = _captured(run, lambda: call(list(inputs)))
        return captured or run

    def _plain(self, arm: str) -> Run:
        call, inputs = self._arms[arm].call, self._inputs

        def run() -> None:
            with torch.no_grad():
                call(list(inputs))

        return run

    def _repeat_of(self, run: Run) -> Repeat:
        if not self._timer.cold:
            return self._timer.repeat(run)
        once = min(self._timer.sample([run], Repeat()) for _ in range(3))
        return Repeat(parts=max(1, min(MOST_PARTS, ceil(COLD_MS / max(once, 1e-3)))))

    def _timed(self, name: str, runs: Sequence[Run]) -> tuple[float, bool]:
        if not self._timer.cold or name == REFERENCE:
            return super()._timed(name, runs)
        parts = [self._timer.sample(runs, Repeat()) for _ in range(self._repeats[name].parts)]
        return sum(parts) / len(parts), True  # on a GPU none of our threads is timed

    def _restore(self) -> None:
        """Restore the inputs that passes write to."""
        for at, before in self._before:
            _memory(self._inputs[at]).copy_(before)

    def _move(self) -> None:
        """Move the inputs in memory, for all arms alike; memory that a pass allocates moves too."""
        tensors = {
            value.untyped_storage()._cdata: _memory(value)
            for value in self._inputs
            if isinstance(value, Tensor)
        }
        if sum(memory.numel() for memory in tensors.values()) > MOVED_BYTES:
            return
        moved = {name: memory.clone() for name, memory in tensors.items()}
        for at, value in enumerate(self._inputs):
            if isinstance(value, Tensor):
                memory = moved[value.untyped_storage()._cdata]
                whole = memory[: memory.numel() // value.itemsize * value.itemsize]
                place = (value.size(), value.stride(), value.storage_offset())
                self._inputs[at] = whole.view(value.dtype).as_strided(*place)

    def _guarded(self, arm: str, action: Callable[[], T]) -> T:
        try:
            with self._mark.at("running", self._blamed.get(arm, "")):
                return action()
        except BaseException as error:  # a kernel's error ends only this arm
            raise ChoiceBroke(arm, torch_api.describe(error)) from error


def _memory(tensor: Tensor) -> Tensor:
    """Return all bytes of a tensor's storage."""
    whole = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return whole.set_(tensor.untyped_storage())


def _captured(run: Run, call: Callable[[], Any]) -> Run | None:
    """Return the pass as a CUDA graph; None if it cannot be captured."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.no_grad(), torch.cuda.graph(graph, capture_error_mode="thread_local"):
            held = call()
    except Exception:  # an op that waits for the device, or allocates differently
        return None

    def replay(_: object = held) -> None:
        graph.replay()

    return replay
