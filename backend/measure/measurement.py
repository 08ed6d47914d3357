"""What rounds of samples amount to: a measurement, and sentences on what disturbed it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from statistics import median

from backend.counted import counted, noun
from backend.measure.disturbance import disturbances
from backend.measure.machine.state import middle
from backend.measure.rounds import Rounds
from backend.model.choice import Caches, Choice, Measurement, Output
from backend.model.problem import TuningKey
from backend.model.session import Session

LOST_SHARE = 0.1
"""Share of the rounds that another process spoiled, from which on that is told."""


def measurement_of(
    key: TuningKey,
    rounds: Rounds,
    names: Mapping[str, str],
    session: Session,
    outputs: Mapping[str, Output],
    caches: Caches,
    trouble: tuple[str, ...] = (),
) -> Measurement:
    """The standings of `rounds`, which has some; `names` and `outputs` by hash; `trouble` is what
    there is to say beside what disturbed it."""
    return Measurement(
        op=key.op,
        inputs=key.inputs,
        precision=key.precision,
        when=time.time(),
        choices=tuple(
            replace(standing, name=names[standing.hash], output=outputs.get(standing.hash))
            for standing in rounds.standings
        ),
        failed=tuple(
            Choice(name=names.get(hash), hash=hash, failed=True, reason=reason)
            for hash, reason in rounds.failed.items()
        ),
        rounds=rounds.judged.count,
        seconds=rounds.signs.seconds or 0.0,
        caches=caches,
        reference_ms=median(rounds.judged.reference),
        trouble=(*trouble_of(rounds), *trouble),
        device=session.device,
        system_hash=session.system_hash,
        session=session.id,
        resolution_ms=max((rounds.resolutions[s.hash] for s in rounds.standings), default=None),
        clock_mhz=middle(state.clock_mhz for state in rounds.states),
        power_w=middle(state.power_w for state in rounds.states),
        temperature_c=middle(state.temperature_c for state in rounds.states),
        throttled=rounds.throttled,
    )


def trouble_of(rounds: Rounds) -> tuple[str, ...]:
    """What disturbed them, in sentences."""
    sentences = disturbances(rounds.judged.reference, rounds.signs)
    clean, lost = rounds.clean.count, rounds.disturbed.count - rounds.throttled
    every = clean + rounds.disturbed.count
    if rounds.throttled:
        reasons = Counter(reason for state in rounds.states for reason in state.throttled)
        why = ", ".join(reason for reason, _ in reasons.most_common())
        if rounds.throttled == every:
            return (*sentences, f"every round was throttled ({why}), so nothing is proved")
        count = f"{_uncounted(rounds.throttled, every)}: throttled ({why})"
        sentences = (*sentences, count)
    if not clean:
        return (*sentences, "other processes took the CPU in every round, so nothing is proved")
    if lost > LOST_SHARE * every:
        share = f"{_uncounted(lost, every)}: other processes took the CPU"
        return (*sentences, share)
    return sentences


def _uncounted(rounds: int, every: int) -> str:
    return f"{rounds} of {counted(every, 'round')} {noun(rounds, 'does', 'do')} not count"
