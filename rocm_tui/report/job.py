"""The report of one job: who chose differently, which backends are missing, what tuning saves.

A backend that was requested and of which nothing usable appeared is named with the reasons:
Inductor leaves it out silently where something about the machine, the operands or an installation
does not fit. What is added up over several devices, hosts or logs is true of no single run, so
each system is also reported alone. Pure functions.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from statistics import median

from backend.model.choice import Choice
from backend.model.origin import device_kind, provider
from backend.model.session import Session, systems_of
from backend.model.tuning import Tuning
from rocm_tui.compare.choices import same_choice, timed, used
from rocm_tui.compare.comparison import spent, taken, unknown_durations, was_tuned
from rocm_tui.compare.problems import ProblemRows, problems
from rocm_tui.compare.types import TuningSet, calls_of
from rocm_tui.report.agreement import Agreement
from rocm_tui.report.ranks import job_agreements
from rocm_tui.session import stats
from rocm_tui.session.in_use import in_use
from rocm_tui.session.model import Row
from rocm_tui.session.sessions import names
from rocm_tui.session.stats import versus, waited


@dataclass(frozen=True, slots=True)
class Reason:
    """Why there is nothing of a backend: `count` choices failed like this one.

    A reason that was known before any choice was made has the count 0.
    """

    text: str
    count: int


@dataclass(frozen=True, slots=True)
class MissingBackend:
    """A backend that was requested and of which no usable choice appeared.

    `ops` are the ops that lack it, in `tunings` tunings; `everywhere` means that all ops do.
    `failed` choices appeared there, and none of them could be used. `sessions` requested it.
    """

    backend: str
    ops: tuple[str, ...]
    tunings: int
    everywhere: bool
    failed: int
    reasons: tuple[Reason, ...]
    sessions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ProblemSaving:
    """What tuning one problem saves per call against ATen, and what it cost.

    `choice` is the one that most of its tunings use, `row` the latest of those. `saved_ms` is the
    median of what they save with it: None if ATen has no time, 0 if ATen itself is used. `measured`
    means that it was measured repeatedly; single times show no saving that anybody can be sure of.
    `tied` means that both are as fast, `unclear` that it cannot be known, `waited` that this is
    because one of the times is a wait on a busy CPU. `calls` is how often one pass of the model
    calls it, None if no session recorded that. `seconds` is the duration of all its tunings, except
    for `untold` ones whose duration is unknown.
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
    unclear: bool = False

    @property
    def undecided(self) -> bool:
        """Whether the choice is not known to be faster or slower than ATen's."""
        return self.tied or self.unclear


@dataclass(frozen=True, slots=True)
class Savings:
    """What tuning saves, by problem, most first. What is unknown is counted, not guessed.

    `saved_ms` is the measured saving of one pass of the model, without ties, weighted by call
    count. `seconds` is the duration of all `tunings`, on all `ranks` of the job together; `unknown`
    of them have no known duration, `taken` were taken from a cache. `systems` names each device,
    host or log; if there are several, `by_system` has the savings of each, since their sum holds
    for no run. `since` and `until` are the Unix times of the first and the last tuning.
    """

    gains: tuple[ProblemSaving, ...]
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
    def valued(self) -> tuple[ProblemSaving, ...]:
        """The savings that were measured, with a result that is not unclear."""
        measured = (gain for gain in self.gains if gain.measured and not gain.unclear)
        return tuple(gain for gain in measured if gain.saved_ms is not None)

    @property
    def unclear(self) -> int:
        """How many problems were measured with an unclear result."""
        return sum(gain.measured and gain.unclear for gain in self.gains)

    @property
    def unmeasured(self) -> tuple[ProblemSaving, ...]:
        """The possible savings by times that were taken once."""
        return tuple(g for g in self.gains if not g.measured and g.saved_ms is not None)

    @property
    def runs_to_pay(self) -> float | None:
        """After how many runs the tunings whose saving was measured are paid for.

        None if nothing is saved, if their duration is unknown, or if they are of several systems,
        which no run pays together. Ranks tune side by side, so each pays its part.
        """
        seconds = sum(gain.seconds for gain in self.valued)
        if self.saved_ms <= 0 or not seconds or len(self.systems) > 1:
            return None
        return seconds / self.ranks * 1e3 / self.saved_ms

    @property
    def at_least(self) -> bool:
        """Whether `runs_to_pay` may be more, since the duration of some tunings is unknown."""
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
    """The report of one job.

    `backends_known` is False if no session recorded which backends it requested. `jobs` compares
    the ranks of each job that has several, the jobs where they differ first.
    """

    jobs: tuple[Agreement, ...]
    missing: tuple[MissingBackend, ...]
    backends_known: bool
    savings: Savings
    repeated: tuple[Repeated, ...]


