"""Which choice is really faster? They are run again in many rounds, until that is clear.

The op is rebuilt from its inputs key and compiled up to the question which choice to take. The
choices that are offered there, Inductor's own callers with its own example tensors, are then timed
outside of the compile. Nothing is tuned: the autotune cache stays as it is. What was found goes
into the log of a session of its own.

A choice whose result is wrong is not measured, nor one that is right at first alone.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from statistics import median
from typing import Any

import torch

from backend.events import SessionEnded, TuningMeasured
from backend.inductor.benchmark.request import Question
from backend.inductor.hooks import recording
from backend.inductor.torch import tuning as torch_api
from backend.measure.disturbance import disturbances
from backend.records import Choice, Measurement, Session, TuningKey
from backend.store.events import encode
from backend.store.graph_match import is_own
from backend.worker.bench import ChoiceBench
from backend.worker.capture import capture
from backend.worker.mark import Mark, mark_argument
from backend.worker.protocol import Arguments, BadJob, Progress
from backend.worker.rebuild import NotRebuildable, rebuild
from backend.worker.rounds import ChoiceBroke, Rounds, Tell, measure
from backend.worker.settings import (
    broken_argument,
    key_argument,
    mode_argument,
    set_precision,
    set_threads,
    specs_of,
)
from backend.worker.truth import NoReference

LOST_SHARE = 0.1
"""Share of the rounds that another process spoiled, from which on that is told."""


class NotMeasured(Exception):
    """There is no measurement; one line says why."""


@dataclass(frozen=True, slots=True)
class Task:
    key: TuningKey
    hashes: tuple[str, ...]
    mode: int
    budget: float
    flush: bool
    partly: bool
    least: int
    broken: Mapping[str, str]
    mark: Mark


def run(arguments: Arguments, progress: Progress) -> dict[str, Any]:
    """Arguments: `op`, `inputs`, `precision`, texts; `hashes`, the choices, a list; `budget`,
    seconds of measuring, compiling not counted; `flush`, whether to empty the caches before each
    call; `mode`, an index of the `MODES`; `partly`, whether to go on without those choices that
    are not offered in this mode; `rounds`, so many at least, while there is time; `broken`, those
    of the choices that are not run, since they ended an earlier worker, with the reasons; `mark`,
    see `mark_argument`; `threads`, see `set_threads`.

    The result: `ok`; `reason`, why it is not; `measurement`, as an event of a session log; `log`,
    the path of that log, null where it could not be written; `conclusive`, whether all choices were
    offered in this mode, and `missing`, those that were not. If there are any, try another of the
    `modes` that there are, each in a process of its own.
    """
    task = _task(arguments)
    set_threads(arguments)
    try:
        return _measured(task, progress)
    except (NotMeasured, NotRebuildable) as error:
        return _result(reason=str(error))


def _task(arguments: Arguments) -> Task:
    hashes, budget = arguments.get("hashes"), arguments.get("budget", 30.0)
    if not (isinstance(hashes, list) and hashes and all(isinstance(h, str) for h in hashes)):
        raise BadJob("the job needs `hashes`, a list of texts")
    if type(budget) not in (int, float) or not (math.isfinite(budget) and budget > 0):
        raise BadJob("the job's `budget` is a number of seconds above 0")
    least = arguments.get("rounds", 0)
    if type(least) is not int:
        raise BadJob("the job's `rounds` is a whole number")
    broken = broken_argument(arguments)
    if not set(hashes) - set(broken):
        raise BadJob("the job's `hashes` are all broken")
    return Task(
        key=key_argument(arguments),
        hashes=tuple(dict.fromkeys(hashes)),
        mode=mode_argument(arguments),
        budget=float(budget),
        flush=bool(arguments.get("flush", False)),
        partly=bool(arguments.get("partly", False)),
        least=least,
        broken={hash: broken[hash] for hash in hashes if hash in broken},
        mark=mark_argument(arguments),
    )


def _result(
    *,
    measurement: Measurement | None = None,
    log: str | None = None,
    reason: str = "",
    missing: Sequence[str] = (),
) -> dict[str, Any]:
    event = None if measurement is None else json.loads(encode(TuningMeasured(measurement)))
    return {
        "ok": measurement is not None,
        "measurement": event,
        "log": log,
        "reason": reason,
        "missing": list(missing),
        "conclusive": not missing,
        "modes": len(torch_api.MODES),
    }


def _measured(task: Task, progress: Progress) -> dict[str, Any]:
    program = rebuild(task.key.op, specs_of(task.key))
    set_precision(task.key)
    progress(f"compiling {task.key.op} up to its choices")
    caught = capture(
        program,
        task.key,
        [hash for hash in task.hashes if hash not in task.broken],
        torch_api.MODES[task.mode],
        templates=any(map(is_own, task.hashes)),
        mark=task.mark,
    )
    offered = caught.question.choices
    missing = [hash for hash in task.hashes if hash not in offered]
    if missing and not task.partly:
        there = ", ".join(sorted(str(choice.name) for choice in offered.values()))
        reason = f"{missing[0]} is none of the {len(offered)} choices that this torch offers"
        return _result(reason=f"{reason} ({there}){_why(caught.question)}", missing=missing)
    gone = dict.fromkeys(missing, f"this torch does not offer it{_why(caught.question)}")
    failed = {**gone, **task.broken, **caught.failed}
    able = [hash for hash in task.hashes if hash not in failed]
    names = {hash: str(choice.name) for hash, choice in offered.items()}
    rounds, unchecked = Rounds([]), tuple[str, ...]()
    if able:
        rounds, unchecked = _rounds(task, caught.question, able, _teller(progress, names))
    rounds.failed.update(failed)
    return _recorded(task, rounds, names, unchecked)


def _why(question: Question) -> str:
    """What often is the reason where a choice is not offered."""
    if question.device.type != "cpu":
        return ""
    threads = torch.get_num_threads()
    return f"; C++ choices depend on the number of threads, here {threads}: see OMP_NUM_THREADS"


def _rounds(
    task: Task, question: Question, able: Sequence[str], tell: Tell
) -> tuple[Rounds, tuple[str, ...]]:
    """What was seen of those whose results are right, and a sentence on those that could not be
    checked."""
    bench = ChoiceBench(question, able, task.mark, flush=task.flush)
    bench.set_reference(_operations(task, question.columns))
    try:
        right, unknown = bench.truth(task.key.op, task.key.precision), ""
    except NoReference as error:
        right, unknown = None, f": {error}"
    wrong: dict[str, str] = {}
    unchecked: list[str] = []
    for hash in able:
        try:
            if not bench.check(hash, right):
                unchecked.append(hash)
        except ChoiceBroke as broken:
            wrong[hash] = broken.reason
    able = [hash for hash in able if hash not in wrong]
    rounds = Rounds([])
    if able:
        rounds = measure(bench, able, time.monotonic() + task.budget, tell, task.least)
    for hash in list(rounds.hashes):
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


def _teller(progress: Progress, names: Mapping[str, str]) -> Tell:
    def tell(rounds: Rounds, left: float) -> None:
        told, left = rounds.standings, round(max(0.0, left), 1)
        settled = sum(standing.verdict != "unclear" for standing in told[1:])
        best = names[told[0].hash] if told else None
        ahead = f", {settled} of {len(told) - 1} verdicts clear, best {best}" if told else ""
        progress(
            f"{rounds.clean.count} rounds{ahead}, at most {left:.0f} s left",
            rounds=rounds.clean.count,
            settled=settled,
            choices=len(rounds.hashes),
            best=best,
            seconds_left=left,
        )

    return tell


def _operations(task: Task, columns: int) -> float:
    """About as many multiplications as the op has, if it is a product of matrices."""
    specs = specs_of(task.key)
    left = specs[1] if task.key.op in ("addmm", "baddbmm") else specs[0]
    return float(prod(left.sizes) * columns)


def _recorded(
    task: Task, rounds: Rounds, names: Mapping[str, str], unchecked: tuple[str, ...]
) -> dict[str, Any]:
    """The result, also written as a session. Raises NotMeasured where no choice could be run."""
    if not rounds.standings:
        hash, reason = next(iter(rounds.failed.items()))
        raise NotMeasured(f"none of the choices can be run; {names.get(hash, hash)}: {reason}")
    log = recording.session_without_tunings()
    found = _measurement(task, rounds, names, log.session)
    found = replace(found, trouble=(*found.trouble, *unchecked))
    for event in (TuningMeasured(found), SessionEnded(time.time())):
        log.write(event)
    log.close()
    if log.error:
        found = replace(found, trouble=(*found.trouble, f"this is kept nowhere: {log.error}"))
    return _result(measurement=found, log=None if log.error else str(log.path))


def _measurement(
    task: Task, rounds: Rounds, names: Mapping[str, str], session: Session
) -> Measurement:
    told = rounds.told
    return Measurement(
        op=task.key.op,
        inputs=task.key.inputs,
        precision=task.key.precision,
        when=time.time(),
        choices=tuple(
            replace(standing, name=names[standing.hash]) for standing in rounds.standings
        ),
        failed=tuple(
            Choice(name=names.get(hash), hash=hash, failed=True, reason=reason)
            for hash, reason in rounds.failed.items()
        ),
        rounds=told.count,
        seconds=rounds.signs.seconds or 0.0,
        flushed=task.flush,
        reference_ms=median(told.reference),
        trouble=_trouble(rounds),
        device=session.device,
        system_hash=session.system_hash,
        session=session.id,
    )


def _trouble(rounds: Rounds) -> tuple[str, ...]:
    sentences = disturbances(rounds.told.reference, rounds.signs)
    clean, lost = rounds.clean.count, rounds.disturbed.count
    if not clean:
        return (*sentences, "other processes took the CPU in every round, so nothing is proved")
    if lost > LOST_SHARE * (clean + lost):
        told = f"{lost} of {clean + lost} rounds do not count: other processes took the CPU"
        return (*sentences, told)
    return sentences
