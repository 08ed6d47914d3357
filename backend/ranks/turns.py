"""Who chooses, of the ranks that meet the same problem.

The first decision that stands on the board holds for all, whoever made it and however late: a rank
that has timed its choices puts up its fastest, and takes what stands there if another was first. So
ranks differ in nothing but time, whatever becomes of one of them.

So that not all of them time the same, one claims the problem, and the others wait for its decision.
Rank 0 goes first: the others leave a problem to it for a moment, which gets shorter each time that
it does not come, since ranks may compile other graphs. A claim ends with the process that made it,
where that can be seen, else when it has shown no sign of life for long. Nobody waits while it holds
a claim, and nobody waits longer than `limit` seconds.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from backend.processes.tree import lives
from backend.ranks.job import Board, Claim, Decision, NoBoard, Rank, of_note, to_note

GRACE = 2.0
"""Seconds that a problem is left to rank 0, at first."""
LEAST_GRACE = 0.1
STAGGER = 0.02
"""Seconds for each rank: then the lowest that has asked comes first."""
SILENCE = 60.0
"""Seconds without a sign of life of a process that cannot be seen from here, until it is given up:
one of its choices may take a minute to be compiled."""
AGAIN = 1.0
"""Seconds to wait for one that was waited for in vain, until it has decided something."""
FIRST_REST, LONGEST_REST = 0.005, 0.1
"""Seconds between two looks at the board, of a small job."""
REST_EACH = 0.001
"""Seconds of the longest rest, for each rank of a job: all ask one server, by three requests."""
MANY = 64
"""Ranks that are looked for, to find out whether one meets any."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Another rank, or this one before, has decided."""

    decision: Decision
    waited: float


@dataclass(frozen=True, slots=True)
class Lead:
    """This rank is to choose. `claim` is its note; empty where it chooses inside of another
    problem of its own. `after` had claimed it before, and is gone."""

    problem: str
    claim: str
    waited: float
    after: Rank | None = None


@dataclass(frozen=True, slots=True)
class Late:
    """Nothing was decided in time: the one that was waited for, and how long."""

    problem: str
    by: Rank
    waited: float


Answer = Taken | Lead | Late


def untold(rank: int | None) -> None:
    """Nobody wants to know who is waited for."""


