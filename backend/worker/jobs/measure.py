"""Measuring torch's and our choices: sampled repeatedly in changing memory."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import TypeVar

import torch
from torch import Tensor

from backend.counted import counted
from backend.inductor.benchmark.errors import WrongResult
from backend.inductor.benchmark.request import BenchmarkDevice
from backend.inductor.hooks import recording
from backend.inductor.result_checks import (
    Exact,
    OpSpec,
    Truth,
    bound_of,
    exact_product,
    op_spec_of,
    true_product,
)
from backend.inductor.sampling import (
    OutputSample,
    Sampler,
    bytes_at_random_offset,
    caches_of_a_model,
    outputs_of,
    sample_output,
)
from backend.inductor.torch import tuning as torch_api
from backend.inductor.torch.choices import Run
from backend.inductor.true_results import NoReference
from backend.measure.rounds import ChoiceBroke, OnRounds, Rounds, Sample, measure, measurement_of
from backend.model.choice import Caches, Measurement
from backend.model.events import TuningMeasured
from backend.model.ops import OPS
from backend.model.origin import is_own
from backend.model.problem import TuningKey
from backend.processes.shared import ChoiceMark
from backend.processes.supervisor import LeftRunning, ProcessGuard
from backend.wire.jobs import JobInvalid, MeasureJob, MeasureResult
from backend.worker.boundary import as_asked, why_not_offered
from backend.worker.capture import (
    Operands,
    SelectorCall,
    bytes_of,
    can_be_copied,
    copied_operands,
    question_of,
)
from backend.worker.problem import options_of_key, set_precision, set_threads, settings_of, specs_of
from backend.worker.protocol import ReportProgress, rounds_reporter
from backend.worker.rebuilt import NotRebuildable, OpNumbers

T = TypeVar("T")


class ChoiceBench(Sampler):
    """The choices `hashes` of a selection; `mark` records which of them is being run.

    If cold, there are as many copies of the operands as a sample has calls, memory permitting.
    Raises ChoiceBroke only where `rounds.Bench` says so, and in `check`.
    """

    def __init__(
        self,
        question: SelectorCall,
        hashes: Sequence[str],
        mark: ChoiceMark,
        caches: Caches | None = None,
        numbers: OpNumbers | None = None,
    ) -> None:
        self._question = question
        self._numbers = numbers
        self._mark = mark
        self._guard = ProcessGuard(mark)
        self._inputs_of_choices: Operands = question.operands(hashes)
        largest = max(bytes_of({hash: self._inputs_of_choices[hash]}) for hash in hashes)
        super().__init__(question.device, caches or caches_of_a_model(question.device, largest))
        self._counted = self._counted or not can_be_copied(self._inputs_of_choices)
        self._operands: list[Operands] = []
        self._runs: dict[str, list[Run]] = {}

    def truth(self, spec: OpSpec) -> Truth:
        """Return the true result of the inputs that all choices get. Raises NoReference."""
        try:
            if self._numbers is not None:
                return self._numbers.truth(spec.precision)
            return true_product(spec, self._question.given)
        except (RuntimeError, IndexError) as error:  # out of memory, or unusual operands
            raise NoReference(torch_api.describe(error)) from error

    def exact(self, spec: OpSpec, truth: Truth) -> Exact | None:
        """Return the bound of each element of the result; None if unknown."""
        if self._numbers is not None:
            return None
        try:
            return exact_product(spec, self._question.given, truth)
        except (RuntimeError, IndexError, NoReference):  # out of memory, or unusual operands
            return None

    def check(self, hash: str, right: Truth | None) -> bool:
        """Run a choice on separate tensors; return whether its result could be compared.

        Raises ChoiceBroke if the result is wrong, or missing after a timed sample, and if processes
        are left behind.
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
        """Return the result of one call, or of a later timed sample if the choice has an output."""
        operands = copied_operands({hash: self._inputs_of_choices[hash]}, bytes_at_random_offset)
        out = operands[hash][-1]
        out.fill_(math.nan if out.is_floating_point() else -7)
        run = self._question.run_function(hash, operands)
        if hash in self._repeats:
            self._timer.sample([run], self._repeat(hash))
            given = None if self._question.returned(hash, out) is None else run()
        else:
            with self._guard.no_leftovers():
                given = run()
        self._timer.wait()
        result = self._question.returned(hash, given)
        return self._computed(operands[hash]) if result is None else result

    def _computed(self, operands: Sequence[Tensor]) -> Tensor:
        """Return what was written to the output, or to all tensors that hold the result."""
        if self._numbers is None:
            return operands[-1]
        return self._numbers.result(operands)

    def output_of(self, hash: str, exact: Exact | None) -> OutputSample:
        """Return the output for the inputs that all choices get. Raises ChoiceBroke."""
        self._runs.clear()
        self._operands = []
        return self._guarded(hash, lambda: self._output_of(hash, exact))

    def _output_of(self, hash: str, exact: Exact | None) -> OutputSample:
        operands = self._question.alike(
            hash, copied_operands({hash: self._inputs_of_choices[hash]}, bytes_at_random_offset)
        )
        out = operands[hash][-1]
        run = self._question.run_function(hash, operands)

        def result() -> Tensor:
            out.fill_(math.nan if out.is_floating_point() else -7)
            returned = self._question.returned(hash, run())
            self._timer.wait()
            return self._computed(operands[hash]) if returned is None else returned

        if exact is not None:
            exact = bound_of(self._question.choices[hash], exact, out.dtype)
        return sample_output(result, exact)

    def sample(self, hash: str) -> Sample:
        return self._guarded(hash, lambda: self._sample(hash, self._runs[hash]))

    def _start(self, hashes: Sequence[str]) -> None:
        """Create the operands again, and a function that runs each choice on each copy of them."""
        self._runs.clear()
        self._operands = []  # frees their memory
        chosen = {hash: self._inputs_of_choices[hash] for hash in hashes}
        self._operands = self._copied(lambda: copied_operands(chosen, bytes_at_random_offset))
        for hash in hashes:
            self._runs[hash] = self._guarded(hash, functools.partial(self._started, hash))

    def _bytes_of(self, hashes: Sequence[str]) -> int:
        return bytes_of({hash: self._inputs_of_choices[hash] for hash in hashes})

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
                    self._guard.tidy()
        except LeftRunning as error:
            raise ChoiceBroke(hash, str(error)) from error
        except BaseException as error:  # a kernel's error ends only this choice
            raise ChoiceBroke(hash, torch_api.describe(error)) from error


