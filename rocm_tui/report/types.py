"""What can be said of one job: its ranks, its backends, what tuning saves and costs.

A backend that was asked for and of which nothing usable appeared is named with the reasons:
Inductor leaves it out without a word where something about the machine, the operands or an
installation does not fit.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from backend.model.choice import Choice
from backend.model.origin import provider
from backend.model.session import Session
from backend.model.tuning import Tuning
from rocm_tui.compare.types import Part
from rocm_tui.session.model import Row


@dataclass(frozen=True, slots=True)
class Party:
    """One rank, host or log of a job and what it uses for a problem.

    `ms` is its own time for its choice; `rivals_ms` its own time for each choice of the others, by
    label, where it timed that.
    """

    who: str
    row: Row
    choice: Choice
    ms: float | None
    rivals_ms: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Ranks or hosts that use different choices for the same problem, the slowest first.

    `matters` tells that one of them found its choice and another's to differ by more than a tie.
    """

    id: str
    row: Row
    parties: tuple[Party, ...]
    matters: bool


@dataclass(frozen=True, slots=True)
class Reason:
    """Why there is nothing of a backend: `count` choices failed like this one.

    A reason that was known before any choice was made has the count 0.
    """

    text: str
    count: int


@dataclass(frozen=True, slots=True)
class MissingBackend:
    """A backend that was asked for and of which no usable choice appeared.

    `ops` are the ops of which that is true, in `tunings` tunings; `everywhere` tells that it is
    true of all. `failed` choices appeared there and none of them could be used. `sessions` are
    those that asked for it.
    """

    backend: str
    ops: tuple[str, ...]
    tunings: int
    everywhere: bool
    failed: int
    reasons: tuple[Reason, ...]
    sessions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Gain:
    """What tuning one problem saves a call against ATen, and what it cost.

    `choice` is the one that most of its tunings use, `row` the latest of those. `saved_ms` is the
    median of what they save with it: None where ATen has no time, and 0 where ATen itself is used.
    `measured` tells that this was measured again and again; else it is made of times that were
    taken once, and no saving that anybody knows of.
    `tied` tells that the difference is within what can be told, `waited` that this is because one
    of the times is a wait on a busy CPU. `calls` is how often one pass of the model calls it, None
    where no session tells. `seconds` sums up all its tunings but `untold` ones, which do not tell
    theirs.
    """

    row: Row
    choice: Choice
    saved_ms: float | None
    tied: bool
    calls: int | None
    seconds: float
    untold: int = 0
    waited: bool = False
    measured: bool = False


@dataclass(frozen=True, slots=True)
class Savings:
    """What tuning saves, by problem, most first. What is not known is counted, not guessed.

    `saved_ms` is what one pass of the model saves that was measured and is not a tie, each problem
    as often as it is called, or once. `seconds` is what all of the `tunings` took, on all of the
    job's `ranks` together; `unknown` of them tell no duration, `taken` were taken from a cache.
    `systems` names each device, host or log; where there are several, `by_system` has what is true
    of each, since what is added up over them is true of none. `since` and `until` are Unix times of
    the first and the last tuning, where told.
    """

    gains: tuple[Gain, ...]
    saved_ms: float
    seconds: float
    ranks: int
    unknown: int
    tunings: int = 0
    taken: int = 0
    systems: tuple[str, ...] = ()
    by_system: tuple[tuple[str, Savings], ...] = ()
    since: float | None = None
    until: float | None = None

    @property
    def valued(self) -> tuple[Gain, ...]:
        """Those of which it was measured what they save."""
        return tuple(gain for gain in self.gains if gain.measured and gain.saved_ms is not None)

    @property
    def unmeasured(self) -> tuple[Gain, ...]:
        """Those of which only times that were taken once tell what they might save."""
        return tuple(g for g in self.gains if not g.measured and g.saved_ms is not None)

    @property
    def runs_to_pay(self) -> float | None:
        """After how many runs the tunings whose saving was measured are paid for.

        None if nothing is saved, if nobody knows what they took, or if they are of several systems,
        which no run pays together. Ranks tune side by side, so each pays its part.
        """
        seconds = sum(gain.seconds for gain in self.valued)
        if self.saved_ms <= 0 or not seconds or len(self.systems) > 1:
            return None
        return seconds / self.ranks * 1e3 / self.saved_ms

    @property
    def at_least(self) -> bool:
        """Whether `runs_to_pay` may be more: some of those tunings do not tell what they took."""
        return any(gain.untold for gain in self.valued)


