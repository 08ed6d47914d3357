"""Choices that torch offers, made ready to be sampled again and again in ever other memory."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable, Sequence
from math import log2
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from backend.inductor.benchmark.errors import WrongResult
from backend.inductor.benchmark.request import Operands, Question, bytes_of, movable, moved
from backend.inductor.torch import tuning as torch_api
from backend.inductor.torch.choices import Run
from backend.measure.machine.state import State, Watch
from backend.model.choice import Caches
from backend.model.convolution import Options
from backend.processes.shared import Mark
from backend.processes.supervisor import House, LeftRunning
from backend.worker.measure.machine import sensor_of
from backend.worker.measure.outputs import Seen, seen
from backend.worker.measure.rounds import ChoiceBroke, Sample
from backend.worker.measure.timer import Repeat, caches_of_a_model, timer_for
from backend.worker.measure.truth import (
    Exact,
    NoReference,
    Truth,
    exact_product,
    true_product,
)

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

    def exact(self, op: str, precision: str, truth: Truth, given: Options = ()) -> Exact | None:
        """The same element by element; None where no such bound is known."""
        try:
            return exact_product(op, self._question.given, precision, truth, given)
        except (RuntimeError, IndexError, NoReference):  # no memory for it, or odd operands
            return None

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

    def seen(self, hash: str, exact: Exact | None) -> Seen:
        """What it gives for the inputs that all choices get. Raises ChoiceBroke."""
        self._runs.clear()
        self._operands = []
        return self._guarded(hash, lambda: self._seen(hash, exact))

    def _seen(self, hash: str, exact: Exact | None) -> Seen:
        operands = self._question.alike(hash, moved({hash: self._made[hash]}, _somewhere))
        out = operands[hash][-1]
        run = self._question.run_function(hash, operands)

        def result() -> Tensor:
            out.fill_(math.nan if out.is_floating_point() else -7)
            returned = self._question.returned(hash, run())
            self._timer.wait()
            return out if returned is None else returned

        return seen(result, exact if self._question.plain(hash) else None)

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
