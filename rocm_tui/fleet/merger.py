"""The one writer of a fleet's results: what a device measured gets into the journal of the driver's
cache dir, as the tunings of its own workers do, and pins stay.

One card's whole set of times goes into the file, never a mixture: choices are compared within it.
Only of a problem that was split, what its heats ruled out has their times.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import median

from backend.cache.fold import fold
from backend.cache.journal import Journal, Tuned, line_of
from backend.disk.layout import Layout
from backend.disk.safe import check_file
from backend.model.choice import Choice
from backend.pins.holders import pinned_choices
from backend.pins.store import PinStore
from backend.wire.jobs import TuneJob, TuneResult
from rocm_tui.environment import CPU
from rocm_tui.fleet.lines import Chosen, Merged
from rocm_tui.fleet.messages import Done, Facts, Unit
from rocm_tui.fleet.splitting import whole
from rocm_tui.fleet.standing import holding, winner_of

SHOWN = 12
"""Digits of a system hash that a person sees."""


def class_of(facts: Facts) -> str:
    """What must be the same for times to be compared: cards of one system hash may differ in it.
    `gfx942, 304 CUs, SPX/NPS1`; a CPU is one class."""
    units = f"{facts.compute_units} CUs" if facts.compute_units is not None else ""
    parts = (facts.arch or facts.device, units, facts.partition or "")
    return ", ".join(part for part in parts if part) or "unknown"


def choose(came: Mapping[str, Facts], wanted: str | None, gpus: bool = True) -> Chosen | None:
    """The class that most agents have, with `gpus` one of a GPU where there is any; with `wanted`,
    that one (a system hash's first digits, or words of a class). None where nobody has it."""
    found = Counter((facts.system_hash, class_of(facts)) for facts in came.values())
    fitting = {
        one: many
        for one, many in found.items()
        if wanted is None or one[0].startswith(wanted) or _is_about(wanted, one[1])
    }
    if not fitting:
        return None
    last = {CPU} if gpus else set()
    system, device_class = min(fitting, key=lambda one: (one[1] in last, -fitting[one], one))
    return Chosen(system, device_class)


def _is_about(wanted: str, device_class: str) -> bool:
    parts = [part.casefold() for part in device_class.split(", ")]
    return all(word.strip().casefold() in parts for word in wanted.split(","))


def refusal(facts: Facts, chosen: Chosen) -> str:
    """Why results of such a device do not belong into the file; empty where they do."""
    if facts.system_hash != chosen.system_hash:
        return (
            f"{facts.host} has the system hash {facts.system_hash[:SHOWN]}, the run "
            f"{chosen.system_hash[:SHOWN]}: another GPU, torch or Triton ({_versions(facts)}), so "
            "PyTorch reads another file there"
        )
    if class_of(facts) != chosen.device_class:
        return (
            f"{facts.host} has {class_of(facts)}, the run {chosen.device_class}: one system hash, "
            "but times of unlike devices do not go into one file; choose with --class"
        )
    return ""


def checked(done: Done, job: TuneJob) -> Done:
    """Without its result where that is none of the job."""
    good = done.result if done.result is not None and done.result.ok else None
    why = misfit(job, good) if good is not None else ""
    return replace(done, result=None, reason=why) if why else done


def misfit(job: TuneJob, result: TuneResult) -> str:
    """Why this is no result of the job; empty where it is."""
    told = result.op, result.inputs, result.precision
    asked = job.op, job.inputs or result.inputs, (job.inputs and job.precision) or result.precision
    if told != asked:
        return "it told times of another problem"
    if not all(ms >= 0 for ms in result.times.values()):  # nor is NaN
        return "it told times that are none: below zero, or no number"
    return ""


def _versions(facts: Facts) -> str:
    parts = [f"torch {facts.torch}", f"triton {facts.triton}" if facts.triton else ""]
    parts += [f"HIP {facts.hip}" if facts.hip else "", class_of(facts)]
    return ", ".join(part for part in parts if part)


class Merger:
    """Writes below `layout`, for devices of the `chosen` class."""

    def __init__(self, layout: Layout, chosen: Chosen) -> None:
        self._layout = layout
        self.chosen = chosen
        self._path = layout.autotune / chosen.system_hash
        self.system: Mapping[str, object] = {}
        """The header of the cache file, for where there is none yet."""
        self._unfolded: list[Tuned] = []

    def merge(
        self, unit: Unit, results: Mapping[str, Done], heats: Sequence[TuneResult] = ()
    ) -> Merged:
        """The times of one card that found the winner most cards did; of a final, with those of its
        heats. Raises StoreErrors; nothing is lost then, the record has it."""
        winner, many, of = holding(results)
        agent, done = next(
            ((a, d) for a, d in results.items() if winner_of(d.result) == winner),
            next(iter(results.items())),
        )
        result = done.result
        assert result is not None
        times, raised = whole(result.times, [heat.times for heat in heats], unit.known)
        tuned = Tuned(result.op, result.inputs, result.precision, times, time.time())
        PinStore(self._layout).learn_times(self.chosen.system_hash, tuned)
        check_file(self._layout.root, self._path)
        Journal(self._layout.root, self._path).append(line_of(tuned))
        self.system = result.system or self.system
        self._unfolded.append(tuned)
        told = len(times) - len(result.times)
        system = self.chosen.system_hash
        return Merged(unit.id, agent, system, winner, many, of, len(heats), told, raised)

    def fold(self) -> None:
        """Bring the journal into the cache file, where stock PyTorch reads it. Raises StoreErrors;
        the journal is kept then."""
        fold(self._layout.root, self._path, self.system, pinned_choices)
        for tuned in self._unfolded:
            PinStore(self._layout).hold_again(self.chosen.system_hash, tuned)
        self._unfolded = []


def slow_cards(canary: Mapping[str, Done], ratio: float = 1.1) -> dict[str, float]:
    """Devices that took more than `ratio` times the median at the same problem, by choices that all
    of them timed; a few choices decide, so noise of one does not."""
    times = {agent: _times(done) for agent, done in canary.items()}
    if len(times) < 3:
        return {}
    shared = set.intersection(*(set(each) for each in times.values()))
    if not shared:
        return {}
    middle = {hash: median(each[hash] for each in times.values()) for hash in shared}
    found = {
        agent: median([each[hash] / middle[hash] for hash in shared if middle[hash] > 0] or [1.0])
        for agent, each in times.items()
    }
    return {agent: value for agent, value in found.items() if value > ratio}


def _times(done: Done) -> dict[str, float]:
    choices: Iterable[Choice] = done.result.choices if done.result else ()
    return {c.hash: c.ms for c in choices if c.hash and c.ms is not None}
