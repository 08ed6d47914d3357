"""Who tunes what: a state machine without clocks and files. Time is an argument, in seconds of any
clock; what is to be done comes back as steps.

- Units go out longest first, two to a device: one at work, one at hand. A device that has nothing
  takes what others have at hand, and in the end tunes once more what is late.
- A unit takes the first result that comes, from whatever lease; none from a device that gave one.
- A lease ends with its result, when it is cancelled, and when its agent is silent or gone.
- A problem that cannot be built has failed. Any other failure is tried on another device; the
  second one is the problem's fault. If others can do it, it was the device's: three in a row, and
  the device gets nothing more.
- What comes after other units waits for them, and fails where one of them does.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Sequence
from itertools import count
from statistics import median

from rocm_tui.fleet.leases import Device, Entry, Lease, UnitState, can_do, worth
from rocm_tui.fleet.messages import BEAT, Cancel, Done, Offer, Unit
from rocm_tui.fleet.steps import (
    Accept,
    Fail,
    Ignore,
    Quarantine,
    Send,
    Settled,
    Silent,
    Single,
    Step,
    Trouble,
)

SILENT = 5 * BEAT
"""Seconds without a word after which an agent's leases end."""
AT_HAND = 2
FAILURES = 2
"""Devices on which a problem fails before it is at fault."""
LOSSES = 3
"""Times that an agent may be lost at one problem, or lose it, before that is at fault."""
IN_A_ROW = 3
"""Failures of a device at what others can do."""
LATE = 1.5
"""So many times as long as expected, and a running unit is tuned on another device too."""
SAMPLES = 3
"""Results from which on it is known how long others will take."""
MISSED = 3
"""Heartbeats that do not name a lease, after which the agent does not have it."""


