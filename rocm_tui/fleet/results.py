"""The results of many devices: which of them counts, and its way into the cache.

One card's whole set of times goes into the cache file, never a mixture: choices are compared within
it. A result is in the file as soon as it is here, so that whatever is killed later loses none.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from backend.cache.fold import fold
from backend.cache.journal import Journal, Tuned, line_of
from backend.counted import counted
from backend.disk.layout import Layout
from backend.disk.safe import check_file
from backend.model.choice import is_kernel_time
from backend.pins.holders import pinned_choices
from backend.pins.store import PinStore
from backend.wire.jobs import TuneJob, TuneResult
from rocm_tui.fleet.facts import Chosen, Facts, FleetOptions, NoTuningDevice, choose, refusal
from rocm_tui.fleet.units import Unit, in_cache
from rocm_tui.harmless import plain

UnitState = Literal["left", "skipped", "merged", "single", "failed"]


@dataclass(slots=True)
class UnitResults:
    """The outcome of a problem: results and reasons by device. `merged_from` is the device whose
    times are in the cache; its `winner` is the fastest on `holds` devices, of `of`."""

    unit: Unit
    state: UnitState = "left"
    results: dict[str, TuneResult] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    merged_from: str | None = None
    winner: str = ""
    holds: int = 0
    of: int = 0

    @property
    def disagree(self) -> bool:
        return self.holds < self.of


class Results:
    """The outcomes of all problems, which several threads may add to.

    If workers write into the cache dir `layout` themselves, only results of several devices are
    merged here.
    """

    def __init__(self, layout: Layout, units: Iterable[Unit], *, workers_write: bool) -> None:
        self.units = {unit.id: UnitResults(unit) for unit in units}
        self.devices: dict[str, Facts] = {}
        self.refused: dict[str, str] = {}
        """Why devices get no work, by their names."""
        self.chosen = Chosen("", "")
        self._layout = layout
        self._workers_write = workers_write
        self._lock = threading.Lock()

    def count(self, state: UnitState) -> int:
        return sum(each.state == state for each in self.units.values())

    @property
    def disagreements(self) -> Iterator[UnitResults]:
        return (each for each in self.units.values() if each.disagree)

    def came(self, id: str, device: str, facts: Facts, result: TuneResult) -> None:
        """Take the result of a device. Raises StoreErrors where it cannot be merged."""
        with self._lock:
            self.devices[device] = facts
            each = self.units[id]
            why = refusal(facts, self.chosen) or misfit(each.unit.job, result)
            if result.single:
                each.state = "single" if each.state == "left" else each.state
            elif why:
                self._fail(each, device, why)
            else:
                each.results[device] = result
                each.winner, each.holds, each.of = holding(each.results)
                each.merged_from = next(
                    name for name, r in each.results.items() if winner_of(r) == each.winner
                )
                if len(each.results) > 1 or not self._workers_write:
                    merge(self._layout, self.chosen, each.results[each.merged_from])
                each.state = "merged"

    def choose(self, wanted: FleetOptions, silent: Mapping[str, str]) -> None:
        """Choose the class whose times count, of the devices that have answered. Devices of other
        classes and the `silent` ones are refused, each in a line. Raises NoTuningDevice."""
        chosen = choose(self.devices, wanted.device_class)
        if chosen is None:
            classes = {facts.device_class for facts in self.devices.values()}
            have = (
                f"there are {'; '.join(sorted(classes))}"
                if classes
                else "; ".join(f"{name}: {why}" for name, why in silent.items())
            )
            raise NoTuningDevice(
                plain(f"no device to tune on is {wanted.device_class or 'known'}: {have}", 400)
            )
        self.chosen = chosen
        unlike = {name: refusal(facts, chosen) for name, facts in self.devices.items()}
        self.refused = {**silent, **{name: why for name, why in unlike.items() if why}}
        for name in unlike.keys() & self.refused.keys():
            del self.devices[name]
        for name, reason in self.refused.items():
            wanted.tell(f"{name} gets no work: {reason}")

    def skip_unfit(self, gpus: bool, wanted: FleetOptions) -> None:
        """Skip problems of a CPU if GPUs tune, and with `missing` those with cached times."""
        of_cpu = {unit.id for unit in self.open() if gpus and unit.on_cpu}
        path = self._layout.cache_file(self.chosen.system_hash)
        held = in_cache(self.open(), path, gpus) if wanted.missing else ()
        for id in {*of_cpu, *held}:
            self.units[id].state = "skipped"
        if of_cpu:
            wanted.tell(
                f"{counted(len(of_cpu), 'problem')} of a CPU left out; --fleet local:cpu tunes them"
            )
        if held:
            wanted.tell(f"{counted(len(held), 'problem')} left out: the cache has their times")

    def open(self) -> list[Unit]:
        """The problems of which nothing is known yet, in their order."""
        return [each.unit for each in self.units.values() if each.state == "left"]

    def failed(self, id: str, device: str, reason: str) -> None:
        with self._lock:
            self._fail(self.units[id], device, reason)

    def _fail(self, each: UnitResults, device: str, reason: str) -> None:
        each.reasons[device] = plain(reason, 300)
        each.state = "failed" if each.state == "left" else each.state


def misfit(job: TuneJob, result: TuneResult) -> str:
    """Why this is no result of the job; empty where it is."""
    if not result.ok:
        return plain(result.reason) or "it failed"
    answered = result.op, result.inputs, result.precision
    asked = job.op, job.inputs or result.inputs, (job.inputs and job.precision) or result.precision
    if answered != asked:
        return "its times are those of another problem"
    if not any(map(is_kernel_time, result.times.values())):
        return "no choice has a time"
    return ""


def winner_of(result: TuneResult) -> str:
    """The hash of the fastest choice; empty where nothing has a time."""
    best = next((choice for choice in result.choices if choice.ms is not None), None)
    return best.hash or "" if best is not None else ""


def holding(results: Mapping[str, TuneResult]) -> tuple[str, int, int]:
    """The winner that most devices found, how many did, of how many."""
    winners = Counter(winner for result in results.values() if (winner := winner_of(result)))
    if not winners:
        return "", 0, 0
    winner, many = winners.most_common(1)[0]
    return winner, many, sum(winners.values())


def merge(layout: Layout, chosen: Chosen, result: TuneResult) -> None:
    """Write the times of one card into the cache file, as its worker does in its own cache dir;
    pins stay. Raises StoreErrors; what is in the journal by then is folded another time."""
    system = chosen.system_hash
    path = layout.cache_file(system)
    tuned = Tuned(result.op, result.inputs, result.precision, result.times, time.time())
    PinStore(layout).learn_times(system, tuned)
    check_file(layout.root, path)
    Journal(layout.root, path).append(line_of(tuned))
    fold(layout.root, path, result.system, pinned_choices)
    PinStore(layout).hold_again(system, tuned)
