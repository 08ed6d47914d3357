"""A problem that takes too long for one device: heats of some of its choices each, on any devices
of one class, then a final of the best of each heat on one device.

A winner is always found side by side, on one card. What the heats ruled out is in the cache entry
too, since an entry with a choice less is not used.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from backend.model.origin import kind_of
from rocm_tui.fleet.messages import Unit

LEAST = 8
"""Choices of a heat, at least: with fewer, most would be timed twice."""
KEPT = 4
"""The best of a heat that get into the final, at least,"""
CLOSE = 1.1
"""and all that take no more than so many times as long as the best of the heat."""


def heats_for(unit: Unit, choices: Sequence[str], seconds: float) -> int:
    """In how many heats a unit is tuned that should not take more than `seconds` on one device;
    below two it is not split."""
    if unit.weight <= seconds:
        return 0
    return min(math.ceil(unit.weight / seconds), len(choices) // LEAST)


def split(unit: Unit, choices: Sequence[str], heats: int) -> list[Unit]:
    """The heats of a problem and its final. `choices` are hashes, the fastest first: each heat gets
    some of the fast ones, and all get the libraries' own (ATen's). The first heat has what is
    offered beyond `choices`, too."""
    libraries = [hash for hash in choices if is_library(hash)]
    others = [hash for hash in choices if not is_library(hash)]
    share = unit.weight / heats
    units = []
    for n in range(heats):
        chunk = (*libraries, *others[n::heats])
        elsewhere = tuple(hash for hash in others if hash not in set(chunk))
        only = {"without": elsewhere or None} if n == 0 else {"only": chunk}
        known = {hash: ms for hash, ms in unit.known.items() if hash in chunk}
        units.append(
            replace(
                unit,
                id=f"{unit.id}.{n + 1}",
                title=f"{unit.title}, heat {n + 1} of {heats}",
                job=replace(unit.job, **only),
                known=known,
                weight=share,
                part_of=unit.id,
            )
        )
    weight = unit.weight * min(1.0, (KEPT * heats + len(libraries)) / max(1, len(choices)))
    return [*units, replace(unit, weight=weight, after=tuple(each.id for each in units))]


def is_library(hash: str) -> bool:
    """Whether it is a library's kernel: ATen's, MKL's."""
    return not kind_of(hash)


def finalists(heats: Iterable[Mapping[str, float]]) -> tuple[str, ...]:
    """What is timed in the final, by the times of the heats in ms: the best of each, and all
    libraries'."""
    chosen: dict[str, None] = {}
    rest: dict[str, None] = {}
    for times in heats:
        chosen |= dict.fromkeys(hash for hash in times if is_library(hash))
        chosen |= dict.fromkeys(_best(times))
        rest |= dict.fromkeys(times)
    alone = [hash for hash in rest if hash not in chosen][: max(0, 2 - len(chosen))]
    return (*chosen, *alone)  # PyTorch times nothing where there is one choice


def _best(times: Mapping[str, float]) -> list[str]:
    timed = sorted(
        (ms, hash) for hash, ms in times.items() if math.isfinite(ms) and not is_library(hash)
    )
    return [hash for n, (ms, hash) in enumerate(timed) if n < KEPT or ms <= CLOSE * timed[0][0]]


def whole(
    final: Mapping[str, float], heats: Iterable[Mapping[str, float]], known: Mapping[str, float]
) -> tuple[dict[str, float], int]:
    """All times of a problem, in ms by hash, and how many of them were raised.

    Those of the final are as measured. What is in no final has the time of its heat, measured on
    another card maybe; it is raised above the slowest finalist of its heat where it is below, since
    it lost to all of those side by side. What a budget left out of the heats keeps the time that is
    `known`. Without heats: the final.
    """
    times, raised = dict(final), 0
    for heat in heats:
        there = [final[hash] for hash in _best(heat) if math.isfinite(final.get(hash, math.inf))]
        timed = there or [ms for ms in final.values() if math.isfinite(ms)]
        floor = math.nextafter(max(timed, default=0.0), math.inf)
        for hash, ms in heat.items():
            if hash not in times:
                times[hash] = max(ms, floor)
                raised += ms < floor
    if len(times) > len(final):
        times = {**{hash: ms for hash, ms in known.items() if hash not in times}, **times}
    return times, raised