class Queue:
    """`repeat`: each unit on so many devices, or as many as there are. `canary`: the unit that each
    device does first."""

    def __init__(
        self, units: Sequence[Unit], *, repeat: int = 1, canary: str | None = None
    ) -> None:
        ordered = sorted(enumerate(units), key=lambda pair: (-worth(pair[1]), pair[0]))
        self._entries = {unit.id: Entry(unit, (-worth(unit), at)) for at, unit in ordered}
        for entry in self._entries.values():
            entry.after = self._entries.keys() & set(entry.unit.after)
        self._open = dict.fromkeys(self._entries)
        self._waiting = sorted((entry.order, id) for id, entry in self._entries.items())
        self._repeat = max(1, repeat)
        self._canary = canary if canary in self._entries else None
        self._devices: dict[str, Device] = {}
        self._expected: Collection[str] = ()
        self._ids = count(1)
        self._paces: list[float] = []

    # What is known.

    @property
    def over(self) -> bool:
        return not self._open

    @property
    def stranded(self) -> bool:
        """Whether nobody is left, or expected, to do what is open."""
        return not any(device.working for device in self._devices.values()) and not (
            set(self._expected) - {n for n, d in self._devices.items() if d.quarantined}
        )

    def states(self) -> dict[str, UnitState]:
        return {id: entry.state for id, entry in self._entries.items()}

    def leases(self) -> dict[str, list[str]]:
        """The units that each agent has, the first at work."""
        return {
            name: [lease.unit for lease in device.leases] for name, device in self._devices.items()
        }

    def begun(self) -> list[str]:
        """The units that are at work, or settled."""
        at_work = {device.leases[0].unit for device in self._devices.values() if device.leases}
        return [id for id, e in self._entries.items() if e.state != "open" or id in at_work]

    def lease_unit(self, agent: str) -> str | None:
        device = self._devices.get(agent)
        return device.leases[0].unit if device is not None and device.leases else None

    # What happens.

    def hello(self, agent: str, now: float) -> list[Step]:
        """An agent is there, or there again: then it has nothing of what it had."""
        steps: list[Step] = []
        device = self._devices.get(agent)
        if device is None:
            self._devices[agent] = Device(now)
        else:
            steps += self._lose(agent, "it was started again")
            device.gone = False
            device.hear(now)
        return [*steps, *self._fill(now)]

    def beat(self, agent: str, leases: Collection[str], now: float) -> list[Step]:
        device = self._devices.get(agent)
        if device is None:
            return []
        device.hear(now)
        known = {lease.id for lease in device.leases}
        steps: list[Step] = [Send(agent, Cancel(id)) for id in leases if id not in known]
        for lease in list(device.leases):
            lease.missed = 0 if lease.id in leases else lease.missed + 1
            if lease.missed >= MISSED:  # what was said of it, or to it, could not be read
                self._end(lease, now)
                why = "it has it no more, and told no result that can be read"
                steps += self._lost(agent, self._entries[lease.unit], why, now)
        return [*steps, *self._fill(now)]

    def done(self, done: Done, now: float) -> list[Step]:
        device, entry = self._devices.get(done.agent), self._entries.get(done.unit)
        if device is None or entry is None:
            return [Ignore(done)]
        device.hear(now)
        lease = next((each for each in device.leases if each.id == done.lease), None)
        if lease is not None and lease.unit != done.unit:
            lease = None
        if lease is not None:
            self._end(lease, now)
        if done.result is not None and done.result.ok:
            steps = self._succeed(done, entry, device, lease is not None, now)
        elif lease is None or entry.state != "open":
            steps = [Ignore(done)]
        elif done.single and not (entry.results or entry.unit.part_of or entry.unit.after):
            told = Single(done.unit, done.reason)
            steps = [told, *self._settle(entry, "single", now)]
        else:
            steps = self._fail(done, entry, now)
        return [*steps, *self._fill(now)]

    def gone(self, agent: str, reason: str, now: float) -> list[Step]:
        device = self._devices.get(agent)
        if device is None:
            return self._fill(now)
        steps = self._lose(agent, reason)
        device.alive, device.gone = False, True
        return [*steps, *self._fill(now)]

    def tick(self, now: float, expected: Collection[str] = ()) -> list[Step]:
        """Time goes on. `expected` are the agents that are there, or may yet come."""
        self._expected = expected
        steps: list[Step] = []
        for name, device in self._devices.items():
            if device.alive and now - device.heard > SILENT:
                steps += [Silent(name), *self._lose(name, f"it was silent for {SILENT:.0f} s")]
                device.alive = False
        return [*steps, *self._fill(now), *self._give_up(now)]

    def cancel(self, unit: str | None, now: float) -> list[Step]:
        """End one problem with all its heats, or all that are open."""
        named = self._entries.get(unit or "")
        problem = named.unit.part_of or named.unit.id if named is not None else None
        chosen = [
            entry
            for id, entry in self._entries.items()
            if entry.state == "open"
            and (unit is None or (problem is not None and problem in (id, entry.unit.part_of)))
        ]
        steps: list[Step] = []
        for entry in chosen:
            steps += self._settle(entry, "cancelled", now)
        return [*steps, *self._fill(now)]

    # Results.

    def _succeed(
        self, done: Done, entry: Entry, device: Device, leased: bool, now: float
    ) -> list[Step]:
        """A late result counts too, as long as it is needed; a canary's always."""
        wanted = entry.state == "open" or (
            leased and entry.state == "done" and entry.unit.id == self._canary
        )
        if not wanted or done.agent in entry.results:
            return [Ignore(done)]
        entry.results.append(done.agent)
        device.in_a_row = 0
        entry.failures.pop(done.agent, None)
        entry.suspects.discard(done.agent)
        if done.seconds > 0:
            self._paces.append(done.seconds / entry.weight)
        settled = entry.state == "open" and self._lacks(entry) <= 0
        steps: list[Step] = [Accept(done, settled)]
        if settled:
            steps += self._settle(entry, "done", now)
        else:
            self._wait(entry)
        for name in sorted(entry.suspects):
            steps += self._blame(name, now)
        entry.suspects.clear()
        return steps

    def _fail(self, done: Done, entry: Entry, now: float) -> list[Step]:
        reason = done.reason or (done.result.reason if done.result else "") or "it failed"
        entry.failures[done.agent] = f"{done.agent}: {reason}"
        entry.suspects.add(done.agent)
        if done.own or len(entry.failures) >= FAILURES:
            return self._failed(entry, now)
        self._wait(entry)
        return [Trouble(entry.unit.id, done.agent, reason)]

    def _failed(self, entry: Entry, now: float) -> list[Step]:
        reasons = (*entry.failures.values(), *entry.lost)
        if entry.results:  # it was done where it could be
            return [Settled(entry.unit.id), *self._settle(entry, "done", now)]
        steps: list[Step] = [Fail(entry.unit.id, reasons), *self._settle(entry, "failed", now)]
        for other in [each for each in self._entries.values() if entry.unit.id in each.after]:
            if other.state == "open":
                told = tuple(f"{entry.unit.title}: {reason}" for reason in reasons)
                steps += [Fail(other.unit.id, told), *self._settle(other, "failed", now)]
        return steps

    def _settle(self, entry: Entry, state: UnitState, now: float) -> list[Step]:
        entry.state = state
        self._open.pop(entry.unit.id, None)
        if state == "done":
            for other in self._entries.values():
                other.after.discard(entry.unit.id)
        keep = state == "done" and entry.unit.id == self._canary
        steps: list[Step] = []
        for lease in list(entry.leases):
            if not keep:
                self._end(lease, now)
                steps.append(Send(lease.agent, Cancel(lease.id)))
        self._forget(entry)
        return steps

    def _blame(self, agent: str, now: float) -> list[Step]:
        """What it failed at, another device could do."""
        device = self._devices[agent]
        device.in_a_row += 1
        if device.in_a_row < IN_A_ROW or device.quarantined:
            return []
        device.quarantined = True
        steps: list[Step] = [
            Quarantine(agent, f"it failed {IN_A_ROW} times in a row at what other devices can do")
        ]
        for lease in list(device.leases):
            self._end(lease, now)
            steps.append(Send(agent, Cancel(lease.id)))
        return steps

    def _lose(self, agent: str, reason: str) -> list[Step]:
        """Its leases are over; what was at work may be why it is lost."""
        device = self._devices[agent]
        steps: list[Step] = []
        for at, lease in enumerate(list(device.leases)):
            entry = self._entries[lease.unit]
            self._end(lease, device.heard)
            if at == 0:
                steps += self._lost(agent, entry, reason, device.heard)
        return steps

    def _lost(self, agent: str, entry: Entry, reason: str, now: float) -> list[Step]:
        """What was lent to it came to nothing, without a word."""
        if entry.state != "open":
            return []
        entry.lost.append(f"{agent}: {reason}")
        entry.suspects.add(agent)
        if len(entry.lost) >= LOSSES:
            return self._failed(entry, now)
        return [Trouble(entry.unit.id, agent, reason)]

    def _give_up(self, now: float) -> list[Step]:
        """Settle what no device that is left, or expected, can do any more."""
        hopeful = {name for name in self._expected if name not in self._devices} | {
            name
            for name, device in self._devices.items()
            if not device.quarantined and (device.alive or name in self._expected)
        }
        steps: list[Step] = []
        for entry in [self._entries[id] for id in self._open]:
            if entry.leases or not (entry.failures or entry.results):
                continue
            if not hopeful - entry.failures.keys() - set(entry.results):
                steps += self._failed(entry, now)
        return steps

    # Leases.

    def _fill(self, now: float) -> list[Step]:
        """Give work to all who have too little: first to those who have none."""
        steps: list[Step] = []
        for most in range(1, AT_HAND + 1):
            for name, device in self._devices.items():
                if device.working and len(device.leases) < most:
                    entry = self._next(name)
                    if entry is not None:
                        steps.append(self._lend(name, entry, now))
        for name, device in self._devices.items():
            if device.working and not device.leases:
                steps += self._take_over(name, now)
        return steps

    def _next(self, agent: str) -> Entry | None:
        canary = self._entries.get(self._canary or "")
        if canary is not None and canary.state in ("open", "done") and can_do(agent, canary):
            return canary
        return next((e for e in map(self._at, self._waiting) if can_do(agent, e)), None)

    def _at(self, waiting: tuple[tuple[float, int], str]) -> Entry:
        return self._entries[waiting[1]]

    def _lend(self, agent: str, entry: Entry, now: float) -> Send:
        lease = Lease(f"{next(self._ids)}", agent, entry.unit.id, now)
        entry.leases.append(lease)
        self._devices[agent].leases.append(lease)
        if self._lacks(entry) <= len(entry.leases):
            self._forget(entry)
        return Send(agent, Offer(lease.id, entry.unit))

    def _take_over(self, agent: str, now: float) -> list[Step]:
        """What another one has at hand; else what another one is late with."""
        at_hand = [
            lease
            for device in self._devices.values()
            for lease in device.leases[1:]
            if can_do(agent, self._entries[lease.unit])
        ]
        if at_hand:
            lease = min(at_hand, key=lambda lease: self._entries[lease.unit].order)
            self._end(lease, now)
            return [
                Send(lease.agent, Cancel(lease.id)),
                self._lend(agent, self._entries[lease.unit], now),
            ]
        late = [
            lease
            for device in self._devices.values()
            for lease in device.leases[:1]
            if self._is_late(lease, now) and can_do(agent, self._entries[lease.unit])
        ]
        if late:
            lease = min(late, key=lambda lease: lease.since)
            return [self._lend(agent, self._entries[lease.unit], now)]
        return []

    def _is_late(self, lease: Lease, now: float) -> bool:
        entry = self._entries[lease.unit]
        if len(self._paces) < SAMPLES or len(entry.leases) > 1 or entry.state != "open":
            return False
        return now - lease.since > LATE * median(self._paces) * entry.weight

    def _end(self, lease: Lease, now: float) -> None:
        """The lease is over; its unit waits again where it needs another."""
        device, entry = self._devices[lease.agent], self._entries[lease.unit]
        if lease in device.leases:
            first = device.leases[0] is lease
            device.leases.remove(lease)
            if first and device.leases:
                device.leases[0].since = now
        if lease in entry.leases:
            entry.leases.remove(lease)
        self._wait(entry)

    def _lacks(self, entry: Entry) -> int:
        """Results that it still needs."""
        return (1 if entry.unit.part_of else self._repeat) - len(entry.results)

    def _wait(self, entry: Entry) -> None:
        waiting = (entry.order, entry.unit.id)
        if (
            entry.state == "open"
            and self._lacks(entry) > len(entry.leases)
            and waiting not in self._waiting
        ):
            insort(self._waiting, waiting)

    def _forget(self, entry: Entry) -> None:
        waiting = (entry.order, entry.unit.id)
        if waiting in self._waiting:
            self._waiting.remove(waiting)