CONVOLUTION = "conv:"
"""Prefix of a backend that was requested for convolutions, which have a list of their own."""

_BACKENDS = {
    "aten": "ATEN",
    "triton": "TRITON",
    "cpp": "CPP",
    "rocm": "ROCM",
    "cutlass": "CUTLASS",
    "cutedsl": "CUTEDSL",
    "nv_universal_gemm": "NVGEMM",
    "flydsl": "FLYDSL",
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
    """Return the name of a choice's maker in Inductor's option; None if unknown."""
    source = provider(choice)
    if source == "ck":
        return "CKTILE" if "ck_tile" in f"{choice.name} {choice.hash}" else "CK"
    return _BACKENDS.get(source or "")


def missing_backends(part: TuningSet) -> tuple[MissingBackend, ...]:
    """Return the missing backends, in the order in which they were requested."""
    seen: dict[str, _Seen] = {}
    asked: dict[str, dict[str, list[Tuning]]] = {}
    for row in part.rows:
        for name in dict.fromkeys(row.asked):
            asked.setdefault(name, {}).setdefault(row.tuning.op, []).append(row.tuning)
    for session in part.sessions.values():
        for op, tunings in asked.get(session.id, {}).items():
            for backend in _asked(session, op):
                _note_backend(seen.setdefault(backend, _Seen()), backend, session, op, tunings)
    return tuple(
        MissingBackend(
            backend=name,
            ops=tuple(backend.lacking),
            tunings=backend.tunings,
            everywhere=not backend.present,
            failed=len(backend.failed),
            reasons=(*(Reason(text, 0) for text in backend.reasons), *grouped(backend.failed)),
            sessions=tuple(backend.sessions),
        )
        for name, backend in seen.items()
        if backend.lacking
    )


def _asked(session: Session, op: str) -> Iterable[str]:
    if not op.startswith("conv"):
        return [name for name in session.backends if not name.startswith(CONVOLUTION)]
    marked = [name for name in session.backends if name.startswith(CONVOLUTION)]
    return [name.removeprefix(CONVOLUTION) for name in marked]


def _note_backend(
    seen: _Seen, backend: str, session: Session, op: str, tunings: list[Tuning]
) -> None:
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


def rows_by_system(part: TuningSet) -> dict[str, list[Row]]:
    """Return the rows of each system by its name.

    The name is the device, and the host unless ranks of one job share that device; else the cache
    file, else the log.
    """
    named: dict[str, set[str]] = {}
    for session in part.sessions.values():
        if session.system_hash:
            for kind in ("cpu", "gpu"):
                label = _system_label(session, kind)
                named.setdefault(f"{session.system_hash} {kind}", set()).add(label)
    rows: dict[str, list[Row]] = {}
    for row in part.rows:
        for label in sorted(_systems_of_row(row.tuning, row.asked, part.sessions, named)):
            rows.setdefault(label, []).append(row)
    return rows


def _systems_of_row(
    tuning: Tuning,
    asked: tuple[str, ...],
    sessions: Mapping[str, Session],
    named: Mapping[str, set[str]],
) -> set[str]:
    kind = device_kind(tuning) or ""
    requesters = [sessions[name] for name in dict.fromkeys(asked) if name in sessions]
    if requesters:
        return {_system_label(session, kind) for session in requesters}
    hashes = systems_of(tuning, sessions)
    if hashes:
        return {min(named.get(f"{hash_} {kind}", {f"cache {hash_[:12]}"})) for hash_ in hashes}
    return set(tuning.sources[:1])


def _system_label(session: Session, kind: str) -> str:
    if kind == "cpu":
        return f"CPU of {session.host or 'an unknown host'}"
    device = session.device or session.arch or "unknown device"
    return device if session.rank is not None or not session.host else f"{device} of {session.host}"


@dataclass(frozen=True, slots=True)
class Scope:
    """What a report covers: all sources, a system, or a session, by its name."""

    kind: str
    name: str
    part: TuningSet


def scopes(part: TuningSet) -> list[Scope]:
    """Return the possible scopes: all, each of several systems, each session, latest first."""
    all_scopes = [Scope("all", "", part)]
    systems = rows_by_system(part)
    if len(systems) > 1:
        all_scopes += [Scope("system", name, _rows(part, rows)) for name, rows in systems.items()]
    by_session: dict[str, list[Row]] = {}
    for row in part.rows:
        for id_ in dict.fromkeys(row.asked):
            asked = tuple(name for name in row.asked if name == id_)
            by_session.setdefault(id_, []).append(replace(row, asked=asked))
    sessions = [part.sessions[name] for name in by_session if name in part.sessions]
    if len(sessions) > 1:
        called = names(part.sessions.values())
        for session in sorted(sessions, key=lambda session: -session.started):
            own = _rows(part, by_session[session.id])
            all_scopes.append(Scope("session", called[session.id], own))
    return all_scopes


def _rows(part: TuningSet, rows: list[Row]) -> TuningSet:
    return replace(part, rows=tuple(rows))


MAY_WAIT = 0.9
WAITS = 4
WAITS_OF = 0.25
"""Milliseconds from which a time may be a wait on a busy CPU; how many of a job's times, and what
share of them, must look so: one of 25 does by chance."""


def report(part: TuningSet) -> Report:
    """Report on the tunings of one job."""
    all_problems = problems(part)
    return Report(
        jobs=job_agreements(part),
        missing=missing_backends(part),
        backends_known=any(session.backends for session in part.sessions.values()),
        savings=savings(all_problems, part),
        repeated=repeated(all_problems),
    )


def savings(all_problems: Iterable[ProblemRows], part: TuningSet) -> Savings:
    """Time saved against ATen and seconds spent, over all problems, and on each system alone: no
    run uses several devices, hosts or logs together."""
    tuned = tuple(row for row in part.rows if was_tuned(row))
    apart = rows_by_system(replace(part, rows=tuned))
    parts = ((name, replace(part, rows=tuple(rows))) for name, rows in apart.items())
    together = replace(_savings(all_problems, part), systems=tuple(apart))
    if len(apart) < 2:
        return together
    each = tuple((name, _savings(problems(own), own)) for name, own in parts)
    return replace(together, by_system=each)


def _savings(all_problems: Iterable[ProblemRows], part: TuningSet) -> Savings:
    tuned = [row for row in part.rows if was_tuned(row)]
    busy = _busy_cpu(tuned)
    timed_problems = (problem for problem in all_problems if any(map(was_tuned, problem.rows)))
    gains = [
        _gain(problem, uses, busy) for problem in timed_problems if (uses := _uses(problem.rows))
    ]
    gains.sort(key=lambda gain: (_place(gain), -(gain.saved_ms or 0.0) * (gain.calls or 1)))
    moments = [row.tuning.when for row in tuned if row.tuning.when]
    return Savings(
        gains=tuple(gains),
        saved_ms=sum(
            (gain.saved_ms or 0.0) * (gain.calls or 1)
            for gain in gains
            if gain.measured and not gain.undecided
        ),
        seconds=sum(gain.seconds for gain in gains),
        ranks=_ranks(part),
        unknown=unknown_durations(tuned),
        tunings=len(tuned),
        taken=sum(map(taken, tuned)),
        since=min(moments, default=None),
        until=max(moments, default=None),
    )


def _place(gain: ProblemSaving) -> int:
    """Sort measured savings first, then possible ones."""
    if gain.saved_ms is None:
        return 3
    if not gain.measured:
        return 1
    return 0 if gain.saved_ms else 2


def _gain(problem: ProblemRows, uses: _Uses, busy: bool) -> ProblemSaving:
    """Return the saving with the choice that most tunings use, of equal ones with the latest; if
    some of those tunings were measured, they alone count."""
    most = max(uses, key=len)
    latest, choice = most[0]
    every = [
        (row, own, ms) for row, own in most if (ms := stats.saved_ms(row.tuning, own)) is not None
    ]
    certain = [(row, ms) for row, own, ms in every if _is_measured(row.tuning, own)]
    values = certain or [(row, ms) for row, _, ms in every]
    sure = [(row, ms) for row, ms in values if not (busy and _waited(row.tuning, choice))]
    saved = [ms for _, ms in sure or values]
    waits = bool(values) and not sure
    against = _against_aten((sure[0][0] if sure else latest).tuning, choice)
    return ProblemSaving(
        row=latest,
        choice=choice,
        saved_ms=median(saved) if saved else None,
        tied=against == "tied" and not waits,
        calls=calls_of(problem.rows),
        seconds=spent(problem.rows),
        untold=unknown_durations(problem.rows),
        waited=waits,
        measured=bool(certain),
        unclear=waits or against == "unclear",
    )


def _is_measured(tuning: Tuning, choice: Choice) -> bool:
    """Whether it is known what the choice saves: ATen itself saves nothing."""
    aten = stats.aten(tuning)
    return choice is aten or not stats.once(tuning, choice, aten)


def _busy_cpu(rows: Iterable[Row]) -> bool:
    """Whether enough times on a CPU are whole milliseconds for calls to have waited."""
    on_cpu = (row.tuning for row in rows if device_kind(row.tuning) == "cpu")
    long = [ms for tuning in on_cpu for _, ms in timed(tuning) if ms > MAY_WAIT]
    waits = sum(waited([ms]) for ms in long)
    return waits >= WAITS and waits >= WAITS_OF * len(long)


def _waited(tuning: Tuning, choice: Choice) -> bool:
    """Whether a time of the choice, or of ATen's, may be a wait; `choice` is known by its likes."""
    aten = stats.aten(tuning)
    own = next((c for c, _ in timed(tuning) if same_choice(c, choice)), None)
    if aten is None or own is None or aten is own or device_kind(tuning) != "cpu":
        return False
    if stats.measured(tuning, own) and stats.measured(tuning, aten):
        return False
    return any(c.ms is not None and waited([c.ms]) for c in (own, aten))


_Uses = list[list[tuple[Row, Choice]]]


def _uses(rows: Iterable[Row]) -> _Uses:
    """Return the tunings, latest first, with the choice in use, those with the same one together.
    A pin that holds decides what that is, else the cache, whatever they took before."""
    groups: list[list[tuple[Row, Choice]]] = []
    for row in rows:
        use = used(row.tuning)
        if use is not None:
            own = (in_use(row) or use[0]) if row.pin or row.taken else use[0]
            same = (group for group in groups if same_choice(group[0][1], own))
            home = next(same, None)
            if home is None:
                groups.append(home := [])
            home.append((row, own))
    return groups


def _against_aten(tuning: Tuning, choice: Choice) -> stats.Standing | None:
    aten = stats.aten(tuning)
    own = next((c for c, _ in timed(tuning) if same_choice(c, choice)), choice)
    return None if aten is None or own == aten else versus(tuning, own, aten)


def _ranks(part: TuningSet) -> int:
    """How many ranks worked side by side; 1 where none is known."""
    names = {name for row in part.rows for name in row.asked}
    sessions = [part.sessions[name] for name in names if name in part.sessions]
    ranks = {(session.host, session.rank) for session in sessions if session.rank is not None}
    return max(1, len(ranks))


def repeated(all_problems: Iterable[ProblemRows]) -> tuple[Repeated, ...]:
    """The problems that were tuned more than once, most seconds first."""
    repeats = [repeat for problem in all_problems if (repeat := _repeated(problem))]
    return tuple(sorted(repeats, key=lambda repeat: (-repeat.seconds, -repeat.times)))


def _repeated(problem: ProblemRows) -> Repeated | None:
    rows = [row for row in problem.rows if was_tuned(row)]
    if len(rows) < 2:
        return None
    winners: list[tuple[Choice, str]] = []
    for row in rows:
        best = stats.winner(row.tuning)
        if best is not None:
            labels = (label for other, label in winners if same_choice(other, best))
            winners.append((best, next(labels, best.label)))
    processes = {row.tuning.session for row in rows}
    return Repeated(
        row=rows[0],
        times=len(rows),
        processes=None if None in processes else len(processes),
        seconds=spent(rows[:-1]),
        untold=unknown_durations(rows[:-1]),
        winners=tuple(Counter(label for _, label in winners).most_common()),
    )
