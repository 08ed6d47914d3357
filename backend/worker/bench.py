"""Choices that torch offers, made ready to be sampled again and again in ever other memory."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from backend.inductor.benchmark.errors import WrongResult
from backend.inductor.benchmark.question import Operands, Question, bytes_of, movable, moved
from backend.inductor.sampling.memory import copies_that_fit, somewhere
from backend.inductor.sampling.outputs import Seen, seen
from backend.inductor.sampling.sampler import Sampler
from backend.inductor.sampling.timer import caches_of_a_model
from backend.inductor.torch import tuning as torch_api
from backend.inductor.torch.choices import Run
from backend.inductor.truth.choices import bound_of
from backend.inductor.truth.problem import NoReference
from backend.inductor.truth.rounding import Exact, exact_product
from backend.inductor.truth.wrong import Asked, Truth, true_product
from backend.measure.rounds import ChoiceBroke, Sample
from backend.model.choice import Caches
from backend.processes.shared import Mark
from backend.processes.supervisor import House, LeftRunning
from backend.worker.rebuilt import KnownNumbers

T = TypeVar("T")


class ChoiceBench(Sampler):
    """The choices `hashes` of a question; `mark` is told which of them is being run.

    Where it is cold, there are as many copies of the operands as a sample has calls, as far as
    memory reaches. Raises ChoiceBroke only where `rounds.Bench` says so, and in `check`.
    """

    def __init__(
        self,
        question: Question,
        hashes: Sequence[str],
        mark: Mark,
        caches: Caches | None = None,
        numbers: KnownNumbers | None = None,
    ) -> None:
        self._question = question
        self._numbers = numbers
        self._mark = mark
        self._house = House(mark)
        self._made: Operands = question.operands(hashes)
        largest = max(bytes_of({hash: self._made[hash]}) for hash in hashes)
        super().__init__(question.device, caches or caches_of_a_model(question.device, largest))
        self._counted = not self._timer.cold or not movable(self._made)
        self._operands: list[Operands] = []
        self._runs: dict[str, list[Run]] = {}

    def truth(self, asked: Asked) -> Truth:
        """What the inputs of all choices lead to. Raises NoReference."""
        try:
            if self._numbers is not None:
                return self._numbers.truth(asked.precision)
            return true_product(asked, self._question.given)
        except (RuntimeError, IndexError) as error:  # no memory for it, or odd operands
            raise NoReference(torch_api.describe(error)) from error

    def exact(self, asked: Asked, truth: Truth) -> Exact | None:
        """The same element by element; None where no such bound is known."""
        if self._numbers is not None:
            return None
        try:
            return exact_product(asked, self._question.given, truth)
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
        operands = moved({hash: self._made[hash]}, somewhere)
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
        return self._computed(operands[hash]) if result is None else result

    def _computed(self, operands: Sequence[Tensor]) -> Tensor:
        """What was written to the output, and where the result is in more than that, all of it."""
        if self._numbers is None:
            return operands[-1]
        return self._numbers.result(operands)

    def seen(self, hash: str, exact: Exact | None) -> Seen:
        """What it gives for the inputs that all choices get. Raises ChoiceBroke."""
        self._runs.clear()
        self._operands = []
        return self._guarded(hash, lambda: self._seen(hash, exact))

    def _seen(self, hash: str, exact: Exact | None) -> Seen:
        operands = self._question.alike(hash, moved({hash: self._made[hash]}, somewhere))
        out = operands[hash][-1]
        run = self._question.run_function(hash, operands)

        def result() -> Tensor:
            out.fill_(math.nan if out.is_floating_point() else -7)
            returned = self._question.returned(hash, run())
            self._timer.wait()
            return self._computed(operands[hash]) if returned is None else returned

        if exact is not None:
            exact = bound_of(self._question.choices[hash], exact, out.dtype)
        return seen(result, exact)

    def renew(self, hashes: Sequence[str]) -> None:
        self._start(hashes)
        if not self._counted:
            self._counted = True
            self._copies = self._copies_of(hashes)
            self._start(hashes)

    def sample(self, hash: str) -> Sample:
        return self._guarded(hash, lambda: self._sample(hash, self._runs[hash]))

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
                return [moved(made, somewhere) for _ in range(self._copies)]
            except torch.OutOfMemoryError:
                if self._copies == 1:
                    raise
                self._copies //= 2

    def _copies_of(self, hashes: Sequence[str]) -> int:
        """As many as the longest row of calls, and as there is memory for."""
        made = {hash: self._made[hash] for hash in hashes}
        wanted = max(self._repeats[hash].copies for hash in hashes)
        return copies_that_fit(wanted, bytes_of(made), self._question.device)

    def _started(self, hash: str) -> list[Run]:
        runs = [self._question.run_function(hash, operands) for operands in self._operands]
        runs[0]()
        self._timer.wait()
        if hash not in self._repeats:
            self._repeats[hash] = self._timer.repeat(runs[0])
        return runs

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
