"""Who compiles what the GPUs will tune, before they do: agents of CPUs, one problem at a time.

A state machine, as the queue is. Nothing depends on it: what is not compiled ahead is compiled by
the GPU's own worker, and so is what a GPU has begun with. What is lost is not tried again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import count

from backend.errors import InputsKeyInvalid
from backend.model.problem import parse_inputs_key
from backend.wire.jobs import Gpu
from rocm_tui.environment import CPU
from rocm_tui.fleet.leases import worth
from rocm_tui.fleet.lines import Compiled as Done
from rocm_tui.fleet.messages import Cancel, Compile, Compiled, Facts, Unit
from rocm_tui.fleet.steps import Send


def is_of_cpu(unit: Unit) -> bool:
    """Whether it is tuned on a CPU, wherever that is."""
    job = unit.job
    if job.inputs is None:
        return job.device == CPU
    try:
        specs = parse_inputs_key(job.inputs).specs
    except InputsKeyInvalid:
        return False
    return bool(specs) and specs[0].device == CPU


def problem_id(unit: Unit) -> str:
    """Heats have the code of their problem."""
    return unit.part_of or unit.id


def gpu_of(facts: Facts) -> Gpu | None:
    """What is compiled for this device ahead; None where nothing of ours is told to be."""
    if not facts.compilers or facts.arch is None or facts.compute_units is None:
        return None
    return Gpu(facts.arch, facts.compute_units, facts.compilers)


def shares(one: Facts, other: Facts) -> bool:
    """Whether what one compiles is found by the other: one host, or one folder of its host's cache
    dir, as far as that is told."""
    return one.host == other.host or bool(one.store and one.store == other.store)


@dataclass(slots=True)
class _Helper:
    """`gpu` is for what it compiles, once that is known; `done` what it has."""

    facts: Facts | None
    done: Done
    gpu: Gpu | None = None
    lease: str = ""
    unit: Unit | None = None
    over: bool = False

    @property
    def idle(self) -> bool:
        return self.unit is None and not self.over


class Ahead:
    """`reasons` are why problems were not compiled, by title."""

    def __init__(self, units: Sequence[Unit]) -> None:
        self._waiting: dict[str, Unit] = {}
        for unit in sorted(units, key=worth, reverse=True):
            if unit.job.templates and not is_of_cpu(unit):
                self._waiting.setdefault(problem_id(unit), unit)
        self._helpers: dict[str, _Helper] = {}
        self._ids = count(1)
        self.reasons: dict[str, str] = {}

    @property
    def wanted(self) -> bool:
        return bool(self._waiting)

    @property
    def over(self) -> bool:
        """Whether nothing is left, or nobody to do it."""
        helpers = [helper for helper in self._helpers.values() if not helper.over]
        return not any(helper.unit for helper in helpers) and not (self._waiting and helpers)

    @property
    def agents(self) -> Collection[str]:
        return self._helpers.keys()

    def help(self, agent: str, facts: Facts | None = None, gpu: Gpu | None = None) -> None:
        """This agent is there for it: for `gpu`, else for the first that finds what it compiles."""
        done = self._helpers[agent].done if agent in self._helpers else Done(agent)
        self._helpers[agent] = _Helper(facts, done, gpu)

    def gone(self, agent: str) -> None:
        helper = self._helpers.get(agent)
        if helper is not None:
            helper.unit, helper.over = None, True

    @property
    def total(self) -> Done:
        """Of all agents."""
        done = [helper.done for helper in self._helpers.values()]
        return Done(
            "",
            sum(each.compiled for each in done),
            sum(each.found for each in done),
            sum(each.failed for each in done),
        )

    @property
    def left(self) -> list[str]:
        """The titles of what nobody has compiled."""
        return [unit.title for unit in self._waiting.values()]

    def done(self, agent: str) -> Done:
        """What this agent has compiled so far."""
        helper = self._helpers.get(agent)
        return Done(agent) if helper is None else helper.done

    def compiled(self, said: Compiled) -> list[str]:
        """What a person is to know of it. An agent that can compile nothing gets nothing more."""
        helper, result = self._helpers.get(said.agent), said.result
        if helper is None or helper.unit is None or helper.lease != said.lease:
            return []
        unit, helper.unit = helper.unit, None
        if result is None or (not result.ok and result.off):
            helper.over = True
            why = said.reason if result is None else result.reason
            return [f"{said.agent} compiles nothing ahead: {why}"]
        if not result.ok:
            self.reasons[unit.title] = result.reason
            return []
        first, had = helper.done == Done(said.agent), helper.done
        helper.done = Done(
            said.agent,
            had.compiled + result.compiled,
            had.found + result.found,
            had.failed + len(result.failed),
        )
        return [f"{said.agent} compiles ahead, but for {off}" for off in result.off if first]

    def steps(self, begun: Collection[str] = (), came: Iterable[Facts] = ()) -> list[Send]:
        """`begun` are the problems that GPUs are at: those compile them themselves. `came` are the
        GPUs."""
        steps = []
        for id in self._waiting.keys() & set(begun):
            del self._waiting[id]
        for agent, helper in self._helpers.items():
            if helper.unit is not None and problem_id(helper.unit) in begun:
                steps.append(Send(agent, Cancel(helper.lease)))
                helper.unit = None
            if helper.gpu is None and helper.facts is not None:
                near = (gpu_of(facts) for facts in came if shares(helper.facts, facts))
                helper.gpu = next(filter(None, near), None)
            if helper.idle and helper.gpu is not None and self._waiting:
                helper.unit = self._waiting.pop(next(iter(self._waiting)))
                helper.lease = f"c{next(self._ids)}"
                steps.append(Send(agent, Compile(helper.lease, helper.unit, helper.gpu)))
        return steps
