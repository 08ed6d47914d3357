"""The queue of a fleet: drawn stories in which nothing is lost, taken twice or stuck; its rules."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from backend.wire.jobs import TuneJob, TuneResult
from rocm_tui.fleet.messages import Cancel, Done, Facts, Offer, Unit
from rocm_tui.fleet.queue import IN_A_ROW, LATE, LOSSES, MISSED, SAMPLES, SILENT, Queue
from rocm_tui.fleet.splitting import split
from rocm_tui.fleet.steps import Accept, Fail, Ignore, Quarantine, Send, Single, Step

AGENTS = ("a", "b", "c")
OK = TuneResult(ok=True)


def units(*weights: float) -> list[Unit]:
    return [Unit(f"u{n}", f"u{n}", TuneJob("mm"), weight=w) for n, w in enumerate(weights)]


def offers(steps: Sequence[Step]) -> list[tuple[str, str, str]]:
    """Agent, lease and unit of each offer."""
    sent = [(s.agent, s.message) for s in steps if isinstance(s, Send)]
    return [(agent, m.lease, m.unit.id) for agent, m in sent if isinstance(m, Offer)]


def cancels(steps: Sequence[Step]) -> list[tuple[str, str]]:
    sent = [(s.agent, s.message) for s in steps if isinstance(s, Send)]
    return [(agent, m.lease) for agent, m in sent if isinstance(m, Cancel)]


def said(
    offer: tuple[str, str, str],
    ok: bool = True,
    own: bool = False,
    took: float = 1.0,
    single: bool = False,
) -> Done:
    agent, lease, unit = offer
    reason = "" if ok else "it broke"
    return Done(agent, lease, unit, Facts(), OK if ok else None, reason, own, took, single)


HOWS = ("ok", "ok", "ok", "ok", "fails", "own", "single")


class Story(RuleBasedStateMachine):
    """Agents come, work, fail, fall silent, go and come back; messages are late and doubled."""

    @initialize(
        count=st.integers(1, 8),
        heats=st.integers(0, 3),
        repeat=st.integers(1, 2),
        canary=st.booleans(),
        data=st.data(),
    )
    def begin(self, count: int, heats: int, repeat: int, canary: bool, data: st.DataObject) -> None:
        weights = data.draw(st.lists(st.floats(0.1, 9), min_size=count, max_size=count))
        self.units = units(*weights)
        if heats and count > 1:  # the second one is split
            self.units[1:2] = split(self.units[1], ["triton-1", "triton-2"], heats)
        self.repeat = repeat
        self.queue = Queue(self.units, repeat=repeat, canary="u0" if canary else None)
        self.canary = canary
        self.now = 0.0
        self.leases: dict[str, dict[str, str]] = {name: {} for name in AGENTS}
        self.there: set[str] = set()
        self.old: list[Done] = []
        self.accepted: list[tuple[str, str]] = []
        self.settled: list[str] = []

    def take(self, steps: Sequence[Step]) -> None:
        for step in steps:
            if isinstance(step, Send) and isinstance(step.message, Offer):
                assert step.agent in self.there
                assert step.message.lease not in self.leases[step.agent]
                before = step.message.unit.after
                assert {unit for unit, _ in self.accepted} >= set(
                    before
                )  # no final before its heats
                self.leases[step.agent][step.message.lease] = step.message.unit.id
            elif isinstance(step, Send) and isinstance(step.message, Cancel):
                self.leases[step.agent].pop(step.message.lease, None)
            elif isinstance(step, Accept):
                self.accepted.append((step.done.unit, step.done.agent))
                if step.settled:
                    self.settled.append(step.done.unit)
            elif isinstance(step, Fail | Single):
                self.settled.append(step.unit)

    @rule(agent=st.sampled_from(AGENTS))
    def comes(self, agent: str) -> None:
        self.there.add(agent)
        self.leases[agent] = {}
        self.take(self.queue.hello(agent, self.now))

    @rule(agent=st.sampled_from(AGENTS))
    def goes(self, agent: str) -> None:
        self.there.discard(agent)
        self.leases[agent] = {}
        self.take(self.queue.gone(agent, "killed", self.now))

    @rule(agent=st.sampled_from(AGENTS), how=st.sampled_from(HOWS))
    def finishes(self, agent: str, how: str) -> None:
        if agent in self.there and self.leases[agent]:
            lease, unit = next(iter(self.leases[agent].items()))
            del self.leases[agent][lease]
            own, single = how in ("own", "single"), how == "single"
            done = said((agent, lease, unit), how == "ok", own, single=single)
            self.old.append(done)
            self.take(self.queue.done(done, self.now))

    @rule(data=st.data())
    def says_again(self, data: st.DataObject) -> None:
        if self.old:
            done = data.draw(st.sampled_from(self.old))
            steps = self.queue.done(done, self.now)
            assert any(isinstance(step, Ignore | Accept) for step in steps)
            self.take(steps)

    @rule(agent=st.sampled_from(AGENTS), knows=st.booleans())
    def beats(self, agent: str, knows: bool) -> None:
        if agent in self.there:
            if not knows:  # what was sent did not arrive
                self.leases[agent] = {}
            self.take(self.queue.beat(agent, list(self.leases[agent]), self.now))

    @rule(seconds=st.sampled_from([0.5, 3.0, SILENT + 1]))
    def waits(self, seconds: float) -> None:
        self.now += seconds
        self.take(self.queue.tick(self.now, AGENTS))

    @rule(unit=st.integers(0, 9))
    def is_cancelled(self, unit: int) -> None:
        if unit == 0:
            self.take(self.queue.cancel("u1", self.now))

    @invariant()
    def nothing_is_taken_twice(self) -> None:
        assert len(self.accepted) == len(set(self.accepted))
        assert len(self.settled) == len(set(self.settled))
        if not self.canary:
            assert all(
                sum(unit == each.id for unit, _ in self.accepted)
                <= (1 if each.part_of else self.repeat)
                for each in self.units
            )

    def teardown(self) -> None:
        """From here on all goes well: then all is settled, soon."""
        if not hasattr(self, "queue"):
            return
        for agent in ("d", "e", *AGENTS):
            self.leases.setdefault(agent, {})
            self.comes(agent)
        for _ in range(60):
            if self.queue.over:
                break
            for agent in self.there:
                self.finishes(agent, "ok")
                self.beats(agent, True)
            self.now += 1.0
            self.take(self.queue.tick(self.now, self.there))
        assert self.queue.over
        done = {id for id, state in self.queue.states().items() if state == "done"}
        assert done <= {unit for unit, _ in self.accepted}
        states = self.queue.states()
        for unit in self.units:  # a final is done with all its heats, and fails with any
            heats = {states[id] for id in unit.after}
            assert states[unit.id] != "done" or heats <= {"done"}
            assert "failed" not in heats or states[unit.id] in ("failed", "cancelled")


TestStories = Story.TestCase
TestStories.settings = settings(max_examples=40, stateful_step_count=30)


def test_the_longest_goes_first_and_one_is_at_hand() -> None:
    queue = Queue(units(1, 5, 3, 2))
    assert [unit for _, _, unit in offers(queue.hello("a", 0))] == ["u1", "u2"]
    assert [unit for _, _, unit in offers(queue.hello("b", 0))] == ["u3", "u0"]


def test_who_has_nothing_takes_what_another_one_has_at_hand() -> None:
    queue = Queue(units(5, 3))
    [_, at_hand] = offers(queue.hello("a", 0))
    steps = queue.hello("b", 0)
    assert cancels(steps) == [("a", at_hand[1])]
    assert [(agent, unit) for agent, _, unit in offers(steps)] == [("b", "u1")]


def test_silence_ends_a_lease_and_the_first_result_counts() -> None:
    queue = Queue(units(5))
    [old] = offers(queue.hello("a", 0))
    queue.hello("b", 0)
    queue.beat("b", [], 9)
    [new] = offers(queue.tick(SILENT + 1, ["a", "b"]))
    assert new[0] == "b"
    assert any(isinstance(step, Accept) for step in queue.done(said(old), 12))  # it is heard again
    assert queue.over
    assert [type(step) for step in queue.done(said(new), 13)] == [Ignore]


def test_the_second_failure_elsewhere_is_the_problems_own() -> None:
    queue = Queue(units(5))
    [first] = offers(queue.hello("a", 0))
    queue.hello("b", 0)
    [second] = offers(queue.done(said(first, ok=False), 1))
    assert second[0] == "b"
    [fail] = [s for s in queue.done(said(second, ok=False), 2) if isinstance(s, Fail)]
    assert fail.reasons == ("a: it broke", "b: it broke")


def test_what_cannot_be_built_is_tried_once() -> None:
    queue = Queue(units(5))
    [first] = offers(queue.hello("a", 0))
    steps = queue.done(said(first, ok=False, own=True), 1)
    assert any(isinstance(step, Fail) for step in steps) and queue.over


def test_what_has_one_choice_is_settled_at_once_and_a_heat_with_one_has_failed() -> None:
    queue = Queue([*units(40), *split(units(9)[0], ["triton-1", "triton-2"], 2)][:3])
    [first, *rest] = offers(queue.hello("a", 0.0))
    assert first[2] == "u0"
    steps = queue.done(said(first, False, True, single=True), 1.0)
    assert steps[0] == Single("u0", "it broke") and queue.states()["u0"] == "single"
    steps = queue.done(said(rest[0], False, True, single=True), 1.0)
    assert isinstance(steps[0], Fail) and queue.states()[rest[0][2]] == "failed"


def test_what_an_agent_has_no_more_is_not_lent_for_ever() -> None:
    """Its result could not be read here, or the offer there: another version of the program."""
    queue = Queue(units(1))
    steps = queue.hello("a", 0.0)
    for turn in range(1, LOSSES * MISSED + 1):
        assert not queue.over
        steps = queue.beat("a", [], 2.0 * turn)
    [failed] = [step for step in steps if isinstance(step, Fail)]
    assert len(failed.reasons) == LOSSES and "no result" in failed.reasons[0] and queue.over


def test_what_nobody_else_can_try_has_failed() -> None:
    queue = Queue(units(5))
    [first] = offers(queue.hello("a", 0))
    queue.done(said(first, ok=False), 1)
    assert not any(isinstance(step, Fail) for step in queue.tick(2, ["a", "b"]))
    assert any(isinstance(step, Fail) for step in queue.tick(3, ["a"]))


def test_a_device_that_fails_at_what_others_can_do_gets_nothing_more() -> None:
    queue = Queue(units(*[1.0] * 8))
    pending = offers(queue.hello("bad", 0)) + offers(queue.hello("good", 0))
    out: list[str] = []
    for _ in range(30):
        agent, lease, unit = pending.pop(0)
        steps = queue.done(said((agent, lease, unit), ok=agent == "good"), 1)
        out += [step.agent for step in steps if isinstance(step, Quarantine)]
        gone = {lease for _, lease in cancels(steps)}
        pending = [each for each in [*pending, *offers(steps)] if each[1] not in gone]
        if queue.over:
            break
    assert queue.over and out == ["bad"] and set(queue.states().values()) == {"done"}
    assert IN_A_ROW == 3


def test_what_is_late_at_the_end_is_tuned_twice_and_the_first_result_wins() -> None:
    queue = Queue(units(*[1.0] * (SAMPLES + 1)))
    [late, _] = offers(queue.hello("a", 0))
    given = offers(queue.hello("b", 0))
    for at in range(1, SAMPLES + 1):
        queue.beat("a", [late[1]], at)
        given += offers(queue.done(said(given.pop(0)), at))
    assert SAMPLES > LATE and [(agent, unit) for agent, _, unit in given] == [("b", late[2])]
    steps = queue.done(said(given[0]), SAMPLES + 1)
    assert any(isinstance(step, Accept) for step in steps) and queue.over
    assert cancels(steps) == [("a", late[1])]


def test_each_on_two_devices_or_as_many_as_there_are() -> None:
    queue = Queue(units(1.0), repeat=2)
    [first] = offers(queue.hello("a", 0))
    steps = queue.done(said(first), 1)
    assert [step.settled for step in steps if isinstance(step, Accept)] == [False]
    assert not queue.over
    queue.tick(2, ["a"])  # nobody else will come
    assert queue.over and queue.states() == {"u0": "done"}


def test_a_final_comes_after_its_heats_and_is_cancelled_with_them() -> None:
    parts = split(units(4.0)[0], ["triton-1", "triton-2"], 2)
    queue = Queue(parts, repeat=2)
    [first, second] = offers(queue.hello("a", 0))
    assert [first[2], second[2]] == ["u0.1", "u0.2"]
    assert offers(queue.done(said(first), 1)) == []
    [(_, _, unit)] = offers(queue.done(said(second), 2))
    assert unit == "u0"
    again = Queue([*units(1.0, 9.0)[1:], *parts])
    given = offers(again.hello("a", 0))
    assert {unit for _, _, unit in given} == {"u1", "u0.1"}
    assert len(cancels(again.cancel("u0.2", 1))) == 1
    assert again.states() == {"u1": "open", **dict.fromkeys(("u0.1", "u0.2", "u0"), "cancelled")}
    assert Queue(parts[1:]).states() and offers(Queue(parts[2:]).hello("a", 0))  # done before
