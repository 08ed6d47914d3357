"""What is known of tunings from elsewhere: pins, repeated measurements, and entries of other
tuners' tables for the same product. Pure state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from backend.model.choice import Measurement
from backend.model.inductor_kernel import is_inductors, is_kernel
from backend.model.options import options_of_hash
from backend.model.origin import device_kind
from backend.model.problem import Problem, Shape
from backend.model.session import Session, systems_of
from backend.model.tuning import Tuning
from rocm_tui.harmless import plain
from rocm_tui.ingest.records import MeasurementSeen
from rocm_tui.session import stats
from rocm_tui.session.views import (
    Bucket,
    TuningView,
    inductors_problem_of,
    of_one_device,
    with_times,
)

if TYPE_CHECKING:
    from backend.pins.state import PinStatus


class Pins:
    """All pins of a cache dir, as they were last read."""

    def __init__(self, sessions: Mapping[str, Session]) -> None:
        self._sessions = sessions
        self._pins: dict[tuple[str, str], list[PinStatus]] = {}
        self._awaited: frozenset[tuple[str, str]] = frozenset()

    def put(self, statuses: Iterable[PinStatus]) -> set[tuple[str, str]]:
        """Let these be the pins; the ops and inputs keys of which another one is known now."""
        pins: dict[tuple[str, str], list[PinStatus]] = {}
        for status in statuses:
            pins.setdefault((status.pin.op, status.pin.inputs), []).append(status)
        before, self._pins = self._pins, pins
        awaited, self._awaited = self._awaited, frozenset()
        keys = pins.keys() | before.keys()
        return {key for key in keys if pins.get(key) != before.get(key)} | awaited

    def await_(self, keys: frozenset[tuple[str, str]]) -> None:
        """These ops and inputs keys have pins, of which the states follow."""
        self._awaited = keys

    def awaits(self, tuning: Tuning) -> bool:
        """Whether it has a pin of which it is not known yet whether it holds."""
        return (tuning.op, tuning.inputs_key or "") in self._awaited

    def of(self, tuning: Tuning) -> PinStatus | None:
        """The pin of the system that tuned this: another device or Triton has another cache file.

        Where the system is unknown, the pin of any.
        """
        pins = self._pins and self._pins.get((tuning.op, tuning.inputs_key or ""))
        if not pins:
            return None
        kernel = is_inductors(tuning.op)  # whose key names the device
        systems = () if kernel else systems_of(tuning, self._sessions)
        fits = (status for status in pins if not systems or status.pin.system_hash in systems)
        return next(fits, None)

    def unmasked(self, member: TuningView) -> TuningView:
        """Put a pinned tuning's measured times in place of the `Infinity` by which an older version
        held the pin; raised numbers are read as what was measured."""
        if not self._pins:
            return member
        tuning = member.tuning
        status = self.of(tuning)
        if status is None or tuning.session is not None or tuning.precision is None:
            return member
        measured = status.pin.timings.get(tuning.precision, {})
        return replace(member, tuning=replace(tuning, choices=with_times(tuning, measured)))


def with_torch(
    statuses: Iterable[PinStatus], sessions: Mapping[str, Session]
) -> tuple[PinStatus, ...]:
    """The pins, those proofs stale after which another torch was seen at work on their system."""
    return tuple(_judged(status, sessions) for status in statuses)


def _judged(status: PinStatus, sessions: Mapping[str, Session]) -> PinStatus:
    proof = status.proof
    if proof is None or status.stale or not proof.torch:
        return status
    system = status.pin.system_hash
    for session in sessions.values():
        other = session.torch and session.torch != proof.torch
        if other and session.system_hash == system and session.started > proof.when:
            return replace(status, stale=f"torch {plain(session.torch)} ran since")
    return status


def cached_choice(
    tuning: Tuning, caches: Iterable[Tuning], sessions: Mapping[str, Session]
) -> str | None:
    """Return the hash of the choice that its program takes from the cache now, where a later tuning
    has replaced the times; None where the winner is the same, or the cache cannot say. Ranks of a
    job tune side by side, and each runs its own winner."""
    winner = stats.winner(tuning)
    if winner is None or tuning.key is None or tuning.state != "done" or is_kernel(tuning.op):
        return None
    if tuning.rank is not None:
        return None
    systems, index = systems_of(tuning, sessions), tuning.device_index
    fits = [
        cache
        for cache in caches
        if cache.key == tuning.key
        and (not systems or systems & systems_of(cache, sessions))
        and (None in (index, cache.device_index) or index == cache.device_index)
    ]
    if len(fits) != 1:
        return None
    offered = {choice.hash for choice in tuning.choices if choice.offered}
    times = {c.hash: c.ms for c in fits[0].choices if c.hash in offered}
    if offered - times.keys():  # the program would time them all again
        return None
    timed = [(ms, hash) for hash, ms in times.items() if ms is not None]
    hash = min(timed, default=(0.0, None))[1]
    return None if hash == winner.hash else hash


class Measurements:
    """The measurements of all sources, by op and inputs key."""

    def __init__(self) -> None:
        self._by_problem: dict[tuple[str, str], list[MeasurementSeen]] = {}

    def add(self, seen: MeasurementSeen) -> set[tuple[str, str]]:
        """Take one in; the op and the inputs key that it is about."""
        about = (seen.measurement.op, seen.measurement.inputs)
        others = self._by_problem.setdefault(about, [])
        if seen in others:
            return set()
        others.append(seen)
        return {about}

    def forget(self, source: str) -> set[tuple[str, str]]:
        """Drop those of a source; what they were about."""
        touched = set()
        for about, measurements in list(self._by_problem.items()):
            kept = [seen for seen in measurements if seen.source != source]
            if len(kept) != len(measurements):
                self._by_problem[about] = kept
                touched.add(about)
        return touched

    def attach(self, tuning: Tuning, sessions: Mapping[str, Session]) -> Tuning:
        """The tuning with the measurement that counts, if there is one of the same system."""
        by_problem = self._by_problem
        if not by_problem or (tuning.op, tuning.inputs_key or "") not in by_problem:
            return tuning
        fits = counting(tuning, self.of(tuning, sessions))
        return replace(tuning, measured=fits[0]) if fits else tuning

    def of(self, tuning: Tuning, sessions: Mapping[str, Session]) -> tuple[Measurement, ...]:
        """Return the measurements of a tuning on the same system, latest first."""
        candidates = self._by_problem.get((tuning.op, tuning.inputs_key or ""))
        if not candidates:
            return ()
        systems = systems_of(tuning, sessions)
        fits = [
            seen.measurement for seen in candidates if _is_about(seen.measurement, tuning, systems)
        ]
        return tuple(dict.fromkeys(sorted(fits, key=lambda m: m.when, reverse=True)))


def counting(tuning: Tuning, measurements: Sequence[Measurement]) -> tuple[Measurement, ...]:
    """Return the measurements that count, latest first: all hot or all cold.

    On a GPU cold ones count, where there are any: the weights of a layer have left the caches when
    a model comes back to it. Elsewhere the kind of the latest counts.
    """
    kinds = dict.fromkeys(measurement.caches for measurement in measurements)
    if not kinds:
        return ()
    on_gpu = device_kind(tuning) not in (None, "cpu")
    kind = "cold" if on_gpu and "cold" in kinds else next(iter(kinds))
    return tuple(measurement for measurement in measurements if measurement.caches == kind)


def _is_about(measurement: Measurement, tuning: Tuning, systems: frozenset[str]) -> bool:
    if measurement.precision != tuning.precision:
        return False
    if systems and measurement.system_hash and measurement.system_hash not in systems:
        return False  # the same problem on another device
    own = tuning if tuning.device_index is None else of_one_device(tuning)
    return any(measurement.of(choice.hash) for choice in own.choices if choice.hash)


_CONVOLUTION = "convolution"
_SCALED = "scaled_mm"
_NUMBERS: tuple[Shape, ...] = ((), (1,), (1, 1))
"""What a scale of a whole matrix may be."""
MOST_BESIDE = 8
"""Entries that are shown beside one tuning."""
Product = tuple[object, ...]


def product_of(problem: Problem) -> Product | None:
    """Return one key for a product, whoever names it; None where sizes or strides are unknown.

    A bias may be spread over the rows already, a size of 1 has any stride, a scale of one number
    any dimensions, and an unknown precision is the default of float32 products.
    """
    shapes, strides = problem.shapes, problem.strides
    if not shapes or len(strides) != len(shapes):
        return None
    if problem.op == "addmm" and len(shapes[0]) == 2 and strides[0][:1] == (0,):
        shapes, strides = (shapes[0][1:], *shapes[1:]), (strides[0][1:], *strides[1:])
    precision = problem.precision if "torch.float32" in problem.dtypes[:2] else None
    if problem.op.lstrip("_") == _SCALED:
        pairs = zip(shapes, strides, strict=True)
        strides = tuple(() if shape in _NUMBERS else step for shape, step in pairs)
        shapes = tuple(() if shape in _NUMBERS else shape for shape in shapes)
    if problem.op == _CONVOLUTION:  # a bias changes little, and no table has one
        shapes, strides = shapes[:2], strides[:2]
    steps = tuple(
        tuple([0 if size == 1 else step for size, step in zip(*pair, strict=False)])
        for pair in zip(shapes, strides, strict=True)
    )
    dtypes = problem.dtypes[: len(shapes)]
    return (problem.op.lstrip("_"), shapes, steps, dtypes, precision or "highest")


class Tables:
    """The entries by what Inductor's tuning of their product is found by."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[Tuning, ...]] = {}

    def __bool__(self) -> bool:
        return bool(self._of)

    def add(self, entry: Tuning) -> tuple[Bucket, ...]:
        """Where tunings of the product are, beside which it is shown."""
        return self._put(entry, True)

    def remove(self, entry: Tuning) -> tuple[Bucket, ...]:
        return self._put(entry, False)

    def _put(self, entry: Tuning, there: bool) -> tuple[Bucket, ...]:
        product = product_of(entry)
        if product is None:
            return ()
        place = hash(product)
        others = tuple(each for each in self._of.get(place, ()) if each is not entry)
        self._of[place] = (*others, entry) if there else others
        if not self._of[place]:
            del self._of[place]
        if entry.op != _SCALED or entry.shapes[2] not in _NUMBERS:
            return (inductors_problem_of(entry),)
        first, rest = entry.shapes[:2], entry.shapes[4:]
        scaled = (replace(entry, shapes=(*first, scale, scale, *rest)) for scale in _NUMBERS)
        return tuple(map(inductors_problem_of, scaled))

    def of(self, tuning: Tuning) -> tuple[Tuning, ...]:
        """The entries of its product, those with the least time first."""
        product = product_of(tuning) if self._of else None
        entries = self._of.get(hash(product), ()) if product is not None else ()
        same = [
            entry
            for entry in entries
            if product_of(entry) == product and _given_alike(entry, tuning)
        ]
        return tuple(sorted(same, key=_order)[:MOST_BESIDE])


def _given_alike(entry: Tuning, tuning: Tuning) -> bool:
    """Whether nothing that both were given beside the tensors differs, such as a padding."""
    hashes = (options_of_hash(tuning.op, choice.hash or "") for choice in tuning.choices)
    given = dict(tuning.options or next(filter(None, hashes), ()))
    return all(given.get(name, values) == values for name, values in entry.options)


def _order(entry: Tuning) -> tuple[bool, float, int]:
    ms = entry.choices[0].ms if entry.choices else None
    return ms is None, ms or 0.0, entry.entry.line if entry.entry else 0
