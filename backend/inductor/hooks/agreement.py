"""The ranks of a job choose together, if `rocm-tui run` is asked to.

A problem that another rank has decided is offered only that choice, like a pin: nothing is compiled
or timed. Otherwise this rank times the choices, and posts the fastest for the others before PyTorch
gets the times; if another rank was faster, PyTorch gets only that rank's choice. So the selection
here matches the board, unless a message says otherwise.

Tunings in which all ranks take part are left to PyTorch: collectives, and tunings that
`distributed_max_autotune_gemm` spreads.

The ranks meet in a folder if they are on one host or a folder was named, else in the store that
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
from backend.model.options import text_of_options
from backend.model.problem import parse_inputs_key
from backend.model.tuning import Selection
from backend.processes.tree import identity
from backend.ranks import job
from backend.ranks.job import (
    Board,
    BoardBusy,
    BoardUnavailable,
    Decision,
    FolderBoard,
    FoundDecision,
    JobMember,
    MeetingFolder,
    Rank,
    RankAgreement,
    WaitTimedOut,
    WonClaim,
    problem_name,
)

CALL_SECONDS = 10.0
"""Seconds after which a silent server is given up."""

BEATING = "rocm-tui heartbeat"
"""The name of the thread that writes heartbeats."""

_OURS = "rocm_tui/ranks"
_MARK = 16

T = TypeVar("T")


class StoreBoard:
    """Notes as values of a TCPStore, with keys under `job` and our own prefix. A removed note is
    empty. Each note begins with a mark of its writer, by which writers recognize their own.

    Only the store is needed: no collective, no process group. The connection is our own, since a
    call occupies its connection, and the program makes its own calls. A call to a silent server
    never returns, whatever the time limit of the store (`check` and `compare_set` have none): so a
    thread makes the calls, and is abandoned if one takes too long.
    """

    def __init__(self, host: str, port: int, job: str, seconds: float = CALL_SECONDS) -> None:
        """Connect. Raises BoardUnavailable if no store answers."""
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
        with contextlib.suppress(BoardUnavailable):  # waiting ranks notice a missing heartbeat
            self._count(name, 1)

    def last_beat(self, name: str) -> object:
        return self._count(name, 0)

    def _swap(self, name: str, value: bytes) -> bytes:
        """Write `value` if there is none, and return the stored value, atomically."""
        key: str = self._prefix + name
        swap: Callable[..., bytes] = self._store.compare_set  # also accepts bytes
        return self._call(lambda: swap(key, b"", value))

    def _count(self, name: str, more: int) -> int:
        return self._call(lambda: int(self._store.add(f"{self._prefix}{name}.beats", more)))

    def _call(self, call: Callable[[], T]) -> T:
        """Make a call in the thread. Raises BoardUnavailable; once raised, every call raises it."""
        if self._lost:
            raise BoardUnavailable(self._lost)
        answer: futures.Future[T] = futures.Future()
        self._calls.put((call, answer))
        try:
            return answer.result(self._seconds)
        except futures.TimeoutError as error:
            self._lost = f"{self._where} does not answer for {self._seconds:g} s"
            raise BoardUnavailable(self._lost) from error
        except (RuntimeError, OSError, ValueError, OverflowError) as error:
            self._lost = f"{self._where} cannot be reached: {_reason(error)}"
            raise BoardUnavailable(self._lost) from error


def _serve(calls: queue.SimpleQueue[tuple[Callable[[], Any], futures.Future[Any]]]) -> None:
    while True:
        call, answer = calls.get()
        try:
            answer.set_result(call())
        except BaseException as error:
            answer.set_exception(error)


def _connected(host: str, port: int, seconds: float) -> Any:
    from torch.distributed import TCPStore  # a torch may be built without it

    # Without a server, TCPStore would retry until its timeout and print its C++ stack.
    socket.create_connection((host, port), seconds).close()
    limit = timedelta(seconds=seconds)
    return TCPStore(host, port, is_master=False, timeout=limit, wait_for_workers=False)


def _reason(error: Exception) -> str:
    message = getattr(error, "strerror", None) or str(error).partition("\n")[0]
    return brief(message or type(error).__name__, 100)


_AGENT = "TORCHELASTIC_USE_AGENT_STORE"


class BoardNotReady(BoardUnavailable):
    """Ranks cannot meet before there is a process group."""


def board_of(size: int, layout: Layout, env: Mapping[str, str] = os.environ) -> Board:
    """Return the board of a job of this size. Raises BoardUnavailable, BoardNotReady."""
    meeting = job.meeting(size, layout, env)
    if isinstance(meeting, MeetingFolder):
        return FolderBoard(meeting)
    if meeting:
        raise BoardUnavailable(meeting)
    server = agent_store(env) or state.default_store()
    if server is None:
        why = "its ranks are on several hosts and have no store to meet in"
        raise BoardNotReady(
            f"{why}; call init_process_group before, or name a folder with --agree-dir"
        )
    return StoreBoard(*server, env.get("TORCHELASTIC_RUN_ID", ""), job.limit(env))


def agent_store(env: Mapping[str, str]) -> tuple[str, int] | None:
    """Return host and port of the store that torchrun's agent serves before any rank starts; it
    outlives restarts of a rank."""
    host, port = env.get("MASTER_ADDR", ""), env.get("MASTER_PORT", "")
    return (host, int(port)) if env.get(_AGENT) == "True" and host and port.isdecimal() else None


UNAGREED = "ranks do not choose together"

_here = threading.local()
"""`turn`: the turn in which this thread tunes."""


def place() -> JobMember | None:
    """Return this process's membership in its job: from the environment, or its process group."""
    member = job.job_member()
    group: Any = sys.modules.get("torch.distributed")
    if member is not None or group is None or not group.is_available():
        return member
    if not group.is_initialized() or group.get_world_size() < 2:
        return None
    return JobMember(group.get_rank(), group.get_world_size())


