"""The driver of a run: what agents say goes to the queue, what the queue wants goes to agents, the
record and the merger. It knows no way to a device.

A result is in the record before anything else is done with it. So the driver may end at any moment,
and another one goes on from the record.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from backend.counted import counted
from backend.errors import StoreError
from backend.wire.jobs import TuneResult
from rocm_tui.environment import CPU
from rocm_tui.fleet import lines
from rocm_tui.fleet.ahead import Ahead, gpu_of, is_of_cpu, problem_id, shares
from rocm_tui.fleet.lines import Line
from rocm_tui.fleet.merger import Merger, checked, choose, class_of, refusal, slow_cards
from rocm_tui.fleet.messages import (
    PROTOCOL,
    Beat,
    Cancel,
    Compiled,
    Done,
    Facts,
    Gone,
    Hello,
    Offer,
    ToDriver,
    Unit,
)
from rocm_tui.fleet.protocol import Fleet
from rocm_tui.fleet.queue import Queue
from rocm_tui.fleet.record import Record
from rocm_tui.fleet.splitting import finalists
from rocm_tui.fleet.standing import Standing
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

TICK = 0.5
GATHER = 30.0
"""Seconds after the first `Hello` in which others are waited for, before a class is chosen."""
WAIT = 300.0
"""Seconds without any agent at work, after which the run ends; it can be resumed."""
FOLD = 10.0
"""Seconds between two times at which the journal gets into the cache file."""
PULSE = 3.0
"""Seconds between two lines of an agent's heartbeats, at least; with many agents more."""


@dataclass(frozen=True, slots=True)
class Options:
    """`device_class` is what a person asked for (`merger.choose`)."""

    repeat: int = 1
    canary: str | None = None
    device_class: str | None = None


