"""The ranks of a job choose together, where `rocm-tui run` was asked for it.

A problem that another rank has decided is offered that choice alone, as a pin is: nothing is
compiled or timed. Else this rank times the choices, and puts the fastest up for the others before
PyTorch hears of it; was another rank faster with that, PyTorch hears of its choice alone. So what
is selected here is what stands on the board, unless something is said.

Left to PyTorch are tunings in which all ranks take part: of collectives, and those that
`distributed_max_autotune_gemm` spreads.
"""

from __future__ import annotations

import functools
import math
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from backend.disk.layout import Layout
from backend.inductor.guard import say_once
from backend.inductor.hooks import boards
from backend.inductor.hooks.boards import NotYet
from backend.inductor.hooks.environment import home
from backend.inductor.hooks.lookup import identities
from backend.inductor.hooks.recording import Recorder, recorder
from backend.inductor.hooks.tuning_watch import TuningWatch
from backend.inductor.torch import tuning as torch_api
from backend.inductor.torch.tuning import ChoiceCaller, Timings
from backend.model.events import RanksAsked
from backend.model.options import text_of
from backend.model.problem import parse_inputs_key
from backend.model.tuning import Selection
from backend.processes.tree import identity
from backend.ranks import job
from backend.ranks.job import (
    Decision,
    FoundDecision,
    JobMember,
    NoBoard,
    Rank,
    RankAgreement,
    WaitTimedOut,
    WonClaim,
    problem_name,
)

UNAGREED = "ranks do not choose together"

_here = threading.local()
"""`turn`: the one in which this thread tunes."""


def place() -> JobMember | None:
    """This process in its job, by the environment, else by its process group."""
    known = job.job_member()
    group: Any = sys.modules.get("torch.distributed")
    if known is not None or group is None or not group.is_available():
        return known
    if not group.is_initialized() or group.get_world_size() < 2:
        return None
    return JobMember(group.get_rank(), group.get_world_size())


