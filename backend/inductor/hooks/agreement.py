"""The ranks of a job choose together, where `rocm-tui run` was asked for it.

A problem that another rank has decided is offered that choice alone, as a pin is: nothing is
compiled or timed. Else this rank times the choices, and puts the fastest up for the others before
PyTorch hears of it; was another rank faster with that, PyTorch hears of its choice alone. So what
is selected here is what stands on the board, unless something is said.

Left to PyTorch are tunings in which all ranks take part: of collectives, and those that
`distributed_max_autotune_gemm` spreads.

The ranks meet in a folder where they are on one host or one was named, else in the store that
torchrun's agent, or rank 0, serves for their job.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import queue
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from datetime import timedelta
from typing import Any, TypeVar

from backend.disk.layout import Layout
from backend.errors import brief
from backend.inductor.guard import say_once
from backend.inductor.hooks.environment import home
from backend.inductor.hooks.lookup import identities
from backend.inductor.hooks.recording import Recorder, recorder
from backend.inductor.hooks.tuning_watch import TuningWatch
from backend.inductor.torch import state
from backend.inductor.torch import tuning as torch_api
from backend.inductor.torch.tuning import ChoiceCaller, Timings
from backend.model.events import RanksAsked
from backend.model.options import text_of
from backend.model.problem import parse_inputs_key
from backend.model.tuning import Selection
from backend.processes.tree import identity
from backend.ranks import job
from backend.ranks.job import (
    Board,
    Decision,
    FolderBoard,
    FoundDecision,
    JobMember,
    Meeting,
    NoBoard,
    Rank,
    RankAgreement,
    WaitTimedOut,
    WonClaim,
    problem_name,
)

CALL_SECONDS = 10.0
"""A server that does not answer for so long is given up."""

_OURS = "rocm_tui/ranks"
_MARK = 16

T = TypeVar("T")


class StoreBoard:
    """Notes as values of a TCPStore, below `job` of our own prefix. A note that is taken down is
    empty. Each is written after a mark of its writer, who recognizes its own by that.

    Nothing but the store is needed: no collective, no process group. The connection is our own,
    since one is held as long as a call lasts, and the program has its own calls to make. A call to
    a server that is silent never returns, whatever the time limit of the store (`check` and
    `compare_set` have none): so a thread makes the calls, and is left behind with the one that
    lasts too long.
    """

    def __init__(self, host: str, port: int, job: str, seconds: float = CALL_SECONDS) -> None:
        """Raises NoBoard where no store answers."""
        self._where = f"the store at {host}:{port}"
        self._prefix = f"{_OURS}/{job}/"
        self._seconds = min(seconds, CALL_SECONDS)
        self._lost = ""
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], futures.Future[Any]]]
        self._calls = queue.SimpleQueue()
        threading.Thread(target=_serve, args=(self._calls,), name=_OURS, daemon=True).start()
        self._store = self._call(lambda: _connected(host, port, self._seconds))

    def __str__(self) -> str:
        return self._where

    def read(self, name: str) -> bytes | None:
        return self._swap(name, b"")[_MARK:] or None

    def put(self, name: str, note: bytes) -> bool:
        marked = secrets.token_hex(_MARK // 2).encode() + note
        return self._swap(name, marked) == marked

    def take_down(self, name: str) -> None:
        self._call(lambda: self._store.set(self._prefix + name, ""))

    def beat(self, name: str) -> None:
        with contextlib.suppress(NoBoard):  # a sign that is missing is seen by those who wait
            self._count(name, 1)

    def last_beat(self, name: str) -> object:
        return self._count(name, 0)

    def _swap(self, name: str, value: bytes) -> bytes:
        """Write `value` where nothing is, at once with reading what is there then."""
        key: str = self._prefix + name
        swap: Callable[..., bytes] = self._store.compare_set  # takes bytes too
        return self._call(lambda: swap(key, b"", value))

    def _count(self, name: str, more: int) -> int:
        return self._call(lambda: int(self._store.add(f"{self._prefix}{name}.beats", more)))

    def _call(self, call: Callable[[], T]) -> T:
        """Raises NoBoard; once it has, it always does."""
        if self._lost:
            raise NoBoard(self._lost)
        answer: futures.Future[T] = futures.Future()
        self._calls.put((call, answer))
        try:
            return answer.result(self._seconds)
        except futures.TimeoutError as error:
            self._lost = f"{self._where} does not answer for {self._seconds:g} s"
            raise NoBoard(self._lost) from error
        except (RuntimeError, OSError, ValueError, OverflowError) as error:
            self._lost = f"{self._where} cannot be reached: {_reason(error)}"
            raise NoBoard(self._lost) from error


def _serve(calls: queue.SimpleQueue[tuple[Callable[[], Any], futures.Future[Any]]]) -> None:
    while True:
        call, answer = calls.get()
        try:
            answer.set_result(call())
        except BaseException as error:
            answer.set_exception(error)


def _connected(host: str, port: int, seconds: float) -> Any:
    from torch.distributed import TCPStore  # a torch may be built without it

    # Where nothing listens, TCPStore would try until its time is up and print its C++ stack.
    socket.create_connection((host, port), seconds).close()
    limit = timedelta(seconds=seconds)
    return TCPStore(host, port, is_master=False, timeout=limit, wait_for_workers=False)


def _reason(error: Exception) -> str:
    told = getattr(error, "strerror", None) or str(error).partition("\n")[0]
    return brief(told or type(error).__name__, 100)


_AGENT = "TORCHELASTIC_USE_AGENT_STORE"


class NotYet(NoBoard):
    """Ranks cannot meet before there is a process group."""


def board_of(size: int, layout: Layout, env: Mapping[str, str] = os.environ) -> Board:
    """Where the ranks of a job of this size meet. Raises NoBoard, NotYet."""
    meeting = job.meeting(size, layout, env)
    if isinstance(meeting, Meeting):
        return FolderBoard(meeting)
    if meeting:
        raise NoBoard(meeting)
    server = agent_store(env) or state.default_store()
    if server is None:
        why = "its ranks are on several hosts and have no store to meet in"
        raise NotYet(f"{why}; call init_process_group before, or name a folder with --agree-dir")
    return StoreBoard(*server, env.get("TORCHELASTIC_RUN_ID", ""), job.limit(env))


def agent_store(env: Mapping[str, str]) -> tuple[str, int] | None:
    """Host and port of the store that torchrun's agent serves before any rank starts; a rank that
    is started again finds it as it was."""
    host, port = env.get("MASTER_ADDR", ""), env.get("MASTER_PORT", "")
    return (host, int(port)) if env.get(_AGENT) == "True" and host and port.isdecimal() else None


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
            board = board_of(here.size, Layout(home.current()))
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