@dataclass
class Turns:
    """The turns of the rank `me` of a job of `size`; for one thread at a time."""

    board: Board
    me: Rank
    limit: float
    now: Callable[[], float] = time.monotonic
    rest: Callable[[float], None] = time.sleep
    alive: Callable[[str], bool | None] = lives
    size: int = 2
    silence: float = SILENCE
    _grace: float = GRACE
    _held: set[str] = field(default_factory=set)
    _beats: dict[str, tuple[object, float]] = field(default_factory=dict)
    _in_vain: set[str] = field(default_factory=set)

    def ask(self, problem: str, awaits: Callable[[int | None], None] = untold) -> Answer:
        """Whose turn it is. May wait: then `awaits` hears for which rank, and in the end None.
        Raises NoBoard."""
        told = _Told(awaits)
        try:
            return self._ask(problem, told)
        finally:
            told.put(None)

    def _ask(self, problem: str, told: _Told) -> Answer:
        longest = max(LONGEST_REST, REST_EACH * self.size)
        began, rest = self.now(), FIRST_REST * longest / LONGEST_REST
        first = self._left_to_first()
        grace = min(self.limit, first + STAGGER * self.me.rank)
        while True:
            decision, waited = self.decision(problem), self.now() - began
            if decision is not None:
                return self._taken(decision, waited)
            if self._held:  # others may wait for us: we do not wait for them
                return Lead(problem, "", waited)
            number, holder = self._claim(problem)
            if holder is not None:
                if waited >= self._patience(holder):
                    self._in_vain.add(holder.process)
                    return Late(problem, holder, waited)
            elif number or waited >= grace:
                name = _claim_name(problem, number)
                if self.board.put(name, to_note(Claim(self.me))):
                    self._held.add(name)
                    self._missed(number, grace)
                    return Lead(problem, name, waited, self._before(problem, number))
                continue
            if holder is not None or waited < first:
                told.put(0 if holder is None else holder.rank)
            self.rest(min(rest, max(FIRST_REST, self.limit - waited)))
            rest = min(2 * rest, longest)

    def decision(self, problem: str) -> Decision | None:
        """What stands on the board. Raises NoBoard."""
        note = self.board.read(problem)
        decision = of_note(Decision, note)
        if note is not None and decision is None:
            raise NoBoard(f"the note {problem} is damaged")
        return decision

    def decide(self, problem: str, decision: Decision) -> Decision:
        """Put it up; the one that holds, which is another one if that was first. Raises NoBoard."""
        if self.board.put(problem, to_note(decision)):
            return decision
        return self.decision(problem) or decision

    def end(self, lead: Lead) -> None:
        """Give the turn up, decided or not."""
        if lead.claim:
            self._held.discard(lead.claim)
            if self.decision(lead.problem) is None:
                self.board.take_down(lead.claim)

    def beat(self, lead: Lead) -> None:
        """Say that we are at work."""
        if lead.claim:
            self.board.beat(lead.claim)

    def _taken(self, decision: Decision, waited: float) -> Taken:
        self._in_vain.discard(decision.by.process)
        if decision.by.rank == 0:
            self._grace = GRACE
        return Taken(decision, waited)

    # Rank 0 goes first

    def _left_to_first(self) -> float:
        """Seconds that a problem is left to rank 0."""
        first = self.me if self.me.rank == 0 else self.rank(0)
        gone = first is not None and self.alive(first.process) is False
        return 0.0 if gone or first is self.me else self._grace

    def _missed(self, number: int, grace: float) -> None:
        """We claim what rank 0 left to us."""
        if not number and grace >= self._grace > 0:
            self._grace = self._grace / 2 if self._grace > 2 * LEAST_GRACE else 0.0

    # Who has claimed

    def _claim(self, problem: str) -> tuple[int, Rank | None]:
        """The last claim: its number and who holds it. Nobody: the number of the next."""
        number, holder = 0, None
        while True:
            name = _claim_name(problem, number)
            note = self.board.read(name)
            if note is None:
                return number, None
            claim = of_note(Claim, note)
            holder = None if claim is None else claim.by
            if holder is not None and self._holds(name, holder):
                return number, holder
            number += 1

    def _before(self, problem: str, number: int) -> Rank | None:
        if not number:
            return None
        claim = of_note(Claim, self.board.read(_claim_name(problem, number - 1)))
        return None if claim is None or claim.by.process == self.me.process else claim.by

    def _holds(self, name: str, holder: Rank) -> bool:
        if holder.process == self.me.process:
            return False  # what we hold we would not ask for: this is left from before
        alive = self.alive(holder.process)
        if alive is not None:
            return alive
        beat, now = self.board.last_beat(name), self.now()
        last, since = self._beats.get(name, (None, now))
        if beat != last:
            self._beats[name] = beat, now
            return True
        return now - since < self.silence

    def _patience(self, holder: Rank) -> float:
        return min(self.limit, AGAIN) if holder.process in self._in_vain else self.limit

    # Who is there

    def register(self) -> None:
        """Let the others know of us. Raises NoBoard."""
        name = _rank_name(self.me.rank)
        if not self.board.put(name, to_note(self.me)) and self.rank(self.me.rank) != self.me:
            self.board.take_down(name)  # of the process that was this rank before a restart
            self.board.put(name, to_note(self.me))

    def rank(self, number: int) -> Rank | None:
        """Who is this rank, if it has asked already. Raises NoBoard."""
        return of_note(Rank, self.board.read(_rank_name(number)))

    def met(self, size: int) -> list[Rank]:
        """The others that have asked, of the first of a job of so many. Raises NoBoard."""
        others = (self.rank(n) for n in range(min(size, MANY)) if n != self.me.rank)
        return [one for one in others if one is not None]


@dataclass
class _Told:
    """Who is waited for, told where it changes."""

    awaits: Callable[[int | None], None]
    rank: int | None = None

    def put(self, rank: int | None) -> None:
        if rank != self.rank:
            self.rank = rank
            self.awaits(rank)


def problem_name(*parts: str) -> str:
    """The name of the notes of what these texts tell."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _claim_name(problem: str, number: int) -> str:
    return f"{problem}.claim-{number}"


def _rank_name(number: int) -> str:
    return f"rank-{number}"