class Agreement:
    """This process among the ranks of its job. Nothing is looked for before the first tuning."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._pid = 0
        self._turns: RankAgreement | None = None
        self._known: set[str] = set()
        self._size = 0
        self.trouble = ""

    def turn(
        self,
        tuning: TuningWatch,
        choices: Sequence[ChoiceCaller],
        pinned: ChoiceCaller | None,
        layout: Any,
    ) -> Turn | None:
        """That of a tuning which is offered these choices; None where this process is alone. May
        wait."""
        turns = self._joined(layout)
        if turns is None:
            return Turn(self, tuning, choices, ()) if self.trouble else None
        questions = _questions(tuning, choices, layout)
        turn = Turn(self, tuning, choices, questions, turns)
        try:
            turn.put_pin(pinned) if pinned is not None else turn.ask()
        except NoBoard as error:
            self.end(error)
        return turn

    def is_new(self, question: str) -> bool:
        """Whether this process had no answer to it before."""
        new = question not in self._known
        self._known.add(question)
        return new

    def end(self, error: NoBoard) -> None:
        """There is no board, or no more."""
        self._turns, self.trouble = None, str(error)
        say_once(f"{UNAGREED}: {error}; each chooses by itself")

    def _joined(self, layout: Any) -> RankAgreement | None:
        if self._pid != os.getpid():  # a fork has nothing of its parent's
            self._pid, self._turns, self.trouble = os.getpid(), None, ""
            self._known = set()
            self._join(layout)
        return self._turns

    def _join(self, layout: Any) -> None:
        here = place()
        if here is None:
            self._pid = 0  # its process group may come yet
            return
        try:
            board = boards.board(here.size, Layout(home.current()))
            process = identity(os.getpid()) or f"{os.getpid()}-{secrets.token_hex(8)}"
            me = Rank(here.rank, socket.gethostname(), process, _device(layout))
            self._turns = turns = RankAgreement(board, me, job.limit(), size=here.size)
            turns.register()
        except NotYet as error:
            self._pid = 0
            self.end(error)
        except NoBoard as error:
            self.end(error)
        else:
            self._size = here.size
            self._recorder.before_end(self._say_if_nobody_was_met)

    def _say_if_nobody_was_met(self) -> None:
        turns = self._turns
        if turns is None or self._pid != os.getpid():
            return
        try:
            others = turns.met(self._size)
        except NoBoard:
            return  # whoever served the board has ended before us, and nothing is asked any more
        if not others:
            say_once(f"rank {turns.me.rank} met no other rank of its job in {turns.board}")
        elif any(other.device != turns.me.device for other in others):
            say_once("not all ranks have the same device: each kind chooses for itself")


class Turn:
    """One tuning. `choices` are those to offer; `why` one of them is selected, if that is known.

    `questions` are the names of its notes: of the problem, and of the problem with just these
    choices, for ranks that are not offered what was decided for the first.
    """

    def __init__(
        self,
        agreement: Agreement,
        tuning: TuningWatch,
        choices: Sequence[ChoiceCaller],
        questions: Sequence[str],
        turns: RankAgreement | None = None,
    ) -> None:
        self.choices = choices
        self.why: Selection | None = None
        self.screening = False
        self._agreement = agreement
        self.tuning = tuning
        self._questions = list(questions)
        self._turns = turns
        self._lead: WonClaim | None = None
        self._decision: Decision | None = None
        self._waited = 0.0
        self._identities = identities(choices, home.current()) if turns is not None else {}
        self._reason = agreement.trouble
        self._alone = bool(agreement.trouble)
        self._beaten = 0.0

    @property
    def together(self) -> bool:
        """Whether there are other ranks to choose with."""
        return self._turns is not None

    # Before the choices are timed

    def ask(self) -> None:
        """Raises NoBoard."""
        turns = self._turns
        while turns is not None and self._questions:
            answer = turns.ask(self._questions[0], self.tuning.awaits)
            self._waited += answer.waited
            if isinstance(answer, FoundDecision):
                if self._takes(answer.decision):
                    return
                continue
            if isinstance(answer, WaitTimedOut):
                self._late(answer)
            else:
                self._lead = answer
                if answer.after is not None:
                    what = f"rank {answer.after.rank} ended before it had chosen"
                    self._reason = what
                    self._say(what, "this rank chooses")
                self.tuning.at_work = self._beat
            return

    def put_pin(self, pinned: ChoiceCaller) -> None:
        """A pin holds, whatever other ranks have; they take it, if they have nothing. Raises
        NoBoard."""
        self.why = "pin"
        holds = self._decide(pinned, {})
        if holds is not None and holds.hash != self._identity(pinned):
            self._apart(
                holds,
                f"a pin holds here, and rank {holds.by.rank} chose {holds.name}",
                "ranks differ there",
            )

    def _takes(self, decision: Decision) -> bool:
        """Offer that choice alone; without it the next question is asked."""
        question = self._questions[0]
        offered = [choice for choice in self.choices if self._identity(choice) == decision.hash]
        new = self._agreement.is_new(question)
        if offered:
            self.choices, self._decision = offered[:1], decision
            self.why = "cache" if self._is_ours(decision) else "rank"
            return True
        self._questions.pop(0)
        if new and not self._is_ours(decision):
            self._apart(
                decision,
                f"{decision.name}, which rank {decision.by.rank} chose, is not offered here",
                "it chooses among its own, and ranks may differ there",
            )
        return False

    def _late(self, answer: WaitTimedOut) -> None:
        where = "" if answer.by.host == socket.gethostname() else f" on {answer.by.host}"
        self._alone = True
        self._reason = (
            f"waited {answer.waited:.0f} s for rank {answer.by.rank}{where}, which claimed it"
        )
        self._say(self._reason, "this rank times it itself; the first that decides is followed")

    # When they are timed

    def settled(self, timings: Timings) -> Timings:
        """What shall be known of these times: all, or that of the choice which others have taken
        meanwhile."""
        times = {choice: ms for choice, ms in timings.items() if math.isfinite(ms)}
        try:
            while times and self._questions:
                fastest = min(times, key=times.__getitem__)
                by_identity = {self._identity(choice): ms for choice, ms in times.items()}
                decision = self._decide(fastest, by_identity)
                if decision is None or self._is_ours(decision):
                    return timings
                if self._takes(decision):
                    (choice,) = self.choices
                    return {choice: timings.get(choice, times[fastest])}
        except NoBoard as error:
            self._agreement.end(error)
            self._reason, self._alone = self._agreement.trouble, True
        return timings

    def _decide(self, choice: ChoiceCaller, timings: Mapping[str, float]) -> Decision | None:
        if self._turns is None or not self._questions:
            return None
        ours = Decision(
            self._turns.me,
            self.tuning.key.op,
            self._identity(choice),
            str(choice.name),
            time.time(),
            timings,
        )
        self._agreement.is_new(self._questions[0])
        return self._turns.decide(self._questions[0], ours)

    def _identity(self, choice: ChoiceCaller) -> str:
        """What other ranks, on other devices of the same kind, know a choice by."""
        hash_ = str(choice.hash_key())
        return self._identities.get(hash_, hash_)

    def _is_ours(self, decision: Decision) -> bool:
        return self._turns is not None and decision.by.process == self._turns.me.process

    def _beat(self) -> None:
        now = time.monotonic()
        if self._turns is not None and self._lead is not None and now - self._beaten > 1:
            self._beaten = now
            self._turns.beat(self._lead)

    # The end

    def __enter__(self) -> Turn:
        self._outer = getattr(_here, "turn", None)
        _here.turn = self
        return self

    def __exit__(self, *error: object) -> None:
        _here.turn = self._outer
        if self._turns is not None and self._lead is not None:
            try:
                self._turns.end(self._lead)
            except NoBoard as trouble:
                self._agreement.end(trouble)

    def told(self) -> Selection | None:
        """Tell what there was between the ranks; why the choice was selected, if that is known."""
        if self._reason or self.why == "rank":
            known = self._decision
            here = {identity: name for name, identity in self._identities.items()}
            self.tuning.asked(
                RanksAsked(
                    self.tuning.n,
                    time.time(),
                    None if known is None else known.by.rank,
                    None if known is None else here.get(known.hash, known.hash),
                    self._waited,
                    {}
                    if known is None
                    else {here.get(name, name): ms for name, ms in known.timings.items()},
                    self._reason,
                )
            )
        return "alone" if self._alone and self.why is None else self.why

    def _apart(self, decision: Decision, what: str, then: str) -> None:
        self._decision, self._reason, self._alone = decision, what, True
        self._say(what, then)

    def _say(self, what: str, then: str) -> None:
        rank = "" if self._turns is None else f"rank {self._turns.me.rank}: "
        say_once(f"{rank}{_called(self.tuning)}: {what}; {then}")


def settled(tuning: TuningWatch, timings: Timings) -> Timings:
    """See `Turn.settled`, of the turn in which this thread tunes."""
    turn: Turn | None = getattr(_here, "turn", None)
    if turn is None or turn.tuning is not tuning:
        return timings
    if turn.screening:
        turn.screening = False
        return timings
    return turn.settled(timings)


def screening() -> None:
    """The next times of this thread are those of a few choices, to find out which others to try."""
    turn: Turn | None = getattr(_here, "turn", None)
    if turn is not None:
        turn.screening = True


@functools.cache
def agreement() -> Agreement | None:
    """That of this process; None where nobody asked for it."""
    return Agreement(recorder()) if job.limit() else None


def _questions(
    tuning: TuningWatch, choices: Sequence[ChoiceCaller], layout: Any
) -> tuple[str, str]:
    key = tuning.key
    told = (_device(layout), key.op, key.inputs, key.precision, text_of(tuning.given))
    offered = sorted(identities(choices, home.current()).values())
    return problem_name(*told), problem_name(*told, *offered)


def _device(layout: Any) -> str:
    """What choices depend on."""
    facts = torch_api.device_facts(layout.device)
    return f"{torch_api.system_hash()} {facts.name} {facts.arch} {facts.compute_units}"


def _called(tuning: TuningWatch) -> str:
    specs = parse_inputs_key(tuning.key.inputs).specs
    return f"{tuning.key.op}({', '.join('x'.join(map(str, spec.sizes)) for spec in specs)})"