class Driver:
    """`standing` is what the record says so far. `tell` gets a line for a person; `look` is called
    about twice a second, when something may have changed."""

    def __init__(
        self,
        fleet: Fleet,
        record: Record,
        standing: Standing,
        merger: Callable[[lines.Chosen], Merger],
        options: Options,
        tell: Callable[[str], None] = lambda text: None,
        look: Callable[[], None] = lambda: None,
    ) -> None:
        self._fleet = fleet
        self._record = record
        self._standing = standing
        self._merger_of = merger
        self._merger: Merger | None = None
        self._options = options
        self._tell = tell
        self._look = look
        open_ = [u.unit for u in standing.units.values() if u.state in ("waiting", "running")]
        self._queue = Queue(open_, repeat=options.repeat, canary=options.canary)
        self._ahead = Ahead(open_)
        self._came: dict[str, Facts] = {}
        self._refused: set[str] = set()
        self._first_hello: float | None = None
        self._idle_since = self._folded = self._asked = time.monotonic()
        self._pulses: dict[str, tuple[float, str | None]] = {}
        self._slow: set[str] = set()
        self._of_cpu = False

    def run(self) -> None:
        """Until all is settled, or nobody is left to do it. The fleet is stopped then, however it
        ends. Raises RecordFull."""
        reason = "interrupted"
        try:
            while not self._queue.over:
                for message in self._fleet.results(TICK):
                    self._hear(message, time.monotonic())
                now = time.monotonic()
                self._choose(now)
                expected = set(self._fleet.agents) - self._refused
                self._do(self._queue.tick(now, expected), now)
                self._help(now)
                self._now_and_then(now)
                if (why := self._stranded(now)) is not None:
                    reason = why
                    self._tell(why)
                    break
            else:
                reason = ""
        finally:
            self._end(reason)

    def merge_rest(self) -> None:
        """What has results but is not in the cache: of an earlier driver, or of a full disk."""
        chosen = self._standing.chosen
        if self._merger is None and chosen is not None:
            self._merger = self._merger_of(chosen)
        for id, unit in self._standing.units.items():
            if unit.state == "done" and unit.results:
                self._merge(id)
        if self._merger is not None and self._standing.counts().merged:
            results = (d.result for u in self._standing.units.values() for d in u.results.values())
            self._merger.system = self._merger.system or next(
                (result.system for result in results if result is not None and result.system), {}
            )
            self._fold()

    # What agents say.

    def _hear(self, message: ToDriver, now: float) -> None:
        if isinstance(message, Hello):
            self._greet(message, now)
        elif isinstance(message, Beat):
            self._do(self._queue.beat(message.agent, message.leases, now), now)
            self._pulse(message, now)
        elif isinstance(message, Done):
            known = self._standing.units.get(message.unit)
            done = message if known is None else checked(message, known.unit.job)
            self._do(self._queue.done(done, now), now)
        elif isinstance(message, Compiled):
            for text in self._ahead.compiled(message):
                self._tell(text)
            self._note(self._ahead.done(message.agent))
        else:
            self._lose(message, now)

    def _greet(self, hello: Hello, now: float) -> None:
        agent, facts = hello.agent, hello.facts
        self._first_hello = now if self._first_hello is None else self._first_hello
        if hello.protocol != PROTOCOL:
            spoken = f"speaks protocol {hello.protocol}, this one {PROTOCOL}"
            self._refuse(agent, facts, f"rocm-tui on {facts.host} {spoken}: upgrade the older one")
            return
        self._came[agent] = facts
        if self._merger is not None:
            self._admit(agent, now)

    def _admit(self, agent: str, now: float) -> None:
        assert self._merger is not None
        facts = self._came[agent]
        why = refusal(facts, self._merger.chosen)
        if why and self._can_help(facts):
            self._refused.add(agent)
            self._note(lines.Came(agent, facts, ahead=True))
            self._ahead.help(agent, facts)
            return
        if why:
            self._refuse(agent, facts, why)
            return
        self._note(lines.Came(agent, facts))
        self._do(self._queue.hello(agent, now), now)

    def _can_help(self, facts: Facts) -> bool:
        """Whether it may compile ahead for a GPU that finds it."""
        found = (gpu_of(gpu) is not None and shares(facts, gpu) for gpu in self._came.values())
        return facts.device == CPU and self._ahead.wanted and not self._of_cpu and any(found)

    def _refuse(self, agent: str, facts: Facts, why: str) -> None:
        self._refused.add(agent)
        self._note(lines.Came(agent, facts, why))
        self._tell(f"{agent} gets no work: {why}")

    def _lose(self, gone: Gone, now: float) -> None:
        self._came.pop(gone.agent, None)
        self._ahead.gone(gone.agent)
        self._note(lines.Lost(gone.agent, gone.reason, gone.returns))
        self._tell(
            f"{gone.agent}: {gone.reason}" + ("; it is started again" if gone.returns else "")
        )
        self._do(self._queue.gone(gone.agent, gone.reason, now), now)

    def _pulse(self, beat: Beat, now: float) -> None:
        unit = self._queue.lease_unit(beat.agent)
        at, before = self._pulses.get(beat.agent, (-PULSE, None))
        every = max(PULSE, len(self._came) / 20)
        if unit == before and now - at < every:
            return
        self._pulses[beat.agent] = now, unit
        state = beat.clock, beat.power, beat.temperature
        self._note(lines.Pulse(beat.agent, unit, beat.progress, *state))

    def _choose(self, now: float) -> None:
        """Which class counts, once all are there, or have been waited for long enough."""
        if self._merger is not None or not self._came or self._first_hello is None:
            return
        missing = set(self._fleet.agents) - self._came.keys() - self._refused
        wanted, before = self._options.device_class, self._standing.chosen
        if missing and wanted is None and before is None and now - self._first_hello < GATHER:
            return
        units = [self._standing.units[id].unit for id in self._queue.states()]
        if before is None or wanted is not None:
            chosen = choose(self._came, wanted, not all(map(is_of_cpu, units)))
        else:
            chosen = before
        if chosen is None:
            if missing and now - self._first_hello < GATHER:
                return
            there = sorted({class_of(facts) for facts in self._came.values()})
            for agent, facts in list(self._came.items()):
                self._refuse(agent, facts, f"it is {class_of(facts)}, not {wanted}")
            self._came.clear()
            self._tell(f"no device is of the class {wanted}; there are: {'; '.join(there)}")
            return
        if chosen != before:
            self._note(chosen)
        self._merger = self._merger_of(chosen)
        self._of_cpu = chosen.device_class == CPU
        self._leave_out(units, now)
        for agent in list(self._came):
            self._admit(agent, now)

    def _leave_out(self, units: Sequence[Unit], now: float) -> None:
        """Problems of a CPU, where the devices are GPUs: several at once would disturb each other
        on the one CPU of their host."""
        left = () if self._of_cpu else tuple(unit.id for unit in units if is_of_cpu(unit))
        if not left:
            return
        for id in left:
            self._do(self._queue.cancel(id, now), now)
        reason = "the devices of this run are GPUs"
        self._note(lines.LeftOut(left, reason))
        told = counted(len(left), "problem of a CPU is", "problems of a CPU are")
        self._tell(f"{told} left out: {reason}; `tune --fleet local:cpu` tunes them")

    def _help(self, now: float) -> None:
        """Let those without a GPU compile what the GPUs have not begun with."""
        if self._ahead.agents:
            units = self._standing.units
            begun = {problem_id(units[id].unit) for id in self._queue.begun() if id in units}
            self._do(self._ahead.steps(begun, self._came.values()), now)

    # What the queue wants.

    def _do(self, steps: Sequence[Step], now: float) -> None:
        for step in steps:
            if isinstance(step, Send):
                self._send(step)
            elif isinstance(step, Accept):
                self._note(lines.Done(step.done), sync=True)
                if step.done.unit == self._options.canary:
                    self._weigh()
                if step.settled:
                    self._merge(step.done.unit)
            elif isinstance(step, Settled):
                self._merge(step.unit)
            elif isinstance(step, Fail):
                self._note(lines.Failed(step.unit, step.reasons))
                title = self._standing.units[step.unit].unit.title
                self._tell(f"{title} was not tuned: {'; '.join(step.reasons)}")
            elif isinstance(step, Single):
                self._note(lines.Single(step.unit, step.reason))
            elif isinstance(step, Trouble):
                self._note(lines.Tried(step.unit, step.agent, step.reason))
            elif isinstance(step, Quarantine):
                self._note(lines.Quarantined(step.agent, step.reason))
                self._tell(f"{step.agent} gets no more work: {step.reason}")
            elif isinstance(step, Silent):
                self._note(lines.Lost(step.agent, "it is silent", returns=True))
            else:
                assert isinstance(step, Ignore)

    def _send(self, step: Send) -> None:
        message = step.message
        if isinstance(message, Offer):
            message = replace(message, unit=self._filled(message.unit))
            self._note(lines.Lent(step.agent, message.lease, message.unit.id))
        elif isinstance(message, Cancel) and self._standing.has_lent(message.lease):
            self._note(lines.Ended(step.agent, message.lease))
        self._fleet.offer(step.agent, message)

    def _filled(self, unit: Unit) -> Unit:
        """A final with the choices that its heats left."""
        if not unit.after:
            return unit
        heats = (next(iter(self._standing.units[id].results.values())) for id in unit.after)
        times = [done.result.times for done in heats if done.result is not None]
        return replace(unit, job=replace(unit.job, only=finalists(times)))

    def _heats(self, unit: Unit, merger: Merger) -> list[TuneResult]:
        """What came of a final's heats. Raises StoreError."""
        found = []
        for id in unit.after:
            done = next(iter(self._standing.units[id].results.values()), None)
            if done is None or done.result is None or refusal(done.facts, merger.chosen):
                raise StoreError("a heat of it was tuned on a device of another class")
            found.append(done.result)
        return found

    def _merge(self, id: str) -> None:
        unit, merger = self._standing.units[id], self._merger
        if merger is None or unit.unit.part_of:
            return
        results = {
            agent: done
            for agent, done in unit.results.items()
            if done.result is not None and not refusal(done.facts, merger.chosen)
        }
        try:
            if not results:
                raise StoreError("it was tuned on a device of another class")
            self._note(merger.merge(unit.unit, results, self._heats(unit.unit, merger)))
        except StoreError as error:
            if unit.unmerged != str(error):
                self._note(lines.Unmerged(id, str(error)))
                self._tell(f"{unit.unit.title} stays in the record: {error}")

    def _weigh(self) -> None:
        """Which cards are slow at the canary; each is told once."""
        canary = self._standing.units.get(self._options.canary or "")
        for agent, ratio in slow_cards(canary.results if canary else {}).items():
            if agent not in self._slow:
                self._slow.add(agent)
                self._note(lines.Slow(agent, round(ratio, 3)))
                self._tell(f"{agent} is slow: {ratio:.2f} x the median of all at the same problem")

    # Now and then.

    def _now_and_then(self, now: float) -> None:
        self._look()
        if now - self._asked >= 1.0:
            self._asked = now
            for unit in self._record.asked():
                self._cancel(unit, now)
        if now - self._folded >= FOLD and self._standing.counts().merged:
            self._fold()
            self._folded = time.monotonic()

    def _cancel(self, unit: str | None, now: float) -> None:
        before = self._queue.states()
        steps = self._queue.cancel(unit, now)
        after = self._queue.states()
        for id, state in after.items():
            if state == "cancelled" != before[id]:
                self._note(lines.Cancelled(id))
        self._do(steps, now)

    def _stranded(self, now: float) -> str | None:
        """Why nobody will do what is open."""
        if any(self._queue.leases().values()):
            self._idle_since = now
        waited = now - self._idle_since
        if self._queue.stranded:
            return "no device is left"
        return f"no device was at work for {WAIT:.0f} s" if waited > WAIT else None

    def _fold(self) -> None:
        if self._merger is not None:
            try:
                self._merger.fold()
            except StoreError as error:
                self._tell(f"the times stay in the journal for now: {error}")

    def _end(self, reason: str) -> None:
        self._fleet.stop()
        self.merge_rest()
        self._note(lines.Over(reason, self._standing.counts().left))

    def _note(self, *news: Line, sync: bool = False) -> None:
        """Into the record, and into what is known. Raises RecordFull."""
        self._record.add(*news, sync=sync)
        now = time.time()
        self._standing.apply((now, line) for line in news)
