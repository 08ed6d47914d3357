"""Choices that torch offers, made ready to be sampled again and again in ever other memory."""

from __future__ import annotations

import functools
import math
import random
import time
from collections.abc import Callable, Sequence
from math import log2
from typing import TypeVar

import torch
from torch import Tensor

from backend.inductor.benchmark.errors import WrongResult
from backend.inductor.benchmark.request import Operands, Question, moved
from backend.inductor.torch import tuning as torch_api
from backend.inductor.torch.choices import Run
from backend.worker import truth
from backend.worker.house import House, LeftRunning
from backend.worker.mark import Mark
from backend.worker.rounds import ChoiceBroke, Sample
from backend.worker.timer import Repeat, timer_for
from backend.worker.truth import NoReference, Truth

TRIES = 4
"""Samples that are taken until one is clean."""
WAITED = 0.02
"""Share of a sample's time that threads may wait for a CPU in a clean one."""

T = TypeVar("T")

_REFERENCE = ""
"""Its place among the hashes."""

_PAGE, _LINE = 4096, 64
"""Bytes: a tensor begins at any cache line of a page, as torch aligns them on a CPU."""
_GPU_SPREAD, _GPU_ALIGN = 1 << 16, 512
"""Bytes: torch aligns tensors on a GPU to 512."""


class ChoiceBench:
    """The choices `hashes` of a question; `mark` is told which of them is being run.

    Raises ChoiceBroke only where `rounds.Bench` says so, and in `check`.
    """

    def __init__(
        self, question: Question, hashes: Sequence[str], mark: Mark, *, flush: bool
    ) -> None:
        self._question = question
        self._mark = mark
        self._house = House(mark)
        self._timer = timer_for(question.device, flush=flush)
        self._made: Operands = question.operands(hashes)
        self._operands: Operands = {}
        self._runs: dict[str, Run] = {}
        self._repeats: dict[str, Repeat] = {}
        self._reference: Run = lambda: None

    def set_reference(self, operations: float) -> None:
        """Let a square product of about so many multiplications be the reference kernel."""
        self._reference = _product(operations, self._question.device)
        self._repeats[_REFERENCE] = self._timer.repeat(self._reference)

    def truth(self, op: str, precision: str) -> Truth:
        """What the inputs of all choices lead to. Raises NoReference."""
        try:
            return truth.product(op, self._question.given, precision)
        except (RuntimeError, IndexError) as error:  # no memory for it, or odd operands
            raise NoReference(torch_api.describe(error)) from error

    def check(self, hash: str, right: Truth | None) -> bool:
        """Run a choice on tensors that nobody else uses; whether its result could be compared.

        Raises ChoiceBroke where the result is wrong, or not there after a timed sample, and where
        processes are left behind.
        """
        self._runs.clear()
        self._operands = {}
        found = self._guarded(hash, lambda: self._result(hash))
        own = self._question.own(hash)
        if own is None:
            fault = "" if right is None else right.fault(found)
            if fault:
                raise ChoiceBroke(hash, fault)
            return right is not None
        expected = own.expected()
        if expected is not None:
            try:
                expected.check(found)
            except WrongResult as error:
                raise ChoiceBroke(hash, str(error)) from error
        return expected is not None

    def _result(self, hash: str) -> Tensor:
        """The first time of one call, later of a timed sample where the choice has an output."""
        operands = moved({hash: self._made[hash]}, _somewhere)
        out = operands[hash][-1]
        out.fill_(math.nan if out.is_floating_point() else -7)
        run = self._question.run_function(hash, operands)
        if hash in self._repeats:
            self._timer.sample(run, self._repeats[hash])
            given = None if self._question.returned(hash, out) is None else run()
        else:
            with self._house.leaving_nobody():
                given = run()
        self._timer.wait()
        found = self._question.returned(hash, given)
        return out if found is None else found

    def renew(self, hashes: Sequence[str]) -> None:
        self._runs.clear()
        self._operands = {}  # their memory can be used again
        self._operands = moved({hash: self._made[hash] for hash in hashes}, _somewhere)
        for hash in hashes:
            self._runs[hash] = self._guarded(hash, functools.partial(self._started, hash))

    def sample(self, hash: str) -> Sample:
        return self._guarded(hash, lambda: self._sample(hash, self._runs[hash]))

    def reference(self) -> Sample:
        return self._sample(_REFERENCE, self._reference)

    def _started(self, hash: str) -> Run:
        run = self._question.run_function(hash, self._operands)
        run()
        self._timer.wait()
        if hash not in self._repeats:
            self._repeats[hash] = self._timer.repeat(run)
        return run

    def _sample(self, name: str, run: Run) -> Sample:
        """Again and again until it is long enough and no thread of ours had to wait for a CPU."""
        for _ in range(TRIES):
            waited, begin = self._timer.waited_ns(), time.perf_counter_ns()
            ms = self._timer.sample(run, self._repeats[name])
            lasted = time.perf_counter_ns() - begin
            if not self._timer.flushes and not self._repeats[name].enough(ms):
                self._repeats[name] = self._timer.repeat(run)
            elif waited is None or (self._timer.waited_ns() or 0) - waited <= WAITED * lasted:
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


def _product(operations: float, device: torch.device) -> Run:
    size = 1 << min(12, max(4, round(log2(max(operations, 1.0)) / 3)))
    dtype = torch.float32 if device.type == "cpu" else torch.float16
    left = torch.ones(size, size, dtype=dtype, device=device)
    out = torch.empty_like(left)
    return lambda: torch.mm(left, left, out=out)