class NothingMeasured(Exception):
    """There is no measurement; the message is one line."""


def run(job: MeasureJob, progress: ReportProgress, mark: ChoiceMark) -> MeasureResult:
    """Measure. Raises JobInvalid if every choice is broken, or the mode does not exist. A GPU's
    memory is freed afterwards."""
    if not set(job.hashes) - set(job.broken):
        raise JobInvalid("the job's `hashes` are all broken")
    settings = settings_of(job.mode)
    set_threads(job.threads)
    try:
        return _measured(job, settings, progress, mark)
    except (NothingMeasured, NotRebuildable) as error:
        return MeasureResult(ok=False, reason=str(error), modes=len(torch_api.MODES))
    finally:
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()


def _measured(
    job: MeasureJob, settings: Mapping[str, bool], progress: ReportProgress, mark: ChoiceMark
) -> MeasureResult:
    hashes = list(dict.fromkeys(job.hashes))
    set_precision(job.key)
    progress(f"compiling {job.op} up to its choices")
    caught = question_of(
        job.key,
        [hash for hash in hashes if hash not in job.broken],
        settings,
        templates=any(map(is_own, hashes)),
        mark=mark,
        recorded=job.options,
    )
    question, offered = caught.question, caught.question.choices
    missing = [hash for hash in hashes if hash not in offered]
    modes = len(torch_api.MODES)
    if missing and not job.partly:
        there = ", ".join(sorted(str(choice.name) for choice in offered.values()))
        reason = (
            f"{missing[0]} is none of the {counted(len(offered), 'choice')} that this torch offers"
        )
        reason += f" ({there}); {_why(missing[0], question)}"
        return MeasureResult(False, reason, False, modes, missing=tuple(missing))
    gone = {hash: f"this torch does not offer it; {_why(hash, question)}" for hash in missing}
    broken = {hash: job.broken[hash] for hash in hashes if hash in job.broken}
    uncompiled = {hash: caught.failed[hash] for hash in hashes if hash in caught.failed}
    failed = {**gone, **broken, **uncompiled}
    able = [hash for hash in hashes if hash not in failed]
    names = {hash: str(choice.name) for hash, choice in offered.items()}
    rounds, unchecked, caches = Rounds([]), tuple[str, ...](), job.caches
    samples: dict[str, OutputSample] = {}
    if able:
        with BenchmarkDevice(question.device).current():
            bench = ChoiceBench(question, able, mark, job.caches, caught.numbers)
            rounds, unchecked = _rounds(
                job, question, bench, able, rounds_reporter(progress, names), samples
            )
        caches = bench.caches
        if caught.numbers is not None and caught.numbers.note:
            unchecked = (*unchecked, caught.numbers.note)
    rounds.failed.update(failed)
    measurement, log = _recorded(job, rounds, names, unchecked, caches or "hot", samples)
    return MeasureResult(True, modes=modes, measurement=measurement, log=log)


