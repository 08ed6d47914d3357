"""Which choices to measure again, the worker's job for that, and what came of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from backend.events import TuningMeasured
from backend.records import Choice, Measurement, Tuning
from backend.store.errors import EventInvalid
from backend.store.events import decode
from rocm_tui.errors import NoSuchChoice, RocmTuiError
from rocm_tui.format import plain
from rocm_tui.job_run import RunJob
from rocm_tui.session import stats

WITHIN = 0.10
"""Relative distance from the best, up to which a choice is worth measuring again."""
BUDGET = 30.0
"""Seconds of measuring."""


class NotMeasurable(RocmTuiError):
    """Too little is known of a tuning or of a choice to run it again."""


class NotMeasured(RocmTuiError):
    """Nothing was measured; one line says why."""


def worth_measuring(
    tuning: Tuning, pinned: str | None = None, within: float = WITHIN
) -> tuple[Choice, ...]:
    """The timed choices at most `within` slower than the best; in any case the second, ATen's best
    (Inductor times its calls with the cost of a call from the middle of a compile) and the one
    whose hash is `pinned`."""
    timed = stats.ranked(tuning)
    if not timed:
        return ()
    most = (timed[0].ms or 0.0) * (1 + within)
    always = (*timed[:2], stats.aten(tuning))
    return tuple(
        choice
        for choice in timed
        if choice in always or (choice.ms or 0.0) <= most or (pinned and choice.hash == pinned)
    )


def measure_job(
    tuning: Tuning,
    choices: Sequence[Choice],
    *,
    budget: float = BUDGET,
    flush: bool = False,
    rounds: int = 0,
    mode: int = 0,
    partly: bool = False,
) -> dict[str, Any]:
    """The job of a worker. Raises NotMeasurable and NoSuchChoice."""
    key = tuning.key
    if key is None:
        raise NotMeasurable(
            f"tuning {tuning.id} is known from a log only, so its op cannot be made again; "
            "`rocm-tui tune` puts it into the persistent cache"
        )
    unknown = next((choice for choice in choices if choice.hash is None), None)
    if unknown is not None:
        raise NoSuchChoice(f"the hash of {plain(unknown.label)} is not known, so it cannot be run")
    if not choices:
        raise NotMeasurable(f"tuning {tuning.id} has no choice with a time, so none is measured")
    return {
        "job": "measure",
        "op": key.op,
        "inputs": key.inputs,
        "precision": key.precision,
        "hashes": [choice.hash for choice in choices],
        "budget": budget,
        "flush": flush,
        "rounds": rounds,
        "mode": mode,
        "partly": partly,
    }


def measure(
    run: RunJob,
    tuning: Tuning,
    choices: Sequence[Choice],
    *,
    budget: float = BUDGET,
    flush: bool = False,
    rounds: int = 0,
) -> Measurement:
    """Measure in the mode in which torch offers all `choices`, else the most of them.

    torch keeps what it made for one mode, so each is tried by a worker of its own. Raises JobError,
    NotMeasured and what `measure_job` raises.
    """
    job = measure_job(tuning, choices, budget=budget, flush=flush, rounds=rounds)
    result = run(job)
    missing = [len(result.get("missing", ()))]
    while missing[-1] and len(missing) < int(result.get("modes", 1)):
        result = run({**job, "mode": len(missing)})
        missing.append(len(result.get("missing", ())))
    if missing[-1] and min(missing) < len(choices):
        result = run({**job, "mode": missing.index(min(missing)), "partly": True})
    return measurement_of(result)


def measurement_of(result: Mapping[str, Any]) -> Measurement:
    """What a worker's result tells. Raises NotMeasured."""
    if not result.get("ok"):
        raise NotMeasured(plain(str(result.get("reason") or "the worker gave no measurement")))
    try:
        event = decode(json.dumps(result.get("measurement")))
    except EventInvalid as error:
        raise NotMeasured(f"the worker's answer makes no sense: {error}") from error
    if not isinstance(event, TuningMeasured):
        raise NotMeasured("the worker's answer is no measurement")
    return event.measurement