class RankCoordinator:
    """Coordinates this process with the ranks of its job. Does nothing before the first tuning."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._pid = 0
        self._turns: RankAgreement | None = None
        self._questions: set[str] = set()
        self._size = 0
        self.trouble = ""

    def turn(
        self,
        tuning: TuningWatch,
        choices: Sequence[ChoiceCaller],
        pinned: ChoiceCaller | None,
        layout: Any,
    ) -> RankTurn | None:
        """Return the turn of a tuning with these choices; None if this process is alone. Waits."""
        turns = self._joined(layout)
        if turns is None:
            return RankTurn(self, tuning, choices, ()) if self.trouble else None
        questions = _questions(tuning, choices, layout)
        turn = RankTurn(self, tuning, choices, questions, turns)
        try:
            turn.put_pin(pinned) if pinned is not None else turn.ask()
        except BoardUnavailable as error:
            self.end(error)
        return turn

    def is_new(self, question: str) -> bool:
        """Return whether this process had no answer to the question before."""
        new = question not in self._questions
        self._questions.add(question)
        return new

    def end(self, error: BoardUnavailable) -> None:
        """Report that there is no board, or no longer. After a failure that may pass, only this
        tuning is without the others."""
        if isinstance(error, BoardBusy):
            say_once(f"{error}; this rank asks the others again for its next tuning")
            return
        self._turns, self.trouble = None, str(error)
        say_once(f"{UNAGREED}: {error}; each rank chooses alone")

    def _joined(self, layout: Any) -> RankAgreement | None:
        if self._pid != os.getpid():  # a fork shares nothing with its parent
            self._turns, self.trouble = None, ""
            self._questions = set()
            if self._join(layout):  # an error is one of this tuning, and the next one tries again
                self._pid = os.getpid()
        return self._turns

    def _join(self, layout: Any) -> bool:
        """Join the ranks of the job. Return False if that may be possible later."""
        here = place()
        if here is None:
            return False  # its process group may be created later
        try:
            board = board_of(here.size, Layout(home.current()))
            process = identity(os.getpid()) or f"{os.getpid()}-{secrets.token_hex(8)}"
            me = Rank(here.rank, socket.gethostname(), process, _device(layout))
            turns = RankAgreement(board, me, job.limit(), size=here.size)
            turns.register()
        except BoardNotReady as error:
            self.end(error)
            return False
        except BoardBusy as error:
            self.end(error)
            self.trouble = str(error)
            return False
        except BoardUnavailable as error:
            self.end(error)
        else:
            self._turns = turns
            self._size = here.size
            self._recorder.before_end(self._say_if_nobody_was_met)
        return True

    def _say_if_nobody_was_met(self) -> None:
        turns = self._turns
        if turns is None or self._pid != os.getpid():
            return
        try:
            others = turns.met(self._size)
        except BoardUnavailable:
            return  # the board's server has ended before us, and nothing more is to be asked
        if not others:
            say_once(f"rank {turns.me.rank} met no other rank of its job in {turns.board}")
        elif any(other.device != turns.me.device for other in others):
            say_once("not all ranks have the same device: each kind chooses for itself")


class RankTurn:
    """One tuning. `choices` are those to offer; `why` is the reason for selecting one, if known.

    `questions` are the names of its notes: of the problem, and of the problem with exactly these
    choices, for ranks that are not offered the choice decided for the first.
    """

    def __init__(
        self,
        agreement: RankCoordinator,
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
        self._over = threading.Event()

    @property
    def together(self) -> bool:
        """Whether there are other ranks to choose with."""
        return self._turns is not None

    # Before timing

    def ask(self) -> None:
        """Look for a decision. Raises BoardUnavailable."""
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
            return

    def put_pin(self, pinned: ChoiceCaller) -> None:
        """Post a pin, which other ranks adopt if they have nothing. Raises BoardUnavailable."""
        self.why = "pin"
        holds = self._decide(pinned, {})
        if holds is not None and holds.hash != self._identity(pinned):
            self._apart(
                holds,
                f"a pin holds here, and rank {holds.by.rank} chose {holds.name}",
                "ranks differ there",
            )

    def _takes(self, decision: Decision) -> bool:
        """Offer only the decided choice, if available; otherwise the next question is asked."""
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

    # After timing

    def settled(self, timings: Timings) -> Timings:
        """Return the times for PyTorch: all, or only that of a choice decided meanwhile."""
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
        except BoardUnavailable as error:
            self._agreement.end(error)
            self._reason, self._alone = str(error), True
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
        """Return the name of a choice for other ranks, on other devices of the same kind."""
        hash_ = str(choice.hash_key())
        return self._identities.get(hash_, hash_)

    def _is_ours(self, decision: Decision) -> bool:
        return self._turns is not None and decision.by.process == self._turns.me.process

    def _beat(self, turns: RankAgreement, lead: WonClaim) -> None:
        """Write heartbeats until the turn is over. They show that this process lives, whatever it
        does: Inductor's own processes may compile for minutes before torch calls us again."""
        while not self._over.wait(job.BEAT):
            turns.beat(lead)

    # End

    def __enter__(self) -> RankTurn:
        self._outer = getattr(_here, "turn", None)
        _here.turn = self
        if self._turns is not None and self._lead is not None and self._lead.claim:
            claim = self._turns, self._lead
            beating = threading.Thread(target=self._beat, args=claim, name=BEATING, daemon=True)
            with contextlib.suppress(RuntimeError):  # no thread can be started at exit
                beating.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        _here.turn = self._outer
        if self._turns is not None and self._lead is not None:
            try:
                self._turns.end(self._lead)
            except BoardUnavailable as trouble:
                self._agreement.end(trouble)

    def report(self) -> Selection | None:
        """Record the outcome between the ranks; return why the choice was selected, if known."""
        if self._reason or self.why == "rank":
            decision = self._decision
            here = {identity: name for name, identity in self._identities.items()}
            self.tuning.asked(
                RanksAsked(
                    self.tuning.n,
                    time.time(),
                    None if decision is None else decision.by.rank,
                    None if decision is None else here.get(decision.hash, decision.hash),
                    self._waited,
                    {}
                    if decision is None
                    else {here.get(name, name): ms for name, ms in decision.timings.items()},
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
    """See `Turn.settled`, for the turn in which this thread tunes."""
    turn: RankTurn | None = getattr(_here, "turn", None)
    if turn is None or turn.tuning is not tuning:
        return timings
    if turn.screening:
        turn.screening = False
        return timings
    return turn.settled(timings)


def screening() -> None:
    """Mark this thread's next times as those of a few choices that screen the others."""
    turn: RankTurn | None = getattr(_here, "turn", None)
    if turn is not None:
        turn.screening = True


@functools.cache
def agreement() -> RankCoordinator | None:
    """Return the coordinator of this process; None if agreement is off."""
    return RankCoordinator(recorder()) if job.limit() else None


def _questions(
    tuning: TuningWatch, choices: Sequence[ChoiceCaller], layout: Any
) -> tuple[str, str]:
    key = tuning.key
    parts = (_device(layout), key.op, key.inputs, key.precision, text_of_options(tuning.given))
    offered = sorted(identities(choices, home.current()).values())
    return problem_name(*parts), problem_name(*parts, *offered)


def _device(layout: Any) -> str:
    """Return the properties of the device that choices depend on."""
    facts = torch_api.device_facts(layout.device)
    return f"{torch_api.system_hash()} {facts.name} {facts.arch} {facts.compute_units}"


def _called(tuning: TuningWatch) -> str:
    specs = parse_inputs_key(tuning.key.inputs).specs
    return f"{tuning.key.op}({', '.join('x'.join(map(str, spec.sizes)) for spec in specs)})"