def _why(hash: str, question: SelectorCall) -> str:
    """Return why a choice is not offered; if unknown, the usual reason."""
    dynamic = "choices for dynamic sizes have hashes of their own"
    if question.device.type != "cpu":
        return why_not_offered(hash, question.choices) or dynamic
    threads = torch.get_num_threads()
    counts = f"C++ choices depend on the number of threads, here {threads}: see OMP_NUM_THREADS"
    return f"{counts}; {dynamic}"


def _rounds(
    job: MeasureJob,
    question: SelectorCall,
    bench: ChoiceBench,
    able: Sequence[str],
    hear: OnRounds,
    samples: dict[str, OutputSample],
) -> tuple[Rounds, tuple[str, ...]]:
    """Return the rounds of choices with right results, and a line about others that could not be
    checked. `samples` receives each one's output."""
    bench.set_reference(_operations(job.key, question.columns))
    given = options_of_key(job.key, job.hashes, job.options)
    spec = op_spec_of(job.op, job.precision, question.choices.values(), question.sizes, given)
    try:
        right, unknown = bench.truth(spec), ""
    except NoReference as error:
        right, unknown = None, f": {error}"
    exact = None if right is None else bench.exact(spec, right)
    wrong: dict[str, str] = {}
    unchecked: list[str] = []
    for hash in able:
        try:
            if not bench.check(hash, right):
                unchecked.append(hash)
            if not spec.adds_up:
                samples[hash] = bench.output_of(hash, exact)
        except ChoiceBroke as broken:
            wrong[hash] = broken.reason
    exact = None  # frees its memory
    able = [hash for hash in able if hash not in wrong]
    rounds = Rounds([])
    if able:
        hear(rounds, job.budget)  # measuring begins here
        rounds = measure(bench, able, time.monotonic() + job.budget, hear, job.rounds)
    for hash in [] if spec.adds_up else list(rounds.hashes):
        try:
            bench.check(hash, right)
        except ChoiceBroke as broken:
            rounds.expel(broken)
    rounds.failed.update(wrong)
    if question.device.type != "cpu":  # on a GPU the thread sleeps until the device is done
        rounds.signs = replace(rounds.signs, cpu_seconds=None)
    left = [str(question.choices[hash].name) for hash in unchecked if hash in rounds.hashes]
    if not left:
        return rounds, ()
    return rounds, (f"not checked whether it is right: {', '.join(left)}{unknown}",)


def _operations(key: TuningKey, columns: int) -> float:
    """Return about how many multiplications the op has, if it is a product of matrices."""
    specs = specs_of(key)
    row = OPS.get(key.op)
    left = specs[row.place("a") if row else 0]
    return float(prod(left.sizes) * columns)


def _recorded(
    job: MeasureJob,
    rounds: Rounds,
    names: Mapping[str, str],
    unchecked: tuple[str, ...],
    caches: Caches,
    samples: Mapping[str, OutputSample],
) -> tuple[Measurement, str | None]:
    """Return the measurement, and the log of the session in which it was written. Raises
    NothingMeasured if no choice could be run."""
    if not rounds.standings:
        hash, reason = next(iter(rounds.failed.items()))
        raise NothingMeasured(f"none of the choices can be run; {names.get(hash, hash)}: {reason}")
    log = recording.session_without_tunings()
    outputs = outputs_of(samples, [standing.hash for standing in rounds.standings])
    measurement = measurement_of(job.key, rounds, names, log.session, outputs, caches, unchecked)
    lost = recording.write_alone(log, TuningMeasured(as_asked(measurement)))
    if not lost:
        return measurement, str(log.path)
    return replace(measurement, trouble=(*measurement.trouble, lost)), None
