"""Choices that torch offers, made ready to be sampled again and again in ever other memory.

Does a choice compute what it should? Without that its time is worth nothing. Its result is compared
with the product in a wider type. How far off it may be is a matter of what is summed up: by Cauchy
and Schwarz the terms of a dot product are bound by the lengths of row and column, and each rounding
by the type that the sum is made in.
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log2
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from backend.counted import counted
from backend.inductor.benchmark.errors import WrongResult
from backend.inductor.benchmark.request import Operands, Question, bytes_of, movable, moved
from backend.inductor.hip.convolution import ConvReference
from backend.inductor.torch import tuning as torch_api
from backend.inductor.torch.choices import Run
from backend.measure.machine.state import State, Watch
from backend.model.choice import Caches
from backend.model.convolution import Options
from backend.model.ops import OPS
from backend.processes.shared import Mark
from backend.processes.supervisor import House, LeftRunning
from backend.worker.measure.machine import sensor_of
from backend.worker.measure.rounds import ChoiceBroke, Sample
from backend.worker.measure.timer import Repeat, caches_of_a_model, timer_for

TRIES = 4
"""Samples that are taken until one is clean."""

T = TypeVar("T")

_REFERENCE = ""
"""Its place among the hashes."""

_PAGE, _LINE = 4096, 64
"""Bytes: a tensor begins at any cache line of a page, as torch aligns them on a CPU."""
_GPU_SPREAD, _GPU_ALIGN = 1 << 16, 512
"""Bytes: torch aligns tensors on a GPU to 512."""
MOST_COPIED = 1 << 30
"""Bytes of all copies of the operands together."""
_FREE_SHARE = 4
"""They take no more than this part of the memory that is free."""


class ChoiceBench:
    """The choices `hashes` of a question; `mark` is told which of them is being run.

    Where it is cold, there are as many copies of the operands as a sample has calls, as far as
    memory reaches. Raises ChoiceBroke only where `rounds.Bench` says so, and in `check`.
    """

    def __init__(
        self, question: Question, hashes: Sequence[str], mark: Mark, caches: Caches | None = None
    ) -> None:
        self._question = question
        self._mark = mark
        self._house = House(mark)
        self._made: Operands = question.operands(hashes)
        self.caches: Caches = caches or caches_of_a_model(
            question.device, max(bytes_of({hash: self._made[hash]}) for hash in hashes)
        )
        self._timer = timer_for(question.device, self.caches)
        self._watch = Watch(sensor_of(question.device))
        self._copies = 1
        self._counted = not self._timer.cold or not movable(self._made)
        self._operands: list[Operands] = []
        self._runs: dict[str, list[Run]] = {}
        self._repeats: dict[str, Repeat] = {}
        self._reference: Run = lambda: None

    def set_reference(self, operations: float) -> None:
        """Let a square product of about so many multiplications be the reference kernel."""
        self._reference = _product(operations, self._question.device)
        self._repeats[_REFERENCE] = self._timer.repeat(self._reference)

    def truth(self, op: str, precision: str, given: Options = ()) -> Truth:
        """What the inputs of all choices lead to, a convolution's with the options `given`. Raises
        NoReference."""
        try:
            return true_product(op, self._question.given, precision, given)
        except (RuntimeError, IndexError) as error:  # no memory for it, or odd operands
            raise NoReference(torch_api.describe(error)) from error

    def check(self, hash: str, right: Truth | None) -> bool:
        """Run a choice on tensors that nobody else uses; whether its result could be compared.

        Raises ChoiceBroke where the result is wrong, or not there after a timed sample, and where
        processes are left behind.
        """
        self._runs.clear()
        self._operands = []
        result = self._guarded(hash, lambda: self._result(hash))
        own = self._question.own(hash)
        expected = right if own is None else own.expected()
        if expected is None:
            return False
        try:
            expected.check(result)
        except WrongResult as error:
            raise ChoiceBroke(hash, str(error)) from error
        return True

    def _result(self, hash: str) -> Tensor:
        """The first time of one call, later of a timed sample where the choice has an output."""
        operands = moved({hash: self._made[hash]}, _somewhere)
        out = operands[hash][-1]
        out.fill_(math.nan if out.is_floating_point() else -7)
        run = self._question.run_function(hash, operands)
        if hash in self._repeats:
            self._timer.sample([run], self._repeat(hash))
            given = None if self._question.returned(hash, out) is None else run()
        else:
            with self._house.leaving_nobody():
                given = run()
        self._timer.wait()
        result = self._question.returned(hash, given)
        return out if result is None else result

    def renew(self, hashes: Sequence[str]) -> None:
        self._start(hashes)
        if not self._counted:
            self._counted = True
            self._copies = self._copies_of(hashes)
            self._start(hashes)

    def sample(self, hash: str) -> Sample:
        return self._guarded(hash, lambda: self._sample(hash, self._runs[hash]))

    def reference(self) -> Sample:
        return self._sample(_REFERENCE, [self._reference])

    def state(self) -> State:
        return self._watch.state()

    def resolution_ms(self, hash: str) -> float:
        """The smallest difference of two calls' times that a sample can show."""
        return self._timer.tick_ms / self._repeat(hash).calls

    def _start(self, hashes: Sequence[str]) -> None:
        """Make the operands anew, and what runs each choice on each copy of them."""
        self._runs.clear()
        self._operands = []  # their memory can be used again
        self._operands = self._moved({hash: self._made[hash] for hash in hashes})
        for hash in hashes:
            self._runs[hash] = self._guarded(hash, functools.partial(self._started, hash))

    def _moved(self, made: Operands) -> list[Operands]:
        while True:
            try:
                return [moved(made, _somewhere) for _ in range(self._copies)]
            except torch.OutOfMemoryError:
                if self._copies == 1:
                    raise
                self._copies //= 2

    def _copies_of(self, hashes: Sequence[str]) -> int:
        """As many as the longest row of calls, and as there is memory for."""
        made = {hash: self._made[hash] for hash in hashes}
        room = min(MOST_COPIED, _free_bytes(self._question.device) // _FREE_SHARE)
        wanted = max(self._repeats[hash].copies for hash in hashes)
        return max(1, min(wanted, room // max(1, bytes_of(made))))

    def _started(self, hash: str) -> list[Run]:
        runs = [self._question.run_function(hash, operands) for operands in self._operands]
        runs[0]()
        self._timer.wait()
        if hash not in self._repeats:
            self._repeats[hash] = self._timer.repeat(runs[0])
        return runs

    def _repeat(self, name: str) -> Repeat:
        """The reference reads the same in all calls."""
        repeat = self._repeats[name]
        cold = self._timer.cold and name != _REFERENCE
        return repeat.within(self._copies) if cold else repeat

    def _sample(self, name: str, runs: Sequence[Run]) -> Sample:
        """Again and again until it is long enough and no thread of ours had to wait for a CPU."""
        for _ in range(TRIES):
            ms = self._timer.sample(runs, self._repeat(name))
            if not self._timer.cold and not self._repeats[name].enough(ms):
                self._repeats[name] = self._timer.repeat(runs[0])
            elif self._timer.clean:
                return Sample(ms)
        return Sample(ms, clean=False)

    def _guarded(self, hash: str, action: Callable[[], T]) -> T:
        try:
            with self._mark.at("running", hash):
                try:
                    return action()
                finally:
                    self._house.tidy()
        except LeftRunning as error:
            raise ChoiceBroke(hash, str(error)) from error
        except BaseException as error:  # whatever a kernel raises is the end of this choice alone
            raise ChoiceBroke(hash, torch_api.describe(error)) from error


def _somewhere(size: int, device: torch.device) -> Tensor:
    """That many bytes, at a place that differs from call to call."""
    cpu = device.type == "cpu"
    spread, align = (_PAGE, _LINE) if cpu else (_GPU_SPREAD, _GPU_ALIGN)
    skipped = align * random.randrange(spread // align)
    return torch.empty(size + skipped, dtype=torch.uint8, device=device)[skipped:]


def _free_bytes(device: torch.device) -> int:
    """Of memory that we could have; 0 where nobody tells."""
    if device.type == "cpu":
        try:
            lines = Path("/proc/meminfo").read_text().splitlines()
            return next(int(line.split()[1]) << 10 for line in lines if "MemAvailable" in line)
        except (OSError, ValueError, StopIteration):
            return 0
    ours = int(torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))
    return int(torch.cuda.mem_get_info(device)[0]) + ours


def _product(operations: float, device: torch.device) -> Run:
    size = 1 << min(12, max(4, round(log2(max(operations, 1.0)) / 3)))
    dtype = torch.float32 if device.type == "cpu" else torch.float16
    left = torch.ones(size, size, dtype=dtype, device=device)
    out = torch.empty_like(left)
    return lambda: torch.mm(left, left, out=out)


MOST_OPERATIONS = 4e9
"""Of the wider product; of a larger one only some rows are looked at on a CPU, for NaN all are."""

_LOW = {torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7, torch.float32: 8 * 2.0**-23}
_COARSE = {"high": 2.0**-9, "medium": 2.0**-6}
"""A float32 product of that precision has factors of ten, or seven, bits."""


class NoReference(Exception):
    """What the result should be is not known; one line says why."""


@dataclass(frozen=True, slots=True)
class Truth:
    """The true values of the rows `rows`, and how far off each may be."""

    values: Tensor
    allowed: Tensor
    rows: slice

    def check(self, result: Tensor) -> None:
        """Raises WrongResult."""
        if result.shape[:-2] != self.values.shape[:-2] or result.shape[-1] != self.values.shape[-1]:
            raise WrongResult(f"wrong result: its shape is {tuple(result.shape)}")
        if result.is_floating_point() and (bad := int((~result.isfinite()).sum())):
            raise WrongResult(
                f"wrong result: {bad:,} of {counted(result.numel(), 'element')}, NaN or not written"
            )
        error = (result[..., self.rows, :].to(self.values.dtype) - self.values).abs()
        if not error.numel() or bool((error <= self.allowed).all()):
            return
        worst = int((error / self.allowed.clamp_min(1e-300)).argmax())
        raise WrongResult(
            f"wrong result: off by {float(error.flatten()[worst]):.3g}, where "
            f"{float(self.allowed.flatten()[worst]):.3g} is allowed"
        )


def true_product(op: str, inputs: Sequence[Tensor], precision: str, given: Options = ()) -> Truth:
    """What `op` makes of these inputs, a convolution with the options `given`. Raises NoReference,
    and whatever torch raises."""
    if op == "convolution" and given:
        return _true_convolution(inputs, given)
    a, b, bias = _operands(op, inputs)
    dtype = a.dtype
    wide = torch.float64 if a.device.type == "cpu" or not a.is_floating_point() else torch.float32
    step = _step(a.shape, b.shape[-1]) if a.device.type == "cpu" else 1
    rows = slice(None, None, step)
    a, b = a[..., rows, :].to(wide), b.to(wide)
    with torch.no_grad(), _exact():
        values = a @ b
        terms = a.norm(dim=-1, keepdim=True) * b.norm(dim=-2, keepdim=True)
    if bias is not None:
        added = bias.to(wide)
        added = added[..., rows, :] if added.dim() > 1 and added.shape[-2] > 1 else added
        values, terms = values + added, terms + added.abs()
    return _truth(values, terms, rows, dtype, precision)


def _true_convolution(inputs: Sequence[Tensor], given: Options) -> Truth:
    """Libraries take TF32 for float32, whatever the precision of products is."""
    if any(dict(given).get("transposed", ())):
        raise NoReference("no reference is known for a transposed convolution")
    everything = (slice(None),) * inputs[0].dim()
    with torch.no_grad():
        values, terms = ConvReference(given).part(inputs, everything)
    precision = "high" if inputs[0].is_cuda else "highest"
    return _truth(values, terms, slice(None), inputs[0].dtype, precision)


def _truth(values: Tensor, terms: Tensor, rows: slice, dtype: torch.dtype, precision: str) -> Truth:
    """`values` are in a wider type than `dtype`, in which choices compute."""
    wide = values.dtype
    if 0 in values.shape:
        return Truth(values, values, rows)
    if dtype.is_floating_point and not bool(values.abs().max() < 0.9 * torch.finfo(dtype).max):
        raise NoReference(f"the result is too large for {dtype}")
    if not dtype.is_floating_point:
        return Truth(values, torch.full_like(values, 0.5), rows)
    relative = _COARSE.get(precision, 0.0) if dtype == torch.float32 else 0.0
    relative = max(relative, _LOW.get(dtype, 8 * torch.finfo(wide).eps))
    if wide == torch.float32:
        relative = max(relative, 8 * 2.0**-23)
    rounding = 2 * torch.finfo(dtype).eps * values.abs()
    return Truth(values, rounding + relative * terms + 1e-30, rows)


def _operands(op: str, inputs: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor | None]:
    """A, B and what is added."""
    row = OPS.get(op)
    if row is None or not row.buildable or not row.takes(len(inputs)):
        raise NoReference(f"no reference is known for {op} with {counted(len(inputs), 'input')}")
    given = dict(zip(row.inputs, inputs, strict=False))
    a, b = given["a"], given["b"]
    if row.packed:
        b = b.to_dense() if b.layout is not torch.strided else b
        if a.shape[-1] != b.shape[-1]:
            raise NoReference("its packed weight cannot be read")
    return a, b.mT if row.weight else b, given.get("bias")


def _step(shape: Sequence[int], columns: int) -> int:
    """Every so many-th row is looked at."""
    return max(1, math.ceil(2.0 * math.prod(shape) * columns / MOST_OPERATIONS))


class _exact:
    """Full float32 products on a GPU, whatever the op's own precision is."""

    def __enter__(self) -> None:
        self._was = torch.get_float32_matmul_precision()
        if self._was != "highest":
            torch.set_float32_matmul_precision("highest")

    def __exit__(self, *_: object) -> None:
        if self._was != "highest":
            torch.set_float32_matmul_precision(self._was)