@dataclass(frozen=True, slots=True)
class Repeated:
    """A problem that was tuned again and again.

    `times` is how often, in `processes` processes, where they are known; `seconds` is what it took
    beyond the first time, without `untold` tunings. `winners` are the labels of the choices that
    won, with how often, most often first.
    """

    row: Row
    times: int
    processes: int | None
    seconds: float
    winners: tuple[tuple[str, int], ...]
    untold: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """The report of one job. `backends_known` is False where no session says which backends it
    asked for. `compared` problems are those for which the choices of two parties of one job were
    compared; `not_compared` are the other problems of such jobs."""

    disagreements: tuple[Disagreement, ...]
    compared: int
    not_compared: int
    missing: tuple[MissingBackend, ...]
    backends_known: bool
    savings: Savings
    repeated: tuple[Repeated, ...]


CONVOLUTION = "conv:"
"""Stands before a backend that was asked for in convolutions, which have a list of their own."""

_BACKENDS = {
    "aten": "ATEN",
    "triton": "TRITON",
    "cpp": "CPP",
    "rocm": "ROCM",
    "cutlass": "CUTLASS",
    "cutedsl": "CUTEDSL",
    "nv_universal_gemm": "NVGEMM",
}
_VARIABLE = re.compile(r"0x[0-9a-fA-F]+|\d+|/\S+")


@dataclass(slots=True)
class _Seen:
    """What was seen of one backend; the ops of `lacking` have no usable choice in a session."""

    lacking: dict[str, None] = field(default_factory=dict)
    sessions: dict[str, None] = field(default_factory=dict)
    tunings: int = 0
    present: bool = False
    failed: list[Choice] = field(default_factory=list)
    reasons: dict[str, None] = field(default_factory=dict)


def backend_of(choice: Choice) -> str | None:
    """The name under which Inductor's option asks for what made a choice; None if not known."""
    source = provider(choice)
    if source == "ck":
        return "CKTILE" if "ck_tile" in f"{choice.name} {choice.hash}" else "CK"
    return _BACKENDS.get(source or "")


def missing_backends(part: Part) -> tuple[MissingBackend, ...]:
    """One entry a backend, in the order in which they were asked for."""
    seen: dict[str, _Seen] = {}
    asked: dict[str, dict[str, list[Tuning]]] = {}
    for row in part.rows:
        for name in dict.fromkeys(row.asked):
            asked.setdefault(name, {}).setdefault(row.tuning.op, []).append(row.tuning)
    for session in part.sessions.values():
        for op, tunings in asked.get(session.id, {}).items():
            for backend in _asked(session, op):
                _look(seen.setdefault(backend, _Seen()), backend, session, op, tunings)
    return tuple(_entry(name, backend) for name, backend in seen.items() if backend.lacking)


def _asked(session: Session, op: str) -> Iterable[str]:
    if not op.startswith("conv"):
        return [name for name in session.backends if not name.startswith(CONVOLUTION)]
    marked = [name for name in session.backends if name.startswith(CONVOLUTION)]
    return [name.removeprefix(CONVOLUTION) for name in marked]


def _look(seen: _Seen, backend: str, session: Session, op: str, tunings: list[Tuning]) -> None:
    every = [choice for tuning in tunings for choice in tuning.choices]
    theirs = [choice for choice in every if backend_of(choice) == backend]
    if any(not choice.failed for choice in theirs):
        seen.present = True
        return
    if backend == _BACKENDS["aten"] and any(provider(choice) is None for choice in every):
        return  # ATen has no mark in its names: what nobody knows may be its kernel
    seen.lacking[op] = None
    seen.sessions[session.id] = None
    seen.tunings += len(tunings)
    seen.failed += theirs
    for remark in session.absent:
        name, _, reason = remark.partition(": ")
        if name == backend and reason:
            seen.reasons[reason] = None


def _entry(backend: str, seen: _Seen) -> MissingBackend:
    return MissingBackend(
        backend=backend,
        ops=tuple(seen.lacking),
        tunings=seen.tunings,
        everywhere=not seen.present,
        failed=len(seen.failed),
        reasons=(*(Reason(text, 0) for text in seen.reasons), *grouped(seen.failed)),
        sessions=tuple(seen.sessions),
    )


def grouped(failed: Iterable[Choice]) -> tuple[Reason, ...]:
    """Failures by reason, most frequent first; reasons that differ in numbers or paths are one."""
    counts: Counter[str] = Counter()
    example: dict[str, str] = {}
    for choice in failed:
        reason = choice.reason or "no reason known"
        kind = _VARIABLE.sub("#", reason.replace(choice.name or "\0", "#"))
        counts[kind] += 1
        example.setdefault(kind, reason)
    return tuple(Reason(example[kind], count) for kind, count in counts.most_common())
