"""Which choice is really faster? They are run again in many rounds, until that is clear.

The op is rebuilt from its inputs key and compiled up to the question which choice to take. The
choices that are offered there, Inductor's own callers with its own example tensors, are caught and
then timed outside of the compile. Nothing is tuned: the autotune cache stays as it is. What was
found goes into the log of a session of its own.

A choice whose result is wrong is not measured, nor one that is right at first alone.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

import torch

from backend.counted import counted
from backend.inductor.benchmark.places import place_of
from backend.inductor.benchmark.question import Question
from backend.inductor.hooks import recording
from backend.inductor.sampling.outputs import Seen, outputs_of
from backend.inductor.torch import tuning as torch_api
from backend.inductor.truth.choices import asked_of
from backend.inductor.truth.problem import NoReference
from backend.measure.rounds import ChoiceBroke, OnRounds, Rounds, measure, measurement_of
from backend.model.choice import Caches, Measurement
from backend.model.events import SessionEnded, TuningMeasured
from backend.model.ops import OPS
from backend.model.origin import is_own
from backend.model.problem import TuningKey
from backend.processes.shared import Mark
from backend.wire.jobs import BadJob, MeasureJob, MeasureResult
from backend.worker.bench import ChoiceBench
from backend.worker.capture import question_of
from backend.worker.device_hashes import as_asked, why_not_offered
from backend.worker.problem import options_of, set_precision, set_threads, settings_of, specs_of
from backend.worker.protocol import TellProgress
from backend.worker.rebuilt import NotRebuildable


class NotMeasured(Exception):
    """There is no measurement; one line says why."""


def run(job: MeasureJob, tell: TellProgress, mark: Mark) -> MeasureResult:
    """Raises BadJob where every choice is broken, or there is no such mode. A GPU's memory is free
    again afterwards."""
    if not set(job.hashes) - set(job.broken):
        raise BadJob("the job's `hashes` are all broken")
    settings = settings_of(job.mode)
    set_threads(job.threads)
    try:
        return _measured(job, settings, tell, mark)
    except (NotMeasured, NotRebuildable) as error:
        return MeasureResult(ok=False, reason=str(error), modes=len(torch_api.MODES))
    finally:
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()


def _measured(
    job: MeasureJob, settings: Mapping[str, bool], tell: TellProgress, mark: Mark
) -> MeasureResult:
    hashes = list(dict.fromkeys(job.hashes))
    set_precision(job.key)
    tell(f"compiling {job.op} up to its choices")
    caught = question_of(
        job.key,
        [hash for hash in hashes if hash not in job.broken],
        settings,
        templates=any(map(is_own, hashes)),
        mark=mark,
        told=job.options,
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
    failed = {**gone, **broken, **caught.failed}
    able = [hash for hash in hashes if hash not in failed]
    names = {hash: str(choice.name) for hash, choice in offered.items()}
    rounds, unchecked, caches = Rounds([]), tuple[str, ...](), job.caches
    found: dict[str, Seen] = {}
    if able:
        with place_of(question.device).current():
            bench = ChoiceBench(question, able, mark, job.caches, caught.numbers)
            rounds, unchecked = _rounds(job, question, bench, able, _teller(tell, names), found)
        caches = bench.caches
        if caught.numbers is not None and caught.numbers.note:
            unchecked = (*unchecked, caught.numbers.note)
    rounds.failed.update(failed)
    measurement, log = _recorded(job, rounds, names, unchecked, caches or "hot", found)
    return MeasureResult(True, modes=modes, measurement=measurement, log=log)


def _why(hash: str, question: Question) -> str:
    """Why a choice is not offered; where that is unknown, what often is the reason."""
    dynamic = "choices for dynamic sizes have hashes of their own"
    if question.device.type != "cpu":
        return why_not_offered(hash, question.choices) or dynamic
    threads = torch.get_num_threads()
    counts = f"C++ choices depend on the number of threads, here {threads}: see OMP_NUM_THREADS"
    return f"{counts}; {dynamic}"


def _rounds(
    job: MeasureJob,
    question: Question,
    bench: ChoiceBench,
    able: Sequence[str],
    hear: OnRounds,
    found: dict[str, Seen],
) -> tuple[Rounds, tuple[str, ...]]:
    """What was seen of those whose results are right, and a sentence on those that could not be
    checked. `found` is told what each one computes."""
    bench.set_reference(_operations(job.key, question.columns))
    given = options_of(job.key, job.hashes, job.options)
    asked = asked_of(job.op, job.precision, question.choices.values(), question.sizes, given)
    try:
        right, unknown = bench.truth(asked), ""
    except NoReference as error:
        right, unknown = None, f": {error}"
    exact = None if right is None else bench.exact(asked, right)
    wrong: dict[str, str] = {}
    unchecked: list[str] = []
    for hash in able:
        try:
            if not bench.check(hash, right):
                unchecked.append(hash)
            if not asked.adds_up:
                found[hash] = bench.seen(hash, exact)
        except ChoiceBroke as broken:
            wrong[hash] = broken.reason
    exact = None  # its memory can be used again
    able = [hash for hash in able if hash not in wrong]
    rounds = Rounds([])
    if able:
        hear(rounds, job.budget)  # from here on it measures
        rounds = measure(bench, able, time.monotonic() + job.budget, hear, job.rounds)
    for hash in [] if asked.adds_up else list(rounds.hashes):
        try:
            bench.check(hash, right)
        except ChoiceBroke as broken:
            rounds.expel(broken)
    rounds.failed.update(wrong)
    if question.device.type != "cpu":  # the thread sleeps until the device is done
        rounds.signs = replace(rounds.signs, cpu_seconds=None)
    left = [str(question.choices[hash].name) for hash in unchecked if hash in rounds.hashes]
    if not left:
        return rounds, ()
    return rounds, (f"not checked whether it is right: {', '.join(left)}{unknown}",)


def _teller(tell: TellProgress, names: Mapping[str, str]) -> OnRounds:
    def hear(rounds: Rounds, seconds: float) -> None:
        standings, left = rounds.standings, round(max(0.0, seconds), 1)
        settled = sum(standing.verdict != "unclear" for standing in standings[1:])
        best, ahead = "", ""
        if standings:
            best = names[standings[0].hash]
            ahead = f", {settled} of {counted(len(standings) - 1, 'verdict')} clear, best {best}"
        tell(
            f"{counted(rounds.clean.count, 'round')}{ahead}, at most {left:.0f} s left",
            rounds=rounds.clean.count,
            settled=settled,
            choices=len(rounds.hashes),
            best=best,
            seconds_left=left,
        )

    return hear


def _operations(key: TuningKey, columns: int) -> float:
    """About as many multiplications as the op has, if it is a product of matrices."""
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
    found: Mapping[str, Seen],
) -> tuple[Measurement, str | None]:
    """The measurement, and the log of the session that it was written as. Raises NotMeasured where
    no choice could be run."""
    if not rounds.standings:
        hash, reason = next(iter(rounds.failed.items()))
        raise NotMeasured(f"none of the choices can be run; {names.get(hash, hash)}: {reason}")
    log = recording.session_without_tunings()
    outputs = outputs_of(found, [standing.hash for standing in rounds.standings])
    measurement = measurement_of(job.key, rounds, names, log.session, outputs, caches, unchecked)
    for event in (TuningMeasured(as_asked(measurement)), SessionEnded(time.time())):
        log.write(event)
    log.close()
    if not log.error:
        return measurement, str(log.path)
    lost = f"this is kept nowhere: {log.error}"
    return replace(measurement, trouble=(*measurement.trouble, lost)), None
